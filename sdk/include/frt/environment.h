/* SPDX-License-Identifier: Apache-2.0 */
/*
 * frt/environment.h - what a plugin of the kind "environment" provides: what a policy acts on, a
 * simulation or a robot. Rollouts and hand-offs drive it.
 *
 * An episode:
 *
 *   reset(environment, &start)           a seed and a task
 *   observe(environment, &observation)   named arrays and the instruction
 *   step(environment, action, &result)   one action; reward, success, end
 *
 * and so on with `observe` and `step`. A policy answers one observation with a chunk of actions, so
 * a host steps several times between two looks.
 *
 * The observation is what policies take (frt/observation.h). An environment names its arrays as it
 * likes: a host gives an array to a policy under the name that the policy reads.
 *
 * A simulation says that it is deterministic. Then the same seed, task and actions give the same
 * episode, bit for bit, whatever ran before. So a rollout can be repeated. A robot does not say it.
 *
 * An environment has no context and no device: it works in host memory. `create` and `destroy` may
 * be called from any thread, one call of the process at a time.
 */
#ifndef FRT_ENVIRONMENT_H_
#define FRT_ENVIRONMENT_H_

#include <frt/base.h>
#include <frt/config.h>
#include <frt/observation.h>
#include <frt/plugin.h>

FRT_EXTERN_C_BEGIN

#define FRT_EXT_ENVIRONMENT "frt.environment/1"

#define FRT_ENVIRONMENT_MAX_PORTS 64u
#define FRT_ENVIRONMENT_MAX_TASKS 4096u
#define FRT_ENVIRONMENT_MAX_ACTION 256u /* values of one action */
/* Bytes of an instruction, its zero included; bytes of a drawing. */
#define FRT_ENVIRONMENT_MAX_INSTRUCTION 4096u
#define FRT_ENVIRONMENT_MAX_DRAWING (UINT32_C(1) << 22)

/* One environment; the plugin's own object. */
typedef struct frt_environment_s* frt_environment;

/* What `create` gets. Borrowed for the call. */
typedef struct frt_environment_params {
  uint32_t struct_size;
  uint32_t reserved;
  const char* name;         /* the user's name of the environment */
  const frt_config* config; /* the options of the plugin's schema */
} frt_environment_params;
FRT_ASSERT_LAYOUT(frt_environment_params, 24, config, 16);

/* What a port holds. */
#define FRT_ENVIRONMENT_ARRAY 0u /* none of the others; a policy gets it under its own name */
#define FRT_ENVIRONMENT_IMAGE 1u /* u8 (height, width, 3): RGB, rows from the top */
#define FRT_ENVIRONMENT_STATE 2u /* f32 (values): proprioception; every value is finite */

/* An array that `observe` gives, or the action; frozen. */
typedef struct frt_environment_port {
  const char* name; /* e.g. "observation/image" */
  const char* doc;  /* one line: meaning, unit */
  uint32_t kind;    /* FRT_ENVIRONMENT_* */
  frt_dtype dtype;  /* of an array: as frt_array */
  uint32_t rank;
  uint32_t reserved;
  int64_t shape[FRT_ARRAY_MAX_RANK]; /* 1 or more each; the first `rank` count */
} frt_environment_port;
FRT_ASSERT_LAYOUT(frt_environment_port, 96, shape, 32);

/* Something that the environment can be asked to do; frozen. */
typedef struct frt_environment_task {
  const char* name;        /* one word that texts name it by: "red" */
  const char* instruction; /* what a policy is told: "reach the red disc" */
} frt_environment_task;
FRT_ASSERT_LAYOUT(frt_environment_task, 16, instruction, 8);

/* The same seed, task and actions give the same episode, bit for bit. */
#define FRT_ENVIRONMENT_DETERMINISTIC 1u

/* Constant for the life of the environment, as is all that it points to. The caller sets
 * struct_size. */
typedef struct frt_environment_info {
  uint32_t struct_size;
  uint32_t flags;      /* FRT_ENVIRONMENT_DETERMINISTIC */
  uint32_t max_steps;  /* after which an episode is over; 0: it has no such limit */
  uint32_t port_count; /* 1 to FRT_ENVIRONMENT_MAX_PORTS */
  uint32_t task_count; /* at most FRT_ENVIRONMENT_MAX_TASKS; 0: one task without a name */
  uint32_t reserved;
  double period_s;                    /* seconds that one step takes in the environment; 0: any */
  const char* doc;                    /* one line for people */
  const frt_environment_port* ports;  /* [port_count]: what `observe` gives, in this order */
  const frt_environment_port* action; /* f64 (values), an ARRAY; its doc has the unit */
  const frt_environment_task* tasks;  /* [task_count]; NULL where task_count is 0 */
  const double* action_low;           /* (values of an action), finite; NULL: no limit below */
  const double* action_high;          /* (values of an action), finite; NULL: no limit above */
} frt_environment_info;
FRT_ASSERT_LAYOUT(frt_environment_info, 80, action_high, 72);

