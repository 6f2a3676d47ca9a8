// SPDX-License-Identifier: Apache-2.0
// answer_view.hpp - an answer as it is written: what the model answers goes to stdout, what it
// thinks before that to stderr, dimmed where there are colours. So a pipe gets the answer alone,
// and --quiet leaves the reasoning out.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "cli/app.hpp"
#include "cli/terminal/output.hpp"
#include "lm/chat/stream.hpp"

namespace frt::host {

// The main thread. One answer.
class AnswerView {
 public:
  // `options`: of the chat format, as the question was rendered with. `app` and `model` outlive
  // this object.
  AnswerView(const App& app, const TextModel& model, const nlohmann::ordered_json& options);
  AnswerView(const AnswerView&) = delete;
  AnswerView& operator=(const AnswerView&) = delete;

  // The next piece of the model's text: whole characters. False, and nothing more is shown, once
  // stdout does not take the answer.
  bool push(const std::string& piece);
  // The rest, and the end of the line.
  bool finish();

 private:
  void show(const ChatEvent& event);
  void show_reasoning(const std::string& text);
  void end_reasoning();
  void show_answer(const std::string& text);

  ChatStream stream_;
  ModelText answer_, reasoning_;
  bool quiet_, dim_, in_log_;
  std::string thought_;  // for the log
  char last_ = '\n';     // that the reasoning showed
  bool shown_ = true;
};

}  // namespace frt::host
