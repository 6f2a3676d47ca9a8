// SPDX-License-Identifier: Apache-2.0
// cuda_device.hpp - the CUDA runtime opened inside a test, through its public tables only, with the
// operators of test_kernels.hpp. Where there is no device a test says so and ends:
//
//     FRT_NEEDS_DEVICE();
//     CudaDevice device;
//     Handle stream = device.stream();
#pragma once

#include <doctest/doctest.h>
#include <frt/backend.h>
#include <frt/kernels.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <frt/plugin.hpp>
#include <string>
#include <utility>
#include <vector>

#include "test_kernels.hpp"

extern "C" const frt_plugin_desc frt_plugin_v1;  // of the linked objects

namespace frt::cuda_test {

// A backend handle with the function that destroys it.
template <class Raw>
class Handle {
 public:
  Handle(Raw raw, void (*destroy)(Raw)) : raw_(raw), destroy_(destroy) {}
  Handle(Handle&& other) noexcept
      : raw_(std::exchange(other.raw_, nullptr)), destroy_(other.destroy_) {}
  ~Handle() { reset(); }
  operator Raw() const { return raw_; }
  void reset() {
    if (raw_) destroy_(std::exchange(raw_, nullptr));
  }

 private:
  Raw raw_;
  void (*destroy_)(Raw);
};
using StreamHandle = Handle<frt_backend_stream>;
using EventHandle = Handle<frt_backend_event>;
using ExecHandle = Handle<frt_backend_exec>;

class Plugin {
 public:
  Plugin() {
    static constexpr frt_host kHost = {sizeof(frt_host), FRT_ABI_MAJOR, FRT_ABI_MINOR, nullptr,
                                       [](void*, const char*) -> const void* { return nullptr; }};
    const frt_config nothing{sizeof(frt_config), 0, nullptr};
    frt_error error{};
    check(frt_plugin_v1.open(&kHost, &nothing, &plugin_, &error), error, "open");
  }
  ~Plugin() { frt_plugin_v1.close(plugin_); }
  Plugin(const Plugin&) = delete;
  Plugin& operator=(const Plugin&) = delete;

  frt_plugin handle() const { return plugin_; }
  template <class Table>
  const Table& table(const char* id) const {
    return *static_cast<const Table*>(frt_plugin_v1.extension(plugin_, id));
  }
  const frt_backend_v1& backend() const { return table<frt_backend_v1>(FRT_EXT_BACKEND); }
  uint32_t devices() const {
    uint32_t count = 0;
    frt_error why{};
    check(backend().device_count(plugin_, &count, &why), why);
    return count;
  }

 private:
  frt_plugin plugin_ = nullptr;
};

// The text makes CTest report the test as skipped.
#define FRT_NEEDS_DEVICE()                               \
  if (frt::cuda_test::Plugin().devices() == 0) {         \
    MESSAGE("skipped: this machine has no CUDA device"); \
    return;                                              \
  }                                                      \
  static_assert(true, "ends the macro")

class CudaDevice {
 public:
  CudaDevice() : backend_(plugin_.backend()) {
    frt_error error{};
    const frt_config options{sizeof(frt_config), 0, nullptr};
    check(backend_.device_open(plugin_.handle(), 0, &options, &device_, &error), error);
    check(plugin_.table<frt_kernels_v1>(FRT_EXT_KERNELS)
              .list(device_, &kernels_, &kernel_count_, &error),
          error);
  }
  ~CudaDevice() {
    for (const auto& [space, pointer] : blocks_) backend_.memory_free(device_, space, pointer);
    backend_.device_close(device_);
  }
  CudaDevice(const CudaDevice&) = delete;
  CudaDevice& operator=(const CudaDevice&) = delete;

  const frt_backend_v1& backend() const { return backend_; }
  frt_backend_device handle() const { return device_; }

  StreamHandle stream(int32_t priority = 0) {
    frt_backend_stream raw = nullptr;
    frt_error error{};
    check(backend_.stream_create(device_, priority, &raw, &error), error);
    return {raw, backend_.stream_destroy};
  }
  StreamHandle wrap(void* native) {
    frt_backend_stream raw = nullptr;
    frt_error error{};
    check(backend_.stream_wrap(device_, native, &raw, &error), error);
    return {raw, backend_.stream_destroy};
  }
  EventHandle event(uint32_t flags = 0) {
    frt_backend_event raw = nullptr;
    frt_error error{};
    check(backend_.event_create(device_, flags, &raw, &error), error);
    return {raw, backend_.event_destroy};
  }
  // Records what body() submits to `stream`.
  template <class Body>
  ExecHandle capture(frt_backend_stream stream, Body&& body) {
    frt_error error{};
    check(backend_.capture_begin(stream, &error), error);
    body();
    frt_backend_exec raw = nullptr;
    check(backend_.capture_end(stream, &raw, &error), error);
    return {raw, backend_.exec_destroy};
  }
  ExecHandle compose(const std::vector<frt_backend_node>& nodes) {
    frt_backend_exec raw = nullptr;
    frt_error error{};
    check(backend_.exec_compose(device_, nodes.data(), static_cast<uint32_t>(nodes.size()), &raw,
                                &error),
          error);
    return {raw, backend_.exec_destroy};
  }

