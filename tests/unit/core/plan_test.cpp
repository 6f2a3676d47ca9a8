// SPDX-License-Identifier: Apache-2.0
// Plans are checked against their definition: with random DAGs over random streams, run by a mock
// that interleaves streams at random, every node must come after its dependencies, after what the
// executing stream held, and before what it gets later; and values must equal those of a
// sequential evaluation.
#include <algorithm>
#include <numeric>
#include <random>

#include "rig.hpp"

namespace {

using Ints = std::vector<int32_t>;

// A DAG whose node i mixes the cells of its dependencies into cell i.
struct Dag {
  std::vector<std::vector<uint32_t>> dependencies;
  std::vector<uint32_t> names;  // the order in which nodes are added: not topological

  static Dag random(std::mt19937& random, uint32_t size) {
    Dag dag;
    dag.dependencies.resize(size);
    for (uint32_t node = 1; node < size; ++node) {
      for (uint32_t other = 0; other < node; ++other) {
        if (random() % 4 == 0) dag.dependencies[node].push_back(other);
      }
    }
    dag.names.resize(size);
    std::iota(dag.names.begin(), dag.names.end(), 0u);
    std::shuffle(dag.names.begin(), dag.names.end(), random);
    return dag;
  }

  void evaluate(std::vector<uint64_t>& cells) const {
    for (std::size_t node = 0; node < dependencies.size(); ++node) {
      uint64_t sum = node + 1;
      for (uint32_t other : dependencies[node]) sum += cells[other];
      cells[node] = 31 * cells[node] + sum;
    }
  }
};

struct Machine {
  explicit Machine(const RigOptions& options, uint32_t cells_count, uint32_t stream_count)
      : rig(options) {
    for (uint32_t i = 0; i < stream_count; ++i) {
      streams.push_back(rig.context.create_stream("s" + std::to_string(i)));
    }
    cells = rig.context.alloc(FRT_SPACE_DEVICE, 8 * cells_count, "cells");
    graph = rig.context.create_graph("g", cells_count);
  }

  // Captures node i under key i.
  void capture(const Dag& dag) {
    auto* at = cells.pointer<uint64_t>();
    sources.resize(dag.dependencies.size());
    for (uint32_t node = 0; node < dag.dependencies.size(); ++node) {
      for (uint32_t other : dag.dependencies[node]) sources[node].push_back(at + other);
      graph.capture(node, [this, node, at](const frt::Recorder& recorder) {
        rig.append(recorder, {0, static_cast<int32_t>(node)});
        rig.mix(recorder, {0, static_cast<int32_t>(node) + 1, at + node, sources[node].data(),
                           static_cast<uint32_t>(sources[node].size())});
      });
    }
  }

  frt::Plan make_plan(const Dag& dag, std::mt19937& random) {
    frt::Plan plan = rig.create_plan("dag");
    std::vector<uint32_t> index(dag.names.size());
    for (uint32_t name : dag.names) {
      index[name] = plan.add(graph, name, streams[random() % streams.size()]);
    }
    for (uint32_t node = 0; node < dag.names.size(); ++node) {
      for (uint32_t other : dag.dependencies[node]) plan.after(index[node], index[other]);
    }
    return plan;
  }

  Rig rig;
  std::vector<frt::Stream> streams;
  std::vector<std::vector<const uint64_t*>> sources;
  frt::Buffer cells;
  frt::Graph graph;
};

}  // namespace

TEST_CASE("random DAGs run in an order that respects every dependency, fused and not") {
  int fused_runs = 0;
  for (uint32_t seed = 0; seed < 150; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    const uint32_t size = 1 + random() % 12;
    const Dag dag = Dag::random(random, size);
    RigOptions options;
    options.seed = seed;
    options.eager = seed % 5 == 4;
    options.compose = seed % 3 != 2;
    Machine machine(options, size, 1 + random() % 4);
    machine.capture(dag);
    frt::Plan plan = machine.make_plan(dag, random);
    const bool no_fuse = seed % 2 == 1;
    plan.compile(no_fuse ? FRT_PLAN_NO_FUSE : 0);
    CHECK(plan.fused() == (!no_fuse && options.compose && !options.eager));
    fused_runs += plan.fused();

    std::vector<uint64_t> expected(size, 7);
    const frt::Stream& caller = machine.streams[random() % machine.streams.size()];
    machine.cells.upload(expected, caller);
    for (int execution = 0; execution < 3; ++execution) {  // back to back, all in flight
      machine.rig.append(frt::Recorder(caller), {0, -1});
      plan.execute(caller);
      machine.rig.append(frt::Recorder(caller), {0, -2});
      dag.evaluate(expected);
    }
    CHECK(machine.cells.download<uint64_t>(size, caller) == expected);

    const Ints& trace = machine.rig.mock.trace;
    REQUIRE(trace.size() == 3 * (size + 2));
    for (int execution = 0; execution < 3; ++execution) {
      const auto begin = trace.begin() + execution * static_cast<int>(size + 2);
      CHECK(*begin == -1);
      CHECK(*(begin + size + 1) == -2);
      const auto position = [&](uint32_t node) {
        return std::find(begin, begin + size + 2, static_cast<int32_t>(node));
      };
      for (uint32_t node = 0; node < size; ++node) {
        REQUIRE(position(node) != begin + size + 2);
        for (uint32_t other : dag.dependencies[node]) CHECK(position(other) < position(node));
      }
    }
    CHECK(machine.rig.counters().replays == 3 * size);
  }
  CHECK(fused_runs > 20);
}

