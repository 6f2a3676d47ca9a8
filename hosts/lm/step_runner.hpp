// SPDX-License-Identifier: Apache-2.0
// step_runner.hpp - submits prefill and decode replays of a language model, a few steps ahead of
// the results.
//
// Each step reserves the rows that it will write (FRT_ERR_OUT_OF_MEMORY where no page is free for
// them; nothing is submitted then), copies its inputs from a pinned ring into the model's ports,
// replays a graph, copies the sampled tokens back into the ring, and records an event: four
// submissions, one more where a sequence enters a new page of rows, no wait. How entries are
// sampled, and its bias, is an input of the step like the others, but copied only where it changes;
// masks are copied for the entries that have one. Because
// a decode entry with token -1 takes the token the model sampled last, step n + 1 is submitted
// before token n has reached the host. A step's results stay readable until kDepth more steps
// have been submitted.
//
// One stream, one thread at a time ([driver]). Submitting never allocates.
#pragma once

#include <frt/exec.hpp>

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "lm/lm_model.hpp"

namespace frt::host {

class StepRunner {
 public:
  // Steps that may be in flight.
  static constexpr uint64_t kDepth = 4;

  // One sequence of a decode step.
  struct Entry {
    uint32_t slot = 0;
    int32_t position = 0;  // tokens fed so far
    int32_t token = -1;    // -1: the slot's pending token
    bool starts = false;   // a new request begins with this step (frt/role/lm.h)
    // Read while the step is submitted. Null: as set_sampling() said.
    const frt_sampling_params* sampling = nullptr;
    // Tokens that may be sampled: (mask_words), read while the step is submitted; `sampling` is not
    // null then. Null: all.
    const uint32_t* mask = nullptr;
    // Where the logits behind the token go: pinned, f32 (vocabulary). Null: nowhere.
    frt_buffer logits = nullptr;
    // What is added to logits before the token is sampled: each id once, at most bias_capacity,
    // read while the step is submitted; `sampling` is not null then.
    std::span<const frt_logit_bias> bias{};
  };

  // One sequence of a round of drafts.
  struct RoundEntry {
    uint32_t slot = 0;
    int32_t position = 0;  // tokens fed so far; the next one is the slot's pending token
    uint32_t drafts = 0;   // of which so many are fed at most; 0: a plain decode step
    std::span<const int32_t> stops{};  // drafts that are not fed, at most stop_capacity
    const frt_sampling_params* sampling = nullptr;  // as above
    const uint32_t* mask = nullptr;                 // as above, of the token behind the pending one
    frt_buffer logits = nullptr;                    // as above, behind the pending token
    std::span<const frt_logit_bias> bias{};         // as above, of every token of the round
  };
  // Told the drafts of an entry that has a mask and drafts: returns how many of them may be fed,
  // the first ones, and writes the masks of the tokens behind these: (drafts, mask_words). Does not
  // throw.
  using MaskDrafts = std::function<uint32_t(uint32_t entry, std::span<const int32_t> drafts,
                                            std::span<uint32_t> masks)>;
  // What a step sampled for one entry: one token, or those of a round that are the text. All but
  // the last of these are fed.
  struct Sampled {
    std::span<const int32_t> tokens;
    std::span<const float> log_probabilities;
  };

  explicit StepRunner(const LmModel& model);  // [setup]

  const LmModel& model() const noexcept { return model_; }
  const Stream& stream() const noexcept { return stream_; }

  // How entry i of later steps is sampled where the step does not say; i counts up from 0. Where
  // several runners take turns on one model, each calls this before its turn.
  void set_sampling(std::span<const frt_sampling_params> params);
  // Makes a slot as new, in order with the steps.
  void clear(uint32_t slot);

  // Feeds up to prefill_chunk tokens of one sequence; `sampling` null: entry 0's applies; `mask`,
  // `logits` and `bias` as in Entry. `starts`: a new request begins with them. Returns the step's
  // ticket. Throws FRT_ERR_OUT_OF_RANGE for another number of tokens, no such slot, or a position
  // that is not the slot's own (beyond what it was fed, beyond the context); FRT_ERR_UNSUPPORTED
  // for a mask or a bias where the model takes none; FRT_ERR_INVALID_ARGUMENT for a bias that names
  // a token twice. Nothing is submitted then.
  uint64_t submit_prefill(uint32_t slot, int32_t position, std::span<const int32_t> tokens,
                          bool starts, const frt_sampling_params* sampling = nullptr,
                          const uint32_t* mask = nullptr, frt_buffer logits = nullptr,
                          std::span<const frt_logit_bias> bias = {});
  // Feeds one token of each of 1 .. max_batch sequences with distinct slots. Throws as above.
  uint64_t submit_decode(std::span<const Entry> entries);

