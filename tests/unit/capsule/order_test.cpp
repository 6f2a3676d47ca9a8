// SPDX-License-Identifier: Apache-2.0
// Verbs on several streams that nobody waits for. Slots are written, forked, kept, restored and
// dropped at random while earlier work is still in flight, so memory goes from hand to hand before
// its last reader is done. Every read is queued, too, and compared in the end, byte for byte.
//
// The test orders only what belongs to one slot. That memory which is handed on is never touched by
// two is up to core.
#include <frt/plugin.h>

#include "capsule/state.hpp"
#include "capsule_rig.hpp"

namespace frt::test {
namespace {

constexpr frt_space kSpaces[] = {FRT_SPACE_DEVICE, FRT_SPACE_HOST_PINNED, FRT_SPACE_HOST};
const std::vector<frt_fingerprint_field> kFields = {{"model", "m"}};

Shape shape_of(uint32_t page_rows) {
  Shape shape;
  shape.slots = 4;
  shape.max_rows = 48;
  shape.page_rows = page_rows;
  shape.spare_pages = page_rows ? 60 : 0;
  shape.regions = {{"state", FRT_REGION_FIXED, FRT_DTYPE_F32, 9000, 1, 0},
                   {"keys", FRT_REGION_ROWS, FRT_DTYPE_BF16, 300, 48, 0},
                   {"draft", FRT_REGION_ROWS, FRT_DTYPE_BF16, 70, 48, 1}};
  return shape;
}

class Traffic {
 public:
  Traffic(const DeviceRig& rig, const Shape& shape, int streams, uint64_t seed)
      : rig_(rig), arena_(rig, shape), random_(seed), slots_(shape.slots) {
    for (int i = 0; i < streams; ++i) {
      streams_.push_back(rig.context.create_stream("traffic" + std::to_string(i)));
    }
    arena_.capsules.bind(kFields);
    arena_.capsules.fingerprint();
    for (uint32_t slot = 0; slot < slots_.size(); ++slot) go_on(slot, 0);
    for (int i = 0; i < 3; ++i) {
      const Kept made = take(static_cast<uint32_t>(i), FRT_SPACE_HOST);
      made.capsule.sync();
      made.capsule.save(folder_.path, std::to_string(i), "");
      files_.push_back(made.content);
    }
  }

  void step() {
    const auto slot = static_cast<uint32_t>(below(slots_.size()));
    switch (below(12)) {
      case 0:
        return go_on(slot, 0);
      case 1:
        return go_on(slot, slots_[slot].content.boundary);
      case 2:
      case 3:
        kept_.push_back(take(slot, kSpaces[below(3)]));
        break;
      case 4:
        return fork_slot(slot);
      case 5:
        return load();
      case 6:
      case 7:
        if (!kept_.empty()) restore(slot, kept_[below(kept_.size())]);
        break;
      case 8:
        return copy();
      case 9:
        return read(slot);
      default:
        break;
    }
    while (kept_.size() > 6) drop();
    if (below(3) == 0) drop();
    if (below(40) == 0 && !kept_.empty()) kept_[below(kept_.size())].capsule.sync();
    if (below(120) == 0) arena_.capsules.trim(kSpaces[below(3)]);
  }

  // Lets all work end; how many bytes of the reads since the last time are not as they should be.
  uint64_t settle() {
    for (uint32_t slot = 0; slot < slots_.size(); ++slot) read(slot);
    for (const Stream& stream : streams_) stream.sync();
    uint64_t wrong = 0;
    for (const Reading& reading : readings_) {
      const auto* bytes = reading.memory.pointer<uint8_t>();
      for (std::size_t i = 0; i < reading.expected.size(); ++i) {
        wrong += bytes[i] != reading.expected[i] ? 1 : 0;
      }
    }
    readings_.clear();
    staging_.clear();
    events_.clear();
    return wrong;
  }

 private:
  struct Content {
    uint64_t boundary = 0;
    std::vector<Bytes> regions;  // what is valid of each, in the arena's order
  };
  struct Slot {
    Content content;
    std::size_t stream = 0;  // what was submitted last for it
  };
  struct Kept {
    Capsule capsule;
    Content content;
  };
  struct Reading {
    Buffer memory;
    Bytes expected;
  };
  uint64_t below(uint64_t end) { return random_() % end; }

