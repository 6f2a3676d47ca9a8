// SPDX-License-Identifier: Apache-2.0
#include "capsule/state.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <frt/core/state.hpp>
#include <random>

#include "rig.hpp"

namespace {

frt_region fixed(const char* name, uint64_t bytes) {
  return {name, FRT_REGION_FIXED, FRT_DTYPE_F32, bytes, 1, 0};
}
frt_region rows(const char* name, uint64_t row_bytes, uint64_t max_rows) {
  return {name, FRT_REGION_ROWS, FRT_DTYPE_BF16, row_bytes, max_rows, 0};
}

frt::State make(const Rig& rig, const std::vector<frt_region>& regions, uint32_t slots,
                uint32_t page_rows = 0, uint32_t spare_pages = 0) {
  const frt_capsule_layout layout{sizeof(layout), static_cast<uint32_t>(regions.size()),
                                  regions.data(), page_rows, spare_pages};
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
  refuses(FRT_ERR_ABI, "has no regions", {});
  refuses(FRT_ERR_OUT_OF_RANGE, "'a'", {rows("a", kMax, 2)});
  refuses(FRT_ERR_OUT_OF_RANGE, "overflows", {fixed("a", kMax)});
  refuses(FRT_ERR_OUT_OF_RANGE, "'b'", {fixed("a", kMax / 2), fixed("b", kMax / 2 + 2)});
  refuses(FRT_ERR_OUT_OF_RANGE, "overflows", {fixed("a", kMax / 2 + 2)});  // times 2 slots
  frt_region odd = fixed("a", 1);
  odd.kind = 2;
  refuses(FRT_ERR_UNSUPPORTED, "kind", {odd});
  odd = fixed("a", 1);
  odd.max_rows = 2;
  refuses(FRT_ERR_INVALID_ARGUMENT, "max_rows 1", {odd});
  odd = fixed("a", 1);
  odd.dtype = 99;
  refuses(FRT_ERR_UNSUPPORTED, "element type", {odd});
  odd = rows("r", 1, 16);
  for (const int64_t lag : {INT64_MIN, int64_t{-17}}) {
    odd.row_lag = lag;
    refuses(FRT_ERR_INVALID_ARGUMENT, "ahead by more than its max_rows of 16", {odd});
  }
  const frt_region one = fixed("a", 1);
  frt_capsule_layout layout{8, 1, &one, 0, 0};
  CHECK_FAILS(FRT_ERR_ABI, "layout",
              frt::State(frt::core::state_table(), rig.context, layout, 1, "s"));
  layout.struct_size = sizeof(layout);
  layout.region_count = UINT32_MAX;
  CHECK_FAILS(FRT_ERR_OUT_OF_RANGE, "4294967295 regions",
              frt::State(frt::core::state_table(), rig.context, layout, 1, "s"));
  layout.region_count = 1;
  CHECK_FAILS(FRT_ERR_INVALID_ARGUMENT, "0 slots",
              frt::State(frt::core::state_table(), rig.context, layout, 0, "s"));
}

TEST_CASE("a layout of 200,000 regions is laid out in seconds") {
  Rig rig;
  std::vector<std::string> names;
  std::vector<frt_region> regions;
  for (int i = 0; i < 200000; ++i) names.push_back("region." + std::to_string(i));
  for (const std::string& name : names) regions.push_back(fixed(name.c_str(), 1));
  const auto begin = std::chrono::steady_clock::now();
  const frt::State state = make(rig, regions, 1);
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(20));
  CHECK(state.region("region.199999") == 199999 * 256);
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

// ---- pages ----------------------------------------------------------------------------

namespace {

// The table as the device has it after all work.
class Table {
 public:
  Table(const Rig& rig, const frt::State& state)
      : entries_(uint64_t{state.info().slots} * state.info().slot_pages),
        slot_pages_(state.info().slot_pages),
        buffer(rig.context.wrap(FRT_SPACE_DEVICE, const_cast<int32_t*>(state.info().page_table),
                                entries_ * sizeof(int32_t), "table")) {}
  std::vector<int32_t> slot(uint32_t number, const frt::Stream& stream) const {
    return buffer.download<int32_t>(slot_pages_, stream,
                                    uint64_t{number} * slot_pages_ * sizeof(int32_t));
  }

 private:
  uint64_t entries_;
  uint32_t slot_pages_;

