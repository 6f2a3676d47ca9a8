// SPDX-License-Identifier: Apache-2.0
// nvml.hpp - the few questions that only NVML, the driver's management library, answers: the
// driver's version, free memory without making a context, clocks and power.
//
// The library comes with the driver and is opened when it is there. Without it nothing else stops
// working. Functions are looked up by their documented C interface.
#pragma once

#include <frt/device_status.h>

#include <cstdint>
#include <string>

namespace frt::cuda {

class Nvml {
 public:
  Nvml();
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  bool running() const noexcept { return running_; }
  // "580.82.07"; empty if unknown.
  std::string driver_version() const;
  // Of the device at `bus_id`; false if unknown.
  bool free_memory(const char* bus_id, uint64_t& bytes) const;
  // Clocks, temperature and power; what is not told stays 0. False if the device is not known.
  bool read_status(const char* bus_id, frt_device_status& status) const;

 private:
  template <class Function>
  Function find(const char* name) const;
  void* device(const char* bus_id) const;  // null if unknown

  void* library_;
  bool running_ = false;
};

// What the bits of NVML's clock event reasons say, in words; empty: nothing holds the clock.  [any]
std::string clock_limits(uint64_t reasons);

}  // namespace frt::cuda
