// SPDX-License-Identifier: Apache-2.0
// frt.sample/1: from logits to one token per sequence, or per row where drafts are checked.
//
// Three passes, the first two over blocks of the vocabulary in parallel:
//   1. mask, bias and penalties into a copy; the largest of each block and where it is;
//   2. sums of exponentials; tokens within kReach of the largest become candidates;
//   3. per row: the choice among the candidates (choose.cpp).
// Blocks have a fixed size and their sums are added in order, so the number of workers changes
// nothing. NaN counts as -inf. If nothing is allowed, the token is 0.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/sample.cpp"
#include <hwy/foreach_target.h>  // compiles this file once per target

#include <frt/ops/sample.h>

#include <algorithm>

#include "choose.hpp"
#include "numbers.hpp"
#include "sample.hpp"
#include "simd-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace frt::cpu {
namespace HWY_NAMESPACE {
namespace {

constexpr float kLow = -std::numeric_limits<float>::infinity();

// Tokens [first, end) of `logits` to `adjusted`; `mask` and `counts` may be NULL.
BlockTop adjust_block(const float* logits, const uint32_t* mask, const uint32_t* counts,
                      const frt_sampling_params& params, int64_t first, int64_t end,
                      float* adjusted) {
  const auto count = static_cast<std::size_t>(end - first);
  const F32 wide;
  auto largest_lanes = hn::Set(wide, kLow);
  float largest_rest = kLow;
  for_lanes(count, [&](auto d, std::size_t offset) HWY_ATTR {
    const hn::RebindToUnsigned<decltype(d)> du;
    const std::size_t i = static_cast<std::size_t>(first) + offset;
    auto l = hn::LoadU(d, logits + i);
    if (counts) {
      const auto c = hn::LoadU(du, counts + i);
      const auto zero = hn::Zero(d);
      const auto seen = hn::RebindMask(d, hn::Ne(c, hn::Zero(du)));
      const auto generated = hn::And(c, hn::Set(du, 0x7FFFFFFFu));
      const auto times =
          hn::ConvertTo(d, hn::BitCast(hn::RebindToSigned<decltype(d)>(), generated));
      const auto r = hn::Set(d, params.repetition_penalty);
      const auto repeated = hn::IfThenElse(hn::Gt(l, zero), hn::Div(l, r), hn::Mul(l, r));
      l = hn::IfThenElse(seen, repeated, l);
      l = hn::Sub(l, hn::Mul(hn::Set(d, params.frequency_penalty), times));
      l = hn::Sub(l, hn::IfThenElseZero(hn::Gt(times, zero), hn::Set(d, params.presence_penalty)));
    }
    l = hn::IfThenElse(hn::IsNaN(l), hn::Set(d, kLow), hn::Add(l, hn::Zero(d)));  // no -0
    if (mask) {
      const auto word = hn::Set(du, mask[i / 32] >> (i % 32));
      const auto bit = hn::Shl(hn::Set(du, 1u), hn::Iota(du, 0));
      l = hn::IfThenElse(hn::RebindMask(d, hn::TestBit(word, bit)), l, hn::Set(d, kLow));
    }
    hn::StoreU(l, d, adjusted + i);
    if constexpr (hn::MaxLanes(decltype(d)()) == 1) {
      largest_rest = std::max(largest_rest, hn::GetLane(l));
    } else {
      largest_lanes = hn::Max(largest_lanes, l);
    }
  });
  BlockTop top{std::max(largest_rest, largest_lane(wide, largest_lanes)), 0};
  while (top.place < end - first && adjusted[first + top.place] != top.value) ++top.place;
  top.place += first;
  return top;
}

// Sums over [first, end) and, with `keys`, the candidates of the block.
BlockSums sum_block(const float* adjusted, int64_t first, int64_t end, float largest,
                    float temperature, bool plain_sum, uint64_t* keys) {
  const auto count = static_cast<std::size_t>(end - first);
  const float* block = adjusted + first;
  BlockSums sums{};
  const auto below = [&](auto d, std::size_t i) HWY_ATTR {
    const auto l = hn::LoadU(d, block + i);
    const auto top = hn::Set(d, largest);
    return hn::IfThenElse(hn::Eq(l, top), hn::Zero(d), hn::Sub(l, top));
  };
  if (plain_sum) {
    sums.plain = sum_lanes(count, [&](auto d, std::size_t i, auto sum)
                                      HWY_ATTR { return hn::Add(sum, exp(d, below(d, i))); });
  }
  if (!keys) return sums;
  sums.tempered = sum_lanes(count, [&](auto d, std::size_t i, auto sum) HWY_ATTR {
    return hn::Add(sum, exp(d, hn::Div(below(d, i), hn::Set(d, temperature))));
  });
  const float least = largest - kReach * temperature;
  for_lanes(count, [&](auto d, std::size_t i) HWY_ATTR {
    const auto l = hn::LoadU(d, block + i);
    const auto near = hn::And(hn::Ge(l, hn::Set(d, least)), hn::Gt(l, hn::Set(d, kLow)));
    if (hn::AllFalse(d, near)) return;
    for (std::size_t j = i; j < i + hn::Lanes(d); ++j) {
      if (block[j] >= least && block[j] > kLow) {
        keys[sums.candidates++] =
            sort_key(block[j], static_cast<int32_t>(first) + static_cast<int32_t>(j));
      }
    }
  });
  return sums;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace frt::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <frt/ops/checks/sample.hpp>

#include <cmath>
#include <span>

#include "../device.hpp"
#include "active.hpp"
#include "counts.hpp"
#include "philox.hpp"
#include "registry.hpp"

namespace frt::cpu {

HWY_EXPORT(adjust_block);
HWY_EXPORT(sum_block);

namespace {

constexpr int64_t kBlock = 8192;  // a multiple of 32

class SampleNode final : public Node {
 public:
  explicit SampleNode(const frt_sample_args& args)
      : args_(args),
        blocks_((args.vocabulary + kBlock - 1) / kBlock),
        width_(args.fed ? args.sequences.rows : 1),
        rows_(static_cast<int64_t>(args.sequences.count) * width_) {}

  // Per row: tops and sums of the blocks, keys, adjusted logits; where drafts are checked, counts.
  std::size_t scratch_bytes() const noexcept override {
    return static_cast<std::size_t>(rows_) * row_bytes();
  }

  void run(Pool& pool, std::byte* scratch) noexcept override {
    const int64_t tasks = rows_ * blocks_;
    pool.run(tasks, [&](int64_t task, int) { adjust(work(scratch, task / blocks_), task); });
    pool.run(tasks, [&](int64_t task, int) { sum(work(scratch, task / blocks_), task); });
    pool.run(rows_, [&](int64_t row, int) { choose(work(scratch, row), row); });
  }

 private:
  struct Work {
    BlockTop* tops;
    BlockSums* sums;
    uint64_t* keys;
    float* adjusted;
    uint32_t* counts;  // only with `fed`
  };

  std::size_t row_bytes() const noexcept {
    const std::size_t token = sizeof(uint64_t) + sizeof(float) + (args_.fed ? sizeof(uint32_t) : 0);
    return static_cast<std::size_t>(blocks_) *
           (sizeof(BlockTop) + sizeof(BlockSums) + kBlock * token);
  }
  Work work(std::byte* scratch, int64_t row) const noexcept {
    Work work{};
    work.tops = reinterpret_cast<BlockTop*>(scratch + static_cast<std::size_t>(row) * row_bytes());
    work.sums = reinterpret_cast<BlockSums*>(work.tops + blocks_);
    work.keys = reinterpret_cast<uint64_t*>(work.sums + blocks_);
    work.adjusted = reinterpret_cast<float*>(work.keys + blocks_ * kBlock);
    work.counts = reinterpret_cast<uint32_t*>(work.adjusted + blocks_ * kBlock);
    return work;
  }

  const frt_sampling_params& params(int64_t row) const noexcept {
    return args_.params[row / width_];
  }
  bool active(int64_t row) const noexcept {
    return row % width_ < active_length(args_.sequences, row / width_);
  }
  std::span<const frt_logit_bias> bias(int64_t row) const noexcept {
    const int64_t count = std::min<int64_t>(params(row).bias_count, args_.bias_stride);
    if (!args_.bias || count == 0) return {};
    return {args_.bias + row / width_ * args_.bias_stride, static_cast<std::size_t>(count)};
  }
  bool greedy(int64_t row) const noexcept { return !(params(row).temperature > 0.0f); }

  // Counts of [first, end) as the row sees them; indexed by id.
  const uint32_t* counts(const Work& work, int64_t row, int64_t first, int64_t end) const noexcept {
    const frt_sequences& sequences = args_.sequences;
    const auto* kept = static_cast<const uint32_t*>(
        byte_offset(args_.counts, sequences.slot[row / width_] * args_.counts_stride));
    if (!args_.fed) return kept;
    std::copy(kept + first, kept + end, work.counts + first);
    for (int64_t at = row - row % width_; at <= row; ++at) {
      const int32_t id = args_.fed[at];
      if (id >= first && id < end) count_generated(work.counts[id]);
    }
    return work.counts;
  }

  void adjust(const Work& work, int64_t task) const noexcept {
    const int64_t row = task / blocks_;
    const int64_t first = task % blocks_ * kBlock;
    const int64_t end = std::min<int64_t>(first + kBlock, args_.vocabulary);
    if (!active(row)) return;
    const frt_sampling_params& params = this->params(row);
    const bool penalised = params.repetition_penalty != 1.0f || params.presence_penalty != 0.0f ||
                           params.frequency_penalty != 0.0f;
    const uint32_t* mask =
        params.use_mask != 0 && args_.mask ? args_.mask + row * args_.mask_stride : nullptr;
    const float* logits = args_.logits + row * args_.stride;
    if (const std::span<const frt_logit_bias> bias = this->bias(row); !bias.empty()) {
      std::copy(logits + first, logits + end, work.adjusted + first);
      for (const frt_logit_bias& one : bias) {
        if (one.id >= first && one.id < end) work.adjusted[one.id] += one.value;
      }
      logits = work.adjusted;
    }
    work.tops[task % blocks_] = HWY_DYNAMIC_DISPATCH(adjust_block)(
        logits, mask, penalised && args_.counts ? counts(work, row, first, end) : nullptr, params,
        first, end, work.adjusted);
  }

  // The largest logit, the first place where it stands.
  BlockTop top(const Work& work) const noexcept {
    BlockTop best = work.tops[0];
    for (int64_t i = 1; i < blocks_; ++i) {
      if (work.tops[i].value > best.value) best = work.tops[i];
    }
    return best;
  }

  void sum(const Work& work, int64_t task) const noexcept {
    const int64_t row = task / blocks_;
    const int64_t block = task % blocks_;
    if (!active(row)) return;
    const bool plain = args_.log_probabilities != nullptr;
    if (greedy(row) && !plain) return;
    const float largest = top(work).value;
    if (!(largest > -std::numeric_limits<float>::infinity())) return;
    work.sums[block] = HWY_DYNAMIC_DISPATCH(sum_block)(
        work.adjusted, block * kBlock, std::min<int64_t>((block + 1) * kBlock, args_.vocabulary),
        largest, params(row).temperature, plain,
        greedy(row) ? nullptr : work.keys + block * kBlock);
  }

  void choose(const Work& work, int64_t row) const noexcept {
    if (!active(row)) return;
    const BlockTop best = top(work);
    const bool any = best.value > -std::numeric_limits<float>::infinity();
    int32_t id = any ? static_cast<int32_t>(best.place) : 0;
    if (any && !greedy(row)) id = draw(work, row, best.value);
    args_.ids[row] = id;
    if (args_.pending) {  // a row is a sequence
      *static_cast<int32_t*>(
          byte_offset(args_.pending, args_.sequences.slot[row] * args_.pending_stride)) = id;
    }
    if (args_.log_probabilities) {
      args_.log_probabilities[row] =
          any ? log_probability(work, best.value, id) : -std::numeric_limits<float>::infinity();
    }
  }

  int32_t draw(const Work& work, int64_t row, float largest) const noexcept {
    Choice choice{work.adjusted, args_.vocabulary, largest, 0, work.keys, 0};
    for (int64_t block = 0; block < blocks_; ++block) {
      const BlockSums& sums = work.sums[block];
      choice.mass += sums.tempered;
      std::copy_n(work.keys + block * kBlock, sums.candidates, work.keys + choice.key_count);
      choice.key_count += sums.candidates;
    }
    const int64_t b = row / width_;
    const int64_t fed = args_.fed ? row % width_ + 1 : active_length(args_.sequences, b);
    const auto position =
        static_cast<uint32_t>(args_.sequences.position[b]) + static_cast<uint32_t>(fed);
    return choose_token(choice, params(row), philox_uniform(params(row).seed, position));
  }

  float log_probability(const Work& work, float largest, int32_t id) const noexcept {
    double mass = 0;
    for (int64_t block = 0; block < blocks_; ++block) mass += work.sums[block].plain;
    const float logit = work.adjusted[id];
    const double below = logit == largest ? 0.0 : static_cast<double>(logit - largest);
    return static_cast<float>(below - std::log(mass));
  }

  frt_sample_args args_;
  int64_t blocks_;
  int64_t width_;  // rows of a sequence that get a token
  int64_t rows_;
};

std::unique_ptr<Node> prepare_sample(Device&, const frt_sample_args& args) {
  check_sample(Checks(FRT_OP_SAMPLE), args);
  return std::make_unique<SampleNode>(args);
}

}  // namespace

void register_sample(KernelList& list) {
  list.add<frt_sample_args>(FRT_OP_SAMPLE, 0, {}, prepare_sample);
}

}  // namespace frt::cpu
#endif  // HWY_ONCE
