// SPDX-License-Identifier: Apache-2.0
// generator.hpp - reads a prompt and writes tokens, in one slot. What the slot or a capsule holds
// of the prompt is not read again (lm/session.hpp).
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "lm/engine/speculation.hpp"
#include "lm/finish.hpp"
#include "lm/lm_model.hpp"
#include "lm/session.hpp"
#include "lm/step_runner.hpp"

namespace frt::host {

struct GenerationRequest {
  // Ids, all below the vocabulary's size. Empty: go on with what the slot holds, as if the run that
  // brought it there had not ended.
  std::vector<int32_t> prompt;
  uint64_t max_new = 256;          // 0: only read the prompt
  frt_sampling_params sampling{};  // from resolve_sampling()
  std::vector<int32_t> stop_ids;   // end the text; reported, not part of `tokens`
  bool reuse = true;               // begin with what the slot or a capsule holds
  bool keep = false;               // take capsules at boundaries (never for side requests)
  uint64_t user_turn = 0;          // where in the prompt a later one will part; 0: nobody knows
  // Called for each token as it arrives, stop tokens excluded.
  std::function<Next(int32_t id, float log_probability)> on_token;
  // Called while the prompt is read: tokens done of all to be read.
  std::function<void(uint64_t done, uint64_t total)> on_prefill;
  // Asked between the chunks of the prompt and behind each token; true: end with kCancelled. What
  // was read stays in the slot: the same prompt goes on from there, another one discards it.
  std::function<bool()> cancelled;
};

struct GenerationResult {
  std::vector<int32_t> tokens;  // without the stop token
  std::vector<float> log_probabilities;
  Finish finish = Finish::kLength;
  int32_t stop_token = -1;     // the one that ended it, or -1
  uint64_t prompt_tokens = 0;  // of the request
  uint64_t prompt_read = 0;    // of these, what the slot holds: fewer if cancelled meanwhile
  PrefixDecision prefix;       // how it began
  double prefill_seconds = 0;  // until the first token was on the host
  double decode_seconds = 0;   // from the first to the last token
  uint64_t drafted = 0;        // tokens that the draft head proposed
  uint64_t accepted = 0;       // of these, the text
};

class Generator {
 public:
  // `slot` belongs to this object until it is destroyed. `registry` may be null.  [setup]
  Generator(const LmModel& model, uint32_t slot, CapsuleRegistry* registry = nullptr,
            SessionOptions options = {});

  // Runs a request to its end. With drafts, the slot may hold a few tokens more than were given out
  // where on_token or `cancelled` ended the run; the journal says which. Throws
  // FRT_ERR_INVALID_ARGUMENT for an empty prompt and an empty slot or an id outside the vocabulary,
  // FRT_ERR_OUT_OF_RANGE for a prompt longer than the context, with the numbers. After an exception
  // the slot is empty.  [driver]
  GenerationResult run(const GenerationRequest& request);

  Session& session() noexcept { return session_; }
  const Session& session() const noexcept { return session_; }

 private:
  static uint32_t checked_slot(const LmModel& model, uint32_t slot);
  void check_prompt(const std::vector<int32_t>& prompt) const;
  std::optional<uint64_t> read(const GenerationRequest& request, GenerationResult& result);
  PendingToken result_of(uint64_t ticket);
  GenerationResult run_checked(const GenerationRequest& request);
  bool write(const GenerationRequest& request, GenerationResult& result, const PendingToken& next);
  PendingToken round(const GenerationRequest& request, GenerationResult& result, uint32_t drafts,
                     bool& goes_on);
  uint32_t planned_drafts(const GenerationRequest& request, uint64_t more);

  const LmModel& model_;
  StepRunner runner_;
  Session session_;
  DraftPlanner planner_;
  Acceptance acceptance_;  // of the run's drafts
  bool broken_ = false;    // a run ended with an exception: nobody knows what the slot holds
};

}  // namespace frt::host
