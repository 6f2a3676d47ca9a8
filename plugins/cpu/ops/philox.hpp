// SPDX-License-Identifier: Apache-2.0
// philox.hpp - the counter-based random numbers of frt.sample/1: Philox 4x32, 10 rounds.
// Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
#pragma once

#include <array>
#include <cstdint>

namespace frt::cpu {

inline std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter,
                                          std::array<uint32_t, 2> key) noexcept {
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53u} * counter[0];
    const uint64_t b = uint64_t{0xCD9E8D57u} * counter[2];
    counter = {static_cast<uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(b),
               static_cast<uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(a)};
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return counter;
}

// The draw of `seed` at `position`, in [0, 1).
inline double philox_uniform(uint64_t seed, uint32_t position) noexcept {
  return philox4x32({position, 0, 0, 0},
                    {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)})[0] *
         0x1p-32;
}

}  // namespace frt::cpu
