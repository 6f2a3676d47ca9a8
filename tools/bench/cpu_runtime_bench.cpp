// SPDX-License-Identifier: Apache-2.0
// What the CPU backend itself costs, without any operator: fork and join of the workers, launch of
// an executable, hand-over between streams, waking up after a pause. A decode step is one launch
// of some hundreds of nodes, so the fork-join time per node is what a model feels.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "device.hpp"
#include "event.hpp"
#include "graph.hpp"
#include "stream.hpp"

namespace {

using namespace frt::cpu;
using Clock = std::chrono::steady_clock;

DeviceOptions threads(int64_t count) {
  DeviceOptions options;
  options.threads = static_cast<int>(count);
  return options;
}

// An executable of `nodes` nodes, each one fork and join of `tasks` empty tasks.
std::unique_ptr<Exec> record(Stream& stream, int64_t nodes, int64_t tasks) {
  stream.capture_begin();
  for (int64_t i = 0; i < nodes; ++i) {
    stream.submit(make_node([tasks](Pool& pool, std::byte*) noexcept {
      pool.run(tasks, [](int64_t task, int) { benchmark::DoNotOptimize(task); });
    }));
  }
  return stream.capture_end();
}

void busy(std::chrono::nanoseconds time) {
  const auto end = Clock::now() + time;
  while (Clock::now() < end) relax();
}

// Empty tasks, back to back: the owner mostly takes them all itself.
void fork_join_empty(benchmark::State& state) {
  Pool pool(static_cast<int>(state.range(0)));
  for (auto _ : state) {
    pool.run(state.range(1), [](int64_t task, int) { benchmark::DoNotOptimize(task); });
  }
}
BENCHMARK(fork_join_empty)->ArgNames({"threads", "tasks"})->ArgsProduct({{1, 2}, {2, 16}});

// Durations of single iterations. Their median and minimum stand beside the mean because a
// machine that is doing something else at the time mostly spoils the mean.
class Samples {
 public:
  explicit Samples(benchmark::State& state) : state_(state) { seconds_.reserve(kCapacity); }
  ~Samples() {
    if (seconds_.empty()) return;
    std::sort(seconds_.begin(), seconds_.end());
    state_.counters["min_ns"] = seconds_.front() * 1e9;
    state_.counters["p50_ns"] = seconds_[seconds_.size() / 2] * 1e9;
  }
  template <class Body>
  void measure(Body&& body) {
    const auto begin = Clock::now();
    body();
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    state_.SetIterationTime(seconds);
    if (seconds_.size() < kCapacity) seconds_.push_back(seconds);
  }

 private:
  static constexpr std::size_t kCapacity = 1 << 20;
  benchmark::State& state_;
  std::vector<double> seconds_;
};

// One task of 10 us per worker: what remains above 10 us is the price of fork and join.
void fork_join_ten_us(benchmark::State& state) {
  const auto workers = state.range(0);
  Pool pool(static_cast<int>(workers));
  Samples samples(state);
  for (auto _ : state) {
    samples.measure(
        [&] { pool.run(workers, [](int64_t, int) { busy(std::chrono::microseconds(10)); }); });
  }
}
BENCHMARK(fork_join_ten_us)->ArgName("threads")->Arg(1)->Arg(2)->UseManualTime();

// Submission alone: what the launching thread pays while the stream is busy anyway.
void submit_launch(benchmark::State& state) {
  Device device(threads(1));
  Stream stream(device, 0);
  const auto exec = record(stream, 1, 1);
  int64_t in_flight = 0;
  for (auto _ : state) {
    stream.launch(*exec);
    if (++in_flight == 512) {
      state.PauseTiming();
      stream.sync();
      in_flight = 0;
      state.ResumeTiming();
    }
  }
  stream.sync();
}
BENCHMARK(submit_launch);

// Launch and wait: the round trip between two threads that are both awake.
void launch_and_sync(benchmark::State& state) {
  Device device(threads(state.range(0)));
  Stream stream(device, 0);
  const auto exec = record(stream, state.range(1), state.range(0));
  Samples samples(state);
  for (auto _ : state) {
    samples.measure([&] {
      stream.launch(*exec);
      stream.sync();
    });
  }
}
BENCHMARK(launch_and_sync)
    ->ArgNames({"threads", "nodes"})
    ->Args({1, 1})
    ->Args({1, 1000})
    ->Args({2, 1})
    ->Args({2, 1000})
    ->UseManualTime();

// The same after a pause of a millisecond, when everybody sleeps.
void launch_after_pause(benchmark::State& state) {
  Device device(threads(state.range(0)));
  Stream stream(device, 0);
  const auto exec = record(stream, 1, state.range(0));
  Samples samples(state);
  for (auto _ : state) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    samples.measure([&] {
      stream.launch(*exec);
      stream.sync();
    });
  }
}
BENCHMARK(launch_after_pause)->ArgName("threads")->Arg(1)->Arg(2)->UseManualTime();

// Two streams that hand over to each other through events, 100 times per iteration.
void event_hand_over(benchmark::State& state) {
  Device device(threads(1));
  Stream first(device, 0);
  Stream second(device, 0);
  Event event(device, 0);
  const auto exec = record(first, 1, 1);
  for (auto _ : state) {
    for (int i = 0; i < 100; ++i) {
      Stream& stream = i % 2 ? second : first;
      stream.wait(event);
      stream.launch(*exec);
      stream.record(event);
    }
    event.sync();
  }
  device.sync();
  state.SetItemsProcessed(state.iterations() * 100);
}
BENCHMARK(event_hand_over)->UseRealTime();

}  // namespace

BENCHMARK_MAIN();