  // Drafts tokens for 1 .. max_batch sequences with distinct slots, and feeds each sequence its
  // pending token and the drafts that decode steps would have sampled: the same tokens and state,
  // bit for bit. The largest number of drafts is 1 .. LmModel::most_drafts(). Its results are those
  // of sampled(). Throws as above.
  // Where an entry has a mask and drafts, it waits for the drafts and asks `mask_drafts`.
  uint64_t submit_round(std::span<const RoundEntry> entries, const MaskDrafts& mask_drafts = {});

  // Tokens that one submit_known() takes: the rows of a verify replay, or one.
  uint32_t most_known() const;
  // Feeds 1 .. most_known() tokens of one sequence as that many decode steps would, bit for bit,
  // whatever would have been sampled. The logits behind each go to `logits`: pinned, f32 (tokens,
  // vocabulary). sampled() has one token for each that was fed, which is nobody's text. Throws as
  // above.
  uint64_t submit_known(uint32_t slot, int32_t position, std::span<const int32_t> tokens,
                        frt_buffer logits);

  // Of entry `entry` of a step, after wait().
  Sampled sampled(uint64_t ticket, uint32_t entry) const;
  // Waits for a step; its sampled tokens, one per entry.
  std::span<const int32_t> wait(uint64_t ticket);
  // Natural logarithms of their probabilities; after wait().
  std::span<const float> log_probabilities(uint64_t ticket) const;

 private:
  // The pinned memory of one step.
  struct Place {
    Buffer input;   // frt_sampling_params (max_batch) | i32: tokens (token_capacity) | slots |
                    // positions | lengths | starts (u32) (max_batch each), with drafts stops
                    // (max_batch, stop_capacity)
    Buffer masks;   // u32 (rows, mask_words)
    Buffer biases;  // frt_logit_bias (max_batch, bias_capacity)
    Buffer output;  // i32 next tokens (rows) | f32 log probabilities (rows) | i32 accepted
                    // (max_batch), with drafts candidates (max_rows)
    Event done;
    uint32_t entries = 0;
    uint32_t rows = 1;  // of an entry in the output
  };

  void check_step(const char* step, uint64_t count, uint64_t most, uint32_t slot,
                  int32_t first) const;
  void check_mask(const uint32_t* mask) const;
  void check_bias(uint32_t entry, std::span<const frt_logit_bias> bias);
  bool holds_bias(uint32_t entry, std::span<const frt_logit_bias> bias) const;  // at its begin
  Place& take();
  // `replays`, the download of outputs_ and the event of `place`. Where one fails, the stream is
  // waited for: no event would say when the device has read the place, which the next step gets.
  template <class Replays>
  void submit_guarded(Place& place, const Replays& replays) {
    try {
      replays();
      Recorder(stream_).copy_batch(outputs_);
      place.done.record(stream_.handle());
    } catch (...) {
      model_.context().table().stream_sync(stream_.handle());
      throw;
    }
  }
  int32_t* words(const Place& place) const;  // the i32 inputs
  void stage_sampling(const Place& place, uint32_t entry, const frt_sampling_params* sampling,
                      const uint32_t* mask, std::span<const frt_logit_bias> bias);
  void stage_bias(const Place& place, uint32_t entry, std::span<const frt_logit_bias> bias);
  void stage_mask(const Place& place, uint32_t row, const uint32_t* mask);
  void ask_masks(const Place& place, std::span<const RoundEntry> entries, uint32_t drafts,
                 const MaskDrafts& mask_drafts);
  void stage_logits(uint32_t row, frt_buffer logits);
  void stage_known(const Place& place, std::span<const int32_t> tokens, frt_buffer logits);
  void stage_verify(const Place& place, uint32_t width, uint32_t rows);
  uint64_t rows() const;  // of the output
  void submit_inputs(const Place& place, uint64_t tokens, uint32_t entries);
  void replay(frt_graph graph, frt_shape_key key);
  uint64_t submit(Place& place, frt_graph graph, frt_shape_key key, uint64_t tokens,
                  uint32_t entries);
  const Place& place_of(uint64_t ticket) const;

  const LmModel& model_;
  Stream stream_;
  std::vector<Place> places_;
  std::vector<frt_sampling_params> sampling_;  // of entries whose step does not say
  // What the model's port holds behind the last step; nothing: not known.
  std::vector<std::optional<frt_sampling_params>> held_sampling_;
  std::vector<std::vector<frt_logit_bias>> held_bias_;  // of each entry; empty: not known
  std::vector<int32_t> bias_ids_;                       // for check_bias; has room
  std::vector<frt_copy> inputs_, masks_, outputs_;      // of the step that is being submitted
  uint64_t next_ticket_ = 0;
};

}  // namespace frt::host
