// SPDX-License-Identifier: Apache-2.0
// A device's free memory comes from NVML where it can: asking the CUDA runtime would make a
// context, hundreds of megabytes on every device of the machine.
#include "driver.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <frt/error.hpp>
#include <frt/table.hpp>
#include <string_view>

#include "blas_library.hpp"
#include "device_limits.hpp"
#include "nvml.hpp"
#include "status.hpp"

namespace frt::cuda {
namespace {

constexpr uint32_t kDlpackCuda = 2;  // kDLCUDA

void check_call(cudaError_t code, const char* what) {
  if (code == cudaSuccess) return;
  cudaGetLastError();
  throw Error(status_of(code), error_text(what, code));
}

int attribute(int ordinal, cudaDeviceAttr name) {
  int value = 0;
  check_call(cudaDeviceGetAttribute(&value, name, ordinal), "describing a device");
  return value;
}

std::string bus_id_of(int ordinal) {
  char text[32] = "";
  check_call(cudaDeviceGetPCIBusId(text, sizeof text, ordinal), "describing a device");
  return text;
}

template <std::size_t N>
void put_text(char (&target)[N], const std::string& text) {
  const std::size_t length = std::min(text.size(), N - 1);
  std::memcpy(target, text.data(), length);
  target[length] = '\0';
}

}  // namespace

DriverState ask_driver() {
  DriverState state;
  if (cudaDriverGetVersion(&state.driver_version) != cudaSuccess) state.driver_version = 0;
  if (cudaRuntimeGetVersion(&state.runtime_version) != cudaSuccess) state.runtime_version = 0;
  state.status = cudaGetDeviceCount(&state.devices);
  if (state.status != cudaSuccess) state.devices = 0;
  cudaGetLastError();
  return state;
}

bool is_exact(const PluginCode& code) {
  return std::string_view(code.machine).ends_with('a');
}

std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

std::string architecture_text(int capability) {
  return "sm_" + std::to_string(capability);
}

std::string why_no_device(const DriverState& state) {
  if (state.devices > 0) return {};
  if (state.driver_version == 0) {
    return "no NVIDIA driver: libcuda.so.1 is missing or does not start; install a driver for "
           "CUDA " +
           version_text(state.runtime_version) +
           " or newer (in a container: start it with the GPUs and the driver mounted)";
  }
  // Within one major version a newer runtime runs on an older driver.
  const int needed = state.runtime_version / 1000 * 1000;
  if (state.driver_version < needed || state.status == cudaErrorInsufficientDriver) {
    return "the NVIDIA driver is too old: it speaks CUDA " + version_text(state.driver_version) +
           ", needed is CUDA " + version_text(needed) + " or newer; update the driver";
  }
  switch (state.status) {
    case cudaSuccess:
    case cudaErrorNoDevice:
      return "the NVIDIA driver (CUDA " + version_text(state.driver_version) +
             ") sees no device; check nvidia-smi, the rights on /dev/nvidia*, and "
             "CUDA_VISIBLE_DEVICES";
    case cudaErrorSystemNotReady:
      return "the NVIDIA driver is not ready; start the fabric manager (nvidia-fabricmanager)";
    case cudaErrorSystemDriverMismatch:
      return "the NVIDIA driver's kernel module and library are of different versions; reboot "
             "after a driver update";
    default:
      return error_text("the NVIDIA driver does not start", state.status) +
             "; check nvidia-smi and the kernel's log";
  }
}

std::string why_not_runnable(const PluginCode& code, int capability) {
  if (capability >= code.base) return {};
  return std::string(code.id) + " has machine code for " + code.machine +
         " and portable code (PTX) for devices from " + architecture_text(code.base) +
         " on; the device is " + architecture_text(capability) +
         ": use backend = \"auto\", or the plugin of that architecture";
}

std::string why_no_activations(ActivationRounding activations, int capability,
                               FeatureSet features) {
  const auto refusal = [&](const char* value, const char* where) {
    return std::string("activations = \"") + value + "\" has no kernel for " +
           architecture_text(capability) + ": " + where + "; leave the option out";
  };
  if (activations == ActivationRounding::kFp8 && capability / 10 != 9) {
    return refusal("fp8", "cuBLASLt multiplies scaled FP8 by scaled FP8 on sm_90 only");
  }
  if (activations == ActivationRounding::kFp4 && !(features & feature::kFp4Mma)) {
    return refusal(
        "fp4",
        "sm_120 and sm_121 multiply FP4 by FP4, each with the machine code of the plugin "
        "of its own architecture");
  }
  return {};
}

std::string numerics_text(const PluginCode& code, const NumericsFacts& facts) {
  std::string text = std::to_string(facts.multiprocessors) + " multiprocessors, " + facts.library;
  // Machine code runs on later devices of its major version, that of an "a" architecture on none.
  const bool machine_code =
      facts.capability == code.base || (!is_exact(code) && facts.capability / 10 == code.base / 10);
  if (!machine_code) text += ", PTX by driver " + facts.driver;
  if (!facts.limits.empty()) text += ", limits " + facts.limits;
  return text;
}

DeviceMemoryFacts ask_memory(int ordinal) {
  return {attribute(ordinal, cudaDevAttrIntegrated) != 0,
          attribute(ordinal, cudaDevAttrManagedMemory) != 0,
          attribute(ordinal, cudaDevAttrConcurrentManagedAccess) != 0};
}

// notes/2026-11-23-shared-memory.md says why these three.
bool shares_memory(const DeviceMemoryFacts& facts) noexcept {
  return facts.integrated && facts.managed && facts.concurrent_access;
}

int device_capability(int ordinal) {
  const DriverState state = ask_driver();
  if (ordinal < 0 || ordinal >= state.devices) {
    std::string text = "device " + std::to_string(ordinal) + " does not exist: there ";
    text +=
        state.devices == 1 ? "is 1 device" : "are " + std::to_string(state.devices) + " devices";
    if (state.devices == 0) text += "; " + why_no_device(state);
    throw Error(FRT_ERR_OUT_OF_RANGE, text);
  }
  return attribute(ordinal, cudaDevAttrComputeCapabilityMajor) * 10 +
         attribute(ordinal, cudaDevAttrComputeCapabilityMinor);
}

void describe_device(const PluginCode& code, uint32_t ordinal, frt_device_info& info) {
  const int index = static_cast<int>(ordinal);
  const int capability = device_capability(index);
  cudaDeviceProp properties{};
  check_call(cudaGetDeviceProperties(&properties, index), "describing a device");
  const std::string bus_id = bus_id_of(index);

  frt_device_info known{};
  known.ordinal = ordinal;
  put_text(known.name, properties.name);
  put_text(known.architecture, architecture_text(capability));
  known.memory_total = properties.totalGlobalMem;
  known.compute_units = static_cast<uint32_t>(properties.multiProcessorCount);
  known.dlpack_type = kDlpackCuda;
  if (shares_memory(ask_memory(index))) known.flags |= FRT_DEVICE_SHARED_MEMORY;
  const Nvml nvml;
  const std::string cuda = "CUDA " + version_text(ask_driver().driver_version);
  const std::string driver = nvml.driver_version();
  put_text(known.driver, driver.empty() ? cuda : driver + " (" + cuda + ")");
  const char* const limits = std::getenv(kDeviceLimits);
  put_text(known.numerics, numerics_text(code, {.capability = capability,
                                                .multiprocessors = properties.multiProcessorCount,
                                                .driver = known.driver,
                                                .library = blas_library_text(),
                                                .limits = limits ? limits : ""}));
  if (!nvml.free_memory(bus_id.c_str(), known.memory_free)) {
    std::size_t free = 0;
    std::size_t total = 0;
    check_call(cudaSetDevice(index), "describing a device");
    check_call(cudaMemGetInfo(&free, &total), "describing a device");
    known.memory_free = free;
  }
  std::string detail = std::to_string(properties.multiProcessorCount) + " multiprocessors, up to " +
                       std::to_string(attribute(index, cudaDevAttrClockRate) / 1000) + " MHz, L2 " +
                       std::to_string(properties.l2CacheSize >> 20) + " MiB, " +
                       std::to_string(properties.sharedMemPerBlockOptin >> 10) +
                       " KiB shared per block, " + bus_id;
  if (!why_not_runnable(code, capability).empty()) {
    detail += "; this plugin has no code for it";
  } else if (capability != code.base) {
    detail += "; this plugin's PTX is compiled for it at load";
  }
  put_text(known.detail, detail);
  info = known;
}

void read_device_status(uint32_t ordinal, frt_device_status& status) {
  const int index = static_cast<int>(ordinal);
  device_capability(index);  // refuses ordinals that do not exist
  const Nvml nvml;
  frt_device_status known{};
  if (!nvml.read_status(bus_id_of(index).c_str(), known)) {
    throw Error(
        FRT_ERR_UNSUPPORTED,
        std::string("the state of device ") + std::to_string(ordinal) + " is not known: " +
            (nvml.running() ? "NVML does not list it" : "libnvidia-ml.so.1 does not start"));
  }
  check(fill(&status, known), "device status");
}

}  // namespace frt::cuda
