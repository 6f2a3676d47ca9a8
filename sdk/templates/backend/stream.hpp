// SPDX-License-Identifier: Apache-2.0
// Streams, events and executables of a backend that is one thread per stream. A stream is a queue
// of closures; an executable is a list of closures that a launch runs again. Simple before fast: a
// submission allocates and takes a lock, which frt/base.h asks [hot] functions not to do.
#pragma once

#include "operators.hpp"

#include <frt/backend.h>
#include <frt/failed_call.hpp>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace simple {

using Task = std::function<void()>;
using Clock = std::chrono::steady_clock;

class Exec;
class Stream;

class Device {
 public:
  frt_status sync();
  const Kernels& kernels() const { return kernels_; }
  frt::FailedCall& failed_call() { return failed_call_; }

 private:
  friend class Stream;
  // The code, and its words for whoever asks.
  frt_status report(const frt_error& error);

  std::vector<Stream*> streams_;
  Kernels kernels_;
  frt::FailedCall failed_call_;
};

// One record of an event, or the end of one launch. Who waits for it keeps it, so that the event
// may be recorded again.
class Record {
 public:
  void finish();
  bool finished();
  void wait();
  Clock::time_point time() const { return time_; }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool finished_ = false;
  Clock::time_point time_;
};

class Event {
 public:
  Event(Device& device, uint32_t flags)
      : device_(device), timing_((flags & FRT_EVENT_TIMING) != 0) {}

  Device& device() const { return device_; }
  frt_status query();
  frt_status sync();
  static frt_status elapsed(Event& start, Event& end, double& ms);

 private:
  friend class Stream;
  Device& device_;
  bool timing_;
  std::shared_ptr<Record> last_;  // null: never recorded
};

class Exec {
 public:
  uint64_t node_count() const noexcept { return tasks_.size(); }
  static std::unique_ptr<Exec> compose(Device&, const frt_backend_node* nodes, uint32_t count);

 private:
  friend class Stream;
  std::vector<Task> tasks_;
  std::shared_ptr<Record> last_;  // launch; launches follow each other
};

class Stream {
 public:
  Stream(Device& device, int32_t priority);
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  Device& device() const { return device_; }
  // Runs `task` after everything before it, or records it while the stream captures.
  void submit(Task task);

  frt_status copy(const frt_backend_copy* copies, uint64_t count);
  frt_status fill(void* pointer, frt_space space, uint64_t bytes, uint8_t value);
  frt_status call(frt_host_function function, void* user);
  frt_status record(Event& event);
  frt_status wait(Event& event);
  frt_status launch(Exec& exec);
  frt_status sync();
  // Waits, and gives the first error since the last time.
  frt_error finish();

  void capture_begin();
  std::unique_ptr<Exec> capture_end();
  void capture_abort() { recording_.reset(); }

 private:
  frt_status refuse_in_capture(const char* what);
  void enqueue(Task task);
  void work();

  Device& device_;
  std::unique_ptr<Exec> recording_;  // while capturing
  const char* refused_ = nullptr;    // in this capture: it fails at its end
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Task> queue_;
  bool busy_ = false, stopping_ = false;
  frt_error late_error_{};  // of work since the last sync, with its words
  std::thread thread_;
};

}  // namespace simple