TEST_CASE("a fused plan is one launch; separate launches give the same values") {
  std::vector<std::vector<uint64_t>> results;
  for (const uint32_t flags : {0u, FRT_PLAN_NO_FUSE}) {
    std::mt19937 random(11);
    const Dag dag = Dag::random(random, 9);
    Machine machine({}, 9, 3);
    machine.capture(dag);
    frt::Plan plan = machine.make_plan(dag, random);
    plan.compile(flags);
    const int events = machine.rig.mock.calls("event_create");
    CHECK((events == 0) == plan.fused());
    machine.cells.upload(std::vector<uint64_t>(9, 1), machine.streams[0]);
    plan.execute(machine.streams[0]);
    CHECK(machine.rig.mock.calls("exec_launch") == (plan.fused() ? 1 : 9));
    CHECK(machine.rig.mock.calls("event_create") == events);  // none is made while executing
    results.push_back(machine.cells.download<uint64_t>(9, machine.streams[0]));
  }
  CHECK(results[0] == results[1]);
}

TEST_CASE("a backend that cannot fuse this DAG gets separate launches; other errors are errors") {
  Rig rig;
  const frt::Stream stream = rig.context.create_stream("s");
  frt::Graph graph = rig.context.create_graph("g", 1);
  graph.capture(1, rig.appending(1));
  frt::Plan plan = rig.create_plan("p");
  plan.add(graph, 1, stream);
  rig.mock.fail("exec_compose", FRT_ERR_UNSUPPORTED);
  plan.compile();
  CHECK_FALSE(plan.fused());
  plan.execute(stream);
  stream.sync();
  CHECK(rig.mock.trace == Ints{1});
  rig.mock.fail("exec_compose", FRT_ERR_OUT_OF_MEMORY);
  CHECK_FAILS(FRT_ERR_OUT_OF_MEMORY, "plan 'p': fusing", plan.compile());
  CHECK(plan.try_execute(stream) == FRT_ERR_BAD_STATE);
  rig.mock.fail("event_create", FRT_ERR_DEVICE);
  CHECK_FAILS(FRT_ERR_DEVICE, "making its events", plan.compile(FRT_PLAN_NO_FUSE));
}

TEST_CASE("compile rejects circles, unknown nodes, missing variants, emptiness, unknown flags") {
  Rig rig;
  const frt::Stream stream = rig.context.create_stream("s");
  frt::Graph graph = rig.context.create_graph("g", 4);
  graph.capture(1, rig.appending(1));

  frt::Plan empty = rig.create_plan("empty");
  CHECK_FAILS(FRT_ERR_INVALID_ARGUMENT, "no nodes", empty.compile());

  frt::Plan plan = rig.create_plan("p");
  for (int i = 0; i < 4; ++i) plan.add(graph, 1, stream);
  CHECK_FAILS(FRT_ERR_UNSUPPORTED, "unknown flags", plan.compile(8));
  plan.after(1, 2);
  plan.after(2, 3);
  plan.after(2, 3);  // twice is once
  plan.compile();
  plan.execute(stream);
  plan.after(3, 1);
  CHECK_FAILS(FRT_ERR_CYCLE, "nodes 1, 2, 3", plan.compile());
  CHECK(plan.try_execute(stream) == FRT_ERR_BAD_STATE);

  frt::Plan self = rig.create_plan("self");
  self.after(self.add(graph, 1, stream), 0);
  CHECK_FAILS(FRT_ERR_CYCLE, "nodes 0", self.compile());

  frt::Plan unknown = rig.create_plan("unknown");
  unknown.add(graph, 1, stream);
  unknown.after(0, 7);
  CHECK_FAILS(FRT_ERR_OUT_OF_RANGE, "node 7", unknown.compile());
  frt::Plan huge = rig.create_plan("huge");
  huge.add(graph, 1, stream);
  huge.after(UINT32_MAX, 0);
  CHECK_FAILS(FRT_ERR_OUT_OF_RANGE, "node 4294967295", huge.compile());

  frt::Plan missing = rig.create_plan("missing");
  missing.add(graph, 1, stream);
  missing.add(graph, 2, stream);
  missing.add(graph, 3, stream);
  CHECK_FAILS(FRT_ERR_NO_VARIANT,
              "node 1 (graph 'g', key 0x0000000000000002), node 2 (graph 'g', key "
              "0x0000000000000003)",
              missing.compile());
}

