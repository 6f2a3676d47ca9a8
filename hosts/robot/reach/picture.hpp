// SPDX-License-Identifier: Apache-2.0
// picture.hpp - episodes of the reaching task as one animated SVG file, for any browser.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "robot/reach/world.hpp"

namespace frt::host {

struct ReachTrace {
  std::array<Point, ReachWorld::kDiscs> discs{};
  uint32_t goal = 0;
  bool success = false;
  std::vector<Point> path;  // the point, tick by tick
};

// The traces side by side, each repeating its path.
std::string reach_svg(const std::vector<ReachTrace>& traces, const std::string& title);

}  // namespace frt::host
