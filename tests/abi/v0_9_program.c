/* SPDX-License-Identifier: Apache-2.0 */
/* A program in C, built with the frozen headers of 0.9, that uses every noun of the exec table. */
#include <frt/exec.h>
#include <string.h>

#include "v0_9.h"

#define EXPECT(condition)                \
  do {                                   \
    if (!(condition)) return #condition; \
  } while (0)

typedef struct recipe {
  const frt_exec_v1* exec;
  frt_buffer from, to;
  uint8_t value;
} recipe;

/* key 1: fill `from`; key 2: copy `from` to `to`. */
static frt_status record(void* user, const frt_recorder* recorder, frt_shape_key key,
                         frt_error* error) {
  const recipe* r = user;
  (void)error;
  if (key == 1) return r->exec->buffer_fill(r->from, 0, 16, r->value, recorder->stream);
  return r->exec->buffer_copy(r->to, 0, r->from, 0, 16, recorder->stream);
}

const char* v0_9_program(const void* exec_table, void* context_handle) {
  const frt_exec_v1* exec = exec_table;
  frt_context context = context_handle;
  frt_error error;
  EXPECT(FRT_HAS(exec, frt_exec_v1, buffer_copy_between));

  frt_context_info info;
  memset(&info, 0, sizeof(info));
  info.struct_size = sizeof(info);
  EXPECT(exec->context_info(context, &info) == FRT_OK);
  EXPECT(strcmp(info.device->name, "frozen 0.9") == 0);

  frt_stream stream, side;
  frt_event event;
  frt_buffer from, to, view;
  frt_graph graph;
  EXPECT(exec->stream_create(context, 0, "main", &stream, &error) == FRT_OK);
  EXPECT(exec->stream_create(context, -1, "side", &side, &error) == FRT_OK);
  EXPECT(exec->event_create(context, 0, &event, &error) == FRT_OK);
  EXPECT(exec->buffer_alloc(context, FRT_SPACE_DEVICE, 16, "from", &from, &error) == FRT_OK);
  EXPECT(exec->buffer_alloc(context, FRT_SPACE_HOST, 32, "to", &to, &error) == FRT_OK);
  EXPECT(exec->buffer_view(to, 0, 16, "view", &view, &error) == FRT_OK);
  EXPECT(exec->graph_create(context, "graph", 2, &graph, &error) == FRT_OK);

  recipe r = {exec, from, view, 7};
  EXPECT(exec->graph_capture(graph, 1, record, &r, &error) == FRT_OK);
  EXPECT(exec->graph_capture(graph, 2, record, &r, &error) == FRT_OK);
  EXPECT(exec->graph_replay(graph, 3, stream) == FRT_ERR_NO_VARIANT);
  exec->context_last_error(context, &error);
  EXPECT(error.code == FRT_ERR_NO_VARIANT && error.message[0]);
  exec->context_ready(context);

  for (uint32_t round = 0; round < 2; ++round) {
    EXPECT(exec->buffer_fill(to, 0, 32, 1, stream) == FRT_OK);
    EXPECT(exec->graph_replay(graph, 1, stream) == FRT_OK);
    EXPECT(exec->event_record(event, stream) == FRT_OK);
    EXPECT(exec->stream_wait(side, event) == FRT_OK);
    EXPECT(exec->graph_replay(graph, 2, side) == FRT_OK);
    EXPECT(exec->stream_sync(side) == FRT_OK);
    frt_buffer_info memory;
    memory.struct_size = sizeof(memory);
    EXPECT(exec->buffer_info(to, &memory) == FRT_OK);
    const uint8_t* bytes = memory.pointer;
    EXPECT(bytes[0] == 7 && bytes[15] == 7 && bytes[16] == 1 && memory.bytes == 32);
  }

  EXPECT(exec->buffer_copy_between(to, 16, side, from, 0, stream, 16, &error) == FRT_OK);
  EXPECT(exec->stream_sync(side) == FRT_OK);
  frt_buffer_info memory;
  memory.struct_size = sizeof(memory);
  EXPECT(exec->buffer_info(to, &memory) == FRT_OK);
  EXPECT(((const uint8_t*)memory.pointer)[31] == 7);

  frt_counters counters;
  counters.struct_size = sizeof(counters);
  EXPECT(exec->context_counters(context, &counters) == FRT_OK);
  EXPECT(counters.captures == 2 && counters.captures_since_ready == 0);
  EXPECT(counters.replays == 4);

  exec->graph_release(graph);
  exec->buffer_release(view);
  exec->buffer_release(to);
  exec->buffer_release(from);
  exec->event_release(event);
  exec->stream_release(side);
  exec->stream_release(stream);
  return NULL;
}
