// SPDX-License-Identifier: Apache-2.0
// One turn of the loop: news, deadlines, admission, one step submitted, one step awaited if two are
// in flight or there is nothing to submit. So the device has its next step before it is done with
// the last one.
#include "lm/engine/thread.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "lm/sampling.hpp"

namespace frt::host {
namespace {

constexpr uint32_t kMostChoices = 128;
constexpr std::chrono::milliseconds kPoll{1};  // of capsules that come, grammars that are compiled

double seconds_between(EngineRequest::Clock::time_point start,
                       EngineRequest::Clock::time_point end) {
  return std::chrono::duration<double>(end - start).count();
}

}  // namespace

Engine::Thread::Thread(const LmModel& model, CapsuleRegistry* registry, EngineOptions options)
    : model_(model),
      registry_(registry),
      options_(std::move(options)),
      mailbox_(options_.queue_limit),
      runner_(model),
      scheduler_(options_.step_seconds, options_.interleave_prefills),
      planner_(options_.session.speculation, model.most_drafts()),
      score_rows_(runner_.most_known()) {
  const frt_lm_info& info = model.info();
  if (options_.queue_limit == 0) {
    throw Error(FRT_ERR_OUT_OF_RANGE,
                "queue_limit is 0: no request could be taken; give 1 or more");
  }
  if (options_.slots > info.slots) {
    throw Error(FRT_ERR_OUT_OF_RANGE, "the engine is to use " + std::to_string(options_.slots) +
                                          " slots of model '" + model.name() + "', which has " +
                                          std::to_string(info.slots) + "; raise its option slots");
  }
  const uint32_t slots = options_.slots > 0 ? options_.slots : info.slots;
  if (options_.hot_contexts >= slots) {
    throw Error(FRT_ERR_OUT_OF_RANGE,
                "hot_contexts is " + std::to_string(options_.hot_contexts) + ", but model '" +
                    model.name() + "' has " + std::to_string(slots) +
                    " slots, of which one stays open to everybody; give fewer, or raise its "
                    "option slots");
  }
  if (!(options_.step_seconds >= 0)) {
    throw Error(FRT_ERR_OUT_OF_RANGE, "step_seconds is " + std::to_string(options_.step_seconds) +
                                          "; give 0 (no cap) or a positive number");
  }
  slots_.reserve(slots);
  for (uint32_t slot = 0; slot < slots; ++slot) {
    slots_.push_back({Session(model, runner_, registry, slot, options_.session)});
    // Now: an allocation of pinned memory may wait for the device, and then everybody would.
    slots_.back().logits =
        model.context().alloc(FRT_SPACE_HOST_PINNED, info.vocabulary * sizeof(float),
                              "lm." + model.name() + ".logits" + std::to_string(slot));
  }
  score_logits_ = model.context().alloc(FRT_SPACE_HOST_PINNED,
                                        uint64_t{score_rows_} * info.vocabulary * sizeof(float),
                                        "lm." + model.name() + ".scores");
  views_.resize(slots);
  continues_.resize(slots);
  common_.resize(slots);
  readers_.reserve(slots);
  reading_.reserve(slots);
  entries_.reserve(info.max_batch);
  writers_.reserve(info.max_batch);
  acceptances_.reserve(info.max_batch);
  round_entries_.reserve(info.max_batch);
  for (Flight& flight : flights_) flight.members.reserve(info.max_batch);
  thread_ = std::thread([this] {
    const auto body = [this] { run(); };
    if (options_.around) {
      options_.around(body);
    } else {
      body();
    }
  });
}

Engine::Thread::~Thread() {
  mailbox_.stop();
  thread_.join();
}

void Engine::Thread::check(const EngineRequest& request) const {
  const frt_lm_info& info = model_.info();
  if (request.resumes) check_resuming(request);
  if (request.prompt.empty() && !request.resumes) {
    throw Error(FRT_ERR_INVALID_ARGUMENT, "the prompt is empty; give at least one token");
  }
  if (request.choices == 0 || request.choices > kMostChoices) {
    throw Error(FRT_ERR_INVALID_ARGUMENT, std::to_string(request.choices) +
                                              " choices were asked for; give 1 to " +
                                              std::to_string(kMostChoices));
  }
  if (request.sampling.use_mask != 0) {
    throw Error(FRT_ERR_INVALID_ARGUMENT, "sampling asks for a mask, and the request has none");
  }
  if (request.sampling.bias_count != 0) {
    throw Error(FRT_ERR_INVALID_ARGUMENT,
                "sampling counts a bias; give it as the request's own, whose tokens are counted");
  }
  check_bias(request.bias);
  check_sampling(request.sampling, FRT_ERR_INVALID_ARGUMENT);
  if (request.grammar && !info.mask) {
    throw Error(FRT_ERR_UNSUPPORTED, "model '" + model_.name() +
                                         "' takes no masks, so no grammar can be forced on its "
                                         "answers");
  }
  if (request.top_tokens > TopTokens::kMost) {
    throw Error(FRT_ERR_OUT_OF_RANGE, "top_tokens is " + std::to_string(request.top_tokens) +
                                          "; give at most " + std::to_string(TopTokens::kMost));
  }
  if ((request.top_tokens > 0 || request.score_prompt) && !info.logits) {
    throw Error(FRT_ERR_UNSUPPORTED, "model '" + model_.name() +
                                         "' gives no logits, so neither the likeliest tokens of an "
                                         "answer nor the scores of a prompt can be told");
  }
  if (request.grammar) model_.check_ids(request.stop_ids, "stop token");
  if (request.prompt.size() > info.max_context) {
    throw Error(FRT_ERR_OUT_OF_RANGE, "the prompt has " + std::to_string(request.prompt.size()) +
                                          " tokens, the context of model '" + model_.name() +
                                          "' has room for " + std::to_string(info.max_context) +
                                          "; shorten it or raise the option max_context");
  }
  model_.check_ids(request.prompt, "prompt token");
}

void Engine::Thread::check_resuming(const EngineRequest& request) {
  const bool fits = request.prompt.empty() && !request.affinity.empty() && request.choices == 1 &&
                    !request.grammar && request.top_tokens == 0 && !request.score_prompt;
  if (fits) return;
  throw Error(FRT_ERR_INVALID_ARGUMENT,
              "a request that resumes has the affinity of a conversation and one choice, and "
              "neither prompt nor grammar, top_tokens or score_prompt");
}

void Engine::Thread::check_bias(std::span<const frt_logit_bias> bias) const {
  if (bias.empty()) return;
  const frt_lm_info& info = model_.info();
  if (!info.bias) {
    throw Error(FRT_ERR_UNSUPPORTED, "model '" + model_.name() +
                                         "' takes no bias, so no token can be made more or less "
                                         "likely");
  }
  if (bias.size() > info.bias_capacity) {
    throw Error(FRT_ERR_OUT_OF_RANGE, "the bias names " + std::to_string(bias.size()) +
                                          " tokens; give at most " +
                                          std::to_string(info.bias_capacity));
  }
  std::vector<int32_t> ids;
  ids.reserve(bias.size());
  for (const frt_logit_bias& one : bias) {
    if (!std::isfinite(one.value)) {
      throw Error(FRT_ERR_INVALID_ARGUMENT, "the bias of token " + std::to_string(one.id) +
                                                " is no number; give a finite one");
    }
    ids.push_back(one.id);
  }
  model_.check_ids(ids, "biased token");
  std::ranges::sort(ids);
  const auto twice = std::ranges::adjacent_find(ids);
  if (twice == ids.end()) return;
  throw Error(FRT_ERR_INVALID_ARGUMENT,
              "the bias names token " + std::to_string(*twice) + " twice; give one value for it");
}

EngineStats Engine::Thread::stats() const {
  EngineStats stats;
  meter_.read(stats);
  stats.queued = mailbox_.queued();
  stats.submitted = mailbox_.submitted();
  stats.refused = mailbox_.refused();
  stats.draining = mailbox_.draining();
  stats.device_lost = mailbox_.lost();
  const frt_state_info state = model_.state_info();
  stats.slots = slots_.size();
  stats.pages = state.total_pages;
  stats.pages_free = state.free_pages;
  stats.pages_shared = state.shared_pages;
  return stats;
}

Session* Engine::Thread::idle_session(const std::string& owner, const std::string& affinity) {
  Slot* last = nullptr;
  for (Slot& slot : slots_) {
    const bool own = !affinity.empty() && slot.affinity == affinity &&
                     slot.session.options().owner == owner && slot.session.journal().size() > 0;
    if (!own || slot.user || slot.broken) continue;
    if (!last || slot.last_used > last->last_used) last = &slot;
  }
  return last ? &last->session : nullptr;
}

void Engine::Thread::pin(const std::string& owner, const std::string& affinity, bool pinned) {
  const auto own = std::find_if(slots_.begin(), slots_.end(), [&](const Slot& slot) {
    return !affinity.empty() && slot.affinity == affinity && slot.session.options().owner == owner;
  });
  if (own == slots_.end()) {
    throw Error(FRT_ERR_NOT_FOUND, "no slot holds the conversation '" + affinity + "'");
  }
  const auto pins = static_cast<std::size_t>(
      std::count_if(slots_.begin(), slots_.end(), [](const Slot& slot) { return slot.pinned; }));
  if (pinned && !own->pinned && pins + 1 >= slots_.size()) {
    throw Error(FRT_ERR_OUT_OF_RANGE,
                std::to_string(pins) + " of " + std::to_string(slots_.size()) +
                    " slots are pinned, and one stays open to everybody; unpin one first");
  }
  const std::size_t most = options_.pins_per_owner > 0
                               ? options_.pins_per_owner
                               : std::max<std::size_t>(1, slots_.size() / 2);
  const auto of_owner =
      static_cast<std::size_t>(std::ranges::count_if(slots_, [&](const Slot& slot) {
        return slot.pinned && slot.session.options().owner == owner;
      }));
  if (pinned && !own->pinned && of_owner >= most) {
    throw Error(FRT_ERR_OUT_OF_RANGE, std::to_string(of_owner) + " conversations of '" + owner +
                                          "' are pinned, which is as many as one owner may have; "
                                          "unpin one first");
  }
  own->pinned = pinned;
  changed_ = true;
}

void Engine::Thread::run() {
  const auto guarded = [&](const auto& part) {
    frt_error error{};
    const frt_status status = guard(&error, part);
    if (status != FRT_OK) met(nullptr, status, error.message);
  };
  while (!mailbox_.stopping() || mailbox_.news() || !live_.empty() || flights_in_air_ > 0) {
    guarded([&] { turn(); });
    // Whatever a turn throws: requests that it ended are forgotten, or the loop would never end.
    if (over_) guarded([&] { forget_over(); });
  }
  mailbox_.serve(*this);
}

void Engine::Thread::turn() {
  if (mailbox_.news()) receive();
  if (timed_ > 0) expire(Clock::now());
  if (fetching_ > 0) poll_fetches();
  if (compiling_ > 0) poll_grammars();
  if (changed_) admit();
  const bool submitted = submit_step();
  if (flights_in_air_ == kAhead || (!submitted && flights_in_air_ > 0)) {
    finish_step();
  } else if (!submitted && !changed_ && !over_ && !mailbox_.stopping()) {
    idle();
  }
}

// Moves from `submission` last, so that what fails before can be told.
void Engine::Thread::take_in(Submission& submission) {
  auto request = std::make_unique<LiveRequest>();
  const EngineRequest& asked = submission.request;
  request->choices.resize(asked.choices);
  request->unfinished = asked.choices;
  request->forks_left = asked.choices - 1;
  for (uint32_t i = 0; i < asked.choices; ++i) {
    Choice& choice = request->choices[i];
    choice.request = request.get();
    choice.index = i;
    choice.sampling = asked.sampling;
    choice.sampling.seed += i;
    choice.result.prompt_tokens = asked.prompt.size();
    choice.acceptance = planner_.usual();
  }
  if (live_.size() == live_.capacity()) live_.reserve(2 * live_.size() + 16);
  if (asked.deadline) ++timed_;
  request->compiling = asked.grammar != nullptr;
  compiling_ += request->compiling;
  request->submission = std::move(submission);
  live_.push_back(std::move(request));
  changed_ = true;
}

void Engine::Thread::receive() {
  arrived_.clear();
  mailbox_.take(arrived_);
  for (Submission& submission : arrived_) {
    frt_error error{};
    if (guard(&error, [&] { take_in(submission); }) == FRT_OK) continue;
    mailbox_.left_queue();
    submission.listener->on_error(error.code, error.message);
    submission.listener.reset();  // before drain() may return
    mailbox_.over(submission.number);
  }
  const bool stopping = mailbox_.stopping();
  for (const auto& request : live_) {
    if (!stopping && !request->submission.cancelled->load(std::memory_order_relaxed)) continue;
    for (Choice& choice : request->choices) end(choice, Finish::kCancelled);
  }
  mailbox_.serve(*this);
}

void Engine::Thread::expire(Clock::time_point now) {
  for (const auto& request : live_) {
    const auto& deadline = request->asked().deadline;
    if (!deadline || *deadline > now) continue;
    for (Choice& choice : request->choices) end(choice, Finish::kDeadline);
  }
}

void Engine::Thread::idle() {
  std::optional<Clock::time_point> until;
  if (fetching_ > 0 || compiling_ > 0) until = Clock::now() + kPoll;
  for (const auto& request : live_) {
    const auto& deadline = request->asked().deadline;
    if (deadline && (!until || *deadline < *until)) until = deadline;
  }
  mailbox_.wait(until);
}

// ---- ends ----

void Engine::Thread::end(Choice& choice, Finish finish) {
  if (choice.phase == Phase::kOver || choice.ending) return;
  choice.ending = true;
  choice.result.finish = finish;
  if (choice.in_flight == 0) finalize(choice);
}

void Engine::Thread::finalize(Choice& choice) {
  LiveRequest& request = *choice.request;
  const EngineRequest& asked = request.asked();
  const auto now = Clock::now();
  choice.result.prompt_read = choice.read;
  if (choice.result.prefill_seconds == 0 && choice.started != Clock::time_point{}) {
    choice.result.prefill_seconds = seconds_between(choice.started, now);
  }
  if (choice.slot) {
    Session& session = session_of(choice);
    const bool whole = choice.phase == Phase::kDecode;  // the prompt was read
    if (!whole) session.set_pending({});
    frt_error error{};
    const bool kept = guard(&error, [&] {
                        if (!asked.keep || asked.score_prompt) return;
                        if (whole) session.keep(CapsuleKind::kTurn, choice.sampling);
                        const bool at_chunk = choice.read % model_.info().prefill_chunk == 0;
                        if (!whole && at_chunk && session.far_enough(choice.read)) {
                          session.keep(CapsuleKind::kChunk, choice.sampling);
                        }
                      }) == FRT_OK;
    leave_slot(choice, !kept);
    if (!kept) return met(&request, error.code, error.message);
  }
  choice.phase = Phase::kOver;
  choice.saved.reset();
  if (!request.started) {
    request.started = true;
    mailbox_.left_queue();
    choice.result.queue_seconds = seconds_between(request.submission.submitted, now);
  }
  if (choice.result.generated > 0) {
    choice.result.decode_seconds = seconds_between(choice.first_token, choice.last_token);
  }
  meter_.end(choice.result.finish);
  meter_.e2e.add(seconds_between(request.submission.submitted, now));
  changed_ = true;
  over_ = true;
  --request.unfinished;
  request.listener().on_finish(choice.index, choice.result);
}

void Engine::Thread::leave_slot(Choice& choice, bool broken) {
  if (!choice.slot) return;
  Slot& slot = slots_[*choice.slot];
  slot.user = nullptr;
  slot.last_used = ++uses_;
  slot.broken = slot.broken || broken;
  if (choice.request->forgotten) forget(slot);
  choice.slot.reset();
  choice.held = false;
  for (const Slot& other : slots_) {
    if (other.user) other.user->held = false;
  }
  changed_ = true;
}

void Engine::Thread::fail(LiveRequest& request, frt_status status, const std::string& message) {
  if (request.unfinished == 0) return;
  if (!request.started) {
    request.started = true;
    mailbox_.left_queue();
  }
  for (Flight& flight : flights_) {
    for (Choice*& member : flight.members) {
      if (member && member->request == &request) member = nullptr;
    }
  }
  for (Choice& choice : request.choices) {
    leave_slot(choice, true);
    choice.saved.reset();
    choice.phase = Phase::kOver;
  }
  request.unfinished = 0;
  meter_.errors.add();
  changed_ = true;
  over_ = true;
  request.listener().on_error(status, message);
}

void Engine::Thread::fail_all(frt_status status, const std::string& message) {
  for (const auto& request : live_) fail(*request, status, message);
}

// What a lost device held is lost, so every request ends.
void Engine::Thread::met(LiveRequest* request, frt_status status, const std::string& message) {
  if (status == FRT_ERR_DEVICE_LOST) {
    mailbox_.lose(message);
    request = nullptr;
  }
  if (request) return fail(*request, status, message);
  flights_in_air_ = 0;
  fail_all(status, message);
}

void Engine::Thread::forget_over() {
  over_ = false;
  count_phases();  // before drain() may return
  std::erase_if(live_, [&](const std::unique_ptr<LiveRequest>& request) {
    if (request->unfinished > 0) return false;
    if (request->asked().deadline) --timed_;
    if (!request->fetching.empty()) --fetching_;
    if (request->compiling) --compiling_;
    request->submission.listener.reset();  // before drain() may return
    mailbox_.over(request->submission.number);
    return true;
  });
  if (registry_) registry_->tend();
}

void Engine::Thread::count_phases() {
  uint64_t prefilling = 0, decoding = 0, preempted = 0;
  for (const auto& request : live_) {
    for (const Choice& choice : request->choices) {
      prefilling += choice.phase == Phase::kPrefill;
      decoding += choice.phase == Phase::kDecode;
      preempted += choice.phase == Phase::kPreempted;
    }
  }
  meter_.prefilling.set(prefilling);
  meter_.decoding.set(decoding);
  meter_.preempted.set(preempted);
  meter_.slots_used.set(slots_used());
}

}  // namespace frt::host
