// SPDX-License-Identifier: Apache-2.0
// The gates must be able to fail: each is given values just inside and just outside.
#include <doctest/doctest.h>
#include <frt/error.hpp>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "selftest_checks.hpp"

using namespace frt::qwen36;

namespace {

struct Verdicts {
  std::vector<std::uint32_t> all;
  std::uint32_t last() const { return all.back(); }
  Checks checks(bool exact, bool mixture) {
    return Checks(
        [](void* user, const frt_selftest_row* row) -> frt_status {
          static_cast<Verdicts*>(user)->all.push_back(row->verdict);
          return FRT_OK;
        },
        this, exact, mixture);
  }
};

const std::vector<float> kGolden = {1, 2, 3, 4, 4, 3, 2, 0};

std::vector<float> shifted(float by) {
  std::vector<float> values = kGolden;
  values[2] += by;
  return values;
}

}  // namespace

TEST_CASE("f32 gates are absolute: 1e-3 for rows, 1e-4 for states") {
  Verdicts verdicts;
  Checks checks = verdicts.checks(true, false);
  checks.values("rows", Quantity::kRows, shifted(9e-4f), kGolden, 4);
  CHECK(verdicts.last() == FRT_VERDICT_PASS);
  checks.values("rows", Quantity::kRows, shifted(1.1e-3f), kGolden, 4);
  CHECK(verdicts.last() == FRT_VERDICT_FAIL);
  checks.values("state", Quantity::kState, shifted(9e-5f), kGolden, 4);
  CHECK(verdicts.last() == FRT_VERDICT_PASS);
  checks.values("state", Quantity::kState, shifted(1.1e-4f), kGolden, 4);
  CHECK(verdicts.last() == FRT_VERDICT_FAIL);
}

TEST_CASE("a value that is not finite fails every gate") {
  for (const bool exact : {true, false}) {
    Verdicts verdicts;
    Checks checks = verdicts.checks(exact, true);
    for (const Quantity quantity : {Quantity::kLogits, Quantity::kRows, Quantity::kState}) {
      checks.values("x", quantity, shifted(std::numeric_limits<float>::quiet_NaN()), kGolden, 4);
      CHECK(verdicts.last() == FRT_VERDICT_FAIL);
    }
  }
}

TEST_CASE("bf16 gates look at cosines, relative errors and clear argmaxes") {
  Verdicts verdicts;
  Checks dense = verdicts.checks(false, false);
  dense.values("logits", Quantity::kLogits, shifted(0.05f), kGolden, 4);
  CHECK(verdicts.last() == FRT_VERDICT_PASS);
  dense.values("logits", Quantity::kLogits, shifted(2.0f), kGolden, 4);
  CHECK(verdicts.last() == FRT_VERDICT_FAIL);
  dense.values("S", Quantity::kState, shifted(0.2f), kGolden, 4);
  CHECK(verdicts.last() == FRT_VERDICT_PASS);
  dense.values("S", Quantity::kState, shifted(0.4f), kGolden, 4);
  CHECK(verdicts.last() == FRT_VERDICT_FAIL);
}

TEST_CASE("a greedy path may part in bf16 only where the golden choice is close") {
  const std::vector<std::int32_t> golden = {1, 2, 3};
  const std::vector<std::int32_t> other = {1, 0, 3};
  const std::vector<float> close = {0, 5, 0, 0, 1.8f, 0, 2, 0, 0, 0, 0, 5};
  const std::vector<float> clear = {0, 5, 0, 0, 1, 0, 2, 0, 0, 0, 0, 5};
  Verdicts verdicts;
  verdicts.checks(false, false).path("greedy", other, golden, close, 4);
  CHECK(verdicts.last() == FRT_VERDICT_PASS);
  verdicts.checks(false, false).path("greedy", other, golden, clear, 4);
  CHECK(verdicts.last() == FRT_VERDICT_FAIL);
  verdicts.checks(true, false).path("greedy", other, golden, close, 4);
  CHECK(verdicts.last() == FRT_VERDICT_FAIL);
  verdicts.checks(true, false).path("greedy", golden, golden, close, 4);
  CHECK(verdicts.last() == FRT_VERDICT_PASS);
}

TEST_CASE("goldens of another size are an error, not a verdict") {
  Verdicts verdicts;
  Checks checks = verdicts.checks(true, false);
  CHECK_THROWS_AS(checks.values("x", Quantity::kRows, std::vector<float>(4), kGolden, 4),
                  frt::Error);
  CHECK(verdicts.all.empty());
}
