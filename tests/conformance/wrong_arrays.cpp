// SPDX-License-Identifier: Apache-2.0
#include "wrong_arrays.hpp"

#include <frt/error.hpp>

#include <algorithm>
#include <cstdint>

namespace frt::conformance {

std::vector<WrongArray> wrong_arrays(const frt_array& right, bool any_length) {
  uint64_t count = 1;
  for (uint32_t i = 0; i < right.rank; ++i) count *= static_cast<uint64_t>(right.shape[i]);
  std::vector<WrongArray> all;
  // Whoever takes one reads zeros, not memory behind it.
  const auto add = [&](const char* what, const auto& spoil) {
    WrongArray& one = all.emplace_back();
    one.what = what;
    one.array = right;
    spoil(one.array);
    one.bytes.resize(std::max<uint64_t>(count, 2) * dtype_bits(right.dtype) / 8);
    one.array.data = one.bytes.data();
  };
  add("of an unknown type", [](frt_array& array) { array.dtype = 999; });
  all.back().status = FRT_ERR_UNSUPPORTED;
  if (right.rank == 0) {
    add("of two elements, a scalar before", [](frt_array& array) {
      array.rank = 1;
      array.shape[0] = 2;
    });
    return all;
  }
  // A scalar is as many elements as an array of one.
  if (count != 1) add("without extents", [](frt_array& array) { array.rank = 0; });
  if (!any_length) add("of no elements", [](frt_array& array) { array.shape[0] = 0; });
  return all;
}

}  // namespace frt::conformance
