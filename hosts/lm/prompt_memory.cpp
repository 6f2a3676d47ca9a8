// SPDX-License-Identifier: Apache-2.0
// A prompt is remembered only if the borders found in its text are, in order, the borders among its
// tokens: where a tokenizer keeps another rule than it says, nothing is taken over.
#include "lm/prompt_memory.hpp"

#include <algorithm>
#include <cstring>
#include <frt/error.hpp>
#include <iterator>
#include <utility>

namespace frt::host {
namespace {

// The part of `prompt` from `begin` on.
ChatPrompt tail_of(const ChatPrompt& prompt, std::size_t begin) {
  ChatPrompt tail;
  tail.text = prompt.text.substr(begin);
  for (frt_text_range range : prompt.plain) {
    if (range.end <= begin) continue;
    range.begin = range.begin < begin ? 0 : range.begin - begin;
    range.end -= begin;
    tail.plain.push_back(range);
  }
  return tail;
}

// How many bytes both begin with alike; by blocks, because an owner has many long prompts.
std::size_t common_text(std::string_view a, std::string_view b) {
  constexpr std::size_t kBlock = 256;
  const std::size_t most = std::min(a.size(), b.size());
  std::size_t at = 0;
  while (at + kBlock <= most && std::memcmp(a.data() + at, b.data() + at, kBlock) == 0) {
    at += kBlock;
  }
  while (at < most && a[at] == b[at]) ++at;
  return at;
}

// How many bytes both begin with alike, in text and in what of it is plain.
std::size_t common_bytes(const ChatPrompt& a, const ChatPrompt& b) {
  std::size_t common = common_text(a.text, b.text);
  const auto plain = std::ranges::mismatch(a.plain, b.plain, [](const auto& x, const auto& y) {
    return x.begin == y.begin && x.end == y.end;
  });
  // A range of one alone, or that ends elsewhere, makes the difference where it begins or where the
  // shorter one ends.
  const bool in_a = plain.in1 != a.plain.end(), in_b = plain.in2 != b.plain.end();
  if (in_a && in_b && plain.in1->begin == plain.in2->begin) {
    common = std::min<std::size_t>(common, std::min(plain.in1->end, plain.in2->end));
  } else {
    if (in_a) common = std::min<std::size_t>(common, plain.in1->begin);
    if (in_b) common = std::min<std::size_t>(common, plain.in2->begin);
  }
  return common;
}

}  // namespace

PromptMemory::PromptMemory(const TextModel& model, std::size_t most_bytes)
    : model_(model), most_bytes_(most_bytes) {
  if (!model.has_tokenizer() || !model.tokenizer().token_bytes) return;
  const uint32_t size = model.tokenizer().vocabulary(model.handle());
  for (uint32_t id = 0; id < size; ++id) {
    uint32_t flags = 0;
    std::string bytes = model.token_bytes(static_cast<int32_t>(id), flags);
    if ((flags & FRT_TOKEN_BORDER) == 0 || bytes.empty()) continue;
    literals_.push_back({static_cast<int32_t>(id), std::move(bytes)});
  }
}

std::size_t PromptMemory::Known::bytes() const {
  return sizeof(*this) + owner.size() + prompt.text.size() +
         prompt.plain.size() * sizeof(prompt.plain[0]) + ids.size() * sizeof(ids[0]) +
         borders.size() * sizeof(borders[0]);
}

PromptMemory::Start PromptMemory::start_of(const std::string& owner,
                                           const ChatPrompt& prompt) const {
  std::vector<std::shared_ptr<const Known>> candidates;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& known : known_) {
      if (known->owner == owner) candidates.push_back(known);
    }
  }
  Start best;
  for (auto& known : candidates) {
    const std::size_t common = common_bytes(known->prompt, prompt);
    const auto after = std::ranges::upper_bound(known->borders, common, {}, &Border::end);
    if (after == known->borders.begin()) continue;
    const Border& last = *(after - 1);
    if (last.end <= best.border.end) continue;
    best = {known, last, after == known->borders.end()};
  }
  return best;
}

