// SPDX-License-Identifier: Apache-2.0
// Streams and events of the CPU backend: order, waits between streams, late errors, priorities.
#include <doctest/doctest.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <random>
#include <stdexcept>
#include <thread>
#include <vector>

#include "cpu_device.hpp"
#include "runtime_tools.hpp"

using namespace frt::cpu_test;

TEST_CASE("many streams keep their own order under load, far beyond the size of a ring") {
  CpuDevice device({.threads = 2});
  constexpr int kStreams = 12;
  constexpr int kCalls = 5000;
  struct Item {
    std::vector<int>* log;
    int value;
  };
  std::vector<std::vector<int>> logs(kStreams);
  std::vector<Item> items;
  items.reserve(kStreams * kCalls);
  std::vector<StreamHandle> streams;
  for (int s = 0; s < kStreams; ++s) streams.emplace_back(device);
  for (int i = 0; i < kCalls; ++i) {
    for (std::size_t s = 0; s < kStreams; ++s) {
      items.push_back({&logs[s], i});
      const auto append = [](void* user, frt_error*) {
        const auto& item = *static_cast<Item*>(user);
        item.log->push_back(item.value);

        return frt_status{FRT_OK};
      };
      REQUIRE(device.backend().stream_call(streams[s], append, &items.back()) == FRT_OK);
    }
  }
  REQUIRE(device.backend().device_sync(device.handle()) == FRT_OK);
  for (const auto& log : logs) {
    REQUIRE(log.size() == kCalls);
    CHECK(std::is_sorted(log.begin(), log.end()));
  }
}

TEST_CASE("events order random work across streams") {
  CpuDevice device({.threads = 2});
  const frt_backend_v1& backend = device.backend();
  constexpr std::size_t kStreams = 6;
  constexpr std::size_t kSteps = 3000;
  // Every step increments a plain number; steps of different streams touch the same number only
  // through a chain of events, so a lost wait is a wrong value or a data race.
  struct Step {
    int64_t* chain;
    int64_t expected;
    bool wrong;
  };
  std::vector<StreamHandle> streams;
  std::vector<EventHandle> events;
  constexpr std::size_t kChains = 3;
  std::vector<int64_t> chains(kChains, 0);
  std::vector<int64_t> submitted(kChains, 0);
  for (std::size_t i = 0; i < kStreams; ++i) streams.emplace_back(device);
  for (std::size_t i = 0; i < kChains; ++i) events.emplace_back(device);
  std::vector<Step> steps(kSteps);
  std::mt19937 random(7);
  for (Step& step : steps) {
    const std::size_t chain = random() % kChains;
    const std::size_t stream = random() % kStreams;
    step = {&chains[chain], submitted[chain]++, false};
    REQUIRE(backend.event_wait(events[chain], streams[stream]) == FRT_OK);
    REQUIRE(backend.stream_call(
                streams[stream],
                [](void* user, frt_error*) {
                  auto& s = *static_cast<Step*>(user);
                  s.wrong = *s.chain != s.expected;
                  ++*s.chain;

                  return frt_status{FRT_OK};
                },
                &step) == FRT_OK);
    REQUIRE(backend.event_record(events[chain], streams[stream]) == FRT_OK);
  }
  for (std::size_t i = 0; i < kChains; ++i) REQUIRE(backend.event_sync(events[i]) == FRT_OK);
  CHECK(chains == submitted);
  REQUIRE(backend.device_sync(device.handle()) == FRT_OK);
  CHECK(std::none_of(steps.begin(), steps.end(), [](const Step& s) { return s.wrong; }));
}

