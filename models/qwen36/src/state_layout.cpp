// SPDX-License-Identifier: Apache-2.0
#include "state_layout.hpp"

namespace frt::qwen36 {

using lm::bytes_of;
using lm::layer_region;

StateLayout::StateLayout(const Config& config, const lm::Precision& precision,
                         std::int64_t max_context, bool with_mtp, std::int64_t page_rows)
    : lm::StateLayout(config, max_context, page_rows) {
  const frt_dtype activation = precision.activation;
  if (with_mtp) {
    add_fixed("hidden", activation, bytes_of(activation, config.hidden));
    add_fixed("draft.hidden", activation, bytes_of(activation, config.hidden));
  }
  const std::uint64_t window =
      bytes_of(activation, (config.conv_width - 1) * config.conv_channels());
  const std::uint64_t memory =
      bytes_of(FRT_DTYPE_F32, config.value_heads * config.key_dim * config.value_dim);
  for (std::size_t i = 0; i < config.layers.size(); ++i) {
    if (config.layers[i] != LayerKind::kDelta) continue;
    add_fixed(layer_region(i, "conv"), activation, window);
    add_fixed(layer_region(i, "state"), FRT_DTYPE_F32, memory);
    count_step(2 * (window + memory));
  }
  for (std::size_t i = 0; i < config.layers.size(); ++i) {
    if (config.layers[i] == LayerKind::kAttention) add_attention(i, config, precision);
  }
  if (with_mtp) {
    const std::uint64_t row = bytes_of(precision.cache, config.kv_width());
    add_rows("mtp.keys", precision.cache, row, 1);
    add_rows("mtp.values", precision.cache, row, 1);
  }
}

StateMap::StateMap(const Config& config, const State& state, std::int64_t max_context,
                   bool with_mtp)
    : lm::StateMap(state, max_context) {
  layers.resize(config.layers.size());
  delta.resize(config.layers.size());
  for (std::size_t i = 0; i < config.layers.size(); ++i) {
    if (config.layers[i] == LayerKind::kDelta) {
      delta[i] = {lm::region_address(state, layer_region(i, "conv")),
                  lm::region_address(state, layer_region(i, "state"))};
    } else {
      layers[i] = lm::attention_state(state, i);
    }
  }
  if (with_mtp) {
    mtp = {lm::region_address(state, "mtp.keys"), lm::region_address(state, "mtp.values")};
    hidden = lm::region_address(state, "hidden");
    draft_hidden = lm::region_address(state, "draft.hidden");
  }
}

}  // namespace frt::qwen36
