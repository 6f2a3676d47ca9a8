// SPDX-License-Identifier: Apache-2.0
// Capture and executables of the CPU backend: the same nodes eagerly and recorded, what a capture
// refuses, shared scratch, launches on several streams, composition.
#include "graph.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <numeric>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "cpu_device.hpp"
#include "runtime_tools.hpp"

using namespace frt::cpu_test;
using frt::cpu::make_node;
using frt::cpu::Pool;

namespace {

// y[i] = 3 * y[i] + i, through scratch and all workers: order matters, and so does each element.
std::unique_ptr<frt::cpu::Node> scale_node(std::vector<uint64_t>& values) {
  return make_node(
      [&values](Pool& pool, std::byte* scratch) noexcept {
        auto* temporary = reinterpret_cast<uint64_t*>(scratch);
        const auto count = static_cast<int64_t>(values.size());
        pool.run(count, [&](int64_t i, int) { temporary[i] = values[static_cast<size_t>(i)] * 3; });
        pool.run(count, [&](int64_t i, int) {
          values[static_cast<size_t>(i)] = temporary[i] + static_cast<uint64_t>(i);
        });
      },
      values.size() * sizeof(uint64_t));
}

frt_status append_one(void* user, frt_error*) {
  static_cast<std::vector<int>*>(user)->push_back(1);
  return FRT_OK;
}

// A log of small numbers, appended by nodes of one executable: plain, so a race would show.
std::unique_ptr<frt::cpu::Node> log_node(std::vector<int>& log, int value) {
  return make_node([&log, value](Pool&, std::byte*) noexcept { log.push_back(value); });
}

}  // namespace

TEST_CASE("a recorded sequence computes what the eager one computes, every time it is launched") {
  CpuDevice device({.threads = 2});
  const frt_backend_v1& backend = device.backend();
  std::vector<uint64_t> eager(1000, 1);
  std::vector<uint64_t> replayed(1000, 1);
  std::vector<uint64_t> eager_copy(1000, 0);
  std::vector<uint64_t> replayed_copy(1000, 0);
  const auto sequence = [&](std::vector<uint64_t>& values, std::vector<uint64_t>& copied) {
    submit(device.stream(), scale_node(values));
    const frt_backend_copy copy{copied.data(), values.data(), 4000, FRT_SPACE_HOST,
                                FRT_SPACE_DEVICE};
    REQUIRE(backend.copy(device.stream(), &copy, 1) == FRT_OK);
    REQUIRE(backend.fill(device.stream(), values.data(), FRT_SPACE_DEVICE, 80, 0x01) == FRT_OK);
    submit(device.stream(), scale_node(values));
  };
  constexpr int kRounds = 50;
  for (int round = 0; round < kRounds; ++round) sequence(eager, eager_copy);
  REQUIRE(backend.stream_sync(device.stream()) == FRT_OK);

  const ExecHandle exec =
      capture(device, device.stream(), [&] { sequence(replayed, replayed_copy); });
  CHECK(backend.exec_node_count(exec) == 4);
  CHECK(std::count(replayed.begin(), replayed.end(), 1) == 1000);  // recording ran nothing
  for (int round = 0; round < kRounds; ++round) {
    REQUIRE(backend.exec_launch(exec, device.stream()) == FRT_OK);
  }
  REQUIRE(backend.stream_sync(device.stream()) == FRT_OK);
  CHECK(replayed == eager);
  CHECK(replayed_copy == eager_copy);
}

TEST_CASE("calls are recorded, and their failure is a late error of every launch") {
  CpuDevice device({.threads = 1});
  const frt_backend_v1& backend = device.backend();
  std::vector<int> log;
  const ExecHandle exec = capture(device, device.stream(), [&] {
    REQUIRE(backend.stream_call(device.stream(), append_one, &log) == FRT_OK);
    const auto fails = [](void*, frt_error* error) {
      return frt::set_error(error, FRT_ERR_IO, "no");
    };
    REQUIRE(backend.stream_call(device.stream(), fails, nullptr) == FRT_OK);
    REQUIRE(backend.stream_call(device.stream(), append_one, &log) == FRT_OK);
  });
  for (int launch = 1; launch <= 3; ++launch) {
    REQUIRE(backend.exec_launch(exec, device.stream()) == FRT_OK);
    CHECK(backend.stream_sync(device.stream()) == FRT_ERR_CALLBACK);
    CHECK(log.size() == static_cast<std::size_t>(launch) * 2);
  }
}

