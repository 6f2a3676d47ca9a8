// SPDX-License-Identifier: Apache-2.0
// chat.hpp - the conversation format of Llama 3: messages of role system, user and assistant. It
// has no reasoning and no tools; tools, calls and images are FRT_ERR_UNSUPPORTED with the message's
// index. All functions are [any].
#pragma once

#include <frt/lm/chat.hpp>

namespace frt::llama {

class Chat final : public lm::Chat {
 public:
  std::string_view name() const override { return "Llama 3"; }
  std::span<const std::string_view> known_templates() const override;
  models::PromptText render(const models::Json& messages, const models::Json& tools,
                            const models::Json& options) const override;
  std::unique_ptr<lm::ChatReader> reader(const models::Json& tools,
                                         const models::Json& options) const override;
};

}  // namespace frt::llama
