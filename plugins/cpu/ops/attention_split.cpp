// SPDX-License-Identifier: Apache-2.0
// Attention of a few rows over a long history, split over the positions.
//
// A task takes one split of one key/value head and reads each key and value row once for all query
// heads of the group. Per block of positions: scores (four queries by four positions in registers),
// online softmax, values. What a split leaves (largest score, sum, weighted sum of values) is
// merged in the order of the splits:
//   M = max m_s;  y = sum_s exp(m_s - M) o_s / sum_s exp(m_s - M) l_s
// Every (query, position) score and every sum is computed by the same chain of operations whatever
// stands beside it, so rows computed together equal rows computed alone. Rows that end inside a
// block are treated apart: what lies behind their own position is not even multiplied by zero.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/attention_split.cpp"
#include <hwy/foreach_target.h>  // compiles this file once per target

#include <cmath>
#include <limits>

#include "active.hpp"
#include "attention.hpp"
#include "numbers.hpp"
#include "simd-inl.hpp"
#include "tile-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace frt::cpu {
namespace HWY_NAMESPACE {
namespace {

// The most queries that stand in registers beside four positions.
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
constexpr int kQueries = 6;
#else
constexpr int kQueries = 2;
#endif

#if HWY_TARGET == HWY_SCALAR
HWY_INLINE void store_sums(Vec<F32> a, Vec<F32> b, Vec<F32> c, Vec<F32> e, float* to) {
  to[0] = hn::GetLane(a);
  to[1] = hn::GetLane(b);
  to[2] = hn::GetLane(c);
  to[3] = hn::GetLane(e);
}
#else
// Adds the 128-bit blocks of `v`.
template <class D>
HWY_INLINE auto sum_blocks(D d, Vec<D> v) {
  if constexpr (hn::MaxLanes(D()) > 4) {
    const hn::Half<D> half;
    return sum_blocks(half, hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
  } else {
    static_cast<void>(d);
    return v;
  }
}

// The four sums of the lanes of a, b, c, e, stored to `to`.
HWY_INLINE void store_sums(Vec<F32> a, Vec<F32> b, Vec<F32> c, Vec<F32> e, float* to) {
  const F32 d;
  const hn::RepartitionToWide<hn::RebindToUnsigned<F32> > wide;
  const auto ab = hn::Add(hn::InterleaveLower(d, a, b), hn::InterleaveUpper(d, a, b));
  const auto ce = hn::Add(hn::InterleaveLower(d, c, e), hn::InterleaveUpper(d, c, e));
  const auto low = hn::InterleaveLower(wide, hn::BitCast(wide, ab), hn::BitCast(wide, ce));
  const auto high = hn::InterleaveUpper(wide, hn::BitCast(wide, ab), hn::BitCast(wide, ce));
  const auto sums = sum_blocks(d, hn::Add(hn::BitCast(d, low), hn::BitCast(d, high)));
  hn::StoreU(sums, hn::CappedTag<float, 4>(), to);
}
#endif

// One key/value head of one sequence.
template <class T, class KV>
struct Source {
  const frt_attention_args& args;
  int64_t b, kv_head, group;
  int64_t stride;  // elements from position to position of a block
  float q_scale;   // scale, and what a key is stored with

  Source(const frt_attention_args& arguments, int64_t sequence, int64_t head)
      : args(arguments),
        b(sequence),
        kv_head(head),
        group(arguments.heads / arguments.kv_heads),
        stride(static_cast<int64_t>(arguments.kv_heads) * arguments.head_dim),
        q_scale(arguments.scale * (sizeof(KV) == 1 ? arguments.k_scale : 1.0f)) {}

  // The head's elements of row `position`, a multiple of kBlock, of args.keys or args.values.
  const KV* rows(const void* tensor, int64_t position) const {
    const int64_t place = read_offset(args, b, position, stride * static_cast<int64_t>(sizeof(KV)));
    return static_cast<const KV*>(byte_offset(tensor, place)) + kv_head * args.head_dim;
  }
};

// What a block of scores asks for on the way, so that reading and computing overlap: its values,
// which are next, and at the start of a split the keys a little further on. Later blocks find their
// keys asked for while the values before them were summed.
template <class KV>
struct Ahead {
  const KV* values;  // NULL: nothing
  bool keys;
};
constexpr int64_t kKeysAhead = 12;  // positions

// scores[i][p] = q[i] . k[p] for kRows queries and `count` positions of a block.
template <int kRows, class KV>
HWY_INLINE void score_rows(const float* q, int64_t dim, const KV* keys, int64_t stride,
                           int64_t count, const Ahead<KV>& ahead, float* scores) {
  const F32 d;
  const OneF32 d1;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t p = 0; p < count; p += 4) {
    const KV* k[4];
    HWY_UNROLL(4) for (int64_t j = 0; j < 4; ++j) k[j] = keys + std::min(p + j, count - 1) * stride;
    Vec<F32> sum[kRows][4];
    HWY_UNROLL(8) for (int r = 0; r < kRows; ++r) {
      HWY_UNROLL(4) for (int j = 0; j < 4; ++j) sum[r][j] = hn::Zero(d);
    }
    int64_t i = 0;
    for (; i + lanes <= dim; i += lanes) {
      if (ahead.values) {
        HWY_UNROLL(4) for (int64_t j = 0; j < 4; ++j) {
          fetch_ahead(ahead.values + (p + j) * stride + i);
          if (ahead.keys) fetch_ahead(keys + (p + j + kKeysAhead) * stride + i);
        }
      }
      Vec<F32> key[4];
      HWY_UNROLL(4) for (int j = 0; j < 4; ++j) key[j] = load(d, k[j] + i);
      HWY_UNROLL(8) for (int r = 0; r < kRows; ++r) {
        const auto query = hn::LoadU(d, q + r * dim + i);
        HWY_UNROLL(4) for (int j = 0; j < 4; ++j) {
          sum[r][j] = hn::MulAdd(query, key[j], sum[r][j]);
        }
      }
    }
    HWY_UNROLL(8) for (int r = 0; r < kRows; ++r) {
      float* to = scores + r * kBlock + p;
      store_sums(sum[r][0], sum[r][1], sum[r][2], sum[r][3], to);
      for (int64_t rest = i; rest < dim; ++rest) {
        for (int j = 0; j < 4; ++j) {
          to[j] += q[r * dim + rest] * hn::GetLane(load(d1, k[j] + rest));
        }
      }
    }
  }
}

// The scores of all queries, kRows and then fewer at a time.
template <int kRows, class KV>
HWY_INLINE void score_block(const float* q, int64_t queries, int64_t dim, const KV* keys,
                            int64_t stride, int64_t count, Ahead<KV> ahead, float* scores,
                            int64_t done = 0) {
  for (; done + kRows <= queries; done += kRows) {
    score_rows<kRows>(q + done * dim, dim, keys, stride, count, ahead, scores + done * kBlock);
    ahead.values = nullptr;  // once is enough
  }
  if constexpr (kRows > 1) {
    constexpr int kFewer = kRows > 4 ? 4 : kRows / 2;
    score_block<kFewer>(q, queries, dim, keys, stride, count, ahead, scores, done);
  }
}

// Turns scores into weights; returns by how much what was summed before shrinks.
HWY_INLINE float soften(float* scores, int64_t count, float& largest, float& sum) {
  const F32 d;
  const auto n = static_cast<std::size_t>(count);
  auto lanes = hn::Set(d, -std::numeric_limits<float>::infinity());
  float block = -std::numeric_limits<float>::infinity();
  for_lanes(n, [&](auto tag, std::size_t i) HWY_ATTR {
    if constexpr (hn::MaxLanes(decltype(tag)()) == 1) {
      block = std::max(block, scores[i]);
    } else {
      lanes = hn::Max(lanes, hn::LoadU(tag, scores + i));
    }
  });
  block = std::max(block, largest_lane(d, lanes));
  const float now = std::max(largest, block);
  const float shrink = std::exp(largest - now);
  const float added = sum_lanes(n, [&](auto tag, std::size_t i, auto total) HWY_ATTR {
    const auto weight = exp(tag, hn::Sub(hn::LoadU(tag, scores + i), hn::Set(tag, now)));
    hn::StoreU(weight, tag, scores + i);
    return hn::Add(total, weight);
  });
  sum = sum * shrink + added;
  largest = now;
  return shrink;
}

// Rows [first, end) of the sequence, which all see positions from `start` on; positions up to
// `stop` belong to the split.
template <class T, class KV>
void attend_rows(const Source<T, KV>& source, const AttentionLayout& layout, int64_t first,
                 int64_t end, int64_t start, int64_t stop, int64_t split, float* parts,
                 float* work) {
  const frt_attention_args& args = source.args;
  const int64_t dim = args.head_dim;
  const int64_t group = source.group;
  float* q = work;
  float* scores = q + layout.split_rows * group * dim;
  float* shrinks = scores + layout.split_rows * group * kBlock;
  const int64_t head0 = source.kv_head * group;
  const auto part = [&](int64_t row, int64_t i) {
    return layout.part_of(parts, args, source.b, row, head0 + i, split);
  };
  const int64_t head_step = layout.splits * layout.part;

  for (int64_t row = first; row < end; ++row) {
    const T* from = static_cast<const T*>(args.q) +
                    ((source.b * args.sequences.rows + row) * args.heads + head0) * dim;
    for_lanes(static_cast<std::size_t>(group * dim), [&](auto d, std::size_t i) HWY_ATTR {
      hn::StoreU(hn::Mul(load(d, from + i), hn::Set(d, source.q_scale)), d,
                 q + (row - first) * group * dim + i);
    });
    for (int64_t i = 0; i < group; ++i) {
      float* p = part(row, i);
      for (int64_t j = 0; j < dim; ++j) p[j] = 0;
      p[dim] = -std::numeric_limits<float>::infinity();
      p[dim + 1] = 0;
    }
  }

  for (int64_t position = start; position < stop; position += kBlock) {
    const auto visible = [&](int64_t row) {
      return std::clamp<int64_t>(std::min(stop, seen_positions(args, source.b, row)) - position, 0,
                                 kBlock);
    };
    for (int64_t row = first; row < end;) {
      const int64_t count = visible(row);
      int64_t next = row + 1;
      while (next < end && visible(next) == count) ++next;
      const int64_t queries = (next - row) * group;
      if (count > 0) {
        const KV* keys = source.rows(args.keys, position);
        const KV* values = source.rows(args.values, position);
        const float* block_q = q + (row - first) * group * dim;
        score_block<kQueries>(block_q, queries, dim, keys, source.stride, count,
                              Ahead<KV>{values, position == start}, scores);
        for (int64_t i = 0; i < queries; ++i) {
          float* p = part(row + i / group, i % group);
          shrinks[i] = soften(scores + i * kBlock, count, p[dim], p[dim + 1]);
        }
        const KV* following =
            position + kBlock < stop ? source.rows(args.keys, position + kBlock) : nullptr;
        for (int64_t i = 0; i < queries; i += group) {
          multiply<KV>({group, dim, count, scores + i * kBlock, kBlock, 1, values, source.stride,
                        part(row + i / group, 0), head_step, shrinks + i, 1,
                        i == 0 ? following : nullptr});
        }
      }
      row = next;
    }
  }
}

template <class T>
void finish_typed(const frt_attention_args& args, const AttentionLayout& layout, int64_t b,
                  int64_t row, int64_t head, float* parts) {
  const int64_t dim = args.head_dim;
  const int64_t count = split_count(seen_positions(args, b, row));
  float* first = layout.part_of(parts, args, b, row, head, 0);
  float largest = first[dim];
  for (int64_t s = 1; s < count; ++s) largest = std::max(largest, first[s * layout.part + dim]);
  float total = 0;
  for (int64_t s = 0; s < count; ++s) {
    float* part = first + s * layout.part;
    part[dim] = std::exp(part[dim] - largest);
    total += part[dim] * part[dim + 1];
  }
  const float factor = (args.kv_dtype == FRT_DTYPE_F8_E4M3 ? args.v_scale : 1.0f) / total;
  const int64_t r = b * args.sequences.rows + row;
  T* y = static_cast<T*>(args.y) + (r * args.heads + head) * dim;
  const T* gate = args.gate ? static_cast<const T*>(args.gate) + r * args.gate_row_stride +
                                  head * args.gate_head_stride
                            : nullptr;
  for_lanes(static_cast<std::size_t>(dim), [&](auto d, std::size_t i) HWY_ATTR {
    auto sum = hn::Zero(d);
    for (int64_t s = 0; s < count; ++s) {
      const float* part = first + s * layout.part;
      sum = hn::MulAdd(hn::LoadU(d, part + i), hn::Set(d, part[dim]), sum);
    }
    sum = hn::Mul(sum, hn::Set(d, factor));
    if (gate) sum = hn::Mul(sum, sigmoid(d, load(d, gate + i)));
    store(d, sum, y + i);
  });
}

void finish(const frt_attention_args& args, const AttentionLayout& layout, int64_t b, int64_t row,
            int64_t head, float* parts) {
  if (args.dtype == FRT_DTYPE_F32) {
    finish_typed<float>(args, layout, b, row, head, parts);
  } else {
    finish_typed<uint16_t>(args, layout, b, row, head, parts);
  }
}

template <class T, class KV>
void split_typed(const frt_attention_args& args, const AttentionLayout& layout, int64_t b,
                 int64_t kv_head, int64_t split, float* parts, float* work) {
  const Source<T, KV> source(args, b, kv_head);
  const int64_t rows = active_length(args.sequences, b);
  // Rows whose splits have the same length go together; of those, the ones that reach this split.
  for (int64_t row = 0; row < rows;) {
    const int64_t length = split_length(seen_positions(args, b, row));
    int64_t end = row + 1;
    while (end < rows && split_length(seen_positions(args, b, end)) == length) ++end;
    const int64_t start = split * length;
    while (row < end && seen_positions(args, b, row) <= start) ++row;
    if (row < end) {
      const int64_t stop = std::min(start + length, seen_positions(args, b, end - 1));
      attend_rows(source, layout, row, end, start, stop, split, parts, work);
    }
    for (; row < end; ++row) {
      if (split_count(seen_positions(args, b, row)) > 1) continue;
      for (int64_t i = 0; i < source.group; ++i) {
        finish_typed<T>(args, layout, b, row, kv_head * source.group + i, parts);
      }
    }
  }
}

template <class T>
void split_kv(const frt_attention_args& args, const AttentionLayout& layout, int64_t b,
              int64_t kv_head, int64_t split, float* parts, float* work) {
  if (args.kv_dtype == FRT_DTYPE_F32) {
    split_typed<T, float>(args, layout, b, kv_head, split, parts, work);
  } else if (args.kv_dtype == FRT_DTYPE_BF16) {
    split_typed<T, uint16_t>(args, layout, b, kv_head, split, parts, work);
  } else {
    split_typed<T, uint8_t>(args, layout, b, kv_head, split, parts, work);
  }
}

void attend(const frt_attention_args& args, const AttentionLayout& layout, int64_t b,
            int64_t kv_head, int64_t split, float* parts, float* work) {
  if (args.dtype == FRT_DTYPE_F32) {
    split_kv<float>(args, layout, b, kv_head, split, parts, work);
  } else {
    split_kv<uint16_t>(args, layout, b, kv_head, split, parts, work);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace frt::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace frt::cpu {

HWY_EXPORT(attend);
HWY_EXPORT(finish);

void attend_split(const frt_attention_args& args, const AttentionLayout& layout, int64_t b,
                  int64_t kv_head, int64_t split, float* parts, float* work) noexcept {
  HWY_DYNAMIC_DISPATCH(attend)(args, layout, b, kv_head, split, parts, work);
}

void finish_splits(const frt_attention_args& args, const AttentionLayout& layout, int64_t b,
                   int64_t row, int64_t head, float* parts) noexcept {
  HWY_DYNAMIC_DISPATCH(finish)(args, layout, b, row, head, parts);
}

}  // namespace frt::cpu
#endif  // HWY_ONCE
