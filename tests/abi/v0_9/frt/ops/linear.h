/* SPDX-License-Identifier: Apache-2.0 */
/*
 * frt/ops/linear.h - products with weight matrices, W (outputs, inputs): y = x W^T.
 *
 * Weights stay quantised in memory and are dequantised inside the product. Sums are f32. Activation
 * types f32 and bf16; with f32 activations the weights are dequantised to f32. Formats: those of
 * frt_kernel_desc::weights.
 *
 * The value of one output row depends on its input row alone, not on how many rows are computed
 * together, for all rows <= 16 (decode and verify of any batch agree bit for bit).
 *
 * The fused forms have a default composition (frt/compose.hpp): what they need in between is an
 * argument, which a backend that fuses may leave untouched.
 */
#ifndef FRT_OPS_LINEAR_H_
#define FRT_OPS_LINEAR_H_

#include <frt/kernels.h>
#include <frt/ops/sequences.h>

FRT_EXTERN_C_BEGIN

/* y[r, :] = x[r, :] W^T, or += with accumulate. */
#define FRT_OP_LINEAR "frt.linear/1"
typedef struct frt_linear_args {
  uint32_t struct_size;
  frt_dtype x_dtype; /* f32, bf16 */
  frt_dtype y_dtype; /* f32, bf16 */
  int32_t rows;
  uint32_t accumulate; /* 1: y += (in f32, rounded once) */
  uint32_t reserved;
  const int32_t* row_count; /* (1) device, or NULL */
  const void* x;            /* (rows, x_stride) */
  int64_t x_stride;         /* elements, >= weight.cols */
  frt_weight weight;        /* (outputs, inputs) */
  void* y;                  /* (rows, y_stride) */
  int64_t y_stride;         /* elements, >= weight.rows */
} frt_linear_args;
FRT_ASSERT_LAYOUT(frt_linear_args, 128, y_stride, 120);

/* The most weights of one group. */
#define FRT_LINEAR_GROUP_MAX 8

/* One product of a group; frozen. */
typedef struct frt_linear_part {
  frt_weight weight; /* (outputs, inputs); the same inputs for all parts */
  void* y;           /* (rows, y_stride), the group's type */
  int64_t y_stride;  /* elements */
} frt_linear_part;
FRT_ASSERT_LAYOUT(frt_linear_part, 80, y_stride, 72);

/* Several products of one x, optionally with the norm before them:
 *   residual += delta (unless NULL);  x = rms_norm(residual);  y_i = x W_i^T
 * residual NULL: x is an input and there is no norm. Composition: add_rms_norm, linear. */
#define FRT_OP_NORM_LINEARS "frt.norm_linears/1"
typedef struct frt_norm_linears_args {
  uint32_t struct_size;
  frt_dtype residual_dtype; /* f32, bf16 */
  frt_dtype dtype;          /* of delta, x and the y_i: f32, bf16 */
  int32_t rows;
  int32_t part_count; /* 1 .. FRT_LINEAR_GROUP_MAX */
  float epsilon;
  const int32_t* row_count;     /* (1) device, or NULL */
  void* residual;               /* (rows, inputs) or NULL */
  const void* delta;            /* (rows, inputs) or NULL; NULL with residual NULL */
  const float* norm_weight;     /* (inputs) or NULL with residual NULL */
  void* x;                      /* (rows, inputs); always written when residual is given */
  const frt_linear_part* parts; /* (part_count), host memory, read during the call */
} frt_norm_linears_args;
FRT_ASSERT_LAYOUT(frt_norm_linears_args, 72, parts, 64);

/* h = silu(x Wg^T) * (x Wu^T), with the optional norm before it as in norm_linears. Composition:
 * norm_linears into `gate` and h, then silu_mul. */
#define FRT_OP_NORM_GATE_UP "frt.norm_gate_up/1"
typedef struct frt_norm_gate_up_args {
  uint32_t struct_size;
  frt_dtype residual_dtype; /* f32, bf16 */
  frt_dtype dtype;          /* of delta, x, gate and h: f32, bf16 */
  int32_t rows;
  float epsilon;
  uint32_t reserved;
  const int32_t* row_count; /* (1) device, or NULL */
  void* residual;           /* (rows, inputs) or NULL */
  const void* delta;        /* (rows, inputs) or NULL; NULL with residual NULL */
  const float* norm_weight; /* (inputs) or NULL with residual NULL */
  void* x;                  /* (rows, inputs); always written when residual is given */
  frt_weight gate_weight;   /* (width, inputs) */
  frt_weight up_weight;     /* (width, inputs) */
  void* gate;               /* (rows, width), working memory of the composition */
  void* h;                  /* (rows, width) */
} frt_norm_gate_up_args;
FRT_ASSERT_LAYOUT(frt_norm_gate_up_args, 208, h, 200);

FRT_EXTERN_C_END

#endif /* FRT_OPS_LINEAR_H_ */
