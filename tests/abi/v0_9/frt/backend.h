/* SPDX-License-Identifier: Apache-2.0 */
/*
 * frt/backend.h - what a backend plugin provides: devices, memory, streams, events, and the
 * record/launch of executables. Nothing here names a device API; native handles are `void*` with
 * a `native_kind`.
 *
 * Core builds Buffer, Graph and Plan on these primitives, and is the only caller, apart from
 * kernels, which get a frt_backend_stream to submit to (frt/kernels.h).
 *
 * Streams: work submitted to one stream runs in order; different streams are independent until an
 * event orders them. A submission returns before the work is done.
 *
 * Capture: between capture_begin and capture_end a stream records what is submitted to it instead
 * of running it; the record becomes the executable. Other streams go on. The caller neither waits,
 * allocates nor logs meanwhile.
 *   A capturing stream takes kernels, copies, fills and calls.
 *   It refuses, with FRT_ERR_BAD_STATE, launches of executables, syncs, records of events and waits
 *   for them; capture_end then fails with that code, too.
 *
 * Errors of the device: a call that fails returns FRT_ERR_DEVICE; when the device is unusable from
 * then on, FRT_ERR_DEVICE_LOST, also from every later call on that device. Never abort. A call
 * without an frt_error leaves the device API's own words for `last_error`.
 */
#ifndef FRT_BACKEND_H_
#define FRT_BACKEND_H_

#include <frt/base.h>
#include <frt/config.h>
#include <frt/plugin.h>

FRT_EXTERN_C_BEGIN

#define FRT_EXT_BACKEND "frt.backend/1"

typedef struct frt_backend_device_s* frt_backend_device; /* one opened device */
typedef struct frt_backend_stream_s* frt_backend_stream;
typedef struct frt_backend_event_s* frt_backend_event;
typedef struct frt_backend_exec_s* frt_backend_exec; /* a recorded, launchable sequence */

/* Flags of a device. */
#define FRT_DEVICE_PROCESSOR 1u /* the host's processor: never taken unless asked for by its id */
/* The device has FRT_SPACE_SHARED, and works there as fast as in its own memory: models keep their
 * weights and state in it. */
#define FRT_DEVICE_SHARED_MEMORY 2u

/* One device the plugin can see, before it is opened. The caller sets struct_size. */
typedef struct frt_device_info {
  uint32_t struct_size;
  uint32_t ordinal;
  char name[128];         /* as people know it, e.g. the product name */
  char architecture[32];  /* matched against card targets, e.g. "sm_90", "x86-64-v4" */
  char driver[64];        /* driver and version; empty: none needed */
  char detail[192];       /* vector units, cores, clocks: one line for people */
  uint64_t memory_total;  /* bytes */
  uint64_t memory_free;   /* bytes, at the time of asking */
  uint32_t compute_units; /* cores or multiprocessors */
  uint32_t dlpack_type;   /* DLDeviceType of its device space */
  uint32_t flags;         /* FRT_DEVICE_* */
  uint32_t reserved;
  /* What of this device, its driver and the libraries that compute on it decides roundings beside
   * the architecture, e.g. "132 multiprocessors, cuBLASLt 13.1.0". Equal texts, builds and options
   * promise equal bits, so nothing that changes from boot to boot is in it. Empty: the architecture
   * alone decides. Core adds it to the builds of capsules (frt/capsule.h). */
  char numerics[192];
} frt_device_info;
FRT_ASSERT_LAYOUT(frt_device_info, 648, numerics, 456);

/* One copy of a batch; frozen. No target overlaps another target or a source of the batch, by
 * address; sources may overlap. */
typedef struct frt_backend_copy {
  void* target;
  const void* source;
  uint64_t bytes;
  frt_space target_space, source_space;
} frt_backend_copy;
FRT_ASSERT_LAYOUT(frt_backend_copy, 32, source_space, 28);

/* One node of a composition; frozen. */
typedef struct frt_backend_node {
  frt_backend_exec exec;
  const uint32_t* after; /* [after_count] indices of nodes that must be finished before */
  uint32_t after_count;
  uint32_t reserved;
} frt_backend_node;
FRT_ASSERT_LAYOUT(frt_backend_node, 24, reserved, 20);

