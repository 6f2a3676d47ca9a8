// SPDX-License-Identifier: Apache-2.0
// frt/models/device_memory.hpp - device memory for weights, and the way into it.
//
// `place` gives out aligned pieces of large blocks; they live as long as the DeviceMemory. Where
// the device shares memory with the processor, the blocks are in FRT_SPACE_SHARED and uploads are
// written in place, by several threads; elsewhere uploads go through an Uploader and its pinned
// memory. All functions are [setup]; frt::Error from the context.
#pragma once

#include <cstddef>
#include <cstdint>
#include <frt/exec.hpp>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <frt/models/safetensors.hpp>
#include <frt/models/uploader.hpp>

namespace frt::models {

// Where a model keeps what the device works on and the host fills or reads once in a while:
// FRT_SPACE_SHARED if the device has it, else FRT_SPACE_DEVICE. Core chooses alike for the arena of
// a state.  [any]
frt_space model_space(const Context& context);

class DeviceMemory {
 public:
  // `in_place` false: as if the device shared no memory, for tests.
  explicit DeviceMemory(const Context& context, bool in_place = true);
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  // Takes one block of `bytes` for what place() gives out next, so that a device without room says
  // so at once. Half-full blocks and what does not fit get blocks as before.
  void reserve(std::uint64_t bytes);

  // `bytes` uninitialised bytes at an address aligned to 256.
  std::byte* place(std::uint64_t bytes);
  // What place(bytes) takes away.
  static std::uint64_t placed(std::uint64_t bytes);

  // place() and a copy of `data`, which is read before the call returns.
  std::byte* upload(std::span<const std::byte> data);
  void upload_to(std::byte* target, std::span<const std::byte> data);
  // The same for bytes that several threads read, some time before finish() returns. A tensor's
  // file must live so long.
  std::byte* stream_in(std::uint64_t bytes, const ByteReader& reader);
  void stream_to(std::byte* target, std::uint64_t bytes, const ByteReader& reader);
  std::byte* stream_in(const TensorView& tensor);
  void stream_to(std::byte* target, const TensorView& tensor);
  // How; before the first upload.
  void set_upload_options(UploadOptions options) { upload_options_ = std::move(options); }

  // Waits for every copy and gives the staging memory back.
  void finish();

  const Context& context() const noexcept { return context_; }
  const Stream& stream() const noexcept { return stream_; }
  bool in_place() const noexcept { return space_ == FRT_SPACE_SHARED; }
  std::uint64_t placed_bytes() const noexcept { return placed_bytes_; }

 private:
  void add_block(std::uint64_t bytes);
  // Of a read that waits for finish(), in shared memory.
  struct Read {
    std::byte* target;
    std::uint64_t bytes;
    ByteReader reader;
  };
  struct Place {
    frt_buffer block;
    std::uint64_t offset;
  };
  Place place_of(const std::byte* address) const;
  Uploader& uploader();
  void finish_reads();

  Context context_;
  Stream stream_;
  frt_space space_;
  std::map<const std::byte*, Buffer> blocks_;  // by address
  std::vector<Read> reads_;
  std::byte* next_ = nullptr;  // in the block that is being filled
  std::uint64_t room_ = 0;     // of it
  std::uint64_t placed_bytes_ = 0;
  UploadOptions upload_options_;
  std::optional<Uploader> uploader_;  // last: it uses all of the above
};

}  // namespace frt::models
