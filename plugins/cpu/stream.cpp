// SPDX-License-Identifier: Apache-2.0
// The ring: entry number n (from 0) lies at n % kRingSize. `submitted_` is the number of entries
// written, `progress_` the number finished; slots between the two belong to the stream's thread,
// the others to the submitter. So the two counters are head, tail, completion state and wake-up at
// once. The counters start at the progress of the stream that used the counter before.
#include "stream.hpp"

#include <algorithm>
#include <cerrno>
#include <frt/error.hpp>
#include <string>
#include <system_error>

#include "event.hpp"
#include "graph.hpp"
#include "system.hpp"

namespace frt::cpu {
namespace {

constexpr int kNicePerPriority = 5;

template <class... Cases>
struct Match : Cases... {
  using Cases::operator()...;
};
template <class... Cases>
Match(Cases...) -> Match<Cases...>;

// A recorded call; the function belongs to the caller.
class CallNode final : public Node {
 public:
  CallNode(Device& device, const CallEntry& call) : device_(device), call_(call) {}
  void run(Pool&, std::byte*) noexcept override { status_ = run_call(device_, call_); }
  frt_status status() const noexcept override { return status_; }

  static frt_status run_call(Device& device, const CallEntry& call) noexcept {
    frt_error error;
    error.message[0] = '\0';
    if (call.function(call.user, &error) == FRT_OK) return FRT_OK;
    error.message[FRT_ERROR_CAPACITY - 1] = '\0';
    device.failed_call().note(FRT_ERR_CALLBACK, error.message);
    return FRT_ERR_CALLBACK;
  }

