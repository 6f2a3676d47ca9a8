// SPDX-License-Identifier: Apache-2.0
// Snapshot, restore, fork and copy on random layouts, against the naive reading of the arena.
#include <set>

#include "capsule_rig.hpp"

namespace frt::test {
namespace {

// Pages of which every row of every region is valid at `boundary`.
uint64_t whole_pages(const Arena& arena, uint64_t boundary) {
  if (!arena.shape.page_rows) return 0;
  uint64_t rows = boundary;
  for (const Shape::Region& region : arena.shape.regions) {
    if (region.kind == FRT_REGION_ROWS) rows = std::min(rows, arena.valid_rows(region, boundary));
  }
  return rows / arena.shape.page_rows;
}

// What a verb may write: the valid part of `slots` at `boundary`, and the padding between; and,
// from pages to pages, all of the slot's pages that are not shared.
Bytes allowed(const Arena& arena, const std::vector<uint32_t>& slots, uint64_t boundary,
              bool pages) {
  Bytes mask(arena.image().size(), 0);
  for (const uint32_t slot : slots) {
    arena.for_each_valid(slot, boundary, [&](uint64_t at, uint64_t bytes) {
      std::fill_n(mask.begin() + static_cast<std::ptrdiff_t>(at), bytes, 1);
    });
    const frt_state_info& info = arena.state.info();
    std::fill_n(mask.begin() + static_cast<std::ptrdiff_t>(slot * info.slot_stride),
                info.fixed_bytes, 1);
    if (!pages || !info.page_rows) continue;
    const auto table = arena.table();
    for (uint64_t i = whole_pages(arena, boundary); i * info.page_rows < boundary; ++i) {
      const auto page = static_cast<uint64_t>(table[slot * info.slot_pages + i]);
      const uint64_t at = info.slots * info.slot_stride + page * info.page_stride;
      std::fill_n(mask.begin() + static_cast<std::ptrdiff_t>(at), info.page_stride, 1);
    }
  }
  return mask;
}

// Bytes that belong to a region: all but padding.
Bytes in_regions(const Arena& arena) {
  Bytes mask(arena.image().size(), 0);
  const frt_state_info& info = arena.state.info();
  for (const Shape::Region& region : arena.shape.regions) {
    const bool pages = info.page_rows && region.kind == FRT_REGION_ROWS;
    const uint64_t count = pages ? info.total_pages : info.slots;
    const uint64_t stride = pages ? info.page_stride : info.slot_stride;
    const uint64_t rows = region.kind == FRT_REGION_FIXED ? 1
                          : pages                         ? info.page_rows
                                                          : region.max_rows;
    for (uint64_t i = 0; i < count; ++i) {
      const uint64_t at = arena.state.region(region.name) + i * stride;
      std::fill_n(mask.begin() + static_cast<std::ptrdiff_t>(at), rows * region.row_bytes, 1);
    }
  }
  return mask;
}

uint64_t bytes_written_beyond(const Arena& arena, const Bytes& before,
                              const std::vector<uint32_t>& slots, uint64_t boundary, bool pages) {
  const Bytes after = arena.image(), may = allowed(arena, slots, boundary, pages);
  const Bytes counts = in_regions(arena);
  uint64_t beyond = 0;
  for (std::size_t i = 0; i < after.size(); ++i) {
    beyond += after[i] != before[i] && !may[i] && counts[i] ? 1 : 0;
  }
  return beyond;
}

// The payload as frt/capsule.h describes it.
Bytes payload(const Arena& arena, uint32_t slot, uint64_t boundary) {
  const Bytes all = arena.image();
  const auto table = arena.table();
  const frt_state_info& info = arena.state.info();
  Bytes bytes;
  const auto append = [&](uint64_t at, uint64_t count) {
    bytes.insert(bytes.end(), all.begin() + static_cast<std::ptrdiff_t>(at),
                 all.begin() + static_cast<std::ptrdiff_t>(at + count));
  };
  append(slot * info.slot_stride, info.fixed_bytes);
  const uint64_t whole = whole_pages(arena, boundary);
  if (info.page_rows) {
    const uint64_t pool = info.slots * info.slot_stride;
    for (uint64_t i = 0; i < whole; ++i) {
      const auto page = static_cast<uint64_t>(table[slot * info.slot_pages + i]);
      append(pool + page * info.page_stride, info.page_stride);
    }
  }
  for (const Shape::Region& region : arena.shape.regions) {
    if (region.kind != FRT_REGION_ROWS) continue;
    for (uint64_t row = whole * info.page_rows; row < arena.valid_rows(region, boundary); ++row) {
      append(arena.row_at(region, slot, row, table), region.row_bytes);
    }
  }
  return bytes;
}

constexpr frt_space kSpaces[] = {FRT_SPACE_DEVICE, FRT_SPACE_HOST_PINNED, FRT_SPACE_HOST};

}  // namespace

TEST_CASE("what is restored is what was saved, byte for byte, and nothing else is touched") {
  const DeviceRig rig;
  std::mt19937_64 random(7);
  const uint64_t cases = number_from("FRT_CAPSULE_CASES", rig.mock ? 300 : 60);
  for (uint64_t i = 0; i < cases; ++i) {
    CAPTURE(i);
    const Arena arena(rig, random_shape(random));
    const auto below = [&](uint64_t end) { return random() % end; };
    const uint64_t boundary = below(4) ? below(arena.shape.max_rows + 1) : arena.shape.max_rows;
    const auto source = static_cast<uint32_t>(below(arena.shape.slots));
    const auto target = static_cast<uint32_t>(below(arena.shape.slots));
    const frt_space space = kSpaces[below(3)];
    CAPTURE(boundary);
    CAPTURE(space);
    CAPTURE(arena.shape.page_rows);
    for (uint32_t slot = 0; slot < arena.shape.slots; ++slot) {
      arena.live(slot, below(arena.shape.max_rows + 1), random);
    }
    const Bytes saved = arena.live(source, boundary, random);
    const Bytes bytes = payload(arena, source, boundary);

    Capsule capsule = arena.capsules.snapshot(source, boundary, space, arena.stream);
    CHECK(capsule.bytes() == bytes.size());
    for (uint64_t moves = below(3); moves > 0; --moves) {
      capsule = capsule.copy(kSpaces[below(3)], arena.stream);
    }
    if (capsule.space() != FRT_SPACE_DEVICE) {
      capsule.sync();
      const std::string read = capsule.read();
      CHECK(Bytes(read.begin(), read.end()) == bytes);
    }
    arena.live(source, below(arena.shape.max_rows + 1), random);
    arena.live(target, below(arena.shape.max_rows + 1), random);
    const Bytes before = arena.image();
    capsule.restore(target, arena.stream);
    CHECK(arena.content(target, boundary) == saved);
    CHECK(bytes_written_beyond(arena, before, {target}, boundary,
                               capsule.space() == arena.space()) == 0);
  }
}

TEST_CASE("forks do not influence each other, the slot they came from, or the capsule") {
  const DeviceRig rig;
  std::mt19937_64 random(11);
  const uint64_t cases = number_from("FRT_CAPSULE_CASES", rig.mock ? 200 : 40);
  for (uint64_t i = 0; i < cases; ++i) {
    CAPTURE(i);
    Shape shape = random_shape(random);
    shape.slots = 4;
    const Arena arena(rig, shape);
    const uint64_t boundary = random() % (shape.max_rows + 1);
    const Bytes saved = arena.live(0, boundary, random);
    const std::vector<uint32_t> slots = {3, 1};
    const bool from_slot = random() % 2 == 0;
    const Capsule capsule =
        arena.capsules.snapshot(0, boundary, kSpaces[random() % 3], arena.stream);
    const Bytes before = arena.image();
    if (from_slot) {
      arena.capsules.fork_slot(0, boundary, slots, arena.stream);
    } else {
      capsule.fork(slots, arena.stream);
    }
    CHECK(bytes_written_beyond(arena, before, slots, boundary,
                               from_slot || capsule.space() == arena.space()) == 0);
    CHECK(arena.content(3, boundary) == saved);
    CHECK(arena.content(1, boundary) == saved);
    CHECK(arena.content(0, boundary) == saved);

    // Each goes on by itself: more rows, other FIXED content.
    std::vector<Bytes> grown(4);
    for (const uint32_t slot : {0u, 1u, 3u}) {
      const uint64_t end = boundary + random() % (shape.max_rows - boundary + 1);
      arena.state.reserve(slot, boundary, end, arena.stream);
      const auto table = arena.table();
      Bytes all = arena.image();
      for (const Shape::Region& region : shape.regions) {
        const bool fixed = region.kind == FRT_REGION_FIXED;
        const uint64_t first = fixed ? 0 : arena.valid_rows(region, boundary);
        const uint64_t last = fixed ? 1 : arena.valid_rows(region, end);
        for (uint64_t row = first; row < last; ++row) {
          const uint64_t at = arena.row_at(region, slot, row, table);
          for (uint64_t k = 0; k < region.row_bytes; ++k) {
            all[at + k] = static_cast<uint8_t>(random());
          }
        }
      }
      arena.set_image(all);
      grown[slot] = arena.content(slot, end);
      if (slot == 3) CHECK(arena.content(3, end) == grown[3]);
      if (slot == 1) {
        capsule.restore(2, arena.stream);
        CHECK(arena.content(2, boundary) == saved);
      }
    }
    capsule.restore(1, arena.stream);
    CHECK(arena.content(1, boundary) == saved);
  }
}

TEST_CASE("going back to an earlier capsule is as if one had never gone on") {
  const DeviceRig rig;
  std::mt19937_64 random(13);
  for (uint64_t i = 0; i < number_from("FRT_CAPSULE_CASES", 60); ++i) {
    CAPTURE(i);
    Shape shape = random_shape(random);
    shape.max_rows += 8;
    for (auto& region : shape.regions) {
      if (region.kind == FRT_REGION_ROWS) region.max_rows += 8;
    }
    const Arena arena(rig, shape);
    const uint64_t early = random() % (shape.max_rows - 1);
    const uint64_t late = early + 1 + random() % (shape.max_rows - early);
    const frt_space space = kSpaces[random() % 3];
    const Bytes first = arena.live(0, early, random);
    const Capsule before = arena.capsules.snapshot(0, early, space, arena.stream);
    arena.state.reserve(0, early, late, arena.stream);
    const Bytes then = arena.content(0, late);
    const Capsule after = arena.capsules.snapshot(0, late, space, arena.stream);
    before.restore(0, arena.stream);
    CHECK(arena.content(0, early) == first);
    after.restore(0, arena.stream);
    CHECK(arena.content(0, late) == then);
    before.restore(1, arena.stream);
    CHECK(arena.content(1, early) == first);
  }
}

TEST_CASE("every verb is one submission of copies") {
  const DeviceRig rig;
  if (!rig.mock) return;
  std::mt19937_64 random(17);
  for (const uint32_t page_rows : {0u, 4u}) {
    Shape shape;
    shape.slots = 4;
    shape.max_rows = 40;
    shape.page_rows = page_rows;
    shape.spare_pages = 40;
    shape.regions = {{"s", FRT_REGION_FIXED, FRT_DTYPE_F32, 100, 1, 0},
                     {"k", FRT_REGION_ROWS, FRT_DTYPE_BF16, 64, 40, 0},
                     {"v", FRT_REGION_ROWS, FRT_DTYPE_BF16, 64, 40, 1}};
    const Arena arena(rig, shape);
    arena.live(0, 37, random);
    const auto submissions = [&](auto&& verb) {
      const int before = rig.mock->calls("copy");
      verb();
      return rig.mock->calls("copy") - before;
    };
    Capsule capsule, copied;
    for (const frt_space space : kSpaces) {
      CHECK(submissions([&] { capsule = arena.capsules.snapshot(0, 37, space, arena.stream); }) ==
            1);
      CHECK(submissions([&] { copied = capsule.copy(FRT_SPACE_DEVICE, arena.stream); }) == 1);
      CHECK(submissions([&] { capsule.restore(1, arena.stream); }) == 1);
      const uint32_t slots[] = {1, 2, 3};
      CHECK(submissions([&] { capsule.fork(slots, arena.stream); }) == 1);
      CHECK(submissions([&] { arena.capsules.fork_slot(0, 37, slots, arena.stream); }) == 1);
    }
  }
}

TEST_CASE("forks and device capsules share whole pages and copy the rest") {
  const DeviceRig rig;
  std::mt19937_64 random(19);
  Shape shape;
  shape.slots = 3;
  shape.max_rows = 64;
  shape.page_rows = 8;
  shape.spare_pages = 8;
  shape.regions = {{"s", FRT_REGION_FIXED, FRT_DTYPE_F32, 100, 1, 0},
                   {"k", FRT_REGION_ROWS, FRT_DTYPE_BF16, 16, 64, 0}};
  const Arena arena(rig, shape);
  const auto free_pages = [&] {
    frt_state_info info{};
    info.struct_size = sizeof(info);
    core::state_table()->state_info(arena.state.handle(), &info);
    return info.free_pages;
  };
  const uint32_t all = free_pages();
  arena.live(0, 60, random);
  CHECK(free_pages() == all - 8);
  {
    const Capsule capsule = arena.capsules.snapshot(0, 60, FRT_SPACE_DEVICE, arena.stream);
    CHECK(free_pages() == all - 8);
    CHECK(capsule.info().shared_bytes == 8 * arena.state.info().page_stride);
    const uint32_t slots[] = {1, 2};
    capsule.fork(slots, arena.stream);
    CHECK(free_pages() == all - 10);
    arena.state.clear(0, arena.stream);
    CHECK(free_pages() == all - 10);
  }
  arena.stream.sync();
  arena.state.clear(1, arena.stream);
  arena.state.clear(2, arena.stream);
  // The capsule's pages come back when somebody needs them, if not before.
  arena.state.reserve(0, 0, 64, arena.stream);
  arena.state.reserve(1, 0, 64, arena.stream);
  arena.state.reserve(2, 0, 64, arena.stream);
}

TEST_CASE("pages of a released capsule are handed over before anybody is told there are none") {
  const DeviceRig rig;
  std::mt19937_64 random(23);
  Shape shape;
  shape.slots = 2;
  shape.max_rows = 32;
  shape.page_rows = 8;
  shape.regions = {{"k", FRT_REGION_ROWS, FRT_DTYPE_BF16, 16, 32, 0}};
  const Arena arena(rig, shape);
  const Bytes content = arena.live(0, 32, random);
  {
    const Capsule capsule = arena.capsules.snapshot(0, 32, FRT_SPACE_DEVICE, arena.stream);
    const Capsule host = capsule.copy(FRT_SPACE_HOST_PINNED, arena.stream);
    arena.state.clear(0, arena.stream);
    CHECK_FAILS(FRT_ERR_OUT_OF_MEMORY, "pages", [&] {
      arena.state.reserve(0, 0, 32, arena.stream);
      arena.state.reserve(1, 0, 32, arena.stream);
    }());
    arena.state.clear(0, arena.stream);
  }
  arena.state.reserve(0, 0, 32, arena.stream);
  arena.state.reserve(1, 0, 32, arena.stream);
}

TEST_CASE("a capsule released while it is read keeps its memory until the reading is done") {
  const DeviceRig rig;
  std::mt19937_64 random(29);
  Shape shape;
  shape.max_rows = 16;
  shape.regions = {{"s", FRT_REGION_FIXED, FRT_DTYPE_F32, 5000, 1, 0},
                   {"k", FRT_REGION_ROWS, FRT_DTYPE_BF16, 64, 16, 0}};
  for (const frt_space space : kSpaces) {
    const Arena arena(rig, shape);
    const Stream side = rig.context.create_stream("side");
    const Bytes first = arena.live(0, 16, random);
    Capsule capsule = arena.capsules.snapshot(0, 16, space, arena.stream);
    capsule.restore(1, side);
    capsule.reset();
    Recorder(arena.stream).fill(arena.state.info().buffer, 0, arena.state.info().slot_stride, 0xAB);
    // The next capsule may get the same slabs; its stream waits for the other one.
    Capsule next = arena.capsules.snapshot(0, 3, space, arena.stream);
    Capsule third = arena.capsules.snapshot(0, 2, space, arena.stream);
    side.sync();
    arena.stream.sync();
    CHECK(arena.content(1, 16) == first);
    next.restore(1, arena.stream);
    CHECK(arena.content(1, 3) == Bytes(5000 + 3 * 64, 0xAB));
  }
}

TEST_CASE("a restored slot never receives another capsule's bytes") {
  const DeviceRig rig;
  const TemporaryFolder folder;
  std::mt19937_64 random(43);
  Shape shape;
  shape.slots = 3;
  shape.max_rows = 64;
  shape.regions = {{"k", FRT_REGION_ROWS, FRT_DTYPE_BF16, 1024, 64, 0}};
  for (const frt_space space : {FRT_SPACE_HOST_PINNED, FRT_SPACE_HOST}) {
    const Arena arena(rig, shape);
    const std::vector<frt_fingerprint_field> fields = {{"model", "m"}};
    arena.capsules.bind(fields);
    arena.capsules.fingerprint();
    arena.live(2, 64, random);
    const Capsule other = arena.capsules.snapshot(2, 64, FRT_SPACE_HOST, arena.stream);
    other.sync();
    const std::string name = "other" + std::to_string(space);
    other.save(folder.path, name, "");
    const Bytes first = arena.live(0, 64, random);
    Capsule capsule = arena.capsules.snapshot(0, 64, space, arena.stream);
    capsule.sync();
    // The restore is in flight when a small capsule takes a part of the memory that it reads, and a
    // file is loaded into the rest.
    capsule.restore(1, arena.stream);
    capsule.reset();
    const Capsule small = arena.capsules.snapshot(0, 1, space, arena.stream);
    const Capsule loaded = arena.capsules.load(folder.path, name, space);
    CHECK(arena.content(1, 64) == first);
    CHECK(loaded.read() == other.read());
  }
}

TEST_CASE("memory is not handed on while the device cannot say that it is done with it") {
  const DeviceRig rig;
  if (!rig.mock) return;
  std::mt19937_64 random(47);
  Shape shape;
  shape.max_rows = 16;
  shape.regions = {{"k", FRT_REGION_ROWS, FRT_DTYPE_BF16, 1024, 16, 0}};
  const Arena arena(rig, shape);
  const Bytes first = arena.live(0, 16, random);
  Capsule capsule = arena.capsules.snapshot(0, 16, FRT_SPACE_HOST, arena.stream);
  capsule.sync();
  capsule.restore(1, arena.stream);
  rig.mock->fail("event_query", FRT_ERR_DEVICE);
  capsule.reset();
  rig.mock->fail("event_query", FRT_ERR_DEVICE, 2);
  const Stream side = rig.context.create_stream("side");
  Recorder(side).fill(arena.state.info().buffer, 0, 16 * 1024, 0xAB);
  const Capsule next = arena.capsules.snapshot(0, 16, FRT_SPACE_HOST, side);
  side.sync();
  CHECK(arena.content(1, 16) == first);
}

TEST_CASE("slabs taken for a verb that failed are behind the work that they were taken from") {
  const DeviceRig rig;
  if (!rig.mock) return;
  std::mt19937_64 random(53);
  Shape shape;
  shape.slots = 3;
  shape.max_rows = 64;
  shape.page_rows = 8;
  shape.regions = {{"s", FRT_REGION_FIXED, FRT_DTYPE_F32, 1024, 1, 0},
                   {"k", FRT_REGION_ROWS, FRT_DTYPE_BF16, 16, 64, 0}};
  const Arena arena(rig, shape);
  const Bytes first = arena.live(0, 64, random);
  arena.live(1, 64, random);
  arena.live(2, 64, random);
  Capsule capsule = arena.capsules.snapshot(0, 64, FRT_SPACE_DEVICE, arena.stream);
  const Capsule rows = arena.capsules.snapshot(1, 64, FRT_SPACE_DEVICE, arena.stream);
  const Capsule host = arena.capsules.snapshot(2, 64, FRT_SPACE_HOST, arena.stream);
  host.sync();
  // The restore comes late, its capsule's memory goes to a copy that finds no pages, and then to a
  // snapshot on a third stream.
  const Buffer busy = rig.context.alloc(FRT_SPACE_DEVICE, 64, "busy");
  for (int i = 0; i < 100; ++i) Recorder(arena.stream).fill(busy, 0, 64, 0);
  capsule.restore(1, arena.stream);
  capsule.reset();
  const Stream side = rig.context.create_stream("side"), third = rig.context.create_stream("third");
  CHECK_FAILS(FRT_ERR_OUT_OF_MEMORY, "8 pages of 8 rows are needed, 0 of 24 are free",
              (void)host.copy(FRT_SPACE_DEVICE, side));
  const Capsule next = arena.capsules.snapshot(2, 0, FRT_SPACE_DEVICE, third);
  third.sync();
  CHECK(arena.content(1, 64) == first);
}

TEST_CASE("what lies behind a slot's own rows is in no capsule and in no other slot") {
  const DeviceRig rig;
  std::mt19937_64 random(59);
  for (const uint32_t page_rows : {0u, 8u}) {
    CAPTURE(page_rows);
    Shape shape;
    shape.slots = 3;
    shape.max_rows = 64;
    shape.page_rows = page_rows;
    shape.regions = {{"s", FRT_REGION_FIXED, FRT_DTYPE_F32, 16, 1, 0},
                     {"k", FRT_REGION_ROWS, FRT_DTYPE_BF16, 16, 64, 0}};
    const Arena arena(rig, shape);
    const Capsules& capsules = arena.capsules;
    arena.live(0, 64, random);  // what an earlier sequence left
    const Bytes saved = arena.live(1, 22, random);
    const uint32_t other[] = {2};
    for (const frt_space space : kSpaces) {
      CAPTURE(space);
      const Capsule capsule = capsules.snapshot(1, 22, space, arena.stream);
      capsule.restore(0, arena.stream);
      for (const uint32_t slot : {0u, 1u}) {
        CHECK_FAILS(FRT_ERR_OUT_OF_RANGE, "which has 22 rows",
                    (void)capsules.snapshot(slot, 23, FRT_SPACE_HOST, arena.stream));
        CHECK_FAILS(FRT_ERR_OUT_OF_RANGE, "which has 22 rows",
                    capsules.fork_slot(slot, 64, other, arena.stream));
        CHECK_FAILS(FRT_ERR_OUT_OF_RANGE, "go on where the slot ends",
                    arena.state.reserve(slot, 23, 24, arena.stream));
      }
      CHECK(arena.content(0, 22) == saved);
    }
    // Forks have what they were forked with; a slot that goes on has what it announced.
    capsules.fork_slot(1, 20, other, arena.stream);
    CHECK_FAILS(FRT_ERR_OUT_OF_RANGE, "slot 2, which has 20 rows",
                (void)capsules.snapshot(2, 21, FRT_SPACE_HOST, arena.stream));
    arena.state.reserve(2, 20, 30, arena.stream);
    CHECK_NOTHROW((void)capsules.snapshot(2, 30, FRT_SPACE_HOST, arena.stream));
    arena.state.clear(2, arena.stream);
    CHECK_FAILS(FRT_ERR_OUT_OF_RANGE, "slot 2, which has 0 rows",
                (void)capsules.snapshot(2, 1, FRT_SPACE_HOST, arena.stream));
    CHECK_FAILS(FRT_ERR_OUT_OF_RANGE, "rows from 1 of slot 2, which has 0",
                arena.state.reserve(2, 1, 2, arena.stream));
  }
}

TEST_CASE("memory of capsules is taken in slabs, used again, and given back when asked") {
  const DeviceRig rig;
  std::mt19937_64 random(31);
  Shape shape;
  shape.max_rows = 1000;
  shape.regions = {{"k", FRT_REGION_ROWS, FRT_DTYPE_BF16, 256, 1000, 0}};
  const Arena arena(rig, shape);
  const uint64_t slab = arena.capsules.usage(FRT_SPACE_HOST_PINNED).slab_bytes;
  CHECK(slab == 16384);
  for (const uint32_t slot : {0u, 1u}) arena.state.reserve(slot, 0, 500, arena.stream);
  arena.capsules.reserve(FRT_SPACE_HOST_PINNED, 500, 2);
  const uint64_t reserved = arena.capsules.usage(FRT_SPACE_HOST_PINNED).free_bytes;
  CHECK(reserved == 2 * 8 * slab);
  const int allocations = rig.mock ? rig.mock->calls("memory_alloc") : 0;
  const int events = rig.mock ? rig.mock->calls("event_create") : 0;
  for (int i = 0; i < 20; ++i) {
    const Capsule a = arena.capsules.snapshot(0, 500, FRT_SPACE_HOST_PINNED, arena.stream);
    const Capsule b = arena.capsules.snapshot(1, 500, FRT_SPACE_HOST_PINNED, arena.stream);
    CHECK(a.info().held_bytes == 8 * slab);
    CHECK(arena.capsules.usage(FRT_SPACE_HOST_PINNED).used_bytes == 16 * slab);
    // Later ones need the events of those before only when these are done.
    if (rig.mock && i == 0) CHECK(rig.mock->calls("event_create") == events);
  }
  if (rig.mock) CHECK(rig.mock->calls("memory_alloc") == allocations);
  arena.capsules.trim(FRT_SPACE_HOST_PINNED);
  CHECK(arena.capsules.usage(FRT_SPACE_HOST_PINNED).free_bytes == 0);
}

TEST_CASE("a capsule keeps the arena alive when the model lets go of it") {
  const DeviceRig rig;
  std::mt19937_64 random(37);
  Shape shape;
  shape.max_rows = 4;
  shape.regions = {{"k", FRT_REGION_ROWS, FRT_DTYPE_BF16, 16, 4, 0}};
  Capsule capsule;
  {
    const Arena arena(rig, shape);
    arena.live(0, 4, random);
    capsule = arena.capsules.snapshot(0, 4, FRT_SPACE_HOST, arena.stream);
  }
  const Stream stream = rig.context.create_stream("later");
  capsule.restore(1, stream);
  capsule.sync();
  CHECK(capsule.read().size() == 64);
}

TEST_CASE("wrong calls are refused with their reason and change nothing") {
  const DeviceRig rig;
  std::mt19937_64 random(41);
  for (const uint32_t page_rows : {0u, 4u}) {
    Shape shape;
    shape.max_rows = 8;
    shape.page_rows = page_rows;
    shape.regions = {{"s", FRT_REGION_FIXED, FRT_DTYPE_F32, 16, 1, 0},
                     {"k", FRT_REGION_ROWS, FRT_DTYPE_BF16, 16, 8, 0}};
    const Arena arena(rig, shape);
    arena.live(0, 8, random);
    const Bytes before = arena.image();
    const Capsules& capsules = arena.capsules;
    const Stream& stream = arena.stream;
    CHECK_FAILS(FRT_ERR_OUT_OF_RANGE, "slot 2 of 2",
                (void)capsules.snapshot(2, 8, FRT_SPACE_HOST, stream));
    CHECK_FAILS(FRT_ERR_OUT_OF_RANGE, "boundary 9",
                (void)capsules.snapshot(0, 9, FRT_SPACE_HOST, stream));
    CHECK_FAILS(FRT_ERR_UNSUPPORTED, "unknown space 4",
                (void)capsules.snapshot(0, 8, FRT_SPACE_COUNT, stream));
    CHECK_FAILS(FRT_ERR_OUT_OF_RANGE, "boundary 8 of slot 1, which has 0 rows",
                (void)capsules.snapshot(1, 8, FRT_SPACE_HOST, stream));
    const Capsule capsule = capsules.snapshot(0, 8, FRT_SPACE_DEVICE, stream);
    CHECK_FAILS(FRT_ERR_OUT_OF_RANGE, "slot 2 of 2", capsule.restore(2, stream));
    const uint32_t twice[] = {1, 1}, self[] = {0};
    CHECK_FAILS(FRT_ERR_INVALID_ARGUMENT, "twice", capsule.fork(twice, stream));
    CHECK_FAILS(FRT_ERR_INVALID_ARGUMENT, "into itself", capsules.fork_slot(0, 8, self, stream));
    CHECK_FAILS(FRT_ERR_OUT_OF_RANGE, "boundary 9", capsules.fork_slot(0, 9, self, stream));
    if (!arena.shared()) CHECK_FAILS(FRT_ERR_UNSUPPORTED, "device memory", (void)capsule.read());
    CHECK_FAILS(FRT_ERR_UNSUPPORTED, "unknown space 9", (void)capsule.copy(9, stream));
    CHECK(arena.image() == before);

    const Capsule host = capsules.snapshot(0, 8, FRT_SPACE_HOST, stream);
    CHECK_FAILS(FRT_ERR_NOT_READY, "wait for it", (void)host.read());
    host.sync();
    CHECK(host.query());
    CHECK_NOTHROW((void)host.read());

    const frt_capsules_v1& table = capsules.table();
    frt_capsule none = nullptr;
    CHECK(table.snapshot(nullptr, 0, 0, 0, nullptr, &none, nullptr) == FRT_ERR_INVALID_ARGUMENT);
    CHECK(table.restore(nullptr, 0, stream.handle()) == FRT_ERR_INVALID_ARGUMENT);
    CHECK(table.fork(capsule.handle(), nullptr, 1, stream.handle()) == FRT_ERR_INVALID_ARGUMENT);
    CHECK(table.copy(nullptr, 0, nullptr, &none, nullptr) == FRT_ERR_INVALID_ARGUMENT);
    CHECK(table.info(capsule.handle(), nullptr) == FRT_ERR_INVALID_ARGUMENT);
    CHECK(table.query(nullptr) == FRT_ERR_INVALID_ARGUMENT);
    CHECK(table.sync(nullptr) == FRT_ERR_INVALID_ARGUMENT);
    table.release(nullptr);
  }
}

TEST_CASE("a device that has no more memory says so with numbers, and nothing is kept") {
  const DeviceRig rig;
  if (!rig.mock) return;
  Shape shape;
  shape.max_rows = 8;
  shape.regions = {{"k", FRT_REGION_ROWS, FRT_DTYPE_BF16, 16384, 8, 0}};
  const Arena arena(rig, shape);
  arena.state.reserve(0, 0, 8, arena.stream);
  const int blocks = rig.mock->live_blocks;
  rig.mock->fail("memory_alloc", FRT_ERR_OUT_OF_MEMORY);
  CHECK_FAILS(FRT_ERR_OUT_OF_MEMORY, "a capsule of 131072 bytes of state 'state' in host-pinned",
              (void)arena.capsules.snapshot(0, 8, FRT_SPACE_HOST_PINNED, arena.stream));
  CHECK(rig.mock->live_blocks == blocks);
  CHECK(arena.capsules.usage(FRT_SPACE_HOST_PINNED).used_bytes == 0);
  rig.mock->fail("copy", FRT_ERR_DEVICE);
  CHECK_FAILS(FRT_ERR_DEVICE, "reported",
              (void)arena.capsules.snapshot(0, 8, FRT_SPACE_HOST_PINNED, arena.stream));
  CHECK(arena.capsules.usage(FRT_SPACE_HOST_PINNED).used_bytes == 0);
}

TEST_CASE("inside a record callback no verb runs, and a capsule that goes is freed afterwards") {
  const DeviceRig rig;
  std::mt19937_64 random(31);
  Shape shape;
  shape.slots = 2;
  shape.max_rows = 32;
  shape.page_rows = 8;
  shape.regions = {{"s", FRT_REGION_FIXED, FRT_DTYPE_F32, 100, 1, 0},
                   {"k", FRT_REGION_ROWS, FRT_DTYPE_BF16, 16, 32, 0}};
  const Arena arena(rig, shape);
  const Bytes content = arena.live(0, 20, random);
  Capsule capsule = arena.capsules.snapshot(0, 20, FRT_SPACE_DEVICE, arena.stream);
  const Capsule kept = arena.capsules.snapshot(0, 20, FRT_SPACE_HOST_PINNED, arena.stream);
  arena.stream.sync();
  const int queries = rig.mock ? rig.mock->calls("event_query") : 0;
  Graph graph = rig.context.create_graph("g", 1);
  const Buffer busy = rig.context.alloc(FRT_SPACE_DEVICE, 64, "busy");
  graph.capture(1, [&](const Recorder& recorder) {
    const uint32_t slot = 1;
    CHECK_FAILS(FRT_ERR_BAD_STATE, "restore: not allowed inside a record callback",
                capsule.restore(1, arena.stream));
    CHECK_FAILS(FRT_ERR_BAD_STATE, "fork: not allowed inside a record callback",
                capsule.fork({&slot, 1}, arena.stream));
    CHECK_FAILS(FRT_ERR_BAD_STATE, "snapshot: not allowed inside a record callback",
                (void)arena.capsules.snapshot(0, 20, FRT_SPACE_DEVICE, arena.stream));
    CHECK_FAILS(FRT_ERR_BAD_STATE, "capsule copy: not allowed inside a record callback",
                (void)capsule.copy(FRT_SPACE_HOST, arena.stream));
    capsule.reset();
    recorder.fill(busy, 0, 64, 1);
  });
  if (rig.mock) CHECK(rig.mock->calls("event_query") == queries);
  arena.state.clear(0, arena.stream);
  kept.restore(1, arena.stream);
  CHECK(arena.content(1, 20) == content);
  arena.state.reserve(0, 0, 32, arena.stream);
}

}  // namespace frt::test
