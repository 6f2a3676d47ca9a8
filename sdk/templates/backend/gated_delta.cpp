// SPDX-License-Identifier: Apache-2.0
// The gated delta net by its recurrence, row after row, and the rows that a draft head keeps.
#include "operators.hpp"

#include <frt/ops/gated_delta.h>
#include <frt/ops/rows.h>

#include <cmath>
#include <cstring>
#include <vector>

namespace simple {
namespace {

struct CausalConv {
  using Args = frt_causal_conv_args;
  static constexpr const char* kName = FRT_OP_CAUSAL_CONV;
  static constexpr Formats kWeights = {};
  static void check(const frt::Checks& check, const Args& args) {
    frt::check_causal_conv(check, args);
    only_f32(check, "dtype", args.dtype);
  }
  static void run(const Args& args) {
    const int64_t channels = args.channels;
    const std::size_t row_bytes = static_cast<std::size_t>(channels) * sizeof(float);
    for_sequences(args.sequences, [&](int32_t b, int32_t slot, int32_t length) {
      const int64_t first = static_cast<int64_t>(b) * args.sequences.rows * channels;
      const float* u = static_cast<const float*>(args.u) + first;
      float* c = static_cast<float*>(args.c) + first;
      auto* window = in_slot<float>(args.window, args.slot_stride, slot);
      const int32_t before = args.width - 1;  // rows in the window
      const auto row = [&](int32_t t) {
        return t < 0 ? window + (t + before) * channels : u + t * channels;
      };
      for (int32_t t = 0; t < length; ++t) {
        for (int64_t i = 0; i < channels; ++i) {
          float sum = 0;
          for (int32_t w = 0; w < args.width; ++w) {
            sum += args.conv_weight[w * channels + i] * row(t - before + w)[i];
          }
          c[t * channels + i] = silu(sum);
        }
      }
      // Oldest first: what a row takes is a row further on.
      for (int32_t w = 0; w < before; ++w) {
        std::memmove(window + w * channels, row(length - before + w), row_bytes);
      }
    });
  }
};

float softplus(float x) {
  return x > 20 ? x : std::log1p(std::exp(x));
}

float inverse_length(const float* x, int32_t width) {
  float sum = 0;
  for (int32_t i = 0; i < width; ++i) sum += x[i] * x[i];
  return 1.0f / std::sqrt(sum + 1e-6f);
}

struct GatedDelta {
  using Args = frt_gated_delta_args;
  static constexpr const char* kName = FRT_OP_GATED_DELTA;
  static constexpr Formats kWeights = {};
  static void check(const frt::Checks& check, const Args& args) {
    frt::check_gated_delta(check, args);
    only_f32(check, "dtype", args.dtype);
  }
  static void run(const Args& args) {
    for_sequences(args.sequences, [&](int32_t b, int32_t slot, int32_t length) {
      auto* state = in_slot<float>(args.state, args.slot_stride, slot);
      for (int32_t t = 0; t < length; ++t) {
        const int64_t row = static_cast<int64_t>(b) * args.sequences.rows + t;
        for (int32_t head = 0; head < args.value_heads; ++head) step(args, row, head, state);
      }
    });
  }

