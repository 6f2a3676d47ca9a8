// SPDX-License-Identifier: Apache-2.0
// frt.argmax/1, frt.count_tokens/1, frt.accept_tokens/1 and frt.chain_tokens/1.
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
  BlockTop top{std::max(rest, largest_lane(wide, lanes)), first};
  while (top.place < end && logits[top.place] != top.value) ++top.place;
  if (top.place == end) top.place = -1;
  return top;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace frt::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <frt/ops/checks/sample.hpp>

#include "../device.hpp"
#include "active.hpp"
#include "counts.hpp"
#include "registry.hpp"

namespace frt::cpu {

HWY_EXPORT(find_top);

namespace {

constexpr int64_t kBlock = 16384;

std::unique_ptr<Node> prepare_argmax(Device&, const frt_argmax_args& args) {
  check_argmax(Checks(FRT_OP_ARGMAX), args);
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
  check_count_tokens(Checks(FRT_OP_COUNT_TOKENS), args);
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
        } else {
          count_generated(counts[id]);
        }
      }
    });
  });
}

// How many drafts of sequence `b` are what was drawn.
int32_t accepted_drafts(const frt_accept_tokens_args& args, int64_t b, int32_t length) {
  const int32_t* fed = args.fed + b * args.sequences.rows;
  const int32_t* drawn = args.drawn + b * args.sequences.rows;
  const int32_t* stops = args.stops + b * args.stop_count;
  int32_t accepted = 0;
  while (accepted + 1 < length && fed[accepted + 1] == drawn[accepted] &&
         std::find(stops, stops + args.stop_count, drawn[accepted]) == stops + args.stop_count) {
    ++accepted;
  }
  return accepted;
}

std::unique_ptr<Node> prepare_accept_tokens(Device&, const frt_accept_tokens_args& args) {
  check_accept_tokens(Checks(FRT_OP_ACCEPT_TOKENS), args);
  return make_node([args](Pool&, std::byte*) noexcept {
    const frt_sequences& s = args.sequences;
    for (int64_t b = 0; b < s.count; ++b) {
      const int32_t length = active_length(s, b);
      args.accepted[b] = length > 0 ? accepted_drafts(args, b, length) : 0;
      args.committed[b] = length > 0 ? args.accepted[b] + 1 : 0;
      if (length == 0) continue;
      *static_cast<int32_t*>(byte_offset(args.pending, s.slot[b] * args.pending_stride)) =
          args.drawn[b * s.rows + args.accepted[b]];
    }
  });
}

std::unique_ptr<Node> prepare_chain_tokens(Device&, const frt_chain_tokens_args& args) {
  check_chain_tokens(Checks(FRT_OP_CHAIN_TOKENS), args);
  return make_node([args](Pool&, std::byte*) noexcept {
    const frt_sequences& s = args.sequences;
    for (int64_t b = 0; b < s.count; ++b) {
      if (active_length(s, b) == 0) continue;
      args.candidates[b * args.stride + args.column] = args.ids[b];
      args.position_out[b] = s.position[b] + 1;
    }
  });
}

}  // namespace

void register_tokens(KernelList& list) {
  list.add<frt_argmax_args>(FRT_OP_ARGMAX, 0, {}, prepare_argmax);
  list.add<frt_count_tokens_args>(FRT_OP_COUNT_TOKENS, 0, {}, prepare_count_tokens);
  list.add<frt_accept_tokens_args>(FRT_OP_ACCEPT_TOKENS, 0, {}, prepare_accept_tokens);
  list.add<frt_chain_tokens_args>(FRT_OP_CHAIN_TOKENS, 0, {}, prepare_chain_tokens);
}

}  // namespace frt::cpu
#endif  // HWY_ONCE
