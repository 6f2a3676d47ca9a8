// SPDX-License-Identifier: Apache-2.0
#include <frt/io/json.hpp>
#include <frt/io/json_lexer.hpp>
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

namespace {

// Read by the library alone; discarded: it refuses the text.
Json by_library(const std::string& text) {
  return Json::parse(text, nullptr, false);
}

void check_as_library(const std::string& text) {
  CAPTURE(text.substr(0, 200));
  const Json expected = by_library(text);
  try {
    const Json value = parse_json(text, "x");
    CHECK(value == expected);
    CHECK(json_text(value) == expected.dump());
  } catch (const frt::Error& error) {
    const std::string_view said = error.what();
    const bool ours = said.find("stands twice") != said.npos ||
                      said.find("nested deeper") != said.npos ||
                      said.find("a zero byte") != said.npos;
    CHECK((ours || expected.is_discarded()));
  }
}

}  // namespace

TEST_CASE("each form of a value is read, or refused, as the library does it") {
  const std::string zeros(400, '0');
  for (const std::string& text : std::vector<std::string>{"0",
                                                          "-0",
                                                          "7",
                                                          "-7",
                                                          "1e5",
                                                          "1E+5",
                                                          "-1.5e-3",
                                                          "0.1",
                                                          "5e-324",
                                                          "1e-999",
                                                          "-1e-999",
                                                          "1.7976931348623157e308",
                                                          "1e309",
                                                          "-1e999",
                                                          "1e99999999999999999999",
                                                          "1e-99999999999999999999",
                                                          "0." + zeros + "1",
                                                          "0." + zeros + "1e500",
                                                          "1" + zeros + "e-400",
                                                          "1" + zeros + ".5",
                                                          "01",
                                                          "-",
                                                          "-a",
                                                          "1.",
                                                          "1.e3",
                                                          "1e",
                                                          "1e+",
                                                          ".5",
                                                          "+1",
                                                          "0x1",
                                                          "1 2",
                                                          "nul",
                                                          "nulll",
                                                          "true",
                                                          "truex",
                                                          "fals",
                                                          "false",
                                                          "",
                                                          " ",
                                                          "[",
                                                          "]",
                                                          "[1,]",
                                                          "[,1]",
                                                          "[1 2]",
                                                          "[1}",
                                                          "{",
                                                          "{}",
                                                          "[ ]",
                                                          "{\"a\":1,}",
                                                          "{a:1}",
                                                          "{\"a\" 1}",
                                                          "{\"a\":}",
                                                          "{\"a\"}",
                                                          "{,}",
                                                          "{1:2}",
                                                          "[[],{},[{}]] ",
                                                          "\t\r\n [1]",
                                                          "\v1",
                                                          R"("")",
                                                          R"("a)",
                                                          R"(")",
                                                          R"("\)",
                                                          R"("\")",
                                                          R"("\"\\\/\b\f\n\r\t")",
                                                          R"("\a")",
                                                          R"("\u")",
                                                          R"("\u12")",
                                                          R"("\u00e9")",
                                                          R"("\u00E9x")",
                                                          R"("\u00g0")",
                                                          R"("\u-123")",
                                                          R"("\ud83d\ude00")",
                                                          R"("\ud83d")",
                                                          R"("\ud83dx")",
                                                          R"("\ud83d\n")",
                                                          R"("\ud83d\ud83d")",
                                                          R"("\ude00")",
                                                          R"("\u0000")",
                                                          "\"\t\"",
                                                          "\"\x1f\"",
                                                          "\"\x7f\"",
                                                          "\"\xc3\xa9\"",
                                                          "\"\xc3\"",
                                                          "\"\xed\xa0\x80\"",
                                                          "\"\xf4\x90\x80\x80\"",
                                                          "\xEF\xBB\xBF[1]",
                                                          "\xEF\xBB\xBF",
                                                          "\xEF\xBB[1]",
                                                          "[\xEF\xBB\xBF]"}) {
    check_as_library(text);
  }
}

TEST_CASE("texts with any damage are read, or refused, as the library does it") {
  std::mt19937_64 random(6);
  const uint64_t cases = frt::test::number_from("FRT_MUTATIONS", 2000);
  for (uint64_t i = 0; i < cases; ++i) {
    CAPTURE(i);
    const std::string text = frt::test::nested_json(random, 100);
    // An integer beyond 64 bits is a double to the library.
    std::size_t digits = 0, most = 0;
    for (const char c : text) most = std::max(most, digits = c >= '0' && c <= '9' ? digits + 1 : 0);
    if (most < 19) check_as_library(text);
  }
}

TEST_CASE("strings of any bytes are written as the library writes them") {
  std::mt19937_64 random(7);
  for (int i = 0; i < 5000; ++i) {
    std::string text(random() % 40, 'a');
    for (char& c : text) {
      if (random() % 4 == 0) c = static_cast<char>(random() % 256);
    }
    const Json value = {{text, text}};
    CHECK(json_text(value, {.bad = BadUtf8::kReplace}) ==
          value.dump(-1, ' ', false, Json::error_handler_t::replace));
  }
}

TEST_CASE("every byte that does not stand in a string as it is ends the run of those that do") {
  for (int byte = 0; byte < 256; ++byte) {
    const bool plain = byte >= 0x20 && byte < 0x80 && byte != '"' && byte != '\\';
    for (std::size_t at = 0; at < 20; ++at) {
      std::string text(20, 'x');
      text[at] = static_cast<char>(byte);
      CHECK(plain_json_bytes(text) == (plain ? text.size() : at));
    }
  }
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
