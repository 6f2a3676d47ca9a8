// SPDX-License-Identifier: Apache-2.0
// device_limits.hpp - for tests: makes a device look smaller, so that a large one runs the code
// that smaller ones take. FRT_CUDA_DEVICE_LIMITS="shared=101376,multiprocessors=48" lowers what
// operators are told; the hardware stays what it is. Both names may be left out.
#pragma once

#include "device.hpp"

namespace frt::cuda {

// Lowers `properties` as the variable says; false if it is not set. Throws
// frt::Error(FRT_ERR_INVALID_ARGUMENT) for an unknown name, and for a value below 1 or above the
// device's.  [setup]
bool apply_device_limits(DeviceProperties& properties);

}  // namespace frt::cuda
