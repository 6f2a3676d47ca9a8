// SPDX-License-Identifier: Apache-2.0
#include "cli/answer_view.hpp"

#include <unistd.h>

#include <utility>

namespace frt::host {

AnswerView::AnswerView(const App& app, const TextModel& model,
                       const nlohmann::ordered_json& options)
    : stream_(model, nullptr, options),
      reasoning_(isatty(STDERR_FILENO) != 0),
      quiet_(app.options().quiet),
      dim_(app.color_stderr()),
      in_log_(app.options().log_format != "text") {}

bool AnswerView::push(const std::string& piece) {
  for (const ChatEvent& event : stream_.push(piece)) show(event);
  return shown_;
}

bool AnswerView::finish() {
  for (const ChatEvent& event : stream_.finish()) show(event);
  end_reasoning();
  show_answer(answer_.flush() + "\n");
  return shown_;
}

void AnswerView::show(const ChatEvent& event) {
  if (event.kind == ChatEvent::kReasoning) return show_reasoning(event.text);
  end_reasoning();
  switch (event.kind) {
    case ChatEvent::kToolBegin:  // one line of JSON
      return show_answer("{\"name\":" + nlohmann::ordered_json(event.text).dump() +
                         ",\"arguments\":");
    case ChatEvent::kToolEnd:
      return show_answer("}\n");
    default:
      return show_answer(answer_.push(event.text));
  }
}

void AnswerView::show_reasoning(const std::string& text) {
  if (quiet_ || text.empty()) return;
  last_ = text.back();
  if (in_log_) {
    thought_ += text;
    return;
  }
  const std::string tame = reasoning_.push(text);
  write_err(dim_ ? "\x1b[2m" + tame + "\x1b[0m" : tame);
}

// The answer begins on a line of its own.
void AnswerView::end_reasoning() {
  if (in_log_ && !thought_.empty()) put_err(std::exchange(thought_, {}) + "\n");
  if (std::exchange(last_, '\n') != '\n') write_err(reasoning_.flush() + "\n");
}

void AnswerView::show_answer(const std::string& text) {
  shown_ = shown_ && write_out(text);
}

}  // namespace frt::host
