// SPDX-License-Identifier: Apache-2.0
#include <frt/models/device_memory.hpp>

#include <algorithm>
#include <cstring>
#include <string_view>

namespace frt::models {
namespace {

constexpr std::uint64_t kAlignment = 256;
constexpr std::uint64_t kBlockBytes = std::uint64_t{64} << 20;
constexpr std::uintptr_t kWeightAlignment = 16;  // of frt_weight.data

}  // namespace

DeviceMemory::DeviceMemory(const Context& context, bool in_place)
    : context_(context),
      stream_(context.create_stream("weights")),
      host_memory_(in_place && std::string_view(context.info().native_kind) == "cpu") {}

std::uint64_t DeviceMemory::placed(std::uint64_t bytes) {
  return (std::max<std::uint64_t>(bytes, 1) + kAlignment - 1) / kAlignment * kAlignment;
}

void DeviceMemory::add_block(std::uint64_t bytes) {
  Buffer block = context_.alloc(FRT_SPACE_DEVICE, bytes, "weights");
  next_ = block.pointer<std::byte>();
  room_ = bytes;
  blocks_.emplace(next_, std::move(block));
}

void DeviceMemory::reserve(std::uint64_t bytes) {
  if (bytes > room_) add_block(placed(bytes));
}

std::byte* DeviceMemory::place(std::uint64_t bytes) {
  bytes = placed(bytes);
  placed_bytes_ += bytes;
  if (bytes > room_ && bytes >= kBlockBytes / 2) {  // a block of its own beside the current one
    Buffer block = context_.alloc(FRT_SPACE_DEVICE, bytes, "weights");
    auto* address = block.pointer<std::byte>();
    blocks_.emplace(address, std::move(block));
    return address;
  }
  if (bytes > room_) add_block(kBlockBytes);
  std::byte* address = next_;
  next_ += bytes;
  room_ -= bytes;
  return address;
}

std::byte* DeviceMemory::upload(std::span<const std::byte> data) {
  std::byte* target = place(data.size());
  upload_to(target, data);
  return target;
}
void DeviceMemory::upload_to(std::byte* target, std::span<const std::byte> data) {
  transfer(target, data, true);
}
std::byte* DeviceMemory::stream_in(std::span<const std::byte> data) {
  std::byte* target = place(data.size());
  stream_to(target, data);
  return target;
}
void DeviceMemory::stream_to(std::byte* target, std::span<const std::byte> data) {
  transfer(target, data, false);
}

void DeviceMemory::transfer(std::byte* target, std::span<const std::byte> data, bool own) {
  if (data.empty()) return;
  if (host_memory_) {  // nothing in flight knows this memory yet
    std::memcpy(target, data.data(), data.size());
    return;
  }
  const auto after = blocks_.upper_bound(target);
  if (after == blocks_.begin()) {
    throw Error(FRT_ERR_INTERNAL, "weights: an upload outside the placed memory");
  }
  const auto& [first, block] = *std::prev(after);
  if (!uploader_) uploader_.emplace(context_, stream_, upload_options_);
  uploader_->add(block, static_cast<std::uint64_t>(target - first), data, own);
}

const std::byte* DeviceMemory::adopt(std::span<const std::byte> data) {
  if (!host_memory_ || data.empty()) return nullptr;
  if (reinterpret_cast<std::uintptr_t>(data.data()) % kWeightAlignment != 0) return nullptr;
  adopted_.push_back(context_.wrap(FRT_SPACE_DEVICE, const_cast<std::byte*>(data.data()),
                                   data.size(), "weights.mapped"));
  return data.data();
}

void DeviceMemory::finish() {
  if (uploader_) {
    uploader_->finish();
    uploader_.reset();
  }
  stream_.sync();
}

}  // namespace frt::models
