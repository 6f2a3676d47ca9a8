// SPDX-License-Identifier: Apache-2.0
#include "device.hpp"

#include <cstdio>
#include <frt/error.hpp>
#include <frt/plugin.hpp>

#include "backend_device.hpp"
#include "blas.hpp"
#include "device_limits.hpp"
#include "driver.hpp"
#include "ops/registry.hpp"
#include "scratch.hpp"
#include "status.hpp"

namespace frt::cuda {
namespace {

int attribute(Device& device, cudaDeviceAttr name) {
  int value = 0;
  device.check(cudaDeviceGetAttribute(&value, name, device.ordinal()), "reading the device");
  return value;
}

// For frt_backend_v1::last_error.
void keep_words(const BackendDevice& device, frt_status status, cudaError_t code) noexcept {
  char words[FailedCall::kCapacity];
  std::snprintf(words, sizeof(words), "%s (%s)", cudaGetErrorString(code), cudaGetErrorName(code));
  device.failed_call().note(status, words);
}

}  // namespace

BackendDevice::BackendDevice(int ordinal, const DeviceOptions& options, const PluginCode& code,
                             const Host& host)
    : Device(ordinal, options), host_(host), kernels_(*this) {
  check(cudaSetDevice(ordinal_), "opening the device");
  // Makes the context now, so that a device without room or permission is refused here.
  check(cudaFree(nullptr), "opening the device");
  properties_.capability = attribute(*this, cudaDevAttrComputeCapabilityMajor) * 10 +
                           attribute(*this, cudaDevAttrComputeCapabilityMinor);
  properties_.multiprocessors = attribute(*this, cudaDevAttrMultiProcessorCount);
  properties_.shared_bytes_block = attribute(*this, cudaDevAttrMaxSharedMemoryPerBlockOptin);
  properties_.shared_bytes_sm = attribute(*this, cudaDevAttrMaxSharedMemoryPerMultiprocessor);
  properties_.l2_bytes = static_cast<std::size_t>(attribute(*this, cudaDevAttrL2CacheSize));
  properties_.shares_memory = shares_memory(ask_memory(ordinal));
  features_ = features_of({
      .code = code.base,
      .code_exact = is_exact(code),
      .capability = properties_.capability,
      .cooperative = attribute(*this, cudaDevAttrCooperativeLaunch) != 0,
      .activations = options.activations,
  });
  if (apply_device_limits(properties_, features_)) {
    warn("limits of FRT_CUDA_DEVICE_LIMITS hold: for tests");
  }
  check(cudaDeviceGetStreamPriorityRange(&least_priority_, &greatest_priority_),
        "reading the device");
  co_resident_ = std::make_shared<ScratchPool>(*this);
  register_operators(kernels_);
  kernels_.add_single_variants();
}

BackendDevice::~BackendDevice() {
  say_warnings();
  make_current();
  // Errors are of no use here: whatever could be told was told before.
  if (service_stream_) cudaStreamDestroy(service_stream_);
  blas_.reset();
  cudaGetLastError();
}

bool Device::offers(const Needs& needs) {
  if (!has(needs.features)) return false;
  if (properties_.shared_bytes_block < needs.shared_bytes) return false;
  return !(needs.features & feature::kLibrary) || Blas::find(*this) != nullptr;
}

void Device::count_launch(const void* variant) noexcept {
  behind(*this).kernels_.count_launch(variant);
}

void Device::refuse_call(const char* operation) const {
  throw Error(FRT_ERR_INTERNAL,
              std::string(operation) + ": no kernel variant supports these arguments here");
}

void Device::make_current() const noexcept {
  cudaSetDevice(ordinal_);
}

frt_status Device::enter() const noexcept {
  make_current();
  if (!lost()) return FRT_OK;
  keep_words(behind(*this), FRT_ERR_DEVICE_LOST,
             behind(*this).lost_.load(std::memory_order_relaxed));
  return FRT_ERR_DEVICE_LOST;
}

void Device::enter(const char* what) const {
  make_current();
  if (!lost()) return;
  throw Error(
      FRT_ERR_DEVICE_LOST,
      std::string(what) + ": the device was lost before: " +
          error_text("its first error", behind(*this).lost_.load(std::memory_order_relaxed)));
}

frt_status Device::note(cudaError_t code) noexcept {
  const frt_status status = settle(code);
  if (status != FRT_OK && status != FRT_ERR_NOT_READY) keep_words(behind(*this), status, code);
  return status;
}

frt_status Device::settle(cudaError_t code) noexcept {
  if (code == cudaSuccess) return FRT_OK;
  cudaGetLastError();  // or the next launch would report it again
  if (is_sticky(code)) {
    cudaError_t none = cudaSuccess;
    behind(*this).lost_.compare_exchange_strong(none, code, std::memory_order_relaxed);
  }
  return lost() ? FRT_ERR_DEVICE_LOST : status_of(code);
}

void Device::check(cudaError_t code, const char* what) {
  if (code == cudaSuccess) return;
  throw Error(settle(code), error_text(what, code));
}

bool Device::lost() const noexcept {
  return behind(*this).lost_.load(std::memory_order_relaxed) != cudaSuccess;
}

void Device::warn(const char* text) {
  BackendDevice& self = behind(*this);
  const std::lock_guard<std::mutex> lock(self.warnings_mutex_);
  self.warnings_.emplace_back(text);
  self.warned_.store(true, std::memory_order_release);
}

void Device::say_warnings() noexcept {
  BackendDevice& self = behind(*this);
  if (!self.warned_.load(std::memory_order_relaxed)) return;
  const std::lock_guard<std::mutex> lock(self.warnings_mutex_);
  for (const std::string& text : self.warnings_) self.host_.log(FRT_LOG_WARNING, text);
  self.warnings_.clear();
  self.warned_.store(false, std::memory_order_relaxed);
}

void Device::report_late(frt_status status, const char* words) noexcept {
  BackendDevice& self = behind(*this);
  frt_status none = FRT_OK;
  if (self.late_.compare_exchange_strong(none, status, std::memory_order_relaxed)) {
    self.failed_call_.note(status, words);
  }
}

frt_status Device::take_late() noexcept {
  std::atomic<frt_status>& late = behind(*this).late_;
  if (late.load(std::memory_order_relaxed) == FRT_OK) return FRT_OK;
  return late.exchange(FRT_OK, std::memory_order_relaxed);
}

cudaStream_t BackendDevice::service_stream() {
  if (!service_stream_) {
    check(cudaStreamCreateWithFlags(&service_stream_, cudaStreamNonBlocking), "making a stream");
  }
  return service_stream_;
}

frt_status BackendDevice::sync() noexcept {
  say_warnings();
  if (const frt_status status = enter(); status != FRT_OK) return status;
  if (const frt_status status = note(cudaDeviceSynchronize()); status != FRT_OK) return status;
  return take_late();
}

frt_status BackendDevice::memory(uint64_t& free_bytes, uint64_t& total_bytes) noexcept {
  if (const frt_status status = enter(); status != FRT_OK) return status;
  std::size_t free = 0;
  std::size_t total = 0;
  const frt_status status = settle(cudaMemGetInfo(&free, &total));
  if (status != FRT_OK) return status;
  free_bytes = free;
  total_bytes = total;
  return FRT_OK;
}

}  // namespace frt::cuda
