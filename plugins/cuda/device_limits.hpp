// SPDX-License-Identifier: Apache-2.0
// device_limits.hpp - for tests: makes a device look smaller, so that a large one runs the code
// that smaller or older ones take.
// FRT_CUDA_DEVICE_LIMITS="shared=101376,multiprocessors=48,without=wgmma" lowers what operators are
// told; the hardware stays what it is. Each item may be left out; `without` names a feature
// (device_features.hpp) and may be given several times. `emulate=fp4-mma` adds the one feature
// whose instruction code without it computes in plain arithmetic (ops/common/mma_fp4.cuh), slowly.
#pragma once

#include "device.hpp"

namespace frt::cuda {

inline constexpr const char* kDeviceLimits = "FRT_CUDA_DEVICE_LIMITS";

// Lowers `properties` and `features` as the variable says; false if it is not set. Throws
// frt::Error(FRT_ERR_INVALID_ARGUMENT) for an unknown name or feature, a feature that nothing
// emulates, and a value below 1 or above the device's.  [setup]
bool apply_device_limits(DeviceProperties& properties, FeatureSet& features);

}  // namespace frt::cuda
