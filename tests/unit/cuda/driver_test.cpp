// SPDX-License-Identifier: Apache-2.0
// What the plugin says about a machine, from made-up answers of the driver. Runs without a device.
#include "driver.hpp"

#include <doctest/doctest.h>

#include <cstring>

#include "cuda_device.hpp"
#include "nvml.hpp"
#include "status.hpp"

using namespace frt::cuda;

namespace {

bool has(const std::string& text, const char* part) {
  const bool found = text.find(part) != std::string::npos;
  if (!found) MESSAGE("'", part, "' is not in: ", text);
  return found;
}

DriverState state(int driver, cudaError_t status, int devices = 0) {
  return {driver, 13000, status, devices};
}

}  // namespace

TEST_CASE("why there is no device") {
  CHECK(why_no_device(state(13000, cudaSuccess, 1)).empty());
  CHECK(
      has(why_no_device(state(0, cudaErrorInsufficientDriver)), "no NVIDIA driver: libcuda.so.1"));
  const std::string old = why_no_device(state(12040, cudaErrorInsufficientDriver));
  CHECK(has(old, "too old"));
  CHECK(has(old, "speaks CUDA 12.4"));
  CHECK(has(old, "needed is CUDA 13.0 or newer"));
  // A runtime of a later minor version is content with the major version's first driver.
  CHECK(has(why_no_device({13000, 13020, cudaErrorNoDevice, 0}), "sees no device"));
  CHECK(has(why_no_device(state(13000, cudaErrorNoDevice)), "CUDA_VISIBLE_DEVICES"));
  CHECK(has(why_no_device(state(13000, cudaSuccess)), "sees no device"));
  CHECK(has(why_no_device(state(13000, cudaErrorSystemNotReady)), "fabric manager"));
  CHECK(has(why_no_device(state(13000, cudaErrorSystemDriverMismatch)), "reboot"));
  CHECK(has(why_no_device(state(13000, cudaErrorUnknown)), "cudaErrorUnknown"));
}

TEST_CASE("which devices a plugin's code runs on") {
  const PluginCode sm90{"frt.cuda.sm90", 90, "sm_90a"};
  CHECK(why_not_runnable(sm90, 90).empty());
  CHECK(why_not_runnable(sm90, 100).empty());  // through PTX
  CHECK(why_not_runnable(sm90, 120).empty());
  const std::string refusal = why_not_runnable(sm90, 89);
  CHECK(has(refusal, "frt.cuda.sm90"));
  CHECK(has(refusal, "machine code for sm_90a"));
  CHECK(has(refusal, "the device is sm_89"));
  CHECK(has(refusal, "backend = \"auto\""));
  CHECK(architecture_text(120) == "sm_120");
  CHECK(version_text(13020) == "13.2");
}

TEST_CASE("only code of an \"a\" architecture has its instructions") {
  CHECK(is_exact({"frt.cuda.sm120", 120, "sm_120a"}));
  CHECK_FALSE(is_exact({"frt.cuda.sm120", 120, "sm_120"}));
  // Code of a family, for which nvcc does not say that it has those of sm_120a.
  CHECK_FALSE(is_exact({"frt.cuda.sm120", 120, "sm_120f"}));
}

TEST_CASE("rounded activations are refused where nothing multiplies them, naming what does") {
  CHECK(why_no_activations(ActivationRounding::kFp8, 90, 0).empty());
  for (const int capability : {80, 89, 100, 103, 110, 120, 121}) {
    const std::string refusal =
        why_no_activations(ActivationRounding::kFp8, capability, feature::kFp4Mma);
    CHECK(has(refusal, "activations = \"fp8\""));
    CHECK(has(refusal, architecture_text(capability).c_str()));
    CHECK(has(refusal, "on sm_90 only"));
    CHECK(has(refusal, "leave the option out"));
  }
  CHECK(why_no_activations(ActivationRounding::kFp4, 120, feature::kFp4Mma).empty());
  CHECK(why_no_activations(ActivationRounding::kFp4, 90, feature::kFp4Mma).empty());  // emulated
  for (const int capability : {89, 90, 110, 120}) {  // sm_120 with the code of another
    const std::string refusal =
        why_no_activations(ActivationRounding::kFp4, capability, feature::kAll & ~feature::kFp4Mma);
    CHECK(has(refusal, "activations = \"fp4\""));
    CHECK(has(refusal, ("no kernel for " + architecture_text(capability)).c_str()));
    CHECK(has(refusal, "sm_120 and sm_121 multiply FP4 by FP4"));
  }
  for (const int capability : {80, 90, 121}) {
    CHECK(why_no_activations(ActivationRounding::kExact, capability, 0).empty());
  }
}

