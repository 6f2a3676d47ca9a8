// SPDX-License-Identifier: Apache-2.0
// lm_model.hpp - a language model as a host sees it: the tables of one frt_model, typed.
//
// The role, and the text functions of text_model.hpp; owns nothing: the model and its context
// outlive it. All members are [any] unless tagged.
#pragma once

#include <frt/model.h>
#include <frt/role/lm.h>
#include <frt/capsule.hpp>
#include <frt/exec.hpp>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lm/text_model.hpp"

namespace frt::host {

class LmModel : public TextModel {
 public:
  // `name` is the user's name of the model and `plugin` the id of its plugin, for messages. Takes
  // checked copies of all its tables. Throws FRT_ERR_UNSUPPORTED if the model does not have the
  // role, FRT_ERR_ABI or FRT_ERR_MISMATCH if what it gives cannot be used.  [setup]
  LmModel(const Context& context, const frt_state_v1* states, const frt_capsules_v1* capsules,
          const frt_model_v1* table, frt_model model, const std::string& name,
          const std::string& plugin = {});

  const Context& context() const noexcept { return context_; }
  const frt_lm_info& info() const noexcept { return info_; }

  // ---- running ----
  frt_shape_key prefill_key(uint32_t rows) const;
  // `entries` becomes the number of entries the variant has: `batch` to max_batch, or
  // FRT_ERR_MISMATCH.
  frt_shape_key decode_key(uint32_t batch, uint32_t& entries) const;
  // Tokens that its draft head proposes at a time for each of `batch` sequences; 0: none.
  uint32_t most_drafts(uint32_t batch) const;
  // The same by `batch`, from 0 (not used) to max_batch; empty without a draft head.  [setup]
  std::vector<uint32_t> most_drafts() const;
  // Of `drafts` proposed tokens each, at most most_drafts(). `entries`: as above, of both.
  frt_shape_key draft_key(uint32_t batch, uint32_t drafts, uint32_t& entries) const;
  frt_shape_key verify_key(uint32_t batch, uint32_t drafts, uint32_t& entries) const;
  // Throws FRT_ERR_INVALID_ARGUMENT for an id outside the vocabulary: "`what` 3 is id 70000".
  void check_ids(std::span<const int32_t> ids, const char* what) const;
  // The verbs on the model's slots.
  Capsules capsules() const { return Capsules(capsules_, context_, info_.state); }
  // What they consist of, checked; nothing if the model does not say. Its regions live as long as
  // the model.  [setup]
  std::optional<frt_capsule_layout> capsule_layout() const;
  // The arena of slots, with its counters of pages.
  frt_state_info state_info() const;
  // Makes a slot as new, in order on `stream`.  [hot]
  void clear_slot(uint32_t slot, const Stream& stream) const;
  // Rows [first, end) of a slot may be written by what `stream` gets from now on.  [hot]
  void reserve_rows(uint32_t slot, uint64_t first, uint64_t end, const Stream& stream) const;

  // ---- text ----
  // `flags`: FRT_ENCODE_*. FRT_ERR_OUT_OF_RANGE for more tokens than the context has room for,
  // without the work of counting them.
  std::vector<int32_t> encode(std::string_view text, uint32_t flags = 0) const;
  std::vector<int32_t> encode(const ChatPrompt& prompt) const;
  // With another limit; 0: none.
  std::vector<int32_t> encode(const ChatPrompt& prompt, uint64_t max_tokens) const;

 private:
  void check_info() const;
  void check_drafts() const;

  Context context_;
  const frt_state_v1* states_;
  const frt_capsules_v1* capsules_;
  frt_role_lm_v1 role_{};
  std::optional<frt_capsule_v1> capsule_;
  frt_lm_info info_{};
};

}  // namespace frt::host
