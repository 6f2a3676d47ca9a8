// SPDX-License-Identifier: Apache-2.0
// One pass over the text. Comments since the last declaration belong to the next one, but for what
// stands on the line on which a declaration ended: that belongs to it.
#include "thread_tags.hpp"

#include <fstream>
#include <iterator>
#include <optional>
#include <regex>

namespace thread_tags {

std::vector<std::string> untagged(std::string_view text) {
  static const std::regex kTag(R"(\[(setup|driver|hot|object|any|as [a-z ]+)\])");
  static const std::regex kPointer(R"(\(\*\s*([a-z0-9_]+)\)\s*\()");
  std::vector<std::string> found;
  std::string code;
  bool tagged = false;
  std::optional<std::string> open;  // ended on this line, no tag yet
  const auto end_line = [&] {
    if (open) found.push_back(*open);
    open.reset();
  };
  for (std::size_t at = 0; at < text.size();) {
    if (text.substr(at, 2) == "/*") {
      const std::size_t end = std::min(text.find("*/", at), text.size() - 2) + 2;
      const std::string comment(text.substr(at, end - at));
      if (std::regex_search(comment, kTag)) {
        if (open) {
          open.reset();
        } else {
          tagged = true;
        }
      }
      at = end;
      continue;
    }
    const char c = text[at++];
    if (c == '\n') end_line();
    code += c;
    if (c != ';' && c != '{' && c != '}') continue;
    std::smatch name;
    if (c == ';' && std::regex_search(code, name, kPointer) && !tagged) {
      end_line();
      open = name[1];
    }
    code.clear();
    tagged = false;
  }
  end_line();
  return found;
}

std::vector<std::string> problems(const std::filesystem::path& include) {
  std::vector<std::string> found;
  for (const auto& file : std::filesystem::recursive_directory_iterator(include)) {
    if (file.path().extension() != ".h") continue;
    std::ifstream in(file.path());
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    for (const std::string& name : untagged(text)) {
      found.push_back(std::filesystem::relative(file.path(), include).string() + ": " + name);
    }
  }
  return found;
}

}  // namespace thread_tags
