// SPDX-License-Identifier: Apache-2.0
// Rounds of drafts: a draft replay leaves its candidates on the device, and a verify replay of the
// same entries feeds them. Both read the same inputs, so a round is two copies and two replays.
// Where masks depend on the drafts, the drafts come to the host between the two, and the masks and
// the lengths, shorter where a grammar rules a draft out, go back.
//
// Known tokens are a verify replay without a draft replay: they are the candidates, and the mask of
// each row lets the next one come alone, so all of them are accepted.
#include <algorithm>
#include <cstring>
#include <string>

#include "lm/step_runner.hpp"

namespace frt::host {
namespace {

// Greedy, of the logits as they are.
frt_sampling_params plain_sampling() {
  frt_sampling_params params{};
  params.top_p = params.repetition_penalty = 1;
  return params;
}

}  // namespace

// Of the drafts that the stream has so far.
void StepRunner::ask_masks(const Place& place, std::span<const RoundEntry> entries, uint32_t drafts,
                           const MaskDrafts& mask_drafts) {
  const frt_lm_info& info = model_.info();
  const uint64_t candidates_at = (2 * rows() + info.max_batch) * sizeof(int32_t);
  const uint64_t lengths_at =
      info.max_batch * sizeof(frt_sampling_params) +
      (std::max(info.prefill_chunk, info.max_batch) + uint64_t{2} * info.max_batch) *
          sizeof(int32_t);
  const uint64_t stride = uint64_t{drafts} + 1;
  const frt_copy download = {place.output, candidates_at, info.candidates, 0,
                             entries.size() * stride * sizeof(int32_t)};
  Recorder(stream_).copy_batch({&download, 1});
  place.done.record(stream_.handle());
  place.done.sync();
  const auto* candidates =
      reinterpret_cast<const int32_t*>(place.output.pointer<std::byte>() + candidates_at);
  auto* lengths = reinterpret_cast<int32_t*>(place.input.pointer<std::byte>() + lengths_at);
  inputs_.clear();
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const RoundEntry& entry = entries[i];
    if (!entry.mask || entry.drafts == 0) continue;
    const uint64_t row = i * stride + 1, words = info.mask_words;
    const uint32_t fed =
        mask_drafts(static_cast<uint32_t>(i), {candidates + row, entry.drafts},
                    {place.masks.pointer<uint32_t>() + row * words, entry.drafts * words});
    lengths[i] = static_cast<int32_t>(std::min(fed, entry.drafts)) + 1;
    if (fed == 0) continue;
    const uint64_t at = row * words * sizeof(uint32_t);
    inputs_.push_back({info.mask, at, place.masks, at, fed * words * sizeof(uint32_t)});
  }
  inputs_.push_back({info.lengths, 0, place.input, lengths_at, entries.size() * sizeof(int32_t)});
  Recorder(stream_).copy_batch(inputs_);
}

uint64_t StepRunner::submit_round(std::span<const RoundEntry> entries,
                                  const MaskDrafts& mask_drafts) {
  const frt_lm_info& info = model_.info();
  uint32_t drafts = 0, index = 0;
  bool masked = false;  // masks depend on drafts
  for (const RoundEntry& entry : entries) {
    check_step("decode", entries.size(), info.max_batch, entry.slot, entry.position);
    check_mask(entry.mask);
    check_bias(index++, entry.bias);
    const bool fits = entry.drafts <= info.max_drafts && entry.stops.size() <= info.stop_capacity &&
                      static_cast<uint64_t>(entry.position) + entry.drafts < info.max_context;
    if (!fits) {
      throw Error(FRT_ERR_OUT_OF_RANGE,
                  "a round of " + std::to_string(entry.drafts) + " drafts at position " +
                      std::to_string(entry.position) + " with " +
                      std::to_string(entry.stops.size()) + " stops; model '" + model_.name() +
                      "' has max_drafts = " + std::to_string(info.max_drafts) +
                      ", stop_capacity = " + std::to_string(info.stop_capacity) +
                      " and max_context = " + std::to_string(info.max_context));
    }
    drafts = std::max(drafts, entry.drafts);
    masked = masked || (entry.mask && entry.drafts > 0);
  }
  if (masked && !mask_drafts) {
    throw Error(FRT_ERR_INVALID_ARGUMENT,
                "a round has drafts of an entry with a mask; give mask_drafts, which says what may "
                "follow them");
  }
  uint32_t width = 0;
  const auto batch = static_cast<uint32_t>(entries.size());
  const frt_shape_key draft = model_.draft_key(batch, drafts, width);
  const frt_shape_key verify = model_.verify_key(batch, drafts, width);
  for (const RoundEntry& entry : entries) {
    const auto first = static_cast<uint64_t>(entry.position);
    model_.reserve_rows(entry.slot, first, first + entry.drafts + 1, stream_);
  }
  Place& place = take();
  int32_t* tokens = words(place);
  int32_t* slots = tokens + std::max(info.prefill_chunk, info.max_batch);
  int32_t* positions = slots + info.max_batch;
  int32_t* lengths = positions + info.max_batch;
  int32_t* starts = lengths + info.max_batch;
  int32_t* stops = starts + info.max_batch;
  std::fill_n(stops, uint64_t{width} * info.stop_capacity, -1);
  for (uint32_t i = 0; i < width; ++i) {
    const bool active = i < batch;
    tokens[i] = active ? -1 : 0;
    slots[i] = active ? static_cast<int32_t>(entries[i].slot) : 0;
    positions[i] = active ? entries[i].position : 0;
    lengths[i] = active ? static_cast<int32_t>(entries[i].drafts) + 1 : 0;
    starts[i] = 0;
    if (!active) continue;
    std::copy(entries[i].stops.begin(), entries[i].stops.end(), stops + i * info.stop_capacity);
    stage_sampling(place, i, entries[i].sampling, entries[i].mask, entries[i].bias);
    stage_mask(place, i * (drafts + 1), entries[i].mask);
    stage_logits(i * (drafts + 1), entries[i].logits);
  }
  stage_verify(place, width, drafts + 1);
  submit_inputs(place, width, width);
  submit_guarded(place, [&] {
    replay(info.draft, draft);
    if (masked) ask_masks(place, entries, drafts, mask_drafts);
    replay(info.verify, verify);
  });
  place.entries = batch;
  place.rows = drafts + 1;
  return next_ticket_++;
}

