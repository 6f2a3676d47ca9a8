// SPDX-License-Identifier: Apache-2.0
// Allocation checks the machine's memory first: Linux hands out more than it has and kills the
// process when the pages are touched, which no caller can catch. So a large request is compared
// with what is available (and with the control group's limit) and refused with the numbers.
#include "memory.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <frt/error.hpp>
#include <string>

#include "system.hpp"

namespace frt::cpu {
namespace {

constexpr uint64_t kAlignment = 256;
constexpr uint64_t kHugePage = uint64_t{2} << 20;
constexpr uint64_t kHugeFrom = uint64_t{4} << 20;        // blocks of this size get huge pages
constexpr uint64_t kCheckFrom = uint64_t{16} << 20;      // below, asking the system costs too much
constexpr uint64_t kParallelFrom = uint64_t{512} << 10;  // below, one thread is as fast
constexpr uint64_t kChunk = uint64_t{256} << 10;         // of a parallel copy or fill

std::string gib(uint64_t bytes) {
  const uint64_t tenths = bytes / ((uint64_t{1} << 30) / 10);
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " GiB";
}

[[noreturn]] void throw_no_room(const char* what, uint64_t bytes) {
  const MemoryState state = memory_state();
  throw Error(FRT_ERR_OUT_OF_MEMORY,
              std::string(what) + ": cannot allocate " + std::to_string(bytes) + " bytes (" +
                  gib(bytes) + "): " + gib(state.free_bytes) + " of " + gib(state.total_bytes) +
                  " are available; use a smaller model, fewer slots or a shorter context, or "
                  "free memory");
}

void* allocate(const char* what, uint64_t bytes) {
  if (bytes >= kCheckFrom && bytes > memory_state().free_bytes) throw_no_room(what, bytes);
  const uint64_t alignment = bytes >= kHugeFrom ? kHugePage : kAlignment;
  const uint64_t rounded = (bytes + alignment - 1) / alignment * alignment;
  void* pointer = rounded < bytes ? nullptr : std::aligned_alloc(alignment, rounded);
  if (!pointer) throw_no_room(what, bytes);
  if (bytes >= kHugeFrom) madvise(pointer, rounded, MADV_HUGEPAGE);  // advice: failure is fine
  return pointer;
}

// Calls body(begin, end) for chunks that cover [0, bytes), on all workers if that pays.
template <class Body>
void for_chunks(Pool& pool, uint64_t bytes, Body&& body) noexcept {
  if (bytes < kParallelFrom || pool.workers() == 1) {
    body(uint64_t{0}, bytes);
    return;
  }
  const auto chunks = static_cast<int64_t>((bytes + kChunk - 1) / kChunk);
  pool.run(chunks, [&](int64_t chunk, int) {
    const uint64_t begin = static_cast<uint64_t>(chunk) * kChunk;
    body(begin, std::min(bytes, begin + kChunk));
  });
}

}  // namespace

MemoryState memory_state() noexcept {
  const MachineMemory machine = machine_memory();
  const GroupMemory group = group_memory();
  const uint64_t group_free = group.limit - std::min(group.limit, group.used);
  return {std::min(machine.available, group_free), std::min(machine.total, group.limit)};
}

void* allocate_memory(frt_space space, uint64_t bytes) {
  if (space >= FRT_SPACE_COUNT) {
    throw Error(FRT_ERR_INVALID_ARGUMENT,
                "memory_alloc: space " + std::to_string(space) + " does not exist");
  }
  if (bytes == 0) throw Error(FRT_ERR_INVALID_ARGUMENT, "memory_alloc: 0 bytes asked for");
  return allocate(space_name(space), bytes);
}

void free_memory(void* pointer) noexcept {
  std::free(pointer);
}

void copy_bytes(Pool& pool, void* target, const void* source, uint64_t bytes) noexcept {
  auto* to = static_cast<std::byte*>(target);
  const auto* from = static_cast<const std::byte*>(source);
  for_chunks(pool, bytes, [&](uint64_t begin, uint64_t end) {
    std::memcpy(to + begin, from + begin, end - begin);
  });
}

void fill_bytes(Pool& pool, void* target, uint64_t bytes, uint8_t value) noexcept {
  auto* to = static_cast<std::byte*>(target);
  for_chunks(pool, bytes,
             [&](uint64_t begin, uint64_t end) { std::memset(to + begin, value, end - begin); });
}

void Scratch::reserve(std::size_t bytes) {
  if (bytes <= bytes_) return;
  free_memory(data_);
  data_ = nullptr;
  bytes_ = 0;
  data_ = static_cast<std::byte*>(allocate("scratch", bytes));
  bytes_ = bytes;
}

}  // namespace frt::cpu
