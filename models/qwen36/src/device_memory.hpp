// SPDX-License-Identifier: Apache-2.0
// device_memory.hpp - device memory for weights, and the way into it.
//
// `place` gives out aligned pieces of large blocks; they live as long as the DeviceMemory. `upload`
// copies host bytes through two pinned staging buffers, so that reading a mapped file overlaps with
// the transfer; where device memory is host memory ("cpu") it copies directly, and `adopt` takes
// mapped bytes as they lie, with no copy at all. All functions are [setup]; frt::Error from the
// context.
#pragma once

#include <cstddef>
#include <cstdint>
#include <frt/exec.hpp>
#include <span>
#include <string>
#include <vector>

namespace frt::qwen36 {

class DeviceMemory {
 public:
  // `in_place` false: as if device memory were out of the host's reach, for tests.
  explicit DeviceMemory(const Context& context, bool in_place = true);
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  // `bytes` uninitialised bytes at an address aligned to 256.
  std::byte* place(std::uint64_t bytes);

  // place() and a copy of `data`. Returns before the copy is done; call finish().
  std::byte* upload(std::span<const std::byte> data);
  // A copy to an address inside a placed piece.
  void upload_to(std::byte* target, std::span<const std::byte> data);

  // The address under which kernels may read `data` without a copy, or null: another kind of
  // device, or not aligned to 16. The caller keeps `data` alive.
  const std::byte* adopt(std::span<const std::byte> data);

  // Waits for every copy and gives the staging buffers back.
  void finish();

  const Context& context() const noexcept { return context_; }
  const Stream& stream() const noexcept { return stream_; }
  bool host_memory() const noexcept { return host_memory_; }
  std::uint64_t placed_bytes() const noexcept { return placed_bytes_; }

 private:
  struct Staging {
    Buffer buffer;
    Event free;
    bool used = false;
  };
  // The block that holds `address`, and the offset in it.
  const Buffer& block_of(const std::byte* address, std::uint64_t& offset) const;

  Context context_;
  Stream stream_;
  bool host_memory_ = false;
  std::vector<Buffer> blocks_;
  std::vector<Buffer> adopted_;
  std::uint64_t block_used_ = 0;  // of the last block
  std::uint64_t placed_bytes_ = 0;
  std::vector<Staging> staging_;
  std::size_t next_staging_ = 0;
};

}  // namespace frt::qwen36
