// SPDX-License-Identifier: Apache-2.0
// The gated delta rule of one value head (frt/ops/gated_delta.h).
//
// Recurrent, for a few rows: columns of S are independent, so blocks of columns are taken through
// all rows; per row one pass reads S for S^T k, a second one updates it and reads S^T q. The decay
// is applied in the second pass, so S is written once.
//
// Chunked (Yang et al., "Gated Delta Networks", 2024), for C rows, G = cumsum(g), i >= j:
//   D = exp(G_i - G_j)            the exponent is never positive: nothing overflows
//   A = strict_lower((beta K) K^T . D),  L = I + A
//   R = beta (V - exp(G) K S)
//   Vn = L^-1 R                   forward substitution, since U - W S = L^-1 R: no inverse, no W
//   O = exp(G) Q S + ((Q K^T) . D) Vn
//   S = exp(G_C) S + (exp(G_C - G) K)^T Vn
// G is summed in double: a strong decay early in the chunk must not round the later ones away.
// exp(g) is 0 in f32 long before g = -128, so g is cut there and infinities stay out of the sums.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/delta.cpp"
#include <hwy/foreach_target.h>  // compiles this file once per target

#include <algorithm>
#include <cmath>

#include "active.hpp"
#include "delta.hpp"
#include "numbers.hpp"
#include "simd-inl.hpp"
#include "tile-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace frt::cpu {
namespace HWY_NAMESPACE {
namespace {

// One value head of one sequence: where its rows are.
template <class T>
struct Head {
  Head(const frt_gated_delta_args& arguments, int64_t b, int32_t value_head, float* work)
      : args(arguments), head(value_head), row0(b * arguments.sequences.rows) {
    const int64_t keys = args.key_dim;
    const int64_t values = args.value_dim;
    const int64_t key_head = value_head / (args.value_heads / args.key_heads);
    channels = 2 * args.key_heads * keys + args.value_heads * values;
    const T* c = static_cast<const T*>(args.c) + row0 * channels;
    q = c + key_head * keys;
    k = q + args.key_heads * keys;
    v = c + 2 * args.key_heads * keys + value_head * values;
    o = static_cast<T*>(args.o) + (row0 * args.value_heads + value_head) * values;
    o_row = args.value_heads * values;
    state = delta_state(args, b, value_head, work);
  }

  float g(int64_t t) const {
    const float a = load_one(args.a, t) + args.dt_bias[head];
    return std::max(args.decay[head] * softplus(a), -128.0f);  // NaN stays
  }
  float beta(int64_t t) const { return cpu::sigmoid(load_one(args.b, t)); }
  float load_one(const void* data, int64_t t) const {
    return load_float(args.dtype, data, (row0 + t) * args.value_heads + head);
  }

  // Row t of q and k, normalised; q scaled.
  void load_keys(int64_t t, float* q_row, float* k_row) const {
    const auto n = static_cast<std::size_t>(args.key_dim);
    unit(n, q + t * channels, 1.0f / std::sqrt(static_cast<float>(args.key_dim)), q_row);
    unit(n, k + t * channels, 1.0f, k_row);
  }
  static void unit(std::size_t n, const T* x, float scale, float* y) {
    const float squares = sum_lanes(n, [&](auto d, std::size_t i, auto sum) HWY_ATTR {
      const auto value = load(d, x + i);
      return hn::MulAdd(value, value, sum);
    });
    const float factor = scale / std::sqrt(squares + 1e-6f);
    for_lanes(n, [&](auto d, std::size_t i) HWY_ATTR {
      hn::StoreU(hn::Mul(load(d, x + i), hn::Set(d, factor)), d, y + i);
    });
  }

