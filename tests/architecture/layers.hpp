// SPDX-License-Identifier: Apache-2.0
// layers.hpp - core's libraries stand on each other: what the sources of each may include.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace layers {

// One library: folders of core/src, headers of frt/core that it may include beside those of the
// libraries below, and whether anything else than the SDK and the standard library may come in.
struct Layer {
  std::string name;
  std::vector<std::string> folders;
  std::vector<std::string> headers;
  bool libraries;
};

// From the lowest.
const std::vector<Layer>& all();

// What a source of layer `index` must not include, of `line`; empty: nothing.
std::string wrong_include(std::size_t index, const std::string& line);

// "file:line: include" of every source under `source` (core/src) that breaks the order.
std::vector<std::string> problems(const std::filesystem::path& source);

}  // namespace layers