TEST_CASE("memory is shared where the device is integrated and both may work at the same time") {
  CHECK(shares_memory({.integrated = true, .managed = true, .concurrent_access = true}));
  // Discrete devices have managed memory that migrates.
  CHECK_FALSE(shares_memory({.integrated = false, .managed = true, .concurrent_access = true}));
  // The processor must not touch managed memory while a kernel runs.
  CHECK_FALSE(shares_memory({.integrated = true, .managed = true, .concurrent_access = false}));
  CHECK_FALSE(shares_memory({.integrated = true, .managed = false, .concurrent_access = true}));
  CHECK_FALSE(shares_memory({}));
}

TEST_CASE("CUDA's errors as codes of the ABI") {
  CHECK(status_of(cudaSuccess) == FRT_OK);
  CHECK(status_of(cudaErrorNotReady) == FRT_ERR_NOT_READY);
  CHECK(status_of(cudaErrorMemoryAllocation) == FRT_ERR_OUT_OF_MEMORY);
  CHECK(status_of(cudaErrorInvalidValue) == FRT_ERR_DEVICE);
  CHECK(status_of(cudaErrorStreamCaptureInvalidated) == FRT_ERR_BAD_STATE);
  CHECK(status_of(cudaErrorNoKernelImageForDevice) == FRT_ERR_DEVICE);
  for (const cudaError_t code :
       {cudaErrorIllegalAddress, cudaErrorLaunchFailure, cudaErrorAssert, cudaErrorECCUncorrectable,
        cudaErrorMisalignedAddress, cudaErrorIllegalInstruction, cudaErrorHardwareStackError}) {
    CHECK(is_sticky(code));
    CHECK(status_of(code) == FRT_ERR_DEVICE_LOST);
  }
  CHECK(has(error_text("launch", cudaErrorNoKernelImageForDevice), "plugin of the device's"));
  CHECK(has(error_text("sync", cudaErrorIllegalAddress), "(cudaErrorIllegalAddress)"));
}

TEST_CASE("what decides roundings tells devices of one architecture apart") {
  const PluginCode exact = {"frt.cuda.sm90", 90, "sm_90a"}, plain = {"frt.cuda.sm80", 80, "sm_80"};
  const auto text = [](const PluginCode& code, int capability, int count, const char* driver) {
    return numerics_text(code, {capability, count, driver, "cuBLASLt 13.1.0", ""});
  };
  CHECK(text(exact, 90, 132, "580") == "132 multiprocessors, cuBLASLt 13.1.0");
  CHECK(text(exact, 90, 114, "580") != text(exact, 90, 132, "580"));
  CHECK(text(exact, 90, 132, "590") == text(exact, 90, 132, "580"));
  CHECK(text(exact, 100, 132, "590") != text(exact, 100, 132, "580"));
  CHECK(text(plain, 86, 84, "590") == text(plain, 86, 84, "580"));
  CHECK(text(plain, 90, 132, "590") != text(plain, 90, 132, "580"));
}

TEST_CASE("the real driver: devices, or a reason") {
  const frt::cuda_test::Plugin plugin;
  const auto& backend = plugin.backend();
  uint32_t count = 7;
  frt_error why{};
  REQUIRE(backend.device_count(plugin.handle(), &count, &why) == FRT_OK);
  if (count > 0) return;
  CHECK(why.message[0] != '\0');
  frt_device_info info{};
  info.struct_size = sizeof info;
  frt_error error{};
  CHECK(backend.device_info(plugin.handle(), 0, &info, &error) == FRT_ERR_OUT_OF_RANGE);
  frt_backend_device device = nullptr;
  CHECK(backend.device_open(plugin.handle(), 0, nullptr, &device, &error) == FRT_ERR_OUT_OF_RANGE);
  CHECK(has(error.message, why.message));
  CHECK(device == nullptr);
}

TEST_CASE("what holds a clock back, in words") {
  CHECK(clock_limits(0).empty());
  CHECK(clock_limits(0x1) == "idle");
  CHECK(clock_limits(0x4) == "power");
  CHECK(clock_limits(0x80 | 0x40) == "power, temperature");
  frt_device_status status{};
  status.struct_size = sizeof status;
  frt_error error{};
  const frt::cuda_test::Plugin plugin;
  const auto& table = plugin.table<frt_device_status_v1>(FRT_EXT_DEVICE_STATUS);
  CHECK(table.read(plugin.handle(), 99, &status, &error) == FRT_ERR_OUT_OF_RANGE);
  if (plugin.devices() == 0) return;
  CHECK(table.read(plugin.handle(), 0, &status, &error) == FRT_OK);
  CHECK(status.clock_limit_mhz >= status.clock_mhz);
  CHECK(status.power_mw > 0);
}
