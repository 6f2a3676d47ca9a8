// SPDX-License-Identifier: Apache-2.0
// core_bench - what core adds to the backend's own launch.
//
// The backend does nothing, so a replay through core minus a direct call of exec_launch is core's
// cost: finding the variant, checks, counters. Target: below 100 ns per replay.
//
//   core_bench [--benchmark_* options]
#include <benchmark/benchmark.h>

#include <frt/core/context.hpp>
#include <frt/core/exec_table.hpp>
#include <frt/draft/plan.hpp>
#include <frt/exec.hpp>
#include <string>

#include "null_backend.hpp"

namespace {

// One context with a graph of `variants` and a plan of `nodes`.
struct Setup {
  Setup(uint32_t variants, uint32_t nodes, uint32_t plan_flags) {
    handle = frt::core::open_context(null_backend::table(), nullptr, 0, nullptr, {});
    context = frt::Context(frt::core::exec_table(), handle);
    stream = context.create_stream("s");
    side = context.create_stream("side");
    graph = context.create_graph("g", variants);
    for (uint32_t i = 0; i < variants; ++i) graph.capture(key(i), [](const frt::Recorder&) {});
    plan = {frt::core::plan_draft(), context, "p"};
    for (uint32_t i = 0; i < nodes; ++i) {
      plan.add(graph, key(i % variants), i % 2 ? side : stream);
      if (i) plan.after(i, i - 1);
    }
    if (nodes) plan.compile(plan_flags);
  }
  ~Setup() {
    plan.reset();
    graph.reset();
    side.reset();
    stream.reset();
    frt::core::close_context(handle);
  }
  static frt_shape_key key(uint32_t i) { return frt_key_pack(2, 1, static_cast<uint16_t>(i), 0); }

  frt_context handle;
  frt::Context context;
  frt::Stream stream, side;
  frt::Graph graph;
  frt::Plan plan;
};

void direct_launch(benchmark::State& state) {
  frt_backend_v1 table = null_backend::table();
  benchmark::DoNotOptimize(table);
  const auto exec = null_backend::handle<frt_backend_exec>();
  const auto stream = null_backend::handle<frt_backend_stream>();
  for (auto _ : state) benchmark::DoNotOptimize(table.exec_launch(exec, stream));
}
BENCHMARK(direct_launch);

void replay_same_key(benchmark::State& state) {
  Setup setup(static_cast<uint32_t>(state.range(0)), 0, 0);
  for (auto _ : state) {
    benchmark::DoNotOptimize(setup.graph.try_replay(Setup::key(0), setup.stream));
  }
}
BENCHMARK(replay_same_key)->Arg(1)->Arg(64);

void replay_changing_keys(benchmark::State& state) {
  const auto variants = static_cast<uint32_t>(state.range(0));
  Setup setup(variants, 0, 0);
  uint32_t at = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(setup.graph.try_replay(Setup::key(at), setup.stream));
    at = at + 1 == variants ? 0 : at + 1;
  }
}
BENCHMARK(replay_changing_keys)->Arg(4)->Arg(64)->Arg(1024);

void execute_fused(benchmark::State& state) {
  Setup setup(8, static_cast<uint32_t>(state.range(0)), 0);
  for (auto _ : state) benchmark::DoNotOptimize(setup.plan.try_execute(setup.stream));
}
BENCHMARK(execute_fused)->Arg(2)->Arg(16);

void execute_separate(benchmark::State& state) {
  Setup setup(8, static_cast<uint32_t>(state.range(0)), FRT_PLAN_NO_FUSE);
  for (auto _ : state) benchmark::DoNotOptimize(setup.plan.try_execute(setup.stream));
}
BENCHMARK(execute_separate)->Arg(2)->Arg(16);

void copy_batch(benchmark::State& state) {
  Setup setup(1, 0, 0);
  const auto count = static_cast<uint64_t>(state.range(0));
  const frt::Buffer a = setup.context.alloc(FRT_SPACE_DEVICE, 64 * count, "a");
  const frt::Buffer b = setup.context.alloc(FRT_SPACE_DEVICE, 64 * count, "b");
  std::vector<frt_copy> copies;
  for (uint64_t i = 0; i < count; ++i) copies.push_back({a, 64 * i, b, 64 * i, 64});
  const frt_exec_v1& table = setup.context.table();
  for (auto _ : state) {
    benchmark::DoNotOptimize(table.buffer_copy_batch(copies.data(), count, setup.stream));
  }
}
BENCHMARK(copy_batch)->Arg(1)->Arg(64)->Arg(4096);

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::AddCustomContext("compiler", __VERSION__);
#ifdef NDEBUG
  benchmark::AddCustomContext("assertions", "off");
#else
  benchmark::AddCustomContext("assertions", "on");
#endif
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
