// SPDX-License-Identifier: Apache-2.0
#include "http/api/wire/json_line.hpp"

#include <frt/io/json_text.hpp>
#include <frt/io/utf8.hpp>
#include <utility>

namespace frt::host::api {

std::string lossy_text(std::string_view text) {
  if (io::is_utf8(text)) return std::string(text);
  std::string pending, out;
  io::append_lossy(pending, text, out);
  io::finish_lossy(pending, out);
  return out;
}

std::string json_line(const Json& value) {
  static constexpr std::pair<std::string_view, std::string_view> kBreaks[] = {
      {"\xC2\x85", "\\u0085"}, {"\xE2\x80\xA8", "\\u2028"}, {"\xE2\x80\xA9", "\\u2029"}};
  std::string line = io::json_text(value, {.bad = io::BadUtf8::kReplace});
  // These characters stand in strings only; bytes of one character never begin another.
  for (const auto& [bytes, escape] : kBreaks) {
    std::size_t at = line.find(bytes);
    if (at == line.npos) continue;
    std::string escaped;
    std::size_t done = 0;
    for (; at != line.npos; at = line.find(bytes, done)) {
      escaped.append(line, done, at - done).append(escape);
      done = at + bytes.size();
    }
    line = escaped.append(line, done, line.npos);
  }
  return line;
}

std::string sse_record(const Json& value) {
  return "data: " + json_line(value) + "\n\n";
}

std::string sse_record(std::string_view event, const Json& value) {
  return "event: " + std::string(event) + "\ndata: " + json_line(value) + "\n\n";
}

}  // namespace frt::host::api
