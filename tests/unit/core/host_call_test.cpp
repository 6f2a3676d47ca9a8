// SPDX-License-Identifier: Apache-2.0
// Host functions in a stream: when they run, and when what they hold goes.
#include "rig.hpp"

namespace {

// Counts calls; counts itself.
struct Work {
  static inline int alive = 0;
  explicit Work(int& counter) : calls(&counter) { ++alive; }
  Work(const Work& other) : calls(other.calls) { ++alive; }
  ~Work() { --alive; }
  void operator()() const { ++*calls; }
  int* calls;
};

// A recipe that calls `work` on the host, as a kernel's launch would.
auto calling(const Work& work) {
  return [&work](const frt::Recorder& recorder) {
    recorder.context().call(recorder.backend_stream(), work);
  };
}

}  // namespace

TEST_CASE("a recorded host call runs at every replay, in order with kernels, never at capture") {
  Rig rig;
  int calls = 0;
  const Work work(calls);
  const frt::Stream stream = rig.context.create_stream("s");
  {
    frt::Graph graph = rig.context.create_graph("g", 4);
    std::vector<int> seen;
    graph.capture(1, [&](const frt::Recorder& recorder) {
      rig.append(recorder, {0, 1});
      recorder.context().call(recorder.backend_stream(),
                              [&] { seen.push_back(static_cast<int>(rig.mock.trace.size())); });
      recorder.context().call(recorder.backend_stream(), work);
      rig.append(recorder, {0, 2});
    });
    CHECK(calls == 0);
    CHECK(Work::alive == 2);
    for (int i = 0; i < 3; ++i) graph.replay(1, stream);
    CHECK(calls == 0);  // submitted, not yet run
    stream.sync();
    CHECK(calls == 3);
    CHECK(seen == std::vector<int>{1, 3, 5});
    CHECK(Work::alive == 2);
  }
  CHECK(Work::alive == 1);
}

TEST_CASE("what a recorded host call holds goes after the last replay of an evicted variant") {
  Rig rig;
  int calls = 0;
  const Work work(calls);
  const frt::Stream stream = rig.context.create_stream("s");
  frt::Graph graph = rig.context.create_graph("g", 1);
  graph.capture(1, calling(work));
  graph.replay(1, stream);
  graph.capture(2, [](const frt::Recorder&) {});  // evicts, and waits
  CHECK(calls == 1);
  CHECK(Work::alive == 1);
}

TEST_CASE("a capture that fails releases what its host calls held, and calls nothing") {
  Rig rig;
  int calls = 0;
  const Work work(calls);
  frt::Graph graph = rig.context.create_graph("g", 1);
  CHECK_FAILS(FRT_ERR_CALLBACK, "no such layer",
              graph.capture(1, [&](const frt::Recorder& recorder) {
                calling(work)(recorder);
                throw std::runtime_error("no such layer");
              }));
  CHECK(Work::alive == 1);
  rig.mock.fail("capture_end", FRT_ERR_DEVICE);
  CHECK_FAILS(FRT_ERR_DEVICE, "capture_end", graph.capture(1, calling(work)));
  CHECK(Work::alive == 1);
  CHECK(calls == 0);
}

TEST_CASE("a host call that the backend refuses stays the caller's") {
  Rig rig;
  int calls = 0;
  const Work work(calls);
  const frt::Stream stream = rig.context.create_stream("s");
  frt::Graph graph = rig.context.create_graph("g", 1);
  rig.mock.fail("stream_call", FRT_ERR_DEVICE);
  CHECK_FAILS(FRT_ERR_DEVICE, "stream_call", rig.context.call(stream.backend(), work));
  CHECK(Work::alive == 1);
  rig.mock.fail("stream_call", FRT_ERR_DEVICE);
  CHECK_FAILS(FRT_ERR_DEVICE, "stream_call", graph.capture(1, calling(work)));
  CHECK(Work::alive == 1);
}

