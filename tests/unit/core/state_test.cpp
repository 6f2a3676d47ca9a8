// SPDX-License-Identifier: Apache-2.0
#include <cstring>
#include <frt/core/state.hpp>

#include "rig.hpp"

namespace {

frt_region fixed(const char* name, uint64_t bytes) {
  return {name, FRT_REGION_FIXED, FRT_DTYPE_F32, bytes, 1, 0};
}
frt_region rows(const char* name, uint64_t row_bytes, uint64_t max_rows) {
  return {name, FRT_REGION_ROWS, FRT_DTYPE_BF16, row_bytes, max_rows, 0};
}

frt::State make(const Rig& rig, const std::vector<frt_region>& regions, uint32_t slots) {
  const frt_capsule_layout layout{sizeof(layout), static_cast<uint32_t>(regions.size()),
                                  regions.data(), 0, 0};
  return frt::State(frt::core::state_table(), rig.context, layout, slots, "state");
}

}  // namespace

TEST_CASE("an arena holds fixed regions first, aligned to 256 bytes, slot after slot, zeroed") {
  Rig rig;
  const frt::Stream stream = rig.context.create_stream("s");
  const std::vector<frt_region> regions = {rows("keys", 10, 100), fixed("recurrent", 300),
                                           rows("values", 256, 2), fixed("window", 256)};
  const frt::State state = make(rig, regions, 3);
  CHECK(state.region("recurrent") == 0);
  CHECK(state.region("window") == 512);
  CHECK(state.info().fixed_bytes == 768);
  CHECK(state.region("keys") == 768);
  CHECK(state.region("values") == 768 + 1024);
  CHECK(state.info().slot_stride == 768 + 1024 + 512);
  CHECK(state.info().slots == 3);
  CHECK_FAILS(FRT_ERR_NOT_FOUND, "no region 'Keys'", (void)state.region("Keys"));

  const frt::Buffer arena = frt::Buffer::retain(rig.context, state.info().buffer);
  CHECK(arena.pointer() == state.info().pointer);
  CHECK(arena.space() == FRT_SPACE_DEVICE);
  const uint64_t bytes = 3 * state.info().slot_stride;
  CHECK(arena.bytes() == bytes);
  CHECK(arena.download<uint8_t>(bytes, stream) == std::vector<uint8_t>(bytes, 0));
}

TEST_CASE("clearing a slot zeroes its fixed regions and touches nothing else") {
  Rig rig;
  const frt::Stream stream = rig.context.create_stream("s");
  const std::vector<frt_region> regions = {fixed("a", 300), rows("r", 16, 16)};
  const frt::State state = make(rig, regions, 3);
  const uint64_t stride = state.info().slot_stride;
  const frt::Buffer arena = frt::Buffer::retain(rig.context, state.info().buffer);
  frt::Recorder(stream).fill(arena, 0, 3 * stride, 0xEE);
  state.clear(1, stream);
  std::vector<uint8_t> expected(3 * stride, 0xEE);
  std::memset(expected.data() + stride, 0, 512);
  CHECK(arena.download<uint8_t>(3 * stride, stream) == expected);
  CHECK_FAILS(FRT_ERR_OUT_OF_RANGE, "slot 3 of 3", state.clear(3, stream));
}

TEST_CASE("an arena without fixed regions has nothing to clear") {
  Rig rig;
  const frt::Stream stream = rig.context.create_stream("s");
  const frt::State state = make(rig, {rows("r", 16, 16)}, 1);
  CHECK(state.info().fixed_bytes == 0);
  const int fills = rig.mock.calls("fill");
  state.clear(0, stream);
  CHECK(rig.mock.calls("fill") == fills);
}