TEST_CASE("capturing on one stream leaves the others running") {
  CpuDevice device({.threads = 2});
  const frt_backend_v1& backend = device.backend();
  StreamHandle other(device);
  std::vector<int> recorded;
  std::vector<int> eager;
  const ExecHandle exec = capture(device, device.stream(), [&] {
    REQUIRE(backend.stream_call(device.stream(), append_one, &recorded) == FRT_OK);
    REQUIRE(backend.stream_call(other, append_one, &eager) == FRT_OK);
    REQUIRE(backend.stream_sync(other) == FRT_OK);
    CHECK(eager.size() == 1);
  });
  CHECK(recorded.empty());
  REQUIRE(backend.exec_launch(exec, other) == FRT_OK);
  REQUIRE(backend.stream_sync(other) == FRT_OK);
  CHECK(recorded.size() == 1);
}

TEST_CASE("what cannot be recorded is refused, the capture fails by name, the stream goes on") {
  CpuDevice device({.threads = 1});
  const frt_backend_v1& backend = device.backend();
  const frt_backend_stream stream = device.stream();
  std::vector<int> log;
  const ExecHandle earlier = capture(device, stream, [&] { submit(stream, log_node(log, 1)); });
  EventHandle event(device);
  REQUIRE(backend.event_record(event, stream) == FRT_OK);
  frt_error error{};
  REQUIRE(backend.capture_begin(stream, &error) == FRT_OK);
  std::string reason;
  SUBCASE("a sync") {
    CHECK(backend.stream_sync(stream) == FRT_ERR_BAD_STATE);
    reason = "asked to wait";
  }
  SUBCASE("a launch") {
    CHECK(backend.exec_launch(earlier, stream) == FRT_ERR_BAD_STATE);
    reason = "launched into the capture";
  }
  SUBCASE("a wait for an event") {
    CHECK(backend.event_wait(event, stream) == FRT_ERR_BAD_STATE);
    reason = "waited for";
  }
  SUBCASE("a record of an event") {
    CHECK(backend.event_record(event, stream) == FRT_ERR_BAD_STATE);
    reason = "an event was recorded";
  }
  frt_backend_exec exec = nullptr;
  CHECK(backend.capture_end(stream, &exec, &error) == FRT_ERR_BAD_STATE);
  CHECK(std::string(error.message).find(reason) != std::string::npos);
  CHECK(exec == nullptr);

  submit(stream, log_node(log, 2));
  CHECK(backend.stream_sync(stream) == FRT_OK);
  CHECK(log == std::vector<int>{2});
}

TEST_CASE("begin, end and abort in the wrong order are refused and change nothing") {
  CpuDevice device({.threads = 1});
  const frt_backend_v1& backend = device.backend();
  const frt_backend_stream stream = device.stream();
  frt_error error{};
  frt_backend_exec exec = nullptr;
  CHECK(backend.capture_end(stream, &exec, &error) == FRT_ERR_BAD_STATE);
  backend.capture_abort(stream);  // nothing to drop
  REQUIRE(backend.capture_begin(stream, &error) == FRT_OK);
  CHECK(backend.capture_begin(stream, &error) == FRT_ERR_BAD_STATE);
  std::vector<int> log;
  submit(stream, log_node(log, 1));
  backend.capture_abort(stream);
  CHECK(backend.stream_sync(stream) == FRT_OK);
  CHECK(log.empty());
  const ExecHandle empty = capture(device, stream, [] {});
  CHECK(backend.exec_node_count(empty) == 0);
  CHECK(backend.exec_launch(empty, stream) == FRT_OK);
  CHECK(backend.stream_sync(stream) == FRT_OK);
}

