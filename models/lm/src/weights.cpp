// SPDX-License-Identifier: Apache-2.0
#include <frt/lm/weights.hpp>

#include <cmath>

namespace frt::lm {

std::uint64_t weight_bytes(const frt_weight& weight) {
  return static_cast<std::uint64_t>(
      frt::weight_bytes(weight.format, weight.rows, weight.cols).total());
}

std::string describe_formats(const WeightTotals& totals) {
  static constexpr const char* kNames[kWeightTypes] = {
      "f32", "bf16", "fp8-block", "fp8-tensor", "fp8-channel", "nvfp4", "other"};
  std::uint64_t all = 0;
  for (const std::uint64_t count : totals.format_parameters) all += count;
  std::string text;
  for (std::size_t format = 0; format < totals.format_parameters.size(); ++format) {
    const std::uint64_t count = totals.format_parameters[format];
    if (count == 0) continue;
    const auto percent = static_cast<int>(
        std::lround(100.0 * static_cast<double>(count) / static_cast<double>(all)));
    text += (text.empty() ? "" : ", ") + std::string(kNames[format]) + " " +
            (percent == 0 ? "<1" : std::to_string(percent)) + " %";
  }
  return text;
}

}  // namespace frt::lm
