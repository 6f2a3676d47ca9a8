// SPDX-License-Identifier: Apache-2.0
// Calls in a text:
//
//   <tool_call>\n(<function=NAME>\n(<parameter=KEY>\nVALUE\n</parameter>\n)*</function>\n)+</tool_call>
//
// White space between tags is free. Nothing that the model wrote is lost or rewritten: what is no
// call stays text, tags included.
//
// A call may begin where <function=NAME> follows <tool_call> or another call of the block, and NAME
// is declared (any name, if no tools were given). It is certain, and given out, once its first
// value is whole, or once it ends without one. Before, it is text if it fails: prose that mentions
// the tags, or a call that was cut off.
//
// A value may hold any text, the tags themselves too. It ends at the first
//   </parameter>       that <parameter=KEY> of a new key or an ending </function> follows;
//   <parameter=KEY>    that starts a line, if the function has KEY and the call has it not yet;
//   </function>        that ends: </tool_call>, <function= or the end of the whole text follows.
// The last two serve models that forget </parameter>. So a call that is certain goes on with a
// value or ends; if the text ends first, the value that was cut off is text behind it.
//
// `buffer_` holds what is undecided. Each answer about a place is final: kLater if the text that
// decides is not there yet. Reading goes on only when what it waits for has come, so the time is
// linear: a place is looked at again at most once for each character of the tag behind it.
#include "call_reader.hpp"

#include <algorithm>
#include <utility>

#include "chat_text.hpp"

