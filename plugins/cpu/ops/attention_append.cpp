// SPDX-License-Identifier: Apache-2.0
// The fast form of frt.attention_append/1: one row, all its heads.
//
// The angles of a row are shared by its heads: cos and sin are computed once, in f32 from the f32
// product float(position) * inv_freq.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/attention_append.cpp"
#include <hwy/foreach_target.h>  // compiles this file once per target

#include <cmath>

#include "attention.hpp"
#include "numbers.hpp"
#include "simd-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace frt::cpu {
namespace HWY_NAMESPACE {
namespace {

// x = rope(rms_norm(source) * weight), the norm only with a weight.
template <class T>
void rotate_row(const frt_attention_append_args& args, const T* source, const float* weight,
                const float* cosine, const float* sine, float* x) {
  const auto dim = static_cast<std::size_t>(args.head_dim);
  if (weight) {
    const float squares = sum_lanes(dim, [&](auto d, std::size_t i, auto sum) HWY_ATTR {
      const auto v = load(d, source + i);
      return hn::MulAdd(v, v, sum);
    });
    const float factor =
        1.0f / std::sqrt(squares / static_cast<float>(args.head_dim) + args.epsilon);
    for_lanes(dim, [&](auto d, std::size_t i) HWY_ATTR {
      const auto v = hn::Mul(load(d, source + i), hn::Set(d, factor));
      hn::StoreU(hn::Mul(v, hn::LoadU(d, weight + i)), d, x + i);
    });
  } else {
    for_lanes(dim,
              [&](auto d, std::size_t i) HWY_ATTR { hn::StoreU(load(d, source + i), d, x + i); });
  }
  const auto half = static_cast<std::size_t>(args.rotary_dim / 2);
  for_lanes(half, [&](auto d, std::size_t i) HWY_ATTR {
    const auto c = hn::LoadU(d, cosine + i);
    const auto s = hn::LoadU(d, sine + i);
    const auto low = hn::LoadU(d, x + i);
    const auto high = hn::LoadU(d, x + half + i);
    hn::StoreU(hn::NegMulAdd(high, s, hn::Mul(low, c)), d, x + i);
    hn::StoreU(hn::MulAdd(low, s, hn::Mul(high, c)), d, x + half + i);
  });
}

template <class Target, class Source>
void store_row(std::size_t count, const Source* from, float scale, Target* to) {
  if constexpr (sizeof(Target) == 1) {
    for (std::size_t i = 0; i < count; ++i) {
      to[i] = e4m3_from_float(hn::GetLane(load(OneF32(), from + i)) / scale);
    }
  } else {
    for_lanes(count, [&](auto d, std::size_t i) HWY_ATTR { store(d, load(d, from + i), to + i); });
  }
}

template <class T, class KV>
void append_typed(const frt_attention_append_args& args, int64_t b, int64_t q, float* work) {
  const int64_t row = b * args.sequences.rows + q;
  const int64_t position = args.sequences.position[b] + q;
  const auto dim = static_cast<std::size_t>(args.head_dim);
  const int32_t half = args.rotary_dim / 2;
  float* cosine = work;
  float* sine = work + half;
  float* x = work + args.rotary_dim;
  for (int32_t j = 0; j < half; ++j) {
    const float angle = static_cast<float>(position) * args.inv_freq[j];
    cosine[j] = std::cos(angle) * args.rope_scale;
    sine[j] = std::sin(angle) * args.rope_scale;
  }
  const T* q_row = static_cast<const T*>(args.q) + row * args.q_row_stride;
  T* q_out = static_cast<T*>(args.q_out) + row * args.heads * args.head_dim;
  for (int32_t h = 0; h < args.heads; ++h) {
    rotate_row(args, q_row + h * args.q_head_stride, args.q_norm, cosine, sine, x);
    store_row(dim, x, 1.0f, q_out + static_cast<int64_t>(h) * args.head_dim);
  }
  if (position < 0 || position >= args.max_rows) return;
  const int64_t width = static_cast<int64_t>(args.kv_heads) * args.head_dim;
  const int64_t place = row_offset(args.pages, args.slot_stride, args.sequences.slot[b], position,
                                   width * static_cast<int64_t>(sizeof(KV)));
  if (place < 0) return;
  KV* keys = static_cast<KV*>(byte_offset(args.keys, place));
  KV* values = static_cast<KV*>(byte_offset(args.values, place));
  const T* k = static_cast<const T*>(args.k) + row * width;
  const T* v = static_cast<const T*>(args.v) + row * width;
  for (int64_t at = 0; at < width; at += args.head_dim) {
    rotate_row(args, k + at, args.k_norm, cosine, sine, x);
    store_row(dim, x, args.k_scale, keys + at);
  }
  store_row(static_cast<std::size_t>(width), v, args.v_scale, values);
}

template <class T>
void append_kv(const frt_attention_append_args& args, int64_t b, int64_t q, float* work) {
  if (args.kv_dtype == FRT_DTYPE_F32) return append_typed<T, float>(args, b, q, work);
  if (args.kv_dtype == FRT_DTYPE_BF16) return append_typed<T, uint16_t>(args, b, q, work);
  append_typed<T, uint8_t>(args, b, q, work);
}

void append(const frt_attention_append_args& args, int64_t b, int64_t q, float* work) {
  if (args.dtype == FRT_DTYPE_F32) return append_kv<float>(args, b, q, work);
  append_kv<uint16_t>(args, b, q, work);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace frt::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace frt::cpu {

HWY_EXPORT(append);

void append_row(const frt_attention_append_args& args, int64_t b, int64_t q, float* work) noexcept {
  HWY_DYNAMIC_DISPATCH(append)(args, b, q, work);
}

}  // namespace frt::cpu
#endif  // HWY_ONCE