TEST_CASE("a host call in a stream of another context is refused, also while recording") {
  Rig other_rig;
  const frt::Stream foreign = other_rig.context.create_stream("foreign");
  Rig rig;
  int calls = 0;
  const Work work(calls);
  const auto call = [&] { rig.context.call(foreign.backend(), work); };
  CHECK_FAILS(FRT_ERR_INVALID_ARGUMENT, "the stream is of another context than 'dev0'", call());
  frt::Graph graph = rig.context.create_graph("g", 1);
  graph.capture(1, [&](const frt::Recorder&) {
    CHECK_FAILS(FRT_ERR_INVALID_ARGUMENT, "the stream is of another context", call());
  });
  CHECK(Work::alive == 1);
  CHECK(other_rig.mock.calls("stream_call") == 0);
}

TEST_CASE("an eager host call runs once; what it holds goes on the driver's thread, later") {
  Rig rig;
  int calls = 0;
  const Work work(calls);
  const frt::Stream stream = rig.context.create_stream("s");
  rig.context.call(stream.backend(), work);
  CHECK(calls == 0);
  CHECK(Work::alive == 2);
  rig.context.call(stream.backend(), work);  // the first has not run: both are held
  CHECK(Work::alive == 3);
  stream.sync();
  CHECK(calls == 2);
  rig.context.call(stream.backend(), [] {});
  CHECK(Work::alive == 1);
  stream.sync();
}

TEST_CASE("an eager context calls the host anew at every replay") {
  Rig rig({.eager = true});
  int calls = 0;
  const Work work(calls);
  const frt::Stream stream = rig.context.create_stream("s");
  frt::Graph graph = rig.context.create_graph("g", 1);
  graph.capture(1, calling(work));
  for (int i = 0; i < 2; ++i) graph.replay(1, stream);
  stream.sync();
  CHECK(calls == 2);
}

TEST_CASE("what a host call throws never reaches the backend") {
  Rig rig;
  const frt::Stream stream = rig.context.create_stream("s");
  frt::Graph graph = rig.context.create_graph("g", 1);
  // Of the table itself: a function of somebody who did not read the header.
  const auto throws = [](void*, frt_error*) -> frt_status { throw std::runtime_error("no ink"); };
  const auto call = [&](frt_backend_stream where) {
    frt_error error{};
    REQUIRE(rig.context.table().stream_call(rig.context, where, throws, nullptr, nullptr, &error) ==
            FRT_OK);
  };
  call(stream.backend());
  CHECK_FAILS(FRT_ERR_CALLBACK, "no ink", stream.sync());
  graph.capture(1, [&](const frt::Recorder& recorder) { call(recorder.backend_stream()); });
  for (int i = 0; i < 2; ++i) {
    graph.replay(1, stream);
    CHECK_FAILS(FRT_ERR_CALLBACK, "no ink", stream.sync());
  }
  rig.context.call(stream.backend(), [] { throw frt::Error(FRT_ERR_IO, "no paper"); });
  CHECK_FAILS(FRT_ERR_CALLBACK, "no paper", stream.sync());
  stream.sync();
}

TEST_CASE("a context that is closed releases what finished host calls held") {
  int calls = 0;
  const Work work(calls);
  {
    Rig rig;
    const frt::Stream stream = rig.context.create_stream("s");
    rig.context.call(stream.backend(), work);
    stream.sync();
    CHECK(Work::alive == 2);
  }
  CHECK(Work::alive == 1);
}

TEST_CASE("a fused plan runs the host calls of its graphs") {
  Rig rig;
  int calls = 0;
  const Work work(calls);
  const frt::Stream stream = rig.context.create_stream("s");
  frt::Graph one = rig.context.create_graph("one", 1), two = rig.context.create_graph("two", 1);
  one.capture(1, calling(work));
  two.capture(1, calling(work));
  frt::Plan plan = rig.create_plan("p");
  const uint32_t first = plan.add(one, 1, stream);
  plan.after(plan.add(two, 1, stream), first);
  plan.compile();
  for (int i = 0; i < 2; ++i) plan.execute(stream);
  stream.sync();
  CHECK(calls == 4);
}

TEST_CASE("the native stream behind a launch's is the backend's") {
  Rig rig;
  int native = 0;
  const frt::Stream wrapped = rig.context.wrap_stream(&native, "w");
  CHECK(rig.context.native(wrapped.backend()) == &native);
}
