// SPDX-License-Identifier: Apache-2.0
#include "byte_level.hpp"

#include <frt/io/utf8.hpp>

#include <array>
#include <cstdint>

namespace frt::models {
namespace {

constexpr int kHighest = 0x143;  // U+0143 stands for the last remapped byte, 0xAD

struct Maps {
  std::array<std::int16_t, kHighest + 1> byte_of{};  // -1: no byte
  std::array<std::uint16_t, 256> character_of{};
};

constexpr Maps make_maps() {
  Maps maps;
  for (auto& byte : maps.byte_of) byte = -1;
  int next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    const bool itself = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
    const int character = itself ? byte : next++;
    maps.byte_of[static_cast<std::size_t>(character)] = static_cast<std::int16_t>(byte);
    maps.character_of[static_cast<std::size_t>(byte)] = static_cast<std::uint16_t>(character);
  }
  return maps;
}

constexpr Maps kMaps = make_maps();

}  // namespace

std::optional<std::string> bytes_of_token(std::string_view token) {
  std::string bytes;
  bytes.reserve(token.size());
  while (!token.empty()) {
    const io::Utf8Step step = io::utf8_step(token);
    if (step.kind != io::Utf8Step::kValid || step.character > kHighest) return std::nullopt;
    const int byte = kMaps.byte_of[step.character];
    if (byte < 0) return std::nullopt;
    bytes += static_cast<char>(byte);
    token.remove_prefix(step.bytes);
  }
  return bytes;
}

std::string character_of_byte(unsigned char byte) {
  std::string character;
  io::append_utf8(character, kMaps.character_of[byte]);
  return character;
}

}  // namespace frt::models
