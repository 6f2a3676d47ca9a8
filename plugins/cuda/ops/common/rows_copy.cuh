// SPDX-License-Identifier: Apache-2.0
// rows_copy.cuh - copying one row by the blocks of a grid's x dimension: 4 KiB per block, in
// 16-byte accesses if both ends allow it, else in the largest that they do.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

namespace frt::cuda {

inline constexpr int64_t kCopyBytes = 4096;  // of one block and pass

// The grid for rows of `bytes` bytes; `rows` in its y dimension.
inline dim3 copy_blocks(int64_t bytes, unsigned rows) {
  const int64_t blocks = (bytes + kCopyBytes - 1) / kCopyBytes;
  return {static_cast<unsigned>(blocks < 1024 ? blocks : 1024), rows};
}

template <class Word>
__device__ __forceinline__ void copy_words(void* target, const void* source, int64_t bytes) {
  const int64_t count = bytes / static_cast<int64_t>(sizeof(Word));
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += step) {
    static_cast<Word*>(target)[i] = static_cast<const Word*>(source)[i];
  }
}

// This block's part of a copy of `bytes` bytes.
__device__ __forceinline__ void copy_part(void* target, const void* source, int64_t bytes) {
  const uint64_t low = (reinterpret_cast<uintptr_t>(target) | reinterpret_cast<uintptr_t>(source) |
                        static_cast<uint64_t>(bytes)) &
                       15;
  if (low == 0) {
    copy_words<uint4>(target, source, bytes);
  } else if (low % 4 == 0) {
    copy_words<uint32_t>(target, source, bytes);
  } else if (low % 2 == 0) {
    copy_words<uint16_t>(target, source, bytes);
  } else {
    copy_words<uint8_t>(target, source, bytes);
  }
}

}  // namespace frt::cuda
