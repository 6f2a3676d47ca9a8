// SPDX-License-Identifier: Apache-2.0
// Reading: the part of the prompt that the slot does not hold is cut at absolute multiples of
// prefill_chunk, so that the same prompt is always cut alike, and submitted chunk by chunk with
// at most kDepth in flight. Where the user's turn ends may be one more cut, for a capsule.
//
// Writing with drafts: a round is awaited before the next step, which may be a plain one.
//
// Writing without: step n + 1 is submitted before token n is awaited, unless n is known to be the
// last. A stop token is therefore usually fed to the model by the step in flight; the journal says
// exactly what was fed, so a later prompt that continues the text, stop token included, is
// recognised.
#include "lm/generator.hpp"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

namespace frt::host {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

bool cancelled(const GenerationRequest& request) {
  return request.cancelled && request.cancelled();
}

}  // namespace

Generator::Generator(const LmModel& model, uint32_t slot, CapsuleRegistry* registry,
                     SessionOptions options)
    : model_(model),
      runner_(model),
      session_(model, runner_, registry, checked_slot(model, slot), std::move(options)),
      planner_(session_.options().speculation, model.most_drafts()) {}

uint32_t Generator::checked_slot(const LmModel& model, uint32_t slot) {
  if (slot >= model.info().slots) {
    throw Error(FRT_ERR_OUT_OF_RANGE,
                "slot " + std::to_string(slot) + " of model '" + model.name() + "', which has " +
                    std::to_string(model.info().slots) + "; raise its option slots");
  }
  return slot;
}

void Generator::check_prompt(const std::vector<int32_t>& prompt) const {
  const frt_lm_info& info = model_.info();
  if (prompt.empty() && session_.journal().size() == 0) {
    throw Error(FRT_ERR_INVALID_ARGUMENT, "the prompt is empty; give at least one token");
  }
  model_.check_ids(prompt, "prompt token");
  if (prompt.size() > info.max_context) {
    throw Error(FRT_ERR_OUT_OF_RANGE, "the prompt has " + std::to_string(prompt.size()) +
                                          " tokens, the context of model '" + model_.name() +
                                          "' has room for " + std::to_string(info.max_context) +
                                          "; shorten it or raise the option max_context");
  }
}

// Returns the last step; nothing if the request was cancelled before the prompt's end.
std::optional<uint64_t> Generator::read(const GenerationRequest& request,
                                        GenerationResult& result) {
  const std::span<const int32_t> prompt = request.prompt;
  const uint64_t chunk = model_.info().prefill_chunk;
  result.prefix = session_.begin(prompt, request.reuse);
  result.prefix.reason = prefix_reason(result.prefix, prompt, model_);
  std::vector<Session::Stop> stops;
  if (request.keep) stops = session_.stops(prompt.size(), request.user_turn);
  auto stop = stops.begin();
  const uint64_t first = result.prefix.reused;
  const auto report = [&](uint64_t position) {
    if (request.on_prefill) request.on_prefill(position - first, prompt.size() - first);
  };
  // Where somebody watches or may cancel, two chunks are queued at most: he does not wait for more.
  const bool watched = request.on_prefill || request.cancelled;
  uint64_t done = first;  // position behind the steps that are over
  std::optional<uint64_t> last;
  for (uint64_t at = first; at < prompt.size();) {
    report(done);
    if (cancelled(request)) {
      if (last) runner_.wait(*last);
      session_.set_pending({});
      if (request.keep && at % chunk == 0 && session_.far_enough(at)) {
        session_.keep(CapsuleKind::kChunk, request.sampling);
      }
      return std::nullopt;
    }
    const uint64_t limit = stop != stops.end() ? stop->position : prompt.size();
    const uint64_t end = prefill_end(at, limit, chunk);
    const uint64_t ticket = session_.prefill(prompt.subspan(at, end - at));
    if (watched && last) {
      runner_.wait(*last);
      done = at;
    }
    at = end;
    last = ticket;
    if (stop != stops.end() && stop->position == at) session_.keep(stop++->kind, request.sampling);
  }
  runner_.wait(*last);
  report(prompt.size());
  return last;
}

GenerationResult Generator::run(const GenerationRequest& request) {
  if (std::exchange(broken_, false)) session_.clear();
  check_prompt(request.prompt);
  try {
    return run_checked(request);
  } catch (...) {
    broken_ = true;
    throw;
  }
}

PendingToken Generator::result_of(uint64_t ticket) {
  return {runner_.wait(ticket)[0], runner_.log_probabilities(ticket)[0], false};
}

// The drafts of the step that feeds the next token; 0: a plain one. `more`: tokens that may be
// written behind it, of which the last is not fed.
uint32_t Generator::planned_drafts(const GenerationRequest& request, uint64_t more) {
  const bool may = more > 1 && request.sampling.use_mask == 0 &&
                   request.stop_ids.size() <= FRT_LM_STOPS && planner_.enabled();
  if (!may) return 0;
  const Acceptance* one = &acceptance_;
  const uint32_t drafts = planner_.drafts({&one, 1});
  planner_.submitted();
  return static_cast<uint32_t>(std::min<uint64_t>(drafts, more - 1));
}

