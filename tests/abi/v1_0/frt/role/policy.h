/* SPDX-License-Identifier: Apache-2.0 */
/*
 * frt/role/policy.h - the role "policy": observations in, a chunk of actions out. An extension of
 * a model object.
 *
 * One inference: write the inputs that changed into their buffers, replay `infer` under
 * infer_key(steps), read `actions`. Everything that varies (images, masks, state, prompt, noise,
 * guidance strength) is a buffer, so nothing is ever captured again.
 *
 * Where has_split, the inference is also available in two graphs with a buffer between them:
 * `observe` (images and prompt to context) and `act` (context and noise to actions), so that they
 * can run at different rates, on different streams, or as a Plan.
 */
#ifndef FRT_ROLE_POLICY_H_
#define FRT_ROLE_POLICY_H_

#include <frt/base.h>
#include <frt/capsule.h>
#include <frt/exec.h>
#include <frt/model.h>

FRT_EXTERN_C_BEGIN

#define FRT_EXT_ROLE_POLICY "frt.role.policy/1"

/* Limits and handles, constant for the life of the model. The caller sets struct_size. */
typedef struct frt_policy_info {
  uint32_t struct_size;
  uint32_t views;         /* camera images per observation */
  uint32_t image_height;  /* pixels, after resizing */
  uint32_t image_width;   /* pixels */
  uint32_t state_dim;     /* values of the proprioceptive state; 0: none */
  uint32_t horizon;       /* actions per chunk */
  uint32_t action_dim;    /* values per action */
  uint32_t max_prompt;    /* prompt tokens */
  uint32_t default_steps; /* denoising steps of one inference */
  uint32_t guidance_ways; /* 1: no guidance; else branches that share one denoised chunk */
  uint32_t has_split;
  uint32_t reserved;
  frt_state state;               /* arena of episode state, or NULL */
  frt_graph infer, observe, act; /* observe, act: NULL unless has_split */

  /* Inputs, device space; NULL where the model has none. */
  frt_buffer images;         /* u8 (views, image_height, image_width, 3) */
  frt_buffer view_mask;      /* i32 (views): 1 valid, 0 absent */
  frt_buffer proprioception; /* f32 (state_dim), in the checkpoint's units before normalisation */
  frt_buffer prompt_tokens;  /* i32 (guidance_ways, max_prompt) */
  frt_buffer prompt_length;  /* i32 (guidance_ways) */
  frt_buffer noise;          /* f32 (horizon, action_dim) */
  frt_buffer beta;           /* f32 (guidance_ways): guidance strengths */

  /* Outputs, device space. */
  frt_buffer actions; /* f32 (horizon, action_dim), in the checkpoint's units */
} frt_policy_info;
FRT_ASSERT_LAYOUT(frt_policy_info, 144, actions, 136);

typedef struct frt_role_policy_v1 {
  uint32_t struct_size;
  uint32_t reserved;
  frt_status (*info)(frt_model model, frt_policy_info* info); /* [any] */
  /* The variant of `infer` (and `act`) with this many denoising steps; FRT_ERR_NO_VARIANT if it
   * was not captured at load.  [hot] */
  frt_status (*infer_key)(frt_model model, uint32_t steps, frt_shape_key* key);
  /* Builds the prompt of an instruction, with state and options (JSON) where the format wants
   * them, into prompt_tokens and prompt_length of branch `way`, in order on `stream`.  [driver] */
  frt_status (*set_prompt)(frt_model model, uint32_t way, const char* instruction,
                           const char* options, frt_stream stream, frt_error* error);
} frt_role_policy_v1;
FRT_ASSERT_LAYOUT(frt_role_policy_v1, 32, set_prompt, 24);

FRT_EXTERN_C_END

#endif /* FRT_ROLE_POLICY_H_ */
