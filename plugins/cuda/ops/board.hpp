// SPDX-License-Identifier: Apache-2.0
// board.hpp - memory through which the blocks of one launch talk to each other.
//
// It is zero at first and then as the operators before left it, so what is written there must tell
// one launch from another. Ordered like scratch(), in front of which it lies: an operator that uses
// the board asks for no other working memory.
#pragma once

#include <cstdint>

#include "../scratch.hpp"
#include "../stream.hpp"

namespace frt::cuda {

// The end is kept for tickets().
inline constexpr std::size_t kTicketBytes = std::size_t{16} << 10;
inline constexpr int kTickets = static_cast<int>(kTicketBytes / sizeof(uint32_t));
inline constexpr std::size_t kBoardBytes = ScratchPool::kBoardBytes - kTicketBytes;

// kBoardBytes, aligned to 256.  [setup] or [driver], like scratch()
inline void* board(Stream& stream) {
  return static_cast<std::byte*>(stream.scratch(1)) - ScratchPool::kBoardBytes;
}

// kTickets words that are zero before every launch and that each leaves zero. Only behind
// pdl_wait(): until then they belong to the kernel ahead. `scratch` is what the operator has of
// scratch(), if it asked for working memory.  [setup] or [driver]
inline uint32_t* tickets(void* scratch) {
  return reinterpret_cast<uint32_t*>(static_cast<std::byte*>(scratch) - kTicketBytes);
}
inline uint32_t* tickets(Stream& stream) {
  return tickets(stream.scratch(1));
}

}  // namespace frt::cuda
