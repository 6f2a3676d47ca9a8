/* SPDX-License-Identifier: Apache-2.0 */
/* A backend in C, built with the frozen headers of 0.9. Work is done when it is submitted; a
 * capturing stream keeps a list of copies and fills instead, which is the executable. */
#include <frt/backend.h>
#include <stdlib.h>
#include <string.h>

#include "v0_9.h"

#define NODE_CAPACITY 64

typedef struct node {
  frt_backend_copy copy; /* source NULL: fill with `value` */
  uint8_t value;
} node;

struct frt_backend_exec_s {
  node nodes[NODE_CAPACITY];
  uint64_t count;
};

struct frt_backend_stream_s {
  int capturing;
  struct frt_backend_exec_s recorded;
};

struct frt_backend_event_s {
  int recorded;
};

int v0_9_launched;
static struct frt_backend_device_s { int unused; } the_device;

static void run(const node* n) {
  if (n->copy.source) {
    memcpy(n->copy.target, n->copy.source, n->copy.bytes);
  } else {
    memset(n->copy.target, n->value, n->copy.bytes);
  }
}

static frt_status submit(frt_backend_stream stream, node n) {
  if (!stream->capturing) {
    run(&n);
    return FRT_OK;
  }
  if (stream->recorded.count == NODE_CAPACITY) return FRT_ERR_OUT_OF_MEMORY;
  stream->recorded.nodes[stream->recorded.count++] = n;
  return FRT_OK;
}

static frt_status device_count(frt_plugin plugin, uint32_t* count, frt_error* why_none) {
  (void)plugin, (void)why_none;
  *count = 1;
  return FRT_OK;
}
static frt_status device_info(frt_plugin plugin, uint32_t ordinal, frt_device_info* info,
                              frt_error* error) {
  (void)plugin, (void)error;
  frt_device_info known;
  memset(&known, 0, sizeof(known));
  known.ordinal = ordinal;
  strcpy(known.name, "frozen 0.9");
  known.dlpack_type = 1;
  return frt_fill(info, &known, sizeof(known));
}
static frt_status device_open(frt_plugin plugin, uint32_t ordinal, const frt_config* config,
                              frt_backend_device* device, frt_error* error) {
  (void)plugin, (void)ordinal, (void)config, (void)error;
  *device = &the_device;
  return FRT_OK;
}
static void device_close(frt_backend_device device) {
  (void)device;
}
static frt_status device_sync(frt_backend_device device) {
  (void)device;
  return FRT_OK;
}
static frt_status device_memory(frt_backend_device device, uint64_t* free_bytes,
                                uint64_t* total_bytes) {
  (void)device;
  *free_bytes = *total_bytes = 1u << 30;
  return FRT_OK;
}
static frt_status memory_alloc(frt_backend_device device, frt_space space, uint64_t bytes,
                               void** pointer, frt_error* error) {
  (void)device, (void)space, (void)error;
  *pointer = aligned_alloc(256, (bytes + 255) / 256 * 256);
  return *pointer ? FRT_OK : FRT_ERR_OUT_OF_MEMORY;
}
static void memory_free(frt_backend_device device, frt_space space, void* pointer) {
  (void)device, (void)space;
  free(pointer);
}
static frt_status copy(frt_backend_stream stream, const frt_backend_copy* copies, uint64_t count) {
  for (uint64_t i = 0; i < count; ++i) {
    const node n = {copies[i], 0};
    const frt_status status = submit(stream, n);
    if (status != FRT_OK) return status;
  }
  return FRT_OK;
}
static frt_status fill(frt_backend_stream stream, void* pointer, frt_space space, uint64_t bytes,
                       uint8_t value) {
  const node n = {{pointer, NULL, bytes, space, space}, value};
  return submit(stream, n);
}

static frt_status stream_create(frt_backend_device device, int32_t priority,
                                frt_backend_stream* stream, frt_error* error) {
  (void)device, (void)priority, (void)error;
  *stream = calloc(1, sizeof(**stream));
  return *stream ? FRT_OK : FRT_ERR_OUT_OF_MEMORY;
}
static frt_status stream_wrap(frt_backend_device device, void* native, frt_backend_stream* stream,
                              frt_error* error) {
  (void)device, (void)native, (void)stream, (void)error;
  return FRT_ERR_UNSUPPORTED;
}
static void stream_destroy(frt_backend_stream stream) {
  free(stream);
}
static frt_status stream_sync(frt_backend_stream stream) {
  (void)stream;
  return FRT_OK;
}
static void* stream_native(frt_backend_stream stream) {
  (void)stream;
  return NULL;
}
static frt_status stream_call(frt_backend_stream stream, frt_host_function function, void* user) {
  frt_error error = {0, ""};
  (void)stream;
  (void)function(user, &error);
  return FRT_OK;
}

