// SPDX-License-Identifier: Apache-2.0
#include "robot/service/wire/shown.hpp"

#include <frt/io/utf8.hpp>

namespace frt::host {

std::string shown(std::string_view text, std::size_t bytes) {
  if (text.size() <= bytes) return io::printable(text);
  std::size_t end = bytes;
  // Not inside a character: its later bytes are 10xxxxxx, three at most.
  while (end > 0 && bytes - end < 3 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) {
    --end;
  }
  return io::printable(text.substr(0, end)) + "...";
}

}  // namespace frt::host
