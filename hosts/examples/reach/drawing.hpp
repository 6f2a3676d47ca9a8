// SPDX-License-Identifier: Apache-2.0
// drawing.hpp - an episode of the reaching task as SVG elements in the unit square, for any
// browser.
#pragma once

#include <cstdint>
#include <string>

#include "examples/reach/world.hpp"

namespace reach {

// The discs, and the point on its path; what moves repeats after `frames` (frt/environment.h).
std::string draw(const World& world, uint32_t frames);

}  // namespace reach
