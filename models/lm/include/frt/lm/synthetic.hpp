// SPDX-License-Identifier: Apache-2.0
// frt/lm/synthetic.hpp - checkpoints that consist of a name only:
//
//   synthetic:<preset>[?key=value&key=value...]
//
// Keys: format (see tensors.hpp), seed, and the dimensions of the architecture. Errors:
// FRT_ERR_INVALID_ARGUMENT with what there is to choose from. All functions are [any].
#pragma once

#include <cstdint>
#include <frt/error.hpp>
#include <frt/lm/fields.hpp>
#include <frt/lm/tensors.hpp>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace frt::lm {

// True if `checkpoint` starts with "synthetic:".
bool is_synthetic(std::string_view checkpoint);

// The parts of such a name; nothing is known of preset and dimensions yet.
struct SyntheticName {
  std::string preset;
  Format format = Format::kBf16;
  std::uint64_t seed = 1;
  std::vector<std::pair<std::string, std::string>> dimensions;
};
SyntheticName parse_synthetic_name(std::string_view checkpoint);

// A dimension that a name may change.
template <class Config>
struct Dimension {
  std::string_view key;
  std::int64_t minimum;
  void (*set)(Config&, std::int64_t);
  std::int64_t maximum = kMaxDimension;
};

// The value of a dimension, from `minimum` to `maximum`.
std::int64_t parse_dimension(std::string_view key, std::string_view value, std::int64_t minimum,
                             std::int64_t maximum);

template <class Config>
void set_dimension(std::span<const Dimension<Config>> dimensions, Config& config,
                   std::string_view key, std::string_view value) {
  std::string known = "format, seed";
  for (const Dimension<Config>& dimension : dimensions) {
    if (dimension.key == key) {
      return dimension.set(config,
                           parse_dimension(key, value, dimension.minimum, dimension.maximum));
    }
    known += ", " + std::string(dimension.key);
  }
  throw Error(FRT_ERR_INVALID_ARGUMENT,
              "'" + std::string(key) + "' is not a dimension; there are " + known);
}

struct Preset {
  std::string_view name;
  std::string_view doc;  // one line
};
// Throws the error that a preset is unknown and lists the known ones.
[[noreturn]] void refuse_preset(std::string_view name, std::span<const Preset> known);

}  // namespace frt::lm
