// SPDX-License-Identifier: Apache-2.0
#include "status.hpp"

namespace frt::cuda {
namespace {

const char* advice(cudaError_t code) noexcept {
  switch (code) {
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorInvalidPtx:
    case cudaErrorUnsupportedPtxVersion:
    case cudaErrorJitCompilerNotFound:
    case cudaErrorJitCompilationDisabled:
      return "; the plugin has no machine code for this device and its PTX could not be compiled: "
             "use the plugin of the device's architecture, or a newer driver";
    case cudaErrorDevicesUnavailable:
      return "; another process holds the device exclusively";
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
      return "; the hardware reported a fault: see nvidia-smi -q and the kernel's log";
    default:
      return is_sticky(code) ? "; the context is lost: close it and open a new process" : "";
  }
}

}  // namespace

bool is_sticky(cudaError_t code) noexcept {
  switch (code) {
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
    case cudaErrorTensorMemoryLeak:
    case cudaErrorContained:
    case cudaErrorAssert:
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorContextIsDestroyed:
    case cudaErrorMpsClientTerminated:
    case cudaErrorCudartUnloading:
      return true;
    default:
      return false;
  }
}

frt_status status_of(cudaError_t code) noexcept {
  if (code == cudaSuccess) return FRT_OK;
  if (is_sticky(code)) return FRT_ERR_DEVICE_LOST;
  switch (code) {
    case cudaErrorNotReady:
      return FRT_ERR_NOT_READY;
    case cudaErrorMemoryAllocation:
      return FRT_ERR_OUT_OF_MEMORY;
    case cudaErrorStreamCaptureUnsupported:
    case cudaErrorStreamCaptureInvalidated:
    case cudaErrorStreamCaptureMerge:
    case cudaErrorStreamCaptureUnmatched:
    case cudaErrorStreamCaptureUnjoined:
    case cudaErrorStreamCaptureIsolation:
    case cudaErrorStreamCaptureImplicit:
    case cudaErrorStreamCaptureWrongThread:
    case cudaErrorCapturedEvent:
      return FRT_ERR_BAD_STATE;
    case cudaErrorNotSupported:
      return FRT_ERR_UNSUPPORTED;
    default:
      return FRT_ERR_DEVICE;
  }
}

std::string error_text(const char* what, cudaError_t code) {
  return std::string(what) + ": " + cudaGetErrorString(code) + " (" + cudaGetErrorName(code) + ")" +
         advice(code);
}

}  // namespace frt::cuda
