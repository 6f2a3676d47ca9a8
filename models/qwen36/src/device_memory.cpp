// SPDX-License-Identifier: Apache-2.0
#include "device_memory.hpp"

#include <algorithm>
#include <cstring>
#include <string_view>

namespace frt::qwen36 {
namespace {

constexpr std::uint64_t kAlignment = 256;
constexpr std::uint64_t kBlockBytes = std::uint64_t{64} << 20;
constexpr std::uint64_t kStagingBytes = std::uint64_t{32} << 20;
constexpr std::uintptr_t kWeightAlignment = 16;  // of frt_weight.data

std::uint64_t aligned(std::uint64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

DeviceMemory::DeviceMemory(const Context& context, bool in_place)
    : context_(context),
      stream_(context.create_stream("weights")),
      host_memory_(in_place && std::string_view(context.info().native_kind) == "cpu") {}

std::byte* DeviceMemory::place(std::uint64_t bytes) {
  bytes = aligned(std::max<std::uint64_t>(bytes, 1));
  placed_bytes_ += bytes;
  if (bytes >= kBlockBytes / 2) {  // a block of its own, before the one that is being filled
    Buffer block = context_.alloc(FRT_SPACE_DEVICE, bytes, "weights");
    auto* address = block.pointer<std::byte>();
    blocks_.insert(blocks_.empty() ? blocks_.end() : blocks_.end() - 1, std::move(block));
    if (blocks_.size() == 1) block_used_ = bytes;
    return address;
  }
  if (blocks_.empty() || block_used_ + bytes > blocks_.back().bytes()) {
    blocks_.push_back(context_.alloc(FRT_SPACE_DEVICE, kBlockBytes, "weights"));
    block_used_ = 0;
  }
  auto* address = blocks_.back().pointer<std::byte>() + block_used_;
  block_used_ += bytes;
  return address;
}

std::byte* DeviceMemory::upload(std::span<const std::byte> data) {
  std::byte* target = place(data.size());
  upload_to(target, data);
  return target;
}

const Buffer& DeviceMemory::block_of(const std::byte* address, std::uint64_t& offset) const {
  for (auto block = blocks_.rbegin(); block != blocks_.rend(); ++block) {
    const auto* first = block->pointer<std::byte>();
    if (address >= first && address < first + block->bytes()) {
      offset = static_cast<std::uint64_t>(address - first);
      return *block;
    }
  }
  throw Error(FRT_ERR_INTERNAL, "weights: an upload outside the placed memory");
}

void DeviceMemory::upload_to(std::byte* target, std::span<const std::byte> data) {
  if (data.empty()) return;
  if (host_memory_) {  // nothing in flight knows this memory yet
    std::memcpy(target, data.data(), data.size());
    return;
  }
  std::uint64_t offset = 0;
  const Buffer& block = block_of(target, offset);
  const Recorder recorder(stream_);
  if (staging_.empty()) {
    for (int i = 0; i < 2; ++i) {
      staging_.push_back({context_.alloc(FRT_SPACE_HOST_PINNED, kStagingBytes, "weights.staging"),
                          context_.create_event(), false});
    }
  }
  while (!data.empty()) {
    Staging& staging = staging_[next_staging_++ % staging_.size()];
    if (staging.used) staging.free.sync();
    const std::size_t bytes = std::min<std::size_t>(data.size(), kStagingBytes);
    std::memcpy(staging.buffer.pointer(), data.data(), bytes);
    recorder.copy(block, offset, staging.buffer, 0, bytes);
    staging.free.record(stream_);
    staging.used = true;
    offset += bytes;
    data = data.subspan(bytes);
  }
}

const std::byte* DeviceMemory::adopt(std::span<const std::byte> data) {
  if (!host_memory_ || data.empty()) return nullptr;
  if (reinterpret_cast<std::uintptr_t>(data.data()) % kWeightAlignment != 0) return nullptr;
  adopted_.push_back(context_.wrap(FRT_SPACE_DEVICE, const_cast<std::byte*>(data.data()),
                                   data.size(), "weights.mapped"));
  return data.data();
}

void DeviceMemory::finish() {
  stream_.sync();
  staging_.clear();
}

}  // namespace frt::qwen36
