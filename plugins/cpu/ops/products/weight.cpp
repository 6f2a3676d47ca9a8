// SPDX-License-Identifier: Apache-2.0
#include "weight.hpp"

#include <algorithm>
#include <array>
#include <limits>

namespace frt::cpu {
namespace {

constexpr frt_weight_format in_groups(frt_dtype data, frt_dtype scale, frt_dtype zero,
                                      uint32_t flags = 0) {
  return {data, scale, zero, FRT_WEIGHT_ANY, FRT_WEIGHT_ANY, 0, flags};
}

// The formats that have paths of their own, then those of the general form: E2M1 and E4M3 with
// exponents for scales (OCP microscaling), and integers with float scales, without zero points,
// with some of the data's type (AWQ, GPTQ), with floats (HQQ), or with the middle one.
constexpr auto kFormats = [] {
  constexpr frt_dtype kIntegers[] = {FRT_DTYPE_U4, FRT_DTYPE_U8, FRT_DTYPE_I4, FRT_DTYPE_I8};
  constexpr frt_dtype kScales[] = {FRT_DTYPE_F32, FRT_DTYPE_BF16, FRT_DTYPE_F16};
  std::array<frt_weight_format, 50> formats{};
  std::size_t count = 0;
  formats[count++] = kWeightF32;
  formats[count++] = kWeightBf16;
  formats[count++] = kWeightFp8Tensor;
  formats[count++] = in_groups(FRT_DTYPE_F8_E4M3, FRT_DTYPE_F32, FRT_DTYPE_NONE);
  formats[count++] = in_groups(FRT_DTYPE_F8_E4M3, FRT_DTYPE_BF16, FRT_DTYPE_NONE);
  formats[count++] = kWeightNvfp4;
  formats[count++] = in_groups(FRT_DTYPE_F8_E4M3, FRT_DTYPE_F8_E8M0, FRT_DTYPE_NONE);
  formats[count++] = in_groups(FRT_DTYPE_F4_E2M1, FRT_DTYPE_F8_E8M0, FRT_DTYPE_NONE);
  for (const frt_dtype data : kIntegers) {
    for (const frt_dtype scale : kScales) {
      for (const frt_dtype zero : {FRT_DTYPE_NONE, data, scale}) {
        formats[count++] = in_groups(data, scale, zero);
      }
      if (data == FRT_DTYPE_I4 || data == FRT_DTYPE_I8) continue;
      formats[count++] = in_groups(data, scale, FRT_DTYPE_NONE, FRT_WEIGHT_MIDPOINT_ZERO);
    }
  }
  if (count != formats.size()) throw "the size of the list is another one";
  return formats;
}();

constexpr frt_weight_format kPlain[] = {FRT_WEIGHT_F32, FRT_WEIGHT_BF16};

// The rows or columns of one scale as the products count them.
int32_t group_size(uint32_t group, int32_t side) {
  constexpr auto kMost = static_cast<uint32_t>(std::numeric_limits<int32_t>::max());
  return group == 0 ? side : static_cast<int32_t>(std::min(group, kMost));
}

}  // namespace

constinit const std::span<const frt_weight_format> kWeightFormats = kFormats;
constinit const std::span<const frt_weight_format> kPlainFormats = kPlain;

Weight::Weight(const frt_weight& weight) noexcept
    : type(weight_type(weight.format)),
      scale_dtype(weight.format.scale),
      rows(weight.rows),
      cols(weight.cols),
      block_rows(group_size(weight.format.group_rows, weight.rows)),
      block_cols(group_size(weight.format.group_cols, weight.cols)),
      global_scale(weight.format.flags & FRT_WEIGHT_GLOBAL_SCALE ? weight.global_scale : 1.0f),
      bits(static_cast<int32_t>(dtype_bits(weight.format.data))),
      data(weight.data),
      scale(weight.scale),
      zero(weight.zero),
      format(weight.format) {}

ExpertWeights::ExpertWeights(const frt_expert_weight& weights) noexcept
    : expert(weights.expert),
      data_stride(weights.data_stride),
      scale_stride(weights.scale_stride),
      zero_stride(weights.zero_stride),
      global_scales(expert.format.flags & FRT_WEIGHT_GLOBAL_SCALE ? weights.global_scales
                                                                  : nullptr) {}

}  // namespace frt::cpu