/* A function of the host in the order of a stream, on a thread of the backend. It must not throw
 * nor call the backend. Returns FRT_OK; or an error, with the words in `error`, which is the
 * backend's and never NULL.  [any] */
typedef frt_status (*frt_host_function)(void* user, frt_error* error);

/* Flags of event_create. */
#define FRT_EVENT_TIMING 1u /* the event can be asked for elapsed time */

/* Core refuses a table that lacks a function which is not called optional here. */
typedef struct frt_backend_v1 {
  uint32_t struct_size;
  uint32_t reserved;
  const char* native_kind; /* what native handles are, e.g. the device API's name; "cpu": models
                              submit host functions */

  /* ---- devices ---- */
  /* How many devices this plugin can open now. A missing driver is not an error: FRT_OK with 0
   * devices, and the reason as the text of `why_none`, which is written on FRT_OK, too, unlike
   * other out parameters (frt/base.h). It may be NULL.  [setup] */
  frt_status (*device_count)(frt_plugin plugin, uint32_t* count, frt_error* why_none);
  /* What there is of device `ordinal`.  [setup] */
  frt_status (*device_info)(frt_plugin plugin, uint32_t ordinal, frt_device_info* info,
                            frt_error* error);
  /* `config` holds the plugin's per-device options.  [setup] */
  frt_status (*device_open)(frt_plugin plugin, uint32_t ordinal, const frt_config* config,
                            frt_backend_device* device, frt_error* error);
  void (*device_close)(frt_backend_device device);      /* everything made on it is gone  [setup] */
  frt_status (*device_sync)(frt_backend_device device); /* waits for all streams  [driver] */
  frt_status (*device_memory)(frt_backend_device device, uint64_t* free_bytes,
                              uint64_t* total_bytes); /* [any] */

  /* ---- memory ---- */
  /* Uninitialised memory, aligned to at least 256 bytes; bytes > 0. FRT_ERR_UNSUPPORTED for
   * FRT_SPACE_SHARED without FRT_DEVICE_SHARED_MEMORY. Work of the device may be in flight, and
   * goes on; the call may wait for it.  [driver] */
  frt_status (*memory_alloc)(frt_backend_device device, frt_space space, uint64_t bytes,
                             void** pointer, frt_error* error);
  /* No work in flight touches the memory; other work may be in flight.  [setup] */
  void (*memory_free)(frt_backend_device device, frt_space space, void* pointer);
  /* All `count` copies as one submission. `copies` is read before the call returns. The call may
   * allocate for a range in FRT_SPACE_HOST; the hot path copies pinned memory.  [hot] */
  frt_status (*copy)(frt_backend_stream stream, const frt_backend_copy* copies, uint64_t count);
  /* Sets every byte of [pointer, pointer + bytes) to `value`. FRT_SPACE_HOST: as copy.  [hot] */
  frt_status (*fill)(frt_backend_stream stream, void* pointer, frt_space space, uint64_t bytes,
                     uint8_t value);

  /* ---- streams ---- */
  /* `priority`: 0 normal, negative more urgent, positive less; clamped to what the device has.
   * [setup] */
  frt_status (*stream_create)(frt_backend_device device, int32_t priority,
                              frt_backend_stream* stream, frt_error* error);
  /* Wraps a native stream that somebody else owns; native == NULL is the device API's default
   * stream. FRT_ERR_UNSUPPORTED if the device has no native streams.  [setup] */
  frt_status (*stream_wrap)(frt_backend_device device, void* native, frt_backend_stream* stream,
                            frt_error* error);
  void (*stream_destroy)(frt_backend_stream stream);    /* idle: its work is done  [setup] */
  frt_status (*stream_sync)(frt_backend_stream stream); /* waits; reports late errors  [driver] */
  /* NULL if there is none. Where the API has a current device, makes this one current for the
   * thread: the caller may launch there.  [any] */
  void* (*stream_native)(frt_backend_stream stream);
  /* Calls `function(user, error)` in stream order. Recorded like everything else while capturing.
   * After an error of it, whatever the code, the next sync of the stream returns FRT_ERR_CALLBACK,
   * with its words.  [driver] */
  frt_status (*stream_call)(frt_backend_stream stream, frt_host_function function, void* user);

  /* ---- events ---- */
  frt_status (*event_create)(frt_backend_device device, uint32_t flags, frt_backend_event* event,
                             frt_error* error);                                   /* [driver] */
  void (*event_destroy)(frt_backend_event event);                                 /* [driver] */
  frt_status (*event_record)(frt_backend_event event, frt_backend_stream stream); /* [hot] */
  /* Later work of `stream` waits for the last record of `event`; never recorded: no wait.  [hot] */
  frt_status (*event_wait)(frt_backend_event event, frt_backend_stream stream);
  frt_status (*event_query)(frt_backend_event event); /* FRT_OK or FRT_ERR_NOT_READY  [hot] */
  frt_status (*event_sync)(frt_backend_event event);  /* [driver] */
  /* Milliseconds between two finished records of timing events.  [driver] */
  frt_status (*event_elapsed)(frt_backend_event start, frt_backend_event end, double* ms);

  /* ---- executables ---- */
  frt_status (*capture_begin)(frt_backend_stream stream, frt_error* error); /* [setup] */
  /* Ends recording and instantiates. On failure the stream is usable again.  [setup] */
  frt_status (*capture_end)(frt_backend_stream stream, frt_backend_exec* exec, frt_error* error);
  /* Drops what was recorded; the stream is usable again. Never fails.  [setup] */
  void (*capture_abort)(frt_backend_stream stream);
  /* Takes a foreign native executable. owned != 0: exec_destroy destroys it too.
   * FRT_ERR_UNSUPPORTED if there is no native form.  [setup] */
  frt_status (*exec_adopt)(frt_backend_device device, void* native, uint32_t owned,
                           frt_backend_exec* exec, frt_error* error);
  /* One executable that runs `nodes` respecting their order; the parts must outlive it. Optional
   * (NULL, or FRT_ERR_UNSUPPORTED): core then orders launches with events.  [setup] */
  frt_status (*exec_compose)(frt_backend_device device, const frt_backend_node* nodes,
                             uint32_t count, frt_backend_exec* exec, frt_error* error);
  void (*exec_destroy)(frt_backend_exec exec); /* idle: it is not in flight  [setup] */
  /* Submits the executable. The backend runs the launches of one executable, on whatever streams,
   * one after the other in the order they were submitted.  [hot] */
  frt_status (*exec_launch)(frt_backend_exec exec, frt_backend_stream stream);
  uint64_t (*exec_node_count)(frt_backend_exec exec); /* optional (NULL)  [any] */

  /* ---- two devices ---- */
  /* Copies device memory between two devices that this backend opened, or one that it opened twice.
   * In the order of both streams: the copy waits for what they hold, and their later work waits for
   * the copy. Neither records. Returns before the work is done; bytes > 0. Optional (NULL, or
   * FRT_ERR_UNSUPPORTED with nothing submitted): core then copies through host memory.  [driver] */
  frt_status (*copy_peer)(frt_backend_stream target_stream, void* target,
                          frt_backend_stream source_stream, const void* source, uint64_t bytes);

  /* ---- errors ---- */
  /* What the device API itself said of the last [hot] or [driver] call on `device` that failed with
   * a code alone, e.g. "an illegal memory access was encountered (cudaErrorIllegalAddress)".
   * Returns the code of that call and writes the words to `text`: zero-terminated UTF-8 of at most
   * `capacity` bytes, cut at a character; capacity > 0. `text` is written whatever the code is,
   * unlike other out parameters (frt/base.h). FRT_OK and an empty text: no call failed, or the
   * device API said nothing. The words are given once.
   *
   * They belong to the call that returned the code. An error of work submitted earlier is reported
   * by the call that meets it, with its words; copy_peer leaves them with either device. The caller
   * asks before its next call on the device and compares the codes: words of another code are not
   * those of its call. Never waits, allocates or fails. Optional (NULL): core reports the
   * code alone.  [driver] */
  frt_status (*last_error)(frt_backend_device device, char* text, uint64_t capacity);
} frt_backend_v1;
FRT_ASSERT_LAYOUT(frt_backend_v1, 280, last_error, 272);

FRT_EXTERN_C_END

#endif /* FRT_BACKEND_H_ */
