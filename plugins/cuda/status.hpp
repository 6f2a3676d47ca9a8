// SPDX-License-Identifier: Apache-2.0
// status.hpp - what CUDA's error codes mean to a caller of the ABI.
#pragma once

#include <cuda_runtime_api.h>
#include <frt/base.h>

#include <string>

namespace frt::cuda {

// True for errors after which the context cannot be used any more: every later call on it returns
// the same error, so the device counts as lost.  [any]
bool is_sticky(cudaError_t code) noexcept;

// The code of the ABI.  [any]
frt_status status_of(cudaError_t code) noexcept;

// "<what>: <CUDA's text> (<CUDA's name>)", with advice where there is some.  [any]
std::string error_text(const char* what, cudaError_t code);

}  // namespace frt::cuda
