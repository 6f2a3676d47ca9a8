// SPDX-License-Identifier: Apache-2.0
// frt/lm/recipe.hpp - the computation of a step, as operator calls: what a graph records and what
// an eager run executes. One file per part: recipe.cpp (the steps), recipe_attention.cpp,
// recipe_ffn.cpp (dense and mixture). An architecture with another mixer or a draft head derives
// from it.
//
// The residual stream is added lazily: a block leaves its output beside it, and the norm in front
// of the next block adds it, so that addition, norm and the products after it are one operator.
//
// Everything that varies from step to step is read from the ports when the step runs.
#pragma once

#include <frt/compose.hpp>
#include <frt/exec.hpp>

#include <cstdint>
#include <frt/lm/config.hpp>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <frt/lm/activations.hpp>
#include <frt/lm/state_layout.hpp>
#include <frt/lm/weights.hpp>

namespace frt::lm {

// What a tap sees in an eager run: `name` is that of the golden tensors ("mixer", "residual",
// "hidden", ...), `layer` counts trunk layers. `data` is device memory, valid during the call.
struct TapView {
  std::string_view name;
  std::size_t layer = 0;
  const void* data = nullptr;
  frt_dtype dtype = FRT_DTYPE_NONE;
  std::int64_t rows = 0;
  std::int64_t width = 0;
};
using Tap = std::function<void(const TapView&)>;

// The operators that every recipe calls beside those of its mixers.
std::vector<std::string> common_operators(const Config& config);

// Borrows everything it is made of.
class Recipe {
 public:
  Recipe(const Config& config, const Weights& weights, const Operators& operators,
         const Precision& precision, const StateMap& state, const Activations& activations,
         const Ports& ports)
      : config_(config),
        weights_(weights),
        ops_(operators),
        precision_(precision),
        state_(state),
        act_(activations),
        ports_(ports) {}
  virtual ~Recipe() = default;
  Recipe(const Recipe&) = delete;
  Recipe& operator=(const Recipe&) = delete;

  // One sequence of up to `rows` tokens. With a tap the draft head's rows are computed in full.
  void prefill(const Recorder& recorder, std::int32_t rows, const Tap* tap = nullptr) const;
  // One token of each of `batch` sequences.
  void decode(const Recorder& recorder, std::int32_t batch) const;
  // `drafts` proposed tokens for each of `batch` sequences; for architectures with a draft head.
  virtual void draft(const Recorder& recorder, std::int32_t batch, std::int32_t drafts) const;
  // Up to `rows` tokens of each of `batch` sequences, of which the first is the text and the others
  // are drafts: feeds those that decoding would have sampled.
  void verify(const Recorder& recorder, std::int32_t batch, std::int32_t rows) const;

  // logits = rows of `hidden` times `weight`, the head or its first rows; rows of logits are
  // config.vocabulary elements apart.
  void head(const Recorder& recorder, const frt_weight& weight, const void* hidden,
            std::int32_t rows, float* logits) const;

 protected:
  // The rows of a step: as sequences for operators that know slots, as plain rows for the others.
  struct Batch {
    frt_sequences sequences{};
    const std::int32_t* row_count = nullptr;
    bool drafts = false;  // some rows may be no text: recurrent state waits for commit()
    std::int32_t rows() const { return sequences.count * sequences.rows; }
  };
  Batch prefill_batch(std::int32_t rows) const;
  Batch token_batch(std::int32_t count) const;

  // The norm in front of a block: residual += delta, x = norm(residual).
  struct Entry {
    void* residual = nullptr;
    const void* delta = nullptr;  // null: nothing to add
    const float* norm = nullptr;
  };

  // act_.ids: the tokens of `ids`, or the pending ones for -1.
  void select(const Recorder& recorder, const Batch& batch, const Buffer& ids) const;
  void embed(const Recorder& recorder, const Batch& batch) const;
  // Embeds act_.ids, runs all layers and the final norm: act_.hidden.
  void trunk(const Recorder& recorder, const Batch& batch, const Tap* tap) const;
  void sample(const Recorder& recorder, const Batch& batch) const;
  void accept(const Recorder& recorder, const Batch& batch) const;
  void count_tokens(const Recorder& recorder, const Batch& batch, bool generated) const;

  // The mixer of trunk layer `layer`, into act_.mixer_out. Attention, unless an architecture says
  // otherwise.
  virtual void mixer(const Recorder& recorder, const Batch& batch, std::size_t layer,
                     const Entry& entry) const;
  // After a step with drafts, over the rows that are the text: recurrent state takes them in.
  virtual void commit(const Recorder&, const Batch&) const {}
  // After a trunk step, whose normed rows are act_.hidden: what a draft head needs of them.
  virtual void follow(const Recorder&, const Batch&, const Tap*) const {}
  void attention_mixer(const Recorder& recorder, const Batch& batch,
                       const AttentionWeights& weights, const LayerState& state,
                       const Entry& entry) const;
  frt_attention_append_args append_args(const Batch& batch, const AttentionWeights& weights,
                                        const LayerState& state) const;
  void norm_linears(const Recorder& recorder, const Batch& batch, const Entry& entry,
                    std::span<const frt_linear_part> parts) const;
  void linear(const Recorder& recorder, const Batch& batch, const void* x, const frt_weight& weight,
              frt_dtype y_dtype, void* y) const;
  // The same with a bias in the activation type, which may be null.
  void biased(const Recorder& recorder, const Batch& batch, const void* x, const frt_weight& weight,
              const float* bias, void* y) const;
  // residual += delta, y = norm(residual).
  void norm(const Recorder& recorder, const Batch& batch, const Entry& entry, void* y) const;

  void feed_forward(const Recorder& recorder, const Batch& batch, const LayerWeights& layer,
                    const Entry& entry) const;
  void dense(const Recorder& recorder, const Batch& batch, const DenseWeights& weights,
             const Entry& entry) const;
  void biased_dense(const Recorder& recorder, const Batch& batch, const DenseWeights& weights,
                    const Entry& entry) const;
  void mixture(const Recorder& recorder, const Batch& batch, const MixtureWeights& weights,
               const Entry& entry) const;

  void show(const Tap* tap, std::string_view name, std::size_t layer, const void* data,
            frt_dtype dtype, const Batch& batch, std::int64_t width) const {
    if (tap) (*tap)({name, layer, data, dtype, batch.rows(), width});
  }

  const Config& config_;
  const Weights& weights_;
  const Operators& ops_;
  const Precision& precision_;
  const StateMap& state_;
  const Activations& act_;
  const Ports& ports_;
};

// Narrowing of dimensions, which validate() has bounded.
inline std::int32_t i32(std::int64_t value) {
  return static_cast<std::int32_t>(value);
}

}  // namespace frt::lm
