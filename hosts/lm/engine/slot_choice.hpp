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
  uint64_t prompt = 0;     // of these, the last request's prompt; 0: not known
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
  // Per slot: tokens that the prompt and the slot begin with alike.
  std::span<const uint64_t> common;
};

// Whether a request goes on with what its conversation's slot holds: they share half of the last
// prompt at least. A side request (a title, a sub-agent) has the name of a conversation and a
// prompt of its own.
bool goes_on(const SlotView& slot, uint64_t common) noexcept;

// Which slots are kept for their conversations: pinned ones, and of the others with an affinity the
// last used, until there are `hot` in all. At least one slot is never kept.
std::vector<bool> kept_slots(std::span<const SlotView> slots, uint32_t hot);

// The slot, in order of preference: that of the same conversation, if the request goes on with it;
// one that holds the longest start of the prompt; an empty one; one of no conversation, then one of
// any, each the one not used for the longest time. Kept slots are taken by requests alone that go
// on with them. Nothing: the request waits, for one slot at least is never kept.
std::optional<uint32_t> choose_slot(std::span<const SlotView> slots, const SlotWish& wish,
                                    uint32_t hot);

}  // namespace frt::host
