// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <list>
#include <random>
#include <stdexcept>

#include "rig.hpp"

using Ints = std::vector<int32_t>;
using Keys = std::vector<frt_shape_key>;

TEST_CASE("keys pack four fields and give them back") {
  const frt_shape_key key = frt_key_pack(1, 2, 3, 0xFFFF);
  CHECK(key == 0x000100020003FFFFull);
  CHECK(frt_key_field(key, 0) == 1);
  CHECK(frt_key_field(key, 1) == 2);
  CHECK(frt_key_field(key, 2) == 3);
  CHECK(frt_key_field(key, 3) == 0xFFFF);
}

TEST_CASE("a variant is captured once and replayed many times") {
  Rig rig;
  const frt::Stream stream = rig.context.create_stream("s");
  frt::Graph graph = rig.context.create_graph("g", 4);
  int recorded = 0;
  graph.capture(5, [&](const frt::Recorder& recorder, frt_shape_key key) {
    ++recorded;
    CHECK(recorder.capturing());
    CHECK(key == 5);
    rig.append(recorder, {0, 1});
    rig.append(recorder, {0, 2});
  });
  CHECK(rig.mock.trace.empty());
  for (int i = 0; i < 3; ++i) graph.replay(5, stream);
  stream.sync();
  CHECK(recorded == 1);
  CHECK(rig.mock.trace == Ints{1, 2, 1, 2, 1, 2});
}

TEST_CASE("copies and fills of a recipe are recorded with it, and keep their buffers alive") {
  Rig rig;
  const frt::Stream stream = rig.context.create_stream("s");
  const frt::Buffer result = rig.context.alloc(FRT_SPACE_DEVICE, 8, "result");
  frt::Graph graph = rig.context.create_graph("g", 1);
  {
    const frt::Buffer staging = rig.context.alloc(FRT_SPACE_DEVICE, 8, "staging");
    graph.capture(1, [&](const frt::Recorder& recorder) {
      recorder.fill(staging, 0, 8, 7);
      const frt_copy copies[] = {{result, 0, staging, 0, 4}, {result, 4, staging, 4, 4}};
      recorder.copy_batch(copies);
    });
  }
  CHECK(rig.mock.live_blocks == 2);
  graph.replay(1, stream);
  CHECK(result.download<uint8_t>(8, stream) == std::vector<uint8_t>(8, 7));
  graph.evict(1);
  CHECK(rig.mock.live_blocks == 1);
}

TEST_CASE("a missing key is an error, never a silent no-op") {
  Rig rig;
  const frt::Stream stream = rig.context.create_stream("s");
  frt::Graph graph = rig.context.create_graph("decode", 4);
  CHECK_FAILS(FRT_ERR_NO_VARIANT, "graph 'decode' has no variant 0x0000000000000001",
              graph.replay(1, stream));
  graph.capture(1, rig.appending(1));
  graph.capture(3, rig.appending(1));
  CHECK(graph.try_replay(2, stream) == FRT_ERR_NO_VARIANT);
  CHECK_FAILS(FRT_ERR_NO_VARIANT, "to evict", graph.evict(2));
  CHECK_FAILS(FRT_ERR_INVALID_ARGUMENT, "capacity 0", (void)rig.context.create_graph("g", 0));
  CHECK(rig.context.table().graph_replay(graph, 1, nullptr) == FRT_ERR_INVALID_ARGUMENT);
}

