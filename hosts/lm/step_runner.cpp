// SPDX-License-Identifier: Apache-2.0
// A ring of kDepth places. Ticket t uses place t % kDepth, after the event of ticket t - kDepth:
// so neither inputs nor outputs of a step in flight are touched by the host.
//
// held_sampling_ and held_bias_ mirror the model's ports, so a step that samples its entries as the
// step before copies nothing more. An entry is forgotten until the copy is submitted: after an
// error nobody knows what the port holds.
#include "lm/step_runner.hpp"

#include <algorithm>
#include <cstring>
#include <string>

namespace frt::host {
namespace {

constexpr std::size_t kInputs = 6;   // of a step, its sampling apart
constexpr std::size_t kOutputs = 3;  // logits apart

// Bytes of an entry of `bias`.
uint64_t bias_stride(const frt_lm_info& info) {
  return info.bias_capacity * sizeof(frt_logit_bias);
}

}  // namespace

StepRunner::StepRunner(const LmModel& model) : model_(model) {
  const Context& context = model.context();
  const frt_lm_info& info = model.info();
  stream_ = context.create_stream("lm." + model.name());
  const uint64_t token_capacity = std::max(info.prefill_chunk, info.max_batch);
  const uint64_t entry_words = 4 + (info.max_drafts > 0 ? info.stop_capacity : 0);
  const uint64_t input_bytes = info.max_batch * sizeof(frt_sampling_params) +
                               (token_capacity + entry_words * info.max_batch) * sizeof(int32_t);
  const uint64_t mask_bytes = rows() * info.mask_words * sizeof(uint32_t);
  const uint64_t bias_bytes = info.max_batch * bias_stride(info);
  const uint64_t output_bytes = rows() * (sizeof(int32_t) + sizeof(float)) +
                                (uint64_t{info.max_batch} + info.max_rows) * sizeof(int32_t);
  for (uint64_t i = 0; i < kDepth; ++i) {
    const std::string name = "lm." + model.name() + ".step" + std::to_string(i);
    places_.push_back(
        {.input = context.alloc(FRT_SPACE_HOST_PINNED, input_bytes, name + ".input"),
         .masks = info.mask ? context.alloc(FRT_SPACE_HOST_PINNED, mask_bytes, name + ".masks")
                            : Buffer(),
         .biases = info.bias ? context.alloc(FRT_SPACE_HOST_PINNED, bias_bytes, name + ".biases")
                             : Buffer(),
         .output = context.alloc(FRT_SPACE_HOST_PINNED, output_bytes, name + ".output"),
         .done = context.create_event()});
  }
  held_sampling_.resize(info.max_batch);
  held_bias_.resize(info.bias ? info.max_batch : 0);
  for (std::vector<frt_logit_bias>& held : held_bias_) held.reserve(info.bias_capacity);
  bias_ids_.reserve(info.bias ? info.bias_capacity : 0);
  inputs_.reserve(kInputs + 2 * info.max_batch + rows());
  masks_.reserve(rows());
  outputs_.reserve(kOutputs + info.max_batch);
}

void StepRunner::set_sampling(std::span<const frt_sampling_params> params) {
  if (params.size() > model_.info().max_batch) {
    throw Error(FRT_ERR_OUT_OF_RANGE, "sampling for " + std::to_string(params.size()) +
                                          " entries, but the model has max_batch = " +
                                          std::to_string(model_.info().max_batch));
  }
  sampling_.assign(params.begin(), params.end());
  std::fill(held_sampling_.begin(), held_sampling_.end(), std::nullopt);
  for (std::vector<frt_logit_bias>& held : held_bias_) held.clear();
}

// Adds the copy that brings entry `entry` of the port up to date, if it is not; entries come in
// order.
void StepRunner::stage_sampling(const Place& place, uint32_t entry,
                                const frt_sampling_params* sampling, const uint32_t* mask,
                                std::span<const frt_logit_bias> bias) {
  stage_bias(place, entry, bias);
  if (!sampling) {
    if (entry >= sampling_.size()) return;
    sampling = &sampling_[entry];
  }
  frt_sampling_params wanted = *sampling;
  if (mask) wanted.use_mask = 1;
  wanted.bias_count = static_cast<uint32_t>(bias.size());
  std::optional<frt_sampling_params>& held = held_sampling_[entry];
  if (held && std::memcmp(&*held, &wanted, sizeof(wanted)) == 0) return;
  place.input.pointer<frt_sampling_params>()[entry] = wanted;
  held.reset();
  const uint64_t at = entry * sizeof(wanted);
  frt_copy* last = inputs_.empty() ? nullptr : &inputs_.back();
  const bool follows = last && last->target == model_.info().sampling;
  if (follows && last->target_offset + last->bytes == at) {
    last->bytes += sizeof(wanted);
  } else {
    inputs_.push_back({model_.info().sampling, at, place.input, at, sizeof(wanted)});
  }
}

bool StepRunner::holds_bias(uint32_t entry, std::span<const frt_logit_bias> bias) const {
  const std::vector<frt_logit_bias>& held = held_bias_[entry];
  return held.size() >= bias.size() &&
         std::memcmp(held.data(), bias.data(), bias.size_bytes()) == 0;
}

void StepRunner::stage_bias(const Place& place, uint32_t entry,
                            std::span<const frt_logit_bias> bias) {
  if (bias.empty()) return;
  if (holds_bias(entry, bias)) return;
  held_bias_[entry].clear();
  const uint64_t at = entry * bias_stride(model_.info());
  std::memcpy(place.biases.pointer<std::byte>() + at, bias.data(), bias.size_bytes());
  inputs_.push_back({model_.info().bias, at, place.biases, at, bias.size_bytes()});
}

// What the model's port holds was checked when it went there.
void StepRunner::check_bias(uint32_t entry, std::span<const frt_logit_bias> bias) {
  if (bias.empty()) return;
  if (!model_.info().bias) {
    throw Error(FRT_ERR_UNSUPPORTED, "model '" + model_.name() + "' takes no bias");
  }
  if (bias.size() > model_.info().bias_capacity) {
    throw Error(FRT_ERR_OUT_OF_RANGE, "a bias of " + std::to_string(bias.size()) +
                                          " tokens; model '" + model_.name() + "' takes at most " +
                                          std::to_string(model_.info().bias_capacity));
  }
  if (holds_bias(entry, bias)) return;
  bias_ids_.clear();
  for (const frt_logit_bias& one : bias) bias_ids_.push_back(one.id);
  std::sort(bias_ids_.begin(), bias_ids_.end());
  const auto twice = std::adjacent_find(bias_ids_.begin(), bias_ids_.end());
  if (twice == bias_ids_.end()) return;
  throw Error(FRT_ERR_INVALID_ARGUMENT,
              "a bias names token " + std::to_string(*twice) + " twice; give one value for it");
}

void StepRunner::check_mask(const uint32_t* mask) const {
  if (!mask || model_.info().mask) return;
  throw Error(FRT_ERR_UNSUPPORTED, "model '" + model_.name() + "' takes no masks");
}

// Rows come in order.
void StepRunner::stage_mask(const Place& place, uint32_t row, const uint32_t* mask) {
  if (!mask) return;
  const frt_lm_info& info = model_.info();
  const uint64_t bytes = info.mask_words * sizeof(*mask), at = row * bytes;
  std::memcpy(place.masks.pointer<std::byte>() + at, mask, bytes);
  frt_copy* last = masks_.empty() ? nullptr : &masks_.back();
  if (last && last->target_offset + last->bytes == at) {
    last->bytes += bytes;
  } else {
    masks_.push_back({info.mask, at, place.masks, at, bytes});
  }
}

void StepRunner::stage_logits(uint32_t row, frt_buffer logits) {
  if (!logits) return;
  const uint64_t bytes = model_.info().vocabulary * sizeof(float);
  outputs_.push_back({logits, 0, model_.info().logits, row * bytes, bytes});
}

int32_t* StepRunner::words(const Place& place) const {
  return reinterpret_cast<int32_t*>(place.input.pointer<frt_sampling_params>() +
                                    model_.info().max_batch);
}

void StepRunner::clear(uint32_t slot) {
  model_.clear_slot(slot, stream_);
}

StepRunner::Place& StepRunner::take() {
  Place& place = places_[next_ticket_ % kDepth];
  if (next_ticket_ >= kDepth) place.done.sync();
  inputs_.clear();
  masks_.clear();
  outputs_.clear();
  return place;
}

uint64_t StepRunner::rows() const {
  return std::max(model_.info().max_batch, model_.info().max_rows);
}

// The copies of sampling stand in inputs_ already, and others may.
void StepRunner::submit_inputs(const Place& place, uint64_t tokens, uint32_t entries) {
  const frt_lm_info& info = model_.info();
  const uint64_t token_capacity = std::max(info.prefill_chunk, info.max_batch);
  const uint64_t word = sizeof(int32_t);
  const uint64_t tokens_at = info.max_batch * sizeof(frt_sampling_params);
  const uint64_t slots_at = tokens_at + token_capacity * word;
  const uint64_t batch_bytes = info.max_batch * word;
  const frt_buffer input = place.input;
  const std::size_t others = inputs_.size();
  inputs_.push_back({info.tokens, 0, input, tokens_at, tokens * word});
  inputs_.push_back({info.slot_ids, 0, input, slots_at, entries * word});
  inputs_.push_back({info.positions, 0, input, slots_at + batch_bytes, entries * word});
  inputs_.push_back({info.lengths, 0, input, slots_at + 2 * batch_bytes, entries * word});
  inputs_.push_back({info.starts, 0, input, slots_at + 3 * batch_bytes, entries * word});
  inputs_.insert(inputs_.end(), masks_.begin(), masks_.end());
  Recorder(stream_).copy_batch(inputs_);
  for (std::size_t i = 0; i < others; ++i) {
    if (inputs_[i].target == info.bias) {
      const auto* bias = reinterpret_cast<const frt_logit_bias*>(place.biases.pointer<std::byte>() +
                                                                 inputs_[i].target_offset);
      held_bias_[inputs_[i].target_offset / bias_stride(info)].assign(
          bias, bias + inputs_[i].bytes / sizeof(*bias));
      continue;
    }
    if (inputs_[i].target != info.sampling) continue;
    const auto* params = place.input.pointer<frt_sampling_params>();
    const uint64_t first = inputs_[i].target_offset / sizeof(*params);
    for (uint64_t entry = first; entry < first + inputs_[i].bytes / sizeof(*params); ++entry) {
      held_sampling_[entry] = params[entry];
    }
  }
}

void StepRunner::replay(frt_graph graph, frt_shape_key key) {
  const Context& context = model_.context();
  context.checked(context.table().graph_replay(graph, key, stream_.handle()), "graph_replay");
}

uint64_t StepRunner::submit(Place& place, frt_graph graph, frt_shape_key key, uint64_t tokens,
                            uint32_t entries) {
  const frt_lm_info& info = model_.info();
  const uint64_t word = sizeof(int32_t);
  outputs_.push_back({place.output, 0, info.next_tokens, 0, entries * word});
  outputs_.push_back(
      {place.output, rows() * word, info.log_probabilities, 0, entries * sizeof(float)});
  submit_inputs(place, tokens, entries);
  submit_guarded(place, [&] { replay(graph, key); });
  place.entries = entries;
  place.rows = 1;
  return next_ticket_++;
}

// `first` tokens are fed; `count` more of at most `most` follow.
void StepRunner::check_step(const char* step, uint64_t count, uint64_t most, uint32_t slot,
                            int32_t first) const {
  const frt_lm_info& info = model_.info();
  const bool fits = count > 0 && count <= most && slot < info.slots && first >= 0 &&
                    static_cast<uint64_t>(first) < info.max_context;
  if (fits) return;
  throw Error(FRT_ERR_OUT_OF_RANGE,
              std::string("a ") + step + " step of " + std::to_string(count) + " at position " +
                  std::to_string(first) + " of slot " + std::to_string(slot) + "; model '" +
                  model_.name() + "' takes 1 to " + std::to_string(most) + ", has " +
                  std::to_string(info.slots) +
                  " slots and max_context = " + std::to_string(info.max_context));
}

uint64_t StepRunner::submit_prefill(uint32_t slot, int32_t position,
                                    std::span<const int32_t> tokens, bool starts,
                                    const frt_sampling_params* sampling, const uint32_t* mask,
                                    frt_buffer logits, std::span<const frt_logit_bias> bias) {
  const frt_lm_info& info = model_.info();
  check_step("prefill", tokens.size(), info.prefill_chunk, slot, position);
  check_mask(mask);
  check_bias(0, bias);
  const frt_shape_key key = model_.prefill_key(static_cast<uint32_t>(tokens.size()));
  const auto first = static_cast<uint64_t>(position);
  model_.reserve_rows(slot, first, first + tokens.size(), stream_);
  Place& place = take();
  stage_sampling(place, 0, sampling, mask, bias);
  stage_mask(place, 0, mask);
  stage_logits(0, logits);
  int32_t* input = words(place);
  std::copy(tokens.begin(), tokens.end(), input);
  int32_t* slots = input + std::max(info.prefill_chunk, info.max_batch);
  slots[0] = static_cast<int32_t>(slot);
  slots[info.max_batch] = position;
  slots[2 * info.max_batch] = static_cast<int32_t>(tokens.size());
  slots[3 * info.max_batch] = starts ? 1 : 0;
  return submit(place, info.prefill, key, tokens.size(), 1);
}

uint64_t StepRunner::submit_decode(std::span<const Entry> entries) {
  const frt_lm_info& info = model_.info();
  uint32_t width = 0, index = 0;
  for (const Entry& entry : entries) {
    check_step("decode", entries.size(), info.max_batch, entry.slot, entry.position);
    check_mask(entry.mask);
    check_bias(index++, entry.bias);
  }
  const frt_shape_key key = model_.decode_key(static_cast<uint32_t>(entries.size()), width);
  for (const Entry& entry : entries) {
    const auto first = static_cast<uint64_t>(entry.position);
    model_.reserve_rows(entry.slot, first, first + 1, stream_);
  }
  Place& place = take();
  int32_t* tokens = words(place);
  int32_t* slots = tokens + std::max(info.prefill_chunk, info.max_batch);
  int32_t* positions = slots + info.max_batch;
  int32_t* lengths = positions + info.max_batch;
  int32_t* starts = lengths + info.max_batch;
  for (uint32_t i = 0; i < width; ++i) {
    const bool active = i < entries.size();
    tokens[i] = active ? entries[i].token : 0;
    slots[i] = active ? static_cast<int32_t>(entries[i].slot) : 0;
    positions[i] = active ? entries[i].position : 0;
    lengths[i] = active ? 1 : 0;
    starts[i] = active && entries[i].starts ? 1 : 0;
    if (!active) continue;
    stage_sampling(place, i, entries[i].sampling, entries[i].mask, entries[i].bias);
    stage_mask(place, i, entries[i].mask);
    stage_logits(i, entries[i].logits);
  }
  const uint64_t ticket = submit(place, info.decode, key, width, width);
  place.entries = static_cast<uint32_t>(entries.size());
  return ticket;
}

const StepRunner::Place& StepRunner::place_of(uint64_t ticket) const {
  if (ticket >= next_ticket_ || ticket + kDepth < next_ticket_) {
    throw Error(FRT_ERR_OUT_OF_RANGE, "step " + std::to_string(ticket) + " is not among the last " +
                                          std::to_string(kDepth) +
                                          " submitted; read results in time");
  }
  return places_[ticket % kDepth];
}

std::span<const int32_t> StepRunner::wait(uint64_t ticket) {
  const Place& place = place_of(ticket);
  place.done.sync();
  return {place.output.pointer<int32_t>(), place.entries};
}

std::span<const float> StepRunner::log_probabilities(uint64_t ticket) const {
  const Place& place = place_of(ticket);
  const auto* floats = reinterpret_cast<const float*>(place.output.pointer<int32_t>() + rows());
  return {floats, place.entries};
}

}  // namespace frt::host
