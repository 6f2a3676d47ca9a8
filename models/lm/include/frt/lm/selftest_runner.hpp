// SPDX-License-Identifier: Apache-2.0
// frt/lm/selftest_runner.hpp - drives one slot of a model for checks: the same graphs that serve,
// the same recipe with taps where intermediate values are wanted. [driver]; not while the model
// serves.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include <frt/lm/model.hpp>

namespace frt::lm {

// A step's outcome.
struct StepResult {
  std::int32_t token = 0;     // greedy choice
  std::vector<float> logits;  // (vocabulary)
};

// Intermediate rows of a prompt, converted to f32, in the order of the positions asked for.
struct Trace {
  // "residual", "mixer", "ffn", "router_weights": layers one after another.
  std::map<std::string, std::vector<float>> rows;
  std::vector<std::int32_t> router_ids;
  std::vector<float> hidden;      // every position
  std::vector<float> logits;      // at the positions asked for
  std::vector<float> mtp_hidden;  // at the rows asked for
  std::vector<float> mtp_logits;
};
struct TraceRequest {
  std::vector<std::int32_t> rows;        // positions of residual, mixer, ffn, router
  std::vector<std::int32_t> logit_rows;  // positions of logits
  std::vector<std::int32_t> mtp_rows;    // rows of the draft head
};

class Runner {
 public:
  explicit Runner(const Model& model);

  // Makes the slot as new.
  void clear();
  // Feeds tokens in chunks through the prefill graph.
  StepResult prefill(std::span<const std::int32_t> ids);
  // The same, eager and tapped.
  StepResult prefill_traced(std::span<const std::int32_t> ids, const TraceRequest& request,
                            Trace& trace);
  // One decode step.
  StepResult decode(std::int32_t token);
  // One draft step; `position` counts up from the boundary.
  StepResult draft(std::int32_t token, std::int32_t position);

  std::int32_t boundary() const noexcept { return boundary_; }

  // A region of the slot, converted to f32: FIXED whole, ROWS the first `rows`.
  std::vector<float> region(const std::string& name, std::int64_t rows = 1) const;

 private:
  void reserve(std::int32_t rows);  // up to `rows` of them
  std::vector<std::int32_t> slot_pages(const frt_state_info& info) const;
  void set_step(std::span<const std::int32_t> tokens, std::int32_t position);
  StepResult result() const;
  StepResult run_chunks(std::span<const std::int32_t> ids,
                        const std::function<void(std::int32_t rows)>& step);
  std::vector<float> device_rows(const TapView& view) const;
  // Logits of hidden rows `first` .. of a tap, for the rows in `wanted` (ascending positions).
  void collect_logits(const Recorder& recorder, const TapView& view, std::int32_t first,
                      std::int32_t count, std::span<const std::int32_t> wanted,
                      std::vector<float>& out) const;

  const Model& model_;
  const Model::Parts& parts_;
  std::int32_t boundary_ = 0;
  Buffer block_logits_;  // (kLogitBlock, vocabulary)
};

}  // namespace frt::lm
