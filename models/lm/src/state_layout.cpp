// SPDX-License-Identifier: Apache-2.0
#include <frt/lm/state_layout.hpp>

#include <utility>

namespace frt::lm {

std::string layer_region(std::size_t layer, const char* what) {
  return "layer." + std::to_string(layer) + "." + what;
}

StateLayout::StateLayout(const Config& config, std::int64_t max_context, std::int64_t page_rows)
    : max_context_(max_context), layout_(static_cast<std::uint32_t>(page_rows)) {
  add_fixed("pending", FRT_DTYPE_I32, 4);
  add_fixed("counts", FRT_DTYPE_U32, bytes_of(FRT_DTYPE_U32, config.vocabulary));
}

void StateLayout::add_attention(std::size_t layer, const Config& config,
                                const Precision& precision) {
  const std::uint64_t row = bytes_of(precision.cache, config.kv_width());
  add_rows(layer_region(layer, "keys"), precision.cache, row);
  add_rows(layer_region(layer, "values"), precision.cache, row);
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
      layout_.fixed_bytes() + static_cast<std::uint64_t>(slot_pages()) * page_bytes();
  for (const frt_region& region : layout_.regions()) {
    if (region.kind == FRT_REGION_ROWS && table().page_rows == 0) {
      slot += CapsuleLayout::padded(region.row_bytes * region.max_rows);
    }
  }
  return static_cast<std::uint64_t>(slots) * slot + table().spare_pages * page_bytes();
}

std::uint64_t StateLayout::page_bytes() const noexcept {
  std::uint64_t bytes = 0;
  for (const frt_region& region : layout_.regions()) {
    if (region.kind == FRT_REGION_ROWS) {
      bytes += CapsuleLayout::padded(region.row_bytes * table().page_rows);
    }
  }
  return bytes;
}

std::int64_t StateLayout::slot_pages() const noexcept {
  const std::int64_t rows = table().page_rows;
  return rows == 0 ? 0 : (max_context_ + rows - 1) / rows;
}

void StateLayout::set_spare_pages(std::int64_t count) noexcept {
  layout_.set_spare_pages(static_cast<std::uint32_t>(count));
}

StateMap::StateMap(const State& state, std::int64_t max_context) : max_rows(max_context) {
  const frt_state_info& info = state.info();
  slot_stride = static_cast<std::int64_t>(info.slot_stride);
  pages = {info.page_table, static_cast<std::int64_t>(info.page_stride),
           static_cast<std::int32_t>(info.slot_pages), static_cast<std::int32_t>(info.page_rows)};
  pending = region_address(state, "pending");
  counts = region_address(state, "counts");
}

void* region_address(const State& state, const std::string& name) {
  return static_cast<std::byte*>(state.info().pointer) + state.region(name);
}

LayerState attention_state(const State& state, std::size_t layer) {
  return {region_address(state, layer_region(layer, "keys")),
          region_address(state, layer_region(layer, "values"))};
}

}  // namespace frt::lm
