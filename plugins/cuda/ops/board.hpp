// SPDX-License-Identifier: Apache-2.0
// board.hpp - memory through which the blocks of one launch talk to each other.
//
// It is zero at first and then as the operators before left it, so what is written there must tell
// one launch from another. Ordered like scratch(), in front of which it lies: an operator that uses
// the board asks for no other working memory.
#pragma once

#include "../scratch.hpp"
#include "../stream.hpp"

namespace frt::cuda {

// The end is kept for tickets().
inline constexpr std::size_t kTicketBytes = 256;
inline constexpr std::size_t kBoardBytes = ScratchPool::kBoardBytes - kTicketBytes;

// kBoardBytes, aligned to 256.  [setup] or [driver], like scratch()
inline void* board(Stream& stream) {
  return static_cast<std::byte*>(stream.scratch(1)) - ScratchPool::kBoardBytes;
}

// A word that is zero before every launch and that each leaves zero. Only behind pdl_wait(): until
// then it belongs to the kernel ahead.  [setup] or [driver]
inline uint32_t* tickets(Stream& stream) {
  return reinterpret_cast<uint32_t*>(static_cast<std::byte*>(stream.scratch(1)) - kTicketBytes);
}

}  // namespace frt::cuda
