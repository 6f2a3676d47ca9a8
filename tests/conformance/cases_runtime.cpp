// SPDX-License-Identifier: Apache-2.0
// Cases of frt/backend.h: memory, streams, events, calls, executables. No reference takes part: the
// header says what must happen. A gate, which holds a stream back until the case opens it, makes
// every order certain: no case depends on time.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <frt/text.hpp>
#include <memory>
#include <string_view>
#include <thread>

#include "allocations.hpp"
#include "check.hpp"

namespace frt::conformance {
namespace {

void expect(frt_status found, frt_status wanted, const std::string& what) {
  if (found == wanted) return;
  Case::fail(what + " returns " + status_name(found) + ", by frt/backend.h " + status_name(wanted));
}
void require(bool condition, const std::string& otherwise) {
  if (!condition) Case::fail(otherwise);
}

// What a case makes on the device; waits for its work, then gives it back.
class Runtime {
 public:
  explicit Runtime(Case& c)
      : backend_(c.under_test()), table_(backend_.table()), device_(backend_.device()) {}
  // On a device opened for it, which it closes.
  Runtime(Case& c, frt_backend_device device)
      : backend_(c.under_test()), table_(backend_.table()), device_(device) {}
  ~Runtime() {
    for (frt_backend_stream stream : streams_) {
      table_.capture_abort(stream);
      table_.stream_sync(stream);
    }
    for (frt_backend_exec exec : execs_) table_.exec_destroy(exec);
    for (frt_backend_event event : events_) table_.event_destroy(event);
    for (frt_backend_stream stream : streams_) table_.stream_destroy(stream);
    for (const auto& [space, block] : blocks_) {
      table_.memory_free(device_, space, block);
    }
    if (device_ != backend_.device()) table_.device_close(device_);
  }
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  const frt_backend_v1& table() const { return table_; }
  frt_backend_device device() const { return device_; }
  bool shares_memory() const { return (backend_.info().flags & FRT_DEVICE_SHARED_MEMORY) != 0; }

  frt_backend_stream stream() {
    frt_backend_stream made = nullptr;
    check(table_.stream_create(device(), 0, &made, &error_), error_, "stream_create");
    return streams_.emplace_back(made);
  }
  frt_backend_event event(uint32_t flags = 0) {
    frt_backend_event made = nullptr;
    check(table_.event_create(device(), flags, &made, &error_), error_, "event_create");
    return events_.emplace_back(made);
  }
  void* memory(frt_space space, uint64_t bytes) {
    void* made = nullptr;
    check(table_.memory_alloc(device(), space, bytes, &made, &error_), error_, "memory_alloc");
    blocks_.emplace_back(space, made);
    return made;
  }
  void begin(frt_backend_stream stream) {
    check(table_.capture_begin(stream, &error_), error_, "capture_begin");
  }
  frt_backend_exec end(frt_backend_stream stream) {
    frt_backend_exec made = nullptr;
    check(table_.capture_end(stream, &made, &error_), error_, "capture_end");
    return execs_.emplace_back(made);
  }
  void end_fails(frt_backend_stream stream, const std::string& why) {
    frt_backend_exec made = nullptr;
    const frt_status status = table_.capture_end(stream, &made, &error_);
    if (status == FRT_OK) execs_.push_back(made);
    expect(status, FRT_ERR_BAD_STATE, "capture_end " + why);
  }
  void keep(frt_backend_exec exec) { execs_.push_back(exec); }

  template <class Function>
  void call(frt_backend_stream stream, Function& function) {
    const auto run = [](void* user, frt_error* error) {
      if constexpr (std::is_invocable_v<Function&, frt_error*>) {
        return (*static_cast<Function*>(user))(error);
      } else {
        (*static_cast<Function*>(user))();
        return frt_status{FRT_OK};
      }
    };
    check(table_.stream_call(stream, run, &function), "stream_call");
  }
  void launch(frt_backend_exec exec, frt_backend_stream stream) {
    check(table_.exec_launch(exec, stream), "exec_launch");
  }
  void sync(frt_backend_stream stream) { check(table_.stream_sync(stream), "stream_sync"); }
  void copy(frt_backend_stream stream, void* target, frt_space to, const void* source,
            frt_space from, uint64_t bytes) {
    const frt_backend_copy one{target, source, bytes, to, from};
    check(table_.copy(stream, &one, 1), "copy");
  }

 private:
  Backend& backend_;
  const frt_backend_v1& table_;
  const frt_backend_device device_;
  frt_error error_{};
  std::vector<frt_backend_stream> streams_;
  std::vector<frt_backend_event> events_;
  std::vector<frt_backend_exec> execs_;
  std::vector<std::pair<frt_space, void*>> blocks_;
};

// Later work of the stream waits until the gate is open. A device may run the calls of all streams
// on one thread, so a case waits for no other call meanwhile.
class Gate {
 public:
  Gate(Runtime& runtime, frt_backend_stream stream) : runtime_(runtime), stream_(stream) {
    runtime.call(stream, wait_);
  }
  ~Gate() {
    open();
    runtime_.table().stream_sync(stream_);
  }
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;
  void open() { open_ = true; }

