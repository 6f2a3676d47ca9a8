// SPDX-License-Identifier: Apache-2.0
// Attention of many rows (prefill): tiles of queries against blocks of positions.
//
// A tile holds the queries of some rows for all heads of one key/value head, transposed, so that
// both products run over vectors without sums across lanes:
//   scores^T (position, query) = K (position, dim) . q^T (dim, query)
//   o (query, dim) = shrink o + scores^T^T . V (position, dim)
// with the online softmax in between, lane by lane of the queries. Keys and values of a block are
// converted to f32 once per tile. In blocks that contain the diagonal each row multiplies only the
// values it may see.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/attention_tile.cpp"
#include <hwy/foreach_target.h>  // compiles this file once per target

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

template <class KV>
void rows_to_f32(const KV* from, int64_t stride, int64_t count, int64_t dim, float* to) {
  for (int64_t p = 0; p < count; ++p) {
    for_lanes(static_cast<std::size_t>(dim), [&](auto d, std::size_t i) HWY_ATTR {
      hn::StoreU(load(d, from + p * stride + i), d, to + p * dim + i);
    });
  }
}

// Turns the scores of a block, (count, queries), into weights.
void soften_block(float* scores, int64_t count, int64_t queries, float* largest, float* sums,
                  float* shrinks) {
  for_lanes(static_cast<std::size_t>(queries), [&](auto d, std::size_t i) HWY_ATTR {
    const auto before = hn::LoadU(d, largest + i);
    auto now = before;
    for (int64_t p = 0; p < count; ++p) now = hn::Max(now, hn::LoadU(d, scores + p * queries + i));
    const auto shrink = exp(d, hn::Sub(before, now));
    auto sum = hn::Mul(hn::LoadU(d, sums + i), shrink);
    for (int64_t p = 0; p < count; ++p) {
      float* at = scores + p * queries + i;
      const auto weight = exp(d, hn::Sub(hn::LoadU(d, at), now));
      hn::StoreU(weight, d, at);
      sum = hn::Add(sum, weight);
    }
    hn::StoreU(now, d, largest + i);
    hn::StoreU(sum, d, sums + i);
    hn::StoreU(shrink, d, shrinks + i);
  });
}

template <class T, class KV>
void tile_typed(const frt_attention_args& args, const AttentionLayout& layout, int64_t b,
                int64_t kv_head, int64_t first, float* work) {
  const int64_t length = active_length(args.sequences, b);
  const int64_t rows = std::min(layout.tile_rows, length - first);
  const int64_t dim = args.head_dim;
  const int64_t group = layout.group;
  const int64_t queries = rows * group;
  const int64_t stride = static_cast<int64_t>(args.kv_heads) * dim;

  float* q = work;  // (dim, queries)
  float* o = q + dim * queries;
  float* k = o + queries * dim;
  float* v = k + kBlock * dim;
  float* scores = v + kBlock * dim;  // (kBlock, queries)
  float* largest = scores + kBlock * queries;
  float* sums = largest + queries;
  float* shrinks = sums + queries;

  const float q_scale = args.scale * (sizeof(KV) == 1 ? args.k_scale : 1.0f);
  const int64_t row0 = b * args.sequences.rows + first;
  for (int64_t i = 0; i < queries; ++i) {
    const int64_t head = kv_head * group + i % group;
    const T* from = static_cast<const T*>(args.q) + ((row0 + i / group) * args.heads + head) * dim;
    for (int64_t j = 0; j < dim; ++j) {
      q[j * queries + i] = hn::GetLane(load(OneF32(), from + j)) * q_scale;
    }
    largest[i] = -std::numeric_limits<float>::infinity();
    sums[i] = 0;
  }
  std::fill(o, o + queries * dim, 0.0f);

  const int64_t stop = seen_positions(args, b, first + rows - 1);
  const int64_t diagonal = seen_positions(args, b, first);  // every row sees positions before it
  for (int64_t position = 0; position < stop; position += kBlock) {
    const int64_t count = std::min(kBlock, stop - position);
    const int64_t place = read_offset(args, b, position, stride * static_cast<int64_t>(sizeof(KV)));
    const auto rows_of = [&](const void* tensor) {
      return static_cast<const KV*>(byte_offset(tensor, place)) + kv_head * dim;
    };
    rows_to_f32(rows_of(args.keys), stride, count, dim, k);
    rows_to_f32(rows_of(args.values), stride, count, dim, v);
    multiply<float>({count, queries, dim, k, dim, 1, q, queries, scores, queries, nullptr, 0});
    const bool full = position + count <= diagonal;
    const auto visible = [&](int64_t row) {
      return std::clamp<int64_t>(seen_positions(args, b, first + row) - position, 0, count);
    };
    for (int64_t row = 0; row < rows && !full; ++row) {
      for (int64_t p = visible(row); p < count; ++p) {
        std::fill_n(scores + p * queries + row * group, group,
                    -std::numeric_limits<float>::infinity());
      }
    }
    soften_block(scores, count, queries, largest, sums, shrinks);
    if (full) {
      multiply<float>({queries, dim, count, scores, 1, queries, v, dim, o, dim, shrinks, 1});
      continue;
    }
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t i = row * group;
      multiply<float>({group, dim, visible(row), scores + i, 1, queries, v, dim, o + i * dim, dim,
                       shrinks + i, 1});
    }
  }

  const float v_scale = sizeof(KV) == 1 ? args.v_scale : 1.0f;
  for (int64_t i = 0; i < queries; ++i) {
    const int64_t head = kv_head * group + i % group;
    const int64_t row = row0 + i / group;
    T* y = static_cast<T*>(args.y) + (row * args.heads + head) * dim;
    const T* gate = args.gate ? static_cast<const T*>(args.gate) + row * args.gate_row_stride +
                                    head * args.gate_head_stride
                              : nullptr;
    const float factor = v_scale / sums[i];
    const float* from = o + i * dim;
    for_lanes(static_cast<std::size_t>(dim), [&](auto d, std::size_t j) HWY_ATTR {
      auto value = hn::Mul(hn::LoadU(d, from + j), hn::Set(d, factor));
      if (gate) value = hn::Mul(value, sigmoid(d, load(d, gate + j)));
      store(d, value, y + j);
    });
  }
}

template <class T>
void tile_kv(const frt_attention_args& args, const AttentionLayout& layout, int64_t b,
             int64_t kv_head, int64_t first, float* work) {
  if (args.kv_dtype == FRT_DTYPE_F32) {
    tile_typed<T, float>(args, layout, b, kv_head, first, work);
  } else if (args.kv_dtype == FRT_DTYPE_BF16) {
    tile_typed<T, uint16_t>(args, layout, b, kv_head, first, work);
  } else {
    tile_typed<T, uint8_t>(args, layout, b, kv_head, first, work);
  }
}

void tile(const frt_attention_args& args, const AttentionLayout& layout, int64_t b, int64_t kv_head,
          int64_t first, float* work) {
  if (args.dtype == FRT_DTYPE_F32) {
    tile_kv<float>(args, layout, b, kv_head, first, work);
  } else {
    tile_kv<uint16_t>(args, layout, b, kv_head, first, work);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace frt::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace frt::cpu {

HWY_EXPORT(tile);

void attend_tile(const frt_attention_args& args, const AttentionLayout& layout, int64_t b,
                 int64_t kv_head, int64_t first, float* work) noexcept {
  HWY_DYNAMIC_DISPATCH(tile)(args, layout, b, kv_head, first, work);
}

}  // namespace frt::cpu
#endif  // HWY_ONCE