TEST_CASE("a plan is compiled before it is executed, and again after it was changed") {
  Rig rig;
  const frt::Stream stream = rig.context.create_stream("s");
  frt::Graph graph = rig.context.create_graph("g", 4);
  graph.capture(1, rig.appending(1));
  frt::Plan plan = rig.create_plan("p");
  plan.add(graph, 1, stream);
  CHECK_FAILS(FRT_ERR_BAD_STATE, "call compile first", plan.execute(stream));
  plan.compile();
  plan.execute(stream);
  plan.add(graph, 1, stream);
  CHECK_FAILS(FRT_ERR_BAD_STATE, "not compiled", plan.execute(stream));
  plan.compile();
  plan.execute(stream);
  stream.sync();
  CHECK(rig.mock.trace == Ints{1, 1, 1});
}

TEST_CASE("a plan that lost a variant refuses to run until it is compiled again") {
  for (const uint32_t flags : {0u, FRT_PLAN_NO_FUSE}) {
    Rig rig;
    const frt::Stream stream = rig.context.create_stream("s");
    const frt::Stream side = rig.context.create_stream("side");
    frt::Graph graph = rig.context.create_graph("g", 2);
    graph.capture(1, rig.appending(1));
    graph.capture(2, rig.appending(2));
    frt::Plan plan = rig.create_plan("p");
    plan.add(graph, 1, side);
    plan.compile(flags);
    plan.execute(stream);

    graph.evict(2);  // a variant it does not use
    plan.execute(stream);

    SUBCASE("evicted: in flight it is waited for") {
      graph.evict(1);
    }
    SUBCASE("captured again") {
      graph.capture(1, rig.appending(1));
    }
    SUBCASE("pushed out by new ones") {
      graph.capture(3, rig.appending(3));
      graph.capture(4, rig.appending(4));
    }
    CHECK(rig.mock.trace == Ints{1, 1});
    CHECK_FAILS(FRT_ERR_BAD_STATE, "graph 'g' lost its variant 0x0000000000000001",
                plan.execute(stream));
    graph.capture(1, rig.appending(5));
    CHECK(plan.try_execute(stream) == FRT_ERR_BAD_STATE);
    plan.compile(flags);
    plan.execute(stream);
    stream.sync();
    CHECK(rig.mock.trace == Ints{1, 1, 5});
  }
}

TEST_CASE("a plan outlives the handles of its graphs and streams") {
  Rig rig;
  const frt::Stream caller = rig.context.create_stream("caller");
  frt::Stream side = rig.context.create_stream("side");
  frt::Graph graph = rig.context.create_graph("g", 1);
  graph.capture(1, rig.appending(1));
  frt::Plan plan = rig.create_plan("p");
  plan.add(graph, 1, side);
  plan.compile(FRT_PLAN_NO_FUSE);
  side.reset();
  plan.execute(caller);
  caller.sync();
  CHECK(rig.mock.trace == Ints{1});
  graph.reset();
  CHECK_FAILS(FRT_ERR_BAD_STATE, "lost its variant", plan.execute(caller));
  CHECK_FAILS(FRT_ERR_NO_VARIANT, "graph 'g'", plan.compile());
}

TEST_CASE("releasing a plan waits for its work") {
  for (const uint32_t flags : {0u, FRT_PLAN_NO_FUSE}) {
    Rig rig;
    const frt::Stream stream = rig.context.create_stream("s");
    const frt::Stream side = rig.context.create_stream("side");
    frt::Graph graph = rig.context.create_graph("g", 1);
    graph.capture(1, rig.appending(1));
    frt::Plan plan = rig.create_plan("p");
    plan.add(graph, 1, side);
    plan.compile(flags);
    plan.execute(stream);
    plan.reset();  // the rig checks that no event or executable went in flight
    CHECK(rig.mock.pending() == 0);
  }
}

TEST_CASE("after a failed launch the stream is still ordered behind what did start") {
  Rig rig;
  const frt::Stream stream = rig.context.create_stream("s");
  const frt::Stream side = rig.context.create_stream("side");
  frt::Graph graph = rig.context.create_graph("g", 2);
  graph.capture(1, rig.appending(1));
  graph.capture(2, rig.appending(2));
  frt::Plan plan = rig.create_plan("p");
  plan.add(graph, 1, side);
  plan.after(plan.add(graph, 2, side), 0);
  plan.compile(FRT_PLAN_NO_FUSE);
  rig.mock.fail("exec_launch", FRT_OK);
  rig.mock.fail("exec_launch", FRT_ERR_DEVICE);
  CHECK_FAILS(FRT_ERR_DEVICE, "exec_launch", plan.execute(stream));
  rig.append(frt::Recorder(stream), {0, 9});
  stream.sync();
  CHECK(rig.mock.trace == Ints{1, 9});
  rig.mock.fail("event_record", FRT_ERR_DEVICE);
  CHECK_FAILS(FRT_ERR_DEVICE, "event_record", plan.execute(stream));
  rig.mock.fail("event_wait", FRT_ERR_DEVICE);
  CHECK_FAILS(FRT_ERR_DEVICE, "event_wait", plan.execute(stream));
}
