// SPDX-License-Identifier: Apache-2.0
#include "state_layout.hpp"

#include <utility>

namespace frt::qwen36 {
namespace {

std::string layer_region(std::size_t layer, const char* what) {
  return "layer." + std::to_string(layer) + "." + what;
}

std::uint64_t padded(std::uint64_t bytes) {
  return (bytes + 255) / 256 * 256;
}

}  // namespace

StateLayout::StateLayout(const Config& config, const Precision& precision, std::int64_t max_context,
                         bool with_mtp, std::int64_t block_rows)
    : max_context_(max_context) {
  names_.reserve(2 * config.layers.size() + 6);  // regions point into it
  const frt_dtype activation = precision.activation;
  add("pending", FRT_REGION_FIXED, FRT_DTYPE_I32, 4);
  add("counts", FRT_REGION_FIXED, FRT_DTYPE_U32, bytes_of(FRT_DTYPE_U32, config.vocabulary));
  if (with_mtp) {
    add("hidden", FRT_REGION_FIXED, activation, bytes_of(activation, config.hidden));
    add("draft.hidden", FRT_REGION_FIXED, activation, bytes_of(activation, config.hidden));
  }
  const std::uint64_t window =
      bytes_of(activation, (config.conv_width - 1) * config.conv_channels());
  const std::uint64_t memory =
      bytes_of(FRT_DTYPE_F32, config.value_heads * config.key_dim * config.value_dim);
  for (std::size_t i = 0; i < config.layers.size(); ++i) {
    if (config.layers[i] != LayerKind::kDelta) continue;
    add(layer_region(i, "conv"), FRT_REGION_FIXED, activation, window);
    add(layer_region(i, "state"), FRT_REGION_FIXED, FRT_DTYPE_F32, memory);
    step_bytes_ += 2 * (window + memory);
  }
  const std::uint64_t row = bytes_of(precision.cache, config.kv_width());
  for (std::size_t i = 0; i < config.layers.size(); ++i) {
    if (config.layers[i] != LayerKind::kAttention) continue;
    add(layer_region(i, "keys"), FRT_REGION_ROWS, precision.cache, row);
    add(layer_region(i, "values"), FRT_REGION_ROWS, precision.cache, row);
  }
  if (with_mtp) {
    add("mtp.keys", FRT_REGION_ROWS, precision.cache, row, 1);
    add("mtp.values", FRT_REGION_ROWS, precision.cache, row, 1);
  }
  table_.struct_size = sizeof(table_);
  table_.region_count = static_cast<std::uint32_t>(regions_.size());
  table_.regions = regions_.data();
  table_.block_rows = static_cast<std::uint32_t>(block_rows);
}

void StateLayout::add(std::string name, std::uint32_t kind, frt_dtype dtype, std::uint64_t bytes,
                      std::int64_t lag) {
  names_.push_back(std::move(name));
  const bool rows = kind == FRT_REGION_ROWS;
  regions_.push_back({names_.back().c_str(), kind, dtype, bytes,
                      rows ? static_cast<std::uint64_t>(max_context_) : 1, lag});
  (rows ? row_bytes_ : fixed_bytes_) += bytes;
}

std::uint64_t StateLayout::arena_bytes(std::int64_t slots) const noexcept {
  std::uint64_t slot = static_cast<std::uint64_t>(slot_blocks()) * block_bytes();
  for (const frt_region& region : regions_) {
    if (region.kind == FRT_REGION_FIXED || table_.block_rows == 0) {
      slot += padded(region.row_bytes * region.max_rows);
    }
  }
  return static_cast<std::uint64_t>(slots) * slot + table_.spare_blocks * block_bytes();
}

std::uint64_t StateLayout::block_bytes() const noexcept {
  std::uint64_t bytes = 0;
  for (const frt_region& region : regions_) {
    if (region.kind == FRT_REGION_ROWS) bytes += padded(region.row_bytes * table_.block_rows);
  }
  return bytes;
}

std::int64_t StateLayout::slot_blocks() const noexcept {
  const std::int64_t rows = table_.block_rows;
  return rows == 0 ? 0 : (max_context_ + rows - 1) / rows;
}

void StateLayout::set_spare_blocks(std::int64_t count) noexcept {
  table_.spare_blocks = static_cast<std::uint32_t>(count);
}

std::string StateLayout::canonical_text() const {
  std::string text;
  for (const frt_region& region : regions_) {
    text += (text.empty() ? "" : " ") + std::string(region.name) + ":" +
            (region.kind == FRT_REGION_ROWS ? "rows:" : "fixed:") + dtype_name(region.dtype) + ":" +
            std::to_string(region.row_bytes) +
            (region.row_lag ? ":lag" + std::to_string(region.row_lag) : "");
  }
  return text;
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
