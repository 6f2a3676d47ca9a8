// SPDX-License-Identifier: Apache-2.0
// wrong_arrays.hpp - an array of frt/observation.h that a policy reads, made wrong in one way each.
#pragma once

#include <frt/observation.h>

#include <cstddef>
#include <string>
#include <vector>

namespace frt::conformance {

struct WrongArray {
  std::string what;  // "of an unknown type"
  frt_array array{};
  frt_status status = FRT_OK;      // that refuses it; FRT_OK: any
  std::vector<std::byte> bytes{};  // what array.data points at
};

// All of them are arrays by their header, of a rank up to FRT_ARRAY_MAX_RANK, and none has the type
// and the number of elements of `right`. `any_length`: the first extent may be any number, which
// may be none.
std::vector<WrongArray> wrong_arrays(const frt_array& right, bool any_length);

}  // namespace frt::conformance
