// SPDX-License-Identifier: Apache-2.0
#include "weight_checks.hpp"

#include <cstdint>
#include <string>

namespace frt::cuda {
namespace {

constexpr uintptr_t kDataAlignment = 16;

void check_aligned(const Checks& check, const std::string& argument, const void* pointer,
                   uintptr_t alignment) {
  if (reinterpret_cast<uintptr_t>(pointer) % alignment == 0) return;
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
      check_aligned(check, scale, weight.scale, weight.scale_dtype == FRT_DTYPE_F32 ? 4 : 2);
      break;
    case FRT_WEIGHT_NVFP4:
      check.dtype((name + ".scale_dtype").c_str(), weight.scale_dtype, {FRT_DTYPE_F8_E4M3});
      check.pointer(scale.c_str(), weight.scale);
      check.require(weight.cols % 16 == 0, (name + ".cols").c_str(),
                    "is " + std::to_string(weight.cols) + ", expected a multiple of 16 for NVFP4");
      break;
    default:
      break;
  }
}

}  // namespace frt::cuda
