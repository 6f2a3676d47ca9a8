// SPDX-License-Identifier: Apache-2.0
// Causal attention: store the new keys and values, then one softmax per row and head.
#include "operators.hpp"

#include <frt/ops/attention.h>

#include <cmath>
#include <vector>

namespace simple {
namespace {

// Key or value row `position` of `slot`; null where it is in no page.
float* history_row(void* base, int64_t slot_stride, const frt_page_table& pages, int32_t slot,
                   int32_t position, int64_t width) {
  if (!pages.table) return in_slot<float>(base, slot_stride, slot) + position * width;
  const int32_t page =
      pages.table[static_cast<int64_t>(slot) * pages.slot_pages + position / pages.rows];
  if (page < 0) return nullptr;
  return in_slot<float>(base, pages.stride, page) + position % pages.rows * width;
}

struct AttentionAppend {
  using Args = frt_attention_append_args;
  static constexpr const char* kName = FRT_OP_ATTENTION_APPEND;
  static constexpr Formats kWeights = {};
  static void check(const frt::Checks& check, const Args& args) {
    frt::check_attention_append(check, args);
    only_f32(check, "dtype", args.dtype);
    only_f32(check, "kv_dtype", args.kv_dtype);
  }
  static void run(const Args& args) {
    const int64_t dim = args.head_dim, kv_width = args.kv_heads * dim;
    for_sequences(args.sequences, [&](int32_t b, int32_t slot, int32_t length) {
      for (int32_t q = 0; q < length; ++q) {
        const int64_t row = static_cast<int64_t>(b) * args.sequences.rows + q;
        const int32_t position = args.sequences.position[b] + q;
        for (int32_t head = 0; head < args.heads; ++head) {
          head_out(args,
                   static_cast<const float*>(args.q) + row * args.q_row_stride +
                       head * args.q_head_stride,
                   args.q_norm, position,
                   static_cast<float*>(args.q_out) + (row * args.heads + head) * dim);
        }
        if (position >= args.max_rows) continue;
        float* key = history_row(args.keys, args.slot_stride, args.pages, slot, position, kv_width);
        float* value =
            history_row(args.values, args.slot_stride, args.pages, slot, position, kv_width);
        if (!key) continue;
        for (int32_t head = 0; head < args.kv_heads; ++head) {
          head_out(args, static_cast<const float*>(args.k) + row * kv_width + head * dim,
                   args.k_norm, position, key + head * dim);
        }
        std::copy_n(static_cast<const float*>(args.v) + row * kv_width, kv_width, value);
      }
    });
  }

 private:
  // y = rope(rms_norm(x) * norm) of one head.
  static void head_out(const Args& args, const float* x, const float* norm, int32_t position,
                       float* y) {
    float scale = 1;
    if (norm) {
      float sum = 0;
      for (int32_t i = 0; i < args.head_dim; ++i) sum += x[i] * x[i];
      scale = 1.0f / std::sqrt(sum / static_cast<float>(args.head_dim) + args.epsilon);
    }
    for (int32_t i = 0; i < args.head_dim; ++i) y[i] = norm ? x[i] * scale * norm[i] : x[i];
    const int32_t half = args.rotary_dim / 2;
    for (int32_t j = 0; j < half; ++j) {
      const float angle = static_cast<float>(position) * args.inv_freq[j];
      const float cosine = std::cos(angle) * args.rope_scale,
                  sine = std::sin(angle) * args.rope_scale;
      const float low = y[j], high = y[j + half];
      y[j] = low * cosine - high * sine;
      y[j + half] = high * cosine + low * sine;
    }
  }
};

struct Attention {
  using Args = frt_attention_args;
  static constexpr const char* kName = FRT_OP_ATTENTION;
  static constexpr Formats kWeights = {};
  static void check(const frt::Checks& check, const Args& args) {
    frt::check_attention(check, args);
    only_f32(check, "dtype", args.dtype);
    only_f32(check, "kv_dtype", args.kv_dtype);
  }
  static void run(const Args& args) {
    for_sequences(args.sequences, [&](int32_t b, int32_t slot, int32_t length) {
      for (int32_t q = 0; q < length; ++q) {
        const int64_t row = static_cast<int64_t>(b) * args.sequences.rows + q;
        for (int32_t head = 0; head < args.heads; ++head) {
          attend(args, slot, std::min(args.sequences.position[b] + q + 1, args.max_rows), row,
                 head);
        }
      }
    });
  }

 private:
  static void attend(const Args& args, int32_t slot, int32_t positions, int64_t row, int32_t head) {
    const int64_t dim = args.head_dim, kv_width = args.kv_heads * dim;
    const int64_t kv_head = head / (args.heads / args.kv_heads);
    const float* q = static_cast<const float*>(args.q) + (row * args.heads + head) * dim;
    float* y = static_cast<float*>(args.y) + (row * args.heads + head) * dim;
    const auto history = [&](const void* base, int32_t position) -> const float* {
      const float* all = history_row(const_cast<void*>(base), args.slot_stride, args.pages, slot,
                                     position, kv_width);
      return all ? all + kv_head * dim : nullptr;
    };

    std::vector<float> scores(static_cast<std::size_t>(positions), -INFINITY);
    float largest = -INFINITY, sum = 0;
    for (int32_t p = 0; p < positions; ++p) {
      const float* key = history(args.keys, p);
      if (!key) continue;
      float dot = 0;
      for (int64_t i = 0; i < dim; ++i) dot += q[i] * key[i];
      largest = std::max(largest, scores[static_cast<std::size_t>(p)] = dot * args.scale);
    }
    std::fill_n(y, dim, 0.0f);
    for (int32_t p = 0; p < positions; ++p) {
      const float* value = history(args.values, p);
      if (!value) continue;
      const float weight = std::exp(scores[static_cast<std::size_t>(p)] - largest);
      sum += weight;
      for (int64_t i = 0; i < dim; ++i) y[i] += weight * value[i];
    }
    const float* gate = static_cast<const float*>(args.gate);
    if (gate) gate += row * args.gate_row_stride + head * args.gate_head_stride;
    for (int64_t i = 0; i < dim; ++i) {
      y[i] = sum > 0 ? y[i] / sum : 0;
      if (gate) y[i] *= sigmoid(gate[i]);
    }
  }
};

}  // namespace

void add_attention_operators(Kernels& kernels) {
  kernels.add<AttentionAppend>();
  kernels.add<Attention>();
}

}  // namespace simple
