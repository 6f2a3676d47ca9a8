// SPDX-License-Identifier: Apache-2.0
// generator.hpp - one live sequence in one slot: reads a prompt, writes tokens, remembers what was
// fed so that a prompt that continues it costs only its new part.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "lm/lm_model.hpp"
#include "lm/step_runner.hpp"

namespace frt::host {

enum class Finish {
  kLength,     // max_new tokens were written
  kStop,       // a stop token, or the callback asked to stop after a stop string
  kContext,    // the slot is full
  kCancelled,  // the caller asked for it
};

// "length", "stop", "context", "cancelled".
const char* finish_name(Finish finish) noexcept;

// What the token callback wants.
enum class Next { kContinue, kStop, kCancel };

struct GenerationRequest {
  std::vector<int32_t> prompt;     // ids, not empty, all below the vocabulary's size
  uint64_t max_new = 256;          // 0: only read the prompt
  frt_sampling_params sampling{};  // from resolve_sampling()
  std::vector<int32_t> stop_ids;   // end the text; reported, not part of `tokens`
  // Called for each token as it arrives, stop tokens excluded.
  std::function<Next(int32_t id, float log_probability)> on_token;
  // Called while the prompt is read: tokens done of all to be read.
  std::function<void(uint64_t done, uint64_t total)> on_prefill;
};

struct GenerationResult {
  std::vector<int32_t> tokens;  // without the stop token
  std::vector<float> log_probabilities;
  Finish finish = Finish::kLength;
  int32_t stop_token = -1;     // the one that ended it, or -1
  uint64_t prompt_tokens = 0;  // of the request
  uint64_t reused_tokens = 0;  // of them, already in the slot
  double prefill_seconds = 0;  // until the first token was on the host
  double decode_seconds = 0;   // from the first to the last token
};

class Generator {
 public:
  // `slot` belongs to this object until it is destroyed.  [setup]
  Generator(const LmModel& model, uint32_t slot);

  // Runs a request to its end. Throws FRT_ERR_INVALID_ARGUMENT for an empty prompt or an id
  // outside the vocabulary, FRT_ERR_OUT_OF_RANGE for a prompt longer than the context, with the
  // numbers. After an exception the slot is cleared by the next request.  [driver]
  GenerationResult run(const GenerationRequest& request);

  // The tokens fed to the slot so far.
  const std::vector<int32_t>& fed() const noexcept { return fed_; }
  // Forgets them: the next request starts anew.
  void reset() noexcept { fed_.clear(); }

 private:
  void check_prompt(const std::vector<int32_t>& prompt) const;
  GenerationResult run_checked(const GenerationRequest& request);
  uint64_t read(const GenerationRequest& request, GenerationResult& result);

  const LmModel& model_;
  uint32_t slot_;
  StepRunner runner_;
  std::vector<int32_t> fed_;
};

}  // namespace frt::host
