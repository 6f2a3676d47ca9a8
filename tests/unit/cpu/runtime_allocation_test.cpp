// SPDX-License-Identifier: Apache-2.0
// The hot path allocates nothing: launches, copies, fills, events and what the nodes of an
// executable do on their threads. Every operator new of this binary is counted.
#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <vector>

#include "cpu_device.hpp"
#include "runtime_tools.hpp"

namespace {

std::atomic<uint64_t> allocations{0};

void* counted(std::size_t bytes, std::size_t alignment) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  bytes = (bytes + alignment - 1) / alignment * alignment;
  if (void* pointer = std::aligned_alloc(alignment, bytes > 0 ? bytes : alignment)) return pointer;
  throw std::bad_alloc();
}

}  // namespace

// Not inlined: GCC takes the halves of a pair for a mismatch where it sees only one of them.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  return counted(bytes, alignof(std::max_align_t));
}
[[gnu::noinline]] void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return counted(bytes, static_cast<std::size_t>(alignment));
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

using namespace frt::cpu_test;

TEST_CASE("10,000 launches with copies, fills and events between streams allocate nothing") {
  CpuDevice device({.threads = 2});
  const frt_backend_v1& backend = device.backend();
  StreamHandle other(device);
  EventHandle event(device);
  EventHandle timing(device, FRT_EVENT_TIMING);
  std::array<uint64_t, 64> values{};
  const ExecHandle exec = capture(device, device.stream(), [&] {
    for (int node = 0; node < 10; ++node) {
      submit(device.stream(),
             frt::cpu::make_node(
                 [&values](frt::cpu::Pool& pool, std::byte*) noexcept {
                   pool.run(64, [&](int64_t i, int) { ++values[static_cast<std::size_t>(i)]; });
                 },
                 1024));
    }
  });
  std::vector<uint8_t> source(2 << 20, 3);
  std::vector<uint8_t> target(2 << 20, 0);
  const std::array<frt_backend_copy, 2> copies = {
      frt_backend_copy{target.data(), source.data(), 1 << 20, FRT_SPACE_DEVICE, FRT_SPACE_HOST},
      frt_backend_copy{target.data() + (1 << 20), source.data() + (1 << 20), 64, 0, 0}};
  const auto step = [&](int i) {
    frt_status status = FRT_OK;
    const auto keep = [&](frt_status result) { status = result != FRT_OK ? result : status; };
    keep(backend.exec_launch(exec, device.stream()));
    keep(backend.event_record(event, device.stream()));
    keep(backend.event_record(timing, device.stream()));
    keep(backend.event_wait(event, other));
    keep(backend.exec_launch(exec, other));
    if (i % 100 == 0) keep(backend.copy(other, copies.data(), copies.size()));
    keep(backend.fill(other, target.data() + (2 << 20) - 8, FRT_SPACE_DEVICE, 8, 7));
    if (i % 500 == 0) keep(backend.stream_sync(other));
    return status;
  };
  REQUIRE(step(0) == FRT_OK);  // first use of whatever the system libraries set up lazily
  REQUIRE(backend.device_sync(device.handle()) == FRT_OK);

  const uint64_t before = allocations.load();
  frt_status status = FRT_OK;
  for (int i = 1; i <= 5000 && status == FRT_OK; ++i) status = step(i);
  const frt_status synced = backend.device_sync(device.handle());
  const uint64_t after = allocations.load();
  CHECK(status == FRT_OK);
  CHECK(synced == FRT_OK);
  CHECK(after - before == 0);
  CHECK(values[63] == 5001 * 2 * 10);
}

TEST_CASE("the allocation counter counts") {
  const uint64_t before = allocations.load();
  const auto* volatile number = new int(1);
  delete number;
  CHECK(allocations.load() == before + 1);
}
