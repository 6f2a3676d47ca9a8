// SPDX-License-Identifier: Apache-2.0
// The rules are those of the tokenizers library: candidates are the leftmost longest matches from
// left to right, without overlap; a candidate with `single_word` beside a word character is dropped
// (and its text not searched again); `lstrip` and `rstrip` then grow the match over white space, to
// the left at most to the end of the previous one.
#include "added_tokens.hpp"

#include <frt/io/utf8.hpp>

#include <algorithm>

#include "normalize.hpp"

namespace frt::models {
namespace {

// The character that ends at `end` (text is valid UTF-8, end > 0).
io::Utf8Step step_before(std::string_view text, std::size_t end) {
  std::size_t first = end - 1;
  while ((static_cast<unsigned char>(text[first]) & 0xC0u) == 0x80u) --first;
  return io::utf8_step(text.substr(first, end - first));
}

bool stands_alone(std::string_view text, std::size_t first, std::size_t last) {
  if (first > 0 && is_word(step_before(text, first).character)) return false;
  return last == text.size() || !is_word(io::utf8_step(text.substr(last)).character);
}

}  // namespace

void AddedTokenMatcher::add(std::string_view content, const AddedToken& token) {
  std::uint32_t node = 0;
  for (const char c : content) {
    const std::uint64_t edge = std::uint64_t{node} << 8 | static_cast<unsigned char>(c);
    const auto [at, added] =
        children_.try_emplace(edge, static_cast<std::uint32_t>(ending_.size()));
    node = at->second;
    if (added) ending_.push_back(-1);
  }
  ending_[node] = static_cast<std::int32_t>(patterns_.size());
  patterns_.push_back({token.id, token.lstrip, token.rstrip, token.single_word});
  first_[static_cast<unsigned char>(content[0])] = true;
}

AddedTokenMatcher::Match AddedTokenMatcher::longest_at(std::string_view text,
                                                       std::size_t at) const {
  Match best;
  std::uint32_t node = 0;
  for (std::size_t i = at; i < text.size(); ++i) {
    const auto child =
        children_.find(std::uint64_t{node} << 8 | static_cast<unsigned char>(text[i]));
    if (child == children_.end()) break;
    node = child->second;
    if (ending_[node] >= 0) best = {i + 1 - at, ending_[node]};
  }
  return best;
}

void AddedTokenMatcher::split(std::string_view text, std::span<const TextRange> plain,
                              const std::function<void(const Section&)>& visit) const {
  std::size_t done = 0;  // everything before was visited
  for (std::size_t at = 0; at < text.size();) {
    while (!plain.empty() && plain.front().end <= at) plain = plain.subspan(1);
    if (!plain.empty() && plain.front().begin <= at) {
      at = plain.front().end;
      continue;
    }
    if (!first_[static_cast<unsigned char>(text[at])]) {
      ++at;
      continue;
    }
    const Match match = longest_at(plain.empty() ? text : text.substr(0, plain.front().begin), at);
    if (match.length == 0) {
      ++at;
      continue;
    }
    std::size_t first = at, last = at + match.length;
    at = last;
    const Pattern& pattern = patterns_[static_cast<std::size_t>(match.pattern)];
    if (pattern.single_word && !stands_alone(text, first, last)) continue;
    while (pattern.lstrip && first > done) {
      const io::Utf8Step step = step_before(text, first);
      if (!is_white_space(step.character)) break;
      first -= step.bytes;
    }
    while (pattern.rstrip && last < text.size()) {
      const io::Utf8Step step = io::utf8_step(text.substr(last));
      if (!is_white_space(step.character)) break;
      last += step.bytes;
    }
    if (first > done) visit({text.substr(done, first - done), -1});
    visit({text.substr(first, last - first), pattern.id});
    done = last;
    at = std::max(at, done);
  }
  if (done < text.size()) visit({text.substr(done), -1});
}

}  // namespace frt::models
