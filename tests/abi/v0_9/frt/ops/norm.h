/* SPDX-License-Identifier: Apache-2.0 */
/*
 * frt/ops/norm.h - root-mean-square norms. Sums and products in f32, one rounding at the end.
 *
 * `weight` is f32 and multiplied as it is: models with zero-centred weights (1 + w) fold the one
 * in at load, in f32. rows and width are at least 1, x_stride and y_stride at least width.
 */
#ifndef FRT_OPS_NORM_H_
#define FRT_OPS_NORM_H_

#include <frt/kernels.h>
#include <frt/ops/sequences.h>

FRT_EXTERN_C_BEGIN

/* y[r, :] = x[r, :] * rsqrt(mean(x[r, :]^2) + epsilon) * weight. y may be x. */
#define FRT_OP_RMS_NORM "frt.rms_norm/1"
typedef struct frt_rms_norm_args {
  uint32_t struct_size;
  frt_dtype x_dtype; /* f32, bf16 */
  frt_dtype y_dtype; /* f32, bf16 */
  int32_t rows;
  int32_t width;
  float epsilon;
  const int32_t* row_count; /* (1) device, or NULL */
  const void* x;            /* (rows, x_stride) */
  int64_t x_stride;         /* elements */
  const float* weight;      /* (width) */
  void* y;                  /* (rows, y_stride) */
  int64_t y_stride;         /* elements */
} frt_rms_norm_args;
FRT_ASSERT_LAYOUT(frt_rms_norm_args, 72, y_stride, 64);

/* residual[r, :] += delta[r, :] (in f32, rounded once to residual's type), then y = rms_norm of
 * the rounded residual. delta NULL: only the norm. y NULL: only the addition. */
#define FRT_OP_ADD_RMS_NORM "frt.add_rms_norm/1"
typedef struct frt_add_rms_norm_args {
  uint32_t struct_size;
  frt_dtype residual_dtype; /* f32, bf16 */
  frt_dtype dtype;          /* of delta and y: f32, bf16 */
  int32_t rows;
  int32_t width;
  float epsilon;
  const int32_t* row_count; /* (1) device, or NULL */
  void* residual;           /* (rows, width), read and written */
  const void* delta;        /* (rows, width) or NULL */
  const float* weight;      /* (width), or NULL with y NULL */
  void* y;                  /* (rows, width) or NULL */
} frt_add_rms_norm_args;
FRT_ASSERT_LAYOUT(frt_add_rms_norm_args, 64, y, 56);

/* For each row and head: y = x * rsqrt(mean(x^2) + epsilon) * weight * silu(z), the mean over the
 * head's `width` values. y may be x. */
#define FRT_OP_GATED_RMS_NORM "frt.gated_rms_norm/1"
typedef struct frt_gated_rms_norm_args {
  uint32_t struct_size;
  frt_dtype x_dtype; /* f32, bf16 */
  frt_dtype dtype;   /* of z and y: f32, bf16 */
  int32_t rows;
  int32_t heads;
  int32_t width;
  float epsilon;
  int32_t reserved;
  const int32_t* row_count; /* (1) device, or NULL */
  const void* x;            /* (rows, heads, width) */
  const void* z;            /* (rows, heads, width) */
  const float* weight;      /* (width), shared by the heads */
  void* y;                  /* (rows, heads, width) */
} frt_gated_rms_norm_args;
FRT_ASSERT_LAYOUT(frt_gated_rms_norm_args, 72, y, 64);

FRT_EXTERN_C_END

#endif /* FRT_OPS_NORM_H_ */