  // `count` values of memory, freed with the device.
  template <class T = uint32_t>
  T* allocate(std::size_t count, frt_space space = FRT_SPACE_DEVICE) {
    void* pointer = nullptr;
    frt_error error{};
    check(backend_.memory_alloc(device_, space, count * sizeof(T), &pointer, &error), error);
    blocks_.emplace_back(space, pointer);
    return static_cast<T*>(pointer);
  }

  template <class Args>
  frt_status try_run(frt_backend_stream stream, const char* name, const Args& args,
                     frt_error* error = nullptr) {
    for (uint64_t i = 0; i < kernel_count_; ++i) {
      const frt_kernel& kernel = kernels_[i].kernel;
      if (std::strcmp(name, kernels_[i].name) == 0) {
        return kernel.launch(kernel.self, stream, &args, error);
      }
    }
    return FRT_ERR_NOT_FOUND;
  }
  template <class Args>
  void run(frt_backend_stream stream, const char* name, const Args& args) {
    frt_error error{};
    check(try_run(stream, name, args, &error), error, name);
  }
  void step(frt_backend_stream stream, uint32_t* value, uint32_t add, uint32_t microseconds = 0) {
    StepArgs args;
    args.add = add;
    args.microseconds = microseconds;
    args.value = value;
    run(stream, kStep, args);
  }
  void through_scratch(frt_backend_stream stream, uint32_t* out, uint32_t count, uint32_t value,
                       uint32_t microseconds) {
    ThroughScratchArgs args;
    args.value = value;
    args.microseconds = microseconds;
    args.count = count;
    args.out = out;
    run(stream, kThroughScratch, args);
  }

  void copy(frt_backend_stream stream, void* target, frt_space to, const void* source,
            frt_space from, uint64_t bytes) {
    const frt_backend_copy copy{target, source, bytes, to, from};
    check(backend_.copy(stream, &copy, 1), "copy");
  }
  void launch(frt_backend_exec exec, frt_backend_stream stream) {
    check(backend_.exec_launch(exec, stream), "exec_launch");
  }
  void sync(frt_backend_stream stream) { check(backend_.stream_sync(stream), "stream_sync"); }

  // What device memory holds when `stream` is done.
  template <class T = uint32_t>
  std::vector<T> read(frt_backend_stream stream, const T* values, std::size_t count) {
    std::vector<T> host(count);
    copy(stream, host.data(), FRT_SPACE_HOST, values, FRT_SPACE_DEVICE, count * sizeof(T));
    sync(stream);
    return host;
  }
  void fill(frt_backend_stream stream, void* pointer, uint64_t bytes, uint8_t value) {
    check(backend_.fill(stream, pointer, FRT_SPACE_DEVICE, bytes, value), "fill");
  }

 private:
  Plugin plugin_;
  const frt_backend_v1& backend_;
  frt_backend_device device_ = nullptr;
  const frt_kernel_desc* kernels_ = nullptr;
  uint64_t kernel_count_ = 0;
  std::vector<std::pair<frt_space, void*>> blocks_;
};

// Holds a stream at a point until it is opened. Its end opens it and waits, so declare it after the
// streams that depend on it.
class Gate {
 public:
  Gate(CudaDevice& device, frt_backend_stream stream) : device_(device), stream_(stream) {
    const auto wait = [](void* user, frt_error*) {
      static_cast<std::atomic<bool>*>(user)->wait(false);
      return frt_status{FRT_OK};
    };
    check(device.backend().stream_call(stream, wait, &open_), "stream_call");
  }
  ~Gate() {
    open();
    device_.backend().stream_sync(stream_);
  }
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;
  void open() {
    open_ = true;
    open_.notify_all();
  }

 private:
  CudaDevice& device_;
  frt_backend_stream stream_;
  std::atomic<bool> open_{false};
};

}  // namespace frt::cuda_test