TEST_CASE("a full table evicts the least recently used variant (random use beside a list)") {
  Rig rig;
  const frt::Stream stream = rig.context.create_stream("s");
  const uint32_t capacity = 7;
  frt::Graph graph = rig.context.create_graph("g", capacity);
  std::list<frt_shape_key> reference;  // most recent first
  std::mt19937_64 random(3);
  for (int round = 0; round < 3000; ++round) {
    // Keys that differ in high bits only and keys that are close: both stress the index.
    const uint64_t number = random() % 20;
    const frt_shape_key key = number % 2 ? number << 48 : number;
    const auto at = std::find(reference.begin(), reference.end(), key);
    switch (random() % 4) {
      case 0:
        graph.capture(key, rig.appending(1));
        if (at != reference.end()) {
          reference.erase(at);
        } else if (reference.size() == capacity) {
          reference.pop_back();
        }
        reference.push_front(key);
        break;
      case 1:
        CHECK(caught([&] { graph.evict(key); }).code ==
              (at == reference.end() ? FRT_ERR_NO_VARIANT : FRT_OK));
        if (at != reference.end()) reference.erase(at);
        break;
      default:
        CHECK(graph.has(key) == (at != reference.end()));
        CHECK(graph.try_replay(key, stream) ==
              (at == reference.end() ? FRT_ERR_NO_VARIANT : FRT_OK));
        if (at != reference.end()) {
          reference.erase(at);
          reference.push_front(key);
        }
    }
    CHECK(graph.keys() == Keys(reference.begin(), reference.end()));
    CHECK(graph.variant_count() == reference.size());
  }
  frt_shape_key two[2] = {};
  CHECK(rig.context.table().graph_keys(graph, two, 2) ==
        std::min<std::size_t>(2, reference.size()));
}

TEST_CASE("eviction waits for the last replay of the variant, and only then") {
  Rig rig;
  const frt::Stream used = rig.context.create_stream("used");
  const frt::Stream other = rig.context.create_stream("other");
  frt::Graph graph = rig.context.create_graph("g", 2);
  graph.capture(1, rig.appending(1));
  graph.capture(2, rig.appending(2));
  graph.replay(1, used);
  graph.replay(2, other);
  SUBCASE("by hand") {
    graph.evict(1);
  }
  SUBCASE("because the table is full") {
    graph.replay(2, other);
    graph.capture(3, rig.appending(3));
    CHECK_FALSE(graph.has(1));
  }
  SUBCASE("because the key is captured again") {
    graph.capture(1, rig.appending(9));
  }
  CHECK(std::count(rig.mock.trace.begin(), rig.mock.trace.end(), 1) == 1);
  const int syncs = rig.mock.calls("stream_sync");
  CHECK(syncs == 1);  // not the other stream
  used.sync();
  other.sync();
}

TEST_CASE("evicting a variant that is not in flight waits for nobody") {
  Rig rig;
  const frt::Stream stream = rig.context.create_stream("s");
  frt::Graph graph = rig.context.create_graph("g", 2);
  graph.capture(1, rig.appending(1));
  graph.replay(1, stream);
  stream.sync();
  const int syncs = rig.mock.calls("stream_sync");
  graph.evict(1);
  CHECK(rig.mock.calls("stream_sync") == syncs);
}

TEST_CASE("releasing a graph waits for replays in flight on every stream") {
  Rig rig;
  const frt::Stream a = rig.context.create_stream("a");
  const frt::Stream b = rig.context.create_stream("b");
  frt::Graph graph = rig.context.create_graph("g", 2);
  graph.capture(1, rig.appending(1));
  graph.replay(1, a);
  graph.replay(1, b);
  graph.reset();
  CHECK(rig.mock.pending() == 0);
}

TEST_CASE("a replay records no event") {
  Rig rig;
  const frt::Stream stream = rig.context.create_stream("s");
  frt::Graph graph = rig.context.create_graph("g", 2);
  graph.capture(1, rig.appending(1));
  graph.replay(1, stream);
  CHECK(rig.mock.calls("event_record") == 0);
  CHECK(rig.mock.calls("event_create") == 0);
  CHECK(rig.mock.calls("exec_launch") == 1);
}

