// SPDX-License-Identifier: Apache-2.0
// sampling.hpp - how a sequence is sampled: what the user said over what the checkpoint says over
// neutral values.
#pragma once

#include <frt/ops/sample.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>

namespace frt::host {

// What the user said; absent members take the checkpoint's default.
struct SamplingChoice {
  bool greedy = false;  // temperature 0 and nothing else
  std::optional<float> temperature;
  std::optional<float> top_p;
  std::optional<float> min_p;
  std::optional<int32_t> top_k;
  std::optional<float> repetition_penalty;
  std::optional<float> presence_penalty;
  std::optional<float> frequency_penalty;
  std::optional<uint64_t> seed;  // absent: drawn from the system, and reported
};

// The parameters to use. Checks every range and throws FRT_ERR_INVALID_ARGUMENT naming the option,
// its value and its range, or FRT_ERR_FORMAT naming a default that does not fit its parameter.
// `defaults` is LmModel::generation_defaults().  [any]
frt_sampling_params resolve_sampling(const SamplingChoice& choice,
                                     const nlohmann::ordered_json& defaults);

// Throws `status` if a value is out of its range, naming it, its value and the range.  [any]
void check_sampling(const frt_sampling_params& params, frt_status status);

// Every member by its name, and back, exactly. Throws FRT_ERR_FORMAT for anything else.  [any]
nlohmann::ordered_json sampling_to_json(const frt_sampling_params& params);
frt_sampling_params sampling_from_json(const nlohmann::ordered_json& json);

}  // namespace frt::host
