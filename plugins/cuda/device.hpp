// SPDX-License-Identifier: Apache-2.0
// device.hpp - one opened CUDA device as operators and the parts of the runtime see it: its
// properties, its health. BackendDevice (backend_device.hpp) holds what is behind it: every Device
// is one.
//
// Every operator file reads this header, for each architecture twice or three times over. What
// takes the compiler of device code seconds to read (<memory>, <mutex>, <atomic>) therefore stands
// in backend_device.hpp, for host code alone; so it is with stream.hpp and kernel_list.hpp.
//
// A CUDA error that destroys the context ("sticky") makes every later call fail. The device
// remembers the first one: from then on every call on it returns FRT_ERR_DEVICE_LOST with that
// text, and the process lives on. The device is never reset: its primary context may be shared
// with other libraries of the process.
#pragma once

#include <cuda_runtime_api.h>
#include <frt/backend.h>

#include <cstddef>
#include <cstdint>

#include "device_features.hpp"

namespace frt::cuda {

class Blas;

// What operators ask of the hardware.
struct DeviceProperties {
  int capability = 0;  // 90 for 9.0
  int multiprocessors = 0;
  int shared_bytes_block = 0;  // dynamic shared memory a block may opt in to
  int shared_bytes_sm = 0;
  std::size_t l2_bytes = 0;
  bool shares_memory = false;  // with the host (driver.hpp)
};

// The options of the plugin's schema, per device.
struct DeviceOptions {
  ActivationRounding activations = ActivationRounding::kExact;
};

class Device {
 public:
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  int ordinal() const noexcept { return ordinal_; }
  const DeviceProperties& properties() const noexcept { return properties_; }
  const DeviceOptions& options() const noexcept { return options_; }

  // What device code can use; of feature::kLibrary, whether it may be looked for.  [any]
  FeatureSet features() const noexcept { return features_; }
  bool has(FeatureSet all) const noexcept { return (features_ & all) == all; }
  // Whether all of `needs` is there. Loads cuBLASLt where that is asked for.  [driver]
  bool offers(const Needs& needs);
  // A launch of the kernel variant at this address (ops/variants.hpp).  [any]
  void count_launch(const void* variant) noexcept;
  // Throws: no variant of the operation supports the arguments.
  [[noreturn]] void refuse_call(const char* operation) const;

  // cuBLASLt, loaded when it is first asked for; throws frt::Error(FRT_ERR_UNSUPPORTED) naming the
  // library where it is missing. Defined beside Blas.  [setup]
  Blas& blas();

  // Makes the device current for this thread.  [any]
  void make_current() const noexcept;
  // The start of every call: makes the device current; FRT_ERR_DEVICE_LOST if it is lost.  [any]
  frt_status enter() const noexcept;
  // The same for calls that throw.  [any]
  void enter(const char* what) const;

  // Remembers `code` if it is sticky, and its name and text for frt_backend_v1::last_error; the
  // frt_status for it.  [any]
  frt_status note(cudaError_t code) noexcept;
  // Throws frt::Error for anything but cudaSuccess: "<what>: <CUDA's text> (<name>)".  [any]
  void check(cudaError_t code, const char* what);
  bool lost() const noexcept;

  // A sentence for people. Who recording or hot code warns does not reach the host's log from
  // there: it is kept until say_warnings(), which a recording's end and whoever waits call.  [any]
  void warn(const char* text);
  void say_warnings() noexcept;  // [driver]

  // Keeps an error of work that the host did in stream order, and its words, until somebody waits.
  // [any]
  void report_late(frt_status status, const char* words) noexcept;
  // The first one since the last call.  [driver]
  frt_status take_late() noexcept;

 protected:
  // As note(), but for who reports the text of `code` himself.
  frt_status settle(cudaError_t code) noexcept;

  Device(int ordinal, const DeviceOptions& options) : ordinal_(ordinal), options_(options) {}
  ~Device() = default;

  const int ordinal_;
  const DeviceOptions options_;
  DeviceProperties properties_;
  FeatureSet features_ = 0;
};

}  // namespace frt::cuda
