// SPDX-License-Identifier: Apache-2.0
// Only what does not stay is tokenized again. Where its tokens are not the last ones of the prompt,
// for one reaches over the place where the texts part, the whole is.
#include "lm/chat/parting_point.hpp"

#include <algorithm>
#include <frt/error.hpp>
#include <string_view>
#include <utility>
#include <vector>

#include "lm/token_journal.hpp"

namespace frt::host {
namespace {

// The ids of what stands behind the first `bytes` of a prompt.
std::vector<int32_t> encode_tail(const TextModel& model, const ChatPrompt& prompt,
                                 std::size_t bytes) {
  std::vector<frt_text_range> plain;
  for (frt_text_range range : prompt.plain) {
    if (range.end <= bytes) continue;
    range.begin = range.begin < bytes ? 0 : range.begin - bytes;
    range.end -= bytes;
    plain.push_back(range);
  }
  const std::string_view text = std::string_view(prompt.text).substr(bytes);
  const frt_encode_params params{sizeof(params), FRT_ENCODE_CONTINUES, plain.data(), plain.size(),
                                 0};
  return model.encode(text, params);
}

}  // namespace

uint64_t parting_point(const TextModel& model, nlohmann::ordered_json messages,
                       const nlohmann::ordered_json& tools, const nlohmann::ordered_json& options,
                       const ChatPrompt& prompt, std::span<const int32_t> ids) {
  messages.push_back({{"role", "assistant"}, {"content", "x"}, {"reasoning_content", "x"}});
  messages.push_back({{"role", "user"}, {"content", "x"}});
  try {
    const ChatPrompt later = model.render(messages, tools, options);
    const auto [end, ignored] = std::ranges::mismatch(prompt.text, later.text);
    const auto common = static_cast<std::size_t>(end - prompt.text.begin());
    const std::vector<int32_t> tail = encode_tail(model, prompt, common);
    const bool is_tail =
        tail.size() < ids.size() && std::equal(tail.rbegin(), tail.rend(), ids.rbegin());
    if (is_tail) return ids.size() - tail.size();
    return common_prefix(ids, model.encode_prompt(later, 0));
  } catch (const Error&) {
    return 0;  // a template may throw on any turn that is not the client's
  }
}

}  // namespace frt::host
