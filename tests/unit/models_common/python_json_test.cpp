// SPDX-License-Identifier: Apache-2.0
#include <frt/models/json.hpp>

#include <charconv>
#include <cmath>

#include "test_support.hpp"

using frt::io::parse_json;
using frt::io::read_json_file;
using namespace frt::models;
using namespace frt::models::test;

TEST_CASE("floats print as Python prints them") {
  const Json golden = read_json_file(kFixtures / "models_common/python_json.json");
  REQUIRE(golden["floats"].size() > 500);
  for (const Json& pair : golden["floats"]) {
    const std::string hex = pair[0];
    std::uint64_t bits = 0;
    std::from_chars(hex.data(), hex.data() + hex.size(), bits, 16);
    CHECK(python_float(std::bit_cast<double>(bits)) == pair[1].get<std::string>());
  }
  CHECK(python_float(std::nan("")) == "NaN");
  CHECK(python_float(HUGE_VAL) == "Infinity");
  CHECK(python_float(-HUGE_VAL) == "-Infinity");
}

TEST_CASE("values print as json.dumps(ensure_ascii=False) prints them") {
  const Json golden = read_json_file(kFixtures / "models_common/python_json.json");
  for (const Json& pair : golden["values"]) {
    const std::string source = pair[0];
    INFO(source);
    CHECK(python_json(parse_json(source, "value")) == pair[1].get<std::string>());
  }
  CHECK(python_json(Json{{"b", 1}, {"a", {1.5, "x"}}}) == R"({"b": 1, "a": [1.5, "x"]})");
}