TEST_CASE("an event is ready when its record is reached, not before") {
  CpuDevice device({.threads = 1});
  const frt_backend_v1& backend = device.backend();
  Gate gate;
  EventHandle event(device);
  CHECK(backend.event_query(event) == FRT_OK);  // never recorded
  CHECK(backend.event_sync(event) == FRT_OK);
  gate.block(device, device.stream());
  REQUIRE(backend.event_record(event, device.stream()) == FRT_OK);
  CHECK(backend.event_query(event) == FRT_ERR_NOT_READY);

  SUBCASE("a later record replaces the earlier one") {
    StreamHandle other(device);
    REQUIRE(backend.event_record(event, other) == FRT_OK);
    CHECK(backend.event_sync(event) == FRT_OK);
    CHECK(backend.event_query(event) == FRT_OK);
  }
  SUBCASE("who waited for the earlier record still waits for it") {
    StreamHandle waiter(device);
    StreamHandle other(device);
    std::atomic<bool> ran{false};
    REQUIRE(backend.event_wait(event, waiter) == FRT_OK);
    REQUIRE(backend.event_record(event, other) == FRT_OK);
    REQUIRE(backend.stream_call(waiter, set_flag, &ran) == FRT_OK);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    CHECK_FALSE(ran);
    gate.open();
    REQUIRE(backend.stream_sync(waiter) == FRT_OK);
    CHECK(ran);
  }
  gate.open();
  CHECK(backend.stream_sync(device.stream()) == FRT_OK);
  CHECK(backend.event_query(event) == FRT_OK);
}

TEST_CASE("an event outlives the stream it was recorded on") {
  CpuDevice device({.threads = 1});
  const frt_backend_v1& backend = device.backend();
  EventHandle event(device);
  {
    StreamHandle gone(device);
    REQUIRE(backend.event_record(event, gone) == FRT_OK);
  }
  CHECK(backend.event_query(event) == FRT_OK);
  CHECK(backend.event_wait(event, device.stream()) == FRT_OK);
  StreamHandle next(device);  // takes over the counter of the one that is gone
  std::atomic<bool> ran{false};
  REQUIRE(backend.stream_call(next, set_flag, &ran) == FRT_OK);
  REQUIRE(backend.stream_sync(next) == FRT_OK);
  CHECK(ran);
  CHECK(backend.event_query(event) == FRT_OK);
}

TEST_CASE("timing events measure what lies between them") {
  CpuDevice device({.threads = 1});
  const frt_backend_v1& backend = device.backend();
  EventHandle start(device, FRT_EVENT_TIMING);
  EventHandle end(device, FRT_EVENT_TIMING);
  EventHandle plain(device);
  double ms = -1;
  CHECK(backend.event_elapsed(start, end, &ms) == FRT_ERR_BAD_STATE);  // never recorded
  REQUIRE(backend.event_record(start, device.stream()) == FRT_OK);
  Gate gate;
  gate.block(device, device.stream());
  const auto nap = [](void*, frt_error*) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    return frt_status{FRT_OK};
  };
  REQUIRE(backend.stream_call(device.stream(), nap, nullptr) == FRT_OK);
  REQUIRE(backend.event_record(end, device.stream()) == FRT_OK);
  CHECK(backend.event_elapsed(start, end, &ms) == FRT_ERR_NOT_READY);
  CHECK(ms == -1);
  gate.open();
  REQUIRE(backend.event_sync(end) == FRT_OK);
  REQUIRE(backend.event_elapsed(start, end, &ms) == FRT_OK);
  CHECK(ms >= 20.0);
  REQUIRE(backend.event_record(plain, device.stream()) == FRT_OK);
  CHECK(backend.event_elapsed(start, plain, &ms) == FRT_ERR_INVALID_ARGUMENT);
}

