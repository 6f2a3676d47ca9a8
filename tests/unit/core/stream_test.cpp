// SPDX-License-Identifier: Apache-2.0
#include "rig.hpp"

using Ints = std::vector<int32_t>;

TEST_CASE("an event orders two streams") {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    RigOptions options;
    options.seed = seed;
    Rig rig(options);
    const frt::Stream a = rig.context.create_stream("a", -1);
    const frt::Stream b = rig.context.create_stream("b");
    const frt::Event event = rig.context.create_event();
    rig.append(frt::Recorder(a), {0, 1});
    event.record(a);
    b.wait(event);
    rig.append(frt::Recorder(b), {0, 2});
    CHECK_FALSE(event.query());
    event.sync();
    CHECK(event.query());
    b.sync();
    CHECK(rig.mock.trace == Ints{1, 2});
  }
}

TEST_CASE("waiting for an event that was never recorded does not block") {
  Rig rig;
  const frt::Stream stream = rig.context.create_stream("s");
  const frt::Event event = rig.context.create_event();
  CHECK(event.query());
  stream.wait(event);
  stream.sync();
}

TEST_CASE("elapsed time needs timing events that were recorded") {
  Rig rig;
  const frt::Stream stream = rig.context.create_stream("s");
  const frt::Event plain = rig.context.create_event();
  const frt::Event start = rig.context.create_event(FRT_EVENT_TIMING);
  const frt::Event end = rig.context.create_event(FRT_EVENT_TIMING);
  CHECK_FAILS(FRT_ERR_INVALID_ARGUMENT, "FRT_EVENT_TIMING", (void)end.elapsed_since(plain));
  CHECK_FAILS(FRT_ERR_BAD_STATE, "never recorded", (void)end.elapsed_since(start));
  start.record(stream);
  end.record(stream);
  CHECK(end.elapsed_since(start) == 1.5);
  rig.mock.fail("event_elapsed", FRT_ERR_NOT_READY);
  CHECK_FAILS(FRT_ERR_NOT_READY, "event_elapsed", (void)end.elapsed_since(start));
  CHECK_FAILS(FRT_ERR_UNSUPPORTED, "unknown flags", (void)rig.context.create_event(8));
}

TEST_CASE("releasing a stream waits for its work") {
  Rig rig;
  frt::Stream stream = rig.context.create_stream("s");
  rig.append(frt::Recorder(stream), {0, 1});
  stream.reset();
  CHECK(rig.mock.trace == Ints{1});
}

TEST_CASE("releasing an event waits for the streams that need it") {
  Rig rig;
  const frt::Stream a = rig.context.create_stream("a");
  const frt::Stream b = rig.context.create_stream("b");
  frt::Event event = rig.context.create_event();
  event.record(a);
  b.wait(event);
  event.reset();  // the rig checks that nothing in flight needed it
  CHECK(rig.mock.pending() == 0);
}

TEST_CASE("a foreign stream can be wrapped, the default one too") {
  Rig rig;
  int native = 0;
  const frt::Stream wrapped = rig.context.wrap_stream(&native, "theirs");
  const frt::Stream standard = rig.context.wrap_stream(nullptr, "default");
  CHECK(wrapped.native() == &native);
  CHECK(standard.native() == nullptr);
  CHECK(wrapped.backend() != nullptr);
  rig.append(frt::Recorder(wrapped), {0, 4});
  wrapped.sync();
  CHECK(rig.mock.trace == Ints{4});
}

TEST_CASE("a device without native streams says so") {
  Rig rig;
  rig.mock.native_forms = false;
  CHECK_FAILS(FRT_ERR_UNSUPPORTED, "no native streams",
              (void)rig.context.wrap_stream(nullptr, "default"));
}

TEST_CASE("failures to make or use streams and events come through") {
  Rig rig;
  rig.mock.fail("stream_create", FRT_ERR_OUT_OF_MEMORY);
  CHECK_FAILS(FRT_ERR_OUT_OF_MEMORY, "stream 's'", (void)rig.context.create_stream("s"));
  const frt::Stream stream = rig.context.create_stream("s");
  rig.mock.fail("event_create", FRT_ERR_DEVICE);
  CHECK_FAILS(FRT_ERR_DEVICE, "event_create", (void)rig.context.create_event());
  const frt::Event event = rig.context.create_event();
  for (const char* call :
       {"event_record", "event_wait", "event_query", "event_sync", "stream_sync", "device_sync"}) {
    rig.mock.fail(call, FRT_ERR_DEVICE);
  }
  CHECK_FAILS(FRT_ERR_DEVICE, "event_record", event.record(stream));
  CHECK_FAILS(FRT_ERR_DEVICE, "stream_wait", stream.wait(event));
  CHECK_FAILS(FRT_ERR_DEVICE, "event_query", (void)event.query());
  CHECK_FAILS(FRT_ERR_DEVICE, "event_sync", event.sync());
  CHECK_FAILS(FRT_ERR_DEVICE, "stream_sync", stream.sync());
  CHECK_FAILS(FRT_ERR_DEVICE, "context_sync", rig.context.sync());
}

TEST_CASE("a hundred streams share the mask bits and are still waited for") {
  Rig rig;
  frt::Graph graph = rig.context.create_graph("g", 1);
  graph.capture(1, rig.appending(1));
  std::vector<frt::Stream> streams;
  for (int i = 0; i < 100; ++i) {
    streams.push_back(rig.context.create_stream("s"));
    graph.replay(1, streams.back());
  }
  CHECK(rig.mock.pending() == 100);
  graph.evict(1);
  CHECK(rig.mock.pending() == 0);
  CHECK(rig.mock.trace.size() == 100);
}
