// SPDX-License-Identifier: Apache-2.0
// TOML that a parser would answer with a stack overflow: refused before it gets there, wherever it
// hides, and nothing else is.
#include <frt/core/plugin.hpp>

#include <random>

#include "manifest_fixture.hpp"
#include "util/toml_bounds.hpp"

using namespace frt::core;
using test::has;
using test::ManifestFixture;

namespace {

std::string repeated(std::string_view part, std::size_t count) {
  std::string text;
  for (std::size_t i = 0; i < count; ++i) text += part;
  return text;
}

constexpr std::size_t kMany = 50000;

}  // namespace

TEST_CASE("a manifest with 50,000 dotted keys, tables or brackets is refused with its place") {
  for (const std::string& text : {
           "schema = 1\n" + repeated("a.", kMany) + "b = 1\n",
           "schema = 1\n" + repeated("a . ", kMany) + "b = 1\n",
           "schema = 1\n" + repeated("\"a\".", kMany) + "b = 1\n",
           "schema = 1\n[" + repeated("a.", kMany) + "b]\n",
           "schema = 1\n[[" + repeated("a.", kMany) + "b]]\n",
           "schema = 1\nx-a = {" + repeated("a.", kMany) + "b = 1}\n",
           "schema = 1\nx-a = " + repeated("[", kMany) + repeated("]", kMany) + "\n",
           "schema = 1\nx-a = " + repeated("{a=", kMany) + "1" + repeated("}", kMany) + "\n",
       }) {
    CAPTURE(text.substr(0, 40));
    ManifestFixture fixture;
    const auto findings = fixture.findings(text);
    REQUIRE(findings.size() == 1);
    CHECK(findings[0].code == FRT_ERR_OUT_OF_RANGE);
    CHECK(findings[0].position.line == 2);
    CHECK(findings[0].position.column > 16);
    CHECK(findings[0].position.column < 160);
    CHECK(has(findings[0].message, "is it the right file?"));
  }
}

TEST_CASE("a card with 30,000 dotted keys is refused") {
  const std::string card = "id = \"acme.fast\"\n" + repeated("a.", 30000) + "b = 1\n";
  CHECK_THROWS_WITH_AS(parse_card(card, "test"), doctest::Contains("more than 32 parts"),
                       frt::Error);
}

TEST_CASE("long names cannot hide behind strings or comments") {
  const std::string name = repeated("a.", 40) + "b=1";
  for (const std::string before :
       {"x='''a''''\n", "x=['''a'''', {", "x='''a'''''\n", "x=\"\"\"a\"\"\"\"\n", "x=\"\\\"\"\n",
        "x=\"\\\\\"\n", "x=''\n", "x=\"\"\n", "x=\"\"\"\\\"\"\"\"\n", "x='\\'\n", "# ' \" '''\n",
        "x='\n", "x=\"\n"}) {
    CAPTURE(before);
    CHECK(find_toml_excess(before + name).has_value());
  }
}

TEST_CASE("dots and brackets inside strings and comments count for nothing") {
  const std::string dots(100, '.'), brackets(100, '[');
  for (const std::string quote : {"'", "\"", "'''", "\"\"\""}) {
    CAPTURE(quote);
    CHECK_FALSE(find_toml_excess("x = " + quote + dots + brackets + quote + "\n"));
  }
  CHECK_FALSE(find_toml_excess("# " + dots + brackets + "\nx = 1\n"));
  CHECK_FALSE(find_toml_excess("x = '''\n" + dots + "\n" + brackets + "'''\n"));
  CHECK_FALSE(find_toml_excess("x = \"a\\\"" + dots + "\"\n"));
  CHECK_FALSE(
      find_toml_excess("x = [" + repeated("1.5, ", 100) + "]\n" + repeated("y.z = 1\n", 99)));
}

TEST_CASE("names and nesting up to the limits are parsed") {
  ManifestFixture fixture;
  const std::string parts = repeated("a.", kTomlParts - 2) + "a";
  fixture.parse("schema = 1\nx-a." + parts + " = 1\n");
  CHECK(fixture.findings("schema = 1\nx-a.b." + parts + " = 1\n").size() == 1);
  fixture.parse("schema = 1\nx-a = " + repeated("[", kTomlNesting) + repeated("]", kTomlNesting));
  const std::string level = "{" + repeated("a.", kTomlParts - 1) + "a = ";
  fixture.parse("schema = 1\nx-a = " + repeated(level, kTomlNesting) + "1" +
                repeated("}", kTomlNesting));
}

TEST_CASE("whatever a text hides, it is refused or a tree without a crash") {
  static const std::string kPieces[] = {"a.", "[", "]", "{",  "}", "'", "\"", "'''",      "\"\"\"",
                                        "\\", "=", ",", "\n", "#", "1", " ",  "\xc3\xa4", "b"};
  std::mt19937_64 random(3);
  for (int round = 0; round < 20000; ++round) {
    std::string text;
    for (std::size_t i = random() % 30; i > 0; --i) {
      const std::string& piece = kPieces[random() % std::size(kPieces)];
      text += random() % 12 == 0 ? repeated(piece, 40) : piece;
    }
    ManifestFixture fixture;
    try {
      fixture.parse("schema = 1\n" + text);
    } catch (const frt::Error&) {
    }
  }
}
