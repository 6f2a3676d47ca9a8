/* SPDX-License-Identifier: Apache-2.0 */
/*
 * frt/exec.h - the exec contract: capture once, replay for ever.
 *
 *   Buffer    named memory in a space; the only state there is. Graphs are wired by sharing one.
 *   Graph     a table ShapeKey -> executable: exact keys, bounded, least recently used goes first.
 *   ShapeKey  an opaque 64-bit number; its fields belong to whoever packs it.
 *
 * Everything that may change at run time is a Buffer that a graph reads; so one executable serves
 * every value. This header fixes mechanism only. Who runs when, and for whom, is not its subject.
 *
 * A Plan, a DAG of graphs, is in draft: frt/draft/plan.h.
 *
 * The functions are members of one table, frt_exec_v1: plugins get it from the host under
 * FRT_EXT_EXEC, programs that link core from its exec_table(). frt/exec.hpp wraps it.
 *
 * Ownership: a handle returned by *_create, *_alloc, *_wrap or *_view belongs to the caller, who
 * gives it back with *_release. Releasing a context releases nothing else: release what was made
 * on it first. A view keeps its parent alive. A captured variant keeps the buffers of its copies
 * and fills alive. The caller keeps all other memory that a variant reads or writes, of an eager
 * variant all of it, until the variant is gone.
 */
#ifndef FRT_EXEC_H_
#define FRT_EXEC_H_

#include <frt/backend.h>
#include <frt/base.h>
#include <frt/kernels.h>

FRT_EXTERN_C_BEGIN

#define FRT_EXT_EXEC "frt.exec/1"

typedef struct frt_context_s* frt_context; /* one opened device and all that is made on it */
typedef struct frt_buffer_s* frt_buffer;
typedef struct frt_stream_s* frt_stream;
typedef struct frt_event_s* frt_event;
typedef struct frt_graph_s* frt_graph;
typedef struct frt_kernel_owner_s* frt_kernel_owner; /* the kernels of one kernels_register */

typedef uint64_t frt_shape_key;

/* ---- shape keys ------------------------------------------------------------------------ */

/* Packs four 16-bit fields. A convenience; core never looks inside a key.  [any] */
static inline frt_shape_key frt_key_pack(uint16_t kind, uint16_t a, uint16_t b, uint16_t c) {
  return ((uint64_t)kind << 48) | ((uint64_t)a << 32) | ((uint64_t)b << 16) | (uint64_t)c;
}

/* Field 0 (kind) to 3 (c) of a key made by frt_key_pack.  [any] */
static inline uint16_t frt_key_field(frt_shape_key key, uint32_t field) {
  return (uint16_t)(key >> (48u - 16u * (field & 3u)));
}

/* ---- recording ------------------------------------------------------------------------- */

/* What a record callback gets. Valid during the callback. */
typedef struct frt_recorder {
  uint32_t struct_size;
  uint32_t capturing; /* 0: eager, the work runs at once */
  frt_context context;
  frt_stream stream;                 /* copies and fills of this table go here */
  frt_backend_stream backend_stream; /* kernels go here */
} frt_recorder;
FRT_ASSERT_LAYOUT(frt_recorder, 32, backend_stream, 24);

/* Submits the work of `key`. Called once per capture, or once per replay in eager mode. No
 * waiting, no logging, no memory of the device is allocated inside, and no events: work of one
 * recording runs in order, and what others wait for is recorded after the replay. event_record,
 * stream_wait and graph_replay are FRT_ERR_BAD_STATE for every stream of the context, captured or
 * eager. Copies, fills and calls go to the recorder's streams alone: on another stream they are no
 * part of the recording. Returns FRT_OK or the error, with `error` filled.  [driver] */
typedef frt_status (*frt_record_fn)(void* user, const frt_recorder* recorder, frt_shape_key key,
                                    frt_error* error);

/* ---- information ----------------------------------------------------------------------- */

