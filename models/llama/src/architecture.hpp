// SPDX-License-Identifier: Apache-2.0
// architecture.hpp - Llama as frt/lm wants it: a plain decoder with optional biases.
#pragma once

#include <frt/lm/architecture.hpp>
#include <frt/lm/template_chat.hpp>
#include <optional>
#include <string_view>
#include <utility>

#include "config.hpp"

namespace frt::llama {

class Architecture final : public lm::Architecture {
 public:
  Architecture(Config config, lm::TemplateChat chat)
      : config_(std::move(config)), chat_(std::move(chat)) {}
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
  lm::TemplateChat chat_;
};

}  // namespace frt::llama
