/* SPDX-License-Identifier: Apache-2.0 */
/*
 * frt/ops/flow.h - flow matching: from noise to a chunk of actions in Euler steps, with guidance by
 * several branches and with what continues the chunk before. Everything here is f32: the chunk x
 * (samples, horizon, dim) is the only thing that is handed from step to step.
 *
 * Branches share x: rows of the network are (branches, samples, horizon), rows of x (samples,
 * horizon).
 */
#ifndef FRT_OPS_FLOW_H_
#define FRT_OPS_FLOW_H_

#include <frt/kernels.h>
#include <frt/ops/row_norm.h>

FRT_EXTERN_C_BEGIN

/* x = noise, and the first *locked rows of each sample = previous. clean_rows = *locked_clean ?
 * *locked : 0, for frt_modulation. Without `locked`: x = noise, clean_rows = 0. */
#define FRT_OP_FLOW_START "frt.flow_start/1"
typedef struct frt_flow_start_args {
  uint32_t struct_size;
  int32_t samples, horizon, dim;
  const float* noise;           /* (samples, horizon, dim) */
  const float* previous;        /* (horizon, dim), or NULL with locked NULL */
  const int32_t* locked;        /* (1) device, or NULL */
  const uint32_t* locked_clean; /* (1) device, or NULL with locked NULL */
  float* x;                     /* (samples, horizon, dim) */
  int32_t* clean_rows;          /* (1) */
} frt_flow_start_args;
FRT_ASSERT_LAYOUT(frt_flow_start_args, 64, clean_rows, 56);

/* h[w, s, i, :] = x[s, i, :] W^T + bias, the same for every branch. dim is small (32). */
#define FRT_OP_FLOW_INPUT "frt.flow_input/1"
typedef struct frt_flow_input_args {
  uint32_t struct_size;
  frt_dtype h_dtype; /* f32, bf16 */
  int32_t branches;
  int32_t rows; /* samples * horizon, at least 1 */
  int32_t dim;
  int32_t width;
  const float* x;      /* (rows, dim) */
  const float* weight; /* (width, dim) */
  const float* bias;   /* (width) */
  void* h;             /* (branches * rows, width) */
} frt_flow_input_args;
FRT_ASSERT_LAYOUT(frt_flow_input_args, 56, h, 48);

/* v = norm(h) W^T + bias, without a rounding in between. */
#define FRT_OP_FLOW_OUTPUT "frt.flow_output/1"
typedef struct frt_flow_output_args {
  uint32_t struct_size;
  frt_dtype h_dtype; /* f32, bf16 */
  int32_t rows;      /* branches * samples * horizon, at least 1 */
  int32_t dim;
  int32_t width;
  uint32_t reserved;
  const void* h;       /* (rows, width) */
  frt_norm norm;       /* any kind */
  const float* weight; /* (dim, width) */
  const float* bias;   /* (dim) */
  float* v;            /* (rows, dim) */
} frt_flow_output_args;
FRT_ASSERT_LAYOUT(frt_flow_output_args, 112, v, 104);

/* One Euler step, per element (s, i, d), u being the last branch:
 *   v = v[u] + sum over w < u of beta[w] (v[w] - v[u])                         branches > 1
 *   v -= min(pull, *cap) * weights[i] * (previous - (x - time v))               with previous
 *   x += step v;  rows i < *locked: x = previous
 * in f32 and in this order. velocity, if given, gets the v that was used. */
#define FRT_OP_FLOW_UPDATE "frt.flow_update/1"
typedef struct frt_flow_update_args {
  uint32_t struct_size;
  int32_t branches, samples, horizon, dim;
  float time;            /* t of this step, 1 down to 0 */
  float step;            /* -1 / steps */
  float pull;            /* of guided continuation at this t; may be infinite */
  const float* v;        /* (branches, samples, horizon, dim) */
  const float* beta;     /* (branches - 1) device; NULL with branches 1 */
  const float* previous; /* (horizon, dim), or NULL: no continuation, and the next three are NULL */
  const float* weights;  /* (horizon) device */
  const float* cap;      /* (1) device */
  const int32_t* locked; /* (1) device */
  float* velocity;       /* (samples, horizon, dim), or NULL */
  float* x;              /* (samples, horizon, dim), read and written */
} frt_flow_update_args;
FRT_ASSERT_LAYOUT(frt_flow_update_args, 96, x, 88);

/* The end of a step and the begin of the next: output.v, update, and, if next.h is not NULL,
 * next.h = input of the new x (which may be the memory of output.h). output.v = update.v and
 * next.x = update.x; all have one dim; output.rows = branches * samples * horizon of the update,
 * and next.rows = samples * horizon. Composition: flow_output, flow_update, flow_input. */
#define FRT_OP_FLOW_STEP "frt.flow_step/1"
typedef struct frt_flow_step_args {
  uint32_t struct_size;
  uint32_t reserved;
  frt_flow_output_args output;
  frt_flow_update_args update;
  frt_flow_input_args next;
} frt_flow_step_args;
FRT_ASSERT_LAYOUT(frt_flow_step_args, 272, next, 216);

FRT_EXTERN_C_END

#endif /* FRT_OPS_FLOW_H_ */