#define FRT_TASK_ANY UINT32_MAX /* one that the seed chooses */

/* How an episode begins. Borrowed for the call. */
typedef struct frt_environment_start {
  uint32_t struct_size;
  uint32_t task; /* below task_count, or FRT_TASK_ANY */
  uint64_t seed;
} frt_environment_start;
FRT_ASSERT_LAYOUT(frt_environment_start, 16, seed, 8);

#define FRT_EPISODE_SUCCEEDED 1u /* the task is done; stays so until set_task or reset */
#define FRT_EPISODE_OVER 2u      /* max_steps is reached, or the task cannot be done any more */

/* What one step led to. The caller sets struct_size. */
typedef struct frt_environment_result {
  uint32_t struct_size;
  uint32_t flags; /* FRT_EPISODE_* */
  double reward;  /* of this step; finite */
} frt_environment_result;
FRT_ASSERT_LAYOUT(frt_environment_result, 16, reward, 8);

#define FRT_DRAWING_FRAME_S 0.12 /* seconds that a drawing shows one step */

/* The plugin's table. Where `observe` or `step` fails for a reason of its own the episode is lost,
 * and `reset` begins a new one. What a function gives lives until the next call with this
 * environment, unless it says otherwise. */
typedef struct frt_environment_v1 {
  uint32_t struct_size;
  uint32_t reserved;
  /* On failure nothing is left behind.  [setup] */
  frt_status (*create)(frt_plugin plugin, const frt_environment_params* params,
                       frt_environment* environment, frt_error* error);
  void (*destroy)(frt_environment environment);                                /* [setup] */
  frt_status (*info)(frt_environment environment, frt_environment_info* info); /* [any] */
  /* Begins an episode. FRT_ERR_OUT_OF_RANGE for a task that there is not.  [object] */
  frt_status (*reset)(frt_environment environment, const frt_environment_start* start,
                      frt_error* error);
  /* What is seen now: the arrays of the ports, in their order, and the instruction in `prompt`,
   * which is never NULL here; no prompt_tokens, no options. Looking changes nothing. The caller
   * sets struct_size. FRT_ERR_BAD_STATE before the first reset.  [object] */
  frt_status (*observe)(frt_environment environment, frt_observation* observation,
                        frt_error* error);
  /* Does one action, `action` (values of an action), in the unit of its port. A value beyond
   * action_low or action_high is brought to the limit, which is no error; one that is NaN or
   * infinite is FRT_ERR_INVALID_ARGUMENT, and nothing moves. An episode that is over may be stepped
   * on: hand-offs do. What a loop in real time drives should neither allocate nor wait here.
   * FRT_ERR_BAD_STATE before the first reset.  [object] */
  frt_status (*step)(frt_environment environment, const double* action,
                     frt_environment_result* result, frt_error* error);
  /* Asks for another task from now on, without a reset: what counts as success, and the
   * instruction. FRT_ERR_OUT_OF_RANGE, FRT_ERR_BAD_STATE as above. Optional: NULL where a task
   * begins with a reset only, so that nothing can be handed off.  [object] */
  frt_status (*set_task)(frt_environment environment, uint32_t task, frt_error* error);
  /* What an expert would do now: an operator who has taken over, or a reference policy. Fills
   * `action` (values of an action), all finite. Optional: NULL where there is none.  [object] */
  frt_status (*expert_action)(frt_environment environment, double* action, frt_error* error);
  /* SVG elements (UTF-8, well-formed, without an enclosing <svg>) that show the episode since
   * `reset` in the unit square, y downwards; FRT_ENVIRONMENT_MAX_DRAWING bytes at most. Drawings
   * stand side by side and move together: one that moves shows step i in frame i of `frames`, each
   * FRT_DRAWING_FRAME_S long, waits at its end, and begins again for ever. A host repeats an
   * episode to draw it. Optional: NULL where nothing is drawn, and where the environment is not
   * deterministic.  [object] */
  frt_status (*draw)(frt_environment environment, uint32_t frames, frt_sink sink, void* user,
                     frt_error* error);
} frt_environment_v1;
FRT_ASSERT_LAYOUT(frt_environment_v1, 80, draw, 72);

FRT_EXTERN_C_END

#endif /* FRT_ENVIRONMENT_H_ */
