// SPDX-License-Identifier: Apache-2.0
#include "layers.hpp"

#include <algorithm>
#include <fstream>

namespace layers {
namespace {

bool holds(const std::vector<std::string>& list, const std::string& value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

// "exec/objects.hpp" of `#include "exec/objects.hpp"` or <...>; empty: no include.
std::string included(const std::string& line) {
  const std::size_t start = line.find_first_not_of(" \t");
  if (start == std::string::npos || line.compare(start, 8, "#include") != 0) return {};
  const std::size_t open = line.find_first_of("\"<", start);
  const std::size_t close = line.find_first_of("\">", open + 1);
  if (open == std::string::npos || close == std::string::npos) return {};
  return line.substr(open + 1, close - open - 1);
}

}  // namespace

const std::vector<Layer>& all() {
  static const std::vector<Layer> layers = {
      {"exec", {"exec"}, {"context", "context_call", "exec_table", "setup_lock"}, false},
      {"state", {"capsule"}, {"capsules", "digest", "state"}, true},
      {"loader",
       {"plugin", "manifest", "util"},
       {"child_process", "config", "diagnostic", "log", "manifest", "plugin", "registry", "runtime",
        "services", "toml_text"},
       true},
  };
  return layers;
}

std::string wrong_include(std::size_t index, const std::string& line) {
  const std::string path = included(line);
  const std::size_t slash = path.find('/');
  if (slash == std::string::npos) return {};  // the standard library, the system
  const std::string folder = path.substr(0, slash);
  if (path.starts_with("frt/core/")) {
    const std::string header = path.substr(9, path.find('.') - 9);
    for (std::size_t i = 0; i <= index; ++i) {
      if (holds(all()[i].headers, header)) return {};
    }
    return path;
  }
  for (std::size_t i = 0; i < all().size(); ++i) {
    if (holds(all()[i].folders, folder)) return i == index ? std::string() : path;
  }
  if (all()[index].libraries || folder == "sys") return {};
  return folder == "frt" && !path.starts_with("frt/io/") ? std::string() : path;
}

namespace {

// Appends "file:line: include" of each line under `folder` for which `wrong` has an answer.
template <class Wrong>
void scan(const std::filesystem::path& folder, const Wrong& wrong,
          std::vector<std::string>& found) {
  for (const auto& file : std::filesystem::recursive_directory_iterator(folder)) {
    const std::string kind = file.path().extension().string();
    if (kind != ".cpp" && kind != ".hpp") continue;
    std::ifstream in(file.path());
    std::string line;
    for (int number = 1; std::getline(in, line); ++number) {
      const std::string what = wrong(line);
      if (what.empty()) continue;
      found.push_back(file.path().string() + ":" + std::to_string(number) + ": " + what);
    }
  }
}

}  // namespace

std::vector<std::string> problems(const std::filesystem::path& source) {
  std::vector<std::string> found;
  for (std::size_t index = 0; index < all().size(); ++index) {
    for (const std::string& folder : all()[index].folders) {
      scan(
          source / folder, [&](const std::string& line) { return wrong_include(index, line); },
          found);
    }
  }
  return found;
}

const std::vector<Room>& rooms() {
  static const std::vector<Room> rooms = {
      {"net", {}, false},
      {"lm", {}, false},
      {"robot", {"net"}, false},
      {"http", {"net", "lm"}, false},
      {"bench", {"lm", "robot"}, false},
      {"examples", {"lm", "robot"}, false},
      {"runtime", {"net", "lm", "robot", "http"}, false},
      {"embed", {"lm", "robot", "runtime"}, false},
      {"cli", {"net", "lm", "robot", "http", "bench", "examples", "runtime"}, true},
  };
  return rooms;
}

std::string wrong_host_include(const Room& room, const std::string& line) {
  const std::string path = included(line);
  if (path == "histedit.h" || path.starts_with("CLI/")) return room.terminal ? "" : path;
  const std::string folder = path.substr(0, path.find('/'));
  if (folder == path || folder == room.name || holds(room.rooms, folder)) return {};
  const bool is_room = std::any_of(rooms().begin(), rooms().end(),
                                   [&](const Room& other) { return other.name == folder; });
  return is_room ? path : std::string();
}

std::vector<std::string> host_problems(const std::filesystem::path& hosts) {
  std::vector<std::string> found;
  for (const Room& room : rooms()) {
    scan(
        hosts / room.name, [&](const std::string& line) { return wrong_host_include(room, line); },
        found);
  }
  return found;
}

}  // namespace layers
