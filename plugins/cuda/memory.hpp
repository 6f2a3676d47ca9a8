// SPDX-License-Identifier: Apache-2.0
// memory.hpp - blocks of memory of the four spaces.
//
//   device       cudaMalloc
//   host-pinned  cudaHostAlloc, portable: any device of the process reaches it
//   host         ordinary memory, aligned to 256 bytes
//   shared       cudaMallocManaged, on integrated devices alone (notes/2026-11-23-shared-memory.md)
#pragma once

#include <frt/backend.h>

#include <cstddef>
#include <cstdint>

namespace frt::cuda {

class Device;

// Throws FRT_ERR_OUT_OF_MEMORY with what is needed and what is free, FRT_ERR_UNSUPPORTED for shared
// memory of a discrete device.  [setup]
void* allocate_memory(Device& device, frt_space space, uint64_t bytes);
void free_memory(const Device& device, frt_space space, void* pointer) noexcept;

// A block that is freed with its owner.
class Block {
 public:
  Block(Device& device, frt_space space, std::size_t bytes)
      : device_(device),
        space_(space),
        bytes_(bytes),
        data_(static_cast<std::byte*>(allocate_memory(device, space, bytes))) {}
  ~Block() { free_memory(device_, space_, data_); }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  std::byte* data() const noexcept { return data_; }
  std::size_t bytes() const noexcept { return bytes_; }

 private:
  const Device& device_;
  const frt_space space_;
  const std::size_t bytes_;
  std::byte* const data_;
};

}  // namespace frt::cuda
