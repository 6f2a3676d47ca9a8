/* SPDX-License-Identifier: Apache-2.0 */
/*
 * frt/model.h - what a model plugin provides: models made from a checkpoint on a context.
 *
 * `create` loads the weights, allocates the state, captures every variant, and is then done for
 * ever: nothing is captured while the model serves. What a model can do beyond running its graphs
 * is asked from it by extension id: a role (frt/role/), a tokenizer, a chat format, capsules, a
 * self-test. A host drives a model through its roles and ports alone.
 *
 * Every extension table of a model object takes the frt_model as its first argument.
 */
#ifndef FRT_MODEL_H_
#define FRT_MODEL_H_

#include <frt/base.h>
#include <frt/config.h>
#include <frt/exec.h>
#include <frt/plugin.h>

FRT_EXTERN_C_BEGIN

#define FRT_EXT_MODEL "frt.model/1"

typedef struct frt_model_s* frt_model;

/* What `create` gets. Strings and tables are borrowed for the call, except `context`, which
 * outlives the model. */
typedef struct frt_model_params {
  uint32_t struct_size;
  uint32_t flags;           /* FRT_MODEL_* */
  frt_context context;      /* where the model will live */
  const char* name;         /* the user's name of the model */
  const char* checkpoint;   /* absolute path, or "synthetic:<preset>?key=value&..." */
  const frt_config* config; /* the options of the plugin's schema */
} frt_model_params;
FRT_ASSERT_LAYOUT(frt_model_params, 40, config, 32);

/* Only what needs no weights and no captured graph: tokenizer, chat format, configuration. For
 * tools that count tokens or render prompts; `context` may be NULL. Hosts ask such a model for
 * `info`, tokenizer and chat alone: no role, port, graph or capsule, so these extensions may be
 * there or not. A model that ignores the flag and loads everything is right, but slow. */
#define FRT_MODEL_WITHOUT_WEIGHTS 1u

#define FRT_PORT_INPUT 1u  /* the host writes it before a replay */
#define FRT_PORT_OUTPUT 2u /* the host reads it after a replay */

#define FRT_PORT_MAX_RANK 8u

/* A named buffer the host may touch; frozen. Lives as long as the model. */
typedef struct frt_port {
  const char* name; /* e.g. "tokens" */
  const char* doc;  /* one line: meaning, unit */
  frt_buffer buffer;
  uint32_t direction; /* FRT_PORT_INPUT | FRT_PORT_OUTPUT */
  frt_dtype dtype;
  uint32_t rank;
  uint32_t reserved;
  int64_t shape[FRT_PORT_MAX_RANK]; /* elements, row-major; the first `rank` count */
} frt_port;
FRT_ASSERT_LAYOUT(frt_port, 104, shape, 40);

/* One graph of a model; frozen. */
typedef struct frt_model_graph {
  const char* name; /* e.g. "decode" */
  const char* doc;
  frt_graph graph;
} frt_model_graph;
FRT_ASSERT_LAYOUT(frt_model_graph, 24, graph, 16);

/* For start-up summaries and benchmarks. The caller sets struct_size. Strings live as long as the
 * model. */
typedef struct frt_model_info {
  uint32_t struct_size;
  uint32_t reserved;
  const char* architecture; /* e.g. "dense 24 layers, hidden 1024" : one line for people */
  const char* formats;      /* weight formats found, with their share, one line */
  uint64_t parameters;      /* of the weights in use */
  uint64_t weight_bytes;    /* in device memory */
  uint64_t state_bytes;     /* the arena */
  uint64_t scratch_bytes;   /* activations and ports */
} frt_model_info;
FRT_ASSERT_LAYOUT(frt_model_info, 56, scratch_bytes, 48);

/* The plugin's table. */
typedef struct frt_model_v1 {
  uint32_t struct_size;
  uint32_t reserved;
  /* See above. Reports progress ("weights" in bytes, "capture" in variants) through the host's
   * frt.progress/1 and stops when told to. On failure nothing is left behind.  [setup] */
  frt_status (*create)(frt_plugin plugin, const frt_model_params* params, frt_model* model,
                       frt_error* error);
  void (*destroy)(frt_model model);                          /* waits for work in flight  [setup] */
  frt_status (*info)(frt_model model, frt_model_info* info); /* [any] */
  /* All ports; the array lives as long as the model.  [any] */
  frt_status (*ports)(frt_model model, const frt_port** ports, uint64_t* count);
  /* All graphs; the array lives as long as the model.  [any] */
  frt_status (*graphs)(frt_model model, const frt_model_graph** graphs, uint64_t* count);
  /* The model's table called `id`, or NULL. Same answer every time.  [any] */
  const void* (*extension)(frt_model model, const char* id);
} frt_model_v1;
FRT_ASSERT_LAYOUT(frt_model_v1, 56, extension, 48);

FRT_EXTERN_C_END

#endif /* FRT_MODEL_H_ */