 public:
  frt::Buffer buffer;
};

}  // namespace

TEST_CASE("with pages, fixed regions of all slots come first, then pages of all rows") {
  Rig rig;
  const frt::Stream stream = rig.context.create_stream("s");
  const std::vector<frt_region> regions = {rows("keys", 10, 100), fixed("recurrent", 300),
                                           rows("values", 256, 90), fixed("window", 256)};
  const frt::State state = make(rig, regions, 3, 16, 5);
  const frt_state_info info = state.info();
  CHECK(info.slot_stride == 768);
  CHECK(info.fixed_bytes == 768);
  CHECK(info.page_rows == 16);
  CHECK(info.slot_pages == 7);
  CHECK(info.total_pages == 3 * 7 + 5);
  CHECK(info.free_pages == info.total_pages);
  CHECK(info.shared_pages == 0);
  CHECK(info.page_stride == 256 + 4096);  // 160 bytes of keys, padded
  CHECK(state.region("window") == 512);
  CHECK(state.region("keys") == 3 * 768);
  CHECK(state.region("values") == 3 * 768 + 256);
  const frt::Buffer arena = frt::Buffer::retain(rig.context, info.buffer);
  CHECK(arena.bytes() == 3 * 768 + info.total_pages * info.page_stride);
  const Table table(rig, state);
  for (uint32_t slot = 0; slot < 3; ++slot) {
    CHECK(table.slot(slot, stream) == std::vector<int32_t>(7, -1));
  }
}

TEST_CASE("reserving rows takes the missing pages and tells the device") {
  Rig rig;
  const frt::Stream stream = rig.context.create_stream("s");
  const frt::State state = make(rig, {fixed("f", 8), rows("r", 16, 64)}, 2, 16, 1);
  const Table table(rig, state);
  state.reserve(0, 0, 1, stream);
  CHECK(table.slot(0, stream) == std::vector<int32_t>{0, -1, -1, -1});
  const int copies = rig.mock.calls("copy");
  state.reserve(0, 1, 16, stream);
  state.reserve(0, 16, 16, stream);
  CHECK(rig.mock.calls("copy") == copies);  // nothing new
  state.reserve(1, 0, 17, stream);
  state.reserve(0, 16, 48, stream);
  CHECK(rig.mock.calls("copy") == copies + 2);
  CHECK(table.slot(0, stream) == std::vector<int32_t>{0, 3, 4, -1});
  CHECK(table.slot(1, stream) == std::vector<int32_t>{1, 2, -1, -1});
  CHECK(state.counters().free_pages == 4);
  state.clear(0, stream);
  CHECK(table.slot(0, stream) == std::vector<int32_t>(4, -1));
  CHECK(state.counters().free_pages == 7);
  CHECK_FAILS(FRT_ERR_OUT_OF_RANGE, "rows 60 .. 65 of slot 1; it has room for 64",
              state.reserve(1, 60, 65, stream));
  CHECK_FAILS(FRT_ERR_OUT_OF_RANGE, "rows 3 .. 2", state.reserve(1, 3, 2, stream));
  CHECK_FAILS(FRT_ERR_OUT_OF_RANGE, "slot 2 of 2", state.reserve(2, 0, 1, stream));
}

TEST_CASE("without pages there is room for all rows, and no more") {
  Rig rig;
  const frt::Stream stream = rig.context.create_stream("s");
  const frt::State state = make(rig, {rows("r", 16, 64), rows("short", 16, 10)}, 2);
  state.reserve(1, 0, 10, stream);
  CHECK_FAILS(FRT_ERR_OUT_OF_RANGE, "room for 10", state.reserve(1, 0, 11, stream));
  CHECK(state.info().page_table == nullptr);
  CHECK(state.info().page_stride == state.info().slot_stride);
}

TEST_CASE("layouts whose pages cannot be are refused") {
  Rig rig;
  const auto refuses = [&](frt_status status, const char* part, std::vector<frt_region> regions,
                           uint32_t page_rows, uint32_t spare = 0, uint32_t slots = 2) {
    CHECK_FAILS(status, part, (void)make(rig, regions, slots, page_rows, spare));
  };
  refuses(FRT_ERR_INVALID_ARGUMENT, "page_rows is 24", {rows("r", 1, 1)}, 24);
  refuses(FRT_ERR_INVALID_ARGUMENT, "no ROWS", {fixed("f", 1)}, 16);
  frt_region ahead = rows("r", 1, 1);
  ahead.row_lag = -1;
  refuses(FRT_ERR_INVALID_ARGUMENT, "region 'r': row_lag is -1", {ahead}, 16);
  refuses(FRT_ERR_OUT_OF_RANGE, "overflows", {rows("r", UINT64_MAX / 8, 16)}, 16);
  refuses(FRT_ERR_OUT_OF_RANGE, "overflows", {rows("r", UINT64_MAX / 64, 64)}, 16);
  refuses(FRT_ERR_OUT_OF_RANGE, "more than a table can number", {rows("r", 1, UINT64_C(1) << 36)},
          16);
  refuses(FRT_ERR_OUT_OF_RANGE, "more than a table can number", {rows("r", 1, 16)}, 16, UINT32_MAX);
}

TEST_CASE("a state with pages that cannot be allocated leaves nothing behind") {
  for (int failing = 1; failing <= 3; ++failing) {
    Rig rig;
    for (int i = 1; i < failing; ++i) rig.mock.fail("memory_alloc", FRT_OK);
    rig.mock.fail("memory_alloc", FRT_ERR_OUT_OF_MEMORY);
    CHECK_FAILS(FRT_ERR_OUT_OF_MEMORY, "buffer 'state", (void)make(rig, {rows("r", 1, 9)}, 1, 4));
  }
}

TEST_CASE("when pages run out nothing changes, and the message has the numbers") {
  Rig rig;
  const frt::Stream stream = rig.context.create_stream("s");
  const frt::State state = make(rig, {rows("r", 16, 64)}, 2, 16);
  const Table table(rig, state);
  frt_state_s& inside = *state.handle();
  std::vector<int32_t> taken(3);
  REQUIRE(frt::core::take_pages(inside, taken, stream) == FRT_OK);
  state.reserve(0, 0, 40, stream);
  CHECK_FAILS(FRT_ERR_OUT_OF_MEMORY,
              "64 rows of slot 1 need 4 pages of 16 rows; it has 0, and 2 of 8 are free",
              state.reserve(1, 0, 64, stream));
  CHECK(table.slot(1, stream) == std::vector<int32_t>(4, -1));
  CHECK(state.counters().free_pages == 2);
  std::vector<int32_t> more(3);
  CHECK(frt::core::take_pages(inside, more, stream) == FRT_ERR_OUT_OF_MEMORY);
  CHECK(contains(rig.context.last_error(), "3 pages of 16 rows are needed, 2 of 8 are free"));
  inside.pages->release(taken);
  state.reserve(1, 0, 64, stream);
  CHECK(state.counters().free_pages == 1);
}

TEST_CASE("a slot does not go back into rows that somebody else holds") {
  Rig rig;
  const frt::Stream stream = rig.context.create_stream("s");
  const frt::State state = make(rig, {rows("r", 16, 64)}, 2, 16);
  frt_state_s& inside = *state.handle();
  state.reserve(0, 0, 30, stream);
  std::vector<int32_t> held(2);
  CHECK(frt::core::share_pages(inside, 0, 33, held) == FRT_ERR_OUT_OF_RANGE);
  CHECK(contains(rig.context.last_error(), "boundary 33 of slot 0, which has 2 pages of 16"));
  REQUIRE(frt::core::share_pages(inside, 0, 30, held) == FRT_OK);
  CHECK(state.counters().shared_pages == 2);
  state.reserve(0, 30, 31, stream);
  CHECK_FAILS(FRT_ERR_BAD_STATE, "rows from 29 of slot 0 on are held",
              state.reserve(0, 29, 31, stream));
  inside.pages->release(held);
  state.reserve(0, 29, 31, stream);
}

TEST_CASE("the table changes in the order of the stream, however far the host is ahead") {
  for (const uint32_t seed : {1u, 2u, 3u}) {
    RigOptions options;
    options.seed = seed;
    Rig rig(options);
    const frt::Stream stream = rig.context.create_stream("s");
    const frt::State state = make(rig, {fixed("f", 8), rows("r", 16, 64)}, 2, 16, 3);
    const Table table(rig, state);
    constexpr uint32_t kSteps = 3 * frt::core::TableRing::kPlaces;
    const frt::Buffer seen =
        rig.context.alloc(FRT_SPACE_HOST, kSteps * 8 * sizeof(int32_t), "seen");
    std::vector<int32_t> expected;
    std::mt19937 random(seed);
    const frt::Recorder recorder(stream);
    uint64_t boundary[2] = {0, 0};
    for (uint32_t step = 0; step < kSteps; ++step) {
      const uint32_t slot = random() % 2;
      if (boundary[slot] > 40 || random() % 5 == 0) {
        state.clear(slot, stream);
        boundary[slot] = 0;
      } else {
        const uint64_t end = boundary[slot] + 1 + random() % 20;
        state.reserve(slot, boundary[slot], end, stream);
        boundary[slot] = end;
      }
      recorder.copy(seen, step * 8 * sizeof(int32_t), table.buffer, 0, 8 * sizeof(int32_t));
      for (uint32_t i = 0; i < 2; ++i) {
        const auto entries = state.handle()->pages->entries(i);
        expected.insert(expected.end(), entries.begin(), entries.end());
      }
    }
    stream.sync();
    CHECK(std::equal(expected.begin(), expected.end(), seen.pointer<int32_t>()));
  }
}

TEST_CASE("a stream of another context is refused and changes nothing") {
  Rig other_rig;
  const frt::Stream foreign = other_rig.context.create_stream("foreign");
  Rig rig;
  const frt::Stream stream = rig.context.create_stream("s");
  for (const uint32_t page_rows : {0u, 16u}) {
    CAPTURE(page_rows);
    const frt::State state = make(rig, {fixed("f", 8), rows("r", 16, 64)}, 2, page_rows);
    state.reserve(0, 0, 20, stream);
    const uint32_t free_pages = state.info().free_pages;
    CHECK_FAILS(FRT_ERR_INVALID_ARGUMENT, "state_clear: the stream is of another context",
                state.clear(0, foreign));
    CHECK_FAILS(FRT_ERR_INVALID_ARGUMENT, "state_reserve: the stream is of another context",
                state.reserve(0, 20, 21, foreign));
    CHECK(state.info().free_pages == free_pages);
    CHECK(state.handle()->extents[0] == 20);
    CHECK_NOTHROW(state.reserve(0, 20, 40, stream));
    CHECK_NOTHROW(state.clear(0, stream));
    CHECK_NOTHROW(state.reserve(0, 0, 1, stream));
  }
}

TEST_CASE("clearing a slot whose table the device does not take leaves its rows") {
  Rig rig;
  const frt::Stream stream = rig.context.create_stream("s");
  const frt::State state = make(rig, {rows("r", 16, 64)}, 2, 16);
  state.reserve(0, 0, 20, stream);
  const uint32_t free_pages = state.info().free_pages;
  rig.mock.fail("fill", FRT_ERR_DEVICE);
  CHECK_FAILS(FRT_ERR_DEVICE, "buffer_fill", state.clear(0, stream));
  CHECK(state.info().free_pages == free_pages);
  CHECK(state.handle()->extents[0] == 20);
}

TEST_CASE("a change of the table that the device refuses is undone") {
  Rig rig;
  const frt::Stream stream = rig.context.create_stream("s");
  const frt::State state = make(rig, {rows("r", 16, 64)}, 1, 16);
  state.reserve(0, 0, 16, stream);
  rig.mock.fail("copy", FRT_ERR_DEVICE);
  CHECK_FAILS(FRT_ERR_DEVICE, "buffer_copy_batch", state.reserve(0, 16, 64, stream));
  CHECK(state.counters().free_pages == 3);
  state.reserve(0, 16, 64, stream);
  const Table table(rig, state);
  CHECK(table.slot(0, stream) == std::vector<int32_t>{0, 1, 2, 3});
}

TEST_CASE("pages do not change hands inside a record callback") {
  Rig rig;
  const frt::State state = make(rig, {rows("r", 16, 64)}, 1, 16);
  frt::Graph graph = rig.context.create_graph("g", 1);
  const frt_state_v1& table = *frt::core::state_table();
  graph.capture(1, [&](const frt::Recorder& recorder) {
    CHECK(table.state_reserve(state.handle(), 0, 0, 1, recorder.stream()) == FRT_ERR_BAD_STATE);
    CHECK(table.state_clear(state.handle(), 0, recorder.stream()) == FRT_ERR_BAD_STATE);
    rig.append(recorder, {0, 1});
  });
  CHECK(state.counters().free_pages == 4);
}

TEST_CASE("a stream that gave pages back is kept until another one waits for it") {
  Rig rig;
  const frt::Stream other = rig.context.create_stream("other");
  const frt::State state = make(rig, {fixed("f", 8), rows("r", 16, 64)}, 2, 16);
  const int streams = rig.mock.live_streams;
  {
    const frt::Stream first = rig.context.create_stream("first");
    state.reserve(0, 0, 64, first);
    state.clear(0, first);
  }
  CHECK(rig.mock.live_streams == streams + 1);
  state.clear(1, other);
  CHECK(rig.mock.live_streams == streams);
  state.reserve(1, 0, 64, other);
}

TEST_CASE("a state that goes inside a record callback goes when the capture is over") {
  Rig rig;
  frt::State state = make(rig, {fixed("f", 8), rows("r", 16, 64)}, 2, 16);
  {
    const frt::Stream stream = rig.context.create_stream("s");
    state.reserve(0, 0, 64, stream);
    state.clear(0, stream);
  }
  frt::Graph graph = rig.context.create_graph("g", 1);
  const int blocks = rig.mock.live_blocks;
  graph.capture(1, [&](const frt::Recorder& recorder) {
    state = {};
    CHECK(rig.mock.live_blocks == blocks);
    rig.append(recorder, {0, 1});
  });
  CHECK(rig.mock.live_blocks == 0);
}
