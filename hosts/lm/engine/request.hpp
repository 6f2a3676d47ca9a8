// SPDX-License-Identifier: Apache-2.0
// request.hpp - what the engine is asked for, and what it tells while it works.
#pragma once

#include <frt/base.h>
#include <frt/ops/sample.h>
#include <frt/role/lm.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lm/engine/top_tokens.hpp"
#include "lm/finish.hpp"
#include "lm/grammar/ticket.hpp"
#include "lm/session.hpp"

namespace frt::host {

struct EngineRequest {
  using Clock = std::chrono::steady_clock;

  std::vector<int32_t> prompt;     // ids below the vocabulary's size; empty: `resumes`
  uint64_t max_new = 256;          // tokens of each choice; 0: only read the prompt
  uint64_t min_new = 0;            // stop_ids end no choice that has fewer tokens
  frt_sampling_params sampling{};  // from resolve_sampling(); choice i samples with seed + i
  // Added to the logits of these tokens, before penalties and temperature, at each place of each
  // answer: each id once, below the vocabulary's size, at most bias_capacity of frt_lm_info. What a
  // grammar rules out stays out.
  std::vector<frt_logit_bias> bias;
  std::vector<int32_t> stop_ids;  // end the text; reported, not given to on_token()
  uint32_t choices = 1;           // answers to the one prompt
  bool reuse = true;              // begin with what a slot or a capsule holds
  bool keep = true;               // take capsules at boundaries
  uint64_t user_turn = 0;         // where in the prompt a later one will part; 0: nobody knows
  std::string owner;              // whose state is found and kept
  std::string affinity;           // names the conversation; empty: none
  // Goes on with what the slot of `affinity` holds, as if the request that brought it there had not
  // ended: penalties see that request. Such a request has one choice and no grammar, top_tokens or
  // score_prompt. It ends with FRT_ERR_BAD_STATE if no slot holds the conversation, and with
  // FRT_ERR_INVALID_ARGUMENT if the slot holds a part of a prompt.
  bool resumes = false;
  int32_t priority = 0;  // higher first
  // What each answer must be; null: anything. The prompt is read while it is compiled. stop_ids end
  // an answer where the grammar lets it end, and an answer that can go on no further ends by itself
  // (Finish::kStop).
  std::shared_ptr<const GrammarTicket> grammar;
  // The likeliest tokens at each place of an answer, at most TopTokens::kMost, are told to
  // on_top_tokens(). Such an answer has no drafts and is in one step at a time. 0: none.
  uint32_t top_tokens = 0;
  // on_prompt_token() is told how likely each token of the prompt was, and `top_tokens` others.
  // Such a prompt is read whole, as many tokens a step as the model verifies drafts, and one more;
  // nothing of it is kept.
  bool score_prompt = false;
  std::optional<Clock::time_point> deadline;  // ends what is not over then (Finish::kDeadline)
};

// How one choice ended.
struct EngineResult {
  Finish finish = Finish::kLength;
  int32_t stop_token = -1;     // the one that ended it, or -1
  uint64_t prompt_tokens = 0;  // of the request
  uint64_t prompt_read = 0;    // of these, read or reused: fewer if the request ended meanwhile
  uint64_t generated = 0;      // tokens given to on_token()
  PrefixDecision prefix;       // how it began
  double queue_seconds = 0;    // from submit() until a slot was found
  double prefill_seconds = 0;  // from there to the first token on the host, or the end without one
  double decode_seconds = 0;   // from the first to the last token
  uint64_t drafted = 0;        // tokens that the draft head proposed for it
  uint64_t accepted = 0;       // of these, the text
  uint64_t preemptions = 0;    // how often its slot was given to others meanwhile
};

// Told on the engine's thread: every member returns quickly and does not throw. on_start() and
// on_prefill() speak of choice 0; nothing is told before submit() has made the request's number.
class EngineListener {
 public:
  virtual ~EngineListener() = default;
  // The request has left the queue.
  virtual void on_start(const PrefixDecision& prefix, double queue_seconds) = 0;
  // `done` of `total` tokens of the prompt that were not reused are read.
  virtual void on_prefill(uint64_t done, uint64_t total) = 0;
  // The request's grammar is compiled; before on_start() or behind it, once, and before any token.
  virtual void on_grammar() {}
  // EngineRequest::score_prompt: of the prompt's token `place`, 1 and up in order, before any other
  // token: the natural logarithm of its probability behind those before it, of the softmax of the
  // logits as they are, and the likeliest tokens there. `top` is valid during the call.
  virtual void on_prompt_token(uint64_t /*place*/, float /*log_probability*/,
                               std::span<const TokenProbability> /*top*/) {}
  // EngineRequest::top_tokens: what could have been in place of the token that on_token() gives
  // next, the likeliest first. `top` is valid during the call.
  virtual void on_top_tokens(uint32_t /*choice*/, std::span<const TokenProbability> /*top*/) {}
  // kStop: the text ends here (a stop string). kCancel: this choice ends as cancelled.
  virtual Next on_token(uint32_t choice, int32_t id, float log_probability) = 0;
  // Once for each choice. What a later prompt may reuse is kept by now.
  virtual void on_finish(uint32_t choice, const EngineResult& result) = 0;
  // In place of every on_finish() that has not been; the last call.
  virtual void on_error(frt_status status, const std::string& message) = 0;
};

}  // namespace frt::host
