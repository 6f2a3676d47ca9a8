// SPDX-License-Identifier: Apache-2.0
// Any text is a card or an error; a card can be ranked.
#include <frt/core/plugin.hpp>

#include <cstddef>
#include <cstdint>
#include <string_view>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  try {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    frt::core::rank_card(frt::core::parse_card(text, "fuzz"), text.substr(0, 16));
  } catch (const frt::Error&) {
    return 0;
  }
  return 0;
}
