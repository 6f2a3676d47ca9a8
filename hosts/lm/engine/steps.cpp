// SPDX-License-Identifier: Apache-2.0
// Steps are submitted ahead of their results, so a choice that ended is in one more step than it
// needs. What that step fed is known from the result before it, and what it sampled is the token
// behind the text: the slot's journal stays exact, and a later prompt that goes on from the text is
// recognised.
#include <algorithm>
#include <string>
#include <utility>

#include "lm/engine/thread.hpp"

namespace frt::host {
namespace {

double seconds_between(EngineRequest::Clock::time_point start,
                       EngineRequest::Clock::time_point end) {
  return std::chrono::duration<double>(end - start).count();
}

// What the next step needs is not there before a step in flight is over: which tokens may come, or
// the place of the logits.
bool follows(const Choice& choice) {
  return (choice.matcher || choice.top) && choice.in_flight > 0;
}

}  // namespace

// A step that finds no page is tried again when some are free; false: there is nothing to do.
bool Engine::Thread::submit_step() {
  for (;;) {
    reading_.clear();
    readers_.clear();
    bool writing = false, ready = false;  // somebody writes; and the next step can be made
    for (const Slot& slot : slots_) {
      Choice* choice = slot.user;
      if (!choice || choice->ending || choice->held) continue;
      const bool scored_first = scores(*choice) && (choice->in_flight > 0 || scoring());
      if (choice->phase == Phase::kPrefill && !waits_for_grammar(*choice) && !scored_first) {
        reading_.push_back(choice);
        readers_.push_back({choice->request->asked().priority, choice->request->submission.number,
                            choice->last_step});
      }
      const bool writes = choice->phase == Phase::kDecode && choice->sampled < choice->limit;
      writing = writing || writes;
      ready = ready || (writes && !follows(*choice));
    }
    const StepKind kind = scheduler_.next(!reading_.empty(), writing);
    if (kind == StepKind::kNone) return false;
    // A round is awaited, and so is the step that tells which tokens may come.
    if (kind == StepKind::kDecode && (decode_waits() || !ready)) return false;
    const bool made = kind == StepKind::kPrefill ? submit_prefill() : submit_decode();
    if (!made) {
      if (flights_in_air_ == kAhead) return true;  // it failed behind its submission
      continue;
    }
    scheduler_.submitted(kind, writing);
    return true;
  }
}

Engine::Thread::Flight& Engine::Thread::new_flight(StepKind kind) {
  Flight& flight = flights_[(oldest_flight_ + flights_in_air_) % kAhead];
  flight.kind = kind;
  flight.samples = kind == StepKind::kDecode;
  flight.drafts = flight.known = 0;
  flight.members.clear();
  flight.submitted = Clock::now();
  return flight;
}

bool Engine::Thread::submit_prefill() {
  Choice& choice = *reading_[scheduler_.pick(readers_)];
  frt_error error{};
  frt_status status = FRT_OK;
  if (next_end(choice) == choice.request->asked().prompt.size()) {
    // A grammar takes the host's memory and no pages, so nobody makes room for it.
    status = guard(&error, [&] { begin_grammar(choice); });
  }
  if (status == FRT_OK) {
    status = guard(&error, [&] { read_on(choice); });
    if (status == FRT_ERR_OUT_OF_MEMORY && free_pages()) return false;
  }
  if (status == FRT_OK) return true;
  met(choice.request, status, error.message);
  return false;
}

// Whether the tokens of the prompt are scored while this choice reads it.
bool Engine::Thread::scores(const Choice& choice) {
  return choice.phase == Phase::kPrefill && choice.index == 0 &&
         choice.request->asked().score_prompt;
}

// Whether a step is in flight whose logits have the place of scores.
bool Engine::Thread::scoring() const {
  for (std::size_t i = 0; i < flights_in_air_; ++i) {
    if (flights_[(oldest_flight_ + i) % kAhead].known > 0) return true;
  }
  return false;
}

// Where the next chunk of the prompt ends. One that is scored begins with a step of one token, as
// its request does, and ends with one, which samples.
uint64_t Engine::Thread::next_end(const Choice& choice) const {
  if (scores(choice)) {
    const uint64_t unread = choice.request->asked().prompt.size() - choice.read;
    const bool one = choice.read == 0 || unread == 1;
    return choice.read + (one ? 1 : std::min<uint64_t>(score_rows_, unread - 1));
  }
  const bool stops = choice.next_stop < choice.stops.size();
  const uint64_t limit =
      stops ? choice.stops[choice.next_stop].position : choice.request->asked().prompt.size();
  return prefill_end(choice.read, limit, model_.info().prefill_chunk);
}

// Submits the next chunk of the prompt.
void Engine::Thread::read_on(Choice& choice) {
  LiveRequest& request = *choice.request;
  Session& session = session_of(choice);
  const std::span<const int32_t> prompt = request.asked().prompt;
  const uint64_t end = next_end(choice);
  const bool last = end == prompt.size();
  // What decode steps fed counts as generated, and was prompt.
  if (last && scores(choice)) session.start_request();
  if (last && !request.forked && request.choices.size() > 1) make_fork(choice);
  Flight& flight = new_flight(StepKind::kPrefill);
  const std::span<const int32_t> chunk = prompt.subspan(choice.read, end - choice.read);
  if (!last && scores(choice)) {
    const frt_buffer logits = score_logits_.handle();
    flight.ticket = choice.read == 0 ? session.prefill(chunk, &choice.sampling, nullptr, logits)
                                     : session.feed(chunk, logits);
    flight.known = static_cast<uint32_t>(chunk.size());
  } else {
    flight.ticket = session.prefill(chunk, &choice.sampling, last ? mask_of(choice) : nullptr,
                                    last ? logits_of(choice) : nullptr, bias_of(choice));
  }
  flight.samples = last;
  flight.read = end;
  flight.members.push_back(&choice);
  ++flights_in_air_;
  ++choice.in_flight;
  choice.read = end;
  choice.last_step = ++steps_;
  meter_.prefill_steps.add();
  if (last) {
    choice.phase = Phase::kDecode;
    choice.sampled = 1;
  }
  if (choice.next_stop < choice.stops.size() && end == choice.stops[choice.next_stop].position) {
    session.keep(choice.stops[choice.next_stop++].kind, choice.sampling);
  }
}

// Where no memory has room for it, the others read the whole prompt.
void Engine::Thread::make_fork(Choice& choice) {
  LiveRequest& request = *choice.request;
  for (const frt_space space : {FRT_SPACE_DEVICE, FRT_SPACE_HOST_PINNED}) {
    try {
      request.fork = session_of(choice).snapshot(space);
      break;
    } catch (const Error& error) {
      if (error.status() != FRT_ERR_OUT_OF_MEMORY) throw;
    }
  }
  request.forked = true;
  changed_ = true;
}

// One token of every choice that writes and knows what may come next, at most max_batch of them in
// turn.
bool Engine::Thread::submit_decode() {
  if (drafts_ > 0) return submit_round();
  const std::size_t most = model_.info().max_batch;
  Flight& flight = new_flight(StepKind::kDecode);
  entries_.clear();
  std::size_t at = next_writer_;
  for (std::size_t i = 0; i < slots_.size() && entries_.size() < most; ++i) {
    at = (next_writer_ + i) % slots_.size();
    Choice* choice = slots_[at].user;
    const bool writes = choice && !choice->ending && !choice->held &&
                        choice->phase == Phase::kDecode && choice->sampled < choice->limit &&
                        !follows(*choice);
    if (!writes) continue;
    StepRunner::Entry entry = slots_[at].session.decode_entry();
    entry.sampling = &choice->sampling;
    entry.mask = mask_of(*choice);
    entry.logits = logits_of(*choice);
    entry.bias = bias_of(*choice);
    entries_.push_back(entry);
    flight.members.push_back(choice);
  }
  frt_error error{};
  const frt_status status = guard(&error, [&] { flight.ticket = runner_.submit_decode(entries_); });
  if (status != FRT_OK) {
    const std::vector<Choice*> members = flight.members;
    flight.members.clear();
    if (status == FRT_ERR_OUT_OF_MEMORY && free_pages()) return false;
    // Nobody knows which of them it was.
    for (Choice* choice : members) met(choice->request, status, error.message);
    return false;
  }
  ++flights_in_air_;
  if (entries_.size() == most) next_writer_ = (at + 1) % slots_.size();
  for (Choice* choice : flight.members) {
    Session& session = session_of(*choice);
    if (choice->in_flight == 0) session.fed(session.pending().token);  // else its result tells
    session.decode_submitted();
    ++choice->sampled;
    ++choice->in_flight;
  }
  planner_.submitted();
  meter_.decode_steps.add();
  meter_.decode_entries.add(entries_.size());
  return true;
}

void Engine::Thread::finish_step() {
  Flight& flight = flights_[oldest_flight_];
  oldest_flight_ = (oldest_flight_ + 1) % kAhead;
  --flights_in_air_;
  frt_error error{};
  const frt_status status = guard(&error, [&] { runner_.wait(flight.ticket); });
  const auto now = Clock::now();
  const double seconds = seconds_between(std::max(flight.submitted, last_result_), now);
  scheduler_.measured(flight.kind, seconds);
  if (flight.kind == StepKind::kDecode) {
    planner_.measured(flight.members.size(), flight.drafts, seconds);
  }
  last_result_ = now;
  for (std::size_t i = 0; i < flight.members.size(); ++i) {
    Choice* choice = std::exchange(flight.members[i], nullptr);
    if (!choice) continue;
    if (status != FRT_OK) {
      met(choice->request, status, error.message);
    } else {
      finish_member(flight, *choice, runner_.sampled(flight.ticket, static_cast<uint32_t>(i)));
    }
  }
}

void Engine::Thread::finish_member(const Flight& flight, Choice& choice,
                                   const StepRunner::Sampled& sampled) {
  --choice.in_flight;
  const EngineRequest& asked = choice.request->asked();
  if (flight.kind == StepKind::kPrefill && choice.index == 0 && !choice.ending) {
    choice.request->listener().on_prefill(flight.read - choice.first,
                                          asked.prompt.size() - choice.first);
  }
  if (flight.known > 0 && !choice.ending && !tell_prompt(flight, choice, sampled)) return;
  if (flight.samples) {
    Session& session = session_of(choice);
    if (flight.kind == StepKind::kPrefill) count_phases();
    if (flight.drafts > 0) feed_drafts(choice, sampled);
    const std::size_t last = sampled.tokens.size() - 1;
    session.set_pending({sampled.tokens[last], sampled.log_probabilities[last], false});
    if (choice.in_flight > 0) session.fed(sampled.tokens[last]);
    if (choice.limit == 0) end(choice, Finish::kLength);  // only the prompt was to be read
    for (std::size_t i = 0; i <= last && !choice.ending; ++i) {
      if (i == last) {
        session.set_pending({sampled.tokens[last], sampled.log_probabilities[last], true});
      }
      take_token(choice, sampled.tokens[i], sampled.log_probabilities[i], i < last);
    }
  }
  if (choice.ending && choice.phase != Phase::kOver && choice.in_flight == 0) finalize(choice);
}

// What the step that read the prompt up to flight.read says of the tokens behind those it fed.
// False: the request has failed.
bool Engine::Thread::tell_prompt(const Flight& flight, Choice& choice,
                                 const StepRunner::Sampled& sampled) {
  const EngineRequest& asked = choice.request->asked();
  if (sampled.tokens.size() != flight.known) {
    met(choice.request, FRT_ERR_INTERNAL,
        "model '" + model_.name() + "' fed " + std::to_string(sampled.tokens.size()) + " of " +
            std::to_string(flight.known) + " tokens of a prompt that its masks fix");
    return false;
  }
  const std::size_t vocabulary = model_.info().vocabulary;
  for (std::size_t row = 0; row < flight.known; ++row) {
    const std::span<const float> logits(score_logits_.pointer<float>() + row * vocabulary,
                                        vocabulary);
    const uint64_t place = flight.read - flight.known + row + 1;
    const int32_t token = asked.prompt[place];
    const float score = logits[static_cast<std::size_t>(token)] - log_sum_exp(logits);
    std::span<const TokenProbability> top;
    if (choice.prompt_top) top = choice.prompt_top->find(logits, nullptr, {token, score});
    choice.request->listener().on_prompt_token(place, score, top);
  }
  return true;
}

// The choice's mask is still that of the token.
void Engine::Thread::tell_top(Choice& choice, int32_t token, float log_probability) {
  const std::span<const float> logits(slots_[*choice.slot].logits.pointer<float>(),
                                      model_.info().vocabulary);
  choice.request->listener().on_top_tokens(
      choice.index, choice.top->find(logits, mask_of(choice), {token, log_probability}));
  choice.top->add(token);
}

// `fed`: a draft that was right; the mask behind it was made before it was fed.
void Engine::Thread::take_token(Choice& choice, int32_t token, float log_probability, bool fed) {
  const EngineRequest& asked = choice.request->asked();
  const auto now = Clock::now();
  EngineResult& result = choice.result;
  if (result.generated == 0) {
    choice.first_token = now;
    result.prefill_seconds = seconds_between(choice.started, now);
    meter_.ttft.add(seconds_between(choice.request->submission.submitted, now));
  } else {
    meter_.itl.add(seconds_between(choice.last_token, now));
  }
  choice.last_token = now;
  const bool stop =
      result.generated >= asked.min_new &&
      std::find(asked.stop_ids.begin(), asked.stop_ids.end(), token) != asked.stop_ids.end();
  if (stop) {
    result.stop_token = token;
    return end(choice, Finish::kStop);
  }
  if (choice.matcher && !follow_grammar(choice, token)) return;
  ++result.generated;
  meter_.generated_tokens.add();
  if (choice.top) tell_top(choice, token, log_probability);
  const Next next = choice.request->listener().on_token(choice.index, token, log_probability);
  if (next != Next::kContinue) {
    end(choice, next == Next::kStop ? Finish::kStop : Finish::kCancelled);
  } else if (result.generated == choice.limit) {
    const bool over = choice.matcher && ends_at_limit(choice);
    end(choice, over                           ? Finish::kStop
                : choice.limit < asked.max_new ? Finish::kContext
                                               : Finish::kLength);
  } else if (choice.matcher && !fed && !lead_on(choice)) {
    end(choice, Finish::kStop);
  }
}

}  // namespace frt::host
