// SPDX-License-Identifier: Apache-2.0
// chat.hpp - the conversation format of Qwen3.6 as frt/lm wants it (chat_format.hpp).
#pragma once

#include <frt/lm/chat.hpp>

namespace frt::qwen36 {

class Chat final : public lm::Chat {
 public:
  std::string_view name() const override { return "Qwen3.6"; }
  std::span<const std::string_view> known_templates() const override;
  models::PromptText render(const models::Json& messages, const models::Json& tools,
                            const models::Json& options) const override;
  std::unique_ptr<lm::ChatReader> reader(const models::Json& tools,
                                         const models::Json& options) const override;
  models::Json answer_form(const models::Json& options) const override;
};

}  // namespace frt::qwen36
