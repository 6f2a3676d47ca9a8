/* SPDX-License-Identifier: Apache-2.0 */
/*
 * frt/draft/plan.h - Plan: a DAG of (Graph, ShapeKey, Stream) with data dependencies only, executed
 * as one launch where the backend can compose executables.
 *
 * A draft (VERSIONING.md): no host of this project uses it yet, so it may change. The number at
 * the end of the id grows with each change.
 */
#ifndef FRT_DRAFT_PLAN_H_
#define FRT_DRAFT_PLAN_H_

#include <frt/exec.h>

FRT_EXTERN_C_BEGIN

#define FRT_EXT_PLAN "frt.plan/draft1"

typedef struct frt_plan_s* frt_plan;

/* Flags of compile. */
#define FRT_PLAN_NO_FUSE 1u /* keep separate launches ordered by events */

/* Frozen for its id. */
typedef struct frt_plan_draft {
  frt_status (*create)(frt_context context, const char* name, frt_plan* plan,
                       frt_error* error); /* [setup] */
  void (*release)(frt_plan plan);         /* waits for its work  [setup] */
  /* Adds a node; `node` becomes its index.  [setup] */
  frt_status (*add)(frt_plan plan, frt_graph graph, frt_shape_key key, frt_stream stream,
                    uint32_t* node, frt_error* error);
  /* `node` starts after `dependency` is done.  [setup] */
  frt_status (*after)(frt_plan plan, uint32_t node, uint32_t dependency, frt_error* error);
  /* Checks (FRT_ERR_CYCLE, unknown nodes, missing variants), makes every event, and fuses the DAG
   * into one executable where the backend can. Again after a change of graphs.  [setup] */
  frt_status (*compile)(frt_plan plan, uint32_t flags, frt_error* error);
  uint32_t (*fused)(frt_plan plan); /* 1: execute is one launch  [any] */
  /* Runs the DAG after what `stream` holds; later work of `stream` runs after all of it.
   * FRT_ERR_BAD_STATE before compile, or when a graph lost a variant it uses.  [hot] */
  frt_status (*execute)(frt_plan plan, frt_stream stream);
} frt_plan_draft;
FRT_ASSERT_LAYOUT(frt_plan_draft, 56, execute, 48);

FRT_EXTERN_C_END

#endif /* FRT_DRAFT_PLAN_H_ */
