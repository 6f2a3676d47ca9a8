// SPDX-License-Identifier: Apache-2.0
// frt/lm/architecture.hpp - what a plugin says of one decoder: its dimensions, weights, state and
// recipe. Everything else (loading order, memory checks, graphs, tables, self-test) is lm::Model's.
//
// The functions with a body are those of a plain decoder: attention in every layer, no draft head.
// Objects that are made borrow what they are made of, and the architecture. Errors are thrown as
// frt::Error. All functions are [setup] unless they say otherwise.
#pragma once

#include <frt/exec.hpp>

#include <cstdint>
#include <frt/lm/activations.hpp>
#include <frt/lm/chat.hpp>
#include <frt/lm/config.hpp>
#include <frt/lm/recipe.hpp>
#include <frt/lm/state_layout.hpp>
#include <frt/lm/tensors.hpp>
#include <frt/lm/weights.hpp>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace frt::lm {

// Weights from nothing, of a checkpoint that is only a name.
struct SyntheticWeights {
  Format format = Format::kBf16;
  std::uint64_t seed = 1;
  std::vector<Tensor> tensors;  // all of the model; experts as three-dimensional ones
};

// A fixed region whose values a golden tensor has.
struct GoldenRegion {
  std::string tensor;
  std::string region;
  std::int64_t rows = 0;  // above 0: the golden one is the transposed of (rows, columns)
  std::int64_t columns = 0;
};

class Architecture {
 public:
  virtual ~Architecture() = default;

  // ---- always there; [any] ----
  virtual const Config& config() const = 0;
  virtual std::int64_t layer_count() const = 0;
  // For people, one line.
  virtual std::string describe() const = 0;
  // Every field that changes results, in one line; equal texts mean equal models.
  virtual std::string canonical_text() const = 0;
  virtual const Chat& chat() const = 0;
  // Set for synthetic checkpoints.
  virtual std::optional<SyntheticWeights> synthetic() const = 0;
  virtual bool attends(std::size_t) const { return true; }  // whether layer i is attention
  // Arithmetic of a prefilled token beside the products.
  virtual std::uint64_t token_flops() const { return 0; }

  // ---- parts of a loaded model ----
  virtual std::unique_ptr<Weights> build_weights(WeightSource& source,
                                                 std::unique_ptr<DeviceMemory> memory,
                                                 bool with_mtp) const = 0;
  virtual std::unique_ptr<StateLayout> make_layout(const Precision& precision,
                                                   std::int64_t max_context, bool with_mtp,
                                                   std::int64_t page_rows) const;
  virtual std::unique_ptr<StateMap> map_state(const State& state, std::int64_t max_context,
                                              bool with_mtp) const;
  virtual std::unique_ptr<Activations> make_activations(bool with_mtp) const;
  virtual std::vector<std::string> operators(bool with_mtp) const;
  // `weights`, `state` and `activations` are those that the functions above made.
  virtual std::unique_ptr<Recipe> make_recipe(const Weights& weights, const Operators& operators,
                                              const Precision& precision, const StateMap& state,
                                              const Activations& activations,
                                              const Ports& ports) const;

  // ---- self-test ----
  virtual std::vector<GoldenRegion> golden_regions() const { return {}; }
  // Rows directly before a row that count with it where experts may flip (selftest_routing.hpp).
  virtual std::int32_t routing_reach() const { return 0; }

  std::int64_t attention_layers() const;
};

}  // namespace frt::lm
