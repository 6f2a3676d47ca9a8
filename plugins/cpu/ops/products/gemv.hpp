// SPDX-License-Identifier: Apache-2.0
// gemv.hpp - GEMV: products with few activation rows (at most kGemvRows): what decoding is made of.
//
// Time is the time to read the weights, so they are read once, in order, and dequantised in
// registers. Each (activation row, weight row) pair has its own running sums, walked along the
// columns in one order that does not depend on how many rows are computed together.
//
// The activations are first copied into a panel: rows of a fixed padded length, zero beyond the
// columns, in the order of elements the kernel wants. A panel is made once per node, whatever the
// number of weights that use it.
#pragma once

#include <cstdint>

#include "../../device.hpp"
#include "weight.hpp"

namespace frt::cpu {

inline constexpr int64_t kGemvRows = 16;

// The most weight rows of one call. The rows after them are fetched into the cache: tiles are best
// taken in order.
inline constexpr int64_t kGemvTile = 64;

// Element type and order of a panel. The permuted orders are given where they are made
// (panel.cpp).
enum class PanelKind : uint8_t { kFloat, kBf16, kBf16Fp8, kBf16Fp4 };
inline constexpr int kPanelKinds = 4;

// Elements that are put in order together; rows are padded to a multiple of it.
inline constexpr int64_t kPanelBlock = 128;

// Bytes of one panel row, a multiple of 64.  [any]
int64_t panel_row_bytes(PanelKind kind, int64_t cols) noexcept;

// Makes one panel row of `cols` activations, or its part from a multiple of kPanelBlock on. kFloat
// takes f32, bf16 and f8_e4m3 (without its scale), the others bf16.  [hot]
void fill_panel_row(PanelKind kind, frt_dtype dtype, const void* x, int64_t cols,
                    void* panel) noexcept;

// out[m * out_stride + n] = sum_k x[m][k] W[first + n, k], n in [0, count), m in [0, rows); x[m] is
// a panel row; 1 <= rows <= kGemvRows, count <= kGemvTile.  [hot]
using GemvFunction = void (*)(const Weight& weight, int64_t first, int64_t count,
                              const void* const* x, int64_t rows, float* out,
                              int64_t out_stride) noexcept;

struct GemvKernel {
  GemvFunction function;
  PanelKind panel;
};

// The kernel for `weight` (its format and block size; the pointers are not read) and activations
// of type `dtype` on `device`.  [setup]
GemvKernel gemv_kernel(const Device& device, const Weight& weight, frt_dtype dtype);

// ---- the families, for gemv_kernel and tests -----------------------------------------------

// Plain loops, f32, any format and block size.  [hot]
void gemv_plain(const Weight& weight, int64_t first, int64_t count, const void* const* x,
                int64_t rows, float* out, int64_t out_stride) noexcept;

// Vectors of f32 for the Highway target in force; kFloat panels, any format and block size.
// [setup]
GemvFunction gemv_simd_function(WeightType type);

// AVX512_BF16 products of bf16 panels; function NULL where format, block size or machine do not
// fit.  [setup]
GemvKernel gemv_bf16_kernel(const Weight& weight);

}  // namespace frt::cpu
