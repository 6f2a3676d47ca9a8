// SPDX-License-Identifier: Apache-2.0
#include "weight.hpp"

#include <algorithm>
#include <limits>

namespace frt::cuda {
namespace {

constexpr frt_weight_format kFormats[] = {
    FRT_WEIGHT_F32,
    FRT_WEIGHT_BF16,
    FRT_WEIGHT_FP8_TENSOR,
    FRT_WEIGHT_FP8_BLOCK(FRT_DTYPE_F32, FRT_WEIGHT_ANY, FRT_WEIGHT_ANY),
    FRT_WEIGHT_FP8_BLOCK(FRT_DTYPE_BF16, FRT_WEIGHT_ANY, FRT_WEIGHT_ANY),
    FRT_WEIGHT_NVFP4,
};
constexpr frt_weight_format kPlain[] = {FRT_WEIGHT_F32, FRT_WEIGHT_BF16};

// The rows or columns of one scale as the products count them.
int32_t group_size(uint32_t group, int32_t side) {
  constexpr auto kMost = static_cast<uint32_t>(std::numeric_limits<int32_t>::max());
  return group == 0 ? side : static_cast<int32_t>(std::min(group, kMost));
}

}  // namespace

constinit const std::span<const frt_weight_format> kWeightFormats = kFormats;
constinit const std::span<const frt_weight_format> kPlainFormats = kPlain;

Weight::Weight(const frt_weight& weight)
    : type(weight_type(weight.format)),
      scale_dtype(weight.format.scale),
      rows(weight.rows),
      cols(weight.cols),
      data(weight.data),
      scale(weight.scale),
      block_rows(group_size(weight.format.group_rows, weight.rows)),
      block_cols(group_size(weight.format.group_cols, weight.cols)),
      global_scale(weight.format.flags & FRT_WEIGHT_GLOBAL_SCALE ? weight.global_scale : 1.0f) {}

}  // namespace frt::cuda
