/* SPDX-License-Identifier: Apache-2.0 */
/*
 * frt/role/critic.h - the role "critic": an observation in, one value out. An extension of a model
 * object.
 *
 * A value says how well an episode goes: 0 is a task that is done, -1 one that failed or needs all
 * the time there is. Write the inputs into their buffers, replay `infer` under `key`, read `value`.
 * A critic runs beside a policy, on a stream of its own; it shares no buffer with it.
 */
#ifndef FRT_ROLE_CRITIC_H_
#define FRT_ROLE_CRITIC_H_

#include <frt/base.h>
#include <frt/exec.h>
#include <frt/model.h>

FRT_EXTERN_C_BEGIN

#define FRT_EXT_ROLE_CRITIC "frt.role.critic/1"

/* Limits and handles, constant for the life of the model. The caller sets struct_size. */
typedef struct frt_critic_info {
  uint32_t struct_size;
  uint32_t views;        /* camera images per observation; 0: it sees none */
  uint32_t image_height; /* pixels */
  uint32_t image_width;  /* pixels */
  uint32_t state_dim;    /* values of the proprioceptive state; 0: it reads none */
  uint32_t reserved;
  frt_graph infer;
  frt_shape_key key; /* of `infer` */

  /* Inputs, device space; NULL where the model has none. */
  frt_buffer images;         /* u8 (views, image_height, image_width, 3) */
  frt_buffer proprioception; /* f32 (state_dim) */

  /* Output, device space. */
  frt_buffer value; /* f32 (1) */
} frt_critic_info;
FRT_ASSERT_LAYOUT(frt_critic_info, 64, value, 56);

typedef struct frt_role_critic_v1 {
  uint32_t struct_size;
  uint32_t reserved;
  frt_status (*info)(frt_model model, frt_critic_info* info); /* [any] */
  /* The task that is valued from now on, in order on `stream`. FRT_ERR_NOT_FOUND if the critic was
   * not trained on the instruction. Optional: NULL where it knows one task only.  [driver] */
  frt_status (*set_instruction)(frt_model model, const char* instruction, frt_stream stream,
                                frt_error* error);
} frt_role_critic_v1;
FRT_ASSERT_LAYOUT(frt_role_critic_v1, 24, set_instruction, 16);

FRT_EXTERN_C_END

#endif /* FRT_ROLE_CRITIC_H_ */
