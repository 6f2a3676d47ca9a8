// SPDX-License-Identifier: Apache-2.0
// architecture.hpp - Qwen3.6 as frt/lm wants it: what this model has beside a plain decoder.
#pragma once

#include <frt/lm/architecture.hpp>
#include <frt/qwen36/presets.hpp>
#include <optional>
#include <string_view>

#include "chat.hpp"

namespace frt::qwen36 {

class Architecture final : public lm::Architecture {
 public:
  explicit Architecture(Config config) : config_(std::move(config)) {}
  explicit Architecture(const Synthetic& synthetic)
      : config_(synthetic.config), synthetic_(synthetic) {}

  const Config& config() const override { return config_; }
  std::int64_t layer_count() const override { return config_.layer_count(); }
  std::string describe() const override { return qwen36::describe(config_); }
  std::string canonical_text() const override { return qwen36::canonical_text(config_); }
  const lm::Chat& chat() const override { return chat_; }
  std::optional<lm::SyntheticWeights> synthetic() const override;
  bool attends(std::size_t layer) const override {
    return config_.layers[layer] == LayerKind::kAttention;
  }
  std::uint64_t token_flops() const override;

  std::unique_ptr<lm::Weights> build_weights(lm::WeightSource& source,
                                             std::unique_ptr<lm::DeviceMemory> memory,
                                             bool with_mtp) const override;
  std::unique_ptr<lm::StateLayout> make_layout(const lm::Precision& precision,
                                               std::int64_t max_context, bool with_mtp,
                                               std::int64_t page_rows) const override;
  std::unique_ptr<lm::StateMap> map_state(const State& state, std::int64_t max_context,
                                          bool with_mtp) const override;
  std::unique_ptr<lm::Activations> make_activations(bool with_mtp) const override;
  std::vector<std::string> operators(bool with_mtp) const override;
  std::unique_ptr<lm::Recipe> make_recipe(const lm::Weights& weights, const Operators& operators,
                                          const lm::Precision& precision, const lm::StateMap& state,
                                          const lm::Activations& activations,
                                          const lm::Ports& ports) const override;

  std::vector<lm::GoldenRegion> golden_regions() const override;
  // The convolution sees the rows before it at full weight.
  std::int32_t routing_reach() const override {
    return static_cast<std::int32_t>(config_.conv_width) - 1;
  }

 private:
  Config config_;
  std::optional<Synthetic> synthetic_;
  Chat chat_;
};

}  // namespace frt::qwen36
