// SPDX-License-Identifier: Apache-2.0
// skinny_gemm.hpp - products of a chunk of rows (about 17 to 128) with BF16 weights, bound by
// reading the weights: decode steps of large batches, chunks of actions.
#pragma once

#include <frt/ops/dense.h>

#include <cstdint>
#include <span>

#include "../../stream.hpp"

namespace frt::cuda {

inline constexpr int32_t kSkinnyRows = 64;       // at most
inline constexpr int32_t kSkinnyMostRows = 128;  // at most, where a block has this much memory
inline constexpr int kSkinnyMostBytes = 4 * (64 + kSkinnyMostRows) * 256;
inline constexpr int kSkinnyParts = 8;  // at most, of one launch

// One weight matrix and what becomes of its product z: z = activation(z + bias) * gate + addend,
// and y = z or y += z, rounded once.
struct SkinnyPart {
  const void* weight;  // bf16 (outputs, inputs)
  int32_t outputs;
  const float* bias;    // (outputs), or NULL
  uint32_t activation;  // FRT_ACTIVATION_*
  frt_modulation gate;  // its third vector; rows NULL: none
  const float* addend;  // (addend_rows, outputs), or NULL
  int32_t addend_rows;
  bool accumulate;
  frt_dtype y_dtype;  // f32, bf16
  void* y;            // (rows, y_stride)
  int64_t y_stride;   // elements
};

// Products of one x.
struct SkinnyProduct {
  int32_t rows, inputs;
  const int32_t* row_count;  // (1) device, or NULL
  const void* x;             // bf16 (rows, x_stride)
  int64_t x_stride;          // elements
};

// Whether rows (up to `most`), sizes and alignments suit; `weight` must be BF16.
bool skinny_gemm_supports(const SkinnyProduct& product, const void* weight, int32_t most);

// y_i = x W_i^T and what follows, in one kernel.  [driver]
void skinny_gemm_products(Stream& stream, const SkinnyProduct& product,
                          std::span<const SkinnyPart> parts);

// y = activation(x Wg^T) * (x Wu^T): `gate` has Wg, the activation and y; `up` is Wu, of the same
// shape. Neither has a bias.  [driver]
void skinny_gemm_gate_up(Stream& stream, const SkinnyProduct& product, const SkinnyPart& gate,
                         const void* up);

}  // namespace frt::cuda
