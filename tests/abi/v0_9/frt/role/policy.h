/* SPDX-License-Identifier: Apache-2.0 */
/*
 * frt/role/policy.h - the role "policy": observations in, a chunk of actions out. An extension of
 * a model object.
 *
 * One inference: write the inputs that changed into their buffers, replay `infer` under
 * infer_key(shape), read `actions`. Everything that varies (images, masks, prompt, noise, guidance
 * strength, the chunk before) is a buffer, so nothing is ever captured again: a shape only says how
 * much of it there is.
 *
 * Where has_split, the inference is also available in parts, with buffers between them that are
 * handed on as they are, so that the parts can run at different rates, on different streams, or as
 * a Plan:
 *
 *   observe   images and prompt to context        = vision, then prefix
 *   vision    images to image tokens
 *   prefix    image tokens and prompt to context
 *   act       context and noise to actions
 *
 * `act` may be replayed any number of times on one context (other noise, other strength), `prefix`
 * on the tokens of one `vision` (another prompt). `vision` may run beside `act`. The tokens are
 * those of the last `vision`: `infer` and `observe` leave them alone. `prefix` wants the view_mask
 * that `vision` had.
 *
 * Units: these buffers hold what the network reads and writes: resized pixels, token ids, actions
 * in its normalised space. What turns a robot's arrays into that and back is the extension
 * frt.observation/1 (frt/observation.h), where the model offers it.
 */
#ifndef FRT_ROLE_POLICY_H_
#define FRT_ROLE_POLICY_H_

#include <frt/base.h>
#include <frt/capsule.h>
#include <frt/exec.h>
#include <frt/model.h>

FRT_EXTERN_C_BEGIN

#define FRT_EXT_ROLE_POLICY "frt.role.policy/1"

/* How much of the buffers one inference uses. Zeros mean what the comments say. A variant that is
 * larger than the shape gives the same actions, so the smallest captured one is taken. */
typedef struct frt_policy_shape {
  uint32_t struct_size;
  uint32_t views;    /* ones in view_mask; 0: all views */
  uint32_t prompt;   /* the largest prompt_length of the branches in use; 0: max_prompt */
  uint32_t steps;    /* denoising steps; 0: default_steps */
  uint32_t samples;  /* noises in use, from the first; 0: one */
  uint32_t branches; /* branches in use, from the first; 0: guidance_branches, 1: no guidance */
} frt_policy_shape;
FRT_ASSERT_LAYOUT(frt_policy_shape, 24, branches, 20);

/* How an inference continues the chunk before it (real-time chunking): what the buffer
 * `continuation` holds; frozen. All zero: not at all. See set_continuation. */
typedef struct frt_policy_continuation {
  int32_t locked;        /* first rows that are set to `previous` before and after every step */
  uint32_t locked_clean; /* 1: the network is told that those rows are noise-free */
  float guidance_cap;    /* largest factor of the pull towards `previous` */
  uint32_t reserved;
} frt_policy_continuation;
FRT_ASSERT_LAYOUT(frt_policy_continuation, 16, reserved, 12);

/* Limits and handles, constant for the life of the model. The caller sets struct_size. */
typedef struct frt_policy_info {
  uint32_t struct_size;
  uint32_t views;             /* camera images per observation */
  uint32_t image_height;      /* pixels, after resizing */
  uint32_t image_width;       /* pixels */
  frt_dtype image_dtype;      /* u8: 0 .. 255; f32: -1 .. 1 */
  uint32_t state_dim;         /* values of `proprioception`; 0: none, or part of the prompt */
  uint32_t horizon;           /* actions per chunk */
  uint32_t action_dim;        /* values per action */
  uint32_t max_prompt;        /* prompt tokens of a branch */
  uint32_t default_steps;     /* denoising steps of one inference */
  uint32_t max_steps;         /* rows of `beta` */
  uint32_t max_samples;       /* chunks that one inference can make of one observation */
  uint32_t guidance_branches; /* 1: no guidance; else branches that share one denoised chunk; the
                             last one is the unconditional one */
  uint32_t has_split;         /* 1: observe and act are there; 2: vision and prefix, too */
  uint32_t has_continuation;  /* 1: previous, previous_weights and continuation are there */
  uint32_t reserved;
  frt_state state; /* arena of all that one inference leaves for the next, the buffers below
                      included: they are views of it, Buffer::retain(arena.info().buffer).view(...)
                      of frt/exec.hpp. Graphs work in slot 0. NULL: none, the buffers are all */
  frt_graph infer, observe, act; /* observe, act: NULL unless has_split */

  /* Inputs, device space; NULL where the model has none. */
  frt_buffer images;         /* image_dtype (views, image_height, image_width, 3) */
  frt_buffer view_mask;      /* i32 (views): 1 valid, 0 absent; at least one is valid */
  frt_buffer proprioception; /* f32 (state_dim) */
  frt_buffer prompt_tokens;  /* i32 (guidance_branches, max_prompt) */
  frt_buffer prompt_length;  /* i32 (guidance_branches) */
  frt_buffer noise;          /* f32 (max_samples, horizon, action_dim), standard normal */
  frt_buffer beta;     /* f32 (max_steps, guidance_branches - 1): strength of each branch but the
                          last at each step, v = v_last + sum beta_i (v_i - v_last) */
  frt_buffer previous; /* f32 (horizon, action_dim): row i is what was to follow row i - 1 */
  frt_buffer previous_weights; /* f32 (horizon): 0 .. 1, how much a row is pulled to `previous` */
  frt_buffer continuation;     /* frt_policy_continuation */

  /* Outputs, device space. */
  frt_buffer actions; /* f32 (max_samples, horizon, action_dim) */

  frt_graph vision, prefix; /* NULL unless has_split is 2 */
} frt_policy_info;
FRT_ASSERT_LAYOUT(frt_policy_info, 200, prefix, 192);

