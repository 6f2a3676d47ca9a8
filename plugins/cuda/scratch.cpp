// SPDX-License-Identifier: Apache-2.0
#include "scratch.hpp"

#include <algorithm>

#include "device.hpp"

namespace frt::cuda {
namespace {

constexpr std::size_t kSmallest = std::size_t{1} << 20;
constexpr std::size_t kStep = std::size_t{2} << 20;

// On a stream of its own: the pool's may be recording.
void clear(Device& device, void* target, std::size_t bytes) {
  cudaStream_t stream = nullptr;
  device.check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "clearing memory");
  cudaError_t code = cudaMemsetAsync(target, 0, bytes, stream);
  if (code == cudaSuccess) code = cudaStreamSynchronize(stream);
  cudaStreamDestroy(stream);
  device.check(code, "clearing memory");
}

}  // namespace

Lane::Lane(Device& device, cudaStream_t stream) : device_(device), stream_(stream) {
  device_.check(cudaEventCreateWithFlags(&tail_, cudaEventDisableTiming), "making a stream");
}

Lane::~Lane() {
  device_.make_current();
  cudaEventDestroy(tail_);
  cudaGetLastError();
}

frt_status Lane::hold_back(cudaStream_t other) noexcept {
  if (other == stream_) return FRT_OK;
  if (!capturing_) {
    const frt_status status = device_.note(cudaEventRecord(tail_, stream_));
    if (status != FRT_OK) return status;
  }
  return device_.note(cudaStreamWaitEvent(other, tail_, 0));
}

frt_status Lane::begin_capture() noexcept {
  const frt_status status = device_.note(cudaEventRecord(tail_, stream_));
  capturing_ = status == FRT_OK;
  return status;
}

const std::shared_ptr<Block>& ScratchPool::reserve(std::size_t bytes) {
  bytes += kExchangeBytes;
  if (block_ && block_->bytes() >= bytes) return block_;
  // Twice the old size, so that a growing demand does not leave many blocks behind.
  const std::size_t wanted = std::max({bytes, kSmallest, block_ ? 2 * block_->bytes() : 0});
  const std::size_t rounded = (wanted + kStep - 1) / kStep * kStep;
  auto larger = std::make_shared<Block>(device_, FRT_SPACE_DEVICE, rounded);
  clear(device_, larger->data(), kExchangeBytes);
  if (block_) outgrown_.push_back(std::move(block_));
  block_ = std::move(larger);
  return block_;
}

const std::shared_ptr<Block>& ScratchPool::staging() {
  if (!staging_) staging_ = std::make_shared<Block>(device_, FRT_SPACE_HOST_PINNED, kStagingBytes);
  return staging_;
}

frt_status ScratchPool::enter(const std::shared_ptr<Lane>& lane, cudaStream_t stream) noexcept {
  if (last_address_ == lane.get()) return FRT_OK;
  if (const std::shared_ptr<Lane> last = last_.lock()) {
    if (const frt_status status = last->hold_back(stream); status != FRT_OK) return status;
  }
  last_ = lane;
  last_address_ = lane.get();
  return FRT_OK;
}

}  // namespace frt::cuda
