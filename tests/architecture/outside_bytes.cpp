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
    {"hosts/lm/capsules/transfer.cpp", "o_wronly", "new files only: O_EXCL, O_NOFOLLOW"},
    {"hosts/lm/capsules/transfer.cpp", "o_creat", "the same"},
    {"hosts/lm/capsules/transfer.cpp", "o_rdonly", "folders: O_DIRECTORY, O_NOFOLLOW"},
    {"hosts/lm/capsules/index_database.cpp", "o_wronly",
     "an own file for SQLite, examined first: O_NOFOLLOW, O_NONBLOCK"},
    {"hosts/lm/capsules/index_database.cpp", "o_creat", "the same"},
    {"hosts/lm/capsules/use.cpp", "o_rdwr", "an own file for locks, never read: O_NONBLOCK"},
    {"hosts/lm/capsules/use.cpp", "o_creat", "the same"},
    {"hosts/robot/record/episode_folder.cpp", "o_wronly", "new files only: O_EXCL, O_NOFOLLOW"},
    {"hosts/robot/record/episode_folder.cpp", "o_creat", "the same"},
    {"hosts/net/listener.cpp", "o_rdonly", "/dev/null, a descriptor in reserve"},
    {"hosts/net/access_log.cpp", "o_wronly", "an own file, only appended to: O_NONBLOCK, fstat"},
    {"hosts/net/access_log.cpp", "o_creat", "the same"},
    {"hosts/cli/commands/chat.cpp", "o_rdonly", "a folder to lock, never read: O_DIRECTORY"},
    {"hosts/cli/terminal/line_reader.cpp", "h_load",
     "libedit reads the history, a file that chat writes"},
    {"hosts/lm/capsules/index_database.cpp", "sqlite3_open", "SQLite, after the examination above"},
    {"hosts/cli/terminal/output.cpp", "o_rdonly", "/dev/null in place of a stream that is closed"},
    {"hosts/cli/terminal/output.cpp", "o_rdwr", "the same"},
    {"sdk/include/frt/safetensors.hpp", "o_rdonly",
     "for plugins that link nothing: O_NONBLOCK, then fstat, sizes checked"},
    {"core/src/plugin/probe.cpp", "o_rdonly", "a file of the kernel in /proc, 4 KiB of it"},
    {"plugins/cpu/system.cpp", "ifstream", "files of the kernel in /sys"},
    {"plugins/cuda/memory.cpp", "ifstream", "files of the kernel in /proc and /sys"},
    {"plugins/cuda/blas_choices.cpp", "ifstream", "the user's cache; the plugin links no library"},
};

namespace {

// In lower case; lines are compared so, which makes Json::parse and json::parse one. Who opens a
// file himself names one of O_RDONLY and its like, or writes their number (opens_by_number).
constexpr std::string_view kCalls[] = {
    "json::parse",  "json::accept", "json::sax_parse", "json::from_", "toml::parse",
    "toml::parse_", "ifstream",     "fstream",         "filebuf",     "fopen(",
    "fopen64(",     "o_rdonly",     "o_wronly",        "o_rdwr",      "o_creat",
    "freopen(",     "freopen64(",   "h_load",          "sqlite3_open"};
// What begins like one of them, and reads nothing.
constexpr std::string_view kNoCalls[] = {"toml::parse_error"};

bool is_identifier(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}

std::string_view identifier_at(std::string_view text) {
  const auto end = std::find_if_not(text.begin(), text.end(), is_identifier);
  return text.substr(0, static_cast<std::size_t>(end - text.begin()));
}

// True if `call` stands in `line` as itself: O_CREAT, but not FOO_CREAT or O_CREATE; Json::parse,
// but not Json::parse_error; basic_ifstream and ifstream, but not ofstream for fstream.
bool stands_in(std::string_view line, std::string_view call) {
  const bool any_start = !call.starts_with("o_") && call != "fstream";
  const bool any_end = !is_identifier(call.back()) || call.ends_with('_') || call == "sqlite3_open";
  for (std::size_t at = line.find(call); at != line.npos; at = line.find(call, at + 1)) {
    const std::size_t end = at + call.size();
    const bool open_start =
        at > 0 && is_identifier(line[at - 1]) && !line.substr(0, at).ends_with("basic_");
    const bool open_end = end < line.size() && is_identifier(line[end]);
    const bool harmless =
        std::any_of(std::begin(kNoCalls), std::end(kNoCalls),
                    [&](std::string_view other) { return line.substr(at).starts_with(other); });
    if ((any_start || !open_start) && (any_end || !open_end) && !harmless) return true;
  }
  return false;
}

// Whether argument `index` (from 0) of "(a, b, ...)" begins with a digit.
bool argument_is_number(std::string_view arguments, int index) {
  int depth = 0;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == '(') ++depth;
    if (arguments[i] == ')' && --depth == 0) return false;
    if (arguments[i] != ',' || depth != 1 || --index != 0) continue;
    const std::size_t first = arguments.find_first_not_of(' ', i + 1);
    return first != arguments.npos &&
           std::isdigit(static_cast<unsigned char>(arguments[first])) != 0;
  }
  return false;
}

// open(path, 0): the system's function, with flags that no name gives away.
bool opens_by_number(std::string_view line) {
  for (std::size_t at = line.find("open"); at != line.npos; at = line.find("open", at + 1)) {
    const std::string_view before = line.substr(0, at);
    const bool variable = before.ends_with("> ");  // std::vector<int> open(count, 0)
    const bool of_class =
        before.ends_with('.') || before.ends_with("->") ||
        (before.ends_with("::") && before.size() > 2 && is_identifier(before[before.size() - 3]));
    if (variable || of_class || (at > 0 && is_identifier(before.back()))) continue;
    const std::string_view name = identifier_at(line.substr(at));
    if (name != "open" && name != "openat" && name != "open64" && name != "openat64") continue;
    if (argument_is_number(line.substr(at + name.size()), name.starts_with("openat") ? 2 : 1)) {
      return true;
    }
  }
  return false;
}

// `stream >> json`, known by the name of what is filled.
bool streams_json(std::string_view line) {
  for (std::size_t at = line.find(">>"); at != line.npos; at = line.find(">>", at + 2)) {
    std::size_t name = at + 2;
    while (name < line.size() && line[name] == ' ') ++name;
    const std::string_view filled = identifier_at(line.substr(name));
    if (filled.ends_with("json") || filled.ends_with("json_")) return true;
  }
  return false;
}

// A line without what its literals say and without its comment. A quote that nothing closes is code
// (the end of a literal of several lines), so that nothing hides behind it.
std::string code_of(std::string_view line) {
  std::string code;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const bool number = line[i] == '\'' && i > 0 && is_identifier(line[i - 1]);  // 1'000
    if ((line[i] == '"' || line[i] == '\'') && !number) {
      std::size_t end = i + 1;
      while (end < line.size() && line[end] != line[i]) end += line[end] == '\\' ? 2 : 1;
      if (end >= line.size()) return code.append(line.substr(i));
      i = end;
    } else if (line.substr(i).starts_with("//")) {
      break;
    } else {
      code += line[i];
    }
  }
  return code;
}

}  // namespace

std::vector<std::string> calls_in(std::string_view line) {
  std::string lower = code_of(line);
  if (lower.find("#include") != std::string::npos) return {};
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  std::vector<std::string> found;
  for (const std::string_view call : kCalls) {
    if (stands_in(lower, call)) found.emplace_back(call);
  }
  if (opens_by_number(lower)) found.emplace_back("open by number");
  if (streams_json(lower)) found.emplace_back(">> json");
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
