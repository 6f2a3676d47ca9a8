// SPDX-License-Identifier: Apache-2.0
// layers.hpp - core's libraries stand on each other, and so do the rooms of hosts/: what the
// sources of each may include.
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

// A folder of hosts/: the folders of hosts/ that its sources may include beside their own.
struct Room {
  std::string name;
  std::vector<std::string> rooms;
  bool terminal;  // may include the libraries of terminals and command lines
};

const std::vector<Room>& rooms();

// What a source of `room` must not include, of `line`; empty: nothing.
std::string wrong_host_include(const Room& room, const std::string& line);

// "file:line: include" of every source under `hosts` that breaks the order.
std::vector<std::string> host_problems(const std::filesystem::path& hosts);

}  // namespace layers