// False: the text's borders are not those of the tokens.
bool PromptMemory::find_borders(Known& known) const {
  std::vector<const Literal*> present;  // each once
  std::vector<std::size_t> of_ids;      // where they are among the tokens
  for (std::size_t i = 0; i < known.ids.size(); ++i) {
    const int32_t id = known.ids[i];
    if (id < literals_.front().id || id > literals_.back().id) continue;
    const auto literal = std::ranges::lower_bound(literals_, id, {}, &Literal::id);
    if (literal->id != id) continue;
    of_ids.push_back(i);
    if (std::ranges::find(present, &*literal) == present.end()) present.push_back(&*literal);
  }
  std::vector<std::pair<Border, int32_t>> found;
  const auto look = [&](std::size_t begin, std::size_t end) {
    const std::string_view part = std::string_view(known.prompt.text).substr(0, end);
    for (const Literal* literal : present) {
      const std::size_t bytes = literal->bytes.size();
      for (std::size_t at = part.find(literal->bytes, begin); at != part.npos;
           at = part.find(literal->bytes, at + bytes)) {
        found.push_back({{at, at + bytes, 0}, literal->id});
      }
    }
  };
  std::size_t begin = 0;
  for (const frt_text_range& range : known.prompt.plain) {
    look(begin, range.begin);
    begin = range.end;
  }
  look(begin, known.prompt.text.size());
  if (found.size() != of_ids.size()) return false;
  std::ranges::sort(found, {}, [](const auto& each) { return each.first.begin; });
  for (std::size_t i = 0; i < found.size(); ++i) {
    auto& [border, id] = found[i];
    border.index = of_ids[i];
    if (known.ids[border.index] != id) return false;
    known.borders.push_back(border);
  }
  return true;
}

// The ids of `prompt`, of which `start` is known.
std::vector<int32_t> PromptMemory::continued(const Start& start, const ChatPrompt& prompt,
                                             uint64_t max_tokens) const {
  const std::size_t taken = start.border.index;
  if (taken == 0 || (max_tokens > 0 && taken >= max_tokens)) {
    return model_.encode_prompt(prompt, max_tokens);
  }
  const ChatPrompt tail = tail_of(prompt, start.border.begin);
  const frt_encode_params params{sizeof(params), FRT_ENCODE_CONTINUES, tail.plain.data(),
                                 tail.plain.size(), max_tokens > 0 ? max_tokens - taken : 0};
  std::vector<int32_t> rest;
  try {
    rest = model_.encode(tail.text, params);
  } catch (const Error&) {
    return model_.encode_prompt(prompt, max_tokens);  // or it throws with the whole text's numbers
  }
  const auto first = start.known->ids.begin();
  std::vector<int32_t> ids;
  ids.reserve(taken + rest.size());
  ids.insert(ids.end(), first, first + static_cast<std::ptrdiff_t>(taken));
  ids.insert(ids.end(), rest.begin(), rest.end());
  return ids;
}

std::vector<int32_t> PromptMemory::encode(const std::string& owner, const ChatPrompt& prompt,
                                          uint64_t max_tokens) {
  if (literals_.empty()) return model_.encode_prompt(prompt, max_tokens);
  const Start start = start_of(owner, prompt);
  std::vector<int32_t> ids = continued(start, prompt, max_tokens);
  auto known = std::make_shared<Known>(Known{owner, prompt, ids, {}});
  const bool keep = find_borders(*known) && known->bytes() <= most_bytes_ / 4;
  const std::lock_guard lock(mutex_);
  counts_.known_tokens += start.border.index;
  counts_.new_tokens += ids.size() - start.border.index;
  if (keep) remember(std::move(known), start);
  return ids;
}

// What the new prompt says as well is forgotten for it: a conversation that goes on has one place.
void PromptMemory::remember(std::shared_ptr<const Known> known, const Start& start) {
  const auto earlier = std::ranges::find(known_, start.known);
  if (earlier != known_.end()) {
    start.covers ? forget(earlier) : known_.splice(known_.begin(), known_, earlier);
  }
  counts_.bytes += known->bytes();
  const std::string& owner = known->owner;
  known_.push_front(std::move(known));
  const auto of_owner = [&](const auto& each) { return each->owner == owner; };
  if (std::ranges::count_if(known_, of_owner) > static_cast<std::ptrdiff_t>(kMostOfOwner)) {
    forget(std::prev(std::ranges::find_if(known_.rbegin(), known_.rend(), of_owner).base()));
  }
  while (counts_.bytes > most_bytes_) forget(std::prev(known_.end()));
}

void PromptMemory::forget(Place place) {
  counts_.bytes -= (*place)->bytes();
  known_.erase(place);
}

PromptMemory::Counts PromptMemory::counts() const {
  const std::lock_guard lock(mutex_);
  Counts counts = counts_;
  counts.prompts = known_.size();
  return counts;
}

}  // namespace frt::host
