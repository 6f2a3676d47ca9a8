// SPDX-License-Identifier: Apache-2.0
// An answer of any bytes gives the same message whole and in pieces. The first byte chooses the
// options and how many bytes behind it are lengths of pieces.
#include <algorithm>
#include <chat_pieces.hpp>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "chat.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  using frt::models::Json;
  static const frt::qwen36::Chat kChat;
  static const Json kTools = Json::parse(R"([{"type": "function", "function": {"name": "f",
      "parameters": {"type": "object", "properties": {"s": {"type": "string"},
      "n": {"type": "integer"}, "o": {"type": "object"}}}}}, {"type": "function",
      "function": {"name": "g"}}])");
  if (size == 0) return 0;
  const Json options = {{"enable_thinking", (data[0] & 1) != 0}};
  const Json tools = (data[0] & 2) ? kTools : Json();
  const std::size_t count = std::min<std::size_t>(data[0] >> 2, size - 1);
  const std::vector<std::size_t> lengths(data + 1, data + 1 + count);
  const std::string_view text(reinterpret_cast<const char*>(data) + 1 + count, size - 1 - count);
  const auto reader = kChat.reader(tools, options);
  if (frt::test::message_of_pieces(*reader, text, lengths) !=
      kChat.parse(text, tools, options, true)) {
    std::abort();
  }
  return 0;
}