TEST_CASE("a capture that fails leaves the table as it was and the stream usable") {
  Rig rig;
  const frt::Stream stream = rig.context.create_stream("s");
  frt::Graph graph = rig.context.create_graph("g", 1);
  graph.capture(1, rig.appending(1));
  const auto fails = [&](frt_status status, const char* text, frt_shape_key key, auto recipe) {
    CHECK_FAILS(status, text, graph.capture(key, recipe));
    CHECK(graph.keys() == Keys{1});
    CHECK(rig.counters().captures == 1);
    graph.replay(1, stream);
    stream.sync();
    CHECK(rig.mock.trace == Ints{1});
    rig.mock.trace.clear();
  };
  const auto throws_error = [&](const frt::Recorder& recorder) {
    rig.append(recorder, {0, 8});
    throw frt::Error(FRT_ERR_CANCELLED, "the user said stop");
  };
  const auto throws_standard = [](const frt::Recorder&) { throw std::runtime_error("oh"); };
  const auto throws_number = [](const frt::Recorder&) { throw 5; };
  for (frt_shape_key key : {1, 2}) {  // replacing, and evicting
    fails(FRT_ERR_CANCELLED, "the user said stop", key, throws_error);
    fails(FRT_ERR_CALLBACK, "oh", key, throws_standard);
    fails(FRT_ERR_CALLBACK, "unknown type", key, throws_number);
    rig.mock.fail("capture_begin", FRT_ERR_DEVICE);
    fails(FRT_ERR_DEVICE, "capture_begin", key, rig.appending(8));
    rig.mock.fail("capture_end", FRT_ERR_UNSUPPORTED);
    fails(FRT_ERR_UNSUPPORTED, "capture_end", key, rig.appending(8));
    rig.mock.fail("append", FRT_ERR_DEVICE);
    fails(FRT_ERR_DEVICE, "mock.append/1", key, rig.appending(8));
  }
  graph.capture(2, rig.appending(2));
  CHECK(graph.keys() == Keys{2});
}

TEST_CASE("callbacks of C that return errors, strange codes, or throw through the table") {
  Rig rig;
  const frt_exec_v1& table = rig.context.table();
  const frt::Graph graph = rig.context.create_graph("g", 1);
  const auto capture = [&](frt_record_fn record) {
    frt_error error{};
    const frt_status status = table.graph_capture(graph, 1, record, nullptr, &error);
    CHECK(status == error.code);
    return error;
  };
  frt_error error = capture([](void*, const frt_recorder*, frt_shape_key, frt_error*) {
    return frt_status{FRT_ERR_MISMATCH};
  });
  CHECK(error.code == FRT_ERR_MISMATCH);
  CHECK(contains(error.message, "graph 'g', key 0x0000000000000001"));
  CHECK(contains(error.message, "FRT_ERR_MISMATCH"));
  error = capture([](void*, const frt_recorder*, frt_shape_key, frt_error* reason) {
    return frt::set_error(reason, FRT_ERR_IO, "no such scale");
  });
  CHECK(error.code == FRT_ERR_IO);
  CHECK(contains(error.message, "no such scale"));
  for (frt_record_fn strange : {frt_record_fn([](void*, const frt_recorder*, frt_shape_key,
                                                 frt_error*) { return frt_status{77}; }),
                                frt_record_fn([](void*, const frt_recorder*, frt_shape_key,
                                                 frt_error*) { return frt_status{-77}; })}) {
    error = capture(strange);
    CHECK(error.code == FRT_ERR_INTERNAL);
    CHECK(contains(error.message, "77, which this version does not know"));
  }
  error = capture([](void*, const frt_recorder*, frt_shape_key, frt_error* reason) {
    frt::set_error(reason, FRT_ERR_DEVICE, "the lid is open");
    return frt_status{-77};
  });
  CHECK(error.code == FRT_ERR_INTERNAL);
  CHECK(contains(error.message, "the lid is open; status -77"));
  error = capture([](void*, const frt_recorder*, frt_shape_key, frt_error*) -> frt_status {
    throw std::runtime_error("thrown in C");
  });
  CHECK(error.code == FRT_ERR_CALLBACK);
  CHECK(contains(error.message, "thrown in C"));
  CHECK(table.graph_capture(graph, 1, nullptr, nullptr, &error) == FRT_ERR_INVALID_ARGUMENT);
  CHECK(graph.variant_count() == 0);
}

