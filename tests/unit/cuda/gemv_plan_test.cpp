// SPDX-License-Identifier: Apache-2.0
// The plan of the streaming kernel of GEMVs: what fits, and that every tile is done once,
// whoever is faster: GroupTiles, which the kernel goes by, is played with groups of random speeds.
// Runs without a device.
#include "ops/linear/gemv_plan.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <random>
#include <vector>

namespace {

using namespace frt::cuda;

constexpr int kUnknown = -1;
constexpr frt_weight_format kFp8Block = FRT_WEIGHT_FP8_BLOCK(FRT_DTYPE_F32, 128, 128);
alignas(256) uint8_t weights_somewhere[256];

GemvPart part(frt_weight_format format, int32_t rows, int32_t cols) {
  frt_weight weight{};
  weight.format = format;
  weight.rows = rows;
  weight.cols = cols;
  weight.data = weight.scale = weights_somewhere;
  weight.global_scale = 1;
  GemvPart made;
  REQUIRE(make_gemv_part(weight, made));
  return made;
}

// One group of warps in its n-th tile.
struct Group {
  int tile = 0, n = 0;
  double time = 0, speed = 1;
  std::array<int, kTileQueue> queue{};
};

// How often each tile was done; `counted`: the dynamic ones, behind the static ones, in their
// order.
std::vector<int> play(const GemvArgs& args, const GemvPlan& plan, unsigned seed, int& counted) {
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
  counted = 0;
  for (;;) {
    const auto busy = [&](const Group& group) { return group.tile < args.tiles; };
    Group* now = nullptr;
    for (Group& group : groups) {
      if (busy(group) && (!now || group.time < now->time)) now = &group;
    }
    if (!now) return done;
    const int place = static_cast<int>(now - groups.data());
    const GroupTiles tiles{place, step, place / args.clusters < args.dynamic_groups,
                           now->queue.data()};
    ++done[static_cast<std::size_t>(now->tile)];
    const int next = tiles.at(args, now->n + 1);
    if (next == kUnknown) FAIL("a tile was not asked for early enough");
    if (tiles.dynamic && tiles.counts_now(args, now->n, next)) {
      now->queue[static_cast<std::size_t>((now->n + kTilesAhead) % kTileQueue)] =
          args.static_tiles + counted++;
    }
    now->tile = next;
    ++now->n;
    now->time += now->speed;
  }
}

struct Machine {
  const char* name;
  GemvDevice device;
};
constexpr Machine kMachines[] = {{"132 multiprocessors, clusters", {132, 232448, true}},
                                 {"148 multiprocessors, clusters", {148, 232448, true}},
                                 {"20 multiprocessors, clusters", {20, 232448, true}},
                                 {"128 multiprocessors", {128, 101376, false}},
                                 {"7 multiprocessors", {7, 101376, false}},
                                 {"170 multiprocessors, clusters, 99 KB", {170, 101376, true}},
                                 {"48 multiprocessors, clusters, 99 KB", {48, 101376, true}}};

TEST_CASE("every tile is done once") {
  int counted = 0;
  for (const Machine& machine : kMachines) {
    for (const frt_weight_format format : {frt::kWeightBf16, kFp8Block, frt::kWeightNvfp4}) {
      for (const int32_t outputs : {17, 5120, 9216, 28517, 34816}) {
        for (const int32_t inputs : {256, 2560, 5120}) {
          for (const int32_t rows : {1, 4, 8, 12, 16}) {
            CAPTURE(machine.name);
            CAPTURE(frt::weight_text(format));
            CAPTURE(outputs);
            CAPTURE(inputs);
            CAPTURE(rows);
            GemvArgs args;
            args.part_count = 1;
            args.parts[0] = part(format, outputs, inputs);
            args.cols = inputs;
            const GemvPlan plan = plan_gemv(args, rows, machine.device);
            REQUIRE(plan.rows > 0);
            CHECK(plan.shared_bytes <= static_cast<std::size_t>(machine.device.shared_block));
            CHECK(plan.warps % plan.group == 0);
            const bool hands_out = args.dynamic_groups > 0;
            if (!hands_out) {
              CHECK(args.static_tiles == args.tiles);
            } else {
              ++counted;
              // A group asks two tiles ahead, so it has two of its own.
              CHECK(args.static_tiles >= 2 * args.dynamic_groups * args.clusters);
              CHECK(args.dynamic_groups <= plan.warps / plan.group);
              CHECK(args.parts[0].chunks / plan.group >= plan.stages);
            }
            int asked = 0;
            const std::vector<int> done = play(args, plan, static_cast<unsigned>(rows), asked);
            CHECK(std::all_of(done.begin(), done.end(), [](int times) { return times == 1; }));
            // By this the kernel puts the counter back.
            if (hands_out) CHECK(args.static_tiles + asked - 1 == last_dynamic(args));
            if (!hands_out) CHECK(asked == 0);
          }
        }
      }
    }
  }
  CHECK(counted > 50);
}

TEST_CASE("weights are read once for up to sixteen rows on every machine") {
  int streamed = 0;
  for (const Machine& machine : kMachines) {
    for (const frt_weight_format format : {frt::kWeightBf16, kFp8Block, frt::kWeightNvfp4}) {
      for (const int32_t outputs : {17, 2048, 5120, 28517}) {
        for (const int32_t inputs : {2048, 5120, 6144, 17408}) {
          for (const int32_t rows : {1, 2, 3, 4, 8, 12, 16}) {
            CAPTURE(machine.name);
            CAPTURE(frt::weight_text(format));
            CAPTURE(outputs);
            CAPTURE(inputs);
            CAPTURE(rows);
            GemvArgs args;
            args.part_count = 1;
            args.parts[0] = part(format, outputs, inputs);
            args.cols = inputs;
            const GemvPlan plan = plan_gemv(args, rows, machine.device);
            REQUIRE(plan.rows > 0);
            if (plan.rows == rows) continue;  // the streaming kernel, once
            ++streamed;
            int32_t parts = 0, tiles = 0;
            for (const GemvFamily family :
                 {GemvFamily::kBf16, GemvFamily::kFp8, GemvFamily::kNvfp4}) {
              const GemvArgs some = family_parts(args, family, rows);
              parts += some.part_count;
              tiles += some.tiles;
              if (some.part_count == 0 || family == GemvFamily::kBf16) continue;
              CHECK(some.rows == rows);
              CHECK(some.split == args.split);
              CHECK(streamed_x_shared_bytes(some, family == GemvFamily::kNvfp4) <=
                    machine.device.shared_block);
            }
            CHECK(parts == 1);
            CHECK(tiles == args.tiles);
          }
        }
      }
    }
  }
  CHECK(streamed > 100);
}

TEST_CASE("parts of several formats are divided by format, in their order") {
  GemvArgs args;
  args.part_count = 4;
  args.parts[0] = part(frt::kWeightNvfp4, 5120, 17408);
  args.parts[1] = part(kFp8Block, 48, 17408);
  args.parts[2] = part(frt::kWeightBf16, 40, 17408);
  args.parts[3] = part(frt::kWeightNvfp4, 1024, 17408);
  args.cols = 17408;
  const GemvPlan plan = plan_gemv(args, 8, {48, 101376, true});
  CHECK(plan.rows < 8);
  const GemvArgs fp4 = family_parts(args, GemvFamily::kNvfp4, 8);
  REQUIRE(fp4.part_count == 2);
  CHECK(fp4.parts[1].rows == 1024);
  CHECK(fp4.tile_ends[0] == 320);
  CHECK(fp4.tile_ends[1] == 384);
  CHECK(fp4.tiles == 384);
  CHECK(family_parts(args, GemvFamily::kFp8, 8).tiles == 3);
  CHECK(family_parts(args, GemvFamily::kFp8, 8).clusters == 3);
  CHECK(family_parts(args, GemvFamily::kBf16, 8).tiles == 3);
}

struct Product {
  frt_weight_format format;
  int32_t outputs, inputs, rows;
  uint32_t gated;
};

TEST_CASE("few tiles behind the static ones are for few groups of a block") {
  GemvArgs args;
  args.part_count = 1;
  args.gated = 1;
  args.parts[0] = part(kFp8Block, 17408, 5120);
  args.cols = 5120;
  plan_gemv(args, 1, kMachines[0].device);
  CHECK(args.tiles == 2176);
  CHECK(args.static_tiles == 15 * 132);
  CHECK(args.dynamic_groups == 2);
}

// What frt-plugin-check compares on a device (tests/conformance/cases_linear.cpp) must be scheduled
// dynamically there.
TEST_CASE("the large cases of conformance are scheduled dynamically") {
  for (const Product& product : {Product{frt::kWeightBf16, 28517, 1280, 3, 0},
                                 {kFp8Block, 28517, 2560, 1, 0},
                                 {kFp8Block, 28517, 2560, 12, 0},
                                 {frt::kWeightBf16, 14259, 1280, 2, 1},
                                 {kFp8Block, 14259, 2560, 1, 1}}) {
    for (const Machine& machine : kMachines) {
      CAPTURE(machine.name);
      CAPTURE(product.outputs);
      CAPTURE(product.rows);
      GemvArgs args;
      args.part_count = 1;
      args.gated = product.gated;
      args.parts[0] = part(product.format, product.outputs, product.inputs);
      args.cols = product.inputs;
      const GemvPlan plan = plan_gemv(args, product.rows, machine.device);
      CHECK(plan.rows == product.rows);
      CHECK(args.dynamic_groups > 0);
    }
  }
}

TEST_CASE("what is ahead decides how much of the ring is filled before x") {
  const auto early = [](frt_weight_format format, int32_t rows, GemvAhead ahead) {
    GemvArgs args;
    args.part_count = 1;
    args.parts[0] = part(format, 5120, 5120);
    args.cols = 5120;
    plan_gemv(args, rows, kMachines[0].device, ahead);
    return args.early_stages;
  };
  CHECK(early(frt::kWeightBf16, 1, GemvAhead::kProduct) == kGemvStages);
  CHECK(early(frt::kWeightBf16, 1, GemvAhead::kOther) == kGemvStages - 1);
  CHECK(early(kFp8Block, 1, GemvAhead::kProduct) == 3);
  CHECK(early(kFp8Block, 1, GemvAhead::kOther) == 3);
  // A short ring is filled in any case.
  CHECK(early(frt::kWeightBf16, 16, GemvAhead::kOther) ==
        early(frt::kWeightBf16, 16, GemvAhead::kProduct));
}

}  // namespace
