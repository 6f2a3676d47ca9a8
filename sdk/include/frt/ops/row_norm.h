/* SPDX-License-Identifier: Apache-2.0 */
/*
 * frt/ops/row_norm.h - norms of activation rows of every kind, by themselves and as the first part
 * of a fused operator. Statistics and arithmetic in f32, one rounding at the end.
 *
 * An adaptive norm takes scale and shift from a modulation: vectors that depend on a condition (the
 * time of a denoising step) but not on the row, so they are computed before and only looked up. The
 * same modulation holds the gate of the block that follows the norm (frt/ops/dense.h).
 */
#ifndef FRT_OPS_ROW_NORM_H_
#define FRT_OPS_ROW_NORM_H_

#include <frt/kernels.h>
#include <frt/ops/sequences.h>

FRT_EXTERN_C_BEGIN

/* One condition for all rows, or two: rows r with r % period < *clean_rows take `clean`. Device
 * memory; frozen. */
typedef struct frt_modulation {
  const float* rows;         /* (3, width): scale, shift, gate; NULL: none */
  const float* clean;        /* (3, width), or NULL with clean_rows NULL */
  const int32_t* clean_rows; /* (1) device, or NULL: no such rows */
  int32_t period;            /* rows per sequence, > 0 with clean_rows */
  int32_t reserved;
} frt_modulation;
FRT_ASSERT_LAYOUT(frt_modulation, 32, reserved, 28);

#define FRT_NORM_NONE 0u     /* y = x */
#define FRT_NORM_RMS 1u      /* y = x * rsqrt(mean(x^2) + epsilon) * weight */
#define FRT_NORM_LAYER 2u    /* y = (x - mean(x)) * rsqrt(var(x) + epsilon) * weight + bias */
#define FRT_NORM_ADAPTIVE 3u /* y = x * rsqrt(mean(x^2) + epsilon) * (1 + scale) + shift */

/* What is done to a row; frozen. var is the mean of (x - mean)^2, computed so and not as a
 * difference of squares. */
typedef struct frt_norm {
  uint32_t kind; /* FRT_NORM_* */
  float epsilon;
  const float* weight;       /* (width) RMS, LAYER */
  const float* bias;         /* (width) LAYER */
  frt_modulation modulation; /* ADAPTIVE: scale and shift */
} frt_norm;
FRT_ASSERT_LAYOUT(frt_norm, 56, modulation, 24);

/* y[r, :] = norm(x[r, :]). y may be x where types and strides are equal. */
#define FRT_OP_ROW_NORM "frt.row_norm/1"
typedef struct frt_row_norm_args {
  uint32_t struct_size;
  frt_dtype x_dtype; /* f32, bf16 */
  frt_dtype y_dtype; /* f32, bf16 */
  int32_t rows;      /* at least 1 */
  int32_t width;
  uint32_t reserved;
  const int32_t* row_count; /* (1) device, or NULL */
  frt_norm norm;            /* any kind */
  const void* x;            /* (rows, x_stride) */
  int64_t x_stride;         /* elements */
  void* y;                  /* (rows, y_stride) */
  int64_t y_stride;         /* elements */
} frt_row_norm_args;
FRT_ASSERT_LAYOUT(frt_row_norm_args, 120, y_stride, 112);

FRT_EXTERN_C_END

#endif /* FRT_OPS_ROW_NORM_H_ */
