// SPDX-License-Identifier: Apache-2.0
// recipe.hpp - the computation of a Qwen3.6 step beside what every decoder does
// (frt/lm/recipe.hpp): recipe_mixers.cpp (delta net), recipe_mtp.cpp (the draft head).
#pragma once

#include <frt/lm/recipe.hpp>
#include <frt/qwen36/config.hpp>

#include "activations.hpp"
#include "state_layout.hpp"
#include "weights.hpp"

namespace frt::qwen36 {

using lm::i32;
using lm::Tap;

// The names of all operators a recipe calls.
std::vector<std::string> recipe_operators(const Config& config, bool with_mtp);

// Borrows everything it is made of. With a tap the draft head's rows are computed in full.
class Recipe final : public lm::Recipe {
 public:
  Recipe(const Config& config, const Weights& weights, const Operators& operators,
         const lm::Precision& precision, const StateMap& state, const Activations& activations,
         const lm::Ports& ports)
      : lm::Recipe(config, weights, operators, precision, state, activations, ports),
        config_(config),
        weights_(weights),
        state_(state),
        act_(activations) {}

  void draft(const Recorder& recorder, std::int32_t batch, std::int32_t drafts) const override;

 private:
  void mixer(const Recorder& recorder, const Batch& batch, std::size_t layer,
             const Entry& entry) const override;
  void delta_mixer(const Recorder& recorder, const Batch& batch, std::size_t layer,
                   const Entry& entry) const;

  // Without u, a, b, the constants of a layer, and its state.
  frt_gated_delta_block_args delta_args(const Batch& batch) const;
  void commit(const Recorder& recorder, const Batch& batch) const override;

  // After a trunk step: brings the draft head's keys and values up to the boundary.
  void follow(const Recorder& recorder, const Batch& batch, const Tap* tap) const override;
  // Tokens of `batch` with the rows before them: the draft head's own batch, and its input.
  Batch mtp_pairs(const Recorder& recorder, const Batch& batch, const std::int32_t* ids,
                  const void* rows, const void* carry) const;
  void mtp_input(const Recorder& recorder, const Batch& pairs) const;
  void mtp_layer(const Recorder& recorder, const Batch& pairs) const;
  void mtp_append(const Recorder& recorder, const Batch& pairs) const;
  void store_rows(const Recorder& recorder, const Batch& batch, const void* rows,
                  void* target) const;

  const Config& config_;
  const Weights& weights_;
  const StateMap& state_;
  const Activations& act_;
};

}  // namespace frt::qwen36
