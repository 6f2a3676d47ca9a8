/* SPDX-License-Identifier: Apache-2.0 */
/*
 * frt/draft/graph.h - bindings of a graph, by which hosts wire graphs without knowing their
 * models; and foreign executables as variants.
 *
 * A draft (VERSIONING.md): no host of this project uses it yet, so it may change. The number at
 * the end of the id grows with each change.
 */
#ifndef FRT_DRAFT_GRAPH_H_
#define FRT_DRAFT_GRAPH_H_

#include <frt/exec.h>

FRT_EXTERN_C_BEGIN

#define FRT_EXT_GRAPH "frt.graph/draft2"

/* Flags of declare. */
#define FRT_BINDING_OPTIONAL 0u
#define FRT_BINDING_REQUIRED 1u /* while it has no buffer, replays are FRT_ERR_UNBOUND */

/* Frozen for its id. */
typedef struct frt_graph_draft {
  /* Declares a binding, a named place for a buffer, before the first capture.  [setup] */
  frt_status (*declare)(frt_graph graph, const char* binding, uint32_t flags, frt_error* error);
  /* Binds a buffer to a declared binding. Executables hold addresses, so binding another buffer
   * while variants exist is FRT_ERR_BAD_STATE: evict them first.  [setup] */
  frt_status (*bind)(frt_graph graph, const char* binding, frt_buffer buffer, frt_error* error);
  frt_status (*bound)(frt_graph graph, const char* binding, frt_buffer* buffer); /* [setup] */
  /* Keeps a foreign native executable under `key`. owned != 0: destroyed with it.  [setup] */
  frt_status (*adopt)(frt_graph graph, frt_shape_key key, void* native, uint32_t owned,
                      frt_error* error);
} frt_graph_draft;
FRT_ASSERT_LAYOUT(frt_graph_draft, 32, adopt, 24);

FRT_EXTERN_C_END

#endif /* FRT_DRAFT_GRAPH_H_ */
