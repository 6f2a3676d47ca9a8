/* SPDX-License-Identifier: Apache-2.0 */
/* frt/ops/elementwise.h - one value in, one value out: activations, sums, conversions, and the
 * deterministic filling of memory. Arithmetic in f32, one rounding at the end. rows = 0 is allowed
 * and does nothing; a width below 1 is refused. */
#ifndef FRT_OPS_ELEMENTWISE_H_
#define FRT_OPS_ELEMENTWISE_H_

#include <frt/kernels.h>
#include <frt/ops/sequences.h>

FRT_EXTERN_C_BEGIN

/* y = silu(a) * b, silu(x) = x * sigmoid(x). y may be a or b. */
#define FRT_OP_SILU_MUL "frt.silu_mul/1"
/* y = a * sigmoid(b). */
#define FRT_OP_SIGMOID_MUL "frt.sigmoid_mul/1"
/* y = a + b. */
#define FRT_OP_ADD "frt.add/1"
/* y = gelu(a) * b, gelu(z) = z/2 (1 + tanh(u)) with u = 0.7978845608 (z + 0.044715 z^3). Small
 * results keep their digits: compute z * sigmoid(2 u), which is the same, for in f32 the sum
 * 1 + tanh(u) loses the digits of a tanh near -1. */
#define FRT_OP_GELU_MUL "frt.gelu_mul/1"
typedef struct frt_binary_args {
  uint32_t struct_size;
  frt_dtype dtype; /* of a, b and y: f32, bf16 */
  int32_t rows;
  int32_t width;
  const int32_t* row_count; /* (1) device, or NULL */
  const void* a;            /* (rows, a_stride) */
  int64_t a_stride;         /* elements */
  const void* b;            /* (rows, b_stride) */
  int64_t b_stride;         /* elements */
  void* y;                  /* (rows, y_stride) */
  int64_t y_stride;         /* elements */
} frt_binary_args;
FRT_ASSERT_LAYOUT(frt_binary_args, 72, y_stride, 64);

/* y[r, c] = x[r, c] * factor, converted: f32, bf16, f16, f8_e4m3 (saturating) to f32, bf16, f16,
 * f8_e4m3, nearest even. Also the strided copy of rows. */
#define FRT_OP_CONVERT "frt.convert/1"
typedef struct frt_convert_args {
  uint32_t struct_size;
  frt_dtype x_dtype;
  frt_dtype y_dtype;
  int32_t rows;
  int32_t width;
  float factor;             /* finite; in f32, before the conversion; 0: 1 */
  const int32_t* row_count; /* (1) device, or NULL */
  const void* x;            /* (rows, x_stride) */
  int64_t x_stride;         /* elements */
  void* y;                  /* (rows, y_stride) */
  int64_t y_stride;         /* elements */
} frt_convert_args;
FRT_ASSERT_LAYOUT(frt_convert_args, 64, y_stride, 56);

/* Fills y with reproducible values, the same on every backend:
 *   u(i) = splitmix64(seed + i) >> 40                    (24 bits)
 *   value(i) = low + (high - low) * (u(i) * 2^-24)       (f32 operations, in this order)
 * rounded to nearest even into dtype (f32, bf16, f16, f8_e4m3, f4_e2m1: element 2k low nibble).
 * splitmix64(x): z = x + 0x9E3779B97F4A7C15; z = (z ^ z>>30) * 0xBF58476D1CE4E5B9;
 * z = (z ^ z>>27) * 0x94D049BB133111EB; z ^ z>>31. */
#define FRT_OP_FILL_UNIFORM "frt.fill_uniform/1"
typedef struct frt_fill_uniform_args {
  uint32_t struct_size;
  frt_dtype dtype;
  float low, high;
  uint64_t seed;
  uint64_t count; /* elements; even for f4_e2m1; 0: none, and y may be NULL */
  void* y;        /* (count) */
} frt_fill_uniform_args;
FRT_ASSERT_LAYOUT(frt_fill_uniform_args, 40, y, 32);

FRT_EXTERN_C_END

#endif /* FRT_OPS_ELEMENTWISE_H_ */
