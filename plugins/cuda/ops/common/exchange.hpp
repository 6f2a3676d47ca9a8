// SPDX-License-Identifier: Apache-2.0
// exchange.hpp - memory through which the blocks of one launch talk to each other.
//
// It is zero at first and then as the operators before left it, so what is written there must tell
// one launch from another. Ordered like scratch(), in front of which it lies: an operator that uses
// the exchange memory asks for no other working memory.
#pragma once

#include <cstdint>

#include "../../scratch.hpp"
#include "../../stream.hpp"

namespace frt::cuda {

// The end is kept for work_counters().
inline constexpr std::size_t kWorkCounterBytes = std::size_t{16} << 10;
inline constexpr int kWorkCounters = static_cast<int>(kWorkCounterBytes / sizeof(uint32_t));
inline constexpr std::size_t kExchangeBytes = ScratchPool::kExchangeBytes - kWorkCounterBytes;

// kExchangeBytes, aligned to 256.  [setup] or [driver], like scratch()
inline void* exchange_memory(Stream& stream) {
  return static_cast<std::byte*>(stream.scratch(1)) - ScratchPool::kExchangeBytes;
}

// kWorkCounters words that are zero before every launch and that each leaves zero. Only behind
// pdl_wait(): until then they belong to the kernel ahead. `scratch` is what the operator has of
// scratch(), if it asked for working memory.  [setup] or [driver]
inline uint32_t* work_counters(void* scratch) {
  return reinterpret_cast<uint32_t*>(static_cast<std::byte*>(scratch) - kWorkCounterBytes);
}
inline uint32_t* work_counters(Stream& stream) {
  return work_counters(stream.scratch(1));
}

}  // namespace frt::cuda
