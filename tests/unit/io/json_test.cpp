// SPDX-License-Identifier: Apache-2.0
#include <frt/io/json.hpp>
#include <frt/io/json_text.hpp>

#include <random>

#include "cases.hpp"
#include "nested_json.hpp"
#include "test_support.hpp"

using namespace frt::io;
using namespace frt::io::test;

namespace {

std::string nested(std::size_t levels) {
  return std::string(levels, '[') + std::string(levels, ']');
}

}  // namespace

TEST_CASE("integers of any size keep their digits") {
  const Json value = parse_json("[123456789012345678901234567890, 7, -7, 1.5]", "value");
  CHECK(value[0].is_binary());
  CHECK(value[0].get_binary().subtype() == kBigInteger);
  CHECK(value[1].is_number_unsigned());
  CHECK(value[2].is_number_integer());
  CHECK(value[3].is_number_float());
}

TEST_CASE("a text that was read is written again with every digit") {
  const std::string text =
      R"({"b":[123456789012345678901234567890,-123456789012345678901234567890,7,-7,1.5,1e+300],)"
      R"("a":{"x":null,"y":true,"z":"\u0001\"ü"},"c":[],"d":{}})";
  CHECK(json_text(parse_json(text, "x")) == text);
  CHECK(json_text(parse_json(R"({"a":[1,{}],"b":{"c":2}})", "x"), {.indent = 2}) ==
        "{\n  \"a\": [\n    1,\n    {}\n  ],\n  \"b\": {\n    \"c\": 2\n  }\n}");
}

TEST_CASE("what is no JSON text is refused by the writer") {
  CHECK_FAILS(json_text(Json::binary({1, 2})), "INVALID_ARGUMENT", "binary");
  CHECK_FAILS(json_text(Json::binary({1, 2}, 7)), "INVALID_ARGUMENT", "binary");
  CHECK_FAILS(json_text(Json{{"a", "b\xff"}}), "INVALID_ARGUMENT", "UTF-8");
  CHECK_FAILS(json_text(Json{{"b\xff", 1}}), "INVALID_ARGUMENT", "UTF-8");
  CHECK(json_text(Json("b\xff"), {.bad = BadUtf8::kReplace}) == "\"b\uFFFD\"");
  Json deep = 1;
  for (int i = 0; i < 600; ++i) deep = Json::array({std::move(deep)});
  CHECK_FAILS(json_text(deep), "INVALID_ARGUMENT", "nested deeper than 512");
}

TEST_CASE("objects keep the order of their keys") {
  const Json value = parse_json(R"({"b": {"z": 1, "a": [true, null]}, "a": "text"})", "value");
  CHECK(value.dump() == R"({"b":{"z":1,"a":[true,null]},"a":"text"})");
}

TEST_CASE("syntax errors name file, line and column") {
  CHECK_FAILS(parse_json("{\n  \"a\": 1,\n  \"b\": tru\n}", "config.json"), "FORMAT",
              "config.json:3:1");
  CHECK_FAILS(parse_json("", "config.json"), "FORMAT", "config.json:1:1");
  CHECK_FAILS(parse_json("[1] x", "config.json"), "FORMAT", "config.json:1:5");
  CHECK_FAILS(parse_json("\"\xff\"", "config.json"), "FORMAT", "config.json:1:2", "UTF-8");
  CHECK_FAILS(parse_json("1e999", "config.json"), "FORMAT", "config.json:1:");
  CHECK_FAILS(parse_json(std::string("[1]\0[", 5), "config.json"), "FORMAT", "a zero byte");
}

TEST_CASE("duplicate keys, deep nesting, many values and large texts are refused") {
  CHECK_FAILS(parse_json(R"({"a": 1, "b": {"a": 1, "a": 2}})", "x"), "FORMAT", "x: the key 'a'",
              "twice");
  CHECK_NOTHROW(parse_json(R"({"a": {"a": 1}, "b": {"a": 1}})", "x"));
  CHECK_NOTHROW(parse_json(nested(128), "x"));
  CHECK_FAILS(parse_json(nested(129), "x"), "FORMAT", "nested deeper than 128");
  CHECK_FAILS(parse_json("[[[]]]", "x", {.depth = 2}), "FORMAT", "nested deeper than 2");
  CHECK_FAILS(parse_json("[1, 2]", "x", {.bytes = 5}), "FORMAT", "more than the allowed 5 bytes");
  CHECK_NOTHROW(parse_json(R"([1, {"a": 2}])", "x", {.values = 4}));
  CHECK_FAILS(parse_json(R"([1, {"a": [2]}])", "x", {.values = 4}), "FORMAT",
              "more than the allowed 4 values");
}

TEST_CASE("texts of any depth and with any damage are read, and then written as read, or refused") {
  std::mt19937_64 random(5);
  const uint64_t cases = frt::test::number_from("FRT_MUTATIONS", 2000);
  uint64_t read = 0;
  for (uint64_t i = 0; i < cases; ++i) {
    CAPTURE(i);
    const std::string text = frt::test::nested_json(random, i % 50 == 0 ? 100'000 : 150);
    try {
      const Json value = parse_json(text, "x");
      ++read;
      const std::string written = json_text(value);
      CHECK(json_text(parse_json(written, "y")) == written);
    } catch (const frt::Error& error) {
      CHECK(error.status() == FRT_ERR_FORMAT);
    }
  }
  CHECK(read > cases / 10);
  CHECK(read < cases);
}

TEST_CASE("millions of levels or values are an error and no crash") {
  for (const std::size_t levels : {300'000, 2'000'000}) {
    std::string objects;
    for (std::size_t i = 0; i < levels; ++i) objects += R"({"a":)";
    CHECK_FAILS(parse_json(nested(levels), "x"), "FORMAT", "nested deeper than 128");
    CHECK_FAILS(parse_json(objects, "x"), "FORMAT", "nested deeper than 128");
  }
  std::string flat = "[0";
  for (int i = 0; i < 2'000'000; ++i) flat += ",0";
  CHECK_FAILS(parse_json(flat + "]", "x"), "FORMAT", "more than the allowed 1048576 values");
}

TEST_CASE("a value at the limit of depth can be copied, compared, printed and moved") {
  const Json value = parse_json(nested(128), "x");
  const Json copy = value;
  CHECK(copy == value);
  CHECK(copy.dump() == nested(128));
}

TEST_CASE("files that cannot be read say so") {
  const Folder folder;
  CHECK_FAILS(read_json_file(folder / "none.json"), "NOT_FOUND", "none.json");
  CHECK_FAILS(read_json_file(folder.path()), "IO", "is a folder");
  write(folder / "big.json", "[" + std::string(100, ' ') + "]");
  CHECK_FAILS(read_json_file(folder / "big.json", {.bytes = 50}), "OUT_OF_RANGE", "big.json",
              "larger than 50 bytes");
  write(folder / "good.json", "{\"b\": [1], \"a\": null}");
  CHECK(read_json_file(folder / "good.json").dump() == R"({"b":[1],"a":null})");
}
