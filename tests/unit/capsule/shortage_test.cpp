// SPDX-License-Identifier: Apache-2.0
// Memory that runs out in the middle of a save, a load or a description: from the n-th allocation
// on, every operator new of this binary fails, for every n that the call reaches.
#include <atomic>
#include <cstdlib>
#include <new>

#include "capsule_rig.hpp"

namespace {

constexpr int64_t kPlenty = INT64_MAX;
std::atomic<int64_t> left{kPlenty};  // allocations

void* limited(std::size_t bytes, std::size_t alignment) {
  if (left.load() != kPlenty && left.fetch_sub(1) <= 0) throw std::bad_alloc();
  bytes = (bytes + alignment - 1) / alignment * alignment;
  if (void* pointer = std::aligned_alloc(alignment, bytes > 0 ? bytes : alignment)) return pointer;
  throw std::bad_alloc();
}

}  // namespace

// Not inlined: GCC takes the halves of a pair for a mismatch where it sees only one of them.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  return limited(bytes, alignof(std::max_align_t));
}
[[gnu::noinline]] void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return limited(bytes, static_cast<std::size_t>(alignment));
}
[[gnu::noinline]] void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept try {
  return limited(bytes, alignof(std::max_align_t));
} catch (const std::bad_alloc&) {
  return nullptr;
}
[[gnu::noinline]] void operator delete(void* pointer) noexcept {
  std::free(pointer);
}
[[gnu::noinline]] void operator delete(void* pointer, std::size_t) noexcept {
  std::free(pointer);
}
[[gnu::noinline]] void operator delete(void* pointer, std::align_val_t) noexcept {
  std::free(pointer);
}
[[gnu::noinline]] void operator delete(void* pointer, std::size_t, std::align_val_t) noexcept {
  std::free(pointer);
}

namespace frt::test {
namespace {

// Calls `body(error)` with 0, 1, 2, ... allocations left until it succeeds.
template <class Body>
void with_ever_more_memory(Body&& body) {
  for (int64_t allocations = 0;; ++allocations) {
    REQUIRE(allocations < 100000);
    frt_error error{};
    left = allocations;
    const frt_status status = body(&error);
    left = kPlenty;
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
  shape.block_rows = 4;
  shape.spare_blocks = 20;
  shape.regions = {{"state", FRT_REGION_FIXED, FRT_DTYPE_F32, 20, 1, 0},
                   {"keys", FRT_REGION_ROWS, FRT_DTYPE_BF16, 6, 40, 0}};
  const Arena arena(rig, shape);
  arena.capsules.bind(std::vector<frt_fingerprint_field>{{"model", "m"}, {"weights", "w"}});
  arena.capsules.fingerprint();
  std::mt19937_64 random(5);
  arena.live(0, 22, random);
  const Capsule capsule = arena.capsules.snapshot(0, 22, FRT_SPACE_HOST, arena.stream);
  capsule.wait();
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
