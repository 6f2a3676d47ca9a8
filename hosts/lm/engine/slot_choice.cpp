// SPDX-License-Identifier: Apache-2.0
#include "lm/engine/slot_choice.hpp"

#include <algorithm>
#include <tuple>

namespace frt::host {

std::vector<bool> kept_slots(std::span<const SlotView> slots, uint32_t hot) {
  std::vector<bool> kept(slots.size());
  std::vector<uint32_t> order;
  for (uint32_t i = 0; i < slots.size(); ++i) {
    if (!slots[i].affinity.empty()) order.push_back(i);
  }
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    return std::tuple(!slots[a].pinned, slots[b].last_used, a) <
           std::tuple(!slots[b].pinned, slots[a].last_used, b);
  });
  std::size_t count = 0;
  for (const uint32_t i : order) {
    if (count + 1 >= slots.size() || (!slots[i].pinned && count >= hot)) break;
    kept[i] = true;
    ++count;
  }
  return kept;
}

bool goes_on(const SlotView& slot, uint64_t common) noexcept {
  return 2 * common >= std::min(slot.prompt, slot.tokens);
}

std::optional<uint32_t> choose_slot(std::span<const SlotView> slots, const SlotWish& wish,
                                    uint32_t hot) {
  const std::vector<bool> kept = kept_slots(slots, hot);
  std::optional<uint32_t> best;
  std::tuple<int, uint64_t, uint64_t> best_rank{};
  for (uint32_t i = 0; i < slots.size(); ++i) {
    const SlotView& slot = slots[i];
    if (slot.used) continue;
    const bool own = !wish.affinity.empty() && slot.affinity == wish.affinity &&
                     slot.owner == wish.owner && goes_on(slot, wish.common[i]);
    if (kept[i] && !own) continue;
    // The lowest rank wins.
    std::tuple<int, uint64_t, uint64_t> rank;
    if (own) {  // of several the one that holds most of the prompt, then the one used last
      rank = {0, ~wish.continues[i], ~slot.last_used};
    } else if (wish.continues[i] > 0) {
      rank = {1, ~wish.continues[i], 0};
    } else if (slot.tokens == 0) {
      rank = {2, slot.last_used, 0};
    } else {
      rank = {slot.affinity.empty() ? 3 : 4, slot.last_used, 0};
    }
    if (!best || rank < best_rank) {
      best = i;
      best_rank = rank;
    }
  }
  return best;
}

}  // namespace frt::host