/* The caller sets struct_size. */
typedef struct frt_context_info {
  uint32_t struct_size;
  uint32_t eager;                /* 1: graphs run their recipe at each replay (capture = false) */
  const char* name;              /* the user's name of the device */
  const char* backend_id;        /* plugin id */
  const char* native_kind;       /* of frt_backend_v1 */
  const frt_device_info* device; /* as it was when it was opened; lives as long as the context */
  uint64_t memory_total;         /* of the device, bytes */
  uint64_t memory_free;          /* bytes, at the time of asking */
} frt_context_info;
FRT_ASSERT_LAYOUT(frt_context_info, 56, memory_free, 48);

/* Counters since the context was made. The caller sets struct_size. */
typedef struct frt_counters {
  uint32_t struct_size;
  uint32_t reserved;
  uint64_t captures;             /* all */
  uint64_t captures_since_ready; /* after context_ready(); must stay 0 while work is served */
  uint64_t replays;
  uint64_t evictions;
  uint64_t buffer_bytes[8]; /* allocated now, by space; 0 for one that is not known */
} frt_counters;
FRT_ASSERT_LAYOUT(frt_counters, 104, buffer_bytes, 40);

/* The caller sets struct_size. Strings and the pointer live as long as the buffer. */
typedef struct frt_buffer_info {
  uint32_t struct_size;
  frt_space space;
  const char* name;
  void* pointer; /* an address of `space`; the host may read and write host and shared spaces
                    directly when no work that touches the bytes is in flight */
  uint64_t bytes;
} frt_buffer_info;
FRT_ASSERT_LAYOUT(frt_buffer_info, 32, bytes, 24);

/* One range-to-range copy of a batch; frozen. */
typedef struct frt_copy {
  frt_buffer target;
  uint64_t target_offset; /* bytes */
  frt_buffer source;
  uint64_t source_offset; /* bytes */
  uint64_t bytes;
} frt_copy;
FRT_ASSERT_LAYOUT(frt_copy, 40, bytes, 32);

/* ---- the table ------------------------------------------------------------------------- */

