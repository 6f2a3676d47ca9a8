// SPDX-License-Identifier: Apache-2.0
// frt.rope/1, frt.norm_qkv/1 and frt.dense_attention/1: tasks. The work of an attention
// tile is in dense_attention_tile.cpp.
#include "dense_attention.hpp"

#include <frt/ops/checks/dense_attention.hpp>

#include <cmath>
#include <limits>

#include "dense.hpp"
#include "numbers.hpp"
#include "products/weight.hpp"
#include "registry.hpp"

namespace frt::cpu {
namespace {

// ---- rope ------------------------------------------------------------------------------------

template <class T>
float to_f32(T value) noexcept {
  if constexpr (sizeof(T) == 4) {
    return value;
  } else {
    return bf16_to_float(value);
  }
}
template <class T>
T from_f32(float value) noexcept {
  if constexpr (sizeof(T) == 4) {
    return value;
  } else {
    return bf16_from_float(value);
  }
}

template <class T>
void rotate(T* x, const float* table, int32_t heads, int32_t head_dim) noexcept {
  const int32_t half = head_dim / 2;
  for (int32_t h = 0; h < heads; ++h, x += head_dim) {
    for (int32_t j = 0; j < half; ++j) {
      const float low = to_f32(x[j]);
      const float high = to_f32(x[half + j]);
      x[j] = from_f32<T>(low * table[j] - high * table[half + j]);
      x[half + j] = from_f32<T>(high * table[j] + low * table[half + j]);
    }
  }
}

template <class T>
void rotate_row(const frt_rope_args& args, int64_t row) noexcept {
  const int64_t b = row / args.rows;
  const int64_t base = args.base ? args.base[b / args.sequences_per_base] : 0;
  const int64_t position = base + row % args.rows;
  if (position < 0 || position >= args.positions) return;
  const float* table = args.table + position * args.head_dim;
  if (args.q) {
    rotate(static_cast<T*>(args.q) + row * args.q_stride, table, args.heads, args.head_dim);
  }
  rotate(static_cast<T*>(args.k) + row * args.k_stride, table, args.kv_heads, args.head_dim);
}

// ---- attention -------------------------------------------------------------------------------

// Row `row` of sequence `b`, query head `head`, in plain loops. `work`: a score per key, then
// head_dim sums.
template <frt_dtype kType>
void attend_plain(const frt_dense_attention_args& args, int64_t b, int64_t row, int64_t head,
                  float* work) noexcept {
  const int32_t dim = args.head_dim;
  const int64_t kv_head = head / (args.heads / args.kv_heads);
  const int64_t context = context_length(args, b);
  const int64_t keys = context + dense_length(args, b);
  const int64_t query = (b * args.rows + row) * args.q_stride + head * dim;
  // The element of key p at which its head begins, and whether it is one of the context.
  const auto place = [&](int64_t p) {
    if (p < context) {
      return (b / args.sequences_per_context * args.context_rows + p) * args.context_stride +
             kv_head * dim;
    }
    return (b * args.rows + p - context) * args.kv_stride + kv_head * dim;
  };
  float* scores = work;
  float* sums = work + keys;
  float largest = -std::numeric_limits<float>::infinity();
  for (int64_t p = 0; p < keys; ++p) {
    const void* from = p < context ? args.context_k : args.k;
    const int64_t key = place(p);
    float dot = 0;
    for (int32_t i = 0; i < dim; ++i) {
      dot += load_float(kType, args.q, query + i) * load_float(kType, from, key + i);
    }
    scores[p] = dot * args.scale;
    if (!(scores[p] <= largest)) largest = scores[p];
  }
  std::fill(sums, sums + dim, 0.0f);
  float total = 0;
  for (int64_t p = 0; p < keys; ++p) {
    const void* from = p < context ? args.context_v : args.v;
    const float weight = std::exp(scores[p] - largest);
    total += weight;
    const int64_t value = place(p);
    for (int32_t i = 0; i < dim; ++i) sums[i] += weight * load_float(kType, from, value + i);
  }
  const int64_t y = (b * args.rows + row) * args.y_stride + head * dim;
  for (int32_t i = 0; i < dim; ++i) sums[i] /= total;
  if (args.y_scale > 0) return store_scaled(dim, sums, args.y_scale, byte_offset(args.y, y));
  for (int32_t i = 0; i < dim; ++i) store_float(kType, args.y, y + i, sums[i]);
}

std::unique_ptr<Node> prepare_attention(Device& device, const frt_dense_attention_args& args) {
  check_dense_attention(Checks(FRT_OP_DENSE_ATTENTION), args);
  return make_attention(device, args);
}

std::unique_ptr<Node> prepare_rope(Device&, const frt_rope_args& args) {
  check_rope(Checks(FRT_OP_ROPE), args);
  return make_rope(args);
}

std::unique_ptr<Node> prepare_norm_qkv(Device& device, const frt_norm_qkv_args& args) {
  check_norm_qkv(Checks(FRT_OP_NORM_QKV), args, kWeightFormats);
  return make_norm_qkv(device, args);
}

}  // namespace

std::unique_ptr<Node> make_rope(const frt_rope_args& args) {
  return make_node([args](Pool& pool, std::byte*) noexcept {
    pool.run(static_cast<int64_t>(args.count) * args.rows, [&](int64_t row, int) {
      if (args.dtype == FRT_DTYPE_F32) {
        rotate_row<float>(args, row);
      } else {
        rotate_row<uint16_t>(args, row);
      }
    });
  });
}

std::unique_ptr<Node> make_norm_qkv(Device& device, const frt_norm_qkv_args& args) {
  return make_sequence(make_norm_dense(device, args.products), make_rope(args.rope));
}

std::unique_ptr<Node> make_attention(Device& device, const frt_dense_attention_args& args) {
  const DenseAttentionLayout layout(args);
  const auto workers = static_cast<std::size_t>(device.options().threads);
  const std::size_t scratch = workers * static_cast<std::size_t>(layout.work) * sizeof(float);
  if (device.reference_numerics()) {
    return make_node(
        [args, layout](Pool& pool, std::byte* memory) noexcept {
          const int64_t rows = args.rows;
          pool.run(args.count * rows * args.heads, [&](int64_t task, int worker) {
            const int64_t b = task / args.heads / rows;
            const int64_t row = task / args.heads % rows;
            if (row >= dense_length(args, b)) return;
            const auto attend = args.dtype == FRT_DTYPE_F32 ? attend_plain<FRT_DTYPE_F32>
                                                            : attend_plain<FRT_DTYPE_BF16>;
            attend(args, b, row, task % args.heads,
                   reinterpret_cast<float*>(memory) + worker * layout.work);
          });
        },
        scratch);
  }
  return make_node(
      [args, layout](Pool& pool, std::byte* memory) noexcept {
        const int64_t tiles = (args.rows + layout.tile_rows - 1) / layout.tile_rows;
        pool.run(args.count * tiles * args.kv_heads, [&](int64_t task, int worker) {
          const int64_t b = task / args.kv_heads / tiles;
          const int64_t first = task / args.kv_heads % tiles * layout.tile_rows;
          if (first >= dense_length(args, b)) return;
          attend_dense_tile(args, layout, b, task % args.kv_heads, first,
                            reinterpret_cast<float*>(memory) + worker * layout.work);
        });
      },
      scratch);
}

void register_dense_attention(KernelList& list) {
  list.add<frt_rope_args>(FRT_OP_ROPE, kFloatTypes, {}, prepare_rope);
  const frt_dtype_set types = kFloatTypes | FRT_DTYPE_BIT(FRT_DTYPE_F8_E4M3);
  list.add<frt_norm_qkv_args>(FRT_OP_NORM_QKV, types, kWeightFormats, prepare_norm_qkv);
  list.add<frt_dense_attention_args>(FRT_OP_DENSE_ATTENTION, types, {}, prepare_attention);
}

}  // namespace frt::cpu
