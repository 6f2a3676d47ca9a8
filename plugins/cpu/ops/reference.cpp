// SPDX-License-Identifier: Apache-2.0
#include "reference.hpp"

#include <frt/error.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "active.hpp"
#include "delta.hpp"
#include "numbers.hpp"

namespace frt::cpu::reference {

void rms_norm(int32_t width, float epsilon, frt_dtype x_dtype, const void* x, const float* weight,
              frt_dtype z_dtype, const void* z, frt_dtype y_dtype, void* y) noexcept {
  float squares = 0;
  for (int32_t i = 0; i < width; ++i) {
    const float v = load_float(x_dtype, x, i);
    squares += v * v;
  }
  const float factor = 1.0f / std::sqrt(squares / static_cast<float>(width) + epsilon);
  for (int32_t i = 0; i < width; ++i) {
    float v = load_float(x_dtype, x, i) * factor * weight[i];
    if (z) v *= silu(load_float(z_dtype, z, i));
    store_float(y_dtype, y, i, v);
  }
}

void causal_conv(const frt_causal_conv_args& args, int64_t b, int32_t first, int32_t end) noexcept {
  const int32_t length = active_length(args.sequences, b);
  if (length == 0) return;
  const int64_t channels = args.channels;
  const int32_t history = args.width - 1;
  const int64_t row0 = b * args.sequences.rows;
  void* window = byte_offset(args.window, args.sequences.slot[b] * args.slot_stride);
  // Row t of u; rows before 0 come from the window.
  const auto row = [&](int32_t t) -> const void* {
    return t >= 0 ? element(args.dtype, args.u, (row0 + t) * channels)
                  : element(args.dtype, window, (history + t) * channels);
  };
  for (int32_t t = 0; t < length; ++t) {
    for (int32_t i = first; i < end; ++i) {
      float sum = 0;
      for (int32_t w = 0; w < args.width; ++w) {
        sum += args.conv_weight[w * channels + i] * load_float(args.dtype, row(t - history + w), i);
      }
      store_float(args.dtype, args.c, (row0 + t) * channels + i, silu(sum));
    }
  }
  if (args.keep_window != 0) return;
  const auto bytes = static_cast<std::size_t>((end - first) * element_bytes(args.dtype));
  for (int32_t w = 0; w < history; ++w) {
    std::memmove(element(args.dtype, window, w * channels + first),
                 element(args.dtype, row(length - history + w), first), bytes);
  }
}

void gated_delta(const frt_gated_delta_args& args, int64_t b, int32_t head, float* work) noexcept {
  const int32_t length = active_length(args.sequences, b);
  if (length == 0) return;
  const int32_t keys = args.key_dim;
  const int32_t values = args.value_dim;
  const int32_t key_head = head / (args.value_heads / args.key_heads);
  const int64_t channels =
      2LL * args.key_heads * keys + static_cast<int64_t>(args.value_heads) * values;
  const int64_t q_first = static_cast<int64_t>(key_head) * keys;
  const int64_t k_first = q_first + static_cast<int64_t>(args.key_heads) * keys;
  const int64_t v_first = 2LL * args.key_heads * keys + static_cast<int64_t>(head) * values;
  float* q = work;
  float* k = q + keys;
  float* d = k + keys;
  float* o = d + values;
  float* state = delta_state(args, b, head, work);

  for (int32_t t = 0; t < length; ++t) {
    const int64_t row = b * args.sequences.rows + t;
    const void* c = element(args.dtype, args.c, row * channels);
    float q_squares = 0;
    float k_squares = 0;
    for (int32_t j = 0; j < keys; ++j) {
      q[j] = load_float(args.dtype, c, q_first + j);
      k[j] = load_float(args.dtype, c, k_first + j);
      q_squares += q[j] * q[j];
      k_squares += k[j] * k[j];
    }
    const float q_factor =
        1.0f / std::sqrt(q_squares + 1e-6f) / std::sqrt(static_cast<float>(keys));
    const float k_factor = 1.0f / std::sqrt(k_squares + 1e-6f);
    for (int32_t j = 0; j < keys; ++j) {
      q[j] *= q_factor;
      k[j] *= k_factor;
    }
    const int64_t scalar = row * args.value_heads + head;
    const float g =
        args.decay[head] * softplus(load_float(args.dtype, args.a, scalar) + args.dt_bias[head]);
    const float beta = sigmoid(load_float(args.dtype, args.b, scalar));
    const float decay = std::exp(g);

    std::fill(d, d + values, 0.0f);
    for (int32_t j = 0; j < keys; ++j) {
      float* s = state + static_cast<int64_t>(j) * values;
      for (int32_t i = 0; i < values; ++i) {
        s[i] *= decay;
        d[i] += s[i] * k[j];
      }
    }
    for (int32_t i = 0; i < values; ++i) {
      d[i] = beta * (load_float(args.dtype, c, v_first + i) - d[i]);
    }
    std::fill(o, o + values, 0.0f);
    for (int32_t j = 0; j < keys; ++j) {
      float* s = state + static_cast<int64_t>(j) * values;
      for (int32_t i = 0; i < values; ++i) {
        s[i] += k[j] * d[i];
        o[i] += s[i] * q[j];
      }
    }
    const int64_t first = scalar * values;
    for (int32_t i = 0; i < values; ++i) store_float(args.dtype, args.o, first + i, o[i]);
  }
}

namespace {

// Bytes from keys or values to a row of the slot of sequence `b`; -1: it has no page.
template <class Args>
int64_t row_place(const Args& args, int64_t b, int64_t position) noexcept {
  const int64_t row_bytes = static_cast<int64_t>(args.kv_heads) * args.head_dim *
                            static_cast<int64_t>(dtype_bits(args.kv_dtype) / 8);
  const int64_t slot = args.sequences.slot[b];
  if (!args.pages.table) return slot * args.slot_stride + position * row_bytes;
  const int64_t page = args.pages.table[slot * args.pages.slot_pages + position / args.pages.rows];
  if (page < 0) return -1;
  return page * args.pages.stride + position % args.pages.rows * row_bytes;
}

}  // namespace

void attention_append(const frt_attention_append_args& args, int64_t b, int32_t q,
                      float* work) noexcept {
  const int64_t row = b * args.sequences.rows + q;
  const int64_t position = static_cast<int64_t>(args.sequences.position[b]) + q;
  const int32_t half = args.rotary_dim / 2;
  const int32_t dim = args.head_dim;
  float* cosine = work;
  float* sine = work + half;
  float* x = work + args.rotary_dim;
  for (int32_t j = 0; j < half; ++j) {
    const float angle = static_cast<float>(position) * args.inv_freq[j];
    cosine[j] = std::cos(angle) * args.rope_scale;
    sine[j] = std::sin(angle) * args.rope_scale;
  }
  // x = rope(rms_norm(source) * weight)
  const auto norm_and_rotate = [&](const void* source, const float* weight) {
    float squares = 0;
    for (int32_t i = 0; i < dim; ++i) {
      x[i] = load_float(args.dtype, source, i);
      squares += x[i] * x[i];
    }
    if (weight) {
      const float factor = 1.0f / std::sqrt(squares / static_cast<float>(dim) + args.epsilon);
      for (int32_t i = 0; i < dim; ++i) x[i] *= factor * weight[i];
    }
    for (int32_t j = 0; j < half; ++j) {
      const float low = x[j];
      const float high = x[j + half];
      x[j] = low * cosine[j] - high * sine[j];
      x[j + half] = high * cosine[j] + low * sine[j];
    }
  };

  for (int32_t h = 0; h < args.heads; ++h) {
    norm_and_rotate(element(args.dtype, args.q, row * args.q_row_stride + h * args.q_head_stride),
                    args.q_norm);
    const int64_t first = (row * args.heads + h) * dim;
    for (int32_t i = 0; i < dim; ++i) store_float(args.dtype, args.q_out, first + i, x[i]);
  }
  if (position < 0 || position >= args.max_rows) return;
  const bool scaled = args.kv_dtype == FRT_DTYPE_F8_E4M3;
  const int64_t place = row_place(args, b, position);
  if (place < 0) return;
  void* keys = byte_offset(args.keys, place);
  void* values = byte_offset(args.values, place);
  for (int32_t h = 0; h < args.kv_heads; ++h) {
    const int64_t source = (row * args.kv_heads + h) * dim;
    const int64_t target = static_cast<int64_t>(h) * dim;
    norm_and_rotate(element(args.dtype, args.k, source), args.k_norm);
    for (int32_t i = 0; i < dim; ++i) {
      const float v = load_float(args.dtype, args.v, source + i);
      store_float(args.kv_dtype, keys, target + i, scaled ? x[i] / args.k_scale : x[i]);
      store_float(args.kv_dtype, values, target + i, scaled ? v / args.v_scale : v);
    }
  }
}

namespace {

// For one type of keys and values: chosen for every element, it would take most of the time.
template <frt_dtype kKv>
void attention_over(const frt_attention_args& args, int64_t b, int32_t q, int32_t head,
                    float* work) noexcept {
  const int64_t row = b * args.sequences.rows + q;
  const int64_t rows =
      std::min<int64_t>(static_cast<int64_t>(args.sequences.position[b]) + q + 1, args.max_rows);
  const int32_t dim = args.head_dim;
  const int64_t kv_head = head / (args.heads / args.kv_heads);
  const bool scaled = kKv == FRT_DTYPE_F8_E4M3;
  const float k_scale = scaled ? args.k_scale : 1.0f;
  const float v_scale = scaled ? args.v_scale : 1.0f;
  float* scores = work;
  float* sum = work + args.max_rows;
  float* query = sum + dim;
  for (int32_t i = 0; i < dim; ++i) {
    query[i] = load_float(args.dtype, args.q, (row * args.heads + head) * dim + i);
  }

  float largest = -std::numeric_limits<float>::infinity();
  for (int64_t p = 0; p < rows; ++p) {
    const void* key = byte_offset(args.keys, std::max<int64_t>(0, row_place(args, b, p)));
    float dot = 0;
    for (int32_t i = 0; i < dim; ++i) dot += query[i] * load_float(kKv, key, kv_head * dim + i);
    scores[p] = dot * k_scale * args.scale;
    if (!(scores[p] <= largest)) largest = scores[p];
  }
  std::fill(sum, sum + dim, 0.0f);
  float total = 0;
  for (int64_t p = 0; p < rows; ++p) {
    const float weight = std::exp(scores[p] - largest);
    total += weight;
    const void* value = byte_offset(args.values, std::max<int64_t>(0, row_place(args, b, p)));
    for (int32_t i = 0; i < dim; ++i) {
      sum[i] += weight * load_float(kKv, value, kv_head * dim + i);
    }
  }
  for (int32_t i = 0; i < dim; ++i) {
    float y = sum[i] * v_scale / total;
    if (args.gate) {
      y *= sigmoid(load_float(args.dtype, args.gate,
                              row * args.gate_row_stride + head * args.gate_head_stride + i));
    }
    store_float(args.dtype, args.y, (row * args.heads + head) * dim + i, y);
  }
}

}  // namespace

void attention(const frt_attention_args& args, int64_t b, int32_t q, int32_t head,
               float* work) noexcept {
  if (args.kv_dtype == FRT_DTYPE_F32) {
    attention_over<FRT_DTYPE_F32>(args, b, q, head, work);
  } else if (args.kv_dtype == FRT_DTYPE_BF16) {
    attention_over<FRT_DTYPE_BF16>(args, b, q, head, work);
  } else {
    attention_over<FRT_DTYPE_F8_E4M3>(args, b, q, head, work);
  }
}

}  // namespace frt::cpu::reference