 private:
  struct Wait {
    std::atomic<bool>& open;
    void operator()() const {
      while (!open) std::this_thread::yield();
    }
  };
  Runtime& runtime_;
  frt_backend_stream stream_;
  std::atomic<bool> open_{false};
  Wait wait_{open_};
};

// Calls that write down their number. Lives longer than its runtime, as everything that work uses.
class Log {
 public:
  void add(Runtime& runtime, frt_backend_stream stream, int number) {
    entries_.push_back(std::make_unique<Entry>(Entry{*this, number}));
    runtime.call(stream, *entries_.back());
  }
  void expect(const std::vector<int>& wanted, const std::string& when) const {
    const auto text = [](const std::vector<int>& numbers) {
      std::string made;
      for (const int number : numbers) made += " " + std::to_string(number);
      return made;
    };
    require(seen_ == wanted,
            when + " the calls that ran are" + text(seen_) + ", expected" + text(wanted));
  }

 private:
  struct Entry {
    Log& log;
    int number;
    void operator()() const { log.seen_.push_back(number); }
  };
  std::vector<std::unique_ptr<Entry>> entries_;
  std::vector<int> seen_;
};

// ---- memory -----------------------------------------------------------------------------------

// Memory is taken while a stream has work: that work goes on, with the memory it was given, and the
// new memory is nobody else's. The call may wait for the work, so a thread opens the gate when it
// takes long.
void memory_beside_work(Case& c) {
  constexpr uint64_t kBytes = 64 << 10, kFill = 0x2A, kOther = 0x51;
  constexpr std::chrono::milliseconds kPatience{50};
  for (const frt_space space :
       {FRT_SPACE_DEVICE, FRT_SPACE_HOST_PINNED, FRT_SPACE_HOST, FRT_SPACE_SHARED}) {
    Runtime runtime(c);
    if (space == FRT_SPACE_SHARED && !runtime.shares_memory()) continue;
    const frt_backend_stream stream = runtime.stream();
    auto* source = static_cast<std::byte*>(runtime.memory(FRT_SPACE_DEVICE, kBytes));
    auto* target = static_cast<std::byte*>(runtime.memory(FRT_SPACE_DEVICE, kBytes));
    runtime.begin(stream);
    runtime.copy(stream, target, FRT_SPACE_DEVICE, source, FRT_SPACE_DEVICE, kBytes);
    const frt_backend_exec exec = runtime.end(stream);
    check(runtime.table().fill(stream, source, FRT_SPACE_DEVICE, kBytes, kFill), "fill");
    std::vector<std::byte*> made;
    {
      Gate gate(runtime, stream);
      runtime.launch(exec, stream);
      std::atomic<bool> done{false};
      std::thread opener([&] {
        const auto end = std::chrono::steady_clock::now() + kPatience;
        while (!done && std::chrono::steady_clock::now() < end) std::this_thread::yield();
        gate.open();
      });
      struct Joined {
        ~Joined() {
          done = true;
          opener.join();
        }
        std::atomic<bool>& done;
        std::thread& opener;
      } joined{done, opener};
      for (int i = 0; i < 4; ++i) {
        made.push_back(static_cast<std::byte*>(runtime.memory(space, kBytes)));
      }
    }
    made.insert(made.end(), {source, target});
    std::sort(made.begin(), made.end());
    for (std::size_t i = 0; i < made.size(); ++i) {
      require(reinterpret_cast<uintptr_t>(made[i]) % 256 == 0,
              "memory_alloc gives memory that is not aligned to 256 bytes");
      require(i == 0 || made[i] - made[i - 1] >= static_cast<std::ptrdiff_t>(kBytes),
              "memory_alloc gives memory that overlaps with what work in flight uses");
    }
    for (std::byte* block : made) {
      if (block == source || block == target) continue;
      check(runtime.table().fill(stream, block, space, kBytes, kOther), "fill");
    }
    std::vector<std::byte> found(kBytes);
    runtime.copy(stream, found.data(), FRT_SPACE_HOST, target, FRT_SPACE_DEVICE, kBytes);
    runtime.sync(stream);
    require(std::all_of(found.begin(), found.end(),
                        [](std::byte value) { return value == std::byte{kFill}; }),
            "what was launched before memory_alloc left another result behind it");
  }
}

std::string hex(std::byte value) {
  char text[8];
  std::snprintf(text, sizeof(text), "0x%02x", static_cast<unsigned>(value));
  return text;
}

void copies_between_spaces(Case& c) {
  constexpr uint64_t kBytes = 1021, kShift = 3;
  constexpr uint8_t kGuard = 0x5A;
  std::vector<std::byte> pattern(kBytes), found(kBytes);
  std::array<std::byte, 2> edges{};
  for (std::byte& one : pattern) one = static_cast<std::byte>(c.random()());
  Runtime runtime(c);
  const frt_backend_stream stream = runtime.stream();
  const frt_space end = runtime.shares_memory() ? FRT_SPACE_COUNT : FRT_SPACE_SHARED;
  for (frt_space from = 0; from < end; ++from) {
    for (frt_space to = 0; to < end; ++to) {
      const std::string pair = std::string(space_name(from)) + " to " + space_name(to) + ": ";
      auto* source = static_cast<std::byte*>(runtime.memory(from, kBytes + kShift));
      auto* target = static_cast<std::byte*>(runtime.memory(to, kBytes + 2 * kShift));
      require(reinterpret_cast<uintptr_t>(target) % 256 == 0, pair + "memory is not aligned");
      check(runtime.table().fill(stream, target, to, kBytes + 2 * kShift, kGuard), "fill");
      runtime.copy(stream, found.data(), FRT_SPACE_HOST, target, to, kBytes);
      runtime.sync(stream);
      for (const std::byte value : found) {
        require(value == std::byte{kGuard}, std::string(space_name(to)) + ": fill wrote " +
                                                hex(value) + ", asked for " +
                                                hex(std::byte{kGuard}));
      }
      runtime.copy(stream, source + kShift, from, pattern.data(), FRT_SPACE_HOST, kBytes);
      runtime.copy(stream, target + kShift, to, source + kShift, from, kBytes);
      runtime.copy(stream, found.data(), FRT_SPACE_HOST, target + kShift, to, kBytes);
      runtime.copy(stream, &edges[0], FRT_SPACE_HOST, target + kShift - 1, to, 1);
      runtime.copy(stream, &edges[1], FRT_SPACE_HOST, target + kShift + kBytes, to, 1);
      runtime.sync(stream);
      require(found == pattern, pair + "the bytes differ");
      require(edges[0] == std::byte{kGuard} && edges[1] == std::byte{kGuard},
              pair + "bytes beside the range were written");
    }
  }
}

void shared_memory(Case& c) {
  constexpr uint64_t kBytes = 1021;
  Runtime runtime(c);
  if (!runtime.shares_memory()) {
    void* made = nullptr;
    frt_error error{};
    const frt_status status =
        runtime.table().memory_alloc(runtime.device(), FRT_SPACE_SHARED, kBytes, &made, &error);
    if (status == FRT_OK) runtime.table().memory_free(runtime.device(), FRT_SPACE_SHARED, made);
    return expect(status, FRT_ERR_UNSUPPORTED,
                  "memory_alloc of shared memory without FRT_DEVICE_SHARED_MEMORY");
  }
  auto* shared = static_cast<std::byte*>(runtime.memory(FRT_SPACE_SHARED, kBytes));
  auto* block = static_cast<std::byte*>(runtime.memory(FRT_SPACE_DEVICE, kBytes));
  const frt_backend_stream stream = runtime.stream();
  runtime.begin(stream);
  runtime.copy(stream, block, FRT_SPACE_DEVICE, shared, FRT_SPACE_SHARED, kBytes);
  check(runtime.table().fill(stream, shared, FRT_SPACE_SHARED, kBytes, 0x5A), "fill");
  runtime.copy(stream, shared + 1, FRT_SPACE_SHARED, block + 1, FRT_SPACE_DEVICE, kBytes - 2);
  const frt_backend_exec exec = runtime.end(stream);
  for (const int round : {1, 2}) {
    std::vector<std::byte> pattern(kBytes);
    for (std::byte& one : pattern) one = static_cast<std::byte>(c.random()());
    std::copy(pattern.begin(), pattern.end(), shared);  // by the host, in place
    runtime.launch(exec, stream);
    runtime.sync(stream);
    pattern.front() = pattern.back() = std::byte{0x5A};
    require(std::equal(pattern.begin(), pattern.end(), shared),
            "launch " + std::to_string(round) +
                ": what the host writes and the device answers in shared memory differs");
  }
}

// ---- streams and events -----------------------------------------------------------------------

void submission_returns(Case& c) {
  Log log;
  Runtime runtime(c);
  const frt_backend_stream stream = runtime.stream();
  const frt_backend_event event = runtime.event();
  Gate gate(runtime, stream);
  log.add(runtime, stream, 1);
  check(runtime.table().event_record(event, stream), "event_record");
  log.add(runtime, stream, 2);
  expect(runtime.table().event_query(event), FRT_ERR_NOT_READY, "event_query before its work");
  log.expect({}, "while the stream is held back");
  gate.open();
  check(runtime.table().event_sync(event), "event_sync");
  expect(runtime.table().event_query(event), FRT_OK, "event_query after its work");
  runtime.sync(stream);
  log.expect({1, 2}, "after a sync");
}

void events_order_streams(Case& c) {
  Log log;
  Runtime runtime(c);
  const frt_backend_stream first = runtime.stream(), second = runtime.stream(),
                           third = runtime.stream();
  const frt_backend_event event = runtime.event();
  expect(runtime.table().event_query(event), FRT_OK, "event_query of an event never recorded");
  log.add(runtime, second, 0);
  check(runtime.table().event_wait(event, second), "event_wait for an event never recorded");
  log.add(runtime, second, 1);
  runtime.sync(second);
  Gate gate(runtime, first);
  log.add(runtime, first, 2);
  check(runtime.table().event_record(event, first), "event_record");
  check(runtime.table().event_wait(event, second), "event_wait");
  // The wait is for the record before it, not for this one.
  check(runtime.table().event_record(event, third), "event_record");
  runtime.sync(third);
  log.add(runtime, second, 3);
  log.expect({0, 1}, "while the first stream is held back");
  gate.open();
  runtime.sync(second);
  log.expect({0, 1, 2, 3}, "after a sync of the second stream");
}

// While the first stream is held back, nothing behind a wait of the second one may run, however
// long that takes; a short time alone is what a wait without effect gets to be seen. A device may
// run the calls of all streams on one thread, which the gate holds: a fill needs none.
void waits_hold(Case& c) {
  constexpr int kRounds = 8;
  constexpr uint8_t kFill = 0x2A;
  constexpr std::chrono::milliseconds kTime{10};
  for (int round = 0; round < kRounds; ++round) {
    std::atomic<bool> called{false};
    auto call = [&] { called = true; };
    Runtime runtime(c);
    const frt_backend_stream first = runtime.stream(), second = runtime.stream();
    const frt_backend_event event = runtime.event();
    auto* byte = static_cast<uint8_t*>(runtime.memory(FRT_SPACE_HOST_PINNED, 1));
    *byte = 0;
    const std::atomic_ref<uint8_t> filled(*byte);
    Gate gate(runtime, first);
    check(runtime.table().event_record(event, first), "event_record");
    check(runtime.table().event_wait(event, second), "event_wait");
    check(runtime.table().fill(second, byte, FRT_SPACE_HOST_PINNED, 1, kFill), "fill");
    runtime.call(second, call);
    const auto end = std::chrono::steady_clock::now() + kTime;
    do {
      require(!called && filled == 0,
              std::string(called ? "a call" : "a fill") +
                  " of a stream runs before the event that event_wait told it to wait for (round " +
                  std::to_string(round + 1) + ")");
      std::this_thread::yield();
    } while (std::chrono::steady_clock::now() < end);
    gate.open();
    runtime.sync(second);
    require(called && filled == kFill, "what waited for an event has not run after it");
  }
}

void elapsed_time(Case& c) {
  Runtime runtime(c);
  const frt_backend_stream stream = runtime.stream();
  const frt_backend_event start = runtime.event(FRT_EVENT_TIMING),
                          end = runtime.event(FRT_EVENT_TIMING), plain = runtime.event();
  double ms = -1;
  const auto elapsed = [&](frt_backend_event a, frt_backend_event b) {
    return runtime.table().event_elapsed(a, b, &ms);
  };
  expect(elapsed(plain, end), FRT_ERR_INVALID_ARGUMENT, "event_elapsed without FRT_EVENT_TIMING");
  expect(elapsed(start, end), FRT_ERR_BAD_STATE, "event_elapsed before any record");
  Gate gate(runtime, stream);
  check(runtime.table().event_record(start, stream), "event_record");
  check(runtime.table().event_record(end, stream), "event_record");
  expect(elapsed(start, end), FRT_ERR_NOT_READY, "event_elapsed of work in flight");
  gate.open();
  runtime.sync(stream);
  expect(elapsed(start, end), FRT_OK, "event_elapsed");
  require(ms >= 0, "event_elapsed is negative");
}

void calls_may_fail(Case& c) {
  Log log;
  // Another code than FRT_ERR_CALLBACK: it is the function's own, not the device's.
  auto fails = [](frt_error* error) {
    return set_error(error, FRT_ERR_DEVICE_LOST, "of the case");
  };
  Runtime runtime(c);
  const frt_backend_stream stream = runtime.stream();
  runtime.call(stream, fails);
  log.add(runtime, stream, 1);
  expect(runtime.table().stream_sync(stream), FRT_ERR_CALLBACK, "stream_sync after a call failed");
  expect(runtime.table().stream_sync(stream), FRT_OK, "the next stream_sync");
  log.expect({1}, "after that");
}

// Core forks a capsule into several slots in one batch.
void copies_share_a_source(Case& c) {
  Runtime runtime(c);
  const frt_backend_stream stream = runtime.stream();
  constexpr uint64_t kBytes = 512;
  auto* source = static_cast<std::byte*>(runtime.memory(FRT_SPACE_DEVICE, kBytes));
  auto* targets = static_cast<std::byte*>(runtime.memory(FRT_SPACE_DEVICE, 3 * kBytes));
  auto* found = static_cast<std::byte*>(runtime.memory(FRT_SPACE_HOST_PINNED, 3 * kBytes));
  std::array<std::byte, kBytes> pattern{};
  for (std::size_t i = 0; i < kBytes; ++i) pattern[i] = static_cast<std::byte>(i * 7 + 1);
  runtime.copy(stream, source, FRT_SPACE_DEVICE, pattern.data(), FRT_SPACE_HOST, kBytes);
  std::array<frt_backend_copy, 3> batch{};
  for (std::size_t i = 0; i < batch.size(); ++i) {
    batch[i] = {targets + i * kBytes, source, kBytes, FRT_SPACE_DEVICE, FRT_SPACE_DEVICE};
  }
  check(runtime.table().copy(stream, batch.data(), batch.size()), "copy of one source to three");
  runtime.copy(stream, found, FRT_SPACE_HOST_PINNED, targets, FRT_SPACE_DEVICE, 3 * kBytes);
  runtime.sync(stream);
  for (std::size_t i = 0; i < batch.size(); ++i) {
    require(std::equal(pattern.begin(), pattern.end(), found + i * kBytes),
            "copy " + std::to_string(i) + " of a batch from one source left other bytes");
  }
}

// ---- executables ------------------------------------------------------------------------------

void launches_run_again(Case& c) {
  Log log;
  std::array<std::byte, 8> source{}, found{};
  Runtime runtime(c);
  const frt_backend_stream stream = runtime.stream(), other = runtime.stream();
  auto* block = static_cast<std::byte*>(runtime.memory(FRT_SPACE_DEVICE, 8));
  runtime.begin(stream);
  log.add(runtime, stream, 1);
  check(runtime.table().fill(stream, block, FRT_SPACE_DEVICE, 8, 7), "fill");
  runtime.copy(stream, block, FRT_SPACE_DEVICE, source.data(), FRT_SPACE_HOST, 4);
  runtime.copy(stream, found.data(), FRT_SPACE_HOST, block, FRT_SPACE_DEVICE, 8);
  log.add(runtime, stream, 2);
  log.add(runtime, other, 3);  // not disturbed
  runtime.sync(other);
  const frt_backend_exec exec = runtime.end(stream);
  runtime.sync(stream);
  log.expect({3}, "after a capture");
  for (const int round : {1, 2}) {
    source.fill(static_cast<std::byte>(round));
    runtime.launch(exec, round == 1 ? stream : other);
    check(runtime.table().device_sync(runtime.device()), "device_sync");
    std::array<std::byte, 8> wanted{};
    wanted.fill(std::byte{7});
    std::fill_n(wanted.begin(), 4, static_cast<std::byte>(round));
    require(found == wanted,
            "launch " + std::to_string(round) +
                " leaves other bytes; the array `copies` is the caller's again when copy returns: "
                "a capture keeps what it says, not the pointer");
  }
  log.expect({3, 1, 2, 1, 2}, "after two launches");
}

void launches_follow_each_other(Case& c) {
  std::atomic<bool> inside{false}, overlapped{false};
  auto one_at_a_time = [&] {
    if (inside.exchange(true)) overlapped = true;
    for (int i = 0; i < 50; ++i) std::this_thread::yield();
    inside = false;
  };
  Runtime runtime(c);
  const std::array streams = {runtime.stream(), runtime.stream(), runtime.stream()};
  runtime.begin(streams[0]);
  runtime.call(streams[0], one_at_a_time);
  const frt_backend_exec exec = runtime.end(streams[0]);
  for (int i = 0; i < 10; ++i) {
    for (const frt_backend_stream stream : streams) runtime.launch(exec, stream);
  }
  check(runtime.table().device_sync(runtime.device()), "device_sync");
  require(!overlapped, "two launches of one executable ran at the same time");
}

void captures_refuse(Case& c) {
  Log log;
  Runtime runtime(c);
  const frt_backend_v1& table = runtime.table();
  const frt_backend_stream stream = runtime.stream(), other = runtime.stream();
  const frt_backend_event outside = runtime.event();
  check(table.event_record(outside, other), "event_record");
  std::vector<int> wanted;
  runtime.begin(stream);
  log.add(runtime, stream, 9);
  const frt_backend_exec part = runtime.end(stream);
  const auto refused = [&](const std::string& what, auto submit) {
    runtime.begin(stream);
    log.add(runtime, stream, 8);
    expect(submit(), FRT_ERR_BAD_STATE, what + " in a capture");
    runtime.end_fails(stream, "after " + what);
    log.add(runtime, stream, 1);  // usable again
    runtime.sync(stream);
    wanted.push_back(1);
    log.expect(wanted, "after a capture with " + what);
  };
  refused("a sync", [&] { return table.stream_sync(stream); });
  refused("a launch", [&] { return table.exec_launch(part, stream); });
  refused("a wait for an event", [&] { return table.event_wait(outside, stream); });
  refused("a record of an event", [&] { return table.event_record(outside, stream); });
  expect(table.event_sync(outside), FRT_OK, "event_sync of the record before");
}

void captures_out_of_turn(Case& c) {
  Log log;
  Runtime runtime(c);
  const frt_backend_v1& table = runtime.table();
  const frt_backend_stream stream = runtime.stream();
  frt_error error{};
  runtime.end_fails(stream, "without a begin");
  table.capture_abort(stream);  // nothing to drop
  runtime.begin(stream);
  expect(table.capture_begin(stream, &error), FRT_ERR_BAD_STATE, "a second capture_begin");
  log.add(runtime, stream, 1);
  table.capture_abort(stream);
  require(table.stream_sync(stream) != FRT_ERR_BAD_STATE,
          "capture_abort leaves the stream recording: the stream_sync after it returns " +
              std::string(status_name(FRT_ERR_BAD_STATE)));
  log.expect({}, "after an abort");
  runtime.begin(stream);
  const frt_backend_exec empty = runtime.end(stream);
  runtime.launch(empty, stream);
  log.add(runtime, stream, 2);
  runtime.sync(stream);
  log.expect({2}, "after an empty executable");
}

void compositions(Case& c) {
  Log log;
  Runtime runtime(c);
  if (!runtime.table().exec_compose) throw Skip{"not offered: exec_compose"};
  const frt_backend_stream stream = runtime.stream();
  const auto part = [&](int number) {
    runtime.begin(stream);
    log.add(runtime, stream, number);
    return runtime.end(stream);
  };
  const uint32_t two = 2, zero = 0;
  const frt_backend_node nodes[] = {
      {part(10), &two, 1, 0}, {part(11), &zero, 1, 0}, {part(12), nullptr, 0, 0}};
  frt_backend_exec whole = nullptr;
  frt_error error{};
  const frt_status status =
      runtime.table().exec_compose(runtime.device(), nodes, 3, &whole, &error);
  if (status == FRT_ERR_UNSUPPORTED) throw Skip{"not supported: exec_compose"};
  check(status, error, "exec_compose");
  runtime.keep(whole);
  runtime.launch(whole, stream);
  runtime.launch(whole, stream);
  runtime.sync(stream);
  log.expect({12, 10, 11, 12, 10, 11}, "after two launches");
}

// ---- errors ------------------------------------------------------------------------------------

// A host function that fails is a failure that every backend can have.
void words_of_a_failed_call(Case& c) {
  const frt_backend_v1& table = c.under_test().table();
  const auto last_error = FRT_HAS(&table, frt_backend_v1, last_error) ? table.last_error : nullptr;
  if (!last_error) throw Skip{"not offered: last_error"};
  Runtime runtime(c);
  const frt_backend_stream stream = runtime.stream();
  auto fails = [](frt_error* error) {
    return set_error(error, FRT_ERR_IO, "of the case \u4e2d\u4e2d\u4e2d\u4e2d\u4e2d");
  };
  std::array<char, 64> text{};
  const auto ask = [&](uint64_t capacity) {
    text.fill('x');
    const frt_status status = last_error(runtime.device(), text.data(), capacity);
    const auto* end = static_cast<const char*>(std::memchr(text.data(), 0, capacity));
    require(end, "last_error: its text has no end within the capacity");
    require(std::all_of(text.begin() + static_cast<std::ptrdiff_t>(capacity), text.end(),
                        [](char one) { return one == 'x'; }),
            "last_error writes behind the capacity");
    for (std::string_view rest(text.data(), end); !rest.empty();) {
      const Utf8Step step = utf8_step(rest);
      require(step.kind == Utf8Step::kValid, "last_error: its text is no UTF-8");
      rest.remove_prefix(step.bytes);
    }
    return status;
  };
  const auto nothing = [&](const std::string& when) {
    expect(ask(text.size()), FRT_OK, "last_error " + when);
    require(text[0] == '\0', "last_error has words " + when);
  };
  ask(text.size());  // of earlier cases
  nothing("when no call failed");
  for (uint64_t capacity = 1; capacity <= text.size(); ++capacity) {
    runtime.call(stream, fails);
    expect(table.stream_sync(stream), FRT_ERR_CALLBACK, "stream_sync after a call that fails");
    const frt_status status = ask(capacity);
    if (status == FRT_OK) {
      require(text[0] == '\0', "last_error has words of no code");
    } else {
      expect(status, FRT_ERR_CALLBACK, "last_error after a call that fails");
    }
    nothing("when they were given");
  }
}

// ---- two devices ------------------------------------------------------------------------------

void peer_copies(Case& c) {
  constexpr uint64_t kBytes = 100003;
  const auto copy_peer = FRT_HAS(&c.under_test().table(), frt_backend_v1, copy_peer)
                             ? c.under_test().table().copy_peer
                             : nullptr;
  if (!copy_peer) throw Skip{"not offered: copy_peer"};
  std::vector<std::byte> pattern(kBytes), found(kBytes);
  for (std::byte& one : pattern) one = static_cast<std::byte>(c.random()());
  Runtime from(c), to(c, c.under_test().open_again());
  const frt_backend_stream source_stream = from.stream(), target_stream = to.stream();
  auto* source = static_cast<std::byte*>(from.memory(FRT_SPACE_DEVICE, kBytes));
  auto* target = static_cast<std::byte*>(to.memory(FRT_SPACE_DEVICE, kBytes));
  check(from.table().fill(source_stream, source, FRT_SPACE_DEVICE, kBytes, 1), "fill");
  from.sync(source_stream);
  {
    Gate source_gate(from, source_stream), target_gate(to, target_stream);
    from.copy(source_stream, source, FRT_SPACE_DEVICE, pattern.data(), FRT_SPACE_HOST, kBytes);
    check(to.table().fill(target_stream, target, FRT_SPACE_DEVICE, kBytes, 2), "fill");
    const frt_status status =
        copy_peer(target_stream, target + 3, source_stream, source + 1, kBytes - 7);
    if (status == FRT_ERR_UNSUPPORTED) throw Skip{"not supported: copy_peer"};
    check(status, "copy_peer");
    check(from.table().fill(source_stream, source, FRT_SPACE_DEVICE, kBytes, 3), "fill");
    to.copy(target_stream, found.data(), FRT_SPACE_HOST, target, FRT_SPACE_DEVICE, kBytes);
    target_gate.open();
    source_gate.open();
  }
  std::vector<std::byte> wanted(kBytes, std::byte{2});
  std::copy_n(pattern.begin() + 1, kBytes - 7, wanted.begin() + 3);
  require(found == wanted,
          "copy_peer: the bytes differ, or it is not in the order of both streams");
}

// ---- the hot path -----------------------------------------------------------------------------

// What a replay consists of, submitted behind a call that runs until all of it is submitted. Should
// the plugin wait for its stream, the call gives up after some seconds and says so.
void hot_calls_do_not_wait(Case& c) {
  constexpr uint64_t kBytes = 1021;
  std::atomic<bool> submitted{false}, waited{false};
  auto hold = [&] {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(5);
    while (!submitted && !waited) {
      if (std::chrono::steady_clock::now() >= end) waited = true;
      std::this_thread::yield();
    }
  };
  Runtime runtime(c);
  const frt_backend_stream stream = runtime.stream();
  const frt_backend_event event = runtime.event();
  void* block = runtime.memory(FRT_SPACE_DEVICE, kBytes);
  void* other = runtime.memory(FRT_SPACE_DEVICE, kBytes);
  const auto work = [&] {
    check(runtime.table().fill(stream, block, FRT_SPACE_DEVICE, kBytes, 1), "fill");
    runtime.copy(stream, other, FRT_SPACE_DEVICE, block, FRT_SPACE_DEVICE, kBytes);
  };
  runtime.begin(stream);
  work();
  const frt_backend_exec exec = runtime.end(stream);
  runtime.launch(exec, stream);
  runtime.sync(stream);
  const auto returns = [&](const char* what, const auto& call) {
    submitted = false;
    runtime.call(stream, hold);
    call();
    submitted = true;
    runtime.sync(stream);
    require(!waited, std::string(what) +
                         " waits for the work of its stream, by frt/backend.h [hot]: it submits "
                         "and returns");
  };
  returns("exec_launch", [&] { runtime.launch(exec, stream); });
  returns("fill",
          [&] { check(runtime.table().fill(stream, block, FRT_SPACE_DEVICE, kBytes, 1), "fill"); });
  returns("copy between device memory",
          [&] { runtime.copy(stream, other, FRT_SPACE_DEVICE, block, FRT_SPACE_DEVICE, kBytes); });
  returns("event_record",
          [&] { check(runtime.table().event_record(event, stream), "event_record"); });
  returns("event_query", [&] { runtime.table().event_query(event); });
  void* pinned = runtime.memory(FRT_SPACE_HOST_PINNED, kBytes);
  returns("fill of pinned memory", [&] {
    check(runtime.table().fill(stream, pinned, FRT_SPACE_HOST_PINNED, kBytes, 1), "fill");
  });
  returns("copy from pinned memory", [&] {
    runtime.copy(stream, block, FRT_SPACE_DEVICE, pinned, FRT_SPACE_HOST_PINNED, kBytes);
  });
  returns("copy to pinned memory", [&] {
    runtime.copy(stream, pinned, FRT_SPACE_HOST_PINNED, block, FRT_SPACE_DEVICE, kBytes);
  });
  returns("event_wait", [&] { check(runtime.table().event_wait(event, stream), "event_wait"); });
}

// Calls that grow a list once in a while are found by their first calls, not by the last. A backend
// that allocates computes what it should, only not at a steady pace: it is told, and passes.
void hot_calls_do_not_allocate(Case& c) {
  if (!counts_allocations()) throw Skip{"a build with a sanitizer does not count allocations"};
  constexpr uint64_t kBytes = 1021;
  constexpr int kWarmUp = 32, kRounds = 32;
  Runtime runtime(c);
  const frt_backend_stream stream = runtime.stream();
  const frt_backend_event event = runtime.event();
  void* block = runtime.memory(FRT_SPACE_DEVICE, kBytes);
  void* other = runtime.memory(FRT_SPACE_DEVICE, kBytes);
  runtime.begin(stream);
  check(runtime.table().fill(stream, block, FRT_SPACE_DEVICE, kBytes, 1), "fill");
  const frt_backend_exec exec = runtime.end(stream);
  const frt_backend_v1& table = runtime.table();
  // The table is a checked copy; its functions are the plugin's.
  const auto* own = reinterpret_cast<const void*>(table.exec_launch);
  std::string allocate;
  const auto allocates_nothing = [&](const char* what, const auto& call) {
    uint64_t count = 0;
    for (int round = 0; round < kWarmUp + kRounds; ++round) {
      const uint64_t found = allocations_of(own, call);
      if (round >= kWarmUp) count += found;
      runtime.sync(stream);
    }
    if (count > 0) {
      allocate += (allocate.empty() ? "" : ", ") + std::string(what) + " (" +
                  std::to_string(count) + " times in " + std::to_string(kRounds) + " calls)";
    }
  };
  allocates_nothing("exec_launch", [&] { runtime.launch(exec, stream); });
  allocates_nothing("fill",
                    [&] { check(table.fill(stream, block, FRT_SPACE_DEVICE, kBytes, 1), "fill"); });
  allocates_nothing("copy", [&] {
    runtime.copy(stream, other, FRT_SPACE_DEVICE, block, FRT_SPACE_DEVICE, kBytes);
  });
  allocates_nothing("event_record", [&] { check(table.event_record(event, stream), "record"); });
  allocates_nothing("event_query", [&] { table.event_query(event); });
  void* pinned = runtime.memory(FRT_SPACE_HOST_PINNED, kBytes);
  allocates_nothing("fill of pinned memory", [&] {
    check(table.fill(stream, pinned, FRT_SPACE_HOST_PINNED, kBytes, 1), "fill");
  });
  allocates_nothing("copy of pinned memory", [&] {
    runtime.copy(stream, block, FRT_SPACE_DEVICE, pinned, FRT_SPACE_HOST_PINNED, kBytes);
    runtime.copy(stream, pinned, FRT_SPACE_HOST_PINNED, block, FRT_SPACE_DEVICE, kBytes);
  });
  const frt_backend_stream other_stream = runtime.stream();
  allocates_nothing("event_wait", [&] {
    check(table.event_record(event, other_stream), "record");
    check(table.event_wait(event, stream), "event_wait");
  });
  if (!allocate.empty()) {
    throw Warn{"memory is allocated by " + allocate + ", by frt/base.h [hot]: take it at setup"};
  }
}

}  // namespace

void add_runtime_cases(Suite& suite) {
  const auto add = [&](const char* name, void (*body)(Case&)) {
    suite.add(std::string(FRT_EXT_BACKEND) + " " + name, body);
  };
  add("copies and fills between all spaces", copies_between_spaces);
  add("memory is taken beside work", memory_beside_work);
  add("shared memory", shared_memory);
  add("a submission returns before its work", submission_returns);
  add("events order streams", [](Case& c) {
    waits_hold(c);  // first: the other one writes from two threads where a wait does nothing
    events_order_streams(c);
  });
  add("elapsed time", elapsed_time);
  add("copies share a source", copies_share_a_source);
  add("calls may fail", calls_may_fail);
  add("words of a call that failed", words_of_a_failed_call);
  add("launches run again", launches_run_again);
  add("launches follow each other", launches_follow_each_other);
  add("captures refuse", captures_refuse);
  add("captures out of turn", captures_out_of_turn);
  add("compositions", compositions);
  add("copies between two devices", peer_copies);
  add("hot calls do not wait", hot_calls_do_not_wait);
  add("hot calls do not allocate", hot_calls_do_not_allocate);
}

}  // namespace frt::conformance
