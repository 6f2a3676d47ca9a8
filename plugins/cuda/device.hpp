// SPDX-License-Identifier: Apache-2.0
// device.hpp - one opened CUDA device: its properties, its kernels, its health.
//
// A CUDA error that destroys the context ("sticky") makes every later call fail. The device
// remembers the first one: from then on every call on it returns FRT_ERR_DEVICE_LOST with that
// text, and the process lives on. The device is never reset: its primary context may be shared
// with other libraries of the process.
#pragma once

#include <cuda_runtime_api.h>
#include <frt/backend.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "kernel_list.hpp"

namespace frt {
class Host;
}

namespace frt::cuda {

class Blas;
class ScratchPool;

// What operators ask of the hardware.
struct DeviceProperties {
  int capability = 0;  // 90 for 9.0
  int multiprocessors = 0;
  int shared_bytes_block = 0;  // dynamic shared memory a block may opt in to
  int shared_bytes_processor = 0;
  std::size_t l2_bytes = 0;
};

// The options of the plugin's schema, per device.
struct DeviceOptions {
  // Large products of FP8 weights round their activations to FP8, too.
  bool fp8_activations = false;
};

class Device {
 public:
  // Opens device `ordinal` (its index among the devices CUDA shows). `host` outlives it.  [setup]
  Device(int ordinal, const DeviceOptions& options, const Host& host);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  int ordinal() const noexcept { return ordinal_; }
  const DeviceProperties& properties() const noexcept { return properties_; }
  const DeviceOptions& options() const noexcept { return options_; }
  const KernelList& kernels() const noexcept { return kernels_; }

  // cuBLASLt, loaded when it is first asked for; throws frt::Error(FRT_ERR_UNSUPPORTED) naming the
  // library where it is missing. Defined beside Blas.  [setup]
  Blas& blas();

  // The right to launch kernels whose blocks wait for each other (Stream::gang): a pool without
  // memory, whose users run one after the other. Its mutex is held from asking until the launch.
  const std::shared_ptr<ScratchPool>& gang() const noexcept { return gang_; }
  std::mutex& gang_mutex() noexcept { return gang_mutex_; }

  // Makes the device current for this thread.  [any]
  void make_current() const noexcept;
  // The start of every call: makes the device current; FRT_ERR_DEVICE_LOST if it is lost.  [any]
  frt_status enter() const noexcept;
  // The same for calls that throw.  [any]
  void enter(const char* what) const;

  // Remembers `code` if it is sticky; the frt_status for it.  [any]
  frt_status note(cudaError_t code) noexcept;
  // Throws frt::Error for anything but cudaSuccess: "<what>: <CUDA's text> (<name>)".  [any]
  void check(cudaError_t code, const char* what);
  bool lost() const noexcept { return lost_.load(std::memory_order_relaxed) != cudaSuccess; }

  // A sentence for people. Who recording or hot code warns does not reach the host's log from
  // there: it is kept until say_warnings(), which a recording's end and whoever waits call.  [any]
  void warn(const std::string& text);
  void say_warnings() noexcept;  // [driver]

  // Keeps an error of work that the host did in stream order, until somebody waits.  [any]
  void report_late(frt_status status) noexcept;
  // The first one since the last call.  [driver]
  frt_status take_late() noexcept;

  // A stream for the runtime's own needs; nobody else submits to it.  [setup]
  cudaStream_t service_stream();
  // The urgencies that streams can have: least <= normal (0) <= greatest, as negative as urgent.
  int least_priority() const noexcept { return least_priority_; }
  int greatest_priority() const noexcept { return greatest_priority_; }

  // Waits for everything submitted to the device.  [driver]
  frt_status sync() noexcept;
  // Bytes of the device's memory.  [any]
  frt_status memory(uint64_t& free_bytes, uint64_t& total_bytes) noexcept;

 private:
  int ordinal_;
  DeviceOptions options_;
  const Host& host_;
  std::atomic<bool> warned_{false};
  std::mutex warnings_mutex_;
  std::vector<std::string> warnings_;
  DeviceProperties properties_;
  int least_priority_ = 0;
  int greatest_priority_ = 0;
  std::atomic<cudaError_t> lost_{cudaSuccess};
  std::atomic<frt_status> late_{FRT_OK};
  cudaStream_t service_stream_ = nullptr;
  std::shared_ptr<ScratchPool> gang_;
  std::mutex gang_mutex_;
  std::mutex blas_mutex_;
  std::shared_ptr<Blas> blas_;  // shared only so that its type may be incomplete here
  KernelList kernels_;
};

}  // namespace frt::cuda
