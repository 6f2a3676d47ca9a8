// SPDX-License-Identifier: Apache-2.0
// scratch.hpp - working memory of a stream, shared with the executables recorded on it.
//
// One growing block serves every operator of the stream: operators of a stream run one after the
// other. Executables recorded on the stream hold the block of their time; a larger one replaces it
// for what is recorded later, and the old one lives as long as an executable holds it.
//
// All users of a pool must therefore run one after the other, wherever they are launched. A Lane is
// the order of one stream; the pool remembers the lane of its last user, and a user on another lane
// first waits for everything submitted there. On one lane, the normal case, that costs a
// comparison.
#pragma once

#include <cuda_runtime_api.h>
#include <frt/backend.h>

#include <cstddef>
#include <memory>
#include <vector>

#include "memory.hpp"

namespace frt::cuda {

class Device;

class Lane {
 public:
  Lane(Device& device, cudaStream_t stream);  // [setup]
  ~Lane();
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  // Later work of `other` waits for everything submitted here so far.  [hot]
  frt_status hold_back(cudaStream_t other) noexcept;

  // While the stream records, the end of what was submitted is where recording began.  [setup]
  frt_status begin_capture() noexcept;
  void end_capture() noexcept { capturing_ = false; }

 private:
  Device& device_;
  cudaStream_t stream_;
  cudaEvent_t tail_ = nullptr;
  bool capturing_ = false;
};

class ScratchPool {
 public:
  explicit ScratchPool(Device& device) : device_(device) {}

  // A block of at least `bytes` behind its exchange memory.  [driver]
  const std::shared_ptr<Block>& reserve(std::size_t bytes);
  // The exchange memory of a block comes first: zero when the block is made, and then as the
  // operators before left it. The blocks of one launch talk to each other through it
  // (ops/common/exchange.hpp).
  static constexpr std::size_t kExchangeBytes = std::size_t{512} << 10;
  // A pinned block of kStagingBytes, through which copies of ordinary host memory go.  [driver]
  static constexpr std::size_t kStagingBytes = std::size_t{4} << 20;
  const std::shared_ptr<Block>& staging();

  // Puts what `stream` (of `lane`) is given next behind the last user of the pool.  [hot]
  frt_status enter(const std::shared_ptr<Lane>& lane, cudaStream_t stream) noexcept;

  // Blocks that nobody can be using any more: the stream was waited for.  [driver]
  void drop_outgrown() noexcept { outgrown_.clear(); }

 private:
  Device& device_;
  std::shared_ptr<Block> block_;
  std::shared_ptr<Block> staging_;
  std::vector<std::shared_ptr<Block>> outgrown_;
  // Expired: the stream is gone, and with it its work. The address cannot be that of another lane
  // as long as last_ refers to it: lanes are made by make_shared.
  std::weak_ptr<Lane> last_;
  const Lane* last_address_ = nullptr;
};

}  // namespace frt::cuda
