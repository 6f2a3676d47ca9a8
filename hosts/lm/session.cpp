// SPDX-License-Identifier: Apache-2.0
// begin(), in order of preference: the capsule with the longest prefix if it is longer than what
// the slot holds, else the slot if the prompt goes on from it, else nothing. A capsule that turns
// out to be unusable when it is brought into memory is passed over, so the next best is asked.
#include "lm/session.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <set>
#include <utility>

namespace frt::host {
namespace {

using Clock = std::chrono::steady_clock;
using Json = nlohmann::ordered_json;

// Whether a prompt can be served without the capsule that gave this.
bool may_pass_over(frt_status status) {
  return status == FRT_ERR_NOT_FOUND || status == FRT_ERR_FORMAT || status == FRT_ERR_MISMATCH ||
         status == FRT_ERR_OUT_OF_MEMORY || status == FRT_ERR_IO ||
         status == FRT_ERR_BAD_STATE;  // others can write the file
}

}  // namespace

const char* prefix_action_name(PrefixAction action) noexcept {
  switch (action) {
    case PrefixAction::kRead:
      return "read";
    case PrefixAction::kContinue:
      return "continue";
    case PrefixAction::kRestore:
      return "restore";
  }
  return "?";
}

Session::Session(const LmModel& model, StepRunner& runner, CapsuleRegistry* registry, uint32_t slot,
                 SessionOptions options)
    : model_(model),
      runner_(runner),
      registry_(registry),
      slot_(slot),
      options_(std::move(options)),
      journal_(model.info().prefill_chunk) {
  clear();
}

void Session::clear() {
  runner_.clear(slot_);
  journal_.clear();
  boundaries_.clear();
  pending_ = {};
  submitted_ = 0;
}

void Session::set_owner(const std::string& owner) {
  if (owner == options_.owner) return;
  if (journal_.size() > 0) clear();
  options_.owner = owner;
}

std::vector<Session::Stop> Session::stops(uint64_t length, uint64_t user_turn) const {
  std::vector<Stop> all, chosen;
  if (!registry_) return chosen;
  const uint64_t chunk = journal_.chunk();
  const uint64_t spacing = std::max<uint64_t>(1, (options_.spacing + chunk - 1) / chunk) * chunk;
  for (uint64_t at = spacing; at <= length; at += spacing) all.push_back({at, CapsuleKind::kChunk});
  all.push_back({length / chunk * chunk, CapsuleKind::kChunk});
  if (user_turn <= length) all.push_back({user_turn, CapsuleKind::kUserTurn});
  std::sort(all.begin(), all.end());
  const uint64_t least = std::max<uint64_t>(1, options_.min_tokens);
  for (const Stop& stop : all) {
    const bool apart = chosen.empty() ? far_enough(stop.position)
                                      : stop.position >= chosen.back().position + least;
    if (stop.position > journal_.size() && apart) chosen.push_back(stop);
  }
  return chosen;
}

bool Session::far_enough(uint64_t position) const {
  const uint64_t last = boundaries_.empty() ? 0 : boundaries_.back().position;
  return position >= last + std::max<uint64_t>(1, options_.min_tokens);
}

PrefixDecision Session::begin(std::span<const int32_t> prompt, bool reuse) {
  const auto start = Clock::now();
  start_request();
  PrefixDecision decision;
  if (reuse) {
    decision.parting = prefix_parting(
        prompt, journal_.tokens(),
        registry_ ? registry_->contents(options_.owner) : decltype(PrefixParting::capsules)());
  }
  const uint64_t live = journal_.size();
  bool continues =
      reuse && live > 0 && live < prompt.size() && common_prefix(journal_.tokens(), prompt) == live;
  std::set<std::string> passed_over;  // of no use now
  while (reuse && registry_) {
    const auto match = registry_->find(prompt, options_.owner, passed_over);
    if (!match || (continues && match->boundary <= live)) break;
    const auto refused = [&](const Error& error) {
      if (!may_pass_over(error.status())) throw;
      registry_->tell(error.what());
    };
    try {  // into memory: the slot is as it was
      if (registry_->fetch(match->name)) registry_->wait(match->name);
    } catch (const Error& error) {
      refused(error);
      passed_over.insert(match->name);
      continue;
    }
    std::shared_ptr<const CapsuleContent> content;
    try {
      content = registry_->restore(match->name, slot_, runner_.stream());
    } catch (const Error& error) {
      refused(error);
      continues = false;  // the slot may hold a part of anything now, so this prompt is read
      break;
    }
    if (content->owner != options_.owner ||
        common_prefix(content->tokens, prompt) != content->boundary()) {
      // Not what the index said, or another prefix of the same digest.
      passed_over.insert(match->name);
      continues = false;
      clear();
      continue;
    }
    const CapsuleKind kind = content->kind;
    take_over(*content, kind, match->name);
    decision.action = PrefixAction::kRestore;
    decision.capsule = match->name;
    decision.cold_path = match->cold_path;
    const std::string what = match->pinned ? "pin '" + match->name + "'"
                             : kind == CapsuleKind::kNamed
                                 ? "'" + match->name + "'"
                                 : std::string("a ") + capsule_kind_name(kind) + " boundary";
    decision.reason = fmt::format("restored {} of {} tokens from {} ({})", content->boundary(),
                                  prompt.size(), what, tier_name(match->tier));
    break;
  }
  if (decision.action != PrefixAction::kRestore) {
    if (continues) {
      decision.action = PrefixAction::kContinue;
      decision.cold_path = on_cold_path(journal_.path(), journal_.chunk());
      decision.reason = fmt::format("continued {} of {} tokens in the slot", live, prompt.size());
    } else {
      clear();
      decision.reason = fmt::format("read all {} tokens", prompt.size());
    }
  }
  decision.reused = journal_.size();
  decision.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  return decision;
}

template <class Submit>
uint64_t Session::submit(const Submit& step) {
  for (;;) {
    try {
      return step();
    } catch (const Error& error) {
      if (error.status() != FRT_ERR_OUT_OF_MEMORY || !registry_ || !registry_->make_room()) throw;
    }
  }
}

uint64_t Session::prefill(std::span<const int32_t> tokens, const frt_sampling_params* sampling,
                          const uint32_t* mask, frt_buffer logits,
                          std::span<const frt_logit_bias> bias) {
  const auto position = static_cast<int32_t>(submitted_);
  const uint64_t ticket = submit([&] {
    return runner_.submit_prefill(slot_, position, tokens, starts_request_, sampling, mask, logits,
                                  bias);
  });
  starts_request_ = false;
  journal_.prefill(tokens);
  submitted_ += tokens.size();
  return ticket;
}

uint64_t Session::decode() {
  const StepRunner::Entry entry = decode_entry();
  const uint64_t ticket = submit([&] { return runner_.submit_decode({&entry, 1}); });
  decode_submitted();
  return ticket;
}

uint64_t Session::feed(std::span<const int32_t> tokens, frt_buffer logits) {
  const auto position = static_cast<int32_t>(submitted_);
  const uint64_t ticket =
      submit([&] { return runner_.submit_known(slot_, position, tokens, logits); });
  for (const int32_t token : tokens) fed(token);
  submitted_ += tokens.size();
  return ticket;
}

void Session::round_over(std::span<const int32_t> sampled) {
  for (const int32_t token : sampled.first(sampled.size() - 1)) fed(token);
  submitted_ += sampled.size() - 1;
}

CapsuleContent Session::content(const frt_sampling_params& sampling) const {
  CapsuleContent content;
  content.owner = options_.owner;
  content.model = model_.name();
  content.chunk = journal_.chunk();
  content.tokens = journal_.tokens();
  content.path = journal_.path();
  content.sampling = sampling;
  if (!boundaries_.empty()) content.parent = boundaries_.back().capsule;
  return content;
}

void Session::keep(CapsuleKind kind, const frt_sampling_params& sampling) {
  if (!registry_ || journal_.size() == 0) return;
  CapsuleContent taken = content(sampling);
  taken.kind = kind;
  // Within a prompt the pending token means nothing to anybody.
  if (kind == CapsuleKind::kTurn) taken.pending = pending_;
  const std::string name = registry_->keep(slot_, std::move(taken), runner_.stream());
  if (!name.empty()) boundaries_.push_back({journal_.size(), kind, name});
}

void Session::save(const std::string& name, const frt_sampling_params& sampling, Json extra,
                   bool replace) {
  if (!registry_) throw Error(FRT_ERR_BAD_STATE, "this session has no capsules");
  CapsuleContent taken = content(sampling);
  taken.name = name;
  taken.pending = pending_;
  taken.extra = std::move(extra);
  registry_->save(slot_, std::move(taken), runner_.stream(), replace);
  boundaries_.push_back({journal_.size(), CapsuleKind::kNamed, name});
}

void Session::save_later(const std::string& name, const frt_sampling_params& sampling,
                         BackgroundWorker::End end) {
  if (!registry_) throw Error(FRT_ERR_BAD_STATE, "this session has no capsules");
  CapsuleContent taken = content(sampling);
  taken.name = name;
  const bool kept = !boundaries_.empty() && boundaries_.back().position == journal_.size();
  const auto last = kept ? registry_->in_memory(boundaries_.back().capsule) : nullptr;
  if (last) {
    taken.pending = last->pending;
    taken.sampling = last->sampling;
  }
  registry_->save_later(slot_, std::move(taken), runner_.stream(), std::move(end));
}

void Session::take_over(const CapsuleContent& content, CapsuleKind kind, const std::string& name) {
  const uint64_t common = common_prefix(journal_.tokens(), content.tokens);
  std::erase_if(boundaries_, [&](const Boundary& boundary) {
    return boundary.position > common || boundary.position >= content.boundary();
  });
  boundaries_.push_back({content.boundary(), kind, name});
  journal_.assign(content.tokens, content.path);
  pending_ = content.pending;
  submitted_ = content.boundary();
}

std::shared_ptr<const CapsuleContent> Session::restore(const std::string& name) {
  if (!registry_) throw Error(FRT_ERR_BAD_STATE, "this session has no capsules");
  std::shared_ptr<const CapsuleContent> content;
  try {
    content = registry_->restore(name, slot_, runner_.stream());
  } catch (...) {
    clear();  // a part of it may have arrived
    throw;
  }
  if (content->chunk != journal_.chunk()) {
    clear();
    throw Error(FRT_ERR_MISMATCH,
                fmt::format("capsule '{}' was taken with prefill_chunk = {}, the model has {}; set "
                            "the model's option prefill_chunk to {}",
                            name, content->chunk, journal_.chunk(), content->chunk));
  }
  take_over(*content, content->kind, name);
  return content;
}

Session::Snapshot Session::snapshot(frt_space space) const {
  if (submitted_ != journal_.size()) {
    throw Error(FRT_ERR_BAD_STATE, fmt::format("slot {} was fed {} tokens, of which {} are known; "
                                               "take its state when its steps are over",
                                               slot_, submitted_, journal_.size()));
  }
  return {.capsule = model_.capsules().snapshot(slot_, submitted_, space, runner_.stream()),
          .journal = journal_,
          .boundaries = boundaries_,
          .pending = pending_,
          .starts_request = starts_request_};
}

void Session::restore(const Snapshot& snapshot) {
  clear();
  try {
    snapshot.capsule.restore(slot_, runner_.stream());
  } catch (...) {
    clear();  // a part of it may have arrived
    throw;
  }
  journal_ = snapshot.journal;
  boundaries_ = snapshot.boundaries;
  pending_ = snapshot.pending;
  starts_request_ = snapshot.starts_request;
  submitted_ = journal_.size();
}

void Session::fork_to(Session& other) const {
  const uint32_t target = other.slot_;
  model_.capsules().fork_slot(slot_, journal_.size(), {&target, 1}, runner_.stream());
  other.journal_ = journal_;
  other.boundaries_ = boundaries_;
  other.pending_ = pending_;
  other.submitted_ = submitted_;
}

}  // namespace frt::host
