// SPDX-License-Identifier: Apache-2.0
// A round feeds as many tokens as the model accepts, so what follows it must wait for its result,
// and it waits itself for what was submitted before: nobody is fed behind the end of his text. The
// model accepts no draft that is a stop token. A stop string or a cancel may come earlier than the
// round's last token; the journal says what was fed.
#include <algorithm>

#include "lm/engine/thread.hpp"

namespace frt::host {
namespace {

constexpr Acceptance kNever{};

bool may_draft(const frt_lm_info& info, const Choice& choice) {
  return choice.request->asked().stop_ids.size() <= info.stop_capacity && !choice.top &&
         (!choice.matcher || choice.drafts_masked);
}

}  // namespace

// Whether the next decode step must wait for the results of those before. Plans its drafts.
bool Engine::Thread::decode_waits() {
  drafts_ = 0;
  if (!planner_.enabled()) return false;
  for (std::size_t i = 0; i < flights_in_air_; ++i) {
    if (flights_[(oldest_flight_ + i) % kAhead].drafts > 0) return true;
  }
  drafts_ = plan_drafts();
  return drafts_ > 0 && std::any_of(writers_.begin(), writers_.end(),
                                    [](const Choice* choice) { return choice->in_flight > 0; });
}

// The drafts of each writer of the next decode step; returns the most.
uint32_t Engine::Thread::plan_drafts() {
  writers_.clear();
  acceptances_.clear();
  const std::size_t most = model_.info().max_batch;
  for (std::size_t i = 0; i < slots_.size() && writers_.size() < most; ++i) {
    Choice* choice = slots_[(next_writer_ + i) % slots_.size()].user;
    const bool writes = choice && !choice->ending && !choice->held &&
                        choice->phase == Phase::kDecode && choice->sampled < choice->limit;
    if (!writes) continue;
    writers_.push_back(choice);
    acceptances_.push_back(may_draft(model_.info(), *choice) ? &choice->acceptance : &kNever);
  }
  const uint32_t planned = planner_.drafts(acceptances_);
  uint32_t widest = 0;
  for (Choice* choice : writers_) {
    // The last token that may be written is not fed.
    const uint64_t room = choice->limit - choice->sampled - 1;
    choice->drafts = may_draft(model_.info(), *choice)
                         ? static_cast<uint32_t>(std::min<uint64_t>(planned, room))
                         : 0;
    widest = std::max(widest, choice->drafts);
  }
  return widest;
}

// As submit_decode(), of the writers that were planned.
bool Engine::Thread::submit_round() {
  Flight& flight = new_flight(StepKind::kDecode);
  round_entries_.clear();
  for (Choice* choice : writers_) {
    const StepRunner::Entry entry = session_of(*choice).decode_entry();
    round_entries_.push_back({.slot = entry.slot,
                              .position = entry.position,
                              .drafts = choice->drafts,
                              .stops = {},
                              .sampling = &choice->sampling,
                              .mask = mask_of(*choice),
                              .logits = logits_of(*choice),
                              .bias = bias_of(*choice)});
    if (choice->drafts > 0) round_entries_.back().stops = choice->request->asked().stop_ids;
    flight.members.push_back(choice);
  }
  frt_error error{};
  const frt_status status = guard(&error, [&] {
    flight.ticket = runner_.submit_round(
        round_entries_,
        [this](uint32_t entry, std::span<const int32_t> drafts, std::span<uint32_t> masks) {
          return mask_drafts(*writers_[entry], drafts, masks);
        });
  });
  if (status != FRT_OK) {
    flight.members.clear();
    if (status == FRT_ERR_OUT_OF_MEMORY && free_pages()) return false;
    // Nobody knows which of them it was.
    for (Choice* choice : writers_) met(choice->request, status, error.message);
    return false;
  }
  flight.drafts = drafts_;
  ++flights_in_air_;
  if (writers_.size() == model_.info().max_batch) {
    next_writer_ = (*writers_.back()->slot + 1) % slots_.size();
  }
  for (Choice* choice : writers_) {
    Session& session = session_of(*choice);
    session.fed(session.pending().token);
    session.decode_submitted();
    ++choice->sampled;
    ++choice->in_flight;
    meter_.draft_tokens.add(choice->drafts);
    choice->result.drafted += choice->drafts;
  }
  planner_.submitted();
  meter_.decode_steps.add();
  meter_.draft_rounds.add();
  meter_.decode_entries.add(writers_.size());
  return true;
}

// What a round fed beside the pending token.
void Engine::Thread::feed_drafts(Choice& choice, const StepRunner::Sampled& sampled) {
  const auto accepted = static_cast<uint32_t>(sampled.tokens.size() - 1);
  session_of(choice).round_over(sampled.tokens);
  choice.sampled += accepted;
  choice.acceptance.add(choice.drafts, accepted);
  planner_.accepted(choice.drafts, accepted);
  choice.result.accepted += accepted;
  meter_.accepted_tokens.add(accepted);
}

}  // namespace frt::host