TEST_CASE("scratch that cannot be had fails the end of the capture, not a launch") {
  CpuDevice device({.threads = 1});
  const frt_backend_v1& backend = device.backend();
  frt_error error{};
  frt_backend_exec exec = nullptr;
  REQUIRE(backend.capture_begin(device.stream(), &error) == FRT_OK);
  submit(device.stream(), make_node([](Pool&, std::byte*) noexcept {}, std::size_t{1} << 60));
  CHECK(backend.capture_end(device.stream(), &exec, &error) == FRT_ERR_OUT_OF_MEMORY);
  CHECK(std::string(error.message).find("scratch") != std::string::npos);
  CHECK(backend.stream_sync(device.stream()) == FRT_OK);
}

TEST_CASE("the nodes of an executable share one aligned block as large as the largest asks for") {
  CpuDevice device({.threads = 1});
  const frt_backend_v1& backend = device.backend();
  std::set<std::byte*> blocks;
  const ExecHandle exec = capture(device, device.stream(), [&] {
    for (const std::size_t bytes : {std::size_t{100}, std::size_t{5000000}, std::size_t{64}}) {
      submit(device.stream(), make_node(
                                  [&blocks, bytes](Pool&, std::byte* scratch) noexcept {
                                    blocks.insert(scratch);
                                    std::memset(scratch, 1, bytes);  // a sanitizer watches
                                  },
                                  bytes));
    }
  });
  REQUIRE(backend.exec_launch(exec, device.stream()) == FRT_OK);
  REQUIRE(backend.exec_launch(exec, device.stream()) == FRT_OK);
  REQUIRE(backend.stream_sync(device.stream()) == FRT_OK);
  REQUIRE(blocks.size() == 1);
  CHECK(reinterpret_cast<uintptr_t>(*blocks.begin()) % 64 == 0);
}

TEST_CASE("one executable on several streams runs once at a time, in the order of its launches") {
  CpuDevice device({.threads = 2});
  const frt_backend_v1& backend = device.backend();
  std::vector<std::thread::id> ran_on;  // plain: two launches at once would be a race
  const ExecHandle exec = capture(device, device.stream(), [&] {
    submit(device.stream(), make_node([&](Pool& pool, std::byte*) noexcept {
             pool.run(4, [](int64_t, int) {});
             ran_on.push_back(std::this_thread::get_id());
           }));
  });
  std::vector<StreamHandle> streams;
  std::vector<std::thread::id> ids(3);
  for (std::size_t s = 0; s < ids.size(); ++s) {
    streams.emplace_back(device);
    const auto ask = [](void* user, frt_error*) {
      *static_cast<std::thread::id*>(user) = std::this_thread::get_id();

      return frt_status{FRT_OK};
    };
    REQUIRE(backend.stream_call(streams[s], ask, &ids[s]) == FRT_OK);
    REQUIRE(backend.stream_sync(streams[s]) == FRT_OK);
  }
  constexpr std::size_t kLaunches = 4000;
  std::vector<std::thread::id> expected;
  ran_on.reserve(kLaunches);
  for (std::size_t i = 0; i < kLaunches; ++i) {
    const std::size_t s = (i * 7 + i / 5) % streams.size();
    REQUIRE(backend.exec_launch(exec, streams[s]) == FRT_OK);
    expected.push_back(ids[s]);
  }
  REQUIRE(backend.device_sync(device.handle()) == FRT_OK);
  CHECK(ran_on == expected);
}

TEST_CASE("executables may be destroyed as soon as their stream is synchronised") {
  CpuDevice device({.threads = 2});
  const frt_backend_v1& backend = device.backend();
  std::vector<int> log;
  for (int round = 0; round < 500; ++round) {
    const ExecHandle exec =
        capture(device, device.stream(), [&] { submit(device.stream(), log_node(log, round)); });
    REQUIRE(backend.exec_launch(exec, device.stream()) == FRT_OK);
    REQUIRE(backend.stream_sync(device.stream()) == FRT_OK);
  }
  CHECK(log.size() == 500);
}

