// SPDX-License-Identifier: Apache-2.0
// Conversations as others see them through EngineAccess: which slots hold one, and a slot for one
// that comes from elsewhere.
#include <algorithm>

#include "lm/engine/thread.hpp"

namespace frt::host {

// Requests of one conversation that run beside each other have several slots: the one used last
// speaks for it.
std::vector<EngineSession> Engine::Thread::sessions(const std::string& owner) const {
  std::vector<const Slot*> slots;
  for (const Slot& slot : slots_) {
    const bool holds = slot.user || (!slot.broken && slot.session.journal().size() > 0);
    if (holds && !slot.affinity.empty() && slot.session.options().owner == owner) {
      slots.push_back(&slot);
    }
  }
  std::ranges::sort(slots, std::ranges::greater(), &Slot::last_used);
  std::vector<EngineSession> sessions;
  for (const Slot* slot : slots) {
    const auto known = std::ranges::find(sessions, slot->affinity, &EngineSession::affinity);
    if (known != sessions.end()) {
      known->busy = known->busy || slot->user;
      known->pinned = known->pinned || slot->pinned;
      continue;
    }
    sessions.push_back({.affinity = slot->affinity,
                        .tokens = slot->session.journal().size(),
                        .busy = slot->user != nullptr,
                        .pinned = slot->pinned,
                        .boundaries = slot->session.boundaries()});
  }
  return sessions;
}

Session* Engine::Thread::claim_session(const std::string& owner, const std::string& affinity,
                                       const Session* spared) {
  for (uint32_t i = 0; i < slots_.size(); ++i) {
    views_[i] = view_of(slots_[i]);
    views_[i].used = views_[i].used || &slots_[i].session == spared;
    continues_[i] = 0;
    common_[i] = views_[i].tokens;  // whatever the conversation's own slot holds is replaced
  }
  const std::optional<uint32_t> index =
      choose_slot(views_, {owner, affinity, continues_, common_}, options_.hot_contexts);
  if (!index) return nullptr;
  Slot& slot = slots_[*index];
  const bool other = slot.affinity != affinity || slot.session.options().owner != owner;
  if (other || slot.broken) slot.session.clear();
  slot.broken = false;
  if (other) slot.pinned = false;
  slot.affinity = affinity;
  slot.prompt = 0;  // nobody knows which part of it will stay
  slot.last_used = ++uses_;
  slot.session.set_owner(owner);
  return &slot.session;
}

// What a broken slot holds is dropped before its next use: steps may work on it still.
void Engine::Thread::forget(Slot& slot) {
  frt_error error{};
  if (!slot.broken) slot.broken = guard(&error, [&] { slot.session.clear(); }) != FRT_OK;
  slot.affinity.clear();
  slot.pinned = false;
}

void Engine::Thread::forget_session(const std::string& owner, const std::string& affinity) {
  for (const auto& request : live_) {
    const EngineRequest& asked = request->asked();
    if (request->started && asked.affinity == affinity && asked.owner == owner) {
      request->forgotten = true;
    }
  }
  for (Slot& slot : slots_) {
    if (!slot.user && slot.affinity == affinity && slot.session.options().owner == owner) {
      forget(slot);
    }
  }
  changed_ = true;
}

}  // namespace frt::host
