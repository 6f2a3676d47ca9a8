// SPDX-License-Identifier: Apache-2.0
// frt/capsule_layout.hpp - a frt_capsule_layout put together region by region, with the storage of
// its names. For model plugins, which describe what their state consists of, and for hosts that
// keep an arena of their own. Header only.
//
//   frt::CapsuleLayout layout;
//   layout.add_fixed("hidden", FRT_DTYPE_F32, width * 4);
//   layout.add_rows("keys", FRT_DTYPE_BF16, row_bytes, max_rows);
//   frt::State state(states, context, layout.table(), slots, name);
#pragma once

#include <frt/capsule.h>
#include <frt/error.hpp>

#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace frt {

// One thread at a time; table() is valid until the next add and as long as the object.  [setup]
class CapsuleLayout {
 public:
  // Rows in pages of so many (frt/capsule.h); 0: slot by slot.
  explicit CapsuleLayout(uint32_t page_rows = 0) {
    table_.struct_size = sizeof(table_);
    table_.page_rows = page_rows;
  }
  CapsuleLayout(const CapsuleLayout&) = delete;  // regions point to names
  CapsuleLayout& operator=(const CapsuleLayout&) = delete;

  // A block of constant size.
  void add_fixed(std::string name, frt_dtype dtype, uint64_t bytes) {
    add({nullptr, FRT_REGION_FIXED, dtype, bytes, 1, 0}, std::move(name));
  }
  // One row per position; `lag` as frt_region has it.
  void add_rows(std::string name, frt_dtype dtype, uint64_t row_bytes, uint64_t max_rows,
                int64_t lag = 0) {
    add({nullptr, FRT_REGION_ROWS, dtype, row_bytes, max_rows, lag}, std::move(name));
  }
  void set_spare_pages(uint32_t count) noexcept { table_.spare_pages = count; }

  const frt_capsule_layout& table() const noexcept { return table_; }
  std::span<const frt_region> regions() const noexcept { return regions_; }

  // Of all FIXED regions of a slot, with the padding that the arena gives them.
  uint64_t fixed_bytes() const noexcept {
    uint64_t bytes = 0;
    for (const frt_region& region : regions_) {
      if (region.kind == FRT_REGION_FIXED) bytes += padded(region.row_bytes);
    }
    return bytes;
  }
  // As the arena aligns regions.
  static constexpr uint64_t padded(uint64_t bytes) noexcept { return (bytes + 255) / 256 * 256; }

  // Names, kinds, types and sizes in one line, without the number of rows: what a capsule of this
  // layout depends on. For fingerprints.
  std::string canonical_text() const {
    std::string text;
    for (const frt_region& region : regions_) {
      text += (text.empty() ? "" : " ") + std::string(region.name) + ":" +
              (region.kind == FRT_REGION_ROWS ? "rows:" : "fixed:") + dtype_name(region.dtype) +
              ":" + std::to_string(region.row_bytes) +
              (region.row_lag ? ":lag" + std::to_string(region.row_lag) : "");
    }
    return text;
  }

 private:
  void add(frt_region region, std::string name) {
    names_.push_back(std::move(name));
    region.name = names_.back().c_str();
    regions_.push_back(region);
    table_.regions = regions_.data();
    table_.region_count = static_cast<uint32_t>(regions_.size());
  }

  std::deque<std::string> names_;
  std::vector<frt_region> regions_;
  frt_capsule_layout table_{};
};

}  // namespace frt
