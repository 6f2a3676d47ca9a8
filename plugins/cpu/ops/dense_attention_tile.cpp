// SPDX-License-Identifier: Apache-2.0
// Attention without a mask, in tiles of queries against blocks of keys: first those of the context,
// then the sequence's own.
//
// A tile holds the queries of some rows for all heads of one key/value head, transposed, so that
// both products run over vectors without sums across lanes:
//   scores^T (key, query) = K (key, dim) . q^T (dim, query)
//   o (query, dim) = shrink o + scores^T^T . V (key, dim)
// with the online softmax in between, lane by lane of the queries.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/dense_attention_tile.cpp"
#include <hwy/foreach_target.h>  // compiles this file once per target

#include <limits>

#include "dense_attention.hpp"
#include "numbers.hpp"
#include "simd-inl.hpp"
#include "tile-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace frt::cpu {
namespace HWY_NAMESPACE {
namespace {

// The places of one task's working memory.
struct DenseTile {
  int64_t queries, dim;
  float* q;       // (dim, queries)
  float* o;       // (queries, dim)
  float* k;       // (kBlock, dim)
  float* v;       // (kBlock, dim)
  float* scores;  // (kBlock, queries)
  float* largest;
  float* sums;
  float* shrinks;

  DenseTile(int64_t query_count, int64_t head_dim, float* work)
      : queries(query_count),
        dim(head_dim),
        q(work),
        o(q + dim * queries),
        k(o + queries * dim),
        v(k + kBlock * dim),
        scores(v + kBlock * dim),
        largest(scores + kBlock * queries),
        sums(largest + queries),
        shrinks(sums + queries) {}
};

template <class T>
void rows_to_f32(const T* from, int64_t stride, int64_t count, int64_t dim, float* to) {
  for (int64_t p = 0; p < count; ++p) {
    for_lanes(static_cast<std::size_t>(dim), [&](auto d, std::size_t i) HWY_ATTR {
      hn::StoreU(load(d, from + p * stride + i), d, to + p * dim + i);
    });
  }
}

// Turns the scores of a block into weights.
void soften(const DenseTile& t, int64_t count) {
  for_lanes(static_cast<std::size_t>(t.queries), [&](auto d, std::size_t i) HWY_ATTR {
    const auto before = hn::LoadU(d, t.largest + i);
    auto now = before;
    for (int64_t p = 0; p < count; ++p) {
      now = hn::Max(now, hn::LoadU(d, t.scores + p * t.queries + i));
    }
    const auto shrink = exp(d, hn::Sub(before, now));
    auto sum = hn::Mul(hn::LoadU(d, t.sums + i), shrink);
    for (int64_t p = 0; p < count; ++p) {
      float* at = t.scores + p * t.queries + i;
      const auto weight = exp(d, hn::Sub(hn::LoadU(d, at), now));
      hn::StoreU(weight, d, at);
      sum = hn::Add(sum, weight);
    }
    hn::StoreU(now, d, t.largest + i);
    hn::StoreU(sum, d, t.sums + i);
    hn::StoreU(shrink, d, t.shrinks + i);
  });
}

// Attends to `length` rows of keys and values, `stride` elements apart.
template <class T>
void attend(const DenseTile& t, const T* keys, const T* values, int64_t stride, int64_t length) {
  for (int64_t position = 0; position < length; position += kBlock) {
    const int64_t count = std::min(kBlock, length - position);
    rows_to_f32(keys + position * stride, stride, count, t.dim, t.k);
    rows_to_f32(values + position * stride, stride, count, t.dim, t.v);
    multiply<float>(
        {count, t.queries, t.dim, t.k, t.dim, 1, t.q, t.queries, t.scores, t.queries, nullptr, 0});
    soften(t, count);
    multiply<float>(
        {t.queries, t.dim, count, t.scores, 1, t.queries, t.v, t.dim, t.o, t.dim, t.shrinks, 1});
  }
}

template <class T>
void dense_typed(const frt_dense_attention_args& args, const DenseAttentionLayout& layout,
                 int64_t b, int64_t kv_head, int64_t first, float* work) {
  const int64_t length = dense_length(args, b);
  const int64_t rows = std::min(layout.tile_rows, length - first);
  const int64_t dim = args.head_dim;
  const int64_t group = layout.group;
  const DenseTile t(rows * group, dim, work);
  const int64_t row0 = b * args.rows;

  for (int64_t i = 0; i < t.queries; ++i) {
    const int64_t head = kv_head * group + i % group;
    const T* from =
        static_cast<const T*>(args.q) + (row0 + first + i / group) * args.q_stride + head * dim;
    for (int64_t j = 0; j < dim; ++j) {
      t.q[j * t.queries + i] = hn::GetLane(load(OneF32(), from + j)) * args.scale;
    }
    t.largest[i] = -std::numeric_limits<float>::infinity();
    t.sums[i] = 0;
  }
  std::fill(t.o, t.o + t.queries * dim, 0.0f);

  if (args.context_rows > 0) {
    const int64_t at =
        b / args.sequences_per_context * args.context_rows * args.context_stride + kv_head * dim;
    attend(t, static_cast<const T*>(args.context_k) + at,
           static_cast<const T*>(args.context_v) + at, args.context_stride,
           context_length(args, b));
  }
  const int64_t own = row0 * args.kv_stride + kv_head * dim;
  attend(t, static_cast<const T*>(args.k) + own, static_cast<const T*>(args.v) + own,
         args.kv_stride, length);

  for (int64_t i = 0; i < t.queries; ++i) {
    const int64_t head = kv_head * group + i % group;
    const int64_t at = (row0 + first + i / group) * args.y_stride + head * dim;
    const float factor = 1.0f / t.sums[i];
    float* from = t.o + i * dim;
    if (args.y_scale > 0) {
      for (int64_t j = 0; j < dim; ++j) from[j] *= factor;
      store_scaled(dim, from, args.y_scale, byte_offset(args.y, at));
      continue;
    }
    T* y = static_cast<T*>(args.y) + at;
    for_lanes(static_cast<std::size_t>(dim), [&](auto d, std::size_t j) HWY_ATTR {
      store(d, hn::Mul(hn::LoadU(d, from + j), hn::Set(d, factor)), y + j);
    });
  }
}

void dense_tile(const frt_dense_attention_args& args, const DenseAttentionLayout& layout, int64_t b,
                int64_t kv_head, int64_t first, float* work) {
  if (args.dtype == FRT_DTYPE_F32) {
    dense_typed<float>(args, layout, b, kv_head, first, work);
  } else {
    dense_typed<uint16_t>(args, layout, b, kv_head, first, work);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace frt::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace frt::cpu {

HWY_EXPORT(dense_tile);

void attend_dense_tile(const frt_dense_attention_args& args, const DenseAttentionLayout& layout,
                       int64_t b, int64_t kv_head, int64_t first, float* work) noexcept {
  HWY_DYNAMIC_DISPATCH(dense_tile)(args, layout, b, kv_head, first, work);
}

}  // namespace frt::cpu
#endif  // HWY_ONCE
