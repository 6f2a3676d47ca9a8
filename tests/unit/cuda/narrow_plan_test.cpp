// SPDX-License-Identifier: Apache-2.0
// The plan of the streaming kernel of narrow products: what fits, and that every tile is done once,
// whoever is faster: GroupTiles, which the kernel goes by, is played with groups of random speeds.
// Runs without a device.
#include "ops/linear_narrow_plan.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <random>
#include <vector>

namespace {

using namespace frt::cuda;

constexpr int kUnknown = -1;
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
  int tile = 0, n = 0;
  double time = 0, speed = 1;
  std::array<int, kTileQueue> queue{};
};

// How often each tile was done; `handed_out`: the numbers behind the dealt ones, in their order.
std::vector<int> play(const NarrowArgs& args, const NarrowPlan& plan, unsigned seed,
                      int& handed_out) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> speeds(0.5, 2.0);
  const int step = args.clusters * (plan.warps / plan.group);
  std::vector<int> done(static_cast<std::size_t>(args.tiles));
  std::vector<Group> groups;
  for (int place = 0; place < step; ++place) {
    Group group{.tile = place, .speed = speeds(random)};
    group.queue.fill(kUnknown);
    groups.push_back(group);
  }
  handed_out = 0;
  for (;;) {
    const auto busy = [&](const Group& group) { return group.tile < args.tiles; };
    Group* now = nullptr;
    for (Group& group : groups) {
      if (busy(group) && (!now || group.time < now->time)) now = &group;
    }
    if (!now) return done;
    const int place = static_cast<int>(now - groups.data());
    const GroupTiles tiles{place, step, place / args.clusters < args.asking_groups,
                           now->queue.data()};
    ++done[static_cast<std::size_t>(now->tile)];
    const int next = tiles.at(args, now->n + 1);
    if (next == kUnknown) FAIL("a tile was not asked for early enough");
    if (tiles.asks && tiles.asks_now(args, now->n, next)) {
      now->queue[static_cast<std::size_t>((now->n + kTilesAhead) % kTileQueue)] =
          args.dealt_tiles + handed_out++;
    }
    now->tile = next;
    ++now->n;
    now->time += now->speed;
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
            const bool hands_out = args.asking_groups > 0;
            if (!hands_out) {
              CHECK(args.dealt_tiles == args.tiles);
            } else {
              ++handed_out;
              // A group asks two tiles ahead, so it has two of its own.
              CHECK(args.dealt_tiles >= 2 * args.asking_groups * args.clusters);
              CHECK(args.asking_groups <= plan.warps / plan.group);
              CHECK(args.parts[0].chunks / plan.group >= plan.stages);
            }
            int asked = 0;
            const std::vector<int> done = play(args, plan, static_cast<unsigned>(rows), asked);
            CHECK(std::all_of(done.begin(), done.end(), [](int times) { return times == 1; }));
            // By this the kernel puts the counter back.
            if (hands_out) CHECK(args.dealt_tiles + asked - 1 == last_handed_out(args));
            if (!hands_out) CHECK(asked == 0);
          }
        }
      }
    }
  }
  CHECK(handed_out > 50);
}

struct Product {
  frt_weight_format format;
  int32_t outputs, inputs, rows;
  uint32_t gated;
};

TEST_CASE("few tiles behind the dealt ones are for few groups of a block") {
  NarrowArgs args;
  args.part_count = 1;
  args.gated = 1;
  args.parts[0] = part(FRT_WEIGHT_FP8_BLOCK, 17408, 5120);
  args.cols = 5120;
  plan_narrow(args, 1, kMachines[0].device);
  CHECK(args.tiles == 2176);
  CHECK(args.dealt_tiles == 15 * 132);
  CHECK(args.asking_groups == 2);
}

// What frt-plugin-check compares on a device (tests/conformance/cases_linear.cpp) must be handed
// out there.
TEST_CASE("the large cases of conformance are handed out") {
  for (const Product& product : {Product{FRT_WEIGHT_BF16, 28517, 1280, 3, 0},
                                 {FRT_WEIGHT_FP8_BLOCK, 28517, 2560, 1, 0},
                                 {FRT_WEIGHT_FP8_BLOCK, 28517, 2560, 12, 0},
                                 {FRT_WEIGHT_BF16, 14259, 1280, 2, 1},
                                 {FRT_WEIGHT_FP8_BLOCK, 14259, 2560, 1, 1}}) {
    for (const Machine& machine : kMachines) {
      CAPTURE(machine.name);
      CAPTURE(product.outputs);
      CAPTURE(product.rows);
      NarrowArgs args;
      args.part_count = 1;
      args.gated = product.gated;
      args.parts[0] = part(product.format, product.outputs, product.inputs);
      args.cols = product.inputs;
      const NarrowPlan plan = plan_narrow(args, product.rows, machine.device);
      CHECK(plan.rows == product.rows);
      CHECK(args.asking_groups > 0);
    }
  }
}

TEST_CASE("what is ahead decides how much of the ring is filled before x") {
  const auto early = [](frt_weight_format format, int32_t rows, NarrowAhead ahead) {
    NarrowArgs args;
    args.part_count = 1;
    args.parts[0] = part(format, 5120, 5120);
    args.cols = 5120;
    plan_narrow(args, rows, kMachines[0].device, ahead);
    return args.early_stages;
  };
  CHECK(early(FRT_WEIGHT_BF16, 1, NarrowAhead::kProduct) == kNarrowStages);
  CHECK(early(FRT_WEIGHT_BF16, 1, NarrowAhead::kOther) == kNarrowStages - 1);
  CHECK(early(FRT_WEIGHT_FP8_BLOCK, 1, NarrowAhead::kProduct) == 3);
  CHECK(early(FRT_WEIGHT_FP8_BLOCK, 1, NarrowAhead::kOther) == 3);
  // A short ring is filled in any case.
  CHECK(early(FRT_WEIGHT_BF16, 16, NarrowAhead::kOther) ==
        early(FRT_WEIGHT_BF16, 16, NarrowAhead::kProduct));
}

}  // namespace
