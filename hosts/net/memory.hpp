// SPDX-License-Identifier: Apache-2.0
// memory.hpp - what the connections of a server may hold together, and the buffers that count
// against it.
#pragma once

#include <atomic>
#include <cstdint>
#include <string_view>

namespace frt::host {

// A sum with a limit.  [any]
class MemoryBudget {
 public:
  explicit MemoryBudget(uint64_t limit) : limit_(limit) {}
  MemoryBudget(const MemoryBudget&) = delete;
  MemoryBudget& operator=(const MemoryBudget&) = delete;

  // All of it or nothing.
  bool take(uint64_t bytes) noexcept;
  // For what is there already and must not be refused, such as a reply.
  void add(uint64_t bytes) noexcept { used_ += bytes; }
  void give(uint64_t bytes) noexcept { used_ -= bytes; }

  uint64_t used() const noexcept { return used_; }
  uint64_t limit() const noexcept { return limit_; }

 private:
  const uint64_t limit_;
  std::atomic<uint64_t> used_{0};
};

// A message that grows while it is received. Its memory is whole pages of its own: growing copies
// nothing and throws nothing, and what is released goes back to the system at once. Moved, not
// copied; one thread at a time. The budget outlives it.
class MessageBuffer {
 public:
  explicit MessageBuffer(MemoryBudget& budget) : budget_(&budget) {}
  MessageBuffer(MessageBuffer&& other) noexcept;
  MessageBuffer& operator=(MessageBuffer&& other) noexcept;
  ~MessageBuffer() { release(); }

  // Room for `bytes` in all, and for some of what is still to come of `most`; counted before it is
  // allocated. False: over the budget, or the system has no more; the content stays.
  bool reserve(uint64_t bytes, uint64_t most) noexcept;
  // Within the room there is.
  void append(const char* data, uint64_t bytes) noexcept;
  // `bytes` were written to end().
  void grow(uint64_t bytes) noexcept { size_ += bytes; }
  void clear() noexcept { size_ = 0; }
  void release() noexcept;

  char* end() noexcept { return data_ + size_; }
  uint64_t size() const noexcept { return size_; }
  uint64_t capacity() const noexcept { return capacity_; }
  std::string_view bytes() const noexcept { return {data_, size_}; }

 private:
  MemoryBudget* budget_;
  char* data_ = nullptr;
  uint64_t size_ = 0, capacity_ = 0;
};

}  // namespace frt::host
