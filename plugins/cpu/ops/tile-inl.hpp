// SPDX-License-Identifier: Apache-2.0
// tile-inl.hpp - small f32 matrix products inside one task: C = scale C + A B.
//
// A is read one value at a time with any strides (so a transposed A costs nothing), B and C by
// rows of vectors. C is cut into tiles of rows x vectors that stay in registers over the whole sum;
// every element is one chain of multiply-adds in the order of k, whatever the tile it falls in.
// B may be stored as any type of simd-inl.hpp. Include it inside the foreach_target pattern only.
#if defined(FRT_CPU_TILE_INL_HPP_) == defined(HWY_TARGET_TOGGLE)
#ifdef FRT_CPU_TILE_INL_HPP_
#undef FRT_CPU_TILE_INL_HPP_
#else
#define FRT_CPU_TILE_INL_HPP_
#endif

#include <cstdint>

#include "simd-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace frt::cpu {
namespace HWY_NAMESPACE {

template <class B = float>
struct Product {
  int64_t rows, cols, depth;  // of C, C, and of the sum
  const float* a;             // element (i, k) at a + i * a_row + k * a_col
  int64_t a_row, a_col;
  const B* b;  // element (k, j) at b + k * b_row + j
  int64_t b_row;
  float* c;  // element (i, j) at c + i * c_row + j
  int64_t c_row;
  const float* scale;  // NULL: C is overwritten; else row i of C is scaled by
  int64_t scale_step;  // scale[i * scale_step]
  // What will be read next, laid out as B: asked for while B is worked on. NULL: nothing.
  const B* next = nullptr;
};

// Asks for a line of memory that will be read some microseconds later: into the second-level cache,
// since the first is too small for that.
HWY_INLINE void fetch_ahead(const void* address) {
  __builtin_prefetch(address, 0, 2);
}

// 16 sums where there are 32 registers, 8 where there are 16. Two vectors of columns, so that the
// part of B that a column of tiles reads stays in the first-level cache.
inline constexpr int kTileVectors = 2;
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
inline constexpr int kTileRows = 8;
#else
inline constexpr int kTileRows = 4;
#endif

template <int kRows, int kVectors, class D, class B>
HWY_INLINE void product_tile(D d, const Product<B>& p, int64_t i, int64_t j) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  float* c = p.c + i * p.c_row + j;
  Vec<D> sum[kRows][kVectors];
  HWY_UNROLL(8) for (int r = 0; r < kRows; ++r) {
    HWY_UNROLL(2) for (int v = 0; v < kVectors; ++v) {
      sum[r][v] = p.scale ? hn::Mul(hn::LoadU(d, c + r * p.c_row + v * lanes),
                                    hn::Set(d, p.scale[(i + r) * p.scale_step]))
                          : hn::Zero(d);
    }
  }
  const float* a = p.a + i * p.a_row;
  const B* b = p.b + j;
  const bool ahead = p.next != nullptr && i == 0;
  for (int64_t k = 0; k < p.depth; ++k) {
    if (ahead) {
      const B* next = p.next + j + k * p.b_row;
      HWY_UNROLL(2) for (int v = 0; v < kVectors; ++v) fetch_ahead(next + v * lanes);
    }
    Vec<D> row[kVectors];
    HWY_UNROLL(2) for (int v = 0; v < kVectors; ++v) row[v] = load(d, b + v * lanes);
    HWY_UNROLL(8) for (int r = 0; r < kRows; ++r) {
      const auto x = hn::Set(d, a[r * p.a_row]);
      HWY_UNROLL(2) for (int v = 0; v < kVectors; ++v) {
        sum[r][v] = hn::MulAdd(x, row[v], sum[r][v]);
      }
    }
    a += p.a_col;
    b += p.b_row;
  }
  HWY_UNROLL(8) for (int r = 0; r < kRows; ++r) {
    HWY_UNROLL(2) for (int v = 0; v < kVectors; ++v) {
      hn::StoreU(sum[r][v], d, c + r * p.c_row + v * lanes);
    }
  }
}

// The last `rows` rows, 1 to kRows of them, as one tile: B is read once.
template <int kRows, int kVectors, class D, class B>
HWY_INLINE void product_rest(D d, const Product<B>& p, int64_t rows, int64_t i, int64_t j) {
  if (rows == kRows) {
    product_tile<kRows, kVectors>(d, p, i, j);
  } else if constexpr (kRows > 1) {
    product_rest<kRows - 1, kVectors>(d, p, rows, i, j);
  }
}

// Columns [j, j + kVectors * Lanes(d)) of all rows.
template <int kVectors, class D, class B>
HWY_INLINE void product_columns(D d, const Product<B>& p, int64_t j) {
  int64_t i = 0;
  for (; i + kTileRows <= p.rows; i += kTileRows) product_tile<kTileRows, kVectors>(d, p, i, j);
  if (i < p.rows) product_rest<kTileRows - 1, kVectors>(d, p, p.rows - i, i, j);
}

template <class B>
HWY_INLINE void multiply(const Product<B>& p) {
  const F32 d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t j = 0;
  for (; j + kTileVectors * lanes <= p.cols; j += kTileVectors * lanes) {
    product_columns<kTileVectors>(d, p, j);
  }
  for (; j + lanes <= p.cols; j += lanes) product_columns<1>(d, p, j);
  for (; j < p.cols; ++j) product_columns<1>(OneF32(), p, j);
}

}  // namespace HWY_NAMESPACE
}  // namespace frt::cpu
HWY_AFTER_NAMESPACE();

#endif  // toggle
