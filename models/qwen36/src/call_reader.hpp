// SPDX-License-Identifier: Apache-2.0
// call_reader.hpp - takes the tool calls out of a text that comes in pieces; call_reader.cpp has
// the rules.
#pragma once

#include <frt/lm/chat.hpp>

#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "chat_tools.hpp"

namespace frt::qwen36 {

// Text as events of one kind, whatever pieces it comes in. White space before a call is not kept.
// White space at the end waits: a call may follow.
class TextOut {
 public:
  enum class Ends { kKeep, kTrimLeft, kTrim };  // white space at the ends of the whole text
  TextOut(std::uint32_t kind, Ends ends) : kind_(kind), ends_(ends) {}

  void add(std::string_view text, lm::ChatEvents& events);
  void call();  // one stands here; what follows begins a line
  void finish(lm::ChatEvents& events);

 private:
  void emit(std::string_view text, lm::ChatEvents& events);

  std::uint32_t kind_;
  Ends ends_;
  std::string space_;
  bool given_ = false, after_call_ = false;
};

class CallReader {
 public:
  enum class Calls {
    kTake,
    kHold,  // what may be a call waits, and all behind it, for release() or finish()
    kNone,  // all is text
  };
  // `tools` outlives this object.
  CallReader(const Tools& tools, Calls calls, TextOut out)
      : tools_(tools), calls_(calls), out_(std::move(out)) {}

  void push(std::string_view text, lm::ChatEvents& events);
  // No call is one: what waits is text.
  void release(lm::ChatEvents& events);
  // The text is over. What waited is taken as it stands.
  void finish(lm::ChatEvents& events);

  bool any_call() const { return call_ > 0; }
  // The text ended in a call's value.
  bool unfinished() const { return unfinished_; }

 private:
  struct Tag {
    std::string_view name;  // of the function, or of the parameter
    std::size_t end;        // behind the tag
  };
  enum class State { kText, kFunction, kArguments, kValue };
  enum class Answer { kYes, kNo, kLater };
  // What must come before more can be said, so that no piece is read twice for nothing.
  enum class Wait { kAny, kNoSpace, kNameEnd };

  bool stands(std::size_t at, std::string_view token) const;
  bool may_stand(std::size_t at, std::string_view token);
  bool tag_may_stand(std::size_t at, std::string_view opening);
  std::size_t skip_space(std::size_t at) const;
  std::optional<Tag> tag_at(std::size_t at, std::string_view opening) const;
  std::optional<Tag> function_at(std::size_t at) const;
  Answer function_ends(std::size_t at);
  Answer value_ends(std::size_t at, std::size_t& behind);

  void run(lm::ChatEvents& events);
  bool read_text(lm::ChatEvents& events);
  bool read_function(lm::ChatEvents& events);
  bool read_arguments(lm::ChatEvents& events);
  bool read_value(lm::ChatEvents& events);
  void give_up(lm::ChatEvents& events);
  void give_text(std::size_t end, lm::ChatEvents& events);
  void add_arguments(const std::string& text, lm::ChatEvents& events);
  void end_call(std::uint32_t flags, lm::ChatEvents& events);

  const Tools& tools_;
  Calls calls_;
  TextOut out_;
  std::string buffer_;
  std::size_t begin_ = 0;  // what is before was given out; what is behind becomes text if it fails
  std::size_t at_ = 0;     // where reading goes on
  std::size_t value_ = 0;  // where the value begins
  State state_ = State::kText;
  Wait wait_ = Wait::kAny;
  bool final_ = false, held_ = false;
  bool in_block_ = false;   // a call of this <tool_call> was read
  bool call_open_ = false;  // its beginning was given out
  bool unfinished_ = false;
  std::uint32_t call_ = 0;
  std::string function_, key_;
  std::set<std::string, std::less<>> given_;  // keys of the call
};

}  // namespace frt::qwen36
