// SPDX-License-Identifier: Apache-2.0
// Plans of core on the device: a random DAG over several streams, fused into one executable and
// unfused, must leave what a sequential evaluation does.
#include <doctest/doctest.h>

#include <frt/draft/plan.hpp>
#include <random>

#include "core_context.hpp"

using namespace frt::cuda_test;

namespace {

constexpr uint32_t kNodes = 20;
constexpr uint32_t kStreams = 4;
constexpr uint32_t kCount = 3000;  // values that go through scratch memory, per node

}  // namespace

TEST_CASE("plans: fused, unfused and eager give what a sequential evaluation gives") {
  FRT_NEEDS_DEVICE();
  std::mt19937 random(11);
  for (int round = 0; round < 6; ++round) {
    CoreContext core(round == 5);
    std::vector<std::vector<uint32_t>> dependencies(kNodes);
    for (uint32_t node = 1; node < kNodes; ++node) {
      for (uint32_t other = 0; other < node; ++other) {
        if (random() % 5 == 0) dependencies[node].push_back(other);
      }
    }
    std::vector<frt::Stream> streams;
    for (uint32_t i = 0; i < kStreams; ++i) streams.push_back(core->create_stream("s"));
    const frt::Buffer cells = core->alloc(FRT_SPACE_DEVICE, 4 * kNodes, "cells");
    const frt::Buffer rows = core->alloc(FRT_SPACE_DEVICE, 4 * kNodes * kCount, "rows");
    frt::Graph graph = core->create_graph("g", kNodes);
    for (uint32_t node = 0; node < kNodes; ++node) {
      const uint32_t pause = random() % 3 * 50;
      graph.capture(node, [&, node, pause](const frt::Recorder& recorder) {
        if (!dependencies[node].empty()) {
          recorder.copy(cells, 4 * node, cells, 4 * dependencies[node].back(), 4);
        }
        StepArgs step;
        step.add = node + 1;
        step.microseconds = pause;
        step.value = cells.pointer<uint32_t>() + node;
        core.step(recorder, step);
        if (node % 2) return;
        ThroughScratchArgs through;
        through.value = 1000 * node;
        through.microseconds = pause;
        through.count = kCount;
        through.out = rows.pointer<uint32_t>() + node * kCount;
        core.through_scratch(recorder, through);
      });
    }
    frt::Plan plan(frt::core::plan_draft(), *core, "p");
    for (uint32_t node = 0; node < kNodes; ++node) {
      plan.add(graph, node, streams[random() % kStreams]);
      for (const uint32_t other : dependencies[node]) plan.after(node, other);
    }
    std::vector<uint32_t> expected(kNodes, 0);
    cells.upload(expected, streams[0]);
    for (const uint32_t flags : {0u, FRT_PLAN_NO_FUSE, 0u}) {
      plan.compile(flags);
      CHECK(plan.fused() == (flags == 0 && round != 5));
      for (int repeat = 0; repeat < 3; ++repeat) {
        const frt::Recorder eager(streams[0]);
        eager.fill(rows, 0, rows.bytes(), 0xFF);
        plan.execute(streams[0]);
        for (uint32_t node = 0; node < kNodes; ++node) {
          const auto& before = dependencies[node];
          const uint32_t base = before.empty() ? expected[node] : expected[before.back()];
          expected[node] = base * 3 + node + 1;
        }
        CHECK(cells.download<uint32_t>(kNodes, streams[0]) == expected);
        const auto values = rows.download<uint32_t>(kNodes * kCount, streams[0]);
        uint32_t wrong = 0;
        for (uint32_t i = 0; i < values.size(); ++i) {
          const uint32_t node = i / kCount;
          wrong += values[i] != (node % 2 ? ~0u : 1000 * node + i % kCount);
        }
        CHECK(wrong == 0);
      }
    }
  }
}
