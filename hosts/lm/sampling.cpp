// SPDX-License-Identifier: Apache-2.0
#include "lm/sampling.hpp"

#include <fmt/format.h>
#include <frt/error.hpp>

#include <cmath>
#include <limits>
#include <random>
#include <type_traits>
#include <utility>

namespace frt::host {
namespace {

// A number of outside. One with a point, or one that does not fit, would become another one.
template <class Value>
Value number_of(const nlohmann::ordered_json& json, const std::string& what) {
  if (!json.is_number()) throw Error(FRT_ERR_FORMAT, what + " is no number");
  bool fits = false;
  if constexpr (std::is_integral_v<Value>) {
    fits = json.is_number_unsigned()
               ? std::in_range<Value>(json.template get<uint64_t>())
               : json.is_number_integer() && std::in_range<Value>(json.template get<int64_t>());
  } else {
    fits = std::abs(json.template get<double>()) <= std::numeric_limits<Value>::max();
  }
  if (!fits) throw Error(FRT_ERR_FORMAT, what + " is out of range");
  return json.template get<Value>();
}

template <class Value>
Value pick(const std::optional<Value>& said, const nlohmann::ordered_json& defaults,
           const char* key, Value neutral) {
  if (said) return *said;
  const auto found = defaults.find(key);
  if (found == defaults.end() || found->is_null()) return neutral;
  return number_of<Value>(*found, std::string("the model's default of `") + key + "`");
}

}  // namespace

frt_sampling_params resolve_sampling(const SamplingChoice& choice,
                                     const nlohmann::ordered_json& defaults) {
  frt_sampling_params params{};
  params.top_p = 1;
  params.repetition_penalty = pick(choice.repetition_penalty, defaults, "repetition_penalty", 1.0f);
  params.presence_penalty = pick(choice.presence_penalty, defaults, "presence_penalty", 0.0f);
  params.frequency_penalty = pick(choice.frequency_penalty, defaults, "frequency_penalty", 0.0f);
  if (choice.greedy) {
    // Greedy means the model's own largest logit: only penalties that were asked for apply.
    params.repetition_penalty = choice.repetition_penalty.value_or(1.0f);
    params.presence_penalty = choice.presence_penalty.value_or(0.0f);
    params.frequency_penalty = choice.frequency_penalty.value_or(0.0f);
  } else {
    params.temperature = pick(choice.temperature, defaults, "temperature", 1.0f);
    params.top_p = pick(choice.top_p, defaults, "top_p", 1.0f);
    params.min_p = pick(choice.min_p, defaults, "min_p", 0.0f);
    params.top_k = pick(choice.top_k, defaults, "top_k", 0);
  }
  params.seed = choice.seed.value_or((uint64_t{std::random_device{}()} << 32) |
                                     uint64_t{std::random_device{}()});
  check_sampling(params, FRT_ERR_INVALID_ARGUMENT);
  return params;
}

void check_sampling(const frt_sampling_params& params, frt_status status) {
  const auto require = [&](bool holds, const char* name, double value, const char* range) {
    if (!holds) throw Error(status, fmt::format("{} is {}: give {}", name, value, range));
  };
  require(params.temperature >= 0 && std::isfinite(params.temperature), "temperature",
          params.temperature, "0 (greedy) or a positive number");
  require(params.top_p > 0 && params.top_p <= 1, "top-p", params.top_p, "more than 0, at most 1");
  require(params.min_p >= 0 && params.min_p < 1, "min-p", params.min_p, "0 or more, less than 1");
  require(params.top_k >= 0, "top-k", params.top_k, "0 (off) or a positive number");
  require(params.repetition_penalty > 0 && std::isfinite(params.repetition_penalty),
          "repetition-penalty", params.repetition_penalty, "a positive number; 1 is off");
  require(std::isfinite(params.presence_penalty), "presence-penalty", params.presence_penalty,
          "a number; 0 is off");
  require(std::isfinite(params.frequency_penalty), "frequency-penalty", params.frequency_penalty,
          "a number; 0 is off");
  require(params.use_mask <= 1, "use_mask", params.use_mask, "0 or 1");
}

nlohmann::ordered_json sampling_to_json(const frt_sampling_params& params) {
  return {{"temperature", params.temperature},
          {"top_p", params.top_p},
          {"min_p", params.min_p},
          {"top_k", params.top_k},
          {"repetition_penalty", params.repetition_penalty},
          {"presence_penalty", params.presence_penalty},
          {"frequency_penalty", params.frequency_penalty},
          {"use_mask", params.use_mask},
          {"seed", params.seed}};
}

frt_sampling_params sampling_from_json(const nlohmann::ordered_json& json) {
  frt_sampling_params params{};
  const auto read = [&](const char* name, auto& target) {
    if (!json.is_object() || !json.contains(name)) {
      throw Error(FRT_ERR_FORMAT, std::string("sampling: `") + name + "` is missing");
    }
    using Value = std::remove_reference_t<decltype(target)>;
    target = number_of<Value>(json[name], std::string("sampling: `") + name + "`");
  };
  read("temperature", params.temperature);
  read("top_p", params.top_p);
  read("min_p", params.min_p);
  read("top_k", params.top_k);
  read("repetition_penalty", params.repetition_penalty);
  read("presence_penalty", params.presence_penalty);
  read("frequency_penalty", params.frequency_penalty);
  read("use_mask", params.use_mask);
  read("seed", params.seed);
  return params;
}

}  // namespace frt::host
