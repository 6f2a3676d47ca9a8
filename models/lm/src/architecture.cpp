// SPDX-License-Identifier: Apache-2.0
#include <frt/lm/architecture.hpp>

namespace frt::lm {

std::int64_t Architecture::attention_layers() const {
  std::int64_t count = 0;
  for (std::int64_t i = 0; i < layer_count(); ++i) count += attends(static_cast<std::size_t>(i));
  return count;
}

std::unique_ptr<StateLayout> Architecture::make_layout(const Precision& precision,
                                                       std::int64_t max_context, bool,
                                                       std::int64_t page_rows) const {
  auto layout = std::make_unique<StateLayout>(config(), max_context, page_rows);
  for (std::int64_t i = 0; i < layer_count(); ++i) {
    layout->add_attention(static_cast<std::size_t>(i), config(), precision);
  }
  return layout;
}

std::unique_ptr<StateMap> Architecture::map_state(const State& state, std::int64_t max_context,
                                                  bool) const {
  auto map = std::make_unique<StateMap>(state, max_context);
  for (std::int64_t i = 0; i < layer_count(); ++i) {
    map->layers.push_back(attention_state(state, static_cast<std::size_t>(i)));
  }
  return map;
}

std::unique_ptr<Activations> Architecture::make_activations(bool) const {
  return std::make_unique<Activations>();
}

std::vector<std::string> Architecture::operators(bool) const {
  std::vector<std::string> needs = common_operators(config());
  needs.push_back(FRT_OP_ATTENTION_BLOCK);
  return needs;
}

std::unique_ptr<Recipe> Architecture::make_recipe(const Weights& weights,
                                                  const Operators& operators,
                                                  const Precision& precision, const StateMap& state,
                                                  const Activations& activations,
                                                  const Ports& ports) const {
  return std::make_unique<Recipe>(config(), weights, operators, precision, state, activations,
                                  ports);
}

}  // namespace frt::lm
