// SPDX-License-Identifier: Apache-2.0
#include <frt/models/json.hpp>

#include <charconv>
#include <cmath>

#include "test_support.hpp"

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

TEST_CASE("what has no JSON text is refused by the writer") {
  CHECK_FAILS(python_json(Json::binary({1, 2})), "INVALID_ARGUMENT", "binary");
  CHECK_FAILS(python_json(Json::binary({1, 2}, 7)), "INVALID_ARGUMENT", "binary");
  Json deep = 1;
  for (int i = 0; i < 600; ++i) deep = Json::array({std::move(deep)});
  CHECK_FAILS(python_json(deep), "INVALID_ARGUMENT", "nested deeper than 512");
}

TEST_CASE("integers of any size keep their digits") {
  const Json value = parse_json("[123456789012345678901234567890, 7, -7, 1.5]", "value");
  CHECK(value[0].is_binary());
  CHECK(value[0].get_binary().subtype() == kBigInteger);
  CHECK(value[1].is_number_unsigned());
  CHECK(value[2].is_number_integer());
  CHECK(value[3].is_number_float());
}

TEST_CASE("syntax errors name file, line and column") {
  CHECK_FAILS(parse_json("{\n  \"a\": 1,\n  \"b\": tru\n}", "config.json"), "FORMAT",
              "config.json:3:1");
  CHECK_FAILS(parse_json("", "config.json"), "FORMAT", "config.json:1:1");
  CHECK_FAILS(parse_json("[1] x", "config.json"), "FORMAT", "config.json:1:5");
  CHECK_FAILS(parse_json("\"\xff\"", "config.json"), "FORMAT", "config.json:1:2", "UTF-8");
  CHECK_FAILS(parse_json("1e999", "config.json"), "FORMAT", "config.json:1:");
}

TEST_CASE("duplicate keys, deep nesting and large texts are refused") {
  CHECK_FAILS(parse_json(R"({"a": 1, "b": {"a": 1, "a": 2}})", "x"), "FORMAT", "x: the key 'a'",
              "twice");
  CHECK_NOTHROW(parse_json(R"({"a": {"a": 1}, "b": {"a": 1}})", "x"));
  CHECK_FAILS(parse_json(std::string(100000, '['), "x"), "FORMAT", "nested deeper than 128");
  CHECK_FAILS(parse_json("[[[]]]", "x", {.depth = 2}), "FORMAT", "nested deeper than 2");
  CHECK_FAILS(parse_json("[1, 2]", "x", {.bytes = 5}), "FORMAT", "more than the allowed 5 bytes");
}

TEST_CASE("files that cannot be read say so") {
  const ScratchFolder folder;
  CHECK_FAILS(read_json_file(folder / "none.json"), "NOT_FOUND", "none.json");
  CHECK_FAILS(read_json_file(folder.path()), "IO", "is a folder");
  write_file(folder / "big.json", "[" + std::string(100, ' ') + "]");
  CHECK_FAILS(read_json_file(folder / "big.json", {.bytes = 50}), "FORMAT",
              "more than the allowed");
  write_file(folder / "good.json", "{\"b\": [1], \"a\": null}");
  CHECK(python_json(read_json_file(folder / "good.json")) == "{\"b\": [1], \"a\": null}");
}
