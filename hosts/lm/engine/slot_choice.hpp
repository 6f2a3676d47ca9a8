// SPDX-License-Identifier: Apache-2.0
// slot_choice.hpp - which slot a request gets. A slot goes on holding what its last request left,
// so that the next one of the same conversation need not read it again.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace frt::host {

// What is known about a slot.
struct SlotView {
  bool used = false;       // by a request now
  uint64_t tokens = 0;     // that it holds
  std::string owner{};     // of what it holds
  std::string affinity{};  // the conversation; empty: none
  uint64_t last_used = 0;  // later is larger
  bool pinned = false;
};

struct SlotWish {
  const std::string& owner;
  const std::string& affinity;
  // Per slot: tokens of the prompt that the slot holds and a request of this owner may continue; 0:
  // none.
  std::span<const uint64_t> continues;
};

// Which slots are kept for their conversations: pinned ones, and of the others with an affinity the
// last used, until there are `hot` in all. At least one slot is never kept.
std::vector<bool> kept_slots(std::span<const SlotView> slots, uint32_t hot);

// The slot, in order of preference: that of the same conversation; one that holds the longest start
// of the prompt; an empty one; one of no conversation, then one of another, each the one not used
// for the longest time. A request without an affinity
// takes no kept slot, one with an affinity no pinned slot of another. Nothing: the request waits.
std::optional<uint32_t> choose_slot(std::span<const SlotView> slots, const SlotWish& wish,
                                    uint32_t hot);

}  // namespace frt::host