TEST_CASE("inside a record callback, waiting and making things is refused") {
  Rig rig;
  const frt::Stream stream = rig.context.create_stream("s");
  const frt::Event event = rig.context.create_event();
  frt::Graph graph = rig.context.create_graph("g", 2);
  draft(graph).declare("x", FRT_BINDING_OPTIONAL);
  graph.capture(1, rig.appending(1));
  frt::Plan plan = rig.create_plan("p");
  plan.add(graph, 1, stream);
  frt::Plan compiled = rig.create_plan("compiled");
  compiled.add(graph, 1, stream);
  compiled.compile();
  graph.capture(2, [&](const frt::Recorder& recorder) {
    const frt_exec_v1& table = rig.context.table();
    constexpr frt_status kBad = FRT_ERR_BAD_STATE;
    CHECK_FAILS(kBad, "record callback", (void)rig.context.alloc(FRT_SPACE_HOST, 1, "b"));
    CHECK_FAILS(kBad, "record callback", (void)rig.context.create_stream("t"));
    CHECK_FAILS(kBad, "record callback", (void)rig.context.create_event());
    CHECK_FAILS(kBad, "record callback", graph.capture(3, rig.appending(1)));
    CHECK_FAILS(kBad, "record callback", graph.evict(1));
    CHECK_FAILS(kBad, "record callback", plan.compile());
    CHECK_FAILS(kBad, "record callback", rig.context.sync());
    CHECK_FAILS(kBad, "record callback", stream.sync());
    CHECK_FAILS(kBad, "record callback", event.sync());
    for (const frt_stream any : {recorder.stream(), stream.handle()}) {
      CHECK(table.graph_replay(graph, 1, any) == kBad);
      CHECK(frt::core::plan_draft()->execute(compiled, any) == kBad);
    }
    CHECK(table.event_record(event, recorder.stream()) == kBad);
    CHECK(table.stream_wait(recorder.stream(), event) == kBad);
    CHECK(frt::core::plan_draft()->execute(plan, recorder.stream()) == kBad);
    table.stream_release(recorder.stream());  // not the user's: ignored
    rig.append(recorder, {0, 2});
  });
  graph.replay(2, stream);
  stream.sync();
  CHECK(rig.mock.trace == Ints{2});
}

TEST_CASE("releases inside a record callback happen when the capture is over") {
  Rig rig;
  frt::Graph graph = rig.context.create_graph("g", 2);
  frt::Graph victim = rig.context.create_graph("victim", 2);
  victim.capture(1, rig.appending(1));
  frt::Stream stream = rig.context.create_stream("s");
  victim.replay(1, stream);
  frt::Buffer buffer = rig.context.alloc(FRT_SPACE_DEVICE, 8, "b");
  frt::Event event = rig.context.create_event();
  frt::Plan plan = rig.create_plan("p");
  plan.add(victim, 1, stream);
  graph.capture(1, [&](const frt::Recorder&) {
    buffer.reset();
    event.reset();
    plan.reset();
    victim.reset();
    stream.reset();
    CHECK(rig.mock.live_blocks == 1);
    CHECK(rig.mock.pending() == 1);
  });
  CHECK(rig.mock.live_blocks == 0);
  CHECK(rig.mock.pending() == 0);
}

TEST_CASE("bindings: declared once and before the first capture, bound by name") {
  Rig rig;
  const frt::Buffer a = rig.context.alloc(FRT_SPACE_DEVICE, 8, "a");
  frt::Graph graph = rig.context.create_graph("g", 2);
  draft(graph).declare("tokens");
  draft(graph).declare("mask", FRT_BINDING_OPTIONAL);
  CHECK_FAILS(FRT_ERR_EXISTS, "tokens", draft(graph).declare("tokens"));
  CHECK_FAILS(FRT_ERR_UNSUPPORTED, "unknown flags", draft(graph).declare("x", 8));
  CHECK_FAILS(FRT_ERR_INVALID_ARGUMENT, "empty name", draft(graph).declare(""));
  CHECK_FAILS(FRT_ERR_NOT_FOUND, "nowhere", draft(graph).bind("nowhere", a));
  CHECK_FAILS(FRT_ERR_NOT_FOUND, "nowhere", (void)draft(graph).bound("nowhere"));
  CHECK(draft(graph).bound("tokens") == nullptr);
  draft(graph).bind("tokens", a);
  CHECK(draft(graph).bound("tokens") == a.handle());
  graph.capture(1, rig.appending(1));
  CHECK_FAILS(FRT_ERR_BAD_STATE, "before the first capture", draft(graph).declare("late"));
}

