// SPDX-License-Identifier: Apache-2.0
// frt/ops/checks/weight.hpp - the checks of weight matrices (frt/kernels.h, frt/ops/moe.h).
// `formats` are those of the kernel (frt_kernel_desc::weights); empty: it takes every one.
// Header-only.  [setup]
#pragma once

#include <frt/ops/moe.h>
#include <frt/checks.hpp>
#include <frt/weights.hpp>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace frt {

namespace detail {

// Scales or zero points; NONE: the format has none.
inline void check_weight_side(const Checks& check, std::string_view argument, frt_dtype dtype,
                              const void* data) {
  if (dtype == FRT_DTYPE_NONE) return;
  check.pointer(argument, data);
  check.aligned(argument, data, Checks::whole_bytes(dtype));
}

// From expert to expert; `bytes` of one.
inline void check_expert_stride(const Checks& check, std::string_view argument, frt_dtype dtype,
                                int64_t stride, int64_t bytes, int32_t experts) {
  if (dtype == FRT_DTYPE_NONE) return;
  check.at_least(argument, stride, bytes);
  check.multiple(argument, stride, Checks::whole_bytes(dtype));
  check.require(bounded_product({experts, stride}) < kMostBytes, argument,
                "times experts is 2^61 bytes or more");
}

}  // namespace detail

// A complete matrix in one of `formats`.
inline void check_weight(const Checks& check, const frt_weight& weight,
                         std::span<const frt_weight_format> formats) {
  if (!weight_taken(formats, weight.format)) {
    check.fail("format", "is " + weight_text(weight.format) +
                             ", which this kernel does not take; convert it at load");
  }
  check.positive("rows", weight.rows);
  check.positive("cols", weight.cols);
  check.pointer("data", weight.data);
  check.aligned("data", weight.data, 16);
  detail::check_weight_side(check, "scale", weight.format.scale, weight.scale);
  detail::check_weight_side(check, "zero", weight.format.zero, weight.zero);
  if (weight.format == kWeightNvfp4 && weight.cols % 16 != 0) {
    check.fail("cols",
               "is " + std::to_string(weight.cols) + ", expected a multiple of 16 for NVFP4");
  }
  check.require(weight_bytes(weight.format, weight.rows, weight.cols).total() < kMostBytes, "data",
                "has 2^61 bytes or more");
}

// The same of `experts` experts, more than 0.
inline void check_expert_weight(const Checks& check, const frt_expert_weight& weight,
                                int32_t experts, std::span<const frt_weight_format> formats) {
  check_weight(check.in("expert"), weight.expert, formats);
  const frt_weight_format& format = weight.expert.format;
  // How many bytes another layout takes, only the backend that has it knows.
  const WeightBytes bytes = format.layout == 0
                                ? weight_bytes(format, weight.expert.rows, weight.expert.cols)
                                : WeightBytes{1, 1, 1};
  const auto stride = [&](const char* argument, frt_dtype dtype, int64_t value, int64_t least) {
    detail::check_expert_stride(check, argument, dtype, value, least, experts);
  };
  stride("data_stride", format.data, weight.data_stride, bytes.data);
  stride("scale_stride", format.scale, weight.scale_stride, bytes.scale);
  stride("zero_stride", format.zero, weight.zero_stride, bytes.zero);
  check.array_or_null("global_scales", weight.global_scales, {experts});
}

}  // namespace frt
