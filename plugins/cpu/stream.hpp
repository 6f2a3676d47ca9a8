// SPDX-License-Identifier: Apache-2.0
// stream.hpp - an ordered queue of work with its own thread.
//
// Submissions go through a bounded ring that one submitting thread and the stream's thread share
// without locks. A submission is a number: the n-th entry of a stream is done when the stream's
// progress counter reaches n. Events, syncs and the ring's own fullness are all questions to that
// one counter. A full ring makes the submitter wait (spin, then sleep); it never fails and never
// allocates.
//
// Eager operators are prepared by the caller and run here once; recorded ones go into the
// Recording of a capturing stream instead, so both run the same nodes.
//
// The stream's thread takes part in every parallel node as worker 0.
#pragma once

#include <frt/backend.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <variant>

#include "counter.hpp"
#include "device.hpp"
#include "memory.hpp"
#include "node.hpp"

namespace frt::cpu {

class Event;
class Exec;
class Recording;

// Where a stream is after some submission: reached when progress >= number.
struct StreamMark {
  Counter* progress = nullptr;
  uint64_t number = 0;
};

// What a ring entry can be. Trivial types: an entry is copied in and out of the ring.
struct NodeEntry {
  Node* node;  // owned: deleted when it has run
};
struct ExecEntry {
  Exec* exec;
  uint64_t ticket;
};
struct StampEntry {  // a timing event
  Event* event;
  uint64_t record;
};
struct WaitEntry {
  StreamMark mark;
};
struct CallEntry {
  frt_host_function function;
  void* user;
};
struct CopyEntry {
  void* target;
  const void* source;
  uint64_t bytes;
};
struct FillEntry {
  void* target;
  uint64_t bytes;
  uint8_t value;
};
struct StopEntry {};
using StreamEntry = std::variant<NodeEntry, ExecEntry, StampEntry, WaitEntry, CallEntry, CopyEntry,
                                 FillEntry, StopEntry>;
static_assert(std::is_trivially_copyable_v<StreamEntry>);

class Stream {
 public:
  // `priority`: each step is five steps of the thread's nice value, as far as the operating system
  // allows: more urgent than 0 needs a privilege, without which the stream runs at 0.  [setup]
  Stream(Device& device, int32_t priority);
  ~Stream();  // waits for the submitted work  [setup]
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  Device& device() const noexcept { return device_; }

  // ---- submission; one thread at a time ----
  // Runs the node once, or records it.  [driver]
  void submit(std::unique_ptr<Node> node);
  frt_status copy(const frt_backend_copy* copies, uint64_t count);                 // [hot]
  frt_status fill(void* pointer, frt_space space, uint64_t bytes, uint8_t value);  // [hot]
  frt_status call(frt_host_function function, void* user);                         // [driver]
  frt_status launch(Exec& exec) noexcept;                                          // [hot]
  frt_status record(Event& event) noexcept;                                        // [hot]
  frt_status wait(Event& event) noexcept;                                          // [hot]

  // Waits for everything submitted; returns and forgets the first late error.  [driver]
  frt_status sync() noexcept;

  // ---- capture ----
  void capture_begin();                 // [setup]
  std::unique_ptr<Exec> capture_end();  // [setup]
  void capture_abort() noexcept;        // [setup]

 private:
  static constexpr uint64_t kRingSize = 1024;  // entries, a power of two

  void push(const StreamEntry& entry) noexcept;
  // A call that cannot be recorded: refused now, and again by capture_end.
  frt_status refuse_in_capture(const char* what) noexcept;

  void run_entries() noexcept;
  frt_status run_entry(const StreamEntry& entry) noexcept;
  frt_status run_owned(std::unique_ptr<Node> node) noexcept;
  void report(frt_status status) noexcept;

  Device& device_;
  std::array<StreamEntry, kRingSize> ring_;
  Counter submitted_;
  Counter& progress_;
  uint64_t known_progress_ = 0;  // of the submitter, who looks only when the ring seems full
  std::atomic<frt_status> late_error_{FRT_OK};
  std::unique_ptr<Recording> recording_;
  Scratch eager_scratch_;  // of the stream's thread
  std::thread thread_;
};

}  // namespace frt::cpu