TEST_CASE(
    "a required binding without a buffer stops replay and compile, an optional one does not") {
  Rig rig;
  const frt::Stream stream = rig.context.create_stream("s");
  const frt::Buffer a = rig.context.alloc(FRT_SPACE_DEVICE, 8, "a");
  frt::Graph graph = rig.context.create_graph("g", 2);
  draft(graph).declare("in", FRT_BINDING_REQUIRED);
  draft(graph).declare("hint", FRT_BINDING_OPTIONAL);
  graph.capture(1, rig.appending(1));
  CHECK_FAILS(FRT_ERR_UNBOUND, "1 required binding(s)", graph.replay(1, stream));
  frt::Plan plan = rig.create_plan("p");
  plan.add(graph, 1, stream);
  CHECK_FAILS(FRT_ERR_UNBOUND, "required binding", plan.compile());
  draft(graph).bind("in", a);
  graph.replay(1, stream);
  plan.compile();
  plan.execute(stream);
  stream.sync();
  CHECK(rig.mock.trace == Ints{1, 1});
}

TEST_CASE("a binding takes another buffer only when no variant holds the address") {
  Rig rig;
  frt::Buffer a = rig.context.alloc(FRT_SPACE_DEVICE, 8, "a");
  const frt::Buffer b = rig.context.alloc(FRT_SPACE_DEVICE, 8, "b");
  frt::Graph graph = rig.context.create_graph("g", 2);
  draft(graph).declare("in");
  draft(graph).bind("in", a);
  draft(graph).bind("in", b);
  draft(graph).bind("in", a);
  graph.capture(1, rig.appending(1));
  CHECK_FAILS(FRT_ERR_BAD_STATE, "bound to buffer 'a' while 1 variant(s)",
              draft(graph).bind("in", b));
  CHECK_NOTHROW(draft(graph).bind("in", a));
  a.reset();
  CHECK(rig.mock.live_blocks == 2);  // the binding keeps it
  graph.evict(1);
  draft(graph).bind("in", b);
  CHECK(rig.mock.live_blocks == 1);
}

TEST_CASE("a foreign executable is adopted, and destroyed if it was handed over") {
  for (const bool owned : {false, true}) {
    Rig rig;
    const frt::Stream stream = rig.context.create_stream("s");
    std::function<void()> native = [&] { rig.mock.trace.push_back(42); };
    frt::Graph graph = rig.context.create_graph("g", 1);
    draft(graph).adopt(7, &native, owned);
    graph.replay(7, stream);
    stream.sync();
    CHECK(rig.mock.trace == Ints{42});
    CHECK(rig.counters().captures == 0);
    graph.capture(8, rig.appending(1));  // evicts it
    CHECK(rig.mock.native_destroyed == (owned ? 1 : 0));
    rig.mock.native_forms = false;
    CHECK_FAILS(FRT_ERR_UNSUPPORTED, "no native executables",
                draft(graph).adopt(9, &native, owned));
    CHECK_FAILS(FRT_ERR_INVALID_ARGUMENT, "null", draft(graph).adopt(9, nullptr, owned));
    CHECK(graph.keys() == Keys{8});
  }
}

