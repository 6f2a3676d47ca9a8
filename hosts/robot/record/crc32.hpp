// SPDX-License-Identifier: Apache-2.0
// crc32.hpp - the checksum of zip and MCAP files (IEEE, reflected).
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace frt::host {

// Continues from `crc`; 0 to begin.  [any]
inline uint32_t crc32(std::string_view bytes, uint32_t crc = 0) noexcept {
  static constexpr auto kTable = [] {
    std::array<uint32_t, 256> table{};
    for (uint32_t i = 0; i < 256; ++i) {
      uint32_t value = i;
      for (int bit = 0; bit < 8; ++bit) value = value >> 1 ^ (value & 1 ? 0xEDB88320u : 0);
      table[i] = value;
    }
    return table;
  }();
  crc = ~crc;
  for (const char c : bytes) crc = crc >> 8 ^ kTable[(crc ^ static_cast<uint8_t>(c)) & 0xff];
  return ~crc;
}

}  // namespace frt::host
