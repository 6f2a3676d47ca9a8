// SPDX-License-Identifier: Apache-2.0
// guidance.hpp - how strongly the guided branches of a policy pull, step by step.
//
// As text, rows are divided by commas and branches by bars: "1.5", "2.5, 2, 1.5" (one strength per
// step), "2|1.5, 1|1" (two branches). As JSON: a number, a list of numbers, a list of lists.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace frt::host {

// Above it, guidance only throws actions out of range; policies are served with 1 to 3.
constexpr double kMaxStrength = 100;

struct GuidanceStrengths {
  // (steps, branches), 1 to kMaxStrength; the last row is that of all steps beyond. A row of one
  // value is that of all guided branches.
  std::vector<double> values = {1};
  uint32_t branches = 1;

  // 1 throughout: the branches beyond the first need not be computed.
  bool none() const noexcept;
  // For the role's set_guidance: (steps, guided branches) in full. Throws FRT_ERR_OUT_OF_RANGE for
  // a strength that is below 1, above kMaxStrength or not finite, FRT_ERR_INVALID_ARGUMENT for more
  // rows than `steps` or a row of neither one value nor `guided`.
  std::vector<float> table(uint32_t steps, uint32_t guided) const;
  bool operator==(const GuidanceStrengths&) const = default;
};

// Throws FRT_ERR_INVALID_ARGUMENT, saying what of the text is no strength.
GuidanceStrengths parse_strengths(const std::string& text);
std::string to_text(const GuidanceStrengths& strengths);

nlohmann::ordered_json to_json(const GuidanceStrengths& strengths);
// Throws FRT_ERR_FORMAT if it is none of the three forms.
GuidanceStrengths strengths_from(const nlohmann::ordered_json& json);

}  // namespace frt::host
