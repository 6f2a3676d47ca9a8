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

inline constexpr std::size_t kBoardBytes = ScratchPool::kBoardBytes;

// kBoardBytes, aligned to 256.  [setup] or [driver], like scratch()
inline void* board(Stream& stream) {
  return static_cast<std::byte*>(stream.scratch(1)) - kBoardBytes;
}

}  // namespace frt::cuda
