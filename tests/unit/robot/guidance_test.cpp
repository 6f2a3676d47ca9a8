// SPDX-License-Identifier: Apache-2.0
#include "robot/guidance.hpp"

#include <doctest/doctest.h>

#include <frt/error.hpp>
#include <limits>
#include <nlohmann/json.hpp>

using namespace frt::host;

TEST_CASE("strengths are written as people write them, and read back from records") {
  const GuidanceStrengths one = parse_strengths("1.5");
  CHECK(one == GuidanceStrengths{{1.5}, 1});
  const GuidanceStrengths steps = parse_strengths("2.5, 2,1.5");
  CHECK(steps == GuidanceStrengths{{2.5, 2, 1.5}, 1});
  const GuidanceStrengths branches = parse_strengths("2|1.5, 1|1");
  CHECK(branches == GuidanceStrengths{{2, 1.5, 1, 1}, 2});
  for (const GuidanceStrengths& each : {one, steps, branches}) {
    CHECK(parse_strengths(to_text(each)) == each);
    CHECK(strengths_from(to_json(each)) == each);
  }
  CHECK(to_json(one) == 1.5);
  for (const char* wrong : {"", "much", "1.5,", "1,,2", "1|2,1", "1.5x", "1e999"}) {
    CAPTURE(wrong);
    CHECK_THROWS_AS(parse_strengths(wrong), frt::Error);
  }
  for (const char* wrong : {"null", "[]", "\"1\"", "[1, [1, 2]]", "[[]]", "{}"}) {
    CAPTURE(wrong);
    CHECK_THROWS_AS(strengths_from(nlohmann::ordered_json::parse(wrong)), frt::Error);
  }
}

TEST_CASE("the table of strengths has every step and branch; the last row goes on") {
  CHECK(parse_strengths("1.5").table(3, 2) == std::vector<float>(6, 1.5f));
  CHECK(parse_strengths("2.5, 2").table(3, 1) == std::vector<float>{2.5f, 2, 2});
  CHECK(parse_strengths("2|1.5, 1|1").table(2, 2) == std::vector<float>{2, 1.5f, 1, 1});
  CHECK(parse_strengths("1, 1").none());
  CHECK_FALSE(parse_strengths("1, 2").none());
  CHECK_THROWS_WITH_AS(parse_strengths("2, 0.5").table(3, 1), doctest::Contains("0.5"), frt::Error);
  CHECK_THROWS_WITH_AS(parse_strengths("1e30").table(3, 1), doctest::Contains("1 (none) to 100"),
                       frt::Error);
  CHECK_THROWS_AS((GuidanceStrengths{{std::numeric_limits<double>::infinity()}, 1}).table(3, 1),
                  frt::Error);
  CHECK_THROWS_WITH_AS(parse_strengths("2, 2, 2").table(2, 1), doctest::Contains("3 steps"),
                       frt::Error);
  CHECK_THROWS_AS(parse_strengths("2|2").table(2, 3), frt::Error);
}
