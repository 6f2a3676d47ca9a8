// SPDX-License-Identifier: Apache-2.0
// frt.argmax/1 and frt.count_tokens/1.
//
// The largest logit of a row is found block by block in parallel, then among the blocks in order,
// so that ties go to the lowest id.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/tokens.cpp"
#include <hwy/foreach_target.h>  // compiles this file once per target

#include <frt/ops/sample.h>

#include <algorithm>

#include "numbers.hpp"
#include "sample.hpp"
#include "simd-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace frt::cpu {
namespace HWY_NAMESPACE {
namespace {

// The largest of logits[first, end) that is not NaN; place -1 if all are NaN.
BlockTop find_top(const float* logits, int64_t first, int64_t end) {
  constexpr float kLow = -std::numeric_limits<float>::infinity();
  const auto count = static_cast<std::size_t>(end - first);
  const F32 wide;
  auto lanes = hn::Set(wide, kLow);
  float rest = kLow;
  for_lanes(count, [&](auto d, std::size_t i) HWY_ATTR {
    const auto v = hn::LoadU(d, logits + first + i);
    const auto number = hn::IfThenElse(hn::IsNaN(v), hn::Set(d, kLow), v);
    if constexpr (hn::MaxLanes(decltype(d)()) == 1) {
      rest = std::max(rest, hn::GetLane(number));
    } else {
      lanes = hn::Max(lanes, number);
    }
  });
  BlockTop top{std::max(rest, hn::GetLane(hn::MaxOfLanes(wide, lanes))), first};
  while (top.place < end && logits[top.place] != top.value) ++top.place;
  if (top.place == end) top.place = -1;
  return top;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace frt::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include "../device.hpp"
#include "checks.hpp"
#include "registry.hpp"

namespace frt::cpu {

HWY_EXPORT(find_top);

namespace {

constexpr int64_t kBlock = 16384;
constexpr uint32_t kInPrompt = 0x80000000u;  // of a count; the other bits: times generated

std::unique_ptr<Node> prepare_argmax(Device&, const frt_argmax_args& args) {
  const Checks check(FRT_OP_ARGMAX);
  check.positive("rows", args.rows);
  check.positive("width", args.width);
  check.pointer("logits", args.logits);
  check.at_least("stride", args.stride, args.width);
  check.pointer("ids", args.ids);
  const int64_t blocks = (args.width + kBlock - 1) / kBlock;
  const auto body = [args, blocks](Pool& pool, std::byte* scratch) noexcept {
    auto* tops = reinterpret_cast<BlockTop*>(scratch);
    const int64_t rows = active_rows(args.rows, args.row_count);
    pool.run(rows * blocks, [&](int64_t task, int) {
      const int64_t first = task % blocks * kBlock;
      tops[task] = HWY_DYNAMIC_DISPATCH(find_top)(args.logits + task / blocks * args.stride, first,
                                                  std::min<int64_t>(first + kBlock, args.width));
    });
    for (int64_t row = 0; row < rows; ++row) {
      BlockTop best{0, -1};
      for (const BlockTop* top = tops + row * blocks; top < tops + (row + 1) * blocks; ++top) {
        if (top->place >= 0 && (best.place < 0 || top->value > best.value)) best = *top;
      }
      args.ids[row] = static_cast<int32_t>(std::max<int64_t>(best.place, 0));
    }
  };
  return make_node(body, static_cast<std::size_t>(args.rows * blocks) * sizeof(BlockTop));
}

std::unique_ptr<Node> prepare_count_tokens(Device&, const frt_count_tokens_args& args) {
  const Checks check(FRT_OP_COUNT_TOKENS);
  check.range("generated", args.generated, 0, 1);
  check.sequences(args.sequences);
  check.pointer("ids", args.ids);
  check.positive("vocabulary", args.vocabulary);
  check.pointer("counts", args.counts);
  check.require(args.slot_stride % 4 == 0, "slot_stride", "is not a multiple of 4");
  return make_node([args](Pool& pool, std::byte*) noexcept {
    const frt_sequences& s = args.sequences;
    pool.run(s.count, [&](int64_t b, int) {
      const int32_t length = active_length(s, b);
      if (length == 0) return;
      auto* counts = static_cast<uint32_t*>(byte_offset(args.counts, s.slot[b] * args.slot_stride));
      if (args.restart && args.restart[b] != 0) {
        std::transform(counts, counts + args.vocabulary, counts,
                       [](uint32_t seen) { return seen == 0 ? 0 : kInPrompt; });
      }
      for (int64_t row = b * s.rows; row < b * s.rows + length; ++row) {
        const int32_t id = args.ids[row];
        if (id < 0 || id >= args.vocabulary) continue;
        if (args.generated == 0) {
          counts[id] |= kInPrompt;
        } else if ((counts[id] & ~kInPrompt) != ~kInPrompt) {
          ++counts[id];
        }
      }
    });
  });
}

}  // namespace

void register_tokens(KernelList& list) {
  list.add<frt_argmax_args>(FRT_OP_ARGMAX, 0, {}, prepare_argmax);
  list.add<frt_count_tokens_args>(FRT_OP_COUNT_TOKENS, 0, {}, prepare_count_tokens);
}

}  // namespace frt::cpu
#endif  // HWY_ONCE