typedef struct frt_exec_v1 {
  uint32_t struct_size;
  uint32_t reserved;

  /* ---- contexts (core opens and closes them) ---- */
  frt_status (*context_info)(frt_context context, frt_context_info* info);     /* [any] */
  frt_status (*context_counters)(frt_context context, frt_counters* counters); /* [any] */
  /* Loading is over: captures are counted from here on.  [setup] */
  void (*context_ready)(frt_context context);
  frt_status (*context_sync)(frt_context context); /* waits for every stream  [driver] */
  /* The text behind the last code that a call of this context without an frt_error returned: what
   * failed, where, and the device API's own words if the backend has them
   * (frt_backend_v1::last_error). Writes `error` whenever it is not NULL. A call with a NULL handle
   * leaves the text as it is.  [driver] */
  void (*context_last_error)(frt_context context, frt_error* error);

  /* ---- buffers ---- */
  /* New memory, uninitialised, aligned to at least 256 bytes. `name` is copied. bytes > 0.
   * FRT_ERR_UNSUPPORTED: FRT_SPACE_SHARED on a device without FRT_DEVICE_SHARED_MEMORY; so is
   * buffer_wrap.  [setup] */
  frt_status (*buffer_alloc)(frt_context context, frt_space space, uint64_t bytes, const char* name,
                             frt_buffer* buffer, frt_error* error);
  /* Memory of somebody else, who keeps it alive until the buffer is gone; `done` (may be NULL)
   * is called with `user` then.  [setup] */
  frt_status (*buffer_wrap)(frt_context context, frt_space space, void* pointer, uint64_t bytes,
                            const char* name, void (*done)(void* user), void* user,
                            frt_buffer* buffer, frt_error* error);
  /* A part of `parent`, sharing its memory and keeping it alive.  [setup] */
  frt_status (*buffer_view)(frt_buffer parent, uint64_t offset, uint64_t bytes, const char* name,
                            frt_buffer* buffer, frt_error* error);
  void (*buffer_retain)(frt_buffer buffer); /* one more release will be needed  [any] */
  /* The last release waits for work in flight that was submitted through this table, then
   * frees. NULL is ignored.  [setup] */
  void (*buffer_release)(frt_buffer buffer);
  frt_status (*buffer_info)(frt_buffer buffer, frt_buffer_info* info); /* [any] */
  /* Any space to any space, in stream order; ranges are checked without overflow. Target and source
   * that overlap, by address, are FRT_ERR_INVALID_ARGUMENT. The backend may allocate for a copy or
   * fill that touches FRT_SPACE_HOST; the hot path copies FRT_SPACE_HOST_PINNED.  [hot] */
  frt_status (*buffer_copy)(frt_buffer target, uint64_t target_offset, frt_buffer source,
                            uint64_t source_offset, uint64_t bytes, frt_stream stream);
  /* All or nothing: `count` copies as ONE submission. At most FRT_COPY_BATCH_MAX. No target
   * overlaps another target or a source of the batch, by address: FRT_ERR_INVALID_ARGUMENT. Sources
   * may overlap. FRT_SPACE_HOST: as buffer_copy.  [hot] */
  frt_status (*buffer_copy_batch)(const frt_copy* copies, uint64_t count, frt_stream stream);
  /* FRT_SPACE_HOST: as buffer_copy.  [hot] */
  frt_status (*buffer_fill)(frt_buffer buffer, uint64_t offset, uint64_t bytes, uint8_t value,
                            frt_stream stream);

  /* ---- streams ---- */
  /* `priority`: 0 normal, negative more urgent.  [setup] */
  frt_status (*stream_create)(frt_context context, int32_t priority, const char* name,
                              frt_stream* stream, frt_error* error);
  /* A native stream of somebody else; NULL: the device API's default stream.  [setup] */
  frt_status (*stream_wrap)(frt_context context, void* native, const char* name, frt_stream* stream,
                            frt_error* error);
  void (*stream_release)(frt_stream stream);    /* waits for its work  [setup] */
  frt_status (*stream_sync)(frt_stream stream); /* [driver] */
  /* Later work waits. FRT_ERR_BAD_STATE inside a record callback.  [hot] */
  frt_status (*stream_wait)(frt_stream stream, frt_event event);
  void* (*stream_native)(frt_stream stream);               /* [any] */
  frt_backend_stream (*stream_backend)(frt_stream stream); /* for eager kernel calls  [any] */

  /* ---- events ---- */
  frt_status (*event_create)(frt_context context, uint32_t flags, frt_event* event,
                             frt_error* error); /* [driver] */
  void (*event_release)(frt_event event);       /* [driver] */
  /* FRT_ERR_BAD_STATE inside a record callback.  [hot] */
  frt_status (*event_record)(frt_event event, frt_stream stream);
  frt_status (*event_query)(frt_event event); /* FRT_OK or FRT_ERR_NOT_READY  [hot] */
  frt_status (*event_sync)(frt_event event);  /* [driver] */
  frt_status (*event_elapsed)(frt_event start, frt_event end, double* ms); /* [driver] */

  /* ---- graphs ---- */
  /* `capacity`: the most variants kept, > 0.  [setup] */
  frt_status (*graph_create)(frt_context context, const char* name, uint32_t capacity,
                             frt_graph* graph, frt_error* error);
  void (*graph_release)(frt_graph graph); /* waits for replays in flight  [setup] */
  /* Records `key` through the callback and keeps the executable; replaces one that is there. A
   * full table evicts the least recently used variant, after its last replay. In an eager
   * context it keeps (record, user) and replay calls them: `user` must outlive the variant. A
   * callback that fails or throws leaves the stream usable and the table as it was.  [setup] */
  frt_status (*graph_capture)(frt_graph graph, frt_shape_key key, frt_record_fn record, void* user,
                              frt_error* error);
  /* Submits the variant, or returns FRT_ERR_NO_VARIANT.  [hot]; in an eager context [driver] */
  frt_status (*graph_replay)(frt_graph graph, frt_shape_key key, frt_stream stream);
  uint32_t (*graph_has_variant)(frt_graph graph, frt_shape_key key); /* [hot] */
  frt_status (*graph_evict)(frt_graph graph, frt_shape_key key);     /* waits  [setup] */
  uint32_t (*graph_variant_count)(frt_graph graph);                  /* [any] */
  /* Copies at most `capacity` keys, most recently used first; returns how many.  [driver] */
  uint32_t (*graph_keys)(frt_graph graph, frt_shape_key* keys, uint32_t capacity);

  /* ---- kernels ---- */
  /* Finds kernels[i] for names[i]: among the kernels of `owner` (NULL: none), then among the
   * backend's. A leading '?' marks an optional name: its launch is NULL if missing. Required names
   * that are missing for these types or weight formats are reported all at once:
   * FRT_ERR_NOT_FOUND.  [setup] */
  frt_status (*kernels_resolve)(frt_context context, frt_kernel_owner owner,
                                const char* const* names, uint64_t count, frt_dtype_set inputs,
                                frt_dtype_set outputs, const frt_weight_format* weights,
                                uint32_t weight_count, frt_kernel* kernels, frt_error* error);
  /* Keeps `count` kernels of the caller's own, all or none, `stride` bytes apart. Only who passes
   * `owner` to kernels_resolve finds them. Names that begin with "frt." belong to backends:
   * FRT_ERR_INVALID_ARGUMENT. FRT_ERR_EXISTS if a name comes twice for the same types.  [setup] */
  frt_status (*kernels_register)(frt_context context, const frt_kernel_desc* kernels,
                                 uint64_t count, uint32_t stride, frt_kernel_owner* owner,
                                 frt_error* error);
  /* Forgets them. Variants that recorded them stay good, unless their launches refer to memory
   * that goes with the owner. NULL is ignored.  [setup] */
  void (*kernels_release)(frt_kernel_owner owner);

  /* ---- what a launch submits to its stream ---- */
  /* Calls `call(user, error)` in stream order, on a thread of the backend: once in an eager stream,
   * at every replay in a capturing one. After an error of it, whatever the code, the next sync of
   * the stream is FRT_ERR_CALLBACK, with its words. Then `release(user)` (NULL: nothing to release)
   * is called once on the driver's thread, when no further call can come: after the variant is
   * gone, or, for an eager stream, during a later call of this function or at the end of the
   * context. Neither may call this table, nor throw. After an error of this function `user` is
   * still the caller's, and `release` is not called.  [driver] */
  frt_status (*stream_call)(frt_context context, frt_backend_stream stream, frt_host_function call,
                            void* user, void (*release)(void* user), frt_error* error);
  /* The native stream behind the one that a launch got, of the context's native_kind. Where the
   * API has a current device, it is current for this thread afterwards. NULL where there is none
   * (the CPU), and where it is the API's default stream.  [any] */
  void* (*backend_stream_native)(frt_context context, frt_backend_stream stream);

  /* ---- two contexts ---- */
  /* Copies between buffers of two contexts, of one backend or of two; of one context, it is
   * buffer_copy. Each stream is of its buffer's context. In the order of both streams: the copy
   * waits for what they hold, and their later work waits for the copy. Treat it as asynchronous:
   * sync a stream before the host looks. Between devices that reach each other (copy_peer of the
   * backend) it returns before the work is done; else it waits, and copies through at most 8 MiB
   * of pinned memory, which a context keeps until it is closed.
   *
   * Checks are those of buffer_copy. FRT_ERR_BAD_STATE inside a record callback;
   * FRT_ERR_OUT_OF_MEMORY: no room for the pinned memory. After an error of a device the target's
   * range is undefined. The thread drives both contexts.  [driver] */
  frt_status (*buffer_copy_between)(frt_buffer target, uint64_t target_offset,
                                    frt_stream target_stream, frt_buffer source,
                                    uint64_t source_offset, frt_stream source_stream,
                                    uint64_t bytes, frt_error* error);
} frt_exec_v1;
FRT_ASSERT_LAYOUT(frt_exec_v1, 336, buffer_copy_between, 328);

/* The most copies of one buffer_copy_batch. */
#define FRT_COPY_BATCH_MAX 4096u

FRT_EXTERN_C_END

#endif /* FRT_EXEC_H_ */
