// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "rig.hpp"

using Ints = std::vector<int32_t>;

TEST_CASE("a context tells the device, the backend and the user's name") {
  Rig rig;
  const frt_context_info info = rig.context.info();
  CHECK(std::string(info.name) == "dev0");
  CHECK(std::string(info.backend_id) == "test.mock");
  CHECK(std::string(info.native_kind) == "mock");
  CHECK(info.eager == 0);
  CHECK(std::string(info.device->name) == "mock");
  CHECK(info.struct_size == sizeof(info));
}

TEST_CASE("opening an ordinal that does not exist says how many there are") {
  MockBackend mock;
  CHECK_FAILS(FRT_ERR_OUT_OF_RANGE, "the backend has 1",
              frt::core::open_context(mock.table, mock.plugin(), 1, nullptr, {}));
}

TEST_CASE("a backend table that is too short, too long or lacks a function is refused") {
  MockBackend mock;
  mock.table.exec_launch = nullptr;
  CHECK_FAILS(FRT_ERR_ABI, "exec_launch",
              frt::core::open_context(mock.table, mock.plugin(), 0, nullptr, {}));
  MockBackend cut;
  for (const uint32_t size : {3u, uint32_t{offsetof(frt_backend_v1, last_error)}, 0xdeadbeefu}) {
    cut.table.struct_size = size;
    CHECK_FAILS(FRT_ERR_ABI,
                std::to_string(size) + " bytes, " +
                    (size < 280 ? "less than the 280 of its first version" : "more than the 4096"),
                frt::core::open_context(cut.table, cut.plugin(), 0, nullptr, {}));
  }
}

TEST_CASE("a device that cannot be opened reports the backend's own text") {
  MockBackend mock;
  mock.fail("device_open", FRT_ERR_DEVICE);
  CHECK_FAILS(FRT_ERR_DEVICE, "device_open failed on purpose",
              frt::core::open_context(mock.table, mock.plugin(), 0, nullptr, {}));
}

TEST_CASE("a kernel list that cannot be read closes the device again") {
  MockBackend mock;
  frt::core::ContextOptions options;
  options.kernels = &mock.kernels;
  SUBCASE("the backend fails") {
    mock.fail("list_kernels", FRT_ERR_DEVICE);
    CHECK_FAILS(FRT_ERR_DEVICE, "listing",
                frt::core::open_context(mock.table, mock.plugin(), 0, nullptr, options));
  }
  SUBCASE("the stride is too small") {
    mock.kernels.stride = 8;
    CHECK_FAILS(FRT_ERR_ABI, "stride",
                frt::core::open_context(mock.table, mock.plugin(), 0, nullptr, options));
  }
  SUBCASE("a descriptor is too small") {
    mock.descriptors[1].struct_size = 8;
    CHECK_FAILS(FRT_ERR_ABI, "descriptor",
                frt::core::open_context(mock.table, mock.plugin(), 0, nullptr, options));
  }
  CHECK(mock.calls("device_close") == 1);
}

TEST_CASE("a context with objects left is not closed, and counts them") {
  Rig rig;
  const frt::Buffer buffer = rig.context.alloc(FRT_SPACE_DEVICE, 16, "b");
  const frt::Stream stream = rig.context.create_stream("s");
  const frt::Event event = rig.context.create_event();
  const frt::Graph graph = rig.context.create_graph("g", 1);
  const frt::Plan plan = rig.create_plan("p");
  CHECK_FAILS(FRT_ERR_BAD_STATE, "1 buffer(s), 1 stream(s), 1 event(s), 1 graph(s), 1 plan(s)",
              frt::core::close_context(rig.handle));
}

TEST_CASE("context_sync waits for every stream") {
  Rig rig;
  const frt::Stream a = rig.context.create_stream("a");
  const frt::Stream b = rig.context.create_stream("b");
  rig.append(frt::Recorder(a), {0, 1});
  rig.append(frt::Recorder(b), {0, 2});
  CHECK(rig.mock.trace.empty());
  rig.context.sync();
  CHECK(rig.mock.trace.size() == 2);
}