  // The slot's stream from now on; behind what was submitted for it before.
  const Stream& on_stream(uint32_t slot, std::size_t stream) {
    Slot& own = slots_[slot];
    if (own.stream != stream) {
      events_.push_back(rig_.context.create_event());
      events_.back().record(streams_[own.stream]);
      streams_[stream].wait(events_.back());
      own.stream = stream;
    }
    return streams_[stream];
  }
  const Stream& any_stream(uint32_t slot) { return on_stream(slot, below(streams_.size())); }

  using Region = frt_state_s::Region;

  // Of a ROWS region; a FIXED one is a single row.
  static uint64_t valid_rows(const Region& region, uint64_t boundary) {
    if (region.kind == FRT_REGION_FIXED) return 1;
    const auto lag = static_cast<uint64_t>(region.row_lag);
    return boundary > lag ? boundary - lag : 0;
  }
  // Where a row is by core's own bookkeeping: the device's table may be behind.
  uint64_t offset(uint32_t slot, const Region& region, uint64_t row) const {
    const frt_state_s& state = *arena_.state.handle();
    if (!state.pages || region.kind == FRT_REGION_FIXED) {
      return slot * state.slot_stride + region.offset + row * region.row_bytes;
    }
    const uint64_t page_rows = state.pages->page_rows();
    const int32_t page = state.pages->entries(slot)[row / page_rows];
    return core::page_offset(state, page) + region.offset + row % page_rows * region.row_bytes;
  }

  // Copies a slot's content, of ROWS regions what is valid at its boundary and was not at `from`,
  // between the arena and memory of its own. Waits for nothing.
  void transfer(uint32_t slot, uint64_t from, bool into_arena, const Buffer& memory,
                const Stream& stream) const {
    const frt_state_s& state = *arena_.state.handle();
    const frt_buffer arena = arena_.state.info().buffer;
    std::vector<frt_copy> copies;
    uint64_t at = 0;
    for (const Region& region : state.regions) {
      const bool fixed = region.kind == FRT_REGION_FIXED;
      const uint64_t end = valid_rows(region, slots_[slot].content.boundary);
      for (uint64_t row = fixed ? 0 : valid_rows(region, from); row < end; ++row) {
        const uint64_t there = offset(slot, region, row);
        copies.push_back(into_arena ? frt_copy{arena, there, memory, at, region.row_bytes}
                                    : frt_copy{memory, at, arena, there, region.row_bytes});
        at += region.row_bytes;
      }
    }
    Recorder(stream).copy_batch(copies);
  }

  // The slot goes on from the boundary `from` to a later one.
  void go_on(uint32_t slot, uint64_t from) {
    const Stream& stream = any_stream(slot);
    if (from == 0) arena_.state.clear(slot, stream);
    const uint64_t end = from + below(arena_.shape.max_rows - from + 1);
    arena_.state.reserve(slot, from, end, stream);
    Content& content = slots_[slot].content;
    content.boundary = end;
    content.regions.resize(arena_.state.handle()->regions.size());
    Bytes fresh;
    for (std::size_t i = 0; i < content.regions.size(); ++i) {
      const Region& region = arena_.state.handle()->regions[i];
      const bool fixed = region.kind == FRT_REGION_FIXED;
      Bytes& bytes = content.regions[i];
      bytes.resize(fixed ? 0 : valid_rows(region, from) * region.row_bytes);
      while (bytes.size() < valid_rows(region, end) * region.row_bytes) {
        fresh.push_back(static_cast<uint8_t>(random_()));
        bytes.push_back(fresh.back());
      }
    }
    staging_.push_back(rig_.context.alloc(FRT_SPACE_HOST_PINNED, fresh.size(), "staging"));
    std::copy(fresh.begin(), fresh.end(), staging_.back().pointer<uint8_t>());
    transfer(slot, from, true, staging_.back(), stream);
  }

