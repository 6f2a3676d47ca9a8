// SPDX-License-Identifier: Apache-2.0
// fp8.hpp - products of activations in e4m3 with a static scale by weights in FP8, and what
// follows them: the FP8 half of frt/ops/dense.h. Arguments are checked already.
#pragma once

#include <frt/ops/dense.h>
#include <frt/ops/dense_attention.h>

#include <cstdint>
#include <span>

#include "../../stream.hpp"
#include "../common/weight.hpp"

namespace frt::cuda {

class KernelList;

// Rows of x, value = e4m3 * scale.
struct Fp8Input {
  int32_t rows, inputs;
  const int32_t* row_count;  // (1) device, or NULL
  const void* x;             // e4m3 (rows, x_stride)
  int64_t x_stride;          // elements
  float scale;
};

// One weight, FP8_TENSOR or FP8_CHANNEL, and what becomes of its product z:
// z = activation(z + bias) * gate + addend;  y = z or y += z, rounded once.
struct Fp8Part {
  Weight weight;
  const float* bias;    // (outputs), or NULL
  uint32_t activation;  // FRT_ACTIVATION_*
  frt_modulation gate;  // its third vector; rows NULL: none
  const float* addend;  // (addend_rows, outputs), or NULL
  int32_t addend_rows;
  bool accumulate;
  frt_dtype y_dtype;  // f32, bf16; f8_e4m3 with y_scale
  float y_scale;      // 0, or that of y
  void* y;            // (rows, y_stride)
  int64_t y_stride;   // elements
};

// The factors of a sum: one, times that of the output where there are such.
struct Fp8Factors {
  float all;
  frt_dtype dtype;      // of outputs
  const void* outputs;  // (outputs), or NULL
};
Fp8Factors fp8_factors(const Fp8Input& input, const Weight& weight);

// All products of one x. One call of Stream::scratch().  [driver]
void fp8_products(Stream& stream, const Fp8Input& input, std::span<const Fp8Part> parts);

// Queries and keys | values of one x, then the rotation of frt.norm_qkv/1.  [driver]
void fp8_qkv(Stream& stream, const Fp8Input& input, std::span<const Fp8Part> parts,
             const frt_rope_args& rope);

// y = gelu(x Wg^T) * (x Wu^T): `gate` has Wg and y, no bias; `up` is of the same shape.  [driver]
void fp8_geglu(Stream& stream, const Fp8Input& input, const Fp8Part& gate, const Weight& up);

// The variants of all three.  [setup]
void register_dense_fp8(KernelList& list);

// ---- few rows: the weights stream once (skinny_fp8.cu) ------------------------------------

inline constexpr int32_t kSkinnyFp8Rows = 64;  // at most

bool skinny_fp8_supports(const Fp8Input& input, const Weight& weight);
void skinny_fp8_products(Stream& stream, const Fp8Input& input, std::span<const Fp8Part> parts);
// Queries and keys | values, rotated as they are written: two parts, or the second alone, whose y
// are those of `rope`.
bool skinny_fp8_supports_qkv(const Fp8Input& input, std::span<const Fp8Part> parts,
                             const frt_rope_args& rope);
void skinny_fp8_qkv(Stream& stream, const Fp8Input& input, std::span<const Fp8Part> parts,
                    const frt_rope_args& rope);
void skinny_fp8_geglu(Stream& stream, const Fp8Input& input, const Fp8Part& gate, const Weight& up);

}  // namespace frt::cuda
