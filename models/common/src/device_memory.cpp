// SPDX-License-Identifier: Apache-2.0
#include <frt/models/device_memory.hpp>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>
#include <utility>

#include "tasks.hpp"

namespace frt::models {
namespace {

constexpr std::uint64_t kAlignment = 256;
constexpr std::uint64_t kBlockBytes = std::uint64_t{64} << 20;

}  // namespace

frt_space model_space(const Context& context) {
  const bool shared = (context.info().device->flags & FRT_DEVICE_SHARED_MEMORY) != 0;
  return shared ? FRT_SPACE_SHARED : FRT_SPACE_DEVICE;
}

DeviceMemory::DeviceMemory(const Context& context, bool in_place)
    : context_(context),
      stream_(context.create_stream("weights")),
      space_(in_place ? model_space(context) : FRT_SPACE_DEVICE) {}

std::uint64_t DeviceMemory::placed(std::uint64_t bytes) {
  return (std::max<std::uint64_t>(bytes, 1) + kAlignment - 1) / kAlignment * kAlignment;
}

void DeviceMemory::add_block(std::uint64_t bytes) {
  Buffer block = context_.alloc(space_, bytes, "weights");
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
    Buffer block = context_.alloc(space_, bytes, "weights");
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

DeviceMemory::Place DeviceMemory::place_of(const std::byte* address) const {
  const auto after = blocks_.upper_bound(address);
  if (after == blocks_.begin()) {
    throw Error(FRT_ERR_INTERNAL, "weights: an upload outside the placed memory");
  }
  const auto& [first, block] = *std::prev(after);
  return {block, static_cast<std::uint64_t>(address - first)};
}

Uploader& DeviceMemory::uploader() {
  if (!uploader_) uploader_.emplace(context_, stream_, upload_options_);
  return *uploader_;
}

std::byte* DeviceMemory::upload(std::span<const std::byte> data) {
  std::byte* target = place(data.size());
  upload_to(target, data);
  return target;
}

void DeviceMemory::upload_to(std::byte* target, std::span<const std::byte> data) {
  if (data.empty()) return;
  if (in_place()) {  // nothing in flight knows this memory yet
    std::memcpy(target, data.data(), data.size());
    return;
  }
  const Place to = place_of(target);
  uploader().add(to.block, to.offset, data);
}

std::byte* DeviceMemory::stream_in(std::uint64_t bytes, const ByteReader& reader) {
  std::byte* target = place(bytes);
  stream_to(target, bytes, reader);
  return target;
}

void DeviceMemory::stream_to(std::byte* target, std::uint64_t bytes, const ByteReader& reader) {
  if (bytes == 0) return;
  if (in_place()) {
    reads_.push_back({target, bytes, reader});
    return;
  }
  const Place to = place_of(target);
  uploader().add(to.block, to.offset, bytes, reader);
}

std::byte* DeviceMemory::stream_in(const TensorView& tensor) {
  std::byte* target = place(tensor.bytes);
  stream_to(target, tensor);
  return target;
}

void DeviceMemory::stream_to(std::byte* target, const TensorView& tensor) {
  stream_to(target, tensor.bytes,
            [tensor](std::uint64_t at, std::span<std::byte> part) { tensor.read(at, part); });
}

// Large reads are cut into pieces, so that all threads have work to the end.
void DeviceMemory::finish_reads() {
  struct Piece {
    const Read* read;
    std::uint64_t at, bytes;
  };
  const std::vector<Read> reads = std::exchange(reads_, {});
  std::vector<Piece> pieces;
  for (const Read& read : reads) {
    for (std::uint64_t at = 0; at < read.bytes; at += upload_options_.chunk_bytes) {
      pieces.push_back({&read, at, std::min(upload_options_.chunk_bytes, read.bytes - at)});
    }
  }
  const auto caller = std::this_thread::get_id();
  std::atomic<std::uint64_t> done{0};
  for_each_task(pieces.size(), upload_threads(upload_options_), [&](std::size_t i) {
    const Piece& piece = pieces[i];
    piece.read->reader(piece.at, {piece.read->target + piece.at, piece.bytes});
    const std::uint64_t bytes = done += piece.bytes;
    if (upload_options_.progress && std::this_thread::get_id() == caller) {
      upload_options_.progress(bytes);
    }
  });
}

void DeviceMemory::finish() {
  finish_reads();
  if (uploader_) {
    uploader_->finish();
    uploader_.reset();
  }
  stream_.sync();
}

}  // namespace frt::models
