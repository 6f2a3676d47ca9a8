// SPDX-License-Identifier: Apache-2.0
// frt/models/prompt_text.hpp - a prompt that knows which of its bytes came from outside.
//
// A conversation format writes its own text (<|im_start|>) beside what users, tools and models
// wrote. Only the format's own may become control tokens: plain() is what Tokenizer::encode() must
// take as ordinary text. One thread at a time.
#pragma once

#include <frt/models/tokenizer.hpp>

#include <algorithm>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace frt::models {

class PromptText {
 public:
  // Appends text of the format.
  PromptText& format(std::string_view text) {
    text_ += text;
    return *this;
  }
  // Appends text from outside.
  PromptText& plain(std::string_view text) {
    if (text.empty()) return *this;
    add_range({text_.size(), text_.size() + text.size()});
    text_ += text;
    return *this;
  }
  PromptText& append(const PromptText& other) {
    for (const TextRange& range : other.plain_) {
      add_range({text_.size() + range.begin, text_.size() + range.end});
    }
    text_ += other.text_;
    return *this;
  }
  // Bytes [begin, end).
  PromptText slice(std::size_t begin, std::size_t end) const {
    PromptText part;
    part.text_ = text_.substr(begin, end - begin);
    for (const TextRange& range : plain_) {
      const TextRange inside = {std::max(range.begin, begin), std::min(range.end, end)};
      if (inside.begin < inside.end) part.add_range({inside.begin - begin, inside.end - begin});
    }
    return part;
  }
  // From now on all of it is the format's own.
  void trust() { plain_.clear(); }

  const std::string& text() const { return text_; }
  std::span<const TextRange> plain() const { return plain_; }  // sorted, disjoint

 private:
  void add_range(TextRange range) {
    if (!plain_.empty() && plain_.back().end == range.begin) {
      plain_.back().end = range.end;
    } else {
      plain_.push_back(range);
    }
  }

  std::string text_;
  std::vector<TextRange> plain_;
};

}  // namespace frt::models