 private:
  static void step(const Args& args, int64_t row, int32_t head, float* states) {
    const int32_t keys = args.key_dim, values = args.value_dim;
    const int64_t key_width = static_cast<int64_t>(args.key_heads) * keys;
    const int64_t value_width = static_cast<int64_t>(args.value_heads) * values;
    const int64_t key_head = head / (args.value_heads / args.key_heads);
    const float* c = static_cast<const float*>(args.c) + row * (2 * key_width + value_width);
    const float* q = c + key_head * keys;
    const float* k = c + key_width + key_head * keys;
    const float* v = c + 2 * key_width + static_cast<int64_t>(head) * values;
    const int64_t scalar = row * args.value_heads + head;
    float* o = static_cast<float*>(args.o) + scalar * values;
    float* state = states + static_cast<int64_t>(head) * keys * values;

    const float q_scale = inverse_length(q, keys) / std::sqrt(static_cast<float>(keys));
    const float k_scale = inverse_length(k, keys);
    const float decay =
        std::exp(args.decay[head] *
                 softplus(static_cast<const float*>(args.a)[scalar] + args.dt_bias[head]));
    const float beta = sigmoid(static_cast<const float*>(args.b)[scalar]);

    std::vector<float> change(static_cast<std::size_t>(values));  // S^T k, then beta (v - S^T k)
    for (int32_t i = 0; i < keys; ++i) {
      for (int32_t j = 0; j < values; ++j) {
        float& cell = state[static_cast<int64_t>(i) * values + j];
        cell *= decay;
        change[static_cast<std::size_t>(j)] += cell * k[i] * k_scale;
      }
    }
    for (int32_t j = 0; j < values; ++j) {
      float& one = change[static_cast<std::size_t>(j)];
      one = beta * (v[j] - one);
      o[j] = 0;
    }
    for (int32_t i = 0; i < keys; ++i) {
      for (int32_t j = 0; j < values; ++j) {
        float& cell = state[static_cast<int64_t>(i) * values + j];
        cell += k[i] * k_scale * change[static_cast<std::size_t>(j)];
        o[j] += cell * q[i] * q_scale;
      }
    }
  }
};

struct LagRows {
  using Args = frt_lag_rows_args;
  static constexpr const char* kName = FRT_OP_LAG_ROWS;
  static constexpr Formats kWeights = {};
  static void check(const frt::Checks& check, const Args& args) {
    frt::check_lag_rows(check, args);
    only_f32(check, "dtype", args.dtype);
  }
  static void run(const Args& args) {
    const frt_sequences& sequences = args.sequences;
    for (int32_t b = 0; b < sequences.count; ++b) {
      const int32_t length = std::min(sequences.length[b], sequences.rows);
      const int32_t skipped = sequences.position[b] == 0 ? 1 : 0;  // ids without a row before them
      const int32_t pairs = std::max(0, length - skipped);
      args.position_out[b] = sequences.position[b] - 1 + skipped;
      args.length_out[b] = pairs;
      if (pairs == 0) continue;
      const int64_t first = static_cast<int64_t>(b) * sequences.rows;
      const auto* carry = in_slot<float>(args.carry, args.slot_stride, sequences.slot[b]);
      for (int32_t pair = 0; pair < pairs; ++pair) {
        const int32_t token = pair + skipped;
        const float* x = token == 0
                             ? carry
                             : static_cast<const float*>(args.x) + (first + token - 1) * args.width;
        args.ids_out[first + pair] = args.ids[first + token];
        std::copy_n(x, args.width, static_cast<float*>(args.y) + (first + pair) * args.width);
      }
    }
  }
};

struct StoreRows {
  using Args = frt_store_rows_args;
  static constexpr const char* kName = FRT_OP_STORE_ROWS;
  static constexpr Formats kWeights = {};
  static void check(const frt::Checks& check, const Args& args) {
    frt::check_store_rows(check, args);
    only_f32(check, "dtype", args.dtype);
  }
  static void run(const Args& args) {
    for_sequences(args.sequences, [&](int32_t b, int32_t slot, int32_t length) {
      const int64_t row = static_cast<int64_t>(b) * args.sequences.rows + length - 1;
      std::copy_n(static_cast<const float*>(args.x) + row * args.width, args.width,
                  in_slot<float>(args.target, args.slot_stride, slot));
    });
  }
};

}  // namespace

void add_gated_delta_operators(Kernels& kernels) {
  kernels.add<CausalConv>();
  kernels.add<GatedDelta>();
  kernels.add<LagRows>();
  kernels.add<StoreRows>();
}

}  // namespace simple
