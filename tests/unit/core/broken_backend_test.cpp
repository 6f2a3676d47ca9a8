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

// ---- functions that throw ------------------------------------------------------------------

namespace {

// A function of the table that throws, whatever its arguments are.
template <class Result, class... Arguments>
void make_throw(Result (*&function)(Arguments...)) {
  function = [](Arguments...) -> Result { throw std::runtime_error("out of luck"); };
}

// The texts that core gives to the log.
struct Heard {
  std::string text;
  frt::ErrorSink sink{[](void* self, const char* line) {
                        static_cast<Heard*>(self)->text += std::string(line) + "\n";
                      },
                      this};
};

}  // namespace

TEST_CASE("what a submission or a wait throws is an error that names the backend") {
  Rig rig;
  frt_backend_v1& backend = rig.handle->backend;
  const frt_backend_v1 whole = backend;
  const frt::Stream stream = rig.context.create_stream("s"), other = rig.context.create_stream("o");
  const frt::Buffer a = rig.context.alloc(FRT_SPACE_DEVICE, 8, "a");
  const frt::Buffer b = rig.context.alloc(FRT_SPACE_DEVICE, 8, "b");
  const frt::Event event = rig.context.create_event(FRT_EVENT_TIMING);
  frt::Graph graph = rig.context.create_graph("g", 1);
  graph.capture(1, rig.appending(1));
  frt::Plan plan = rig.create_plan("p"), steps = rig.create_plan("steps");
  plan.add(graph, 1, stream);
  plan.compile();
  steps.add(graph, 1, stream);
  steps.compile(FRT_PLAN_NO_FUSE);
  event.record(stream);
  const frt_exec_v1& table = rig.context.table();
  const auto throws = [&](const char* call, frt_status status) {
    CAPTURE(call);
    CHECK(status == FRT_ERR_INTERNAL);
    const std::string text = rig.context.last_error();
    CAPTURE(text);
    CHECK(contains(text, call));
    CHECK(contains(text, "(backend 'test.mock') threw across the ABI: out of luck"));
    backend = whole;
  };
  make_throw(backend.copy);
  throws("buffer_copy", table.buffer_copy(a, 0, b, 0, 8, stream));
  make_throw(backend.copy);
  CHECK_FAILS(FRT_ERR_INTERNAL, "(backend 'test.mock') threw",
              frt::copy_between(a, 0, stream, b, 0, other, 8));
  backend = whole;
  make_throw(backend.fill);
  throws("buffer_fill", table.buffer_fill(a, 0, 8, 1, stream));
  make_throw(backend.stream_sync);
  throws("stream_sync", table.stream_sync(stream));
  make_throw(backend.device_sync);
  throws("context_sync", table.context_sync(rig.context));
  make_throw(backend.event_record);
  throws("event_record", table.event_record(event, stream));
  make_throw(backend.event_wait);
  throws("stream_wait", table.stream_wait(stream, event));
  make_throw(backend.event_query);
  throws("event_query", table.event_query(event));
  make_throw(backend.event_sync);
  throws("event_sync", table.event_sync(event));
  double ms = 0;
  make_throw(backend.event_elapsed);
  throws("event_elapsed", table.event_elapsed(event, event, &ms));
  make_throw(backend.exec_launch);
  throws("exec_launch", table.graph_replay(graph, 1, stream));
  make_throw(backend.exec_launch);
  throws("exec_launch", plan.try_execute(stream));
  make_throw(backend.event_record);
  throws("event_record", steps.try_execute(other));
  make_throw(backend.stream_call);
  frt_error error{};
  throws("stream_call",
         table.stream_call(
             rig.context, stream.backend(), [](void*, frt_error*) { return frt_status{FRT_OK}; },
             nullptr, nullptr, &error));
  stream.sync();
}