TEST_CASE("late errors are reported once, by the next sync, and the stream goes on") {
  CpuDevice device({.threads = 1});
  const frt_backend_v1& backend = device.backend();
  const auto fails = [](void*, frt_error* error) {
    return frt::set_error(error, FRT_ERR_IO, "no");
  };
  std::atomic<bool> ran{false};
  REQUIRE(backend.stream_call(device.stream(), fails, nullptr) == FRT_OK);
  REQUIRE(backend.stream_call(device.stream(), set_flag, &ran) == FRT_OK);
  CHECK(backend.stream_sync(device.stream()) == FRT_ERR_CALLBACK);
  CHECK(ran);
  CHECK(backend.stream_sync(device.stream()) == FRT_OK);

  submit(device.stream(), frt::cpu::make_node([](frt::cpu::Pool&, std::byte*) noexcept {
           return frt_status{FRT_ERR_DEVICE};
         }));
  CHECK(backend.device_sync(device.handle()) == FRT_ERR_DEVICE);

  // Working memory that nobody can have: the node is skipped, the error arrives late.
  std::atomic<bool> touched{false};
  submit(device.stream(),
         frt::cpu::make_node([&](frt::cpu::Pool&, std::byte*) noexcept { touched = true; },
                             std::size_t{1} << 60));
  CHECK(backend.stream_sync(device.stream()) == FRT_ERR_OUT_OF_MEMORY);
  CHECK_FALSE(touched);
  CHECK(backend.stream_sync(device.stream()) == FRT_OK);
}

TEST_CASE("priorities are accepted, and patient ones show as the thread's nice value") {
  CpuDevice device({.threads = 1});
  const frt_backend_v1& backend = device.backend();
  const auto nice_of = [&](int32_t priority) {
    StreamHandle stream(device, priority);
    int nice = 100;
    const auto ask = [](void* user, frt_error*) {
      *static_cast<int*>(user) = getpriority(PRIO_PROCESS, 0);
      return frt_status{FRT_OK};
    };
    REQUIRE(backend.stream_call(stream, ask, &nice) == FRT_OK);
    REQUIRE(backend.stream_sync(stream) == FRT_OK);
    return nice;
  };
  const int normal = nice_of(0);
  CHECK(nice_of(1) == std::max(normal, 5));
  CHECK(nice_of(1000) == 19);    // clamped to what the system has
  CHECK(nice_of(-1) <= normal);  // more urgent where the privilege is there
  CHECK(nice_of(-1000) <= normal);

  // Streams begin as the thread that creates them is, however it was started.
  std::thread([&] {
    if (setpriority(PRIO_PROCESS, 0, -8) != 0) return;  // needs a privilege
    CHECK(nice_of(-1) == -8);
  }).join();
  std::thread([&] {
    setpriority(PRIO_PROCESS, 0, 10);
    CHECK(nice_of(1) == 10);
  }).join();
}

TEST_CASE("a batch of copies larger than the ring is one submission, between any two spaces") {
  CpuDevice device({.threads = 2});
  const frt_backend_v1& backend = device.backend();
  constexpr std::size_t kCount = 3000;
  std::vector<uint32_t> source(kCount);
  std::vector<uint32_t> target(kCount, 0);
  std::vector<frt_backend_copy> copies;
  for (std::size_t i = 0; i < kCount; ++i) {
    source[i] = static_cast<uint32_t>(i * 2654435761u);
    copies.push_back({&target[kCount - 1 - i], &source[i], sizeof(uint32_t),
                      static_cast<frt_space>(i % 3), static_cast<frt_space>(i / 3 % 3)});
  }
  REQUIRE(backend.copy(device.stream(), copies.data(), copies.size()) == FRT_OK);
  copies.clear();  // read before the call returned
  REQUIRE(backend.stream_sync(device.stream()) == FRT_OK);
  std::reverse(target.begin(), target.end());
  CHECK(target == source);

  const frt_backend_copy none{nullptr, nullptr, 0, 0, 0};
  CHECK(backend.copy(device.stream(), &none, 1) == FRT_OK);
  CHECK(backend.copy(device.stream(), nullptr, 0) == FRT_OK);
  const frt_backend_copy bad_space{target.data(), source.data(), 4, FRT_SPACE_COUNT, 0};
  CHECK(backend.copy(device.stream(), &bad_space, 1) == FRT_ERR_INVALID_ARGUMENT);
  const frt_backend_copy no_target{nullptr, source.data(), 4, 0, 0};
  CHECK(backend.copy(device.stream(), &no_target, 1) == FRT_ERR_INVALID_ARGUMENT);
}