TEST_CASE("an eager context calls the recipe at every replay") {
  RigOptions options;
  options.eager = true;
  Rig rig(options);
  CHECK(rig.context.info().eager == 1);
  const frt::Stream stream = rig.context.create_stream("s");
  frt::Graph graph = rig.context.create_graph("g", 2);
  int recorded = 0;
  {
    auto kept = std::make_shared<int>(5);  // the recipe's copy keeps it alive
    graph.capture(1, [&rig, &recorded, kept](const frt::Recorder& recorder) {
      ++recorded;
      CHECK_FALSE(recorder.capturing());
      rig.append(recorder, {0, *kept});
    });
  }
  CHECK(recorded == 0);
  CHECK(rig.mock.calls("capture_begin") == 0);
  graph.replay(1, stream);
  graph.replay(1, stream);
  stream.sync();
  CHECK(recorded == 2);
  CHECK(rig.mock.trace == Ints{5, 5});
  CHECK(rig.mock.calls("exec_launch") == 0);
  CHECK(rig.counters().captures == 1);
  CHECK(rig.counters().replays == 2);

  graph.capture(2, [](const frt::Recorder&) { throw std::runtime_error("bad recipe"); });
  CHECK_FAILS(FRT_ERR_CALLBACK, "bad recipe", graph.replay(2, stream));
  graph.capture(3, rig.appending(3));
  CHECK(graph.keys() == Keys{3, 2});
  graph.replay(3, stream);
  frt::Graph moved = std::move(graph);
  moved.replay(3, stream);
  moved = rig.context.create_graph("h", 1);
  CHECK(rig.mock.pending() == 0);
}

TEST_CASE(
    "a callback of an eager replay cannot take its own graph away, nor replay inside itself") {
  RigOptions options;
  options.eager = true;
  Rig rig(options);
  const frt_exec_v1& table = rig.context.table();
  constexpr frt_status kBad = FRT_ERR_BAD_STATE;
  const frt::Stream stream = rig.context.create_stream("s"), other = rig.context.create_stream("o");
  frt::Graph graph = rig.context.create_graph("g", 1);
  frt::Plan plan = rig.create_plan("p");
  graph.capture(1, [&](const frt::Recorder& recorder) {
    CHECK_FAILS(kBad, "record callback", graph.evict(1));
    CHECK_FAILS(kBad, "record callback", graph.capture(1, rig.appending(1)));
    CHECK_FAILS(kBad, "record callback", plan.compile());
    CHECK(table.graph_replay(graph, 1, recorder.stream()) == kBad);
    CHECK(table.graph_replay(graph, 1, other) == kBad);
    CHECK(frt::core::plan_draft()->execute(plan, other) == kBad);
    throw frt::Error(FRT_ERR_UNSUPPORTED, "and then it fails");
  });
  plan.add(graph, 1, stream);
  plan.compile();
  CHECK_FAILS(FRT_ERR_UNSUPPORTED, "graph 'g', key 0x0000000000000001: and then it fails",
              graph.replay(1, stream));
  CHECK(graph.keys() == Keys{1});
}

