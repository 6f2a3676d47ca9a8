// SPDX-License-Identifier: Apache-2.0
// The plan of the streaming kernel of narrow products: what fits, and that every tile is done once,
// whoever is faster. The kernel's rules (GroupTiles in linear_narrow_weights.cuh) are played with
// groups of random speeds. Runs without a device.
#include "ops/linear_narrow_plan.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

namespace {

using namespace frt::cuda;

alignas(256) uint8_t weights_somewhere[256];

NarrowPart part(frt_weight_format format, int32_t rows, int32_t cols) {
  frt_weight weight{};
  weight.format = format;
  weight.rows = rows;
  weight.cols = cols;
  weight.data = weight.scale = weights_somewhere;
  weight.scale_dtype = format == FRT_WEIGHT_NVFP4 ? FRT_DTYPE_F8_E4M3 : FRT_DTYPE_F32;
  weight.block_rows = weight.block_cols = 128;
  weight.global_scale = 1;
  NarrowPart made;
  REQUIRE(make_narrow_part(weight, made));
  return made;
}

// One group of warps in its n-th tile.
struct Group {
  int first = 0, n = 0, asked = 0;
  bool asks = false;
  double time = 0, speed = 1;
  std::vector<int> queue;  // tile n, if it was handed out
};

// How often each tile was done; `asked`: how often anybody asked.
std::vector<int> play(const NarrowArgs& args, const NarrowPlan& plan, unsigned seed, int& asked) {
  constexpr int kAhead = 2;
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> speeds(0.5, 2.0);
  const int per_block = plan.warps / plan.group, step = args.clusters * per_block;
  std::vector<int> done(static_cast<std::size_t>(args.tiles));
  std::vector<Group> groups;
  for (int place = 0; place < step; ++place) {
    groups.push_back({.first = place,
                      .asks = place / args.clusters < args.asking_groups,
                      .speed = speeds(random),
                      .queue = {}});
  }
  asked = 0;
  const auto own = [&](const Group& group, int n) {
    return group.first + n * step < args.own_tiles;
  };
  const auto at = [&](Group& group, int n) {
    if (own(group, n)) return group.first + n * step;
    if (!group.asks) return args.tiles;
    return group.queue.at(static_cast<std::size_t>(n));  // throws: not asked for early enough
  };
  for (;;) {
    Group* next = nullptr;
    for (Group& group : groups) {
      if (at(group, group.n) < args.tiles && (!next || group.time < next->time)) next = &group;
    }
    if (!next) return done;
    ++done[static_cast<std::size_t>(at(*next, next->n))];
    const bool more = at(*next, next->n + 1) < args.tiles;
    if (next->asks && more && !own(*next, next->n + kAhead)) {
      next->queue.resize(static_cast<std::size_t>(next->n + kAhead), -1);
      next->queue.push_back(args.own_tiles + asked++);
    }
    ++next->n;
    next->time += next->speed;
  }
}

struct Machine {
  const char* name;
  NarrowDevice device;
};
constexpr Machine kMachines[] = {{"132 multiprocessors, clusters", {132, 232448, true}},
                                 {"148 multiprocessors, clusters", {148, 232448, true}},
                                 {"20 multiprocessors, clusters", {20, 232448, true}},
                                 {"128 multiprocessors", {128, 101376, false}},
                                 {"7 multiprocessors", {7, 101376, false}}};

TEST_CASE("every tile is done once") {
  int handed_out = 0;
  for (const Machine& machine : kMachines) {
    for (const frt_weight_format format :
         {FRT_WEIGHT_BF16, FRT_WEIGHT_FP8_BLOCK, FRT_WEIGHT_NVFP4}) {
      for (const int32_t outputs : {17, 5120, 9216, 28517, 34816}) {
        for (const int32_t inputs : {256, 2560, 5120}) {
          for (const int32_t rows : {1, 4, 8, 12, 16}) {
            CAPTURE(machine.name);
            CAPTURE(static_cast<int>(format));
            CAPTURE(outputs);
            CAPTURE(inputs);
            CAPTURE(rows);
            NarrowArgs args;
            args.part_count = 1;
            args.parts[0] = part(format, outputs, inputs);
            args.cols = inputs;
            const NarrowPlan plan = plan_narrow(args, rows, machine.device);
            REQUIRE(plan.rows > 0);
            CHECK(plan.shared_bytes <= static_cast<std::size_t>(machine.device.shared_block));
            CHECK(plan.warps % plan.group == 0);
            if (!plan.tickets) {
              CHECK(args.own_tiles == args.tiles);
              CHECK(args.asking_groups == 0);
            } else {
              ++handed_out;
              // The next tile of a group must be known while it is in the one before.
              CHECK(args.own_tiles >= 2 * args.asking_groups * args.clusters);
              CHECK(args.asking_groups <= plan.warps / plan.group);
              CHECK(args.parts[0].chunks / plan.group >= plan.stages);
            }
            int asked = 0;
            const std::vector<int> done = play(args, plan, static_cast<unsigned>(rows), asked);
            CHECK(std::all_of(done.begin(), done.end(), [](int times) { return times == 1; }));
            // The kernel puts the counter back by this.
            CHECK(asked == (plan.tickets
                                ? args.tiles - args.own_tiles + args.clusters * args.asking_groups
                                : 0));
          }
        }
      }
    }
  }
  CHECK(handed_out > 50);
}

TEST_CASE("few tiles behind the own ones are for few groups of a block") {
  NarrowArgs args;
  args.part_count = 1;
  args.gated = 1;
  args.parts[0] = part(FRT_WEIGHT_FP8_BLOCK, 17408, 5120);
  args.cols = 5120;
  const NarrowPlan plan = plan_narrow(args, 1, kMachines[0].device);
  CHECK(plan.tickets);
  CHECK(args.tiles == 2176);
  CHECK(args.own_tiles == 15 * 132);
  CHECK(args.asking_groups == 2);
}

}  // namespace
