// SPDX-License-Identifier: Apache-2.0
// driver.hpp - which devices there are, and in words why there is none.
//
// Only the static CUDA runtime is linked; it looks for the driver when it is first asked, so the
// plugin loads on a machine without one. The answers in words are pure functions of what the
// driver said, so that every case can be tested where there is no device at all.
//
// Every CUDA plugin shows every device, under the ordinal that CUDA gives it: which plugin's code
// fits is decided by cards (architecture() against `targets`), and device_open refuses the rest.
#pragma once

#include <cuda_runtime_api.h>
#include <frt/backend.h>
#include <frt/device_status.h>

#include <string>

#include "device_features.hpp"

namespace frt::cuda {

// What this plugin has code for.
struct PluginCode {
  const char* id;       // "frt.cuda.sm90"
  int base;             // 90: PTX, for devices from 9.0 on
  const char* machine;  // "sm_90a": machine code, for 9.0
};

// Whether the machine code is of an "a" architecture, whose instructions others lack.  [any]
bool is_exact(const PluginCode& code);

// What the CUDA runtime says about the machine.
struct DriverState {
  int driver_version = 0;            // newest CUDA the driver speaks, 13000 for 13.0; 0: no driver
  int runtime_version = 0;           // CUDA this plugin was built with
  cudaError_t status = cudaSuccess;  // of counting devices
  int devices = 0;
};

// Asks the driver. Does not make a context.  [setup]
DriverState ask_driver();

// Why there is no device; empty if there is one.  [any]
std::string why_no_device(const DriverState& state);

// "13.0" for 13000.  [any]
std::string version_text(int version);

// "sm_90" for 90: what cards are matched against.  [any]
std::string architecture_text(int capability);

// Why the code cannot run on a device of `capability`; empty if it can.  [any]
std::string why_not_runnable(const PluginCode& code, int capability);

// Why products on a device of `capability` with `features` cannot round their activations so; empty
// if they can.  [any]
std::string why_no_activations(ActivationRounding activations, int capability, FeatureSet features);

// What decides roundings on a device beside its architecture.
struct NumericsFacts {
  int capability = 0;
  int multiprocessors = 0;  // kernels split their sums by them
  std::string driver;       // "580.159 (CUDA 13.0)"; it translates PTX
  std::string library;      // "cuBLASLt 13.1.0", or that it is not there
  std::string limits;       // FRT_CUDA_DEVICE_LIMITS; empty: none
};

// frt_device_info::numerics, e.g. "132 multiprocessors, cuBLASLt 13.1.0". The driver is in it where
// it compiles the plugin's PTX.  [any]
std::string numerics_text(const PluginCode& code, const NumericsFacts& facts);

// What decides whether a device has FRT_SPACE_SHARED.
struct DeviceMemoryFacts {
  bool integrated = false;         // its memory is the processor's
  bool managed = false;            // cudaMallocManaged works
  bool concurrent_access = false;  // the processor may touch managed memory while kernels run
};
DeviceMemoryFacts ask_memory(int ordinal);                    // [setup]
bool shares_memory(const DeviceMemoryFacts& facts) noexcept;  // [any]

// 90 for compute capability 9.0. Throws FRT_ERR_OUT_OF_RANGE for an ordinal that does not exist.
// [setup]
int device_capability(int ordinal);

// Fills `info`, honouring its struct_size.  [setup]
void describe_device(const PluginCode& code, uint32_t ordinal, frt_device_info& info);

// Fills `status`, honouring its struct_size. FRT_ERR_UNSUPPORTED where NVML is missing.  [any]
void read_device_status(uint32_t ordinal, frt_device_status& status);

}  // namespace frt::cuda
