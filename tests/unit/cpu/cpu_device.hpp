// SPDX-License-Identifier: Apache-2.0
// cpu_device.hpp - the CPU backend opened inside a test, through its public tables only.
//
//     CpuDevice device({.threads = 2, .numerics = "reference"});
//     frt_rms_norm_args args{};                       // struct_size is filled in by run()
//     args.x = device.upload(x); ...
//     device.run("frt.rms_norm/1", args);             // eager, then synchronised
//     device.run_captured("frt.rms_norm/1", args, 3); // recorded once, launched three times
//     CHECK(device.refusal("frt.rms_norm/1", bad) == FRT_ERR_INVALID_ARGUMENT);
//
// All spaces of this backend are host memory, so arguments may also point straight into a
// std::vector. Failures are thrown as frt::Error. Uploads are freed with the device.
#pragma once

#include <frt/backend.h>
#include <frt/kernels.h>

#include <cstdint>
#include <cstring>
#include <frt/plugin.hpp>
#include <string>
#include <utility>
#include <vector>

extern "C" const frt_plugin_desc frt_plugin_v1;  // of the linked objects

namespace frt::cpu_test {

// The per-device options of the plugin's schema.
struct CpuOptions {
  int64_t threads = 0;
  std::string numerics = "fast";
  std::string isa = "auto";
};

class CpuDevice {
 public:
  explicit CpuDevice(const CpuOptions& options = {}) {
    static constexpr frt_host kHost = {sizeof(frt_host), FRT_ABI_MAJOR, FRT_ABI_MINOR, nullptr,
                                       [](void*, const char*) -> const void* { return nullptr; }};
    const frt_config nothing{sizeof(frt_config), 0, nullptr};
    frt_error error{};
    check(frt_plugin_v1.open(&kHost, &nothing, &plugin_, &error), error, "open");
    backend_ =
        static_cast<const frt_backend_v1*>(frt_plugin_v1.extension(plugin_, FRT_EXT_BACKEND));
    const auto* kernels =
        static_cast<const frt_kernels_v1*>(frt_plugin_v1.extension(plugin_, FRT_EXT_KERNELS));
    const frt_config_value values[] = {
        {"threads", FRT_CONFIG_INT, 0, options.threads, 0, nullptr},
        {"numerics", FRT_CONFIG_ENUM, 0, 0, 0, options.numerics.c_str()},
        {"isa", FRT_CONFIG_ENUM, 0, 0, 0, options.isa.c_str()},
    };
    const frt_config config{sizeof(frt_config), 3, values};
    const frt_status opened = backend_->device_open(plugin_, 0, &config, &device_, &error);
    if (opened != FRT_OK) frt_plugin_v1.close(plugin_);
    check(opened, error, "device_open");
    check(backend_->stream_create(device_, 0, &stream_, &error), error, "stream_create");
    check(kernels->list(device_, &kernels_, &kernel_count_, &error), error, "kernels list");
  }

  ~CpuDevice() {
    backend_->stream_destroy(stream_);
    for (void* block : blocks_) backend_->memory_free(device_, FRT_SPACE_DEVICE, block);
    backend_->device_close(device_);
    frt_plugin_v1.close(plugin_);
  }
  CpuDevice(const CpuDevice&) = delete;
  CpuDevice& operator=(const CpuDevice&) = delete;

  const frt_backend_v1& backend() const { return *backend_; }
  frt_backend_device handle() const { return device_; }
  frt_backend_stream stream() const { return stream_; }  // eager unless a test captures on it

  // The kernel of that name (the last one registered); throws if there is none.
  const frt_kernel_desc& kernel(const std::string& name) const {
    for (uint64_t i = kernel_count_; i-- > 0;) {
      if (name == kernels_[i].name) return kernels_[i];
    }
    throw Error(FRT_ERR_NOT_FOUND, "no kernel " + name);
  }

  // Submits to the stream and waits.
  template <class Args>
  void run(const std::string& name, Args args) {
    frt_error error{};
    check(submit(name, args, &error), error, name);
    check(backend_->stream_sync(stream_), name + ", stream_sync");
  }

  // Records the call, launches it `launches` times, waits, and drops the executable.
  template <class Args>
  void run_captured(const std::string& name, Args args, int launches = 1) {
    frt_error error{};
    check(backend_->capture_begin(stream_, &error), error, "capture_begin");
    const frt_status submitted = submit(name, args, &error);
    if (submitted != FRT_OK) backend_->capture_abort(stream_);
    check(submitted, error, name);
    frt_backend_exec exec = nullptr;
    check(backend_->capture_end(stream_, &exec, &error), error, "capture_end");
    frt_status status = FRT_OK;
    for (int i = 0; i < launches && status == FRT_OK; ++i) {
      status = backend_->exec_launch(exec, stream_);
    }
    const frt_status synced = backend_->stream_sync(stream_);
    backend_->exec_destroy(exec);
    check(status, name + ", exec_launch");
    check(synced, name + ", stream_sync");
  }

  // The code of a call that should be refused (FRT_OK if it is not), and its message.
  template <class Args>
  frt_status refusal(const std::string& name, Args args, std::string* message = nullptr) {
    frt_error error{};
    const frt_status status = submit(name, args, &error);
    if (message) *message = error.message;
    if (status == FRT_OK) check(backend_->stream_sync(stream_), name + ", stream_sync");
    return status;
  }

  // Device memory with the content of `values`, or uninitialised; aligned to 256 bytes.
  template <class Element>
  Element* upload(const std::vector<Element>& values) {
    Element* block = allocate<Element>(values.size());
    std::memcpy(block, values.data(), values.size() * sizeof(Element));
    return block;
  }
  template <class Element>
  Element* allocate(std::size_t count) {
    void* block = nullptr;
    frt_error error{};
    const uint64_t bytes = (count > 0 ? count : 1) * sizeof(Element);
    check(backend_->memory_alloc(device_, FRT_SPACE_DEVICE, bytes, &block, &error), error,
          "memory_alloc");
    blocks_.push_back(block);
    return static_cast<Element*>(block);
  }

 private:
  template <class Args>
  frt_status submit(const std::string& name, Args& args, frt_error* error) {
    args.struct_size = sizeof(Args);
    const frt_kernel& kernel = this->kernel(name).kernel;
    return kernel.launch(kernel.self, stream_, &args, error);
  }

  frt_plugin plugin_ = nullptr;
  const frt_backend_v1* backend_ = nullptr;
  frt_backend_device device_ = nullptr;
  frt_backend_stream stream_ = nullptr;
  const frt_kernel_desc* kernels_ = nullptr;
  uint64_t kernel_count_ = 0;
  std::vector<void*> blocks_;
};

}  // namespace frt::cpu_test
