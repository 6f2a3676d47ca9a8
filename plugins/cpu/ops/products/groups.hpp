// SPDX-License-Identifier: Apache-2.0
// groups.hpp - the general form of a weight (frt/kernels.h), for formats without vector code:
// scale[group] * (data - zero[group]).
#pragma once

#include <cstdint>

#include "weight.hpp"

namespace frt::cpu {

// out[i] = W[row, first + i] without the global scale, i in [0, count).  [hot]
void dequantise_groups(const Weight& weight, int64_t row, int64_t first, int64_t count,
                       float* out) noexcept;

}  // namespace frt::cpu
