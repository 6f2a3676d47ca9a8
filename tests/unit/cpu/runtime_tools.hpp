// SPDX-License-Identifier: Apache-2.0
// runtime_tools.hpp - owners of backend handles, and nodes straight into a stream, for the tests
// of the CPU runtime.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "cpu_device.hpp"
#include "node.hpp"
#include "stream.hpp"

namespace frt::cpu_test {

class StreamHandle {
 public:
  explicit StreamHandle(CpuDevice& device, int32_t priority = 0) : device_(&device) {
    frt_error error{};
    check(device.backend().stream_create(device.handle(), priority, &handle_, &error), error);
  }
  StreamHandle(StreamHandle&& other) noexcept
      : device_(other.device_), handle_(std::exchange(other.handle_, nullptr)) {}
  ~StreamHandle() { device_->backend().stream_destroy(handle_); }
  operator frt_backend_stream() const { return handle_; }

 private:
  CpuDevice* device_;
  frt_backend_stream handle_ = nullptr;
};

class EventHandle {
 public:
  explicit EventHandle(CpuDevice& device, uint32_t flags = 0) : device_(&device) {
    frt_error error{};
    check(device.backend().event_create(device.handle(), flags, &handle_, &error), error);
  }
  EventHandle(EventHandle&& other) noexcept
      : device_(other.device_), handle_(std::exchange(other.handle_, nullptr)) {}
  ~EventHandle() { device_->backend().event_destroy(handle_); }
  operator frt_backend_event() const { return handle_; }

 private:
  CpuDevice* device_;
  frt_backend_event handle_ = nullptr;
};

class ExecHandle {
 public:
  ExecHandle(CpuDevice& device, frt_backend_exec handle) : device_(&device), handle_(handle) {}
  ExecHandle(ExecHandle&& other) noexcept
      : device_(other.device_), handle_(std::exchange(other.handle_, nullptr)) {}
  ~ExecHandle() { device_->backend().exec_destroy(handle_); }
  operator frt_backend_exec() const { return handle_; }

 private:
  CpuDevice* device_;
  frt_backend_exec handle_;
};

// Gives a node to a stream, which runs or records it.
inline void submit(frt_backend_stream stream, std::unique_ptr<cpu::Node> node) {
  object<cpu::Stream>(stream)->submit(std::move(node));
}

// Records what `body()` submits to `stream`.
template <class Body>
ExecHandle capture(CpuDevice& device, frt_backend_stream stream, Body&& body) {
  frt_error error{};
  check(device.backend().capture_begin(stream, &error), error);
  body();
  frt_backend_exec exec = nullptr;
  check(device.backend().capture_end(stream, &exec, &error), error);
  return {device, exec};
}

// Holds a stream at a point until it is opened. Its end opens it and waits for that stream, so
// declare it after the streams that depend on it.
class Gate {
 public:
  Gate() = default;
  ~Gate() {
    open();
    if (device_) device_->backend().stream_sync(stream_);
  }
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

  void block(CpuDevice& device, frt_backend_stream stream) {
    device_ = &device;
    stream_ = stream;
    const auto wait = [](void* user, frt_error*) {
      static_cast<std::atomic<bool>*>(user)->wait(false);
      return frt_status{FRT_OK};
    };
    check(device.backend().stream_call(stream, wait, &open_), "stream_call");
  }
  void open() {
    open_ = true;
    open_.notify_all();
  }

 private:
  CpuDevice* device_ = nullptr;
  frt_backend_stream stream_ = nullptr;
  std::atomic<bool> open_{false};
};

inline frt_status set_flag(void* user, frt_error*) {
  *static_cast<std::atomic<bool>*>(user) = true;
  return FRT_OK;
}

}  // namespace frt::cpu_test
