// SPDX-License-Identifier: Apache-2.0
// architecture.hpp - Llama as frt/lm wants it: a plain decoder with optional biases.
#pragma once

#include <frt/lm/architecture.hpp>
#include <optional>
#include <string_view>
#include <utility>

#include "chat.hpp"
#include "config.hpp"

namespace frt::llama {

class Architecture final : public lm::Architecture {
 public:
  explicit Architecture(Config config) : config_(std::move(config)) {}
  // From "synthetic:llama-tiny?...".
  explicit Architecture(std::string_view synthetic);

  const Config& config() const override { return config_; }
  std::int64_t layer_count() const override { return config_.layers; }
  std::string describe() const override { return llama::describe(config_); }
  std::string canonical_text() const override { return llama::canonical_text(config_); }
  const lm::Chat& chat() const override { return chat_; }
  std::optional<lm::SyntheticWeights> synthetic() const override;

  std::unique_ptr<lm::Weights> build_weights(lm::WeightSource& source,
                                             std::unique_ptr<lm::DeviceMemory> memory,
                                             bool with_mtp) const override;
  std::vector<std::string> operators(bool with_mtp) const override;

 private:
  Config config_;
  std::optional<lm::SyntheticName> synthetic_;
  Chat chat_;
};

}  // namespace frt::llama
