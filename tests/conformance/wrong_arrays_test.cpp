// SPDX-License-Identifier: Apache-2.0
// What a correct policy must refuse is really wrong, whatever array it reads.
#include "wrong_arrays.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>

using namespace frt::conformance;

namespace {

frt_array array_of(std::initializer_list<int64_t> shape) {
  frt_array array{};
  array.name = "state";
  array.dtype = FRT_DTYPE_F32;
  for (const int64_t extent : shape) array.shape[array.rank++] = extent;
  return array;
}

int64_t count_of(const frt_array& array) {
  int64_t count = 1;
  for (uint32_t i = 0; i < array.rank; ++i) count *= array.shape[i];
  return count;
}

void each_is_wrong(const frt_array& right, bool any_length, std::size_t expected) {
  const auto all = wrong_arrays(right, any_length);
  CHECK(all.size() == expected);
  for (const WrongArray& one : all) {
    CAPTURE(one.what);
    CHECK(one.array.rank <= FRT_ARRAY_MAX_RANK);
    CHECK((one.array.dtype != right.dtype || count_of(one.array) != count_of(right)));
    CHECK(one.array.data == one.bytes.data());
    CHECK(one.bytes.size() >= static_cast<std::size_t>(count_of(one.array)) * sizeof(float));
  }
}

}  // namespace

TEST_CASE("a state that is a scalar is wrong with another type or number, not without extents") {
  each_is_wrong(array_of({}), false, 2);
}

TEST_CASE("an array of one element may come as a scalar") {
  each_is_wrong(array_of({1}), false, 2);
}

TEST_CASE("an array of any length may be empty") {
  each_is_wrong(array_of({1}), true, 1);
  each_is_wrong(array_of({1, 7}), true, 2);
}

TEST_CASE("an array of several extents is wrong in all ways") {
  each_is_wrong(array_of({3, 5}), false, 3);
  each_is_wrong(array_of({2, 3, 4, 5}), false, 3);
}
