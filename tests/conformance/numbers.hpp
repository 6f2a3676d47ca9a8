// SPDX-License-Identifier: Apache-2.0
// numbers.hpp - the element types, written out once more for the references of the conformance
// cases: from the formats' definitions, in double, without a line of any backend.
#pragma once

#include <frt/base.h>

#include <cstddef>
#include <cstdint>

namespace frt::conformance {

// Element `index` of packed values: f32, bf16, f16, f8_e4m3, f4_e2m1, f8_e8m0, and
// integers up to 32 bits.
double decode(frt_dtype dtype, const std::byte* data, int64_t index);

// The code nearest to `value`, ties to the even one. Beyond the largest finite value f32, bf16 and
// f16 give an infinity, f8_e4m3 and f4_e2m1 the largest. NaN gives a NaN, f4_e2m1 has none.
uint32_t encode(frt_dtype dtype, double value);

// The value of the nearest code.
double rounded(frt_dtype dtype, double value);

// Half the distance between the neighbours of `value`: what rounding it once may change at most.
double half_step(frt_dtype dtype, double value);

}  // namespace frt::conformance