namespace frt::qwen36 {

using lm::ChatEvents;
using models::Json;

namespace {

constexpr std::string_view kCallOpen = "<tool_call>", kCallClose = "</tool_call>";
constexpr std::string_view kFunctionOpen = "<function=", kFunctionClose = "</function>";
constexpr std::string_view kParameterOpen = "<parameter=", kParameterClose = "</parameter>";
constexpr std::string_view kNameEnds = "<>\n";
constexpr std::size_t kNowhere = std::string_view::npos;

}  // namespace

// ---- text ----------------------------------------------------------------------------------

void TextOut::add(std::string_view text, ChatEvents& events) {
  if (after_call_ || (!given_ && ends_ != Ends::kKeep)) text = trim_left(text);
  if (text.empty()) return;
  if (after_call_ && given_) emit("\n", events);
  after_call_ = false;
  const std::string_view body = trim_right(text);
  if (!body.empty()) {
    if (!space_.empty()) emit(space_, events);
    space_.clear();
    emit(body, events);
  }
  space_ += text.substr(body.size());
}

void TextOut::call() {
  space_.clear();
  after_call_ = true;
}

void TextOut::finish(ChatEvents& events) {
  if (ends_ != Ends::kTrim && !space_.empty()) emit(space_, events);
  space_.clear();
}

void TextOut::emit(std::string_view text, ChatEvents& events) {
  given_ = true;
  if (events.empty() || events.back().kind != kind_) events.push_back({kind_, 0, {}, 0});
  events.back().text += text;
}

// ---- places --------------------------------------------------------------------------------

bool CallReader::stands(std::size_t at, std::string_view token) const {
  return std::string_view(buffer_).substr(std::min(at, buffer_.size())).starts_with(token);
}

// The text ends at `at` or inside a `token` there, and goes on.
bool CallReader::may_stand(std::size_t at, std::string_view token) {
  const std::string_view there = std::string_view(buffer_).substr(std::min(at, buffer_.size()));
  const bool may = !final_ && there.size() < token.size() && token.starts_with(there);
  if (may) wait_ = there.empty() ? Wait::kNoSpace : Wait::kAny;
  return may;
}

// The text ends at `at` or inside "<opening" NAME there, and goes on.
bool CallReader::tag_may_stand(std::size_t at, std::string_view opening) {
  if (may_stand(at, opening)) return true;
  const bool may = !final_ && stands(at, opening) &&
                   buffer_.find_first_of(kNameEnds, at + opening.size()) == kNowhere;
  if (may) wait_ = Wait::kNameEnd;
  return may;
}

std::size_t CallReader::skip_space(std::size_t at) const {
  return std::min(buffer_.find_first_not_of(kSpace, at), buffer_.size());
}

// "<opening" NAME ">"; a name is on one line.
std::optional<CallReader::Tag> CallReader::tag_at(std::size_t at, std::string_view opening) const {
  if (!stands(at, opening)) return std::nullopt;
  const std::size_t begin = at + opening.size();
  const std::size_t end = buffer_.find_first_of(kNameEnds, begin);
  if (end == kNowhere || end == begin || buffer_[end] != '>') return std::nullopt;
  return Tag{std::string_view(buffer_).substr(begin, end - begin), end + 1};
}

std::optional<CallReader::Tag> CallReader::function_at(std::size_t at) const {
  const auto tag = tag_at(at, kFunctionOpen);
  return tag && tools_.declares(tag->name) ? tag : std::nullopt;
}

// Whether the </function> at `at` is one, or part of a value.
CallReader::Answer CallReader::function_ends(std::size_t at) {
  const std::size_t after = skip_space(at + kFunctionClose.size());
  if (stands(after, kCallClose) || stands(after, kFunctionOpen)) return Answer::kYes;
  if (final_ && after == buffer_.size()) return Answer::kYes;
  const bool later = may_stand(after, kCallClose) || may_stand(after, kFunctionOpen);
  return later ? Answer::kLater : Answer::kNo;
}

// Whether the value ends at the `<` at `at`; `behind` is where the call goes on.
CallReader::Answer CallReader::value_ends(std::size_t at, std::size_t& behind) {
  behind = at;
  const auto new_key = [&](std::size_t place) {
    const auto tag = tag_at(place, kParameterOpen);
    return tag && !given_.contains(tag->name) ? tag : std::nullopt;
  };
  if (stands(at, kParameterClose)) {
    behind = skip_space(at + kParameterClose.size());
    if (stands(behind, kFunctionClose)) return function_ends(behind);
    if (may_stand(behind, kFunctionClose)) return Answer::kLater;
    if (tag_may_stand(behind, kParameterOpen)) return Answer::kLater;
    return new_key(behind) ? Answer::kYes : Answer::kNo;
  }
  if (stands(at, kFunctionClose)) return function_ends(at);
  const bool new_line = buffer_[at - 1] == '\n';  // a tag is before each value
  if (new_line && tag_may_stand(at, kParameterOpen)) return Answer::kLater;
  if (may_stand(at, kParameterClose) || may_stand(at, kFunctionClose)) return Answer::kLater;
  const auto tag = new_line ? new_key(at) : std::nullopt;
  const Tools::Parameters& known = tools_.parameters(function_);
  return tag && (known.empty() || known.contains(tag->name)) ? Answer::kYes : Answer::kNo;
}

// ---- reading -------------------------------------------------------------------------------

void CallReader::push(std::string_view text, ChatEvents& events) {
  if (calls_ == Calls::kNone) return out_.add(text, events);
  buffer_ += text;
  const auto comes = [&] {
    if (wait_ == Wait::kNoSpace) return text.find_first_not_of(kSpace) != kNowhere;
    return wait_ == Wait::kAny || text.find_first_of(kNameEnds) != kNowhere;
  };
  if (!held_ && comes()) run(events);
}

void CallReader::release(ChatEvents& events) {
  give_text(buffer_.size(), events);
  buffer_.clear();
  calls_ = Calls::kNone;
  out_.finish(events);
}

void CallReader::finish(ChatEvents& events) {
  if (calls_ == Calls::kHold) calls_ = Calls::kTake;
  held_ = false;
  final_ = true;
  run(events);
  if (state_ == State::kValue) {
    unfinished_ = true;
    if (call_open_) end_call(FRT_CHAT_UNFINISHED, events);
    give_text(buffer_.size(), events);
  }
  out_.finish(events);
}

void CallReader::run(ChatEvents& events) {
  wait_ = Wait::kAny;
  bool more = true;
  while (more) {
    switch (state_) {
      case State::kText:
        more = read_text(events);
        break;
      case State::kFunction:
        more = read_function(events);
        break;
      case State::kArguments:
        more = read_arguments(events);
        break;
      case State::kValue:
        more = read_value(events);
        break;
    }
  }
  if (begin_ <= buffer_.size() / 2) return;
  // A value's first character may ask what was before it.
  const std::size_t gone = begin_ - 1;
  buffer_.erase(0, gone);
  begin_ -= gone;
  at_ -= gone;
  value_ -= std::min(gone, value_);
}

// Gives text out, up to a <tool_call> that begins a call or could.
bool CallReader::read_text(ChatEvents& events) {
  for (; (at_ = buffer_.find('<', at_)) != kNowhere; ++at_) {
    if (may_stand(at_, kCallOpen)) {
      give_text(at_, events);
      return false;
    }
    if (!stands(at_, kCallOpen)) continue;
    const std::size_t inside = skip_space(at_ + kCallOpen.size());
    if (!function_at(inside) && !tag_may_stand(inside, kFunctionOpen)) continue;
    give_text(at_, events);
    at_ = inside;
    in_block_ = false;
    state_ = State::kFunction;
    return true;
  }
  at_ = buffer_.size();
  give_text(at_, events);
  return false;
}

bool CallReader::read_function(ChatEvents& events) {
  at_ = skip_space(at_);
  if (in_block_) {
    begin_ = at_;
    if (stands(at_, kCallClose)) {
      begin_ = at_ += kCallClose.size();
      state_ = State::kText;
      return true;
    }
  }
  if (tag_may_stand(at_, kFunctionOpen)) return false;
  const auto function = function_at(at_);
  if (!function) {
    give_up(events);
    return true;
  }
  if (calls_ == Calls::kHold) {
    held_ = true;
    return false;
  }
  function_ = function->name;
  given_.clear();
  at_ = function->end;
  state_ = State::kArguments;
  return true;
}

bool CallReader::read_arguments(ChatEvents& events) {
  at_ = skip_space(at_);
  if (stands(at_, kFunctionClose)) {
    const Answer ends = function_ends(at_);
    if (ends == Answer::kLater) return false;
    if (ends == Answer::kNo) {
      give_up(events);
      return true;
    }
    begin_ = at_ += kFunctionClose.size();
    if (!call_open_) add_arguments("{", events);
    end_call(0, events);
    in_block_ = true;
    state_ = State::kFunction;
    return true;
  }
  if (may_stand(at_, kFunctionClose) || tag_may_stand(at_, kParameterOpen)) return false;
  const auto parameter = tag_at(at_, kParameterOpen);
  if (!parameter) {
    give_up(events);
    return true;
  }
  key_ = parameter->name;
  given_.insert(key_);
  value_ = at_ = parameter->end;
  state_ = State::kValue;
  return true;
}

bool CallReader::read_value(ChatEvents& events) {
  for (; (at_ = buffer_.find('<', at_)) != kNowhere; ++at_) {
    std::size_t behind = at_;
    const Answer ends = value_ends(at_, behind);
    if (ends == Answer::kLater) return false;
    if (ends == Answer::kNo) continue;
    const Tools::Parameters& known = tools_.parameters(function_);
    const auto type = known.find(key_);
    const std::string value = json_value(std::string_view(buffer_).substr(value_, at_ - value_),
                                         type == known.end() || type->second);
    add_arguments((call_open_ ? ", " : "{") + models::python_json(Json(key_)) + ": " + value,
                  events);
    begin_ = at_ = behind;
    state_ = State::kArguments;
    return true;
  }
  at_ = buffer_.size();
  return false;
}

// What was read since <tool_call> is no call.
void CallReader::give_up(ChatEvents& events) {
  give_text(at_, events);
  state_ = State::kText;
}

void CallReader::give_text(std::size_t end, ChatEvents& events) {
  out_.add(std::string_view(buffer_).substr(begin_, end - begin_), events);
  begin_ = end;
}

void CallReader::add_arguments(const std::string& text, ChatEvents& events) {
  if (!call_open_) {
    out_.call();
    events.push_back({FRT_CHAT_CALL_BEGIN, call_, function_, 0});
    call_open_ = true;
  }
  events.push_back({FRT_CHAT_CALL_ARGUMENTS, call_, text, 0});
}

void CallReader::end_call(std::uint32_t flags, ChatEvents& events) {
  events.push_back({FRT_CHAT_CALL_ARGUMENTS, call_, "}", 0});
  events.push_back({FRT_CHAT_CALL_END, call_++, {}, flags});
  call_open_ = false;
}

}  // namespace frt::qwen36