 private:
  Device& device_;
  CallEntry call_;
  frt_status status_ = FRT_OK;
};

frt_status check_copies(const frt_backend_copy* copies, uint64_t count) noexcept {
  if (count > 0 && !copies) return FRT_ERR_INVALID_ARGUMENT;
  for (uint64_t i = 0; i < count; ++i) {
    const frt_backend_copy& copy = copies[i];
    if (copy.target_space >= FRT_SPACE_COUNT || copy.source_space >= FRT_SPACE_COUNT ||
        (copy.bytes > 0 && (!copy.target || !copy.source))) {
      return FRT_ERR_INVALID_ARGUMENT;
    }
  }
  return FRT_OK;
}

}  // namespace

Stream::Stream(Device& device, int32_t priority)
    : device_(device), ring_{}, progress_(device.attach(*this)) {
  known_progress_ = progress_.value();
  submitted_.publish(known_progress_);
  const int nice = std::clamp(priority, -4, 4) * kNicePerPriority;
  try {
    thread_ = std::thread([this, nice] {
      name_thread("frt-cpu-stream");
      if (nice != 0) adjust_thread_nice(nice);
      run_entries();
    });
  } catch (const std::system_error& error) {
    device_.detach(*this, progress_);
    throw Error(FRT_ERR_DEVICE, std::string("stream_create: cannot start a thread: ") +
                                    error.what() + "; raise the process limit (ulimit -u)");
  }
}

Stream::~Stream() {
  capture_abort();
  push(StopEntry{});
  thread_.join();
  device_.detach(*this, progress_);
}

// ---- submission ---------------------------------------------------------------------------

void Stream::push(const StreamEntry& entry) noexcept {
  const uint64_t number = submitted_.value();
  if (number - known_progress_ >= kRingSize) {
    progress_.wait(number - kRingSize + 1, device_.host_spin());
    known_progress_ = progress_.value();
  }
  ring_[number % kRingSize] = entry;
  submitted_.publish(number + 1);
}

frt_status Stream::refuse_in_capture(const char* what) noexcept {
  recording_->fail(what);
  return FRT_ERR_BAD_STATE;
}

void Stream::submit(std::unique_ptr<Node> node) {
  if (recording_) {
    recording_->add(std::move(node));
  } else {
    push(NodeEntry{node.release()});
  }
}

frt_status Stream::copy(const frt_backend_copy* copies, uint64_t count) {
  if (const frt_status status = check_copies(copies, count); status != FRT_OK) return status;
  if (recording_) {
    const std::vector<frt_backend_copy> kept(copies, copies + count);
    recording_->add(make_node([kept](Pool& pool, std::byte*) noexcept {
      for (const auto& copy : kept) copy_bytes(pool, copy.target, copy.source, copy.bytes);
    }));
    return FRT_OK;
  }
  for (uint64_t i = 0; i < count; ++i) {
    if (copies[i].bytes > 0) push(CopyEntry{copies[i].target, copies[i].source, copies[i].bytes});
  }
  return FRT_OK;
}

frt_status Stream::fill(void* pointer, frt_space space, uint64_t bytes, uint8_t value) {
  if (space >= FRT_SPACE_COUNT || (bytes > 0 && !pointer)) return FRT_ERR_INVALID_ARGUMENT;
  if (recording_) {
    recording_->add(make_node(
        [=](Pool& pool, std::byte*) noexcept { fill_bytes(pool, pointer, bytes, value); }));
  } else if (bytes > 0) {
    push(FillEntry{pointer, bytes, value});
  }
  return FRT_OK;
}

frt_status Stream::call(frt_host_function function, void* user) {
  if (!function) return FRT_ERR_INVALID_ARGUMENT;
  if (recording_) {
    recording_->add(std::make_unique<CallNode>(device_, CallEntry{function, user}));
  } else {
    push(CallEntry{function, user});
  }
  return FRT_OK;
}

frt_status Stream::launch(Exec& exec) noexcept {
  if (&exec.device() != &device_) return FRT_ERR_MISMATCH;
  if (recording_) return refuse_in_capture("an executable was launched into the capture");
  push(ExecEntry{&exec, exec.take_ticket()});
  return FRT_OK;
}

frt_status Stream::record(Event& event) noexcept {
  if (&event.device() != &device_) return FRT_ERR_MISMATCH;
  if (recording_) return refuse_in_capture("an event was recorded");
  if (event.timing()) push(StampEntry{&event, event.next_record()});
  event.set_mark({&progress_, submitted_.value()});
  return FRT_OK;
}

frt_status Stream::wait(Event& event) noexcept {
  if (&event.device() != &device_) return FRT_ERR_MISMATCH;
  if (recording_) return refuse_in_capture("an event was waited for");
  const StreamMark mark = event.mark();
  if (!mark.progress || mark.progress == &progress_) return FRT_OK;
  if (mark.progress->value() < mark.number) push(WaitEntry{mark});
  return FRT_OK;
}

frt_status Stream::sync() noexcept {
  if (recording_) return refuse_in_capture("the capturing stream was asked to wait");
  progress_.wait(submitted_.value(), device_.host_spin());
  return late_error_.exchange(FRT_OK, std::memory_order_relaxed);
}

// ---- capture ------------------------------------------------------------------------------

void Stream::capture_begin() {
  if (recording_) {
    throw Error(FRT_ERR_BAD_STATE, "capture_begin: this stream is capturing already");
  }
  recording_ = std::make_unique<Recording>();
}

std::unique_ptr<Exec> Stream::capture_end() {
  if (!recording_) throw Error(FRT_ERR_BAD_STATE, "capture_end: this stream is not capturing");
  const std::unique_ptr<Recording> recording = std::move(recording_);
  if (recording->failure()) {
    throw Error(FRT_ERR_BAD_STATE,
                std::string("capture_end: ") + recording->failure() +
                    " while recording; record only kernels, copies, fills and calls");
  }
  std::vector<std::shared_ptr<Program>> programs;
  programs.push_back(std::make_shared<Program>(recording->take_nodes()));
  return std::make_unique<Exec>(device_, std::move(programs));
}

void Stream::capture_abort() noexcept {
  recording_.reset();
}

// ---- the stream's thread ------------------------------------------------------------------

void Stream::run_entries() noexcept {
  for (uint64_t number = progress_.value();; ++number) {
    submitted_.wait(number + 1, device_.worker_spin());
    const StreamEntry entry = ring_[number % kRingSize];
    if (const frt_status status = run_entry(entry); status != FRT_OK) report(status);
    progress_.publish(number + 1);
    if (std::holds_alternative<StopEntry>(entry)) return;
  }
}

frt_status Stream::run_entry(const StreamEntry& entry) noexcept {
  Pool& pool = device_.pool();
  const SpinBudget spin = device_.worker_spin();
  return std::visit(
      Match{
          [&](const NodeEntry& e) { return run_owned(std::unique_ptr<Node>(e.node)); },
          [&](const ExecEntry& e) { return e.exec->run(e.ticket, pool, spin); },
          [&](const StampEntry& e) {
            e.event->stamp(e.record);
            return FRT_OK;
          },
          [&](const WaitEntry& e) {
            e.mark.progress->wait(e.mark.number, spin);
            return FRT_OK;
          },
          [&](const CallEntry& e) { return CallNode::run_call(device_, e); },
          [&](const CopyEntry& e) {
            copy_bytes(pool, e.target, e.source, e.bytes);
            return FRT_OK;
          },
          [&](const FillEntry& e) {
            fill_bytes(pool, e.target, e.bytes, e.value);
            return FRT_OK;
          },
          [&](const StopEntry&) { return FRT_OK; },
      },
      entry);
}

frt_status Stream::run_owned(std::unique_ptr<Node> node) noexcept {
  return guard(nullptr, [&] {
    eager_scratch_.reserve(node->scratch_bytes());
    node->run(device_.pool(), eager_scratch_.data());
    return node->status();
  });
}

void Stream::report(frt_status status) noexcept {
  frt_status none = FRT_OK;
  late_error_.compare_exchange_strong(none, status, std::memory_order_relaxed);
}

}  // namespace frt::cpu
