// SPDX-License-Identifier: Apache-2.0
#include <charconv>
#include <frt/lm/synthetic.hpp>

namespace frt::lm {
namespace {

constexpr std::string_view kScheme = "synthetic:";

template <class Number>
Number parse_number(std::string_view key, std::string_view value) {
  Number number{};
  const char* end = value.data() + value.size();
  const auto [stop, error] = std::from_chars(value.data(), end, number);
  if (error != std::errc() || stop != end) {
    throw Error(FRT_ERR_INVALID_ARGUMENT,
                std::string(key) + "=" + std::string(value) + ": expected a whole number");
  }
  return number;
}

}  // namespace

bool is_synthetic(std::string_view checkpoint) {
  return checkpoint.starts_with(kScheme);
}

SyntheticName parse_synthetic_name(std::string_view checkpoint) {
  std::string_view rest = checkpoint.substr(kScheme.size());
  const std::size_t question = rest.find('?');
  SyntheticName name;
  name.preset = rest.substr(0, question);
  rest = question == std::string_view::npos ? std::string_view() : rest.substr(question + 1);
  while (!rest.empty()) {
    const std::size_t end = rest.find('&');
    const std::string_view pair = rest.substr(0, end);
    rest = end == std::string_view::npos ? std::string_view() : rest.substr(end + 1);
    const std::size_t equals = pair.find('=');
    if (equals == std::string_view::npos) {
      throw Error(FRT_ERR_INVALID_ARGUMENT, "'" + std::string(pair) + "' in checkpoint '" +
                                                std::string(checkpoint) + "': expected key=value");
    }
    const std::string_view key = pair.substr(0, equals);
    const std::string_view value = pair.substr(equals + 1);
    if (key == "format") {
      name.format = parse_format(value);
    } else if (key == "seed") {
      name.seed = parse_number<std::uint64_t>(key, value);
    } else {
      name.dimensions.emplace_back(key, value);
    }
  }
  return name;
}

std::int64_t parse_dimension(std::string_view key, std::string_view value, std::int64_t minimum,
                             std::int64_t maximum) {
  const auto number = parse_number<std::int64_t>(key, value);
  if (number >= minimum && number <= maximum) return number;
  throw Error(FRT_ERR_INVALID_ARGUMENT, std::string(key) + "=" + std::string(value) +
                                            ": expected " + std::to_string(minimum) + " to " +
                                            std::to_string(maximum));
}

void refuse_preset(std::string_view name, std::span<const Preset> known) {
  std::string names;
  for (const Preset& preset : known) {
    names += (names.empty() ? "" : ", ") + std::string(preset.name);
  }
  throw Error(FRT_ERR_INVALID_ARGUMENT,
              "preset '" + std::string(name) + "' is unknown; choose one of " + names);
}

}  // namespace frt::lm
