// SPDX-License-Identifier: Apache-2.0
// The checks of the operators' arguments (frt/operator_checks.hpp), operator by operator, and of
// what they have in common.
#include "trial.hpp"

using namespace frt;
using namespace frt::test;

TEST_CASE("every operator of frt/ops takes what its header states and refuses the rest by name"){
#define FRT_TRY(function, Args, name) \
  SUBCASE(name) {                     \
    try_##function();                 \
  }
    FRT_PRIMITIVE_OPERATORS(FRT_TRY) FRT_FUSED_OPERATORS(FRT_TRY)
#undef FRT_TRY
}

TEST_CASE("a product of sizes never overflows") {
  constexpr int64_t kHuge = INT64_MAX;
  CHECK(bounded_product({}) == 1);
  CHECK(bounded_product({3, 4, 5}) == 60);
  CHECK(bounded_product({1, kMostBytes}) == kMostBytes);
  CHECK(bounded_product({2, kMostBytes}) == kMostBytes);
  CHECK(bounded_product({INT32_MAX, kHuge}) == kMostBytes);
  CHECK(bounded_product({kHuge, kHuge, kHuge}) == kMostBytes);
  CHECK(bounded_product({kHuge, kHuge, 0}) == 0);
  CHECK(bounded_product({-1, 3}) == kMostBytes);
  CHECK(bounded_product({INT64_MIN, -1}) == kMostBytes);
}

TEST_CASE("a member of a member is named by its path") {
  const Checks check("acme.op/1");
  const Checks part = check.in("parts", 3);
  const auto said = [](const Checks& where, auto refuse) -> std::string {
    try {
      refuse(where);
    } catch (const Error& error) {
      return std::string(status_name(error.status())) + " " + error.what();
    }
    return "";
  };
  const auto fails = [](const Checks& where) { where.positive("rows", 0); };
  CHECK(said(check, fails) ==
        "FRT_ERR_INVALID_ARGUMENT acme.op/1: rows is 0, expected more than 0");
  CHECK(said(part, fails) ==
        "FRT_ERR_INVALID_ARGUMENT acme.op/1: parts[3].rows is 0, expected more than 0");
  CHECK(said(part.in("weight"), fails) ==
        "FRT_ERR_INVALID_ARGUMENT acme.op/1: parts[3].weight.rows is 0, expected more than 0");
  CHECK(said(part, [](const Checks& where) { where.unsupported("width", "is odd"); }) ==
        "FRT_ERR_UNSUPPORTED acme.op/1: parts[3].width is odd");
}

TEST_CASE("a scale is 0 or a positive number with a reciprocal") {
  const Checks check("acme.op/1");
  for (const float value : {0.0f, 1.0f, 1e-30f, 448.0f}) CHECK_NOTHROW(check.scale("s", value));
  for (const float value : {-1.0f, std::nanf(""), INFINITY, 1e-45f}) {
    CHECK_THROWS_WITH_AS(check.scale("s", value),
                         "acme.op/1: s is neither 0 nor a positive number with a reciprocal",
                         Error);
  }
}
