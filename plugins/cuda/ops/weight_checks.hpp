// SPDX-License-Identifier: Apache-2.0
// weight_checks.hpp - what every operator asks of a weight matrix it is given.
#pragma once

#include <frt/kernels.h>
#include <frt/checks.hpp>

namespace frt::cuda {

// Throws frt::Error(FRT_ERR_INVALID_ARGUMENT), naming `argument`.
void check_weight(const Checks& check, const char* argument, const frt_weight& weight);

}  // namespace frt::cuda
