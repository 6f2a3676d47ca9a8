// SPDX-License-Identifier: Apache-2.0
// product.hpp - products with a weight matrix, y = x W^T.
//
//   GEMV  few rows: streams the weights once at the speed of memory (gemv*)
//   GEMM  many rows: tensor-core products, mostly through cuBLASLt (gemm*)
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "../../stream.hpp"
#include "../common/weight.hpp"

namespace frt::cuda {

class KernelList;

// One product; arguments are checked already.
struct Product {
  frt_dtype x_dtype, y_dtype;  // f32, bf16
  int32_t rows;
  const int32_t* row_count;  // (1) device, or NULL: rows beyond need not be computed
  const void* x;             // (rows, x_stride)
  int64_t x_stride;          // elements
  Weight weight;
  void* y;                  // (rows, y_stride)
  int64_t y_stride;         // elements
  bool accumulate = false;  // y += in f32, rounded once
};

// Up to so many rows the GEMV kernels stream the weights: up to here a row's bits are its own,
// whatever is computed beside it.
inline constexpr int32_t kGemvRows = 16;

// From so many rows on rounding the activations is worth its launches, where the device's option
// asks for it: measured for FP8.
inline constexpr int32_t kRoundedRows = 64;

// Products of one x (the same x, x_dtype, rows) with several weights, whatever computes them. More
// than kGemvRows rows: one call of Stream::scratch().  [driver]
void multiply(Stream& stream, std::span<const Product> products);

// GEMVs of one x; rows <= kGemvRows.  [driver]
void gemv_products(Stream& stream, std::span<const Product> products);

// GEMMs of one x: what is made of x (its FP8 form) is made once.  [driver]
void gemm_products(Stream& stream, std::span<const Product> products);

// The same in working memory that the operator holds already: at least gemm_scratch_bytes, aligned
// to 256.  [driver]
void gemm_products(Stream& stream, std::span<const Product> products, void* memory);
std::size_t gemm_scratch_bytes(Device& device, std::span<const Product> products);

// The variants of GEMVs and of GEMMs.  [setup]
void register_gemv(KernelList& list);
void register_gemm(KernelList& list);

}  // namespace frt::cuda