TEST_CASE("broken layouts are refused by region name") {
  Rig rig;
  constexpr uint64_t kMax = UINT64_MAX;
  const auto refuses = [&](frt_status status, const char* part, std::vector<frt_region> regions) {
    CHECK_FAILS(status, part, (void)make(rig, regions, 2));
  };
  refuses(FRT_ERR_EXISTS, "'a'", {fixed("a", 1), rows("a", 1, 1)});
  refuses(FRT_ERR_INVALID_ARGUMENT, "no name", {fixed("", 1)});
  refuses(FRT_ERR_INVALID_ARGUMENT, "no name", {fixed(nullptr, 1)});
  refuses(FRT_ERR_INVALID_ARGUMENT, "above 0", {fixed("a", 0)});
  refuses(FRT_ERR_INVALID_ARGUMENT, "above 0", {rows("a", 1, 0)});
  refuses(FRT_ERR_INVALID_ARGUMENT, "without regions", {});
  refuses(FRT_ERR_OUT_OF_RANGE, "'a'", {rows("a", kMax, 2)});
  refuses(FRT_ERR_OUT_OF_RANGE, "overflows", {fixed("a", kMax)});
  refuses(FRT_ERR_OUT_OF_RANGE, "'b'", {fixed("a", kMax / 2), fixed("b", kMax / 2 + 2)});
  refuses(FRT_ERR_OUT_OF_RANGE, "overflows", {fixed("a", kMax / 2 + 2)});  // times 2 slots
  frt_region odd = fixed("a", 1);
  odd.kind = 2;
  refuses(FRT_ERR_INVALID_ARGUMENT, "kind", {odd});
  odd = fixed("a", 1);
  odd.max_rows = 2;
  refuses(FRT_ERR_INVALID_ARGUMENT, "max_rows 1", {odd});
  odd = fixed("a", 1);
  odd.dtype = 99;
  refuses(FRT_ERR_INVALID_ARGUMENT, "element type", {odd});
  const frt_region one = fixed("a", 1);
  frt_capsule_layout layout{8, 1, &one, 0, 0};
  CHECK_FAILS(FRT_ERR_ABI, "layout",
              frt::State(frt::core::state_table(), rig.context, layout, 1, "s"));
  layout.struct_size = sizeof(layout);
  CHECK_FAILS(FRT_ERR_INVALID_ARGUMENT, "0 slots",
              frt::State(frt::core::state_table(), rig.context, layout, 0, "s"));
}

TEST_CASE("an arena that cannot be allocated or zeroed leaves nothing behind") {
  Rig rig;
  rig.mock.fail("memory_alloc", FRT_ERR_OUT_OF_MEMORY);
  CHECK_FAILS(FRT_ERR_OUT_OF_MEMORY, "buffer 'state'", (void)make(rig, {fixed("a", 1)}, 1));
  rig.mock.fail("fill", FRT_ERR_DEVICE);
  CHECK_FAILS(FRT_ERR_DEVICE, "buffer_fill", (void)make(rig, {fixed("a", 1)}, 1));
  CHECK(rig.mock.live_blocks == 0);
}

TEST_CASE("releasing an arena waits for work on it, and a moved one releases once") {
  Rig rig;
  const frt::Stream stream = rig.context.create_stream("s");
  frt::State state = make(rig, {fixed("a", 1)}, 1);
  frt::State moved = std::move(state);
  CHECK_FALSE(state);
  moved.clear(0, stream);
  moved = make(rig, {fixed("b", 1)}, 1);
  CHECK(rig.mock.pending() == 0);
  CHECK(rig.mock.live_blocks == 1);
  const frt_state_v1& table = *frt::core::state_table();
  CHECK(table.state_info(nullptr, nullptr) == FRT_ERR_INVALID_ARGUMENT);
  CHECK(table.state_clear(nullptr, 0, nullptr) == FRT_ERR_INVALID_ARGUMENT);
  CHECK(table.state_region(nullptr, "a", nullptr, nullptr) == FRT_ERR_INVALID_ARGUMENT);
  CHECK(table.state_create(nullptr, nullptr, 1, "s", nullptr, nullptr) == FRT_ERR_INVALID_ARGUMENT);
  table.state_release(nullptr);
}
