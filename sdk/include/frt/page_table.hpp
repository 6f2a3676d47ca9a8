// SPDX-License-Identifier: Apache-2.0
// frt/page_table.hpp - the checks of a backend's operators on frt_page_table (frt/ops/attention.h).
// Header-only.  [setup]
#pragma once

#include <frt/ops/attention.h>
#include <frt/checks.hpp>

#include <cstdint>
#include <string>

namespace frt {

// Of an operator on keys and values of kv_dtype with max_rows positions.
inline void check_page_table(const Checks& check, const frt_page_table& pages, int32_t max_rows,
                             frt_dtype kv_dtype) {
  if (!pages.table) return;
  check.at_least("pages.rows", pages.rows, FRT_PAGE_ROWS_LEAST);
  check.require((pages.rows & (pages.rows - 1)) == 0, "pages.rows",
                "is " + std::to_string(pages.rows) + ", which is no power of two");
  check.positive("pages.slot_pages", pages.slot_pages);
  check.require(static_cast<int64_t>(pages.slot_pages) * pages.rows >= max_rows, "pages.slot_pages",
                "is " + std::to_string(pages.slot_pages) + ": too few pages of " +
                    std::to_string(pages.rows) + " rows for max_rows " + std::to_string(max_rows));
  check.positive("pages.stride", pages.stride);
  check.require(pages.stride % (dtype_bits(kv_dtype) / 8) == 0, "pages.stride",
                "is no multiple of an element's bytes");
}

}  // namespace frt
