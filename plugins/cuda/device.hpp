// SPDX-License-Identifier: Apache-2.0
// device.hpp - one opened CUDA device: its properties, its kernels, its health.
//
// A CUDA error that destroys the context ("sticky") makes every later call fail. The device
// remembers the first one: from then on every call on it returns FRT_ERR_DEVICE_LOST with that
// text, and the process lives on.
#pragma once

#include <cuda_runtime_api.h>
#include <frt/backend.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "kernel_list.hpp"

namespace frt::cuda {

class Blas;

// What operators ask of the hardware.
struct DeviceProperties {
  int capability = 0;  // 90 for 9.0
  int multiprocessors = 0;
  int shared_bytes_block = 0;  // dynamic shared memory a block may opt in to
  int shared_bytes_processor = 0;
  std::size_t l2_bytes = 0;
};

class Device {
 public:
  // Opens device `ordinal` (its index among the devices CUDA shows).  [setup]
  explicit Device(int ordinal);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  int ordinal() const noexcept { return ordinal_; }
  const DeviceProperties& properties() const noexcept { return properties_; }
  const KernelList& kernels() const noexcept { return kernels_; }

  // cuBLASLt, loaded when it is first asked for; throws frt::Error(FRT_ERR_UNSUPPORTED) naming the
  // library where it is missing.  [setup]
  Blas& blas();

  // Makes the device current for this thread.  [any]
  void make_current() const noexcept;

  // Remembers `code` if it is sticky; the frt_status for it.  [any]
  frt_status note(cudaError_t code) noexcept;
  // Throws frt::Error for anything but cudaSuccess: "<what>: <CUDA's text> (<name>)".  [any]
  void check(cudaError_t code, const char* what);
  bool lost() const noexcept { return lost_.load(std::memory_order_relaxed) != cudaSuccess; }

  // Waits for everything submitted to the device.  [driver]
  frt_status sync();

 private:
  int ordinal_;
  DeviceProperties properties_;
  std::atomic<cudaError_t> lost_{cudaSuccess};
  std::mutex blas_mutex_;
  std::unique_ptr<Blas> blas_;
  KernelList kernels_;
};

}  // namespace frt::cuda
