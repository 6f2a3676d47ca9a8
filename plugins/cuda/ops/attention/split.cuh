// SPDX-License-Identifier: Apache-2.0
// split.cuh - keys and values of 16 positions from memory into tensor core fragments.
//
// No shared memory in between: a lane loads 16 bytes of a row at a time, and that the loaded
// elements fit the fragments (common/mma.cuh) is a matter of naming:
//   scores^T (position, query) = K q^T: lane (g, t) loads 16 bytes of rows g and g + 8; which of
//   the
//     dimensions are called k = 2t, 2t+1 .. is free as long as q says the same (query_unit).
//   o^T (dim, query) = V^T p^T: lane (g, t) loads 16 bytes of rows 2t, 2t+1, 2t+8, 2t+9; two rows'
//     words are interleaved to pairs of positions; which dimension is called row g is free, too.
//   p^T comes out of the first product by rows and goes into the second by columns: movmatrix.
// FP8 codes are dequantised to bf16 in registers.
#pragma once

#include "../common/mma.cuh"

namespace frt::cuda {

// Registers of kLoad words each, `step` bytes apart in memory. Past the first cache: keys and
// values may have been written by this block.
template <int kWords, int kLoad>
__device__ __forceinline__ void load_words(uint32_t (&to)[kWords], const std::byte* from,
                                           int step) {
#pragma unroll
  for (int i = 0; i < kWords / kLoad; ++i) {
    if constexpr (kLoad == 4) {
      const uint4 v = __ldcg(reinterpret_cast<const uint4*>(from + i * step));
      to[4 * i] = v.x;
      to[4 * i + 1] = v.y;
      to[4 * i + 2] = v.z;
      to[4 * i + 3] = v.w;
    } else {
      const uint2 v = __ldcg(reinterpret_cast<const uint2*>(from + i * step));
      to[2 * i] = v.x;
      to[2 * i + 1] = v.y;
    }
  }
}

// The same from shared memory.
template <int kWords, int kLoad>
__device__ __forceinline__ void take_words(uint32_t (&to)[kWords], const std::byte* from,
                                           int step) {
#pragma unroll
  for (int i = 0; i < kWords / kLoad; ++i) {
    const auto words = *reinterpret_cast<const Vector<uint32_t, kLoad>*>(from + i * step);
#pragma unroll
    for (int j = 0; j < kLoad; ++j) to[kLoad * i + j] = words.values[j];
  }
}

// What of a cache row a lane holds.
template <int kDim, class KV>
struct Shape {
  static constexpr int kBytes = kDim * static_cast<int>(sizeof(KV));    // of a row
  static constexpr int kKeyWords = kBytes / 16;                         // of a row, four lanes
  static constexpr int kValueWords = kBytes / 32;                       // of a row, eight lanes
  static constexpr int kValueLoad = kValueWords < 4 ? kValueWords : 4;  // words of one load
  static constexpr int kValueElements = kValueLoad * 4 / static_cast<int>(sizeof(KV));
};

// The index of the 16 bytes of query `n` that hold dimensions 8u .. 8u+7: fragments of one lane lie
// together, those of a warp side by side.
template <class KV>
__device__ __forceinline__ int query_unit(int n, int u) {
  if constexpr (sizeof(KV) == 2) {
    return u / 4 * 32 + n * 4 + u % 4;
  } else {
    return (u / 8 * 2 + u % 2) * 32 + n * 4 + u % 8 / 2;
  }
}

// Keys of 16 positions from `first` on.
template <int kDim, class KV>
__device__ __forceinline__ void load_keys(uint32_t (&k)[2][Shape<kDim, KV>::kKeyWords],
                                          const std::byte* keys, int64_t stride, int first,
                                          int stop) {
  const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    // Rows behind the range are read as its last one: their weights are 0.
    const int position = min(first + g + 8 * i, stop - 1);
    load_words<Shape<kDim, KV>::kKeyWords, 4>(k[i], keys + position * stride + t * 16, 64);
  }
}

// Values of 16 positions from `first` on.
template <int kDim, class KV>
__device__ __forceinline__ void load_values(uint32_t (&v)[4][Shape<kDim, KV>::kValueWords],
                                            const std::byte* values, int64_t stride, int first,
                                            int stop) {
  using S = Shape<kDim, KV>;
  const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int position = min(first + 2 * t + i % 2 + 8 * (i / 2), stop - 1);
    load_words<S::kValueWords, S::kValueLoad>(
        v[i], values + position * stride + g * (S::kValueLoad * 4), S::kValueLoad * 32);
  }
}

