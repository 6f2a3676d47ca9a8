// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <frt/qwen36/presets.hpp>
#include <string>

#include "state_layout.hpp"

using frt::lm::Precision;
using namespace frt::qwen36;

TEST_CASE("the state of the large models has the documented size") {
  const Precision bf16{FRT_DTYPE_BF16, FRT_DTYPE_F32, FRT_DTYPE_BF16};
  const StateLayout dense(preset_config("qwen3.6-27b"), bf16, 8192, true);
  CHECK(dense.row_bytes() == 65536 + 4096);
  CHECK(dense.step_bytes() == 2 * (150994944 + 2949120));
  CHECK(dense.fixed_bytes() == 150994944 + 2949120 + 2 * 10240 + 4 * 248320 + 4);
  const StateLayout mixture(preset_config("qwen3.6-35b-a3b"), bf16, 8192, true);
  CHECK(mixture.row_bytes() == 20480 + 2048);
  const Precision fp8{FRT_DTYPE_BF16, FRT_DTYPE_F32, FRT_DTYPE_F8_E4M3};
  CHECK(StateLayout(preset_config("qwen3.6-27b"), fp8, 8192, false).row_bytes() == 32768);
}

TEST_CASE("fixed regions come first and the draft head's rows lag by one") {
  const StateLayout layout(preset_config("qwen3.6-tiny"), {}, 64, true);
  bool rows = false;
  int lagging = 0;
  for (std::uint32_t i = 0; i < layout.table().region_count; ++i) {
    const frt_region& region = layout.table().regions[i];
    rows = rows || region.kind == FRT_REGION_ROWS;
    CHECK(rows == (region.kind == FRT_REGION_ROWS));
    CHECK(region.max_rows == (rows ? 64u : 1u));
    lagging += region.row_lag == 1 ? 1 : 0;
  }
  CHECK(lagging == 2);
}

TEST_CASE("what a capsule depends on does not include the room for rows") {
  const Config config = preset_config("qwen3.6-tiny");
  CHECK(StateLayout(config, {}, 64, true).canonical_text() ==
        StateLayout(config, {}, 4096, true).canonical_text());
  CHECK(StateLayout(config, {}, 64, true).canonical_text() !=
        StateLayout(config, {}, 64, false).canonical_text());
}

TEST_CASE("rows in pages take whole pages, beside the fixed regions of every slot") {
  const Precision bf16{FRT_DTYPE_BF16, FRT_DTYPE_F32, FRT_DTYPE_BF16};
  StateLayout layout(preset_config("qwen3.6-27b"), bf16, 1000, true, 256);
  CHECK(layout.table().page_rows == 256);
  CHECK(layout.slot_pages() == 4);
  CHECK(layout.page_bytes() == 256 * layout.row_bytes());
  const std::uint64_t two = layout.arena_bytes(2);
  layout.set_spare_pages(7);
  CHECK(layout.arena_bytes(2) == two + 7 * layout.page_bytes());
  CHECK(layout.arena_bytes(2) - layout.arena_bytes(1) >
        layout.fixed_bytes() + 4 * layout.page_bytes());
  const StateLayout by_slot(preset_config("qwen3.6-27b"), bf16, 1024, true);
  CHECK(by_slot.slot_pages() == 0);
  CHECK(by_slot.page_bytes() == 0);
  CHECK(by_slot.arena_bytes(2) == two);
}