  void read(uint32_t slot) {
    const Stream& stream = any_stream(slot);
    Bytes expected;
    for (const Bytes& region : slots_[slot].content.regions) {
      expected.insert(expected.end(), region.begin(), region.end());
    }
    Buffer memory = rig_.context.alloc(FRT_SPACE_HOST_PINNED, expected.size(), "reading");
    transfer(slot, 0, false, memory, stream);
    readings_.push_back({std::move(memory), std::move(expected)});
  }

  Kept take(uint32_t slot, frt_space space) {
    const Stream& stream = any_stream(slot);
    const Content& content = slots_[slot].content;
    return {arena_.capsules.snapshot(slot, content.boundary, space, stream), content};
  }

  void restore(uint32_t slot, const Kept& kept) {
    const Stream& stream = any_stream(slot);
    const auto other = static_cast<uint32_t>(below(slots_.size()));
    slots_[slot].content = kept.content;
    if (other == slot) return kept.capsule.restore(slot, stream);
    on_stream(other, slots_[slot].stream);
    slots_[other].content = kept.content;
    const uint32_t both[] = {slot, other};
    kept.capsule.fork(both, stream);
  }

  void fork_slot(uint32_t slot) {
    const auto other = static_cast<uint32_t>(below(slots_.size()));
    if (other == slot) return;
    const Stream& stream = any_stream(slot);
    on_stream(other, slots_[slot].stream);
    arena_.capsules.fork_slot(slot, slots_[slot].content.boundary, {&other, 1}, stream);
    slots_[other].content = slots_[slot].content;
  }

  void load() {
    const std::size_t file = below(files_.size());
    kept_.push_back({arena_.capsules.load(folder_.path, std::to_string(file),
                                          kSpaces[arena_.shared() ? below(3) : 1 + below(2)]),
                     files_[file]});
  }

  void copy() {
    if (kept_.empty()) return;
    const Kept& kept = kept_[below(kept_.size())];
    const Stream& stream = streams_[below(streams_.size())];
    Content content = kept.content;
    Capsule made = kept.capsule.copy(kSpaces[below(3)], stream);
    kept_.push_back({std::move(made), std::move(content)});
  }

  void drop() {
    if (kept_.empty()) return;
    std::swap(kept_[below(kept_.size())], kept_.back());
    kept_.pop_back();
  }

  const DeviceRig& rig_;
  TemporaryFolder folder_;
  Arena arena_;
  std::mt19937_64 random_;
  std::vector<Stream> streams_;
  std::vector<Slot> slots_;
  std::vector<Kept> kept_;
  std::vector<Content> files_;
  // Of this round.
  std::vector<Reading> readings_;
  std::vector<Buffer> staging_;
  std::vector<Event> events_;
};

#if FRT_BUILD_SANITIZER == FRT_SANITIZER_THREAD
// A last page is copied as a whole, with rows behind the boundary that its writer may be at on
// another stream. They are valid nowhere, but the sanitizer does not know that.
constexpr bool kRacesShow = true;
#else
constexpr bool kRacesShow = false;
#endif

}  // namespace

TEST_CASE("memory that is handed on is never touched by two, on whatever streams they are") {
  const bool on_mock = DeviceRig().mock != nullptr;
  const uint64_t rounds = number_from("FRT_CAPSULE_CASES", on_mock ? 12 : 6);
  for (const uint32_t page_rows : {0u, 8u}) {
    CAPTURE(page_rows);
    const int streams = kRacesShow && page_rows ? 1 : 3;
    for (uint64_t round = 0; round < rounds; ++round) {
      CAPTURE(round);
      const bool shared = on_mock && round % 2 == 1;
      const auto rig = shared ? std::make_unique<DeviceRig>(FRT_DEVICE_SHARED_MEMORY)
                              : std::make_unique<DeviceRig>();
      Traffic traffic(*rig, shape_of(page_rows), streams, 1000 * page_rows + round);
      for (int part = 0; part < 3; ++part) {
        for (int i = 0; i < 100; ++i) traffic.step();
        CHECK(traffic.settle() == 0);
      }
    }
  }
}

}  // namespace frt::test
