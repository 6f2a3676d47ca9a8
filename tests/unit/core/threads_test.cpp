// SPDX-License-Identifier: Apache-2.0
// The [any] functions, called from several threads while one thread drives the context. Proves
// something under ThreadSanitizer; elsewhere it checks that the answers stay sane.
#include <atomic>
#include <thread>

#include "rig.hpp"

TEST_CASE("any-tagged functions may be called while a driver works") {
  Rig rig;
  const frt_exec_v1& table = rig.context.table();
  const frt::Stream stream = rig.context.create_stream("s");
  const frt::Buffer shared = rig.context.alloc(FRT_SPACE_DEVICE, 64, "shared");
  frt::Graph graph = rig.context.create_graph("g", 4);
  graph.capture(1, rig.appending(1));
  frt::Plan plan = rig.create_plan("p");
  plan.add(graph, 1, stream);
  plan.compile();

  constexpr int kThreads = 3;
  std::atomic<bool> stop{false};
  std::atomic<uint32_t> retained{0};
  std::atomic<uint32_t> wrong{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      uint64_t last_replays = 0;
      while (!stop.load()) {
        frt_counters counters{};
        counters.struct_size = sizeof(counters);
        frt_context_info info{};
        info.struct_size = sizeof(info);
        frt_buffer_info buffer{};
        buffer.struct_size = sizeof(buffer);
        bool good = table.context_counters(rig.handle, &counters) == FRT_OK;
        good = good && counters.replays >= last_replays;
        last_replays = counters.replays;
        good = good && table.context_info(rig.handle, &info) == FRT_OK;
        good = good && table.buffer_info(shared, &buffer) == FRT_OK && buffer.bytes == 64;
        good = good && table.stream_native(stream) == nullptr;
        good = good && table.stream_backend(stream) != nullptr;
        good = good && table.graph_variant_count(graph) <= 4;
        good = good && frt::core::plan_draft()->fused(plan) <= 1;
        if (retained.load() < 1000) {
          table.buffer_retain(shared);
          ++retained;
        }
        if (!good) ++wrong;
        std::this_thread::yield();
      }
    });
  }
  for (int i = 0; i < 2000; ++i) {
    CHECK(graph.try_replay(1, stream) == FRT_OK);
    CHECK(plan.try_execute(stream) == FRT_OK);
    if (i % 50 == 0) {
      graph.capture(2 + static_cast<frt_shape_key>(i / 50 % 3), rig.appending(2));
      const frt::Buffer passing = rig.context.alloc(FRT_SPACE_HOST, 64, "passing");
      frt::Recorder(stream).fill(passing, 0, 64, 1);
      stream.sync();
      plan.compile(i % 100 ? FRT_PLAN_NO_FUSE : 0u);
    }
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  stream.sync();
  CHECK(wrong == 0);
  for (uint32_t i = 0; i < retained.load(); ++i) table.buffer_release(shared);
}
