// SPDX-License-Identifier: Apache-2.0
// Requests begin by priority, then, with fair_owners, those whose owners have the fewest slots,
// then in the order of arrival. One that finds no slot that it may take lets others pass, for they
// may find one; one that finds too few pages does not, or a long prompt would wait for ever.
//
// A choice begins when its prompt and one page for everybody who writes are free, or when nobody
// else has a slot. That is a guess: who writes much takes more. When pages run out, what can be had
// again goes first: capsules move to the host, idle slots forget what they hold. Then the choice
// that began last of the lowest priority leaves its slot, with its state in host memory: pinned, or
// ordinary where that has no room. Where neither has, it is held: it keeps its slot and makes no
// steps until somebody leaves.
#include <algorithm>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "lm/engine/thread.hpp"

namespace frt::host {
namespace {

double seconds_between(EngineRequest::Clock::time_point start,
                       EngineRequest::Clock::time_point end) {
  return std::chrono::duration<double>(end - start).count();
}

// A capsule where the slots are shares their pages.
bool holds_pages(const std::optional<Session::Snapshot>& snapshot) {
  return snapshot && snapshot->capsule.space() != FRT_SPACE_HOST_PINNED;
}

// What begins first.
bool before(const Choice* a, const Choice* b) {
  return std::tuple(-int64_t{a->request->asked().priority}, a->request->submission.number,
                    a->index) < std::tuple(-int64_t{b->request->asked().priority},
                                           b->request->submission.number, b->index);
}

}  // namespace

std::size_t Engine::Thread::slots_used() const {
  return static_cast<std::size_t>(
      std::count_if(slots_.begin(), slots_.end(), [](const Slot& slot) { return slot.user; }));
}

void Engine::Thread::poll_fetches() {
  registry_->tend();
  for (const auto& request : live_) {
    if (request->fetching.empty() || registry_->fetching(request->fetching)) continue;
    request->fetching.clear();
    --fetching_;
    changed_ = true;
  }
}

void Engine::Thread::admit() {
  changed_ = false;
  if (slots_used() == slots_.size()) return count_phases();  // leave_slot() asks again
  candidates_.clear();
  for (const auto& request : live_) {
    for (Choice& choice : request->choices) {
      const bool ready =
          choice.phase == Phase::kPreempted ||
          (choice.phase == Phase::kWaiting && (choice.index == 0 || request->forked));
      if (ready) candidates_.push_back(&choice);
    }
  }
  put_in_order(candidates_);
  for (std::size_t i = 0; i < candidates_.size(); ++i) {
    Choice* const choice = candidates_[i];
    if (slots_used() == slots_.size()) break;
    if (choice->phase == Phase::kOver) continue;  // its request failed with another choice
    if (waits_for_fetch(*choice->request)) continue;
    const std::optional<uint32_t> slot = slot_for(*choice);
    if (!slot) continue;
    if (!has_pages(*choice, *slot)) break;
    if (!start(*choice, *slot)) break;
    if (options_.fair_owners) put_in_order(std::span(candidates_).subspan(i + 1));
  }
  count_phases();
}

// What begins first in front. Each owner's slots are counted once, not for each comparison.
void Engine::Thread::put_in_order(std::span<Choice*> candidates) const {
  if (!options_.fair_owners) return std::sort(candidates.begin(), candidates.end(), before);
  std::unordered_map<std::string_view, uint32_t> used;
  for (const Slot& slot : slots_) {
    if (slot.user) ++used[slot.user->request->asked().owner];
  }
  for (const Choice* choice : candidates) {
    const auto found = used.find(choice->request->asked().owner);
    choice->request->owner_slots = found == used.end() ? 0 : found->second;
  }
  std::ranges::sort(candidates, [](const Choice* a, const Choice* b) {
    const auto rank = [](const Choice* choice) {
      const LiveRequest& request = *choice->request;
      return std::tuple(-int64_t{request.asked().priority}, request.owner_slots,
                        request.submission.number, choice->index);
    };
    return rank(a) < rank(b);
  });
}

// A capsule that is on the disk alone is read while others go on.
bool Engine::Thread::waits_for_fetch(LiveRequest& request) {
  const EngineRequest& asked = request.asked();
  if (!request.looked_up && !request.started && registry_ && asked.reuse) {
    const auto match = registry_->find(asked.prompt, asked.owner);
    // One that is in memory now may be on the disk when a slot is free.
    request.looked_up = match && match->tier == Tier::kDisk;
    if (request.looked_up && registry_->fetch(match->name)) {
      request.fetching = match->name;
      ++fetching_;
    }
  }
  return !request.fetching.empty();
}

SlotView Engine::Thread::view_of(const Slot& slot) {
  return {.used = slot.user != nullptr,
          .tokens = slot.broken ? 0 : slot.session.journal().size(),
          .prompt = slot.prompt,
          .owner = slot.session.options().owner,
          .affinity = slot.affinity,
          .last_used = slot.last_used,
          .pinned = slot.pinned};
}

std::optional<uint32_t> Engine::Thread::slot_for(Choice& choice) {
  static const std::string kNone;
  const EngineRequest& asked = choice.request->asked();
  if (asked.resumes && choice.phase == Phase::kWaiting) return slot_to_resume(choice);
  const bool fresh = choice.phase == Phase::kWaiting && choice.index == 0 && asked.reuse;
  for (uint32_t i = 0; i < slots_.size(); ++i) {
    const Slot& slot = slots_[i];
    const std::vector<int32_t>& held = slot.session.journal().tokens();
    views_[i] = view_of(slot);
    const bool usable =
        fresh && !slot.user && !slot.broken && slot.session.options().owner == asked.owner;
    common_[i] = usable ? common_prefix(held, asked.prompt) : 0;
    const bool continues = common_[i] == held.size() && held.size() < asked.prompt.size();
    continues_[i] = continues ? held.size() : 0;
  }
  return choose_slot(views_,
                     {asked.owner, choice.index == 0 ? asked.affinity : kNone, continues_, common_},
                     options_.hot_contexts);
}

// Nothing: another request uses the conversation's slot, or there is nothing to resume and the
// request failed.
std::optional<uint32_t> Engine::Thread::slot_to_resume(Choice& choice) {
  const EngineRequest& asked = choice.request->asked();
  std::ranges::fill(continues_, 0);
  std::optional<uint32_t> last;
  bool used = false;
  for (uint32_t i = 0; i < slots_.size(); ++i) {
    const Slot& slot = slots_[i];
    const bool own = slot.affinity == asked.affinity && !slot.broken &&
                     slot.session.options().owner == asked.owner &&
                     (slot.user || slot.session.journal().size() > 0);
    if (!own) continue;
    used = used || slot.user;
    if (!slot.user && (!last || slot.last_used > slots_[*last].last_used)) last = i;
  }
  if (!last && !used) {
    fail(*choice.request, FRT_ERR_BAD_STATE,
         "no slot holds the conversation '" + asked.affinity + "'; send its prompt");
  }
  // Here, while the slot is not the request's: what it holds stays for the rest of the prompt.
  if (last && slots_[*last].session.pending().token < 0) {
    fail(*choice.request, FRT_ERR_INVALID_ARGUMENT,
         "the slot holds a part of a prompt, and nothing was sampled behind it; give the rest as "
         "the prompt");
    return std::nullopt;
  }
  return last;
}

// The conversation that the slot is of from now on. A side request, which found a slot beside its
// conversation's, leaves the name to that one: the next turn looks for it there.
std::string Engine::Thread::affinity_of(const Choice& choice, const Slot& slot) const {
  const EngineRequest& asked = choice.request->asked();
  if (choice.index > 0 || asked.affinity.empty()) return {};
  const auto own = [&](const Slot& other) {
    return other.affinity == asked.affinity && other.session.options().owner == asked.owner &&
           (other.user || (!other.broken && other.session.journal().size() > 0));
  };
  const auto index = static_cast<std::size_t>(&slot - slots_.data());
  const bool goes_on_here = continues_[index] > 0 || own(slot);
  const bool elsewhere =
      std::ranges::any_of(slots_, [&](const Slot& other) { return &other != &slot && own(other); });
  return goes_on_here || !elsewhere ? asked.affinity : std::string();
}

bool Engine::Thread::has_pages(const Choice& choice, uint32_t slot) {
  const uint64_t rows = model_.state_info().page_rows;
  if (rows == 0) return true;
  const LiveRequest& request = *choice.request;
  uint64_t have = 0;  // tokens whose pages are there
  if (choice.phase == Phase::kWaiting) {
    have = continues_[slot];
    if (choice.index > 0 && holds_pages(request.fork)) {
      have = request.fork->journal.size();
    } else if (registry_ && request.asked().reuse) {
      const auto match = registry_->find(request.asked().prompt, request.asked().owner);
      if (match && match->tier == Tier::kDevice) have = std::max(have, match->boundary);
    }
  }
  uint64_t all = request.asked().prompt.size();
  if (choice.saved) all = std::max<uint64_t>(all, choice.saved->journal.size());
  const std::size_t users = slots_used();
  const uint64_t need = (all - have + rows - 1) / rows + 1 + users;
  while (model_.state_info().free_pages < need) {
    if (registry_ && registry_->make_room()) continue;
    if (!free_idle_slot(slot)) break;
  }
  return users == 0 || model_.state_info().free_pages >= need;
}

// Gives the choice a slot. False: its state found no room for its rows, so it waits for others.
bool Engine::Thread::start(Choice& choice, uint32_t index) {
  Slot& slot = slots_[index];
  const bool alone = slots_used() == 0;
  slot.user = &choice;
  choice.slot = index;
  frt_error error{};
  const frt_status status = guard(&error, [&] { begin(choice, slot); });
  if (status == FRT_OK) return true;
  const bool freed = status == FRT_ERR_OUT_OF_MEMORY && alone && free_fork();
  if (status != FRT_ERR_OUT_OF_MEMORY || (alone && !freed)) {
    met(choice.request, status, error.message);
    return true;
  }
  const bool changed = changed_;
  leave_slot(choice, true);
  changed_ = changed || freed;  // an empty slot alone does not help
  return false;
}

void Engine::Thread::begin(Choice& choice, Slot& slot) {
  LiveRequest& request = *choice.request;
  const EngineRequest& asked = request.asked();
  Session& session = slot.session;
  const std::string affinity = affinity_of(choice, slot);
  const bool other = slot.affinity != affinity || session.options().owner != asked.owner;
  if (slot.broken) session.clear();
  slot.broken = false;
  if (asked.top_tokens > 0) make_top(choice);
  if (other) slot.pinned = false;
  slot.affinity = affinity;
  slot.prompt = asked.prompt.size();
  slot.last_used = ++uses_;
  session.set_owner(asked.owner);
  const uint64_t context = model_.info().max_context;
  const uint64_t most = std::min(asked.prompt.size() + std::min(asked.max_new, context), context);
  if (choice.phase == Phase::kPreempted) {
    session.restore(*choice.saved);
    session.reserve(most);
    choice.saved.reset();
    choice.phase = choice.interrupted;
    return;
  }
  const auto now = Clock::now();
  choice.started = now;
  choice.result.queue_seconds = seconds_between(request.submission.submitted, now);
  if (asked.resumes) return resume(choice, slot);
  PrefixDecision prefix;
  if (choice.index > 0 && request.fork) {
    prefix = request.choices[0].result.prefix;
    session.restore(*request.fork);
  } else {
    prefix = session.begin(asked.prompt, asked.reuse && !asked.score_prompt);
    if (asked.keep && !asked.score_prompt)
      choice.stops = session.stops(asked.prompt.size(), asked.user_turn);
  }
  session.reserve(most);
  choice.first = prefix.reused;
  choice.read = session.journal().size();
  choice.limit = std::min(asked.max_new, model_.info().max_context - asked.prompt.size() + 1);
  choice.phase = Phase::kPrefill;
  choice.result.prefix = prefix;
  if (choice.index > 0) {
    if (--request.forks_left == 0) request.fork.reset();
    return;
  }
  tell_start(choice);
  request.listener().on_prefill(0, asked.prompt.size() - choice.first);
}

// What the slot's last step sampled is the next token: written already, or not yet.
void Engine::Thread::resume(Choice& choice, Slot& slot) {
  Session& session = slot.session;
  const EngineRequest& asked = choice.request->asked();
  PendingToken pending = session.pending();
  const uint64_t held = session.journal().size();
  const uint64_t room = model_.info().max_context - held;  // tokens that can be fed
  choice.limit = std::min(asked.max_new, pending.shown ? room : room + 1);
  choice.sampled = pending.shown ? 0 : 1;
  choice.phase = Phase::kDecode;
  choice.result.prefix = {
      .action = PrefixAction::kContinue, .reused = held, .reason = "continued what the slot holds"};
  session.reserve(held + choice.limit);
  tell_start(choice);
  if (choice.limit == 0) {
    end(choice, asked.max_new == 0 ? Finish::kLength : Finish::kContext);
  } else if (!pending.shown) {
    pending.shown = true;
    session.set_pending(pending);
    take_token(choice, pending.token, pending.log_probability, false);
  }
}

void Engine::Thread::tell_start(const Choice& choice) {
  LiveRequest& request = *choice.request;
  const PrefixDecision& prefix = choice.result.prefix;
  const double queued = choice.result.queue_seconds;
  request.started = true;
  mailbox_.left_queue();
  meter_.queue.add(queued);
  meter_.began[static_cast<std::size_t>(prefix.action)].add();
  if (prefix.action == PrefixAction::kRestore) meter_.restore.add(prefix.seconds);
  meter_.prompt_tokens.add(request.asked().prompt.size());
  meter_.cached_tokens.add(choice.first);
  request.listener().on_start(prefix, queued);
}

void Engine::Thread::make_top(Choice& choice) const {
  if (choice.top) return;
  const EngineRequest& asked = choice.request->asked();
  const uint32_t vocabulary = model_.info().vocabulary;
  if (asked.score_prompt && choice.index == 0) {
    frt_sampling_params plain{};
    plain.repetition_penalty = 1;
    choice.prompt_top =
        std::make_unique<TopTokens>(vocabulary, asked.top_tokens, plain, asked.prompt);
  }
  choice.top = std::make_unique<TopTokens>(vocabulary, asked.top_tokens, choice.sampling,
                                           asked.prompt, asked.bias);
}

bool Engine::Thread::free_idle_slot(std::optional<uint32_t> spared) {
  Slot* oldest = nullptr;
  for (uint32_t i = 0; i < slots_.size(); ++i) {
    Slot& slot = slots_[i];
    const bool holds = slot.session.journal().size() > 0 || slot.broken;
    if (slot.user || !holds || i == spared) continue;
    if (!oldest ||
        std::tuple(slot.pinned, slot.last_used) < std::tuple(oldest->pinned, oldest->last_used)) {
      oldest = &slot;
    }
  }
  if (!oldest) return false;
  oldest->session.clear();
  oldest->broken = false;
  return true;
}

// Moves what the choices of a request begin with to host memory; where that has no room, they read
// the whole prompt.
bool Engine::Thread::free_fork() {
  for (const auto& request : live_) {
    if (!holds_pages(request->fork)) continue;
    try {
      Capsule& capsule = request->fork->capsule;
      capsule = capsule.copy(FRT_SPACE_HOST_PINNED, runner_.stream());
    } catch (const Error& error) {
      if (error.status() != FRT_ERR_OUT_OF_MEMORY) throw;
      request->fork.reset();
    }
    return true;
  }
  return false;
}

// False: who asks has all there are.
bool Engine::Thread::free_pages() {
  if (registry_ && registry_->make_room()) return true;
  if (free_idle_slot(std::nullopt)) return true;
  if (free_fork()) return true;
  if (flights_in_air_ > 0) {
    while (flights_in_air_ > 0) finish_step();
    return true;
  }
  Choice* last = nullptr;
  std::size_t going_on = 0;
  for (const Slot& slot : slots_) {
    if (!slot.user || slot.user->held) continue;
    ++going_on;
    if (!last || before(last, slot.user)) last = slot.user;
  }
  if (going_on < 2) return false;
  last->held = !preempt(*last);
  return true;
}

// Where no memory has room for it.
std::optional<Session::Snapshot> Engine::Thread::snapshot_on_host(const Session& session) {
  for (const frt_space space : {FRT_SPACE_HOST_PINNED, FRT_SPACE_HOST}) {
    try {
      return session.snapshot(space);
    } catch (const Error& error) {
      if (error.status() != FRT_ERR_OUT_OF_MEMORY) throw;
    }
  }
  return std::nullopt;
}

// False: no memory has room for its state, so it stays.
bool Engine::Thread::preempt(Choice& choice) {
  frt_error error{};
  bool moved = true;
  const frt_status status = guard(&error, [&] {
    Session& session = session_of(choice);
    choice.saved = snapshot_on_host(session);
    moved = choice.saved.has_value();
    if (!moved) return;
    session.clear();
    choice.interrupted = choice.phase;
    choice.phase = Phase::kPreempted;
    ++choice.result.preemptions;
    meter_.preemptions.add();
    leave_slot(choice, false);
  });
  if (status != FRT_OK) met(choice.request, status, error.message);
  return moved;
}

}  // namespace frt::host