// What a verify replay takes and gives beside a decode replay.
void StepRunner::stage_verify(const Place& place, uint32_t width, uint32_t rows_of_entry) {
  const frt_lm_info& info = model_.info();
  const uint64_t word = sizeof(int32_t);
  const uint64_t stops_at =
      info.max_batch * sizeof(frt_sampling_params) +
      (std::max(info.prefill_chunk, info.max_batch) + uint64_t{4} * info.max_batch) * word;
  if (info.stop_capacity > 0) {
    inputs_.push_back(
        {info.stops, 0, place.input, stops_at, uint64_t{width} * info.stop_capacity * word});
  }
  const uint64_t drawn = uint64_t{width} * rows_of_entry;
  outputs_.push_back({place.output, 0, info.next_tokens, 0, drawn * word});
  outputs_.push_back(
      {place.output, rows() * word, info.log_probabilities, 0, drawn * sizeof(float)});
  outputs_.push_back({place.output, 2 * rows() * word, info.accepted, 0, width * word});
}

uint32_t StepRunner::most_known() const {
  const frt_lm_info& info = model_.info();
  if (!info.mask || info.max_drafts == 0) return 1;
  return std::min<uint32_t>(model_.most_drafts(1) + 1,
                            std::max(info.prefill_chunk, info.max_batch));
}

// The tokens as candidates, and masks that let nothing else come; behind the last one, anything.
void StepRunner::stage_known(const Place& place, std::span<const int32_t> tokens,
                             frt_buffer logits) {
  const frt_lm_info& info = model_.info();
  static const frt_sampling_params kPlain = plain_sampling();
  auto* masks = place.masks.pointer<uint32_t>();
  std::memset(masks, 0, tokens.size() * info.mask_words * sizeof(*masks));
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const auto next = static_cast<uint32_t>(tokens[std::min(i + 1, tokens.size() - 1)]);
    masks[i * info.mask_words + next / 32] |= 1U << (next % 32);
  }
  stage_sampling(place, 0, &kPlain, masks, {});
  masks_.push_back(
      {info.mask, 0, place.masks, 0, tokens.size() * info.mask_words * sizeof(*masks)});
  inputs_.push_back({info.candidates, 0, place.input, info.max_batch * sizeof(frt_sampling_params),
                     tokens.size_bytes()});
  outputs_.push_back({logits, 0, info.logits, 0, tokens.size() * info.vocabulary * sizeof(float)});
}

uint64_t StepRunner::submit_known(uint32_t slot, int32_t position, std::span<const int32_t> tokens,
                                  frt_buffer logits) {
  const frt_lm_info& info = model_.info();
  check_step("verify", tokens.size(), most_known(), slot, position);
  if (tokens.size() == 1) {
    static const frt_sampling_params kPlain = plain_sampling();
    const Entry entry{.slot = slot,
                      .position = position,
                      .token = tokens[0],
                      .sampling = &kPlain,
                      .logits = logits};
    return submit_decode({&entry, 1});
  }
  const auto first = static_cast<uint64_t>(position);
  const auto count = static_cast<uint32_t>(tokens.size());
  if (first + count > info.max_context) {
    throw Error(FRT_ERR_OUT_OF_RANGE,
                std::to_string(count) + " tokens at position " + std::to_string(position) +
                    "; model '" + model_.name() +
                    "' has max_context = " + std::to_string(info.max_context));
  }
  model_.check_ids(tokens, "token");
  uint32_t width = 0;
  const frt_shape_key verify = model_.verify_key(1, count - 1, width);
  model_.reserve_rows(slot, first, first + count, stream_);
  Place& place = take();
  int32_t* input = words(place);
  int32_t* slots = input + std::max(info.prefill_chunk, info.max_batch);
  std::copy(tokens.begin(), tokens.end(), input);
  std::fill_n(slots, uint64_t{4} * info.max_batch, 0);
  std::fill_n(slots + uint64_t{4} * info.max_batch, uint64_t{width} * info.stop_capacity, -1);
  slots[0] = static_cast<int32_t>(slot);
  slots[info.max_batch] = position;
  slots[2 * info.max_batch] = static_cast<int32_t>(count);
  stage_known(place, tokens, logits);
  stage_verify(place, width, count);
  submit_inputs(place, count, width);
  submit_guarded(place, [&] { replay(info.verify, verify); });
  place.entries = 1;
  place.rows = count;
  return next_ticket_++;
}

StepRunner::Sampled StepRunner::sampled(uint64_t ticket, uint32_t entry) const {
  const Place& place = place_of(ticket);
  const auto* tokens = place.output.pointer<int32_t>();
  const auto* probabilities = reinterpret_cast<const float*>(tokens + rows());
  std::size_t count = 1;
  if (place.rows > 1) {
    const int32_t accepted = tokens[2 * rows() + entry];
    count +=
        static_cast<std::size_t>(std::clamp(accepted, 0, static_cast<int32_t>(place.rows) - 1));
  }
  const std::size_t first = std::size_t{entry} * place.rows;
  return {{tokens + first, count}, {probabilities + first, count}};
}

}  // namespace frt::host
