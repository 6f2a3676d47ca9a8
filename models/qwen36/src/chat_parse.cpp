// SPDX-License-Identifier: Apache-2.0
// With thinking on, the prompt ends inside <think>, so the text is reasoning up to the first
// </think>. What follows is content with calls in it (call_reader.cpp).
//
// A call inside reasoning counts only if the reasoning is never closed, hence only when the text is
// over, and only if tools were given: some models end that way, but they also write down calls that
// they decide against. So what may be a call in reasoning waits, and all behind it.
#include <utility>

#include "call_reader.hpp"
#include "chat_format.hpp"
#include "chat_text.hpp"

namespace frt::qwen36 {
namespace {

constexpr std::string_view kThinkOpen = "<think>", kThinkClose = "</think>";

// How much of `text` stands whatever follows, if `token` may come.
std::size_t decided(std::string_view text, std::string_view token) {
  for (std::size_t length = std::min(token.size() - 1, text.size()); length > 0; --length) {
    if (text.ends_with(token.substr(0, length))) return text.size() - length;
  }
  return text.size();
}

class AnswerReader final : public lm::ChatReader {
 public:
  AnswerReader(const models::Json& tools, bool opened)
      : tools_(tools),
        calls_(tools.is_array() && tools.empty() ? CallReader::Calls::kNone
                                                 : CallReader::Calls::kTake),
        opened_(opened),
        reasoning_(tools_, tools_.empty() ? CallReader::Calls::kNone : CallReader::Calls::kHold,
                   {FRT_CHAT_REASONING, TextOut::Ends::kTrim}) {}

  void push(std::string_view text, lm::ChatEvents& events) override {
    switch (part_) {
      case Part::kStart:
        return push_start(text, events);
      case Part::kReasoning:
        return push_reasoning(text, events);
      case Part::kContent:
        return content_->push(text, events);
    }
  }

  bool finish(lm::ChatEvents& events) override {
    if (part_ == Part::kStart) begin(opened_, std::exchange(waiting_, {}), events);
    if (part_ == Part::kContent) {
      content_->finish(events);
      return !content_->unfinished();
    }
    reasoning_.push(waiting_, events);
    reasoning_.finish(events);
    return reasoning_.any_call() && !reasoning_.unfinished();
  }

 private:
  enum class Part { kStart, kReasoning, kContent };

  // The text may begin with <think>.
  void push_start(std::string_view text, lm::ChatEvents& events) {
    if (waiting_.empty()) {
      const std::string_view rest = trim_left(text);
      space_ += text.substr(0, text.size() - rest.size());
      text = rest;
    }
    waiting_ += text;
    if (waiting_.size() < kThinkOpen.size() && kThinkOpen.starts_with(waiting_)) return;
    const bool thinks = waiting_.starts_with(kThinkOpen);
    if (thinks) waiting_.erase(0, kThinkOpen.size());
    begin(thinks || opened_, std::exchange(waiting_, {}), events);
  }

  void begin(bool reasoning, const std::string& text, lm::ChatEvents& events) {
    if (reasoning) {
      part_ = Part::kReasoning;
      push_reasoning(text, events);
    } else {
      begin_content(TextOut::Ends::kKeep, space_ + text, events);
    }
  }

  void push_reasoning(std::string_view text, lm::ChatEvents& events) {
    waiting_ += text;
    const std::size_t end = waiting_.find(kThinkClose);
    if (end == waiting_.npos) {
      const std::size_t known = decided(waiting_, kThinkClose);
      reasoning_.push(std::string_view(waiting_).substr(0, known), events);
      waiting_.erase(0, known);
      return;
    }
    reasoning_.push(std::string_view(waiting_).substr(0, end), events);
    reasoning_.release(events);
    begin_content(TextOut::Ends::kTrimLeft,
                  std::string_view(waiting_).substr(end + kThinkClose.size()), events);
  }

  void begin_content(TextOut::Ends ends, std::string_view text, lm::ChatEvents& events) {
    part_ = Part::kContent;
    content_.emplace(tools_, calls_, TextOut(FRT_CHAT_TEXT, ends));
    content_->push(text, events);
  }

  const Tools tools_;
  const CallReader::Calls calls_;  // of the content
  const bool opened_;              // the prompt ends in reasoning
  Part part_ = Part::kStart;
  std::string space_;    // at the start
  std::string waiting_;  // may be the beginning of a tag
  CallReader reasoning_;
  std::optional<CallReader> content_;
};

}  // namespace

std::unique_ptr<lm::ChatReader> read_answer(const models::Json& tools, const ChatOptions& options) {
  return std::make_unique<AnswerReader>(tools,
                                        options.add_generation_prompt && options.enable_thinking);
}

}  // namespace frt::qwen36
