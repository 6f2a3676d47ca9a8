/* SPDX-License-Identifier: Apache-2.0 */
/*
 * frt/ops/gated_delta.h - the gated delta net: causal convolution, delta rule, gated norm.
 *
 * Per sequence and value head i (key head j = i / (value_heads / key_heads)), rows t in order:
 *   c      = silu(sum_w conv_weight[w, :] * u[t - width + 1 + w, :])   channels [q | k | v]
 *   q, k   = c's heads, divided by sqrt(sum(.^2) + 1e-6); q also by sqrt(key_dim)
 *   g      = decay * softplus(a + dt_bias);   beta = sigmoid(b)        f32
 *   S      = S * exp(g);  S = S + k (beta * (v - S^T k))^T;  o = S^T q    S (key_dim, value_dim)
 *   y      = rms_norm(o; epsilon) * norm_weight * silu(z)
 * All inner arithmetic is f32. Many rows may be computed in the chunked form (C = chunk, from the
 * saved S, rows cut at multiples of C from row 0); one row is the recurrence above.
 *
 * Drafted tokens: a step that checks them keeps window and state, and frt.gated_delta_commit/1
 * feeds the rows that were right once more. Up to FRT_DELTA_KEEP_ROWS rows of a sequence give the
 * bits that they give one at a time.
 */
#ifndef FRT_OPS_GATED_DELTA_H_
#define FRT_OPS_GATED_DELTA_H_

#include <frt/kernels.h>
#include <frt/ops/sequences.h>

FRT_EXTERN_C_BEGIN

#define FRT_DELTA_KEEP_ROWS 16 /* sequences.rows at most, where window or state is kept */

/* c = silu(depthwise causal convolution of u), continuing from and updating the window. Window of
 * a slot: the last (width - 1) rows of u, oldest first, of u's type. */
#define FRT_OP_CAUSAL_CONV "frt.causal_conv/1"
typedef struct frt_causal_conv_args {
  uint32_t struct_size;
  frt_dtype dtype; /* of u, c and the window: f32, bf16 */
  frt_sequences sequences;
  int32_t channels;
  int32_t width;            /* taps, 2 .. 8 */
  const void* u;            /* (count * rows, channels) */
  const float* conv_weight; /* (width, channels); row width-1 multiplies the current row */
  void* window;             /* slot s at window + s * slot_stride: (width - 1, channels) */
  int64_t slot_stride;      /* bytes */
  void* c;                  /* (count * rows, channels); not u */
  uint32_t keep_window;     /* 1: the window stays as it is; 0: it follows the rows */
  uint32_t reserved;
} frt_causal_conv_args;
FRT_ASSERT_LAYOUT(frt_causal_conv_args, 96, reserved, 92);

/* The delta rule on convolved rows: c, a, b to o; updates the state. */
#define FRT_OP_GATED_DELTA "frt.gated_delta/1"
typedef struct frt_gated_delta_args {
  uint32_t struct_size;
  frt_dtype dtype; /* of c, a, b, o: f32, bf16 */
  frt_sequences sequences;
  int32_t key_heads, value_heads; /* value_heads % key_heads == 0 */
  int32_t key_dim, value_dim;
  int32_t chunk;        /* rows per chunk where the chunked form is used, e.g. 64 */
  uint32_t keep_state;  /* 1: the state stays as it is; 0: it follows the rows */
  const void* c;        /* (count * rows, 2 * key_heads * key_dim + value_heads * value_dim) */
  const void* a;        /* (count * rows, value_heads) */
  const void* b;        /* (count * rows, value_heads) */
  const float* decay;   /* (value_heads) = -exp(A_log) */
  const float* dt_bias; /* (value_heads) */
  void* state;          /* f32; slot s at state + s * slot_stride:
                           (value_heads, key_dim, value_dim) */
  int64_t slot_stride;  /* bytes */
  void* o;              /* (count * rows, value_heads, value_dim) */
} frt_gated_delta_args;
FRT_ASSERT_LAYOUT(frt_gated_delta_args, 128, o, 120);

/* All of it: u, z, a, b to y. Composition: causal_conv into c, gated_delta into o, gated_rms_norm
 * into y. conv and delta have one dtype and the same sequences; conv.channels are the columns of
 * delta.c. */
#define FRT_OP_GATED_DELTA_BLOCK "frt.gated_delta_block/1"
typedef struct frt_gated_delta_block_args {
  uint32_t struct_size;
  float epsilon;              /* of the gated norm */
  frt_causal_conv_args conv;  /* conv.c: working memory */
  frt_gated_delta_args delta; /* delta.c = conv.c; delta.o: working memory */
  const void* z;              /* (count * rows, value_heads, value_dim) */
  const float* norm_weight;   /* (value_dim) */
  void* y;                    /* (count * rows, value_heads, value_dim) */
} frt_gated_delta_block_args;
FRT_ASSERT_LAYOUT(frt_gated_delta_block_args, 256, y, 248);

/* A layer of a commit; frozen. Shapes as above. */
typedef struct frt_gated_delta_layer {
  const void* u;
  const void* a;
  const void* b;
  const float* conv_weight;
  const float* decay;
  const float* dt_bias;
  void* window;
  void* state;
} frt_gated_delta_layer;
FRT_ASSERT_LAYOUT(frt_gated_delta_layer, 64, state, 56);

/* Moves windows and states of several layers over rows that a step computed and kept them: the
 * first length[b] rows of each sequence. They become, bit for bit, what causal_conv and gated_delta
 * over the same rows make of them. Composition: causal_conv and gated_delta, layer by layer. */
#define FRT_OP_GATED_DELTA_COMMIT "frt.gated_delta_commit/1"
typedef struct frt_gated_delta_commit_args {
  uint32_t struct_size;
  int32_t layer_count; /* > 0 */
  /* What all layers share. Their u, a, b, conv_weight, decay, dt_bias, window and state are those
   * of each layer, and ignored here; conv.c = delta.c and delta.o are working memory. conv and
   * delta fit together as in gated_delta_block. Nothing is kept; sequences.rows <=
   * FRT_DELTA_KEEP_ROWS. */
  frt_causal_conv_args conv;
  frt_gated_delta_args delta;
  const frt_gated_delta_layer* layers; /* (layer_count) host memory, read by the call */
} frt_gated_delta_commit_args;
FRT_ASSERT_LAYOUT(frt_gated_delta_commit_args, 240, layers, 232);

FRT_EXTERN_C_END

#endif /* FRT_OPS_GATED_DELTA_H_ */
