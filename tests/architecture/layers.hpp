// SPDX-License-Identifier: Apache-2.0
// layers.hpp - core's libraries stand on each other: what the sources of each may include.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace layers {

// One library. A source includes the headers of its own folders, and of itself and the libraries
// below those of frt/core: what another library keeps in core/src is its own.
struct Layer {
  std::string name;
  std::vector<std::string> folders;  // of core/src
  std::vector<std::string> headers;  // of frt/core
  bool libraries;  // anything else than the SDK and the standard library may come in
};

// From the lowest.
const std::vector<Layer>& all();

// What a source of layer `index` must not include, of `line`; empty: nothing.
std::string wrong_include(std::size_t index, const std::string& line);

// "file:line: include" of every source under `source` (core/src) that breaks the order.
std::vector<std::string> problems(const std::filesystem::path& source);

}  // namespace layers
