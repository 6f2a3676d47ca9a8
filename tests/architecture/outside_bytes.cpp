// SPDX-License-Identifier: Apache-2.0
#include "outside_bytes.hpp"

#include <algorithm>
#include <cctype>
#include <fstream>

namespace outside_bytes {

const std::vector<Exception> kExceptions = {
    {"core/src/util/toml_reader.cpp", "toml::parse", "the one caller; toml_bounds.hpp looks first"},
    {"core/src/capsule/folder.cpp", "o_rdonly",
     "by name in an open folder: O_NOFOLLOW, O_NONBLOCK, then fstat; folders with O_DIRECTORY"},
    {"core/src/capsule/file_layer.cpp", "o_rdwr", "new files only: O_EXCL, O_NOFOLLOW"},
    {"core/src/capsule/file_layer.cpp", "o_creat", "the same"},
    {"hosts/lm/capsule_transfer.cpp", "o_wronly", "new files only: O_EXCL, O_NOFOLLOW"},
    {"hosts/lm/capsule_transfer.cpp", "o_creat", "the same"},
    {"hosts/lm/capsule_transfer.cpp", "o_rdonly", "folders: O_DIRECTORY, O_NOFOLLOW"},
    {"hosts/lm/capsule_index_database.cpp", "o_wronly",
     "an own file for SQLite, examined first: O_NOFOLLOW, O_NONBLOCK"},
    {"hosts/lm/capsule_index_database.cpp", "o_creat", "the same"},
    {"hosts/lm/capsule_use.cpp", "o_rdwr", "an own file for locks, never read: O_NONBLOCK"},
    {"hosts/lm/capsule_use.cpp", "o_creat", "the same"},
    {"hosts/robot/record/episode_folder.cpp", "o_wronly", "new files only: O_EXCL, O_NOFOLLOW"},
    {"hosts/robot/record/episode_folder.cpp", "o_creat", "the same"},
    {"hosts/robot/server/listener.cpp", "o_rdonly", "/dev/null, a descriptor in reserve"},
    {"hosts/cli/command_chat.cpp", "o_rdonly", "a folder to lock, never read: O_DIRECTORY"},
    {"hosts/cli/output.cpp", "o_rdonly", "/dev/null in place of a stream that is closed"},
    {"hosts/cli/output.cpp", "o_rdwr", "the same"},
    {"plugins/cpu/system.cpp", "std::ifstream", "files of the kernel in /sys"},
    {"plugins/cuda/memory.cpp", "std::ifstream", "files of the kernel in /proc and /sys"},
    {"plugins/cuda/blas_choices.cpp", "std::ifstream",
     "the user's cache; the plugin links no library"},
};

namespace {

// In lower case; lines are compared so, which makes Json::parse and json::parse one. Who opens a
// file himself names one of O_RDONLY and its like.
constexpr std::string_view kCalls[] = {
    "json::parse",   "json::accept", "json::sax_parse", "json::from_", "toml::parse",
    "std::ifstream", "std::fstream", "std::filebuf",    "fopen(",      "freopen(",
    "o_rdonly",      "o_wronly",     "o_rdwr",          "o_creat"};

bool is_identifier(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}

// True if `call` stands in `line` as itself: O_CREAT, but not FOO_CREAT or O_CREATE; Json::parse,
// but not Json::parse_error.
bool stands_in(std::string_view line, std::string_view call) {
  for (std::size_t at = line.find(call); at != line.npos; at = line.find(call, at + 1)) {
    const std::size_t end = at + call.size();
    const bool open_start = call.starts_with("o_") && at > 0 && is_identifier(line[at - 1]);
    const bool open_end = is_identifier(call.back()) && !call.ends_with('_') && end < line.size() &&
                          is_identifier(line[end]);
    if (!open_start && !open_end) return true;
  }
  return false;
}

}  // namespace

std::vector<std::string> calls_in(std::string_view line) {
  std::string lower(line.substr(0, std::min(line.find("//"), line.size())));
  if (lower.find("#include") != std::string::npos) return {};
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  std::vector<std::string> found;
  for (const std::string_view call : kCalls) {
    if (stands_in(lower, call)) found.emplace_back(call);
  }
  return found;
}

std::vector<Hit> scan(const std::filesystem::path& root) {
  std::vector<Hit> hits;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root)) {
    const std::string kind = entry.path().extension().string();
    const bool source = kind == ".cpp" || kind == ".hpp" || kind == ".h" || kind == ".c" ||
                        kind == ".cu" || kind == ".cuh";
    if (!entry.is_regular_file() || !source) continue;
    std::ifstream stream(entry.path());
    std::string line;
    for (std::size_t number = 1; std::getline(stream, line); ++number) {
      for (const std::string& call : calls_in(line)) hits.push_back({entry.path(), number, call});
    }
  }
  return hits;
}

}  // namespace outside_bytes
