/* SPDX-License-Identifier: Apache-2.0 */
/*
 * frt/observation.h - a robot's raw observation into the buffers of a policy, and the policy's
 * actions into the robot's units: an extension of a model object that has frt.role.policy/1.
 *
 * What a policy was trained on (names of cameras, resizing, normalisation, prompt, differences
 * instead of positions) belongs to its checkpoint, so the model plugin does it and a host only
 * hands over what came in:
 *
 *   write(model, observation, stream, &observed)   names and arrays into images, view_mask, prompt
 *   infer_key(model, &observed.shape, &key)        frt/role/policy.h
 *   graph_replay(infer, key, stream), copy `actions` to the host
 *   finish(model, &observed, actions, robot)       normalised actions into robot units
 *
 * A policy plugin of its own kind offers the same table: it decides which names it knows, and hosts
 * pass all they have. Names that it does not know are ignored; what it needs and is missing, of
 * another type or size, NaN, infinite, or an id outside the vocabulary, is an error that names it.
 */
#ifndef FRT_OBSERVATION_H_
#define FRT_OBSERVATION_H_

#include <frt/base.h>
#include <frt/exec.h>
#include <frt/model.h>
#include <frt/role/policy.h>

FRT_EXTERN_C_BEGIN

#define FRT_EXT_OBSERVATION "frt.observation/1"

#define FRT_ARRAY_MAX_RANK 8u
#define FRT_ARRAY_MAX_ELEMENTS (INT64_C(1) << 40) /* of one array */
#define FRT_OBSERVATION_MAX_ARRAYS 4096u
/* Bytes of `prompt`, its zero included; ids of `prompt_tokens`. */
#define FRT_OBSERVATION_MAX_PROMPT (UINT32_C(1) << 26)

/* One array in host memory, row-major and packed; frozen. Borrowed for the call. */
typedef struct frt_array {
  /* As the client names it; nested maps joined by '/': "images/cam_high". Never NULL. */
  const char* name;
  const void* data;                  /* NULL only where a size of the shape is 0 */
  frt_dtype dtype;                   /* f32, f64, f16, u8, i8 .. i64, bool */
  uint32_t rank;                     /* 0: a scalar */
  int64_t shape[FRT_ARRAY_MAX_RANK]; /* 0 or more; the first `rank` are read */
} frt_array;
FRT_ASSERT_LAYOUT(frt_array, 88, shape, 24);

/* What came in. Borrowed for the call. frt::read_observation (frt/observation.hpp) checks what is
 * said here. */
typedef struct frt_observation {
  uint32_t struct_size;
  uint32_t array_count;
  /* [array_count]: images, state; "noise" (horizon, action_dim) if given. NULL only where
   * array_count is 0. */
  const frt_array* arrays;
  /* The instruction, or its ids; not both. Both NULL: the checkpoint's default instruction,
   * whatever came before; FRT_ERR_NOT_FOUND without one. "" is an instruction without words. */
  const char* prompt;
  const int32_t* prompt_tokens; /* NULL where prompt_token_count is 0, and only there */
  uint32_t prompt_token_count;
  uint32_t reserved;
  const char* options; /* JSON object of further options, as the plugin documents; NULL: none */
} frt_observation;
FRT_ASSERT_LAYOUT(frt_observation, 48, options, 40);

#define FRT_OBSERVED_STATE_MAX 256u

/* What `finish` needs to know of the observation that the actions answer. The caller sets
 * struct_size; it is a plain value and may be kept, copied, and used more than once. */
typedef struct frt_observed {
  uint32_t struct_size;
  uint32_t state_count;
  uint32_t views, prompt; /* those of the frt_policy_shape for infer_key */
  /* Raw state, in the space of the actions. A policy that must keep more values refuses them. */
  double state[FRT_OBSERVED_STATE_MAX];
} frt_observed;
FRT_ASSERT_LAYOUT(frt_observed, 2064, state, 16);

/* Constant for the life of the model. The caller sets struct_size; strings live as long as the
 * model. */
typedef struct frt_observation_info {
  uint32_t struct_size;
  uint32_t action_dim; /* values of one action in robot units */
  uint32_t state_dim;  /* values of the raw state; 0: not read */
  uint32_t reserved;
  const char* names;    /* the arrays that are read, JSON: [{"name", "kind": "image" | "state",
                           "shape", "required"}, ...]; NULL: not said */
  const char* metadata; /* what a client is told when it connects: a JSON object; NULL: nothing */
} frt_observation_info;
FRT_ASSERT_LAYOUT(frt_observation_info, 32, metadata, 24);

typedef struct frt_observation_v1 {
  uint32_t struct_size;
  uint32_t reserved;
  frt_status (*info)(frt_model model, frt_observation_info* info); /* [any] */
  /* Checks everything, converts, and uploads in order on `stream`, through memory of the model's
   * own (it waits for its upload before the last one). On an error no buffer was touched.
   * [driver] */
  frt_status (*write)(frt_model model, const frt_observation* observation, frt_stream stream,
                      frt_observed* observed, frt_error* error);
  /* `actions` (horizon, policy action_dim) of one sample, host memory, into `robot` (horizon,
   * action_dim of the info). FRT_ERR_FORMAT if a value is NaN or infinite, before or after: such a
   * chunk must not reach a robot.  [any] */
  frt_status (*finish)(frt_model model, const frt_observed* observed, const float* actions,
                       double* robot, frt_error* error);
} frt_observation_v1;
FRT_ASSERT_LAYOUT(frt_observation_v1, 32, finish, 24);

FRT_EXTERN_C_END

#endif /* FRT_OBSERVATION_H_ */
