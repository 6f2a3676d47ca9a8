// SPDX-License-Identifier: Apache-2.0
// parser.hpp - tokens to a syntax tree, with the precedence of Jinja2: `|` and `is` bind closer
// than operators, `~` closer than `+`, `a if b else c` loosest.
#pragma once

#include <string_view>

#include "syntax.hpp"

namespace frt::lm::jinja {

// Throws Fault with FRT_ERR_FORMAT, or FRT_ERR_UNSUPPORTED for what chat templates do not need
// (import, include, extends, block, recursive loops); `line` is then the line.
Body parse(std::string_view source, int& line);

}  // namespace frt::lm::jinja