// Writes a token, which is pending in the slot unless more was fed; false: it is the last one.
bool Generator::write(const GenerationRequest& request, GenerationResult& result,
                      const PendingToken& next) {
  if (next.shown) session_.set_pending(next);
  if (std::find(request.stop_ids.begin(), request.stop_ids.end(), next.token) !=
      request.stop_ids.end()) {
    result.finish = Finish::kStop;
    result.stop_token = next.token;
    return false;
  }
  result.tokens.push_back(next.token);
  result.log_probabilities.push_back(next.log_probability);
  Next answer =
      request.on_token ? request.on_token(next.token, next.log_probability) : Next::kContinue;
  if (answer == Next::kContinue && cancelled(request)) answer = Next::kCancel;
  if (answer == Next::kContinue) return true;
  result.finish = answer == Next::kStop ? Finish::kStop : Finish::kCancelled;
  return false;
}

// Feeds the pending token and what is accepted of `drafts` drafts; writes these, and returns the
// token behind them.
PendingToken Generator::round(const GenerationRequest& request, GenerationResult& result,
                              uint32_t drafts, bool& goes_on) {
  const auto start = Clock::now();
  session_.fed(session_.pending().token);
  const uint64_t ticket = session_.round(drafts, request.stop_ids);
  runner_.wait(ticket);
  const StepRunner::Sampled sampled = runner_.sampled(ticket, 0);
  planner_.measured(1, drafts, seconds_since(start));
  session_.round_over(sampled.tokens);
  const std::size_t last = sampled.tokens.size() - 1;
  const auto accepted = static_cast<uint32_t>(last);
  acceptance_.add(drafts, accepted);
  planner_.accepted(drafts, accepted);
  result.drafted += drafts;
  result.accepted += accepted;
  const PendingToken pending = {sampled.tokens[last], sampled.log_probabilities[last], false};
  session_.set_pending(pending);
  for (std::size_t i = 0; i < last && goes_on; ++i) {
    goes_on = write(request, result, {sampled.tokens[i], sampled.log_probabilities[i], false});
  }
  return pending;
}

GenerationResult Generator::run_checked(const GenerationRequest& request) {
  GenerationResult result;
  result.prompt_tokens = request.prompt.size();
  const auto start = Clock::now();
  runner_.set_sampling({&request.sampling, 1});
  // The token to write next: known, or that of a step.
  std::optional<PendingToken> known;
  uint64_t ticket = 0;
  if (request.prompt.empty()) {
    result.prefix = {.action = PrefixAction::kContinue,
                     .reused = session_.journal().size(),
                     .reason = "went on with what the slot holds"};
    known = session_.pending();
    if (known->token < 0) {
      throw Error(FRT_ERR_INVALID_ARGUMENT,
                  "the slot holds a part of a prompt, and nothing was sampled behind it; give the "
                  "rest as the prompt");
    }
  } else {
    const std::optional<uint64_t> last = read(request, result);
    if (last) session_.set_pending(result_of(ticket = *last));
    result.prompt_read = session_.journal().size();
    if (!last) result.finish = Finish::kCancelled;
  }
  result.prefill_seconds = seconds_since(start);
  if (request.max_new == 0 || result.finish == Finish::kCancelled) return result;
  if (cancelled(request)) {
    result.finish = Finish::kCancelled;
    return result;
  }

  const auto first_token = Clock::now();
  // `room` more tokens can be fed. One more than that can be written, unless that one was written
  // before.
  uint64_t room = model_.info().max_context - session_.journal().size();
  if (known && known->shown) {
    if (room == 0) {
      result.finish = Finish::kContext;
      return result;
    }
    ticket = session_.decode();
    session_.fed(known->token);
    known.reset();
    --room;
  }
  const uint64_t limit = std::min(request.max_new, room + 1);
  result.tokens.reserve(std::min<uint64_t>(limit, 4096));
  result.finish = limit < request.max_new ? Finish::kContext : Finish::kLength;
  acceptance_ = planner_.usual();
  bool ahead = false, goes_on = true;  // ahead: `ticket` is a decode step behind the next token
  Clock::time_point last_result{};
  while (goes_on && result.tokens.size() < limit) {
    const uint64_t current = ticket;
    const bool stepped = ahead;
    const uint64_t more = limit - result.tokens.size() - 1;
    const uint32_t drafts = planned_drafts(request, more);
    ahead = more > 0 && drafts == 0;
    if (ahead) ticket = session_.decode();
    PendingToken next = known ? *std::exchange(known, std::nullopt) : result_of(current);
    next.shown = true;
    if (stepped) planner_.measured(1, 0, seconds_since(last_result));
    last_result = Clock::now();
    if (ahead) session_.fed(next.token);
    goes_on = write(request, result, next);
    if (goes_on && drafts > 0) known = round(request, result, drafts, goes_on);
  }
  result.decode_seconds = seconds_since(first_token);
  if (ahead) session_.set_pending(result_of(ticket));
  if (request.keep) session_.keep(CapsuleKind::kTurn, request.sampling);
  runner_.stream().sync();
  return result;
}

}  // namespace frt::host
