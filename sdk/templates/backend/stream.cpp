// SPDX-License-Identifier: Apache-2.0
#include "stream.hpp"

#include <frt/error.hpp>

#include <algorithm>
#include <cstring>
#include <utility>

namespace simple {

frt_status Device::sync() {
  frt_error first{};
  for (Stream* stream : streams_) {
    const frt_error error = stream->finish();
    if (first.code == FRT_OK) first = error;
  }
  return report(first);
}

frt_status Device::report(const frt_error& error) {
  if (error.code != FRT_OK) failed_call_.note(error.code, error.message);
  return error.code;
}

// ---- events ----------------------------------------------------------------------------------

void Record::finish() {
  const std::lock_guard lock(mutex_);
  finished_ = true;
  time_ = Clock::now();
  changed_.notify_all();
}

bool Record::finished() {
  const std::lock_guard lock(mutex_);
  return finished_;
}

void Record::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return finished_; });
}

frt_status Event::query() {
  return !last_ || last_->finished() ? FRT_OK : FRT_ERR_NOT_READY;
}

frt_status Event::sync() {
  if (last_) last_->wait();
  return FRT_OK;
}

frt_status Event::elapsed(Event& start, Event& end, double& ms) {
  if (!start.timing_ || !end.timing_) return FRT_ERR_INVALID_ARGUMENT;
  if (!start.last_ || !end.last_) return FRT_ERR_BAD_STATE;
  if (!start.last_->finished() || !end.last_->finished()) return FRT_ERR_NOT_READY;
  ms = std::chrono::duration<double, std::milli>(end.last_->time() - start.last_->time()).count();
  return FRT_OK;
}

// ---- executables -----------------------------------------------------------------------------

std::unique_ptr<Exec> Exec::compose(Device&, const frt_backend_node* nodes, uint32_t count) {
  auto whole = std::make_unique<Exec>();
  std::vector<bool> placed(count);
  // One node after the other satisfies every order; a round that places none has met a circle.
  for (uint32_t done = 0; done < count;) {
    const uint32_t before = done;
    for (uint32_t i = 0; i < count; ++i) {
      const frt_backend_node& node = nodes[i];
      const auto ready = [&](uint32_t other) { return other < count && placed[other]; };
      if (placed[i] || !std::all_of(node.after, node.after + node.after_count, ready)) continue;
      const auto& tasks = reinterpret_cast<const Exec*>(node.exec)->tasks_;
      whole->tasks_.insert(whole->tasks_.end(), tasks.begin(), tasks.end());
      placed[i] = true;
      ++done;
    }
    if (done == before) {
      throw frt::Error(FRT_ERR_CYCLE,
                       "exec_compose: the nodes wait for each other; break the circle");
    }
  }
  return whole;
}

// ---- streams ---------------------------------------------------------------------------------

Stream::Stream(Device& device, int32_t) : device_(device), thread_([this] { work(); }) {
  device_.streams_.push_back(this);
}

Stream::~Stream() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();  // after its work is done
  std::erase(device_.streams_, this);
}

void Stream::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return stopping_ || !queue_.empty(); });
    if (queue_.empty()) return;
    const Task task = std::move(queue_.front());
    queue_.pop_front();
    busy_ = true;
    lock.unlock();
    frt_error error{};
    frt::guard(&error, task);
    lock.lock();
    busy_ = false;
    if (late_error_.code == FRT_OK) late_error_ = error;
    if (queue_.empty()) changed_.notify_all();
  }
}

void Stream::enqueue(Task task) {
  const std::lock_guard lock(mutex_);
  queue_.push_back(std::move(task));
  changed_.notify_all();
}

void Stream::submit(Task task) {
  if (recording_) {
    recording_->tasks_.push_back(std::move(task));
  } else {
    enqueue(std::move(task));
  }
}

frt_status Stream::copy(const frt_backend_copy* copies, uint64_t count) {
  if (count > 0 && !copies) return FRT_ERR_INVALID_ARGUMENT;
  std::vector<frt_backend_copy> list;
  for (uint64_t i = 0; i < count; ++i) {
    const frt_backend_copy& one = copies[i];
    if (one.bytes == 0) continue;
    if (!one.target || !one.source) return FRT_ERR_INVALID_ARGUMENT;
    list.push_back(one);
  }
  submit([list = std::move(list)] {
    for (const frt_backend_copy& one : list) std::memcpy(one.target, one.source, one.bytes);
  });
  return FRT_OK;
}

frt_status Stream::fill(void* pointer, frt_space, uint64_t bytes, uint8_t value) {
  if (bytes == 0) return FRT_OK;
  if (!pointer) return FRT_ERR_INVALID_ARGUMENT;
  submit([=] { std::memset(pointer, value, bytes); });
  return FRT_OK;
}

frt_status Stream::call(frt_host_function function, void* user) {
  if (!function) return FRT_ERR_INVALID_ARGUMENT;
  submit([=] {
    frt_error error{};
    if (function(user, &error) != FRT_OK) throw frt::Error(FRT_ERR_CALLBACK, error.message);
  });
  return FRT_OK;
}

frt_status Stream::refuse_in_capture(const char* what) {
  refused_ = what;
  return FRT_ERR_BAD_STATE;
}

frt_status Stream::record(Event& event) {
  if (recording_) return refuse_in_capture("a record of an event");
  event.last_ = std::make_shared<Record>();
  enqueue([record = event.last_] { record->finish(); });
  return FRT_OK;
}

frt_status Stream::wait(Event& event) {
  if (recording_) return refuse_in_capture("a wait for an event");
  if (event.last_) enqueue([record = event.last_] { record->wait(); });
  return FRT_OK;
}

frt_status Stream::launch(Exec& exec) {
  if (recording_) return refuse_in_capture("a launch");
  const auto before = std::exchange(exec.last_, std::make_shared<Record>());
  enqueue([&exec, before, done = exec.last_] {
    if (before) before->wait();  // a launch on another stream
    frt_error first{};
    for (const Task& task : exec.tasks_) {
      frt_error error{};
      frt::guard(&error, task);
      if (first.code == FRT_OK) first = error;
    }
    done->finish();
    frt::check(first.code, first);
  });
  return FRT_OK;
}

frt_status Stream::sync() {
  return device_.report(finish());
}

frt_error Stream::finish() {
  if (recording_) return {refuse_in_capture("a sync of the stream"), "the stream captures"};
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return queue_.empty() && !busy_; });
  return std::exchange(late_error_, {});
}

void Stream::capture_begin() {
  if (recording_) throw frt::Error(FRT_ERR_BAD_STATE, "capture_begin: the stream captures already");
  recording_ = std::make_unique<Exec>();
  refused_ = nullptr;
}

std::unique_ptr<Exec> Stream::capture_end() {
  if (!recording_) {
    throw frt::Error(FRT_ERR_BAD_STATE, "capture_end: the stream does not capture; begin first");
  }
  std::unique_ptr<Exec> recorded = std::exchange(recording_, nullptr);
  if (refused_) {
    throw frt::Error(FRT_ERR_BAD_STATE, std::string("capture_end: there was ") + refused_ +
                                            "; record kernels, copies, fills and calls alone");
  }
  return recorded;
}

}  // namespace simple
