// SPDX-License-Identifier: Apache-2.0
// backend_device.hpp - what the backend's table opens: a Device with its kernels, its streams'
// priorities, and everything that calls from several threads share.
#pragma once

#include <atomic>
#include <frt/failed_call.hpp>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "device.hpp"
#include "kernel_table.hpp"

namespace frt {
class Host;
}

namespace frt::cuda {

class ScratchPool;
struct PluginCode;

class BackendDevice final : public Device {
 public:
  // Opens device `ordinal` (its index among the devices CUDA shows) for the code of the plugin.
  // `host` outlives it.  [setup]
  BackendDevice(int ordinal, const DeviceOptions& options, const PluginCode& code,
                const Host& host);
  ~BackendDevice();

  const KernelTable& kernels() const noexcept { return kernels_; }
  KernelTable& kernels() noexcept { return kernels_; }

  // The right to launch kernels whose blocks wait for each other (CoResidentLaunch): a pool without
  // memory, whose users run one after the other. Its mutex is held from asking until the launch.
  const std::shared_ptr<ScratchPool>& co_resident() const noexcept { return co_resident_; }
  std::mutex& co_resident_mutex() noexcept { return co_resident_mutex_; }

  // What CUDA said of the last call that failed with a code alone.  [any]
  FailedCall& failed_call() const noexcept { return failed_call_; }

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
  friend class Device;

  const Host& host_;
  std::atomic<bool> warned_{false};
  std::mutex warnings_mutex_;
  std::vector<std::string> warnings_;
  int least_priority_ = 0;
  int greatest_priority_ = 0;
  std::atomic<cudaError_t> lost_{cudaSuccess};
  std::atomic<frt_status> late_{FRT_OK};
  mutable FailedCall failed_call_;  // also of calls that find the device lost and change nothing
  cudaStream_t service_stream_ = nullptr;
  std::shared_ptr<ScratchPool> co_resident_;
  std::mutex co_resident_mutex_;
  std::mutex blas_mutex_;
  std::shared_ptr<Blas> blas_;  // shared only so that its type may be incomplete here
  KernelTable kernels_;
};

// Every Device is one.
inline BackendDevice& behind(Device& device) noexcept {
  return static_cast<BackendDevice&>(device);
}
inline const BackendDevice& behind(const Device& device) noexcept {
  return static_cast<const BackendDevice&>(device);
}

}  // namespace frt::cuda
