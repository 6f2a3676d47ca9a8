// SPDX-License-Identifier: Apache-2.0
#include "bench/operator_timer.hpp"

#include <algorithm>
#include <cstring>
#include <frt/error.hpp>
#include <frt/reading.hpp>

namespace frt::host {
namespace {

constexpr std::size_t kEventPairs = 2048;  // timed between two collections
constexpr std::size_t kPerGate = 64;       // launches that are submitted behind one gate
constexpr std::size_t kEmptyPairs = 16;    // per collection, to know what nothing takes

OperatorTimer* current = nullptr;  // frt_kernels_v1::list has no pointer of its own

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

OperatorTimer::OperatorTimer() {
  if (current) throw Error(FRT_ERR_BAD_STATE, "one operator timer at a time");
  current = this;
}

OperatorTimer::~OperatorTimer() {
  current = nullptr;
}

const frt_kernels_v1* OperatorTimer::watch(const frt_backend_v1& backend,
                                           const frt_kernels_v1* kernels) {
  if (!kernels) return nullptr;
  if (inner_) throw Error(FRT_ERR_UNSUPPORTED, "profiling works with one device; open only one");
  backend_ = read_table<frt_backend_v1>(&backend, "the backend to profile");
  inner_ = kernels;
  table_ = {sizeof(table_), sizeof(frt_kernel_desc), list};
  return &table_;
}

frt_status OperatorTimer::list(frt_backend_device device, const frt_kernel_desc** kernels,
                               uint64_t* count, frt_error* error) {
  if (!current) return set_error(error, FRT_ERR_BAD_STATE, "the operator timer is gone");
  const frt_status status = current->wrap_all(device, error);
  *kernels = current->descriptions_.data();
  *count = current->descriptions_.size();
  return status;
}

frt_status OperatorTimer::wrap_all(frt_backend_device device, frt_error* error) {
  device_ = device;
  return guard(error, [&] {
    for (frt_kernel_desc description : list_kernels(*inner_, device, "the backend to profile")) {
      // A name that is NULL is core's to refuse.
      const char* name = description.name ? description.name : "";
      wrapped_.push_back({this, name, description.kernel});
      description.kernel = {&wrapped_.back(), launch, nullptr};
      descriptions_.push_back(description);
    }
  });
}

// ---- timing -------------------------------------------------------------------------------

void OperatorTimer::start() {
  if (!device_) throw Error(FRT_ERR_BAD_STATE, "the operator timer watches no device");
  frt_error error{};
  while (events_.size() < 2 * (kEventPairs + kEmptyPairs)) {
    frt_backend_event event = nullptr;
    check(backend_.event_create(device_, FRT_EVENT_TIMING, &event, &error), error);
    events_.push_back(event);
  }
  calls_.clear();
  kinds_.clear();
  empty_.clear();
  since_gate_ = kPerGate;  // the first launch starts behind a gate
  running_ = true;
}

frt_status OperatorTimer::launch(void* self, frt_backend_stream stream, const void* args,
                                 frt_error* error) {
  const auto& wrapped = *static_cast<const Wrapped*>(self);
  if (!wrapped.timer->running_) {
    return wrapped.kernel.launch(wrapped.kernel.self, stream, args, error);
  }
  return wrapped.timer->timed(wrapped, stream, args, error);
}

frt_status OperatorTimer::timed(const Wrapped& wrapped, frt_backend_stream stream, const void* args,
                                frt_error* error) {
  return guard(error, [&]() -> frt_status {
    stream_ = stream;
    if (calls_.size() == kEventPairs) check(collect(), "profiling");
    if (since_gate_ >= kPerGate) hold(stream);
    ++since_gate_;
    const std::size_t event = 2 * calls_.size();
    calls_.push_back({kind_of(wrapped.name, args), event});
    check(backend_.event_record(events_[event], stream), "profiling: event_record");
    const frt_status status = wrapped.kernel.launch(wrapped.kernel.self, stream, args, error);
    if (status != FRT_OK) return status;
    check(backend_.event_record(events_[event + 1], stream), "profiling: event_record");
    return FRT_OK;
  });
}

std::size_t OperatorTimer::kind_of(const std::string& name, const void* args) {
  OperatorShape shape = operator_shape(name, args);
  for (std::size_t i = 0; i < kinds_.size(); ++i) {
    if (kinds_[i].name == name && kinds_[i].shape.text == shape.text) return i;
  }
  kinds_.push_back({name, std::move(shape), {}});
  return kinds_.size() - 1;
}

// ---- the gate -----------------------------------------------------------------------------

// Lets go what is held, and holds back what comes.
void OperatorTimer::hold(frt_backend_stream stream) {
  release();
  {
    const std::lock_guard lock(mutex_);
    ++gates_;
  }
  check(backend_.stream_call(stream, wait_at_gate, this), "profiling: stream_call");
  since_gate_ = 0;
}

void OperatorTimer::release() noexcept {
  {
    const std::lock_guard lock(mutex_);
    passed_ = gates_;
  }
  opened_.notify_all();
  since_gate_ = kPerGate;
}

// On a thread of the backend, in stream order.
frt_status OperatorTimer::wait_at_gate(void* self, frt_error*) {
  auto& timer = *static_cast<OperatorTimer*>(self);
  std::unique_lock lock(timer.mutex_);
  const uint64_t number = ++timer.at_gate_;
  timer.opened_.wait(lock, [&] { return timer.passed_ >= number; });
  return FRT_OK;
}

// ---- results ------------------------------------------------------------------------------

frt_status OperatorTimer::collect() {
  if (calls_.empty()) return FRT_OK;
  hold(stream_);
  const std::size_t first = 2 * kEventPairs;
  for (std::size_t i = first; i < events_.size(); ++i) {
    check(backend_.event_record(events_[i], stream_), "profiling: event_record");
  }
  release();
  check(backend_.stream_sync(stream_), "profiling: stream_sync");
  const auto microseconds = [&](std::size_t event) {
    double ms = 0;
    check(backend_.event_elapsed(events_[event], events_[event + 1], &ms), "profiling: elapsed");
    return ms * 1e3;
  };
  for (std::size_t i = first; i < events_.size(); i += 2) empty_.push_back(microseconds(i));
  for (const Call& call : calls_) {
    kinds_[call.kind].microseconds.push_back(microseconds(call.event));
  }
  calls_.clear();
  return FRT_OK;
}

std::vector<OperatorTime> OperatorTimer::finish() {
  if (running_) collect();
  running_ = false;
  for (const frt_backend_event event : events_) backend_.event_destroy(event);
  events_.clear();
  const double nothing = median(empty_);
  for (OperatorTime& kind : kinds_) {
    for (double& time : kind.microseconds) time = std::max(time - nothing, 0.0);
  }
  return std::move(kinds_);
}

}  // namespace frt::host
