// SPDX-License-Identifier: Apache-2.0
// Memory that runs out in the middle of a save, a load or a description: from the n-th allocation
// on, for every n that the call reaches.
#include "capsule_rig.hpp"
#include "memory_shortage.hpp"

namespace frt::test {
namespace {

// Calls `body(error)` with 0, 1, 2, ... allocations left until it succeeds.
template <class Body>
void with_ever_more_memory(Body&& body) {
  for (int64_t allocations = 0;; ++allocations) {
    REQUIRE(allocations < 100000);
    frt_error error{};
    allocations_left = allocations;
    const frt_status status = body(&error);
    allocations_left = kPlenty;
    CAPTURE(allocations);
    CAPTURE(error.message);
    if (status == FRT_OK) {
      CHECK(allocations > 10);
      return;
    }
    REQUIRE(status == FRT_ERR_OUT_OF_MEMORY);
  }
}

frt_status ignore(void*, const void*, uint64_t) {
  return FRT_OK;
}

}  // namespace

TEST_CASE("a capsule call that runs out of memory at any allocation reports that, and lives") {
  const DeviceRig rig;
  const TemporaryFolder folder;
  Shape shape;
  shape.max_rows = 40;
  shape.page_rows = 4;
  shape.spare_pages = 20;
  shape.regions = {{"state", FRT_REGION_FIXED, FRT_DTYPE_F32, 20, 1, 0},
                   {"keys", FRT_REGION_ROWS, FRT_DTYPE_BF16, 6, 40, 0}};
  const Arena arena(rig, shape);
  arena.capsules.bind(std::vector<frt_fingerprint_field>{{"model", "m"}, {"weights", "w"}});
  arena.capsules.fingerprint();
  std::mt19937_64 random(5);
  arena.live(0, 22, random);
  const Capsule capsule = arena.capsules.snapshot(0, 22, FRT_SPACE_HOST, arena.stream);
  capsule.sync();
  const frt_capsules_v1& table = arena.capsules.table();

  with_ever_more_memory([&](frt_error* error) {
    return table.save(capsule.handle(), folder.path.c_str(), "c", "text", 4, FRT_CAPSULE_REPLACE,
                      error);
  });
  with_ever_more_memory([&](frt_error* error) {
    return table.describe(folder.path.c_str(), "c", ignore, nullptr, ignore, nullptr, error);
  });
  with_ever_more_memory(
      [&](frt_error* error) { return table.verify(folder.path.c_str(), "c", error); });
  with_ever_more_memory([&](frt_error* error) {
    frt_capsule loaded = nullptr;
    const frt_status status = table.load_begin(arena.capsules.state(), folder.path.c_str(), "c",
                                               FRT_SPACE_HOST, ignore, nullptr, &loaded, error);
    if (status != FRT_OK) return status;
    const frt_status finished = table.load_finish(loaded, error);
    table.release(loaded);
    return finished;
  });
}

}  // namespace frt::test