TEST_CASE("large copies and fills reach every byte and no other") {
  CpuDevice device({.threads = 3});
  const frt_backend_v1& backend = device.backend();
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{524287}, std::size_t{3000001}}) {
    std::vector<uint8_t> source(bytes + 2);
    std::vector<uint8_t> target(bytes + 2, 0xee);
    for (std::size_t i = 0; i < source.size(); ++i) source[i] = static_cast<uint8_t>(i * 31);
    const frt_backend_copy copy{target.data() + 1, source.data() + 1, bytes, FRT_SPACE_DEVICE,
                                FRT_SPACE_HOST};
    REQUIRE(backend.copy(device.stream(), &copy, 1) == FRT_OK);
    REQUIRE(backend.stream_sync(device.stream()) == FRT_OK);
    CHECK(target.front() == 0xee);
    CHECK(target.back() == 0xee);
    CHECK(std::equal(target.begin() + 1, target.end() - 1, source.begin() + 1));

    REQUIRE(backend.fill(device.stream(), target.data() + 1, FRT_SPACE_DEVICE, bytes, 0x11) ==
            FRT_OK);
    REQUIRE(backend.stream_sync(device.stream()) == FRT_OK);
    CHECK(target.front() == 0xee);
    CHECK(target.back() == 0xee);
    CHECK(std::count(target.begin(), target.end(), 0x11) == static_cast<int64_t>(bytes));
  }
}

TEST_CASE("submission returns before the work is done, and a full ring waits instead of failing") {
  CpuDevice device({.threads = 1});
  const frt_backend_v1& backend = device.backend();
  Gate gate;
  gate.block(device, device.stream());
  std::atomic<int> ran{0};
  const auto count = [](void* user, frt_error*) {
    static_cast<std::atomic<int>*>(user)->fetch_add(1);
    return frt_status{FRT_OK};
  };
  for (int i = 0; i < 100; ++i) {
    REQUIRE(backend.stream_call(device.stream(), count, &ran) == FRT_OK);
  }
  CHECK(ran == 0);
  std::atomic<bool> all_submitted{false};
  std::thread submitter([&] {
    for (int i = 100; i < 5000; ++i) backend.stream_call(device.stream(), count, &ran);
    all_submitted = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  CHECK_FALSE(all_submitted);  // the ring is full, the submitter sleeps
  gate.open();
  submitter.join();
  REQUIRE(backend.stream_sync(device.stream()) == FRT_OK);
  CHECK(ran == 5000);
}

TEST_CASE("objects of another device and NULL handles are refused") {
  CpuDevice device({.threads = 1});
  CpuDevice other({.threads = 1});
  const frt_backend_v1& backend = device.backend();
  EventHandle event(other);
  CHECK(backend.event_record(event, device.stream()) == FRT_ERR_MISMATCH);
  CHECK(backend.event_wait(event, device.stream()) == FRT_ERR_MISMATCH);
  CHECK(backend.event_record(nullptr, device.stream()) == FRT_ERR_INVALID_ARGUMENT);
  CHECK(backend.event_query(nullptr) == FRT_ERR_INVALID_ARGUMENT);
  CHECK(backend.stream_sync(nullptr) == FRT_ERR_INVALID_ARGUMENT);
  CHECK(backend.stream_call(device.stream(), nullptr, nullptr) == FRT_ERR_INVALID_ARGUMENT);
  CHECK(backend.exec_launch(nullptr, device.stream()) == FRT_ERR_INVALID_ARGUMENT);
  frt_error error{};
  frt_backend_event made = nullptr;
  CHECK(backend.event_create(device.handle(), 64, &made, &error) == FRT_ERR_UNSUPPORTED);
  CHECK(backend.stream_create(nullptr, 0, nullptr, &error) == FRT_ERR_INVALID_ARGUMENT);
}
