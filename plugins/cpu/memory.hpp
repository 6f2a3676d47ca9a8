// SPDX-License-Identifier: Apache-2.0
// memory.hpp - blocks of memory, and copies between them.
//
// Every space is ordinary host memory: the device's memory IS the host's. Blocks are not
// touched here, so each page lands on the memory node of the thread that writes it first.
#pragma once

#include <frt/backend.h>

#include <cstddef>
#include <cstdint>

#include "pool.hpp"

namespace frt::cpu {

// Bytes the process may still take, and bytes there are: the machine's, or the control group's
// limit where that is lower.  [any]
struct MemoryState {
  uint64_t free_bytes;
  uint64_t total_bytes;
};
MemoryState memory_state() noexcept;

// Uninitialised memory aligned to 256 bytes; large blocks to 2 MiB, with huge pages advised.
// FRT_ERR_OUT_OF_MEMORY with the numbers if the machine cannot hold it.  [setup]
void* allocate_memory(frt_space space, uint64_t bytes);
void free_memory(void* pointer) noexcept;

// memcpy and memset that use the workers for large ranges.  [hot]
void copy_bytes(Pool& pool, void* target, const void* source, uint64_t bytes) noexcept;
void fill_bytes(Pool& pool, void* target, uint64_t bytes, uint8_t value) noexcept;

// A block of working memory for nodes, aligned to 64 bytes.
class Scratch {
 public:
  Scratch() = default;
  ~Scratch() { free_memory(data_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  // Makes room for `bytes`; the content is lost. Throws FRT_ERR_OUT_OF_MEMORY.  [setup]
  void reserve(std::size_t bytes);
  std::byte* data() const noexcept { return data_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace frt::cpu
