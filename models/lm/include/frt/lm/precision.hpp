// SPDX-License-Identifier: Apache-2.0
// frt/lm/precision.hpp - the element types one model computes with.
#pragma once

#include <frt/base.h>

#include <cstdint>
#include <frt/error.hpp>

namespace frt::lm {

struct Precision {
  frt_dtype activation = FRT_DTYPE_BF16;
  frt_dtype residual = FRT_DTYPE_F32;  // of the residual stream
  frt_dtype cache = FRT_DTYPE_BF16;    // of keys and values
};

inline std::uint64_t bytes_of(frt_dtype dtype, std::int64_t elements) {
  return static_cast<std::uint64_t>(elements) * dtype_bits(dtype) / 8;
}

}  // namespace frt::lm
