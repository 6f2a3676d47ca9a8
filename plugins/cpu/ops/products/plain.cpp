// SPDX-License-Identifier: Apache-2.0
// Products in plain loops: the reference numerics of this backend.
//
// f32 throughout. A sum has 16 partial sums (column k goes to partial sum k % 16), added up by
// halves at the end: one order on every machine. The compiler may use vectors for the 16.
#include <algorithm>

#include "../formats.hpp"
#include "dequantise.hpp"
#include "gemv.hpp"
#include "groups.hpp"
#include "weight.hpp"

namespace frt::cpu {
namespace {

constexpr int64_t kChunk = 256;
constexpr int64_t kLanes = 16;

float add_lanes(float* lanes) noexcept {
  for (int64_t half = kLanes / 2; half > 0; half /= 2) {
    for (int64_t i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  }
  return lanes[0];
}

}  // namespace

void dequantise_plain(const Weight& weight, int64_t row, int64_t first, int64_t count,
                      float* out) noexcept {
  const uint8_t* data = weight_row(weight, row);
  switch (weight.type) {
    case WeightType::kF32:
      std::copy_n(reinterpret_cast<const float*>(data) + first, count, out);
      break;
    case WeightType::kBf16:
      for (int64_t i = 0; i < count; ++i) {
        out[i] = bf16_to_float(reinterpret_cast<const uint16_t*>(data)[first + i]);
      }
      break;
    case WeightType::kFp8Block:
      for (int64_t i = 0; i < count; ++i) {
        out[i] = e4m3_to_float(data[first + i]) * block_scale(weight, row, first + i);
      }
      break;
    case WeightType::kNvfp4: {
      const uint8_t* scales = group_scales(weight, row);
      for (int64_t i = 0; i < count; ++i) {
        const int64_t col = first + i;
        const uint8_t code = static_cast<uint8_t>(data[col / 2] >> (col % 2 * 4)) & 15u;
        out[i] = kE2m1[code] * e4m3_to_float(scales[col / kFp4Group]);
      }
      break;
    }
    case WeightType::kOther:
      dequantise_groups(weight, row, first, count, out);
      break;
    default:
      for (int64_t i = 0; i < count; ++i) out[i] = e4m3_to_float(data[first + i]);
      break;
  }
}

void gemv_plain(const Weight& weight, int64_t first, int64_t count, const void* const* x,
                int64_t rows, float* out, int64_t out_stride) noexcept {
  float values[kChunk];
  float lanes[kGemvRows][kLanes];
  for (int64_t n = 0; n < count; ++n) {
    for (int64_t m = 0; m < rows; ++m) std::fill_n(lanes[m], kLanes, 0.0f);
    for (int64_t k = 0; k < weight.cols; k += kChunk) {
      const int64_t length = std::min<int64_t>(kChunk, weight.cols - k);
      dequantise_plain(weight, first + n, k, length, values);
      for (int64_t m = 0; m < rows; ++m) {
        const float* from = static_cast<const float*>(x[m]) + k;
        int64_t i = 0;
        for (; i + kLanes <= length; i += kLanes) {
          for (int64_t lane = 0; lane < kLanes; ++lane) {
            lanes[m][lane] += values[i + lane] * from[i + lane];
          }
        }
        for (; i < length; ++i) lanes[m][i % kLanes] += values[i] * from[i];
      }
    }
    const float scale = row_scale(weight, first + n);
    for (int64_t m = 0; m < rows; ++m) out[m * out_stride + n] = add_lanes(lanes[m]) * scale;
  }
}

}  // namespace frt::cpu