TEST_CASE("counters count captures, captures after ready, replays, evictions and bytes") {
  Rig rig;
  const frt::Stream stream = rig.context.create_stream("s");
  frt::Graph graph = rig.context.create_graph("g", 2);
  const frt::Buffer device = rig.context.alloc(FRT_SPACE_DEVICE, 1000, "d");
  {
    const frt::Buffer host = rig.context.alloc(FRT_SPACE_HOST, 24, "h");
    CHECK(rig.counters().buffer_bytes[FRT_SPACE_HOST] == 24);
  }
  graph.capture(1, rig.appending(1));
  graph.capture(2, rig.appending(2));
  rig.context.ready();
  CHECK(rig.counters().captures == 2);
  CHECK(rig.counters().captures_since_ready == 0);
  graph.capture(3, rig.appending(3));
  graph.replay(3, stream);
  graph.replay(2, stream);
  CHECK(graph.try_replay(1, stream) == FRT_ERR_NO_VARIANT);
  const frt_counters counters = rig.counters();
  CHECK(counters.captures == 3);
  CHECK(counters.captures_since_ready == 1);
  CHECK(counters.replays == 2);
  CHECK(counters.evictions == 1);
  CHECK(counters.buffer_bytes[FRT_SPACE_DEVICE] == 1000);
  CHECK(counters.buffer_bytes[FRT_SPACE_HOST] == 0);
}

TEST_CASE("a lost device stays lost: everything is refused, releases still work") {
  Rig rig;
  const frt::Stream stream = rig.context.create_stream("s");
  const frt::Buffer buffer = rig.context.alloc(FRT_SPACE_DEVICE, 16, "b");
  frt::Event event = rig.context.create_event();
  frt::Graph graph = rig.context.create_graph("g", 1);
  graph.capture(1, rig.appending(1));
  frt::Plan plan = rig.create_plan("p");
  plan.add(graph, 1, stream);
  plan.compile();
  rig.mock.fail("exec_launch", FRT_ERR_DEVICE_LOST);
  CHECK_FAILS(FRT_ERR_DEVICE_LOST, "dev0", graph.replay(1, stream));
  CHECK(graph.try_replay(1, stream) == FRT_ERR_DEVICE_LOST);
  CHECK(plan.try_execute(stream) == FRT_ERR_DEVICE_LOST);
  CHECK_FAILS(FRT_ERR_DEVICE_LOST, "lost", stream.sync());
  CHECK_FAILS(FRT_ERR_DEVICE_LOST, "lost", rig.context.sync());
  CHECK_FAILS(FRT_ERR_DEVICE_LOST, "lost", event.record(stream));
  CHECK_FAILS(FRT_ERR_DEVICE_LOST, "lost", (void)event.query());
  CHECK_FAILS(FRT_ERR_DEVICE_LOST, "lost", frt::Recorder(stream).fill(buffer, 0, 1, 0));
  CHECK_FAILS(FRT_ERR_DEVICE_LOST, "lost", (void)rig.context.alloc(FRT_SPACE_DEVICE, 16, "b"));
  CHECK_FAILS(FRT_ERR_DEVICE_LOST, "lost", graph.capture(2, rig.appending(1)));
}

TEST_CASE("an error of the device is reported and the context goes on") {
  Rig rig;
  const frt::Stream stream = rig.context.create_stream("s");
  frt::Graph graph = rig.context.create_graph("g", 1);
  graph.capture(1, rig.appending(1));
  rig.mock.fail("exec_launch", FRT_ERR_DEVICE);
  CHECK_FAILS(FRT_ERR_DEVICE, "exec_launch", graph.replay(1, stream));
  CHECK(contains(rig.context.last_error(), "FRT_ERR_DEVICE"));
  graph.replay(1, stream);
  stream.sync();
  CHECK(rig.mock.trace == Ints{1});
}