  const frt_gated_delta_args& args;
  int64_t head, row0, channels, o_row;
  const T* q;
  const T* k;
  const T* v;
  T* o;
  float* state;
};

// ---- recurrent -------------------------------------------------------------------------------

// Rows [0, rows) of kVectors vectors of columns from `column`. q and k: (rows, key_dim).
template <int kVectors, class D, class T>
HWY_INLINE void recur_columns(D d, const Head<T>& head, int64_t rows, int64_t column,
                              const float* q, const float* k, const float* decays,
                              const float* betas) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t keys = head.args.key_dim;
  const int64_t values = head.args.value_dim;
  for (int64_t t = 0; t < rows; ++t, q += keys, k += keys) {
    float* s = head.state + column;
    Vec<D> sum[kVectors];
    HWY_UNROLL(8) for (int i = 0; i < kVectors; ++i) sum[i] = hn::Zero(d);
    for (int64_t j = 0; j < keys; ++j, s += values) {
      const auto kj = hn::Set(d, k[j]);
      HWY_UNROLL(8) for (int i = 0; i < kVectors; ++i) {
        sum[i] = hn::MulAdd(hn::LoadU(d, s + i * lanes), kj, sum[i]);
      }
    }
    const auto decay = hn::Set(d, decays[t]);
    const auto beta = hn::Set(d, betas[t]);
    const T* v = head.v + t * head.channels + column;
    Vec<D> delta[kVectors];
    HWY_UNROLL(8) for (int i = 0; i < kVectors; ++i) {
      delta[i] = hn::Mul(beta, hn::NegMulAdd(decay, sum[i], load(d, v + i * lanes)));
      sum[i] = hn::Zero(d);
    }
    s = head.state + column;
    for (int64_t j = 0; j < keys; ++j, s += values) {
      const auto kj = hn::Set(d, k[j]);
      const auto qj = hn::Set(d, q[j]);
      HWY_UNROLL(8) for (int i = 0; i < kVectors; ++i) {
        const auto old = hn::Mul(hn::LoadU(d, s + i * lanes), decay);
        const auto updated = hn::MulAdd(kj, delta[i], old);
        hn::StoreU(updated, d, s + i * lanes);
        sum[i] = hn::MulAdd(updated, qj, sum[i]);
      }
    }
    T* o = head.o + t * head.o_row + column;
    HWY_UNROLL(8) for (int i = 0; i < kVectors; ++i) store(d, sum[i], o + i * lanes);
  }
}

#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
constexpr int kColumnVectors = 8;
#else
constexpr int kColumnVectors = 4;
#endif

template <class T>
void recur(const Head<T>& head, int64_t rows, float* work) {
  const int64_t keys = head.args.key_dim;
  const int64_t values = head.args.value_dim;
  float* q = work;
  float* k = q + kRecurrentRows * keys;
  float decays[kRecurrentRows];
  float betas[kRecurrentRows];
  for (int64_t t = 0; t < rows; ++t) {
    head.load_keys(t, q + t * keys, k + t * keys);
    decays[t] = std::exp(head.g(t));
    betas[t] = head.beta(t);
  }
  const F32 d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + kColumnVectors * lanes <= values; i += kColumnVectors * lanes) {
    recur_columns<kColumnVectors>(d, head, rows, i, q, k, decays, betas);
  }
  for (; i + lanes <= values; i += lanes) {
    recur_columns<1>(d, head, rows, i, q, k, decays, betas);
  }
  for (; i < values; ++i) recur_columns<1>(OneF32(), head, rows, i, q, k, decays, betas);
}

// ---- chunked ---------------------------------------------------------------------------------

// pairs = (Q K^T) . D with the diagonal, and -beta (K K^T) . D below it; zeros above.
inline void decay_pairs(const ChunkWork& w, int64_t rows) {
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j <= i; ++j) w.exponents[j] = static_cast<float>(w.sums[i] - w.sums[j]);
    float* read = w.pairs + i * rows;
    float* write = w.pairs + (rows + i) * rows;
    const float beta = w.beta[i];
    for_lanes(static_cast<std::size_t>(i + 1), [&](auto d, std::size_t j) HWY_ATTR {
      const auto factor = exp(d, hn::LoadU(d, w.exponents + j));
      hn::StoreU(hn::Mul(hn::LoadU(d, read + j), factor), d, read + j);
      const auto scaled = hn::Mul(hn::LoadU(d, write + j), hn::Set(d, -beta));
      hn::StoreU(hn::Mul(scaled, factor), d, write + j);
    });
    for (int64_t j = i + 1; j < rows; ++j) read[j] = 0;
    for (int64_t j = i; j < rows; ++j) write[j] = 0;
  }
}

