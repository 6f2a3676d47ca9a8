// SPDX-License-Identifier: Apache-2.0
// mock_backend.hpp - a backend in ordinary memory whose progress the test controls.
//
// Submitted work waits in its stream until somebody pumps: a test (`pump`), or a waiting call of
// core. So "in flight" is a state a test can hold still. pump() takes a random runnable stream for
// every operation, so that missing dependencies show.
//
// The mock is strict: destroying an executable, event or stream that pending work needs, freeing
// memory that pending work touches, or destroying a part before its composition is noted in
// `violations`; tests expect none at the end.
#pragma once

#include <frt/backend.h>
#include <frt/kernels.h>

#include <cstdint>
#include <deque>
#include <frt/failed_call.hpp>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

struct MockExec;
struct MockEvent;
struct MockStream;

// Arguments of the mock's kernels.
struct mock_append_args {  // "mock.append/1": appends `value` to MockBackend::trace
  uint32_t struct_size;
  int32_t value;
};
struct mock_mix_args {  // "mock.mix/1": target = 31 * target + sum(sources[i]) + value
  uint32_t struct_size;
  int32_t value;
  uint64_t* target;
  const uint64_t* const* sources;  // read when called
  uint32_t source_count;
};

class MockBackend {
 public:
  explicit MockBackend(uint32_t seed = 1);
  ~MockBackend();
  MockBackend(const MockBackend&) = delete;
  MockBackend& operator=(const MockBackend&) = delete;

  frt_backend_v1 table;  // may be changed before opening, e.g. exec_compose = nullptr
  frt_kernels_v1 kernels;
  frt_plugin plugin() { return reinterpret_cast<frt_plugin>(this); }

  // Its devices reach those of every other mock.
  void offer_peer_copies();

  // Runs everything that can run.
  void pump();
  // Work not yet run on all streams.
  std::size_t pending() const;
  // The next `times` calls of `function` ("copy", "memory_alloc", ...) return `status`.
  void fail(const std::string& function, frt_status status, int times = 1);
  // Of failures that are still to come none comes.
  void fail_no_more() { failures_.clear(); }
  // What last_error tells of calls that fail from now on; empty: nothing.
  std::string words;
  frt::FailedCall failed_call;
  frt_status late_error = FRT_OK;  // of a host function, for the next sync of a stream
  // How often `function` was called.
  int calls(const std::string& function) const;

  std::vector<int32_t> trace;  // of mock.append/1
  std::vector<std::string> violations;
  uint64_t memory_limit = 1 << 30;
  uint32_t device_flags = 0;  // FRT_DEVICE_*, before opening
  uint64_t copied_bytes = 0;  // by copy, when it ran
  bool native_forms = true;   // streams and executables can be wrapped and adopted
  int native_destroyed = 0;   // adopted executables destroyed with owned != 0
  int live_execs = 0, live_events = 0, live_streams = 0, live_blocks = 0;

  // The rest is for the functions of the table.
  struct Operation {
    std::function<void()> run;    // empty: see below
    MockEvent* wait = nullptr;    // blocks until wait->done >= sequence
    MockEvent* record = nullptr;  // sets record->done = sequence
    uint64_t sequence = 0;
    MockExec* exec = nullptr;
    std::vector<std::pair<uintptr_t, uint64_t>> ranges;  // memory it touches
  };
  frt_status submit(MockStream& stream, Operation operation);
  frt_status entered(const char* function);
  bool run_until(const std::function<bool()>& done);
  void check_unused(const char* what, const std::function<bool(const Operation&)>& uses);

  std::vector<MockStream*> streams;
  std::map<void*, uint64_t> blocks;
  std::vector<frt_kernel_desc> descriptors;
  std::mt19937 random;

 private:
  bool step();

  std::map<std::string, std::deque<frt_status>> failures_;
  std::map<std::string, int> calls_;
};

struct MockEvent {
  MockBackend* backend;
  uint64_t recorded = 0;  // sequence of the last record submitted
  uint64_t done = 0;      // of the last one run
  bool timing = false;
};

struct MockExec {
  MockBackend* backend;
  std::vector<MockBackend::Operation> operations;
  struct Part {
    MockExec* exec;
    std::vector<uint32_t> after;
  };
  std::vector<Part> parts;     // of a composition
  std::set<MockExec*> owners;  // compositions this is a part of
  bool adopted = false, owned = false;
  void run();
};

struct MockStream {
  MockBackend* backend;
  bool capturing = false;
  void* native = nullptr;
  std::deque<MockBackend::Operation> queue;
  std::vector<MockBackend::Operation> recorded;
};
