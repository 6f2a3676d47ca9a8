// SPDX-License-Identifier: Apache-2.0
// Any text is a tokenizer.json or an error; what loads can encode and decode.
#include <frt/error.hpp>
#include <frt/models/tokenizer.hpp>

#include <cstddef>
#include <cstdint>
#include <string_view>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  try {
    const std::string_view json(reinterpret_cast<const char*>(data), size);
    const auto tokenizer = frt::models::Tokenizer::parse(json);
    constexpr std::string_view kText =
        "ab abc<|end|> 12\n\n caf\xC3\xA9 e\xCC\x81 \xE4\xB8\xAD <s>";
    const auto ids = tokenizer.encode(kText);
    if (tokenizer.decode(ids).empty()) __builtin_trap();
    tokenizer.decode(ids, true);
    tokenizer.pieces(kText);
    const frt::models::TextRange plain[] = {{3, 9}, {22, 24}};
    tokenizer.encode(kText, {plain, 0});
    tokenizer.encode(kText, {plain, 8});  // refused, most often
  } catch (const frt::Error&) {
    return 0;
  }
  return 0;
}