template <class T>
void chunk_rows(const Head<T>& head, int64_t first, int64_t rows, const ChunkWork& w) {
  const int64_t keys = head.args.key_dim;
  const int64_t values = head.args.value_dim;
  float* q = w.qk;
  float* k = w.qk + rows * keys;
  double sum = 0;
  for (int64_t t = 0; t < rows; ++t) {
    head.load_keys(first + t, q + t * keys, k + t * keys);
    for (int64_t j = 0; j < keys; ++j) w.k_transposed[j * rows + t] = k[t * keys + j];
    sum += static_cast<double>(head.g(first + t));
    w.sums[t] = sum;
    w.beta[t] = head.beta(first + t);
    w.decay[t] = static_cast<float>(std::exp(sum));
  }
  for (int64_t t = 0; t < rows; ++t) w.rest[t] = static_cast<float>(std::exp(sum - w.sums[t]));

  // Of both products only the part up to the diagonal is wanted: strips of rows stop there.
  constexpr int64_t kStrip = 16;
  for (int64_t i = 0; i < rows; i += kStrip) {
    const int64_t strip = std::min(kStrip, rows - i);
    for (const int64_t half : {int64_t{0}, rows}) {
      multiply<float>({strip, i + strip, keys, w.qk + (half + i) * keys, keys, 1, w.k_transposed,
                       rows, w.pairs + (half + i) * rows, rows, nullptr, 0});
    }
  }
  decay_pairs(w, rows);
  multiply<float>(
      {2 * rows, values, keys, w.qk, keys, 1, head.state, values, w.read, values, nullptr, 0});

  // R, then Vn in place: a row of L^-1 R needs the rows before it.
  const float* k_read = w.read + rows * values;
  for (int64_t i = 0; i < rows; ++i) {
    const T* v = head.v + (first + i) * head.channels;
    const float* s = k_read + i * values;
    float* r = w.fresh + i * values;
    for_lanes(static_cast<std::size_t>(values), [&](auto d, std::size_t j) HWY_ATTR {
      const auto seen = hn::Mul(hn::Set(d, w.decay[i]), hn::LoadU(d, s + j));
      hn::StoreU(hn::Mul(hn::Set(d, w.beta[i]), hn::Sub(load(d, v + j), seen)), d, r + j);
    });
  }
  static constexpr float kOne = 1;
  const float* a = w.pairs + rows * rows;
  for (int64_t i = 0; i < rows; i += kTileRows) {
    const int64_t strip = std::min<int64_t>(kTileRows, rows - i);
    if (i > 0) {
      multiply<float>({strip, values, i, a + i * rows, rows, 1, w.fresh, values,
                       w.fresh + i * values, values, &kOne, 0});
    }
    for (int64_t row = i + 1; row < i + strip; ++row) {
      multiply<float>({1, values, row - i, a + row * rows + i, rows, 1, w.fresh + i * values,
                       values, w.fresh + row * values, values, &kOne, 0});
    }
  }

  // O on top of exp(G) Q S, in place of Q S.
  for (int64_t i = 0; i < rows; i += kStrip) {
    const int64_t strip = std::min(kStrip, rows - i);
    multiply<float>({strip, values, i + strip, w.pairs + i * rows, rows, 1, w.fresh, values,
                     w.read + i * values, values, w.decay + i, 1});
  }
  for (int64_t i = 0; i < rows; ++i) {
    T* o = head.o + (first + i) * head.o_row;
    const float* from = w.read + i * values;
    for_lanes(static_cast<std::size_t>(values),
              [&](auto d, std::size_t j) HWY_ATTR { store(d, hn::LoadU(d, from + j), o + j); });
  }

  for (int64_t t = 0; t < rows; ++t) {
    float* row = k + t * keys;
    for_lanes(static_cast<std::size_t>(keys), [&](auto d, std::size_t j) HWY_ATTR {
      hn::StoreU(hn::Mul(hn::LoadU(d, row + j), hn::Set(d, w.rest[t])), d, row + j);
    });
  }
  multiply<float>(
      {keys, values, rows, k, 1, keys, w.fresh, values, head.state, values, w.decay + rows - 1, 0});
}

// ---- entry -----------------------------------------------------------------------------------

template <class T>
void head_typed(const frt_gated_delta_args& args, int64_t b, int32_t value_head, float* work) {
  const int64_t length = active_length(args.sequences, b);
  if (length == 0) return;
  const Head<T> head(args, b, value_head, work);
  if (length <= kRecurrentRows) return recur(head, length, work);
  const int64_t chunk = std::min(args.chunk, args.sequences.rows);
  const ChunkWork memory(work, chunk, args.key_dim, args.value_dim);
  for (int64_t first = 0; first < length; first += chunk) {
    chunk_rows(head, first, std::min(chunk, length - first), memory);
  }
}

void head_rows(const frt_gated_delta_args& args, int64_t b, int32_t value_head, float* work) {
  if (args.dtype == FRT_DTYPE_F32) {
    head_typed<float>(args, b, value_head, work);
  } else {
    head_typed<uint16_t>(args, b, value_head, work);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace frt::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace frt::cpu {

HWY_EXPORT(head_rows);

namespace {

// Floats of working memory beside a copy of the state.
int64_t rule_floats(const frt_gated_delta_args& args) noexcept {
  const int64_t chunk = std::min(args.chunk, args.sequences.rows);
  const int64_t recurrent = 2LL * kRecurrentRows * args.key_dim;
  const int64_t chunked = ChunkWork(nullptr, chunk, args.key_dim, args.value_dim).floats;
  return (std::max(recurrent, chunked) + 15) / 16 * 16;
}
int64_t state_floats(const frt_gated_delta_args& args) noexcept {
  return static_cast<int64_t>(args.key_dim) * args.value_dim;
}

}  // namespace

std::size_t delta_work_floats(const frt_gated_delta_args& args) noexcept {
  const int64_t copy = args.keep_state != 0 ? (state_floats(args) + 15) / 16 * 16 : 0;
  return static_cast<std::size_t>(rule_floats(args) + copy);
}

float* delta_state(const frt_gated_delta_args& args, int64_t b, int64_t head,
                   float* work) noexcept {
  float* state =
      static_cast<float*>(byte_offset(args.state, args.sequences.slot[b] * args.slot_stride)) +
      head * state_floats(args);
  if (args.keep_state == 0) return state;
  float* copy = work + rule_floats(args);
  std::copy_n(state, state_floats(args), copy);
  return copy;
}

void delta_head(const frt_gated_delta_args& args, int64_t b, int32_t head, float* work) noexcept {
  HWY_DYNAMIC_DISPATCH(head_rows)(args, b, head, work);
}

}  // namespace frt::cpu
#endif  // HWY_ONCE
