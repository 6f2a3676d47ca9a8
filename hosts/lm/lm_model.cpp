// SPDX-License-Identifier: Apache-2.0
#include "lm/lm_model.hpp"

#include <algorithm>
#include <frt/reading.hpp>
#include <frt/role/contracts.hpp>
#include <frt/sender.hpp>
#include <limits>

namespace frt::host {

LmModel::LmModel(const Context& context, const frt_state_v1* states,
                 const frt_capsules_v1* capsules, const frt_model_v1* table, frt_model model,
                 const std::string& name, const std::string& plugin)
    : TextModel(*table, model, name, model_sender(name, plugin)),
      context_(context),
      states_(states),
      capsules_(capsules) {
  const auto role = find_extension<frt_role_lm_v1>(*table, model, FRT_EXT_ROLE_LM, sender());
  if (!role) {
    throw Error(FRT_ERR_UNSUPPORTED,
                sender() + " is no language model (it offers no " + FRT_EXT_ROLE_LM +
                    "); choose another model; one without a role is driven by a program that knows "
                    "it, and `frt-host verify` runs its frt.selftest/1");
  }
  role_ = *role;
  capsule_ = find_extension<frt_capsule_v1>(*table, model, FRT_EXT_CAPSULE, sender());
  info_ = ask<frt_lm_info>(sender(), [&](frt_lm_info* out) { return role_.info(handle(), out); });
  check_info();
}

// Everything is sized by these numbers, so none is believed: what a buffer must hold is compared
// with what it has, the small ones first, so that no later product overflows.
void LmModel::check_info() const {
  const std::string& sender = this->sender();
  const auto limit = [&](const char* name, uint64_t value, uint64_t least) {
    require_range(sender, name, value, least, std::numeric_limits<int32_t>::max());
  };
  limit("vocabulary", info_.vocabulary, 1);
  limit("max_context", info_.max_context, 1);
  limit("slots", info_.slots, 1);
  limit("prefill_chunk", info_.prefill_chunk, 1);
  limit("max_batch", info_.max_batch, 1);
  if (info_.experts != 0) limit("experts_per_token", info_.experts_per_token, 1);
  require_range(sender, "experts_per_token", info_.experts_per_token, 0, info_.experts);
  if (info_.has_draft && (!info_.draft || !role_.draft_key)) {
    throw Error(FRT_ERR_MISMATCH, sender + ": its role says has_draft, but has no " +
                                      (info_.draft ? "draft_key" : "graph draft") +
                                      "; the plugin is broken");
  }
  if (info_.mask) limit("mask_words", info_.mask_words, (info_.vocabulary - 1) / 32 + 1);
  const auto room = [&](const char* port, frt_buffer buffer, uint64_t rows, uint64_t bytes) {
    require_room(context_, sender, port, buffer, array_bytes(sender, port, {rows, bytes}));
  };
  const uint64_t batch = info_.max_batch;
  const uint64_t rows = std::max<uint64_t>(batch, info_.max_rows);
  room("tokens", info_.tokens, std::max<uint64_t>(info_.prefill_chunk, batch), sizeof(int32_t));
  room("slot_ids", info_.slot_ids, batch, sizeof(int32_t));
  room("positions", info_.positions, batch, sizeof(int32_t));
  room("lengths", info_.lengths, batch, sizeof(int32_t));
  room("starts", info_.starts, batch, sizeof(uint32_t));
  room("sampling", info_.sampling, batch, sizeof(frt_sampling_params));
  room("next_tokens", info_.next_tokens, rows, sizeof(int32_t));
  room("log_probabilities", info_.log_probabilities, rows, sizeof(float));
  room("mask", info_.mask, rows, info_.mask_words * sizeof(uint32_t));
  if (info_.bias) {
    constexpr uint32_t kMostBiases = 1u << 20;
    require_range(sender, "bias_capacity", info_.bias_capacity, 1, kMostBiases);
    room("bias", info_.bias, batch, info_.bias_capacity * sizeof(frt_logit_bias));
  }
  room("logits", info_.logits, rows, uint64_t{info_.vocabulary} * sizeof(float));
  check_drafts();
  frt_state_info arena{};
  arena.struct_size = sizeof(arena);
  check(states_->state_info(info_.state, &arena), sender + ": state_info");
  if (arena.slots >= info_.slots) return;
  throw Error(FRT_ERR_MISMATCH, sender + ": its role says slots = " + std::to_string(info_.slots) +
                                    ", its arena has " + std::to_string(arena.slots));
}

void LmModel::check_drafts() const {
  const bool some = info_.max_drafts != 0 || info_.max_rows != 0 || info_.verify;
  if (!some) return;
  const bool all = info_.has_draft != 0 && info_.max_drafts != 0 && info_.draft && info_.verify &&
                   role_.draft_key && role_.verify_key;
  constexpr uint32_t kMostDrafts = 64;
  if (!all || info_.max_drafts > kMostDrafts ||
      info_.max_rows > kMostDrafts * uint64_t{info_.max_batch}) {
    throw Error(FRT_ERR_MISMATCH,
                sender() +
                    ": its frt_lm_info says max_drafts = " + std::to_string(info_.max_drafts) +
                    ", max_rows = " + std::to_string(info_.max_rows) +
                    "; drafts need has_draft, the graphs draft and verify, their keys, and at "
                    "most 64 drafts");
  }
  const auto room = [&](const char* port, frt_buffer buffer, uint64_t count) {
    require_room(context_, sender(), port, buffer, count * sizeof(int32_t));
  };
  room("candidates", info_.candidates, info_.max_rows);
  constexpr uint32_t kMostStops = 4096;
  require_range(sender(), "stop_capacity", info_.stop_capacity, 0, kMostStops);
  if (info_.stop_capacity > 0 && !info_.stops) {
    throw Error(FRT_ERR_MISMATCH, sender() +
                                      ": its role says stop_capacity, but has no buffer "
                                      "stops; the plugin is broken");
  }
  room("stops", info_.stops, uint64_t{info_.max_batch} * info_.stop_capacity);
  room("accepted", info_.accepted, info_.max_batch);
}

uint32_t LmModel::most_drafts(uint32_t batch) const {
  for (uint32_t drafts = info_.max_drafts; drafts > 0; --drafts) {
    frt_shape_key key = 0;
    uint32_t entries = 0;
    const frt_status status = role_.verify_key(handle(), batch, drafts + 1, &key, &entries);
    if (status == FRT_ERR_OUT_OF_RANGE) continue;
    check(status, sender() + ": a check of drafts");
    if (entries < batch || entries > info_.max_batch ||
        uint64_t{entries} * (drafts + 1) > info_.max_rows) {
      throw Error(FRT_ERR_MISMATCH, sender() + ": a check of " + std::to_string(drafts) +
                                        " drafts of " + std::to_string(batch) + " sequences has " +
                                        std::to_string(entries) + " entries");
    }
    return drafts;
  }
  return 0;
}

std::vector<uint32_t> LmModel::most_drafts() const {
  std::vector<uint32_t> most;
  if (info_.max_drafts == 0) return most;
  most.push_back(0);
  for (uint32_t batch = 1; batch <= info_.max_batch; ++batch) most.push_back(most_drafts(batch));
  return most;
}

frt_shape_key LmModel::draft_key(uint32_t batch, uint32_t drafts, uint32_t& entries) const {
  frt_shape_key key = 0;
  const frt_status status = role_.draft_key(handle(), batch, drafts, &key, &entries);
  if (status != FRT_OK) {
    check(status, sender() + ": " + std::to_string(drafts) + " drafts of " + std::to_string(batch) +
                      " sequences");
  }
  return key;
}

frt_shape_key LmModel::verify_key(uint32_t batch, uint32_t drafts, uint32_t& entries) const {
  frt_shape_key key = 0;
  const frt_status status = role_.verify_key(handle(), batch, drafts + 1, &key, &entries);
  if (status != FRT_OK) {
    check(status, sender() + ": a check of " + std::to_string(drafts) + " drafts of " +
                      std::to_string(batch) + " sequences");
  }
  return key;
}

frt_shape_key LmModel::prefill_key(uint32_t rows) const {
  frt_shape_key key = 0;
  const frt_status status = role_.prefill_key(handle(), rows, &key);
  if (status != FRT_OK) {
    check(status, sender() + ": prefill of " + std::to_string(rows) + " tokens");
  }
  return key;
}

frt_shape_key LmModel::decode_key(uint32_t batch, uint32_t& entries) const {
  frt_shape_key key = 0;
  const frt_status status = role_.decode_key(handle(), batch, &key, &entries);
  if (status != FRT_OK) {
    check(status, sender() + ": decode of " + std::to_string(batch) + " sequences");
  }
  if (entries < batch || entries > info_.max_batch) {
    throw Error(FRT_ERR_MISMATCH, sender() + ": its decode_key for " + std::to_string(batch) +
                                      " sequences says that the variant has " +
                                      std::to_string(entries) + " entries; it must be " +
                                      std::to_string(batch) +
                                      " to max_batch = " + std::to_string(info_.max_batch));
  }
  return key;
}

std::optional<frt_capsule_layout> LmModel::capsule_layout() const {
  if (!capsule_) return std::nullopt;
  return read_layout(*capsule_, handle(), sender());
}

void LmModel::check_ids(std::span<const int32_t> ids, const char* what) const {
  const auto outside = std::find_if(ids.begin(), ids.end(), [&](int32_t id) {
    return id < 0 || static_cast<uint32_t>(id) >= info_.vocabulary;
  });
  if (outside == ids.end()) return;
  throw Error(FRT_ERR_INVALID_ARGUMENT, std::string(what) + " " +
                                            std::to_string(outside - ids.begin()) + " is id " +
                                            std::to_string(*outside) + "; ids of model '" + name() +
                                            "' are 0 .. " + std::to_string(info_.vocabulary - 1));
}

frt_state_info LmModel::state_info() const {
  frt_state_info info{};
  info.struct_size = sizeof(info);
  const frt_status status = states_->state_info(info_.state, &info);
  if (status != FRT_OK) check(status, "model '" + name() + "': state_info");
  return info;
}

void LmModel::clear_slot(uint32_t slot, const Stream& stream) const {
  context_.checked(states_->state_clear(info_.state, slot, stream.handle()), "state_clear");
}

void LmModel::reserve_rows(uint32_t slot, uint64_t first, uint64_t end,
                           const Stream& stream) const {
  context_.checked(states_->state_reserve(info_.state, slot, first, end, stream.handle()),
                   "state_reserve");
}

std::vector<int32_t> LmModel::encode(std::string_view text, uint32_t flags) const {
  return encode_text(text, flags, info_.max_context);
}

std::vector<int32_t> LmModel::encode(const ChatPrompt& prompt) const {
  return encode_prompt(prompt, info_.max_context);
}

std::vector<int32_t> LmModel::encode(const ChatPrompt& prompt, uint64_t max_tokens) const {
  return encode_prompt(prompt, max_tokens);
}

}  // namespace frt::host