static frt_status event_create(frt_backend_device device, uint32_t flags, frt_backend_event* event,
                               frt_error* error) {
  (void)device, (void)flags, (void)error;
  *event = calloc(1, sizeof(**event));
  return *event ? FRT_OK : FRT_ERR_OUT_OF_MEMORY;
}
static void event_destroy(frt_backend_event event) {
  free(event);
}
static frt_status event_record(frt_backend_event event, frt_backend_stream stream) {
  (void)stream;
  event->recorded = 1;
  return FRT_OK;
}
static frt_status event_wait(frt_backend_event event, frt_backend_stream stream) {
  (void)event, (void)stream;
  return FRT_OK;
}
static frt_status event_query(frt_backend_event event) {
  (void)event;
  return FRT_OK;
}
static frt_status event_sync(frt_backend_event event) {
  (void)event;
  return FRT_OK;
}
static frt_status event_elapsed(frt_backend_event start, frt_backend_event end, double* ms) {
  (void)start, (void)end;
  *ms = 0;
  return FRT_OK;
}

static frt_status capture_begin(frt_backend_stream stream, frt_error* error) {
  (void)error;
  stream->capturing = 1;
  stream->recorded.count = 0;
  return FRT_OK;
}
static frt_status capture_end(frt_backend_stream stream, frt_backend_exec* exec, frt_error* error) {
  (void)error;
  stream->capturing = 0;
  *exec = malloc(sizeof(**exec));
  if (!*exec) return FRT_ERR_OUT_OF_MEMORY;
  **exec = stream->recorded;
  return FRT_OK;
}
static void capture_abort(frt_backend_stream stream) {
  stream->capturing = 0;
}
static frt_status exec_adopt(frt_backend_device device, void* native, uint32_t owned,
                             frt_backend_exec* exec, frt_error* error) {
  (void)device, (void)native, (void)owned, (void)exec, (void)error;
  return FRT_ERR_UNSUPPORTED;
}
/* Takes only nodes that are given in a possible order. */
static frt_status exec_compose(frt_backend_device device, const frt_backend_node* nodes,
                               uint32_t count, frt_backend_exec* exec, frt_error* error) {
  (void)device, (void)error;
  frt_backend_exec made = calloc(1, sizeof(*made));
  if (!made) return FRT_ERR_OUT_OF_MEMORY;
  for (uint32_t i = 0; i < count; ++i) {
    for (uint32_t j = 0; j < nodes[i].after_count; ++j) {
      if (nodes[i].after[j] < i) continue;
      free(made);
      return FRT_ERR_UNSUPPORTED;
    }
    const struct frt_backend_exec_s* part = nodes[i].exec;
    for (uint64_t k = 0; k < part->count; ++k) made->nodes[made->count++] = part->nodes[k];
  }
  *exec = made;
  return FRT_OK;
}
static void exec_destroy(frt_backend_exec exec) {
  free(exec);
}
static frt_status exec_launch(frt_backend_exec exec, frt_backend_stream stream) {
  (void)stream;
  ++v0_9_launched;
  for (uint64_t i = 0; i < exec->count; ++i) run(&exec->nodes[i]);
  return FRT_OK;
}
static uint64_t exec_node_count(frt_backend_exec exec) {
  return exec->count;
}

const void* v0_9_backend(void) {
  static const frt_backend_v1 table = {
      sizeof(frt_backend_v1),
      0,
      "frozen",
      device_count,
      device_info,
      device_open,
      device_close,
      device_sync,
      device_memory,
      memory_alloc,
      memory_free,
      copy,
      fill,
      stream_create,
      stream_wrap,
      stream_destroy,
      stream_sync,
      stream_native,
      stream_call,
      event_create,
      event_destroy,
      event_record,
      event_wait,
      event_query,
      event_sync,
      event_elapsed,
      capture_begin,
      capture_end,
      capture_abort,
      exec_adopt,
      exec_compose,
      exec_destroy,
      exec_launch,
      exec_node_count,
      NULL,
      NULL,
  };
  return &table;
}