TEST_CASE(
    "the device's own words are in the record and in the error of the call that they are of") {
  Rig rig;
  const frt::Stream stream = rig.context.create_stream("s");
  frt::Graph graph = rig.context.create_graph("g", 1);
  graph.capture(1, rig.appending(1));
  rig.mock.words = "too many blocks (mockErrorBlocks)";
  rig.mock.fail("exec_launch", FRT_ERR_DEVICE);
  CHECK_FAILS(FRT_ERR_DEVICE, "FRT_ERR_DEVICE (-3): too many blocks (mockErrorBlocks)",
              graph.replay(1, stream));
  CHECK(contains(rig.context.last_error(), "exec_launch: the device of context 'dev0'"));
  CHECK(contains(rig.context.last_error(), "mockErrorBlocks"));

  // Of a call that waits, and of one whose error is thrown with the text of the record.
  rig.mock.fail("stream_sync", FRT_ERR_DEVICE);
  CHECK_FAILS(FRT_ERR_DEVICE, "mockErrorBlocks", stream.sync());
  rig.mock.fail("stream_call", FRT_ERR_DEVICE);
  CHECK_FAILS(FRT_ERR_DEVICE, "mockErrorBlocks",
              rig.context.call(frt::Recorder(stream).backend_stream(), [] {}));

  // They were given: a failure without words has none.
  rig.mock.words = "";
  rig.mock.fail("exec_launch", FRT_ERR_DEVICE);
  CHECK(graph.try_replay(1, stream) == FRT_ERR_DEVICE);
  CHECK(rig.context.last_error().ends_with("reported FRT_ERR_DEVICE (-3)"));

  // Words of another code are of another call.
  rig.mock.failed_call.note(FRT_ERR_OUT_OF_MEMORY, "no room");
  rig.mock.fail("exec_launch", FRT_ERR_DEVICE);
  CHECK(graph.try_replay(1, stream) == FRT_ERR_DEVICE);
  CHECK(rig.context.last_error().ends_with("reported FRT_ERR_DEVICE (-3)"));
  rig.mock.pump();
}

TEST_CASE("what a device said when it was lost is told by every later call") {
  Rig rig;
  const frt::Stream stream = rig.context.create_stream("s");
  frt::Graph graph = rig.context.create_graph("g", 1);
  graph.capture(1, rig.appending(1));
  rig.mock.words = "an illegal address";
  rig.mock.fail("exec_launch", FRT_ERR_DEVICE_LOST);
  const std::string_view reason = "is lost (an illegal address); open it again";
  CHECK_FAILS(FRT_ERR_DEVICE_LOST, reason.data(), graph.replay(1, stream));
  CHECK_FAILS(FRT_ERR_DEVICE_LOST, reason.data(), graph.replay(1, stream));
  CHECK_FAILS(FRT_ERR_DEVICE_LOST, reason.data(), stream.sync());
  CHECK_FAILS(FRT_ERR_DEVICE_LOST, reason.data(),
              (void)rig.context.alloc(FRT_SPACE_DEVICE, 16, "b"));
  CHECK_FAILS(FRT_ERR_DEVICE_LOST, reason.data(),
              rig.context.call(frt::Recorder(stream).backend_stream(), [] {}));

  // A setup call that finds it lost has a text of its own.
  Rig other;
  other.mock.fail("memory_alloc", FRT_ERR_DEVICE_LOST);
  CHECK_FAILS(FRT_ERR_DEVICE_LOST, "memory_alloc failed on purpose",
              (void)other.context.alloc(FRT_SPACE_DEVICE, 16, "b"));
  CHECK_FAILS(FRT_ERR_DEVICE_LOST, "is lost (memory_alloc failed on purpose)",
              other.context.sync());
}

TEST_CASE("words that are no text, do not end, or are thrown do no harm") {
  const auto told = [](decltype(frt_backend_v1::last_error) last_error) {
    MockBackend mock;
    mock.table.last_error = last_error;
    frt::core::ContextOptions options;
    options.name = "dev0";
    options.backend_id = "test.mock";
    const frt_context handle =
        frt::core::open_context(mock.table, mock.plugin(), 0, nullptr, options);
    const frt::Context context(frt::core::exec_table(), handle);
    mock.fail("device_sync", FRT_ERR_DEVICE);
    const frt_error error = caught([&] { context.sync(); });
    frt::core::close_context(handle);
    CHECK(error.code == FRT_ERR_DEVICE);
    return std::string(error.message);
  };
  CHECK(told(nullptr).ends_with("reported FRT_ERR_DEVICE (-3)"));
  CHECK(told([](frt_backend_device, char*, uint64_t) -> frt_status {
          throw std::runtime_error("no words");
        }).ends_with("reported FRT_ERR_DEVICE (-3)"));
  CHECK(told([](frt_backend_device, char* text, uint64_t) {
          std::memcpy(text, "a\x1b[2J\xff\n\xe4", 9);
          return frt_status{FRT_ERR_DEVICE};
        }).ends_with("FRT_ERR_DEVICE (-3): a?[2J???"));
  const std::string endless = told([](frt_backend_device, char* text, uint64_t capacity) {
    std::memset(text, 'x', capacity);
    return frt_status{FRT_ERR_DEVICE};
  });
  CHECK(endless.ends_with("xxx"));
  CHECK(endless.size() < FRT_ERROR_CAPACITY);
}

