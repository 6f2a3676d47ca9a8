// SPDX-License-Identifier: Apache-2.0
#include "weight.hpp"

#include <algorithm>
#include <string>

namespace frt::cpu {
namespace {

constexpr std::uintptr_t kDataAlignment = 16;

void check_aligned(const Checks& check, const std::string& argument, const void* pointer,
                   std::uintptr_t alignment) {
  if (reinterpret_cast<std::uintptr_t>(pointer) % alignment == 0) return;
  check.fail(argument, "is not aligned to " + std::to_string(alignment) + " bytes");
}

}  // namespace

void check_weight(const Checks& check, const char* argument, const frt_weight& weight) {
  const std::string name = argument;
  if (weight.format >= FRT_WEIGHT_FORMAT_COUNT) {
    check.fail(name + ".format", "is " + std::to_string(weight.format) + ", which is no format");
  }
  check.positive((name + ".rows").c_str(), weight.rows);
  check.positive((name + ".cols").c_str(), weight.cols);
  check.pointer((name + ".data").c_str(), weight.data);
  check_aligned(check, name + ".data", weight.data, kDataAlignment);
  check.require(weight.layout == 0, (name + ".layout").c_str(),
                "is " + std::to_string(weight.layout) + ", expected 0 (row-major)");

  const std::string scale = name + ".scale";
  switch (weight.format) {
    case FRT_WEIGHT_FP8_BLOCK:
      check.positive((name + ".block_rows").c_str(), weight.block_rows);
      check.positive((name + ".block_cols").c_str(), weight.block_cols);
      [[fallthrough]];
    case FRT_WEIGHT_FP8_CHANNEL:
      check.dtype((name + ".scale_dtype").c_str(), weight.scale_dtype);
      check.pointer(scale.c_str(), weight.scale);
      check_aligned(check, scale, weight.scale,
                    static_cast<std::uintptr_t>(element_bytes(weight.scale_dtype)));
      break;
    case FRT_WEIGHT_NVFP4:
      check.dtype((name + ".scale_dtype").c_str(), weight.scale_dtype, {FRT_DTYPE_F8_E4M3});
      check.pointer(scale.c_str(), weight.scale);
      check.require(weight.cols % kFp4Group == 0, (name + ".cols").c_str(),
                    "is " + std::to_string(weight.cols) + ", expected a multiple of 16 for NVFP4");
      break;
    default:
      break;
  }
}

void check_expert_weight(const Checks& check, const char* argument,
                         const frt_expert_weight& weight) {
  const std::string name = argument;
  check_weight(check, (name + ".expert").c_str(), weight.expert);
  const int64_t bytes = packed_bytes(weight.expert.format, weight.expert.cols) * weight.expert.rows;
  check.at_least((name + ".data_stride").c_str(), weight.data_stride, bytes);
  const int64_t value = std::max<int64_t>(1, packed_bytes(weight.expert.format, 1));
  check.require(weight.data_stride % value == 0, (name + ".data_stride").c_str(),
                "is not a multiple of the value's size");
  if (weight.expert.scale) {
    check.positive((name + ".scale_stride").c_str(), weight.scale_stride);
    check.require(weight.scale_stride % element_bytes(weight.expert.scale_dtype) == 0,
                  (name + ".scale_stride").c_str(), "is not a multiple of the scale's size");
  }
}

}  // namespace frt::cpu
