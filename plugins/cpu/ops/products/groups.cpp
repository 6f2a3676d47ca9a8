// SPDX-License-Identifier: Apache-2.0
// One group after the other: its scale and zero point are read once, then its values. Every value
// of the types here is exact in f32, so is data - zero but for float zero points, and the product
// with the scale is rounded once.
#include "groups.hpp"

#include <algorithm>
#include <bit>

#include "../formats.hpp"

namespace frt::cpu {
namespace {

// Element `i` of packed four-bit codes.
uint8_t nibble(const uint8_t* row, int64_t i) noexcept {
  return static_cast<uint8_t>(row[i / 2] >> (i % 2 * 4)) & 15u;
}

// 2^(bits - 127); 0 is subnormal in f32.
float e8m0_to_float(uint8_t bits) noexcept {
  if (bits == 255) return std::bit_cast<float>(0x7FC00000u);
  return bits == 0 ? 0x1p-127f : std::bit_cast<float>(static_cast<uint32_t>(bits) << 23);
}

// Element `i` of a row of one of the types of kWeightFormats.
float number(frt_dtype dtype, const uint8_t* row, int64_t i) noexcept {
  switch (dtype) {
    case FRT_DTYPE_U4:
      return static_cast<float>(nibble(row, i));
    case FRT_DTYPE_I4: {
      const int code = nibble(row, i);
      return static_cast<float>(code < 8 ? code : code - 16);
    }
    case FRT_DTYPE_F4_E2M1:
      return kE2m1[nibble(row, i)];
    case FRT_DTYPE_U8:
      return static_cast<float>(row[i]);
    case FRT_DTYPE_I8:
      return static_cast<float>(static_cast<int8_t>(row[i]));
    case FRT_DTYPE_F8_E8M0:
      return e8m0_to_float(row[i]);
    case FRT_DTYPE_F16:
      return f16_to_float(reinterpret_cast<const uint16_t*>(row)[i]);
    default:
      return load_float(dtype, row, i);
  }
}

// Element (row, col) of the scales or zero points, `columns` of them in a row.
float of_group(frt_dtype dtype, const void* data, int64_t row, int64_t col,
               int64_t columns) noexcept {
  const int64_t bytes = row_bytes(dtype, columns);
  return number(dtype, static_cast<const uint8_t*>(data) + row * bytes, col);
}

}  // namespace

void dequantise_groups(const Weight& weight, int64_t row, int64_t first, int64_t count,
                       float* out) noexcept {
  const frt_weight_format& format = weight.format;
  const uint8_t* data = weight_row(weight, row);
  const int64_t width = weight.block_cols;
  const int64_t columns = (weight.cols + width - 1) / width;
  const int64_t group_row = row / weight.block_rows;
  const float middle = !(format.flags & FRT_WEIGHT_MIDPOINT_ZERO) ? 0.0f
                       : weight.bits == 4                         ? 8.0f
                                                                  : 128.0f;
  for (int64_t k = first; k < first + count;) {
    const int64_t group = k / width;
    const int64_t end = std::min(first + count, (group + 1) * width);
    const float scale = of_group(format.scale, weight.scale, group_row, group, columns);
    const float zero = format.zero == FRT_DTYPE_NONE
                           ? middle
                           : of_group(format.zero, weight.zero, group_row, group, columns);
    for (; k < end; ++k) out[k - first] = scale * (number(format.data, data, k) - zero);
  }
}

}  // namespace frt::cpu
