// SPDX-License-Identifier: Apache-2.0
// pieces.hpp - alignment of pointers, and working memory that is cut into pieces.
#pragma once

#include <cstddef>
#include <cstdint>

namespace frt::cuda {

// NULL is aligned.
inline bool aligned(const void* pointer, std::uintptr_t bytes = 16) {
  return reinterpret_cast<std::uintptr_t>(pointer) % bytes == 0;
}

// The size of a piece for so many bytes: the next one begins aligned to 256, too.
constexpr std::size_t round_up(std::size_t bytes) {
  return (bytes + 255) / 256 * 256;
}

// Cuts a block of memory, aligned to 256 bytes, into pieces; without memory only their sizes count.
class Cutter {
 public:
  explicit Cutter(void* memory) : memory_(static_cast<std::byte*>(memory)) {}
  template <class T>
  T* take(std::int64_t count) {
    std::byte* piece = memory_ ? memory_ + bytes_ : nullptr;
    bytes_ += round_up(static_cast<std::size_t>(count) * sizeof(T));
    return reinterpret_cast<T*>(piece);
  }
  std::size_t bytes() const { return bytes_; }

 private:
  std::byte* memory_;
  std::size_t bytes_ = 0;
};

}  // namespace frt::cuda
