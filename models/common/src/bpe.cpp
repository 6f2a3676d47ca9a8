// SPDX-License-Identifier: Apache-2.0
// The word starts as one symbol per byte in a doubly linked list; a heap holds every neighbouring
// pair that has a rule. The best pair is merged into its left symbol, the right one is unlinked,
// and the two new neighbourhoods are considered: O(n log n) for a word of n bytes. Candidates whose
// symbols have changed meanwhile are recognised when they come up and dropped: their symbols are
// not those of the rule.
#include "bpe.hpp"

#include <algorithm>

namespace frt::models {
namespace {

constexpr TokenId kMerged = -1;

}  // namespace

bool BpeEncoder::consider(std::int32_t position) {
  const Symbol& left = symbols_[static_cast<std::size_t>(position)];
  if (left.next < 0) return false;
  const TokenId right = symbols_[static_cast<std::size_t>(left.next)].id;
  const auto rank = model_->rank_of.find(BpeModel::pair(left.id, right));
  if (rank == model_->rank_of.end()) return false;
  heap_.push_back({rank->second, position});
  return true;
}

void BpeEncoder::encode(std::string_view word, std::vector<TokenId>& out) {
  symbols_.clear();
  heap_.clear();
  const auto count = static_cast<std::int32_t>(word.size());
  for (std::int32_t i = 0; i < count; ++i) {
    const auto byte = static_cast<unsigned char>(word[static_cast<std::size_t>(i)]);
    symbols_.push_back({model_->id_of_byte[byte], i - 1, i + 1 < count ? i + 1 : -1});
  }
  for (std::int32_t i = 0; i + 1 < count; ++i) consider(i);
  std::make_heap(heap_.begin(), heap_.end());
  while (!heap_.empty()) {
    std::pop_heap(heap_.begin(), heap_.end());
    const Candidate best = heap_.back();
    heap_.pop_back();
    const BpeModel::Rule& rule = model_->rules[best.rank];
    Symbol& left = symbols_[static_cast<std::size_t>(best.position)];
    if (left.id != rule.left || left.next < 0) continue;
    Symbol& right = symbols_[static_cast<std::size_t>(left.next)];
    if (right.id != rule.right) continue;
    left.id = rule.id;
    left.next = right.next;
    right.id = kMerged;
    if (left.next >= 0) symbols_[static_cast<std::size_t>(left.next)].previous = best.position;
    if (left.previous >= 0 && consider(left.previous)) std::push_heap(heap_.begin(), heap_.end());
    if (consider(best.position)) std::push_heap(heap_.begin(), heap_.end());
  }
  for (std::int32_t i = count > 0 ? 0 : -1; i >= 0;
       i = symbols_[static_cast<std::size_t>(i)].next) {
    out.push_back(symbols_[static_cast<std::size_t>(i)].id);
  }
}

}  // namespace frt::models
