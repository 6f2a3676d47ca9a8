// SPDX-License-Identifier: Apache-2.0
// frt/qwen36/presets.hpp - named configurations, and synthetic checkpoints of them
// (frt/lm/synthetic.hpp). The dimension `layers` keeps the rhythm of one attention layer in four.
// Errors: FRT_ERR_INVALID_ARGUMENT with what there is to choose from. All functions are [any].
#pragma once

#include <cstdint>
#include <frt/lm/synthetic.hpp>
#include <frt/qwen36/config.hpp>
#include <frt/qwen36/tensors.hpp>
#include <span>
#include <string>
#include <string_view>

namespace frt::qwen36 {

using lm::is_synthetic;
using lm::Preset;

std::span<const Preset> presets();

// The configuration of a preset.
Config preset_config(std::string_view name);

// "layers", "hidden", "vocabulary", "heads", ...: what set_dimension() takes.
std::span<const std::string_view> dimension_keys();

// Changes one dimension; call validate() after the last.
void set_dimension(Config& config, std::string_view key, std::string_view value);

struct Synthetic {
  std::string preset;
  Config config;
  Format format = Format::kBf16;
  std::uint64_t seed = 1;
};

Synthetic parse_synthetic(std::string_view checkpoint);

}  // namespace frt::qwen36
