// SPDX-License-Identifier: Apache-2.0
#include "http/lm/text_probabilities.hpp"

#include <utility>

namespace frt::host {

void TextProbabilities::push(ApiTokenProbability token) {
  bytes_ += token.bytes;
  waiting_.push_back(std::move(token));
}

std::vector<ApiTokenProbability> TextProbabilities::take(const ChatEvent& event) {
  if (waiting_.empty()) return {};
  const bool is_text = event.kind == ChatEvent::kText;
  const std::size_t begin = bytes_.find(event.text);
  if ((!is_text && event.kind != ChatEvent::kReasoning) || begin == bytes_.npos) {
    bytes_.clear();
    std::vector<ApiTokenProbability> all = std::exchange(waiting_, {});
    if (!is_text) all.clear();
    return all;  // of text whose tokens are no whole characters
  }
  const std::size_t end = begin + event.text.size();
  std::vector<ApiTokenProbability> taken;
  std::size_t count = 0, at = 0;
  for (; count < waiting_.size() && at < end; ++count) {
    const std::size_t next = at + waiting_[count].bytes.size();
    if (is_text && next > begin) taken.push_back(std::move(waiting_[count]));
    at = next;
  }
  waiting_.erase(waiting_.begin(), waiting_.begin() + static_cast<std::ptrdiff_t>(count));
  bytes_.erase(0, at);
  return taken;
}

}  // namespace frt::host