TEST_CASE("a failed call keeps its words once, cut at a character") {
  frt::FailedCall failed;
  char text[8];
  CHECK(failed.take(text, sizeof(text)) == FRT_OK);
  CHECK(std::string(text).empty());
  failed.note(FRT_ERR_DEVICE, "abcde\u4e2d\u4e2d");
  CHECK(failed.take(text, 0) == FRT_OK);
  CHECK(failed.take(text, sizeof(text)) == FRT_ERR_DEVICE);
  CHECK(std::string(text) == "abcde");
  CHECK(failed.take(text, sizeof(text)) == FRT_OK);
  CHECK(std::string(text).empty());
  failed.note(FRT_ERR_DEVICE, std::string(1000, 'x'));
  char whole[1000];
  CHECK(failed.take(whole, sizeof(whole)) == FRT_ERR_DEVICE);
  CHECK(std::string(whole) == std::string(frt::FailedCall::kCapacity - 1, 'x'));
}

TEST_CASE("a caller with smaller structs gets what fits, and is told how much") {
  Rig rig;
  struct {
    frt_counters counters;
    uint64_t guard;
  } box;
  std::memset(&box, 0x5A, sizeof(box));
  box.counters.struct_size = offsetof(frt_counters, replays);
  CHECK(rig.context.table().context_counters(rig.handle, &box.counters) == FRT_OK);
  CHECK(box.counters.struct_size == offsetof(frt_counters, replays));
  CHECK(box.counters.captures == 0);
  CHECK(box.counters.replays == 0x5A5A5A5A5A5A5A5Aull);

  box.counters.struct_size = sizeof(box);  // a newer caller
  CHECK(rig.context.table().context_counters(rig.handle, &box.counters) == FRT_OK);
  CHECK(box.counters.struct_size == sizeof(frt_counters));
  CHECK(box.guard == 0x5A5A5A5A5A5A5A5Aull);

  box.counters.struct_size = 0;
  CHECK(rig.context.table().context_counters(rig.handle, &box.counters) == FRT_ERR_ABI);
}

TEST_CASE("the wrapper refuses a table that is older than itself") {
  Rig rig;
  frt_exec_v1 old = *frt::core::exec_table();
  old.struct_size = offsetof(frt_exec_v1, kernels_resolve);
  CHECK_FAILS(FRT_ERR_ABI, "the host: its frt.exec/1 says", frt::Context(&old, rig.handle));
}

