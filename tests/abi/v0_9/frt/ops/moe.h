/* SPDX-License-Identifier: Apache-2.0 */
/* frt/ops/moe.h - mixture of experts: route, run the chosen experts, add the shared one. */
#ifndef FRT_OPS_MOE_H_
#define FRT_OPS_MOE_H_

#include <frt/kernels.h>
#include <frt/ops/sequences.h>

FRT_EXTERN_C_BEGIN

/* The same matrix of every expert; frozen. Expert e: data + e * data_stride, scale + e *
 * scale_stride, zero + e * zero_stride, global scale global_scales[e] (instead of
 * expert.global_scale) if not NULL. A stride is at least the bytes of one expert; that of what the
 * format has not is not read. */
typedef struct frt_expert_weight {
  frt_weight expert;          /* of expert 0 */
  int64_t data_stride;        /* bytes */
  int64_t scale_stride;       /* bytes */
  int64_t zero_stride;        /* bytes */
  const float* global_scales; /* (experts), device, or NULL */
} frt_expert_weight;
FRT_ASSERT_LAYOUT(frt_expert_weight, 96, global_scales, 88);

/* p = softmax(logits) in f32; the experts_per_token largest, ties to the lowest index; weights = p
 * / their sum if normalise, else p. Written by falling probability. */
#define FRT_OP_MOE_ROUTE "frt.moe_route/1"
typedef struct frt_moe_route_args {
  uint32_t struct_size;
  int32_t rows;
  int32_t experts;
  int32_t experts_per_token; /* 1 .. experts; rows * experts_per_token < 2^31 */
  uint32_t normalise;
  uint32_t reserved;
  const int32_t* row_count; /* (1) device, or NULL */
  const float* logits;      /* (rows, experts) */
  int32_t* ids;             /* (rows, experts_per_token) */
  float* weights;           /* (rows, experts_per_token) */
} frt_moe_route_args;
FRT_ASSERT_LAYOUT(frt_moe_route_args, 56, weights, 48);

/* y[r] = sum_j weights[r, j] * down_e(silu(gate_e x[r]) * up_e x[r]), e = ids[r, j]; f32 sum in
 * falling order of j, one rounding. Reads only the chosen experts' weights. */
#define FRT_OP_MOE_EXPERTS "frt.moe_experts/1"
typedef struct frt_moe_experts_args {
  uint32_t struct_size;
  frt_dtype dtype; /* of x and y: f32, bf16 */
  int32_t rows;
  int32_t experts;
  int32_t experts_per_token; /* as in moe_route */
  uint32_t reserved;
  const int32_t* row_count; /* (1) device, or NULL */
  const void* x;            /* (rows, inputs) */
  const int32_t* ids;       /* (rows, experts_per_token) */
  const float* weights;     /* (rows, experts_per_token) */
  frt_expert_weight gate;   /* (width, inputs) */
  frt_expert_weight up;     /* (width, inputs) */
  frt_expert_weight down;   /* (inputs, width) */
  void* y;                  /* (rows, inputs) */
} frt_moe_experts_args;
FRT_ASSERT_LAYOUT(frt_moe_experts_args, 352, y, 344);

/* y[r, :] = routed[r, :] + sigmoid(gate[r]) * shared[r, :]. */
#define FRT_OP_MOE_COMBINE "frt.moe_combine/1"
typedef struct frt_moe_combine_args {
  uint32_t struct_size;
  frt_dtype dtype; /* of routed, shared, y: f32, bf16 */
  int32_t rows;
  int32_t width;
  const int32_t* row_count; /* (1) device, or NULL */
  const void* routed;       /* (rows, width) */
  const void* shared;       /* (rows, width) */
  const float* gate;        /* (rows) before the sigmoid */
  void* y;                  /* (rows, width); may be routed */
} frt_moe_combine_args;
FRT_ASSERT_LAYOUT(frt_moe_combine_args, 56, y, 48);

/* The whole block on normed rows x, with the optional norm before it as in norm_linears.
 * Composition: add_rms_norm; linear (router, f32 logits); moe_route; moe_experts into y;
 * norm_gate_up and linear (shared expert); linear (shared gate, f32); moe_combine. */
#define FRT_OP_MOE_BLOCK "frt.moe_block/1"
typedef struct frt_moe_block_args {
  uint32_t struct_size;
  frt_dtype residual_dtype; /* f32, bf16 */
  frt_dtype dtype;          /* of delta, x, y: f32, bf16 */
  int32_t rows;
  int32_t experts;
  int32_t experts_per_token; /* as in moe_route */
  uint32_t normalise;
  float epsilon;
  const int32_t* row_count; /* (1) device, or NULL */
  void* residual;           /* (rows, inputs) or NULL */
  const void* delta;        /* (rows, inputs) or NULL; NULL with residual NULL */
  const float* norm_weight; /* (inputs) or NULL with residual NULL */
  void* x;                  /* (rows, inputs); always written when residual is given */
  frt_weight router;        /* (experts, inputs) */
  frt_expert_weight gate, up, down;
  frt_weight shared_gate_weight; /* (shared width, inputs); rows 0: no shared expert */
  frt_weight shared_up_weight;   /* (shared width, inputs) */
  frt_weight shared_down_weight; /* (inputs, shared width) */
  frt_weight shared_expert_gate; /* (1, inputs) */
  float* logits;                 /* (rows, experts), always written */
  int32_t* ids;                  /* (rows, experts_per_token), always written */
  float* weights;                /* (rows, experts_per_token), always written */
  void* shared_hidden;           /* (rows, 2 * shared width), working memory */
  void* shared_y;                /* (rows, inputs), working memory */
  float* shared_scale;           /* (rows), working memory */
  void* y;                       /* (rows, inputs) */
} frt_moe_block_args;
FRT_ASSERT_LAYOUT(frt_moe_block_args, 736, y, 728);

FRT_EXTERN_C_END

#endif /* FRT_OPS_MOE_H_ */