// The rows of this tile that are new, from shared memory: row `n` there is position `begin` + n.
template <int kDim, class KV>
__device__ __forceinline__ void take_new_keys(uint32_t (&k)[2][Shape<kDim, KV>::kKeyWords],
                                              const std::byte* rows, int begin, int count,
                                              int first, int stop) {
  using S = Shape<kDim, KV>;
  const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int n = min(first + g + 8 * i, stop - 1) - begin;
    if (n >= 0 && n < count) {
      take_words<S::kKeyWords, 4>(k[i], rows + n * S::kBytes + t * 16, 64);
    }
  }
}
template <int kDim, class KV>
__device__ __forceinline__ void take_new_values(uint32_t (&v)[4][Shape<kDim, KV>::kValueWords],
                                                const std::byte* rows, int begin, int count,
                                                int first, int stop) {
  using S = Shape<kDim, KV>;
  const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int n = min(first + 2 * t + i % 2 + 8 * (i / 2), stop - 1) - begin;
    if (n >= 0 && n < count) {
      take_words<S::kValueWords, S::kValueLoad>(
          v[i], rows + n * S::kBytes + g * (S::kValueLoad * 4), S::kValueLoad * 32);
    }
  }
}

// scores^T = K q^T for 16 positions.
template <int kDim, class KV>
__device__ __forceinline__ void score(float (&s)[4],
                                      const uint32_t (&k)[2][Shape<kDim, KV>::kKeyWords],
                                      const uint4* queries) {
  float c[4][4] = {};  // four chains, so that the products' latencies overlap
#pragma unroll
  for (int i = 0; i < kDim / 32; ++i) {
    const uint4 q = queries[i * 32 + threadIdx.x % 32];
    if constexpr (sizeof(KV) == 2) {
      mma_bf16(c[i * 2 % 4], k[0][4 * i], k[1][4 * i], k[0][4 * i + 1], k[1][4 * i + 1], q.x, q.y);
      mma_bf16(c[i * 2 % 4 + 1], k[0][4 * i + 2], k[1][4 * i + 2], k[0][4 * i + 3], k[1][4 * i + 3],
               q.z, q.w);
    } else {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const uint32_t low = k[0][2 * i + j], high = k[1][2 * i + j];
        mma_bf16(c[i * 2 % 4 + j], dequantise_e4m3(__byte_perm(low, 0, 0x1000)),
                 dequantise_e4m3(__byte_perm(high, 0, 0x1000)),
                 dequantise_e4m3(__byte_perm(low, 0, 0x3020)),
                 dequantise_e4m3(__byte_perm(high, 0, 0x3020)), j == 0 ? q.x : q.z,
                 j == 0 ? q.y : q.w);
      }
    }
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) s[i] = (c[0][i] + c[1][i]) + (c[2][i] + c[3][i]);
}

// o^T += V^T p^T for 16 positions.
template <int kDim, class KV>
__device__ __forceinline__ void add_values(float (&o)[kDim / 16][4],
                                           const uint32_t (&v)[4][Shape<kDim, KV>::kValueWords],
                                           uint32_t p0, uint32_t p1) {
  if constexpr (sizeof(KV) == 2) {
#pragma unroll
    for (int m = 0; m < kDim / 16; ++m) {
      mma_bf16(o[m], __byte_perm(v[0][m], v[1][m], 0x5410), __byte_perm(v[0][m], v[1][m], 0x7632),
               __byte_perm(v[2][m], v[3][m], 0x5410), __byte_perm(v[2][m], v[3][m], 0x7632), p0,
               p1);
    }
  } else {
    // Byte j of two rows' words in the upper bytes of the halves.
    const auto pair = [](uint32_t a, uint32_t b, int j) {
      return dequantise_e4m3(__byte_perm(a, b, static_cast<uint32_t>((4 + j) << 12 | j << 4)));
    };
#pragma unroll
    for (int m = 0; m < kDim / 16; ++m) {
      const int w = m / 2, j = m % 2 * 2;
      mma_bf16(o[m], pair(v[0][w], v[1][w], j), pair(v[0][w], v[1][w], j + 1),
               pair(v[2][w], v[3][w], j), pair(v[2][w], v[3][w], j + 1), p0, p1);
    }
  }
}

}  // namespace frt::cuda
