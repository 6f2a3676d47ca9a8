// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <frt/error.hpp>
#include <frt/io/file.hpp>
#include <frt/io/json_text.hpp>
#include <frt/lm/generation_defaults.hpp>
#include <limits>
#include <utility>

namespace frt::lm {

using models::Json;

namespace {

// What sampling takes, as a person reads it and as it is checked.
struct SamplingRange {
  const char* key;
  const char* text;
  bool (*holds)(double value);
};

bool fits_float(double value) {
  return std::abs(value) <= std::numeric_limits<float>::max();
}

constexpr SamplingRange kSamplingRanges[] = {
    {"temperature", "0 (greedy) or a positive number",
     [](double value) { return value >= 0 && fits_float(value); }},
    {"top_p", "more than 0, at most 1", [](double value) { return value > 0 && value <= 1; }},
    {"top_k", "0 (off) or a positive whole number",
     [](double value) {
       return value >= 0 && value <= std::numeric_limits<std::int32_t>::max() &&
              value == std::floor(value);
     }},
    {"min_p", "0 or more, less than 1", [](double value) { return value >= 0 && value < 1; }},
    {"repetition_penalty", "a positive number; 1 is off",
     [](double value) { return value > 0 && fits_float(value); }},
    {"presence_penalty", "a number; 0 is off", fits_float},
    {"frequency_penalty", "a number; 0 is off", fits_float}};

}  // namespace

Json read_generation_defaults(const std::filesystem::path& folder,
                              const std::vector<std::int32_t>& end_ids) {
  Json result = Json::object();
  const std::filesystem::path path = folder / "generation_config.json";
  std::vector<std::int32_t> stops = end_ids;
  if (std::filesystem::exists(path)) {
    const Json config = io::read_json_file(path);
    if (!config.is_object()) throw Error(FRT_ERR_FORMAT, path.string() + ": it is no object");
    for (const SamplingRange& range : kSamplingRanges) {
      const auto value = config.find(range.key);
      if (value == config.end() || value->is_null()) continue;
      if (!value->is_number()) {
        throw Error(FRT_ERR_FORMAT, path.string() + ": " + range.key + " is no number");
      }
      if (!range.holds(value->get<double>())) {
        throw Error(FRT_ERR_FORMAT, path.string() + ": " + range.key + " is " +
                                        io::json_text(*value) + "; write " + range.text);
      }
      result[range.key] = *value;
    }
    // A whole number may be written with a point.
    if (result.contains("top_k")) result["top_k"] = result["top_k"].get<std::int32_t>();
    if (config.value("do_sample", Json()) == Json(false)) result["temperature"] = 0;
    const auto end = config.find("eos_token_id");
    if (end != config.end() && !end->is_null()) {
      const Json list = end->is_array() ? *end : Json::array({*end});
      stops.clear();
      for (const Json& id : list) {
        if (!id.is_number_unsigned() || !std::in_range<std::int32_t>(id.get<std::uint64_t>())) {
          throw Error(FRT_ERR_FORMAT, path.string() + ": eos_token_id has an entry that is no id");
        }
        stops.push_back(id.get<std::int32_t>());
      }
    }
  }
  result["stop_token_ids"] = stops;
  return result;
}

}  // namespace frt::lm