TEST_CASE("nothing waits and no event is used inside a record callback, captured or eager") {
  for (const bool eager : {false, true}) {
    CAPTURE(eager);
    RigOptions options;
    options.eager = eager;
    Rig rig(options);
    const frt_exec_v1& table = rig.context.table();
    const frt::Stream stream = rig.context.create_stream("s"),
                      other = rig.context.create_stream("o");
    const frt::Event start = rig.context.create_event(FRT_EVENT_TIMING);
    const frt::Event end = rig.context.create_event(FRT_EVENT_TIMING);
    const frt::Buffer buffer = rig.context.alloc(FRT_SPACE_DEVICE, 16, "b");
    start.record(other);
    end.record(other);
    frt::Graph graph = rig.context.create_graph("g", 1);
    int ran = 0;
    graph.capture(1, [&](const frt::Recorder& recorder) {
      ++ran;
      double ms = 0;
      CHECK(table.context_sync(rig.context) == FRT_ERR_BAD_STATE);
      CHECK(contains(rig.context.last_error(), "context_sync: not allowed inside a record"));
      CHECK(table.stream_sync(recorder.stream()) == FRT_ERR_BAD_STATE);
      CHECK(table.stream_sync(other) == FRT_ERR_BAD_STATE);
      CHECK(contains(rig.context.last_error(), "stream_sync: not allowed inside a record"));
      CHECK(table.event_sync(end) == FRT_ERR_BAD_STATE);
      CHECK(table.event_elapsed(start, end, &ms) == FRT_ERR_BAD_STATE);
      for (const frt_stream each : {recorder.stream(), other.handle()}) {
        CHECK(table.event_record(start, each) == FRT_ERR_BAD_STATE);
        CHECK(contains(rig.context.last_error(), "event_record: not allowed inside a record"));
        CHECK(table.stream_wait(each, end) == FRT_ERR_BAD_STATE);
        CHECK(contains(rig.context.last_error(), "stream_wait: not allowed inside a record"));
      }
      CHECK_FAILS(FRT_ERR_BAD_STATE, "record callback",
                  frt::copy_between(buffer, 0, other, buffer, 8, other, 8));
      rig.append(recorder, {0, 1});
    });
    graph.replay(1, stream);
    CHECK(ran == 1);
    stream.sync();
    end.sync();
    rig.context.sync();
    CHECK(rig.mock.trace == Ints{1});
  }
}

TEST_CASE("what a callback of an eager replay releases goes when the replay is over") {
  for (const bool by_plan : {false, true}) {
    CAPTURE(by_plan);
    RigOptions options;
    options.eager = true;
    Rig rig(options);
    frt::Stream stream = rig.context.create_stream("s");
    const frt::Stream caller = rig.context.create_stream("caller");
    frt::Graph graph = rig.context.create_graph("g", 1);
    frt::Plan plan = rig.create_plan("p");
    frt::Buffer buffer = rig.context.alloc(FRT_SPACE_DEVICE, 8, "b");
    const auto kept = std::make_shared<int>(5);
    graph.capture(1, [&, kept](const frt::Recorder& recorder) {
      plan.reset();
      stream.reset();
      graph.reset();
      buffer.reset();
      CHECK(rig.mock.live_blocks == 1);
      rig.append(recorder, {0, *kept});
      throw frt::Error(FRT_ERR_UNSUPPORTED, "and then it fails");
    });
    plan.add(graph, 1, stream);
    plan.add(graph, 1, stream);
    plan.compile();
    const frt_status status = by_plan ? frt::core::plan_draft()->execute(plan.handle(), caller)
                                      : rig.context.table().graph_replay(graph, 1, caller);
    CHECK(status == FRT_ERR_UNSUPPORTED);
    CHECK(contains(rig.context.last_error(), "graph 'g', key 0x0000000000000001: and then"));
    CHECK(rig.mock.live_blocks == 0);
  }
}

TEST_CASE("a captured and an eager context compute the same") {
  std::vector<std::vector<uint64_t>> results;
  for (const bool eager : {false, true}) {
    RigOptions options;
    options.eager = eager;
    Rig rig(options);
    const frt::Stream stream = rig.context.create_stream("s");
    const frt::Buffer cells = rig.context.alloc(FRT_SPACE_DEVICE, 32, "cells");
    auto* at = cells.pointer<uint64_t>();
    const uint64_t* const sources[] = {at, at + 1};
    frt::Graph graph = rig.context.create_graph("g", 1);
    graph.capture(1, [&](const frt::Recorder& recorder) {
      rig.mix(recorder, {0, 3, at + 1, sources, 1});
      rig.mix(recorder, {0, 5, at + 2, sources, 2});
      recorder.copy(cells, 24, cells, 16, 8);
    });
    cells.upload(std::vector<uint64_t>{1, 2, 3, 4}, stream);
    for (int i = 0; i < 5; ++i) graph.replay(1, stream);
    results.push_back(cells.download<uint64_t>(4, stream));
  }
  CHECK(results[0] == results[1]);
  CHECK(results[0][2] == results[0][3]);
}