TEST_CASE("null handles are refused, and releasing null does nothing") {
  const frt_exec_v1& t = *frt::core::exec_table();
  const frt_plan_draft& plans = *frt::core::plan_draft();
  const frt_graph_draft& graphs = *frt::core::graph_draft();
  frt_error error{};
  frt_buffer buffer = nullptr;
  frt_stream stream = nullptr;
  frt_event event = nullptr;
  frt_graph graph = nullptr;
  frt_plan plan = nullptr;
  frt_kernel kernel{};
  uint32_t node = 0;
  double ms = 0;
  const char* name = "x";
  const frt_status codes[] = {
      t.context_info(nullptr, nullptr),
      t.context_counters(nullptr, nullptr),
      t.context_sync(nullptr),
      t.buffer_alloc(nullptr, 0, 1, "x", &buffer, &error),
      t.buffer_wrap(nullptr, 0, &ms, 1, "x", nullptr, nullptr, &buffer, &error),
      t.buffer_view(nullptr, 0, 1, "x", &buffer, &error),
      t.buffer_info(nullptr, nullptr),
      t.buffer_copy(nullptr, 0, nullptr, 0, 1, nullptr),
      t.buffer_copy_batch(nullptr, 1, nullptr),
      t.buffer_fill(nullptr, 0, 1, 0, nullptr),
      t.stream_create(nullptr, 0, "x", &stream, &error),
      t.stream_wrap(nullptr, nullptr, "x", &stream, &error),
      t.stream_sync(nullptr),
      t.stream_wait(nullptr, nullptr),
      t.event_create(nullptr, 0, &event, &error),
      t.event_record(nullptr, nullptr),
      t.event_query(nullptr),
      t.event_sync(nullptr),
      t.event_elapsed(nullptr, nullptr, &ms),
      t.graph_create(nullptr, "x", 1, &graph, &error),
      graphs.declare(nullptr, "x", 0, &error),
      graphs.bind(nullptr, "x", nullptr, &error),
      graphs.bound(nullptr, "x", &buffer),
      t.graph_capture(nullptr, 0, nullptr, nullptr, &error),
      graphs.adopt(nullptr, 0, nullptr, 0, &error),
      t.graph_replay(nullptr, 0, nullptr),
      t.graph_evict(nullptr, 0),
      plans.create(nullptr, "x", &plan, &error),
      plans.add(nullptr, nullptr, 0, nullptr, &node, &error),
      plans.after(nullptr, 0, 0, &error),
      plans.compile(nullptr, 0, &error),
      plans.execute(nullptr, nullptr),
      t.kernels_resolve(nullptr, nullptr, &name, 1, 0, 0, nullptr, 0, &kernel, &error),
      t.kernels_register(nullptr, nullptr, 1, 40, nullptr, &error),
      t.stream_call(nullptr, nullptr, nullptr, nullptr, nullptr, &error),
  };
  for (frt_status code : codes) CHECK(code == FRT_ERR_INVALID_ARGUMENT);
  CHECK(t.backend_stream_native(nullptr, nullptr) == nullptr);
  t.kernels_release(nullptr);
  t.buffer_retain(nullptr);
  t.buffer_release(nullptr);
  t.stream_release(nullptr);
  t.event_release(nullptr);
  t.graph_release(nullptr);
  plans.release(nullptr);
  t.context_ready(nullptr);
  t.context_last_error(nullptr, &error);
  CHECK(t.stream_native(nullptr) == nullptr);
  CHECK(t.stream_backend(nullptr) == nullptr);
  CHECK(t.graph_has_variant(nullptr, 0) == 0);
  CHECK(t.graph_variant_count(nullptr) == 0);
  CHECK(t.graph_keys(nullptr, nullptr, 1) == 0);
  CHECK(plans.fused(nullptr) == 0);
}

TEST_CASE("objects of another context are refused everywhere") {
  Rig rig;
  Rig other;
  const frt::Stream stream = rig.context.create_stream("s");
  const frt::Stream foreign = other.context.create_stream("f");
  const frt::Buffer buffer = rig.context.alloc(FRT_SPACE_DEVICE, 16, "b");
  const frt::Buffer foreign_buffer = other.context.alloc(FRT_SPACE_DEVICE, 16, "fb");
  frt::Graph graph = rig.context.create_graph("g", 1);
  draft(graph).declare("p", FRT_BINDING_OPTIONAL);
  graph.capture(1, rig.appending(1));
  const frt::Event event = rig.context.create_event();
  frt::Plan plan = rig.create_plan("p");
  constexpr frt_status kInvalid = FRT_ERR_INVALID_ARGUMENT;
  CHECK(graph.try_replay(1, foreign) == kInvalid);
  CHECK_FAILS(kInvalid, "another context", draft(graph).bind("p", foreign_buffer));
  CHECK_FAILS(kInvalid, "another context", event.record(foreign));
  CHECK_FAILS(kInvalid, "another context", (void)plan.add(graph, 1, foreign));
  CHECK_FAILS(kInvalid, "another context",
              frt::Recorder(stream).copy(buffer, 0, foreign_buffer, 0, 1));
  CHECK_FAILS(kInvalid, "another context", frt::Recorder(stream).fill(foreign_buffer, 0, 1, 0));
  CHECK(plan.try_execute(foreign) == kInvalid);
}

#ifdef FRT_THREAD_CHECKS
#include <thread>

TEST_CASE("builds with thread checks notice a second thread inside a context") {
  Rig rig;
  const frt::Stream stream = rig.context.create_stream("s");
  frt::Graph graph = rig.context.create_graph("g", 2);
  graph.capture(1, rig.appending(1));
  frt_status replay = FRT_OK, alloc = FRT_OK;
  graph.capture(2, [&](const frt::Recorder&) {
    std::thread intruder([&] {
      replay = graph.try_replay(1, stream);
      frt_buffer buffer = nullptr;
      alloc = rig.context.table().buffer_alloc(rig.handle, 0, 1, "b", &buffer, nullptr);
    });
    intruder.join();
  });
  CHECK(replay == FRT_ERR_BAD_STATE);
  CHECK(alloc == FRT_ERR_BAD_STATE);
  graph.replay(1, stream);
}
#endif