#define FRT_CONTINUE_NONE 0u   /* a chunk of its own */
#define FRT_CONTINUE_GUIDED 1u /* every step pulls the weighted rows towards the previous chunk */
#define FRT_CONTINUE_LOCKED 2u /* the first `delay` rows are held at the previous chunk */
#define FRT_CONTINUE_CLEAN 3u  /* the same, for policies that were trained with it */

/* Weight of row i, 0 beyond the execution horizon: 1 below `delay`, then */
#define FRT_SCHEDULE_LINEAR 0u      /* falling in equal steps */
#define FRT_SCHEDULE_EXPONENTIAL 1u /* w expm1(w) / (e - 1) of the linear w */
#define FRT_SCHEDULE_ONES 2u        /* 1 */
#define FRT_SCHEDULE_ZEROS 3u       /* 0 */

/* What set_continuation takes. */
typedef struct frt_policy_previous {
  uint32_t struct_size;
  uint32_t mode;              /* FRT_CONTINUE_* */
  uint32_t schedule;          /* FRT_SCHEDULE_*, GUIDED only */
  uint32_t delay;             /* rows that will have been executed when the new chunk is there */
  uint32_t execution_horizon; /* rows that are pulled, GUIDED only; at most `rows` count */
  float guidance_cap;         /* GUIDED only; 0: 10 */
  uint32_t rows;              /* of `actions`, at most the horizon; the rest counts as zeros */
  uint32_t reserved;
  /* (rows, action_dim), host memory: what is left of the chunk before, in the network's space, from
   * the row that is executed now. NULL where rows is 0. */
  const float* actions;
} frt_policy_previous;
FRT_ASSERT_LAYOUT(frt_policy_previous, 40, actions, 32);

/* Setters copy what they get before they return and upload it in order on `stream`; they wait for
 * their upload before the last one. On an error no buffer was touched. Values that are NaN or
 * infinite are FRT_ERR_INVALID_ARGUMENT. Only `info` and `infer_key` are there in every model. */
typedef struct frt_role_policy_v1 {
  uint32_t struct_size;
  uint32_t reserved;
  frt_status (*info)(frt_model model, frt_policy_info* info); /* [any] */
  /* The smallest variant of the graph that `shape` fits in. FRT_ERR_NO_VARIANT:
   * such a number of steps, samples or branches was not captured at load; FRT_ERR_OUT_OF_RANGE:
   * more views or prompt tokens than there are.  [hot] */
  frt_status (*infer_key)(frt_model model, const frt_policy_shape* shape, frt_shape_key* key);
  /* As infer_key. Optional: NULL where has_split is 0.  [hot] */
  frt_status (*observe_key)(frt_model model, const frt_policy_shape* shape, frt_shape_key* key);
  /* As infer_key. Optional: NULL where has_split is 0.  [hot] */
  frt_status (*act_key)(frt_model model, const frt_policy_shape* shape, frt_shape_key* key);
  /* Builds the prompt of an instruction, with options (a JSON object; NULL: none) such as "state"
   * where the format wants them, into prompt_tokens and prompt_length of `branch`; `tokens` (may
   * be NULL) becomes its length. The same prompt as of `write` (frt/observation.h). Optional: NULL,
   * or FRT_ERR_BAD_STATE, if the model has no tokenizer: write ids yourself.  [driver] */
  frt_status (*set_prompt)(frt_model model, uint32_t branch, const char* instruction,
                           const char* options, frt_stream stream, uint32_t* tokens,
                           frt_error* error);
  /* Guidance strengths: guidance_branches - 1 of them (the same at every step) or max_steps times
   * as many. FRT_ERR_OUT_OF_RANGE for one below 1. Optional: NULL, or FRT_ERR_UNSUPPORTED, where
   * guidance_branches is 1.  [driver] */
  frt_status (*set_guidance)(frt_model model, const float* strengths, uint64_t count,
                             frt_stream stream, frt_error* error);
  /* Previous chunk, its weights and the control block. FRT_ERR_UNSUPPORTED: CLEAN for a policy that
   * was not trained with such a delay. Optional: NULL, or FRT_ERR_UNSUPPORTED, without
   * has_continuation.  [driver] */
  frt_status (*set_continuation)(frt_model model, const frt_policy_previous* previous,
                                 frt_stream stream, frt_error* error);
  /* As infer_key; `vision` depends on the views alone. Optional: NULL unless has_split is 2.  [hot]
   */
  frt_status (*vision_key)(frt_model model, const frt_policy_shape* shape, frt_shape_key* key);
  /* As infer_key. Optional: NULL unless has_split is 2.  [hot] */
  frt_status (*prefix_key)(frt_model model, const frt_policy_shape* shape, frt_shape_key* key);
} frt_role_policy_v1;
FRT_ASSERT_LAYOUT(frt_role_policy_v1, 80, prefix_key, 72);

FRT_EXTERN_C_END

#endif /* FRT_ROLE_POLICY_H_ */