TEST_CASE("what a setup call throws names the backend and the function") {
  Rig rig;
  frt_backend_v1& backend = rig.handle->backend;
  const frt_backend_v1 whole = backend;
  const auto throws = [&](const std::string& call, auto&& body) {
    CHECK_FAILS(FRT_ERR_INTERNAL,
                "backend 'test.mock': its `" + call + "` threw across the ABI: out of luck",
                body());
    backend = whole;
  };
  make_throw(backend.memory_alloc);
  throws("memory_alloc", [&] { (void)rig.context.alloc(FRT_SPACE_DEVICE, 8, "b"); });
  make_throw(backend.stream_create);
  throws("stream_create", [&] { (void)rig.context.create_stream("s"); });
  make_throw(backend.event_create);
  throws("event_create", [&] { (void)rig.context.create_event(); });
  frt::Graph graph = rig.context.create_graph("g", 1);
  make_throw(backend.capture_begin);
  throws("capture_begin", [&] { graph.capture(1, rig.appending(1)); });
}

TEST_CASE("what a call that ends something throws is in the log, and the host goes on") {
  Heard heard;
  Rig rig;
  frt_backend_v1& backend = rig.handle->backend;
  const frt_backend_v1 whole = backend;
  const auto throws = [&](const std::string& call) {
    CAPTURE(heard.text);
    CHECK(contains(heard.text, call + ": the device of context 'dev0' (backend 'test.mock') threw "
                                      "across the ABI: out of luck"));
    heard.text.clear();
    backend = whole;
  };
  // The objects of the mock outlive the call that fails to end them: the test ends them itself.
  {
    frt::Buffer buffer = rig.context.alloc(FRT_SPACE_DEVICE, 8, "b");
    void* const pointer = buffer.pointer();
    make_throw(backend.memory_free);
    buffer.reset();
    throws("memory_free");
    backend.memory_free(rig.handle->device, FRT_SPACE_DEVICE, pointer);
  }
  {
    frt::Stream stream = rig.context.create_stream("s");
    const frt_backend_stream native = stream.backend();
    make_throw(backend.stream_destroy);
    make_throw(backend.stream_native);
    CHECK(stream.native() == nullptr);
    stream.reset();
    backend.stream_destroy = whole.stream_destroy;
    throws("stream_native");
    backend.stream_destroy(native);
  }
  {
    frt::Event event = rig.context.create_event();
    const frt_backend_event native = event.handle()->backend;
    make_throw(backend.event_destroy);
    event.reset();
    throws("event_destroy");
    backend.event_destroy(native);
  }
  {
    frt::Graph graph = rig.context.create_graph("g", 1);
    graph.capture(1, rig.appending(1));
    const frt_backend_exec exec = graph.handle()->variants.newest()->exec;
    make_throw(backend.exec_destroy);
    graph.evict(1);
    throws("exec_destroy");
    backend.exec_destroy(exec);
  }
  make_throw(backend.device_memory);
  CHECK(rig.context.info().memory_total == rig.handle->device_info.memory_total);
  throws("device_memory");
  const frt_exec_v1& table = rig.context.table();
  const frt::Stream stream = rig.context.create_stream("s");
  const auto call = [&](void (*release)(void*)) {
    frt_error error{};
    CHECK(table.stream_call(
              rig.context, stream.backend(), [](void*, frt_error*) { return frt_status{FRT_OK}; },
              nullptr, release, &error) == FRT_OK);
    stream.sync();
  };
  call([](void*) { throw std::runtime_error("stuck"); });
  call(nullptr);  // releases what the one before held
  CHECK(contains(heard.text, "the release function of a host call in context 'dev0' threw: stuck"));
}

TEST_CASE("a code that no version defines becomes FRT_ERR_INTERNAL with its number") {
  Rig rig;
  const frt::Stream stream = rig.context.create_stream("s");
  const frt::Buffer a = rig.context.alloc(FRT_SPACE_DEVICE, 8, "a");
  for (const frt_status strange : {12345, -77}) {
    rig.mock.fail("fill", strange);
    CHECK_FAILS(FRT_ERR_INTERNAL,
                "(backend 'test.mock') reported status " + std::to_string(strange) + ", which ABI",
                frt::Recorder(stream).fill(a, 0, 8, 1));
  }
  stream.sync();
}
