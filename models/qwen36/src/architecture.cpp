// SPDX-License-Identifier: Apache-2.0
#include "architecture.hpp"

#include <utility>

#include "activations.hpp"
#include "recipe.hpp"
#include "state_layout.hpp"
#include "weights.hpp"

namespace frt::qwen36 {
std::optional<lm::SyntheticWeights> Architecture::synthetic() const {
  if (!synthetic_) return std::nullopt;
  return lm::SyntheticWeights{synthetic_->format, synthetic_->seed,
                              checkpoint_tensors(config_, false)};
}

// The delta rule: decay, read, write and read-out touch S once each per token.
std::uint64_t Architecture::token_flops() const {
  return 7 * static_cast<std::uint64_t>(config_.delta_layers() * config_.value_heads *
                                        config_.key_dim * config_.value_dim);
}

std::unique_ptr<lm::Weights> Architecture::build_weights(lm::WeightSource& source,
                                                         std::unique_ptr<lm::DeviceMemory> memory,
                                                         bool with_mtp) const {
  return qwen36::build_weights(config_, source, std::move(memory), with_mtp);
}

std::unique_ptr<lm::StateLayout> Architecture::make_layout(const lm::Precision& precision,
                                                           std::int64_t max_context, bool with_mtp,
                                                           std::int64_t page_rows) const {
  return std::make_unique<StateLayout>(config_, precision, max_context, with_mtp, page_rows);
}

std::unique_ptr<lm::StateMap> Architecture::map_state(const State& state, std::int64_t max_context,
                                                      bool with_mtp) const {
  return std::make_unique<StateMap>(config_, state, max_context, with_mtp);
}

std::unique_ptr<lm::Activations> Architecture::make_activations(bool with_mtp) const {
  return std::make_unique<Activations>(config_, with_mtp);
}

std::vector<std::string> Architecture::operators(bool with_mtp) const {
  return recipe_operators(config_, with_mtp);
}

std::unique_ptr<lm::Recipe> Architecture::make_recipe(
    const lm::Weights& weights, const Operators& operators, const lm::Precision& precision,
    const lm::StateMap& state, const lm::Activations& activations, const lm::Ports& ports) const {
  return std::make_unique<Recipe>(config_, static_cast<const Weights&>(weights), operators,
                                  precision, static_cast<const StateMap&>(state),
                                  static_cast<const Activations&>(activations), ports);
}

// S and the convolution windows of the delta-net layers, which the reference has channel by
// channel.
std::vector<lm::GoldenRegion> Architecture::golden_regions() const {
  std::vector<lm::GoldenRegion> regions;
  for (std::size_t i = 0; i < config_.layers.size(); ++i) {
    if (config_.layers[i] != LayerKind::kDelta) continue;
    const std::string layer = std::to_string(i);
    regions.push_back({"conv." + layer, lm::layer_region(i, "conv"), config_.conv_width - 1,
                       config_.conv_channels()});
    regions.push_back({"S." + layer, lm::layer_region(i, "state"), 0, 0});
  }
  return regions;
}

}  // namespace frt::qwen36