TEST_CASE("a composition runs its parts in an order that respects the dependencies") {
  CpuDevice device({.threads = 2});
  const frt_backend_v1& backend = device.backend();
  std::vector<int> log;
  std::vector<ExecHandle> parts;
  for (int i = 0; i < 4; ++i) {
    parts.push_back(
        capture(device, device.stream(), [&] { submit(device.stream(), log_node(log, i)); }));
  }
  // 3 -> 1 -> 0, 2 is free: ties by index, so 2 first.
  const uint32_t after_zero[] = {1};
  const uint32_t after_one[] = {3};
  const frt_backend_node nodes[] = {{parts[0], after_zero, 1, 0},
                                    {parts[1], after_one, 1, 0},
                                    {parts[2], nullptr, 0, 0},
                                    {parts[3], nullptr, 0, 0}};
  frt_backend_exec raw = nullptr;
  frt_error error{};
  REQUIRE(backend.exec_compose(device.handle(), nodes, 4, &raw, &error) == FRT_OK);
  const ExecHandle whole(device, raw);
  CHECK(backend.exec_node_count(whole) == 4);
  REQUIRE(backend.exec_launch(whole, device.stream()) == FRT_OK);
  REQUIRE(backend.stream_sync(device.stream()) == FRT_OK);
  CHECK(log == std::vector<int>{2, 3, 1, 0});

  SUBCASE("composed again, and with a part used twice") {
    const uint32_t first[] = {0};
    const frt_backend_node twice[] = {
        {parts[2], nullptr, 0, 0}, {whole, first, 1, 0}, {parts[2], first, 1, 0}};
    REQUIRE(backend.exec_compose(device.handle(), twice, 3, &raw, &error) == FRT_OK);
    const ExecHandle larger(device, raw);
    CHECK(backend.exec_node_count(larger) == 6);
    log.clear();
    REQUIRE(backend.exec_launch(larger, device.stream()) == FRT_OK);
    REQUIRE(backend.stream_sync(device.stream()) == FRT_OK);
    CHECK(log == std::vector<int>{2, 2, 3, 1, 0, 2});
  }
  SUBCASE("circles, unknown nodes and foreign devices are refused") {
    const uint32_t circle[] = {0};
    const frt_backend_node round[] = {{parts[0], after_zero, 1, 0}, {parts[1], circle, 1, 0}};
    raw = nullptr;
    CHECK(backend.exec_compose(device.handle(), round, 2, &raw, &error) == FRT_ERR_CYCLE);
    CHECK(backend.exec_compose(device.handle(), nodes, 2, &raw, &error) == FRT_ERR_OUT_OF_RANGE);
    const frt_backend_node nobody[] = {{nullptr, nullptr, 0, 0}};
    CHECK(backend.exec_compose(device.handle(), nobody, 1, &raw, &error) ==
          FRT_ERR_INVALID_ARGUMENT);
    CpuDevice elsewhere({.threads = 1});
    CHECK(backend.exec_compose(elsewhere.handle(), nodes, 4, &raw, &error) == FRT_ERR_MISMATCH);
    CHECK(backend.exec_launch(whole, elsewhere.stream()) == FRT_ERR_MISMATCH);
    CHECK(raw == nullptr);
  }
}

TEST_CASE("a part and a composition of it never run at the same time") {
  CpuDevice device({.threads = 2});
  const frt_backend_v1& backend = device.backend();
  StreamHandle other(device);
  int64_t first_runs = 0;  // plain: each is written by one part only
  int64_t second_runs = 0;
  const auto counting = [&](int64_t& runs) {
    return capture(device, device.stream(), [&] {
      submit(device.stream(), make_node([&runs](Pool& pool, std::byte*) noexcept {
               pool.run(2, [](int64_t, int) {});
               ++runs;
             }));
    });
  };
  const ExecHandle first = counting(first_runs);
  const ExecHandle second = counting(second_runs);
  const frt_backend_node nodes[] = {{first, nullptr, 0, 0}, {second, nullptr, 0, 0}};
  frt_backend_exec raw = nullptr;
  REQUIRE(backend.exec_compose(device.handle(), nodes, 2, &raw, nullptr) == FRT_OK);
  const ExecHandle whole(device, raw);
  for (int i = 0; i < 1000; ++i) {
    REQUIRE(backend.exec_launch(whole, device.stream()) == FRT_OK);
    REQUIRE(backend.exec_launch(first, other) == FRT_OK);
    REQUIRE(backend.exec_launch(second, other) == FRT_OK);
  }
  REQUIRE(backend.device_sync(device.handle()) == FRT_OK);
  CHECK(first_runs == 2000);
  CHECK(second_runs == 2000);
}
