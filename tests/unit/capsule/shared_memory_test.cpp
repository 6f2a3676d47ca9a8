// SPDX-License-Identifier: Apache-2.0
// Capsules of a device that shares its memory with the processor: nothing is copied on the way to a
// file and back, and the files are those of any other device.
#include <filesystem>
#include <fstream>
#include <iterator>

#include "capsule_rig.hpp"

namespace frt::test {
namespace {

const std::vector<frt_fingerprint_field> kFields = {{"model", "m"}};

// An arena on a mock with or without shared memory; slot 0 holds `content` up to `boundary`.
struct Place {
  Place(uint32_t device_flags, const Shape& shape, uint64_t boundary, uint64_t seed)
      : rig(device_flags), arena(rig, shape) {
    arena.capsules.bind(kFields);
    arena.capsules.fingerprint();
    std::mt19937_64 random(seed);
    content = arena.live(0, boundary, random);
  }
  // Bytes that the backend copied in `work`.
  template <class Work>
  uint64_t copied(Work&& work) const {
    rig.mock->pump();
    const uint64_t before = rig.mock->copied_bytes;
    work();
    rig.mock->pump();
    return rig.mock->copied_bytes - before;
  }
  uint64_t pinned_bytes() const {
    return rig.context.counters().buffer_bytes[FRT_SPACE_HOST_PINNED];
  }

  DeviceRig rig;
  Arena arena;
  Bytes content;
};

std::string file_of(const TemporaryFolder& folder, const std::string& name) {
  std::ifstream stream(std::filesystem::path(folder.path) / (name + ".capsule"), std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

}  // namespace

TEST_CASE("a capsule in shared memory goes to a file and back without a copy of its rows") {
  const TemporaryFolder folder;
  std::mt19937_64 random(23);
  const uint64_t cases = number_from("FRT_CAPSULE_CASES", 60);
  for (uint64_t i = 0; i < cases; ++i) {
    CAPTURE(i);
    const Shape shape = random_shape(random);
    const uint64_t boundary = random() % (shape.max_rows + 1), seed = random();
    CAPTURE(boundary);
    CAPTURE(shape.page_rows);
    const Place shared(FRT_DEVICE_SHARED_MEMORY, shape, boundary, seed);
    const Place apart(0, shape, boundary, seed);
    REQUIRE(shared.arena.shared());
    REQUIRE(!apart.arena.shared());
    REQUIRE(shared.content == apart.content);
    const uint64_t fixed = shared.arena.state.info().fixed_bytes;
    const uint64_t pinned = shared.pinned_bytes();

    const std::string name = std::to_string(i), other = name + "-apart";
    const uint64_t saving = shared.copied([&] {
      const Capsule capsule =
          shared.arena.capsules.snapshot(0, boundary, FRT_SPACE_DEVICE, shared.arena.stream);
      CHECK(capsule.space() == FRT_SPACE_SHARED);
      capsule.sync();
      CHECK(shared.copied([&] { capsule.save(folder.path, name, "words"); }) == 0);
    });
    // Without pages a snapshot must copy, to be independent of its slot.
    if (shape.page_rows) CHECK(saving == fixed);
    const uint64_t staged = apart.copied([&] {
      const Capsule capsule =
          apart.arena.capsules.snapshot(0, boundary, FRT_SPACE_DEVICE, apart.arena.stream);
      CHECK(capsule.space() == FRT_SPACE_DEVICE);
      const Capsule host = capsule.copy(FRT_SPACE_HOST_PINNED, apart.arena.stream);
      host.sync();
      host.save(folder.path, other, "words");
    });
    if (!shared.content.empty()) CHECK(staged > saving);
    CHECK(file_of(folder, name) == file_of(folder, other));

    Capsule loaded;
    const uint64_t loading = shared.copied([&] {
      loaded = shared.arena.capsules.load(folder.path, other, FRT_SPACE_DEVICE);
      CHECK(loaded.space() == FRT_SPACE_SHARED);
    });
    CHECK(loading == 0);
    CHECK(shared.pinned_bytes() == pinned);
    loaded.restore(1, shared.arena.stream);
    CHECK(shared.arena.content(1, boundary) == shared.content);
    // And the file of the one is a capsule of the other.
    apart.arena.capsules.load(folder.path, name, FRT_SPACE_HOST).restore(1, apart.arena.stream);
    CHECK(apart.arena.content(1, boundary) == shared.content);
  }
}

TEST_CASE("pages that a load fills in place wait for work that still reads them") {
  const TemporaryFolder folder;
  Shape shape;
  shape.slots = 2;
  shape.max_rows = 8;
  shape.page_rows = 4;
  shape.regions = {{"keys", FRT_REGION_ROWS, FRT_DTYPE_BF16, 16, 8, 0}};
  const Place place(FRT_DEVICE_SHARED_MEMORY, shape, 8, 5);
  const Arena& arena = place.arena;
  std::mt19937_64 random(6);
  const Bytes second = arena.live(1, 8, random);
  {
    const Capsule capsule = arena.capsules.snapshot(1, 8, FRT_SPACE_DEVICE, arena.stream);
    capsule.sync();
    capsule.save(folder.path, "c", "");
  }
  // A copy of slot 0 is in flight when its pages, the only free ones, are taken.
  const Capsule reading = arena.capsules.snapshot(0, 8, FRT_SPACE_HOST, arena.stream);
  arena.state.clear(0, arena.stream);
  REQUIRE(place.rig.mock->pending() > 0);
  const Capsule loaded = arena.capsules.load(folder.path, "c", FRT_SPACE_DEVICE);
  reading.sync();
  const std::string read = reading.read();
  CHECK(Bytes(read.begin(), read.end()) != second);
  const std::string found = loaded.read();
  CHECK(found != read);
  CHECK_FAILS(FRT_ERR_OUT_OF_MEMORY, "release capsules",
              (void)arena.capsules.load(folder.path, "c", FRT_SPACE_DEVICE));
}

TEST_CASE("shared memory of a device that has none is refused by every verb") {
  const DeviceRig rig(0);
  const TemporaryFolder folder;
  Shape shape;
  shape.max_rows = 8;
  shape.regions = {{"state", FRT_REGION_FIXED, FRT_DTYPE_F32, 64, 1, 0}};
  const Arena arena(rig, shape);
  arena.capsules.bind(kFields);
  arena.capsules.fingerprint();
  const Capsule capsule = arena.capsules.snapshot(0, 0, FRT_SPACE_HOST, arena.stream);
  capsule.sync();
  capsule.save(folder.path, "c", "");
  const auto refused = [](auto&& verb) {
    CHECK_FAILS(FRT_ERR_UNSUPPORTED, "use a host space", verb());
  };
  refused([&] { (void)arena.capsules.snapshot(0, 0, FRT_SPACE_SHARED, arena.stream); });
  refused([&] { (void)capsule.copy(FRT_SPACE_SHARED, arena.stream); });
  refused([&] { (void)arena.capsules.load(folder.path, "c", FRT_SPACE_SHARED); });
  refused([&] { arena.capsules.reserve(FRT_SPACE_SHARED, 0, 1); });
}

}  // namespace frt::test
