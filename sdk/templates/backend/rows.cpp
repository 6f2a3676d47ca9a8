// SPDX-License-Identifier: Apache-2.0
// Operators on rows: embedding, choice of tokens and rows, norms, products, activations.
#include "operators.hpp"

#include <frt/ops/elementwise.h>
#include <frt/ops/embed.h>
#include <frt/ops/linear.h>
#include <frt/ops/norm.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

namespace simple {

float sigmoid(float x) {
  return 1.0f / (1.0f + std::exp(-x));
}
float silu(float x) {
  return x * sigmoid(x);
}

const float* weight_row(const frt_weight& weight, int64_t row, std::vector<float>& storage) {
  const auto cols = static_cast<std::size_t>(weight.cols);
  const int64_t first = row * weight.cols;
  if (weight.format.data == FRT_DTYPE_F32) return static_cast<const float*>(weight.data) + first;
  storage.resize(cols);
  const uint16_t* values = static_cast<const uint16_t*>(weight.data) + first;
  for (std::size_t i = 0; i < cols; ++i) {
    storage[i] = std::bit_cast<float>(static_cast<uint32_t>(values[i]) << 16);
  }
  return storage.data();
}

namespace {

// y = x * rsqrt(mean(x^2) + epsilon) * weight
void norm_row(const float* x, const float* weight, int32_t width, float epsilon, float* y) {
  float sum = 0;
  for (int32_t i = 0; i < width; ++i) sum += x[i] * x[i];
  const float scale = 1.0f / std::sqrt(sum / static_cast<float>(width) + epsilon);
  for (int32_t i = 0; i < width; ++i) y[i] = x[i] * scale * weight[i];
}

struct Embed {
  using Args = frt_embed_args;
  static constexpr const char* kName = FRT_OP_EMBED;
  static constexpr Formats kWeights = kPlain;
  static void check(const frt::Checks& check, const Args& args) {
    frt::check_embed(check, args, kPlain);
    only_f32(check, "y_dtype", args.y_dtype);
  }
  static void run(const Args& args) {
    std::vector<float> storage;
    for (int32_t r = 0; r < rows_to_run(args.rows, args.row_count); ++r) {
      float* y = static_cast<float*>(args.y) + r * args.y_stride;
      const int32_t id = args.ids[r];
      if (id >= 0 && id < args.table.rows) {
        std::copy_n(weight_row(args.table, id, storage), args.table.cols, y);
      } else {
        std::fill_n(y, args.table.cols, 0.0f);
      }
    }
  }
};

struct SelectTokens {
  using Args = frt_select_tokens_args;
  static constexpr const char* kName = FRT_OP_SELECT_TOKENS;
  static constexpr Formats kWeights = {};
  static void check(const frt::Checks& check, const Args& args) {
    frt::check_select_tokens(check, args);
  }
  static void run(const Args& args) {
    for_sequences(args.sequences, [&](int32_t b, int32_t slot, int32_t length) {
      const int32_t waiting = *in_slot<int32_t>(args.pending, args.pending_stride, slot);
      for (int32_t r = b * args.sequences.rows; length > 0; ++r, --length) {
        args.ids_out[r] = args.ids[r] >= 0 ? args.ids[r] : waiting;
      }
    });
  }
};

struct LastRows {
  using Args = frt_last_rows_args;
  static constexpr const char* kName = FRT_OP_LAST_ROWS;
  static constexpr Formats kWeights = {};
  static void check(const frt::Checks& check, const Args& args) {
    frt::check_last_rows(check, args);
    only_f32(check, "dtype", args.dtype);
  }
  static void run(const Args& args) {
    for_sequences(args.sequences, [&](int32_t b, int32_t, int32_t length) {
      const int64_t row = static_cast<int64_t>(b) * args.sequences.rows + length - 1;
      std::copy_n(static_cast<const float*>(args.x) + row * args.x_stride, args.width,
                  static_cast<float*>(args.y) + b * args.y_stride);
    });
  }
};

struct RmsNorm {
  using Args = frt_rms_norm_args;
  static constexpr const char* kName = FRT_OP_RMS_NORM;
  static constexpr Formats kWeights = {};
  static void check(const frt::Checks& check, const Args& args) {
    frt::check_rms_norm(check, args);
    only_f32(check, "x_dtype", args.x_dtype);
    only_f32(check, "y_dtype", args.y_dtype);
  }
  static void run(const Args& args) {
    for (int32_t r = 0; r < rows_to_run(args.rows, args.row_count); ++r) {
      norm_row(static_cast<const float*>(args.x) + r * args.x_stride, args.weight, args.width,
               args.epsilon, static_cast<float*>(args.y) + r * args.y_stride);
    }
  }
};

struct AddRmsNorm {
  using Args = frt_add_rms_norm_args;
  static constexpr const char* kName = FRT_OP_ADD_RMS_NORM;
  static constexpr Formats kWeights = {};
  static void check(const frt::Checks& check, const Args& args) {
    frt::check_add_rms_norm(check, args);
    only_f32(check, "residual_dtype", args.residual_dtype);
    only_f32(check, "dtype", args.dtype);
  }
  static void run(const Args& args) {
    for (int32_t r = 0; r < rows_to_run(args.rows, args.row_count); ++r) {
      const int64_t first = static_cast<int64_t>(r) * args.width;
      float* residual = static_cast<float*>(args.residual) + first;
      for (int32_t i = 0; args.delta && i < args.width; ++i) {
        residual[i] += static_cast<const float*>(args.delta)[first + i];
      }
      if (!args.y) continue;
      norm_row(residual, args.weight, args.width, args.epsilon,
               static_cast<float*>(args.y) + first);
    }
  }
};

struct GatedRmsNorm {
  using Args = frt_gated_rms_norm_args;
  static constexpr const char* kName = FRT_OP_GATED_RMS_NORM;
  static constexpr Formats kWeights = {};
  static void check(const frt::Checks& check, const Args& args) {
    frt::check_gated_rms_norm(check, args);
    only_f32(check, "x_dtype", args.x_dtype);
    only_f32(check, "dtype", args.dtype);
  }
  static void run(const Args& args) {
    const int64_t all = static_cast<int64_t>(rows_to_run(args.rows, args.row_count)) * args.heads;
    for (int64_t first = 0; first < all * args.width; first += args.width) {
      float* y = static_cast<float*>(args.y) + first;
      norm_row(static_cast<const float*>(args.x) + first, args.weight, args.width, args.epsilon, y);
      for (int32_t i = 0; i < args.width; ++i)
        y[i] *= silu(static_cast<const float*>(args.z)[first + i]);
    }
  }
};

struct Linear {
  using Args = frt_linear_args;
  static constexpr const char* kName = FRT_OP_LINEAR;
  static constexpr Formats kWeights = kPlain;
  static void check(const frt::Checks& check, const Args& args) {
    frt::check_linear(check, args, kPlain);
    only_f32(check, "x_dtype", args.x_dtype);
    only_f32(check, "y_dtype", args.y_dtype);
  }
  static void run(const Args& args) {
    std::vector<float> storage;
    const int32_t rows = rows_to_run(args.rows, args.row_count);
    for (int32_t output = 0; output < args.weight.rows; ++output) {
      const float* weight = weight_row(args.weight, output, storage);
      for (int32_t r = 0; r < rows; ++r) {
        const float* x = static_cast<const float*>(args.x) + r * args.x_stride;
        float sum = 0;
        for (int32_t i = 0; i < args.weight.cols; ++i) sum += x[i] * weight[i];
        float& y = static_cast<float*>(args.y)[r * args.y_stride + output];
        y = args.accumulate ? y + sum : sum;
      }
    }
  }
};

template <float (*function)(float a, float b)>
struct Binary {
  using Args = frt_binary_args;
  static constexpr Formats kWeights = {};
  static void check(const frt::Checks& check, const Args& args) {
    frt::check_binary(check, args);
    only_f32(check, "dtype", args.dtype);
  }
  static void run(const Args& args) {
    for (int32_t r = 0; r < rows_to_run(args.rows, args.row_count); ++r) {
      const float* a = static_cast<const float*>(args.a) + r * args.a_stride;
      const float* b = static_cast<const float*>(args.b) + r * args.b_stride;
      float* y = static_cast<float*>(args.y) + r * args.y_stride;
      for (int32_t i = 0; i < args.width; ++i) y[i] = function(a[i], b[i]);
    }
  }
};

float silu_mul(float a, float b) {
  return silu(a) * b;
}
struct SiluMul : Binary<silu_mul> {
  static constexpr const char* kName = FRT_OP_SILU_MUL;
};

}  // namespace

void add_row_operators(Kernels& kernels) {
  kernels.add<Embed>();
  kernels.add<SelectTokens>();
  kernels.add<LastRows>();
  kernels.add<RmsNorm>();
  kernels.add<AddRmsNorm>();
  kernels.add<GatedRmsNorm>();
  kernels.add<Linear>();
  kernels.add<SiluMul>();
}

}  // namespace simple
