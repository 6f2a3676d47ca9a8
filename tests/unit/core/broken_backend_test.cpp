// SPDX-License-Identifier: Apache-2.0
// Backends that break the contract in one function: what core says, and that nothing is harmed.
#include <stdexcept>

#include "exec/objects.hpp"
#include "rig.hpp"

TEST_CASE("a backend that reports success but makes nothing is refused by call and id") {
  Rig rig;
  frt_backend_v1& backend = rig.handle->backend;
  const frt_backend_v1 whole = backend;
  const auto refuses = [&](const std::string& call, const char* what, auto&& body) {
    CAPTURE(call);
    const frt_error error = caught(body);
    backend = whole;
    CHECK(error.code == FRT_ERR_INTERNAL);
    INFO("message: ", error.message);
    CHECK(contains(error.message, std::string("backend 'test.mock': ") + what));
    CHECK(contains(error.message, call + " reported success but made nothing"));
  };
  backend.memory_alloc = [](frt_backend_device, frt_space, uint64_t, void**,
                            frt_error*) -> frt_status { return FRT_OK; };
  refuses("memory_alloc", "buffer 'b'", [&] { (void)rig.context.alloc(FRT_SPACE_DEVICE, 8, "b"); });
  CHECK(rig.counters().buffer_bytes[FRT_SPACE_DEVICE] == 0);
  backend.stream_create = [](frt_backend_device, int32_t, frt_backend_stream*,
                             frt_error*) -> frt_status { return FRT_OK; };
  refuses("stream_create", "stream 's'", [&] { (void)rig.context.create_stream("s"); });
  backend.stream_wrap = [](frt_backend_device, void*, frt_backend_stream*,
                           frt_error*) -> frt_status { return FRT_OK; };
  refuses("stream_wrap", "stream 'w'", [&] { (void)rig.context.wrap_stream(nullptr, "w"); });
  backend.event_create = [](frt_backend_device, uint32_t, frt_backend_event*,
                            frt_error*) -> frt_status { return FRT_OK; };
  refuses("event_create", "an event", [&] { (void)rig.context.create_event(); });

  frt::Graph graph = rig.context.create_graph("g", 2);
  static void (*abort_capture)(frt_backend_stream);
  abort_capture = whole.capture_abort;
  backend.capture_end = [](frt_backend_stream stream, frt_backend_exec*, frt_error*) -> frt_status {
    abort_capture(stream);
    return FRT_OK;
  };
  refuses("capture_end", "graph 'g'", [&] { graph.capture(1, rig.appending(1)); });
  backend.exec_adopt = [](frt_backend_device, void*, uint32_t, frt_backend_exec*,
                          frt_error*) -> frt_status { return FRT_OK; };
  refuses("exec_adopt", "graph 'g'", [&] { draft(graph).adopt(1, &rig, false); });
  CHECK(graph.variant_count() == 0);

  const frt::Stream stream = rig.context.create_stream("s");
  graph.capture(1, rig.appending(1));
  frt::Plan plan = rig.create_plan("p");
  plan.add(graph, 1, stream);
  backend.exec_compose = [](frt_backend_device, const frt_backend_node*, uint32_t,
                            frt_backend_exec*, frt_error*) -> frt_status { return FRT_OK; };
  refuses("exec_compose", "plan 'p'", [&] { plan.compile(); });
}
