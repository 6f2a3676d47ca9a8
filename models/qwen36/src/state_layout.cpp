// SPDX-License-Identifier: Apache-2.0
#include "state_layout.hpp"

#include <utility>

namespace frt::qwen36 {
namespace {

std::string layer_region(std::size_t layer, const char* what) {
  return "layer." + std::to_string(layer) + "." + what;
}

}  // namespace

StateLayout::StateLayout(const Config& config, const Precision& precision, std::int64_t max_context,
                         bool with_mtp, std::int64_t block_rows)
    : max_context_(max_context), layout_(static_cast<std::uint32_t>(block_rows)) {
  const frt_dtype activation = precision.activation;
  add_fixed("pending", FRT_DTYPE_I32, 4);
  add_fixed("counts", FRT_DTYPE_U32, bytes_of(FRT_DTYPE_U32, config.vocabulary));
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
    step_bytes_ += 2 * (window + memory);
  }
  const std::uint64_t row = bytes_of(precision.cache, config.kv_width());
  for (std::size_t i = 0; i < config.layers.size(); ++i) {
    if (config.layers[i] != LayerKind::kAttention) continue;
    add_rows(layer_region(i, "keys"), precision.cache, row);
    add_rows(layer_region(i, "values"), precision.cache, row);
  }
  if (with_mtp) {
    add_rows("mtp.keys", precision.cache, row, 1);
    add_rows("mtp.values", precision.cache, row, 1);
  }
}

void StateLayout::add_fixed(std::string name, frt_dtype dtype, std::uint64_t bytes) {
  layout_.add_fixed(std::move(name), dtype, bytes);
  fixed_bytes_ += bytes;
}

void StateLayout::add_rows(std::string name, frt_dtype dtype, std::uint64_t row_bytes,
                           std::int64_t lag) {
  layout_.add_rows(std::move(name), dtype, row_bytes, static_cast<std::uint64_t>(max_context_),
                   lag);
  row_bytes_ += row_bytes;
}

std::uint64_t StateLayout::arena_bytes(std::int64_t slots) const noexcept {
  std::uint64_t slot =
      layout_.fixed_bytes() + static_cast<std::uint64_t>(slot_blocks()) * block_bytes();
  for (const frt_region& region : layout_.regions()) {
    if (region.kind == FRT_REGION_ROWS && table().block_rows == 0) {
      slot += CapsuleLayout::padded(region.row_bytes * region.max_rows);
    }
  }
  return static_cast<std::uint64_t>(slots) * slot + table().spare_blocks * block_bytes();
}

std::uint64_t StateLayout::block_bytes() const noexcept {
  std::uint64_t bytes = 0;
  for (const frt_region& region : layout_.regions()) {
    if (region.kind == FRT_REGION_ROWS) {
      bytes += CapsuleLayout::padded(region.row_bytes * table().block_rows);
    }
  }
  return bytes;
}

std::int64_t StateLayout::slot_blocks() const noexcept {
  const std::int64_t rows = table().block_rows;
  return rows == 0 ? 0 : (max_context_ + rows - 1) / rows;
}

void StateLayout::set_spare_blocks(std::int64_t count) noexcept {
  layout_.set_spare_blocks(static_cast<std::uint32_t>(count));
}

StateMap map_state(const Config& config, const State& state, std::int64_t max_context,
                   bool with_mtp) {
  const auto at = [&](const std::string& name) -> void* {
    return static_cast<std::byte*>(state.info().pointer) + state.region(name);
  };
  StateMap map;
  const frt_state_info& info = state.info();
  map.slot_stride = static_cast<std::int64_t>(info.slot_stride);
  map.blocks = {info.blocks, static_cast<std::int64_t>(info.block_stride),
                static_cast<std::int32_t>(info.slot_blocks),
                static_cast<std::int32_t>(info.block_rows)};
  map.max_rows = max_context;
  map.pending = at("pending");
  map.counts = at("counts");
  for (std::size_t i = 0; i < config.layers.size(); ++i) {
    LayerState layer;
    if (config.layers[i] == LayerKind::kDelta) {
      layer.conv = at(layer_region(i, "conv"));
      layer.delta = at(layer_region(i, "state"));
    } else {
      layer.keys = at(layer_region(i, "keys"));
      layer.values = at(layer_region(i, "values"));
    }
    map.layers.push_back(layer);
  }
  if (with_mtp) {
    map.mtp.keys = at("mtp.keys");
    map.mtp.values = at("mtp.values");
    map.hidden = at("hidden");
    map.draft_hidden = at("draft.hidden");
  }
  return map;
}

}  // namespace frt::qwen36
