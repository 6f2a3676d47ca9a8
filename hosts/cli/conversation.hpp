// SPDX-License-Identifier: Apache-2.0
// conversation.hpp - a dialogue with a model: messages, and one answer at a time, streamed.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lm/generator.hpp"
#include "lm/lm_model.hpp"

namespace frt::host {

class Conversation {
 public:
  // `options`: of the chat format (frt/chat.h).
  Conversation(const LmModel& model, nlohmann::ordered_json options);

  nlohmann::ordered_json& options() noexcept { return options_; }
  const nlohmann::ordered_json& messages() const noexcept { return messages_; }
  // Replaces the system message; empty: none.
  void set_system(const std::string& text);
  // Forgets everything but the system message.
  void reset();

  // Writes messages as JSON; reads them back, replacing what is there. FRT_ERR_IO, FRT_ERR_FORMAT.
  void save(const std::string& path) const;
  void load(const std::string& path);

  struct Turn {
    GenerationResult result;
    nlohmann::ordered_json message;  // what was added
  };
  // Asks `text` and streams the answer's text, reasoning included, to `show`. `request` gives
  // sampling and limits; its prompt and callback are replaced. `cancelled` is asked per token. An
  // answer that was cut short is kept as it stands; if nothing came, the question is taken back.
  Turn ask(const std::string& text, GenerationRequest request,
           const std::function<void(const std::string&)>& show,
           const std::function<bool()>& cancelled);

 private:
  const LmModel& model_;
  Generator generator_;
  nlohmann::ordered_json options_;
  nlohmann::ordered_json messages_ = nlohmann::ordered_json::array();
};

}  // namespace frt::host
