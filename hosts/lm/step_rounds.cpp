// SPDX-License-Identifier: Apache-2.0
// Rounds of drafts: a draft replay leaves its candidates on the device, and a verify replay of the
// same entries feeds them. Both read the same inputs, so a round is two copies and two replays.
#include <algorithm>
#include <array>
#include <string>

#include "lm/step_runner.hpp"

namespace frt::host {

uint64_t StepRunner::submit_round(std::span<const RoundEntry> entries) {
  const frt_lm_info& info = model_.info();
  uint32_t drafts = 0;
  for (const RoundEntry& entry : entries) {
    check_step("decode", entries.size(), info.max_batch, entry.slot, entry.position);
    check_mask(entry.mask);
    const bool fits = entry.drafts <= (entry.mask ? 0 : info.max_drafts) &&
                      entry.stops.size() <= FRT_LM_STOPS &&
                      static_cast<uint64_t>(entry.position) + entry.drafts < info.max_context;
    if (!fits) {
      throw Error(FRT_ERR_OUT_OF_RANGE,
                  "a round of " + std::to_string(entry.drafts) + " drafts at position " +
                      std::to_string(entry.position) + " with " +
                      std::to_string(entry.stops.size()) + " stops; model '" + model_.name() +
                      "' has max_drafts = " + std::to_string(info.max_drafts) +
                      " and max_context = " + std::to_string(info.max_context));
    }
    drafts = std::max(drafts, entry.drafts);
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
  std::fill_n(stops, uint64_t{width} * FRT_LM_STOPS, -1);
  for (uint32_t i = 0; i < width; ++i) {
    const bool active = i < batch;
    tokens[i] = active ? -1 : 0;
    slots[i] = active ? static_cast<int32_t>(entries[i].slot) : 0;
    positions[i] = active ? entries[i].position : 0;
    lengths[i] = active ? static_cast<int32_t>(entries[i].drafts) + 1 : 0;
    starts[i] = 0;
    if (!active) continue;
    std::copy(entries[i].stops.begin(), entries[i].stops.end(), stops + i * FRT_LM_STOPS);
    stage_sampling(place, i, entries[i].sampling, entries[i].mask);
    stage_mask(place, i * (drafts + 1), entries[i].mask);
  }
  const auto* input = place.input.pointer<std::byte>();
  inputs_.push_back({info.stops, 0, place.input,
                     static_cast<uint64_t>(reinterpret_cast<std::byte*>(stops) - input),
                     uint64_t{width} * FRT_LM_STOPS * sizeof(int32_t)});
  const uint64_t word = sizeof(int32_t);
  const uint64_t drawn = uint64_t{width} * (drafts + 1);
  const std::array outputs = {
      frt_copy{place.output, 0, info.next_tokens, 0, drawn * word},
      frt_copy{place.output, rows() * word, info.log_probabilities, 0, drawn * sizeof(float)},
      frt_copy{place.output, 2 * rows() * word, info.accepted, 0, width * word},
  };
  submit_inputs(place, width, width);
  try {
    replay(info.draft, draft);
    replay(info.verify, verify);
    Recorder(stream_).copy_batch(outputs);
    place.done.record(stream_.handle());
  } catch (...) {
    // No event says when the device has read the place, and the next step gets it.
    model_.context().table().stream_sync(stream_.handle());
    throw;
  }
  place.entries = batch;
  place.rows = drafts + 1;
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
