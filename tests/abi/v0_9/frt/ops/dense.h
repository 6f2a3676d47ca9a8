/* SPDX-License-Identifier: Apache-2.0 */
/*
 * frt/ops/dense.h - products with what encoders and flow experts have around them: norm before,
 * bias, activation, gate and residual after. W (outputs, inputs), sums in f32, weight formats and
 * types as in frt/ops/linear.h. What is added around a product is added in f32 to the sum, which is
 * rounded once.
 *
 * Two ranges of row numbers matter: about 500 to 2000 rows (images, prompts: bound by arithmetic)
 * and about 10 to 200 (a chunk of actions: bound by reading the weights, once per step).
 *
 * FP8 activations: a scale above 0 beside an array says that it holds, or gets, values rounded to
 * e4m3 with this one scale, value = e4m3 * scale; what is stored is e4m3(value * (1 / scale)), to
 * nearest even and saturating, from the f32 that would be rounded otherwise. Scales are constants
 * of a deployment: they come from a calibration and are part of what is recorded. An x in e4m3
 * goes with weights in FP8_TENSOR or FP8_CHANNEL: y = (e4m3(x) . e4m3(W)) * scales, sums in f32.
 *
 * Weights of one operator that a backend may want as one matrix (gate and up; the parts of a
 * norm_dense) lie one after the other in memory where the model could arrange it:
 * data of the next = data + bytes of this.
 */
#ifndef FRT_OPS_DENSE_H_
#define FRT_OPS_DENSE_H_

#include <frt/kernels.h>
#include <frt/ops/row_norm.h>
#include <frt/ops/sequences.h>

FRT_EXTERN_C_BEGIN

#define FRT_ACTIVATION_NONE 0u
#define FRT_ACTIVATION_GELU 1u /* z/2 (1 + tanh(0.7978845608 (z + 0.044715 z^3))) */
#define FRT_ACTIVATION_SILU 2u /* z sigmoid(z) */

/* z = activation(x W^T + bias);  z *= gate, if there is a modulation (its third vector);
 * z += addend[r % addend_rows, :];  z += y, with accumulate;  y = z. */
#define FRT_OP_DENSE "frt.dense/1"
typedef struct frt_dense_args {
  uint32_t struct_size;
  frt_dtype x_dtype; /* f32, bf16; with x_scale f8_e4m3 */
  frt_dtype y_dtype; /* f32, bf16: y is often the residual stream */
  int32_t rows;
  uint32_t activation;      /* FRT_ACTIVATION_* */
  uint32_t accumulate;      /* 1: y += */
  const int32_t* row_count; /* (1) device, or NULL */
  const void* x;            /* (rows, x_stride) */
  int64_t x_stride;         /* elements, >= weight.cols */
  frt_weight weight;        /* (outputs, inputs) */
  const float* bias;        /* (outputs), or NULL */
  frt_modulation gate;      /* width = outputs; rows NULL: none */
  const float* addend;      /* (addend_rows, outputs), or NULL: e.g. positions of patches */
  int32_t addend_rows;      /* with addend: at least 1 */
  float x_scale;            /* of x in f8_e4m3; 0 otherwise */
  void* y;                  /* (rows, y_stride) */
  int64_t y_stride;         /* elements, >= outputs */
} frt_dense_args;
FRT_ASSERT_LAYOUT(frt_dense_args, 184, y_stride, 176);

/* The most parts of one norm_dense. */
#define FRT_DENSE_PARTS_MAX 4

/* One product of a norm_dense; frozen. */
typedef struct frt_dense_part {
  frt_weight weight;   /* (outputs, inputs); the same inputs for all parts */
  const float* bias;   /* (outputs), or NULL */
  uint32_t activation; /* FRT_ACTIVATION_* */
  float y_scale;       /* above 0, and with normed_scale: y is f8_e4m3 */
  void* y;             /* (rows, y_stride) of the operator's type */
  int64_t y_stride;    /* elements */
} frt_dense_part;
FRT_ASSERT_LAYOUT(frt_dense_part, 96, y_stride, 88);

/* normed = norm(x);  y_i = activation_i(normed W_i^T + bias_i). `normed` is working memory that a
 * backend which fuses may leave untouched; x is not changed. With normed_scale there is a norm.
 * Composition without FP8 activations: row_norm, dense. */
#define FRT_OP_NORM_DENSE "frt.norm_dense/1"
typedef struct frt_norm_dense_args {
  uint32_t struct_size;
  frt_dtype x_dtype; /* f32, bf16 */
  frt_dtype dtype;   /* of normed and the y_i: f32, bf16 */
  int32_t rows;
  int32_t part_count;          /* 1 .. FRT_DENSE_PARTS_MAX */
  float normed_scale;          /* above 0: normed is f8_e4m3, and that is what is multiplied */
  const int32_t* row_count;    /* (1) device, or NULL */
  frt_norm norm;               /* any kind; NONE: x is of type dtype, and is what is multiplied */
  const void* x;               /* (rows, inputs) */
  void* normed;                /* (rows, inputs) working memory; may be NULL with kind NONE */
  const frt_dense_part* parts; /* (part_count), host memory, read during the call */
} frt_norm_dense_args;
FRT_ASSERT_LAYOUT(frt_norm_dense_args, 112, parts, 104);

/* h = gelu(n Wg^T) * (n Wu^T), n = norm(x): the first half of a GeGLU block; the second is a dense
 * with accumulate. Composition without FP8 activations: norm_dense into `gate` and h, then
 * gelu_mul.
 */
#define FRT_OP_NORM_GEGLU "frt.norm_geglu/1"
typedef struct frt_norm_geglu_args {
  uint32_t struct_size;
  frt_dtype x_dtype; /* f32, bf16 */
  frt_dtype dtype;   /* of normed, gate and h: f32, bf16 */
  int32_t rows;
  const int32_t* row_count; /* (1) device, or NULL */
  frt_norm norm;            /* as in norm_dense */
  const void* x;            /* (rows, inputs) */
  void* normed;             /* (rows, inputs) working memory */
  frt_weight gate_weight;   /* (width, inputs) */
  frt_weight up_weight;     /* (width, inputs) */
  void* gate;               /* (rows, width), working memory of the composition */
  void* h;                  /* (rows, width) */
  float normed_scale;       /* as in norm_dense */
  float h_scale;            /* above 0, and with normed_scale: h is f8_e4m3 */
} frt_norm_geglu_args;
FRT_ASSERT_LAYOUT(frt_norm_geglu_args, 248, h_scale, 244);

FRT_EXTERN_C_END

#endif /* FRT_OPS_DENSE_H_ */
