// SPDX-License-Identifier: Apache-2.0
// Grammars against the plainest thing that can be said of them: every sequence of tokens is tried.
#include <algorithm>
#include <chrono>
#include <ctime>
#include <map>
#include <random>
#include <regex>
#include <set>

#include "grammar_world.hpp"
#include "lm/grammar/schema.hpp"

namespace {

using namespace frt::test;
using frt::host::enforceable_schema;
using frt::host::Grammar;
using frt::host::GrammarMatcher;
using frt::host::GrammarPart;
using frt::host::GrammarTool;
using frt::host::relaxed_schema;

// What the masks of a grammar let a model write, up to so many tokens: texts that are complete.
// Every mask on the way is compared with what accept() says of each token.
void walk(GrammarMatcher& matcher, const Texts& vocabulary, std::size_t tokens,
          const std::string& text, std::set<std::string>& complete) {
  if (matcher.complete()) complete.insert(text);
  std::vector<uint32_t> mask = mask_for(vocabulary);
  const bool more = matcher.fill(mask);
  CHECK(more == std::ranges::any_of(mask, [](uint32_t word) { return word != 0; }));
  if (tokens == 0) return;
  for (std::size_t id = 0; id < vocabulary.size(); ++id) {
    const bool accepted = matcher.accept(static_cast<int32_t>(id));
    REQUIRE(accepted == allows(mask, id));
    if (!accepted) continue;
    walk(matcher, vocabulary, tokens - 1, text + vocabulary[id], complete);
    matcher.rollback(1);
  }
}

// All texts of up to `tokens` tokens that `fits` says yes to.
std::set<std::string> brute_force(const Texts& vocabulary, std::size_t tokens,
                                  const std::function<bool(const std::string&)>& fits) {
  std::set<std::string> found, level = {""};
  for (std::size_t i = 0;; ++i) {
    std::set<std::string> next;
    for (const std::string& text : level) {
      if (fits(text)) found.insert(text);
      if (i == tokens) continue;
      for (const std::string& token : vocabulary) {
        if (!token.empty()) next.insert(text + token);
      }
    }
    if (i == tokens) return found;
    level.swap(next);
  }
}

frt_error failure_of(const std::function<void()>& work) {
  frt_error error{};
  frt::guard(&error, work);
  return error;
}

}  // namespace

TEST_CASE("the masks of a regular expression let exactly its texts be written") {
  const Texts vocabulary = {"a", "b", "c", "ab", "bc", "cab", ""};
  for (const char* pattern : {"(a|bb){1,3}", "[ab]*c", "(ab)+c?", "a?b?c?a?", "(a|ab)(c|bcd?)",
                              "c{2,4}", "[^a]b*", "((a|b)(b|c))*", "a"}) {
    CAPTURE(pattern);
    const auto grammar = compiled(vocabulary, source_of(GrammarPart::regex(pattern)));
    std::set<std::string> written;
    walk(*grammar->matcher(), vocabulary, 5, "", written);
    const std::regex oracle(pattern);
    CHECK(written == brute_force(vocabulary, 5, [&](const std::string& text) {
            return std::regex_match(text, oracle);
          }));
  }
}

TEST_CASE("the masks of JSON let exactly JSON objects be written") {
  const Texts vocabulary = {"{", "}", "[", "]", ",", ":", "\"a\"", "\"", "1", "true", "\":", ""};
  const auto grammar = compiled(vocabulary, source_of(GrammarPart::json_object()));
  std::set<std::string> written;
  walk(*grammar->matcher(), vocabulary, 6, "", written);
  CHECK(written.contains(R"({"a":[]})"));
  CHECK(written == brute_force(vocabulary, 6, [](const std::string& text) {
          return text.starts_with('{') && Json::accept(text);
        }));
}

TEST_CASE("the masks of EBNF let exactly its texts be written") {
  const Texts vocabulary = {"(", ")", "x", "()", ""};
  const auto grammar =
      compiled(vocabulary, source_of(GrammarPart::ebnf("root ::= \"(\" root \")\" | \"x\"")));
  std::set<std::string> written;
  walk(*grammar->matcher(), vocabulary, 5, "", written);
  CHECK(written == std::set<std::string>{"x", "(x)", "((x))"});
}

TEST_CASE("one of several texts is written, whatever their tokens") {
  const Texts vocabulary = {"y", "e", "s", "no", "n", "o", "ye"};
  const auto grammar =
      compiled(vocabulary, source_of(GrammarPart::one_of(Texts{"yes", "no", "yesno"})));
  std::set<std::string> written;
  walk(*grammar->matcher(), vocabulary, 5, "", written);
  CHECK(written == std::set<std::string>{"yes", "no", "yesno"});
}

TEST_CASE("a fork goes on by itself, and a rollback is exact") {
  const Texts vocabulary = byte_vocabulary({"\"", "{\"", "\":", ", ", "true"});
  const auto grammar = compiled(vocabulary, source_of(GrammarPart::json_object()));
  std::mt19937 random(7);
  const auto matcher = grammar->matcher();
  std::vector<std::vector<uint32_t>> masks;
  std::vector<int32_t> taken;
  for (int step = 0; step < 200; ++step) {
    std::vector<uint32_t> mask = mask_for(vocabulary);
    if (!matcher->fill(mask)) break;
    masks.push_back(mask);
    std::vector<int32_t> allowed;
    for (std::size_t id = 0; id < vocabulary.size(); ++id) {
      if (allows(mask, id)) allowed.push_back(static_cast<int32_t>(id));
    }
    const auto other = matcher->fork();
    taken.push_back(allowed[random() % allowed.size()]);
    REQUIRE(other->accept(allowed[random() % allowed.size()]));
    REQUIRE(matcher->accept(taken.back()));
    if (random() % 4 == 0) {
      const auto back = static_cast<uint32_t>(1 + random() % taken.size());
      matcher->rollback(back);
      std::vector<uint32_t> again = mask_for(vocabulary);
      matcher->fill(again);
      CHECK(again == masks[masks.size() - back]);
      taken.resize(taken.size() - back);
      masks.resize(masks.size() - back);
    }
  }
}

TEST_CASE("tokens without bytes never come, and bits behind the vocabulary are 0") {
  Texts vocabulary = byte_vocabulary();
  vocabulary.resize(300);
  const auto grammar = compiled(vocabulary, source_of(GrammarPart::regex(".*")));
  std::vector<uint32_t> mask(16, ~0U);
  CHECK(grammar->matcher()->fill(mask));
  for (std::size_t id = 256; id < 512; ++id) CHECK_FALSE(allows(mask, id));
  CHECK(allows(mask, 'x'));
}

TEST_CASE("a text that no token can go on with is an error") {
  const Texts vocabulary = {"a", "b"};
  const auto grammar = compiled(vocabulary, source_of(GrammarPart::regex("ac")));
  const auto matcher = grammar->matcher();
  std::vector<uint32_t> mask = mask_for(vocabulary);
  CHECK(matcher->fill(mask));
  REQUIRE(matcher->accept(0));
  CHECK(failure_of([&] { matcher->fill(mask); }).code == FRT_ERR_INVALID_ARGUMENT);
}

// ---- reasoning and calls -------------------------------------------------------------------

namespace {

const Json kForm = Json::parse(R"({"begin": ["<call>\n<f=", ">\n"],
  "parameter": ["<p=", ">\n", "\n</p>\n"], "end": "</f>\n</call>", "separator": "\n"})");

GrammarTool weather(bool strict = false) {
  return {"weather", Json::parse(R"({"type": "object", "properties": {
      "city": {"type": "string"}, "days": {"type": "integer"},
      "unit": {"$ref": "#/$defs/unit"}, "place": {"$ref": "#/$defs/place"}},
      "required": ["city"], "$defs": {"unit": {"enum": ["C", "F"]},
      "place": {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}}})"),
          strict};
}

}  // namespace

TEST_CASE("an answer that begins within reasoning has free text before the grammar") {
  const auto grammar = compiled(
      byte_vocabulary(), GrammarPart::regex("[0-9]+").source(
                             Json::parse(R"({"reasoning": {"end": "</think>", "then": "\n\n"}})")));
  CHECK(takes(*grammar, "So 2 < 3.\n</think>\n\n42"));
  CHECK(takes(*grammar, "</think>\n\n42"));
  CHECK_FALSE(takes(*grammar, "42"));
  CHECK_FALSE(takes(*grammar, "</think>\n\nx"));
  CHECK_FALSE(takes(*grammar, "</think>42"));
}

TEST_CASE("calls with values between tags") {
  const std::vector<GrammarTool> tools = {weather(), {"now", {}, false}};
  const auto several =
      compiled(byte_vocabulary(), source_of(GrammarPart::calls(kForm, tools, true)));
  const std::string oslo = "<call>\n<f=weather>\n<p=city>\nOslo <b>\n</p>\n</f>\n</call>";
  const std::string now = "<call>\n<f=now>\n</f>\n</call>";
  CHECK(takes(*several, oslo));
  CHECK(takes(*several, now));
  CHECK(takes(*several, oslo + "\n" + now));
  CHECK(takes(*several,
              "<call>\n<f=weather>\n<p=city>\nx\n</p>\n<p=days>\n3\n</p>\n<p=unit>\nC\n"
              "</p>\n<p=place>\n{\"x\": 1}\n</p>\n</f>\n</call>"));
  CHECK_FALSE(takes(*several, ""));
  CHECK_FALSE(takes(*several, "I look. " + oslo));
  CHECK_FALSE(takes(*several, oslo + "\n"));
  CHECK_FALSE(takes(*several, "<call>\n<f=none>\n</f>\n</call>"));
  CHECK_FALSE(takes(*several, "<call>\n<f=weather>\n</f>\n</call>"));  // city is required
  CHECK_FALSE(takes(*several, "<call>\n<f=weather>\n<p=city>\nx\n</p>\n<p=days>\nmany\n</p>\n"));
  CHECK_FALSE(takes(*several, "<call>\n<f=weather>\n<p=city>\nx\n</p>\n<p=unit>\nK\n</p>\n"));

  const auto one = compiled(byte_vocabulary(), source_of(GrammarPart::calls(kForm, tools, false)));
  CHECK(takes(*one, oslo));
  CHECK_FALSE(takes(*one, oslo + "\n" + now));
}

namespace {

// The body of a call of `weather` whose only parameter is `p`.
std::string with_value(const std::string& value) {
  return "<call>\n<f=weather>\n<p=p>\n" + value + "\n</p>\n</f>\n</call>";
}

GrammarTool tool_of(const std::string& schema, bool strict) {
  const Json value = Json::parse(schema);
  return {
      "weather", {{"type", "object"}, {"properties", {{"p", value}}}, {"required", {"p"}}}, strict};
}

}  // namespace

TEST_CASE("values between tags are held to a strict schema, or it is refused with the place") {
  struct Case {
    std::string schema;
    Texts fit, miss;
  };
  const std::vector<Case> cases = {
      {R"({"type": "string"})", {"", "any <b>\ntext"}, {}},
      {R"({"type": "string", "pattern": "^[A-Z]{3}$"})", {"ABC"}, {"", "AB", "ABCD"}},
      {R"({"type": "string", "maxLength": 3})", {"", "abc", "\xc3\xa9\xc3\xa9"}, {"abcd"}},
      {R"({"type": "string", "minLength": 2})", {"ab", "abc def"}, {"", "a"}},
      {R"({"type": ["string", "null"], "minLength": 2, "maxLength": 5})", {"ab"}, {"a", "abcdef"}},
      {R"({"type": ["string", "null"], "enum": ["x", null]})", {"\"x\"", "null"}, {"y", "\"y\""}},
      {R"({"type": "string", "enum": ["x", ""]})", {"x", ""}, {"y"}},
      {R"({"const": "x"})", {"x"}, {"y", ""}},
      {R"({"const": 5})", {"5"}, {"6", "x"}},
      {R"({"anyOf": [{"const": "x"}, {"type": "string", "pattern": "[0-9]+"}, {"type": "null"}]})",
       {"x", "12"},
       {"y", ""}},
      {R"({"oneOf": [{"enum": ["a", "b"]}, {"anyOf": [{"const": "c"}]}]})", {"a", "c"}, {"d"}},
      {R"({"anyOf": [{"const": "x"}, {"type": "string"}]})", {"x", "any"}, {}},
      {R"({"allOf": [{"type": "string", "maxLength": 1}]})", {"a"}, {"ab"}},
      {R"({"allOf": [{"type": "integer"}]})", {"12"}, {"a"}},
  };
  for (const Case& each : cases) {
    CAPTURE(each.schema);
    const std::vector<GrammarTool> tools = {tool_of(each.schema, true)};
    const auto grammar =
        compiled(byte_vocabulary(), source_of(GrammarPart::calls(kForm, tools, true)));
    for (const std::string& value : each.fit) {
      CAPTURE(value);
      CHECK(takes(*grammar, with_value(value)));
    }
    for (const std::string& value : each.miss) {
      CAPTURE(value);
      CHECK_FALSE(takes(*grammar, with_value(value)));
    }
  }
  const std::pair<const char*, const char*> refused[] = {
      {R"({"type": "string", "format": "date"})", "/properties/p/format"},
      {R"({"type": "string", "pattern": "a+", "maxLength": 3})", "/properties/p/pattern"},
      {R"({"type": "string", "minLength": -1})", "/properties/p/minLength"},
      {R"({"allOf": [{"type": "string"}, {"type": "string", "maxLength": 3}]})",
       "/properties/p/allOf"},
      {R"({"anyOf": [{"type": "string", "format": "date"}]})", "/properties/p/anyOf/0/format"},
  };
  for (const auto& one : refused) {
    const char *const schema = one.first, *const place = one.second;
    CAPTURE(std::string(schema));
    const std::vector<GrammarTool> tools = {tool_of(schema, true)};
    const frt_error error = failure_of([&] { GrammarPart::calls(kForm, tools, true); });
    CHECK(error.code == FRT_ERR_INVALID_ARGUMENT);
    CHECK(std::string(error.message).find(place) != std::string::npos);
    const std::vector<GrammarTool> relaxed = {tool_of(schema, false)};
    CHECK(failure_of([&] { GrammarPart::calls(kForm, relaxed, true); }).code == FRT_OK);
  }
}

TEST_CASE("a tool that declares no parameters takes any, but where it says that it has none") {
  const auto takes_with = [](const std::string& schema, bool strict,
                             const std::string& parameters) {
    const std::vector<GrammarTool> tools = {{"f", Json::parse(schema), strict}};
    const auto grammar =
        compiled(byte_vocabulary(), source_of(GrammarPart::calls(kForm, tools, true)));
    return takes(*grammar, "<call>\n<f=f>\n" + parameters + "</f>\n</call>");
  };
  const std::string two = "<p=a>\nsome text\n</p>\n<p=b_2>\n12\n</p>\n";
  for (const bool strict : {false, true}) {
    CAPTURE(strict);
    for (const char* open :
         {R"({"type": "object"})", R"({"type": "object", "additionalProperties": true})",
          R"({"type": "object", "properties": {}, "additionalProperties": true})"}) {
      CAPTURE(std::string(open));
      CHECK(takes_with(open, strict, ""));
      CHECK(takes_with(open, strict, two));
      CHECK_FALSE(takes_with(open, strict, "<p=>\nx\n</p>\n"));
    }
    for (const char* none : {R"({"type": "object", "properties": {}})",
                             R"({"type": "object", "additionalProperties": false})"}) {
      CAPTURE(std::string(none));
      CHECK(takes_with(none, strict, ""));
      CHECK_FALSE(takes_with(none, strict, two));
    }
    const char* numbers = R"({"type": "object", "additionalProperties": {"type": "integer"}})";
    CHECK(takes_with(numbers, strict, "<p=a>\n12\n</p>\n"));
    CHECK_FALSE(takes_with(numbers, strict, two));
  }
}

TEST_CASE("a schema of many parameters is read in time that grows with them, and is bounded") {
  const auto schema_of = [](std::size_t count) {
    Json properties = Json::object(), required = Json::array();
    for (std::size_t i = 0; i < count; ++i) {
      const std::string name = "parameter_" + std::to_string(i);
      properties.get_ref<Json::object_t&>().emplace_back(name, Json{{"type", "string"}});
      required.push_back(name);
    }
    return Json{{"type", "object"},
                {"properties", properties},
                {"required", required},
                {"$defs", properties}};
  };
  // Seconds of this thread's processor, whatever else the machine does.
  const auto read = [](const Json& schema, std::size_t count) {
    const auto now = [] {
      timespec time{};
      clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
      return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
    };
    const double began = now();
    CHECK(relaxed_schema(schema)["required"].size() == count);
    CHECK(enforceable_schema(schema)["properties"].size() == count);
    return now() - began;
  };
  const Json schema = schema_of(100'000);
  const double few = read(schema_of(10'000), 10'000), many = read(schema, 100'000);
  MESSAGE("10,000 parameters: " << few << " s, 100,000: " << many << " s");
  CHECK(many < 40 * few);  // ten times where it is linear, a hundred where it is quadratic
  const std::vector<GrammarTool> tools = {{"f", schema, false}};
  CHECK(failure_of([&] { GrammarPart::calls(kForm, tools, true); }).code ==
        FRT_ERR_INVALID_ARGUMENT);
}

TEST_CASE("calls whose arguments are one JSON object") {
  const Json form = Json::parse(
      R"({"begin": ["{\"name\": \"", "\", \"parameters\": "], "end": "}", "separator": "; "})");
  const std::vector<GrammarTool> tools = {weather(true)};
  const auto grammar =
      compiled(byte_vocabulary(), source_of(GrammarPart::calls(form, tools, true)));
  CHECK(takes(*grammar, R"({"name": "weather", "parameters": {"city": "Oslo", "days": 3}})"));
  CHECK(takes(*grammar, R"({"name": "weather", "parameters": {"city":"a"}}; )"
                        R"({"name": "weather", "parameters": {"city":"b","unit":"F"}})"));
  CHECK_FALSE(takes(*grammar, R"({"name": "weather", "parameters": {"days": 3}})"));
}

TEST_CASE("calls may stand within free text, and are whole then") {
  const std::vector<GrammarTool> tools = {weather(true)};
  const auto grammar =
      compiled(byte_vocabulary(), source_of(GrammarPart::text_with_calls(kForm, tools, true)));
  const std::string oslo = "<call>\n<f=weather>\n<p=city>\nOslo\n</p>\n</f>\n</call>";
  CHECK(takes(*grammar, "No tools."));
  CHECK(takes(*grammar, "I look. " + oslo));
  CHECK_FALSE(takes(*grammar, "I look. <call>\n<f=none>\n</f>\n</call>"));
  CHECK_FALSE(takes(*grammar, "I look. <call>\n<f=weather>\n</f>"));
}

TEST_CASE("an answer may be either of two") {
  const std::vector<GrammarTool> tools = {weather()};
  const auto grammar = compiled(
      byte_vocabulary(), source_of(GrammarPart::either(GrammarPart::json_object(),
                                                       GrammarPart::calls(kForm, tools, true))));
  CHECK(takes(*grammar, "{}"));
  CHECK(takes(*grammar, "<call>\n<f=weather>\n<p=city>\nOslo\n</p>\n</f>\n</call>"));
  CHECK_FALSE(takes(*grammar, "Oslo"));
}

// ---- schemas -------------------------------------------------------------------------------

TEST_CASE("a schema is held to the letter, or refused by its place") {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"type": "object", "properties": {"x": {"not": {}}}})", "/properties/x/not"},
      {R"({"type": "array", "uniqueItems": true})", "/uniqueItems"},
      {R"({"minLength": 3})", "/minLength"},
      {R"({"type": "string", "minimum": 3})", "/minimum"},
      {R"({"type": "text"})", "/type"},
      {R"({"type": []})", "/type"},
      {R"({"anyOf": [{}], "properties": {}})", "/properties"},
      {R"({"anyOf": []})", "/anyOf"},
      {R"({"enum": [1, 2], "type": "string"})", "/enum"},
      {R"({"const": 1, "type": "string"})", "/const"},
      {R"({"$ref": "#/$defs/none"})", "/$ref"},
      {R"({"$ref": "http://example.com/schema"})", "/$ref"},
      {R"({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}})", "/$defs/a/$ref"},
      {R"({"$defs": {"a": {"if": true}}})", "/$defs/a/if"},
      {R"({"type": "object", "required": ["x"]})", "/required"},
      {R"({"type": "string", "pattern": "a", "format": "date"})", "/format"},
      {R"({"type": "array", "items": [{}]})", "/items"},
      {R"({"type": "object", "properties": {"x": false}})", "/properties/x"},
      {R"({"dependentRequired": {}})", "/dependentRequired"},
  };
  for (const auto& entry : cases) {
    const Json schema = Json::parse(entry.first);
    CAPTURE(std::string(entry.first));
    const frt_error error = failure_of([&] { enforceable_schema(schema); });
    CHECK(error.code == FRT_ERR_INVALID_ARGUMENT);
    CHECK(std::string(error.message).substr(0, std::string(entry.second).size()) == entry.second);
  }
  // What only XGrammar knows that it does not enforce.
  for (const char* text :
       {R"({"type": "number", "multipleOf": 0.5})",
        R"({"type": "string", "pattern": "a+", "maxLength": 3})",
        R"({"allOf": [{"type": "string"}, {"minLength": 1, "type": "string"}]})"}) {
    CAPTURE(text);
    const auto part = GrammarPart::json_schema(Json::parse(text));
    CHECK(failure_of([&] { compiled(byte_vocabulary(), source_of(part)); }).code ==
          FRT_ERR_INVALID_ARGUMENT);
  }
}

TEST_CASE("values that fit a schema can be written, others cannot") {
  struct Case {
    const char* schema;
    Texts fit, miss;
  };
  const Case cases[] = {
      {R"({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}},
           "required": ["a"], "title": "T", "description": "d"})",
       {R"({"a": 1})", R"({"a":-20,"b":"x"})", "{\n  \"a\": 1\n}"},
       {"{}", R"({"b": "x"})", R"({"a": 1.5})", R"({"a": 1, "c": 2})"}},
      {R"({"type": "array", "items": {"type": "boolean"}, "minItems": 1, "maxItems": 2})",
       {"[true]", "[true, false]"},
       {"[]", "[true,true,true]", "[1]"}},
      {R"({"type": ["string", "null"], "maxLength": 2})", {"null", R"("ab")"}, {R"("abc")", "1"}},
      {R"({"enum": ["x", 1, null, {"a": 1}]})", {R"("x")", "1", "null"}, {R"("y")", "2"}},
      {R"({"enum": ["x", 1], "type": "string"})", {R"("x")"}, {"1"}},
      {R"({"const": "yes"})", {R"("yes")"}, {R"("no")"}},
      {R"({"type": "string", "pattern": "^[a-c]{2}$"})", {R"("ab")"}, {R"("a")", R"("ad")"}},
      {R"({"type": "integer", "minimum": 3, "maximum": 12})", {"3", "12", "7"}, {"2", "13", "1"}},
      {R"({"type": "object"})", {"{}", R"({"x": [1, {"y": null}]})"}, {"[]", "1"}},
      {R"({"type": "array"})", {"[]", R"([1, "a", {}])"}, {"{}"}},
      {R"({"$ref": "#/$defs/tree", "$defs": {"tree": {"type": "object", "properties": {
           "next": {"anyOf": [{"$ref": "#/$defs/tree"}, {"type": "null"}]}},
           "required": ["next"]}}})",
       {R"({"next": null})", R"({"next": {"next": null}})"},
       {"{}", R"({"next": 1})"}},
      {R"({"anyOf": [{"type": "integer"}, {"type": "string"}]})", {"1", R"("a")"}, {"true"}},
      {R"({"type": "object", "additionalProperties": {"type": "integer"}})",
       {"{}", R"({"x": 1, "y": 2})"},
       {R"({"x": "1"})"}},
  };
  for (const Case& each : cases) {
    CAPTURE(each.schema);
    const auto grammar =
        compiled(byte_vocabulary(), source_of(GrammarPart::json_schema(Json::parse(each.schema))));
    for (const std::string& text : each.fit) {
      CAPTURE(text);
      CHECK(takes(*grammar, text));
    }
    for (const std::string& text : each.miss) {
      CAPTURE(text);
      CHECK_FALSE(takes(*grammar, text));
    }
  }
}

TEST_CASE("a relaxed schema takes every value that the schema takes") {
  const Json schema = Json::parse(R"({"type": "object", "properties": {
      "s": {"type": "string", "minLength": 1, "maxLength": 5000, "pattern": "^x"},
      "t": {"type": "string", "maxLength": 4, "format": "date"},
      "l": {"type": "array", "items": {"type": "integer", "multipleOf": 3}, "maxItems": 1000},
      "n": {"not": {}}, "o": {"oneOf": [{"type": "string"}, {"type": "null"}]},
      "gone": false, "r": {"$ref": "other.json"}},
      "required": ["s", "gone"], "additionalProperties": false, "$schema": "x"})");
  const Json relaxed = relaxed_schema(schema);
  CHECK(relaxed["properties"]["s"] == Json{{"type", "string"}, {"minLength", 1}});
  CHECK(relaxed["properties"]["t"] == Json{{"type", "string"}, {"maxLength", 4}});
  CHECK(relaxed["properties"]["l"] == Json{{"type", "array"}, {"items", {{"type", "integer"}}}});
  CHECK(relaxed["properties"]["n"] == Json::object());
  CHECK(relaxed["properties"]["o"] == Json{{"anyOf", {{{"type", "string"}}, {{"type", "null"}}}}});
  CHECK_FALSE(relaxed["properties"].contains("gone"));
  CHECK(relaxed["required"] == Json{"s"});
  CHECK(relaxed_schema(Json(3)) == Json::object());
}

namespace {

// JSON that looks like a schema, with anything anywhere.
Json random_schema(std::mt19937& random, int depth) {
  static const char* kKeys[] = {"type",        "properties", "required",    "items",
                                "anyOf",       "allOf",      "oneOf",       "enum",
                                "const",       "$ref",       "$defs",       "minLength",
                                "maxItems",    "pattern",    "prefixItems", "additionalProperties",
                                "definitions", "minimum",    "a",           "propertyNames"};
  static const char* kTexts[] = {"string", "object", "array", "a", "#/$defs/a", "#", "#/", "#//a"};
  const auto draw = [&](std::size_t below) { return random() % below; };
  if (depth == 0 || draw(4) == 0) {
    const Json simple[] = {nullptr, true, false, 1, -2, 1.5, kTexts[draw(std::size(kTexts))]};
    return simple[draw(std::size(simple))];
  }
  Json value = draw(4) == 0 ? Json::array() : Json::object();
  for (std::size_t i = draw(5); i > 0; --i) {
    Json inner = random_schema(random, depth - 1);
    if (value.is_array()) {
      value.push_back(std::move(inner));
    } else {
      value[kKeys[draw(std::size(kKeys))]] = std::move(inner);
    }
  }
  return value;
}

}  // namespace

TEST_CASE("whatever is given as a schema is read or refused") {
  std::mt19937 random(3);
  int held = 0;
  for (int i = 0; i < 20'000; ++i) {
    const Json schema = random_schema(random, 4);
    CAPTURE(schema.dump());
    frt_error error{};
    const frt_status status = frt::guard(&error, [&] { enforceable_schema(schema); });
    CHECK((status == FRT_OK || status == FRT_ERR_INVALID_ARGUMENT));
    held += status == FRT_OK;
    CHECK(frt::guard(&error, [&] {
            const std::vector<GrammarTool> tools = {{"f", schema, false}};
            source_of(GrammarPart::calls(kForm, tools, true));
          }) == FRT_OK);
  }
  CHECK(held > 100);
}

// ---- bounds --------------------------------------------------------------------------------

namespace {

std::string repeated(const std::string& text, std::size_t times) {
  std::string all;
  for (std::size_t i = 0; i < times; ++i) all += text;
  return all;
}

}  // namespace

TEST_CASE("hostile sources end within their budget, in time and in memory") {
  const Texts vocabulary = byte_vocabulary({"ab", "aa", "\": ", "true"});
  Json huge_enum = {{"enum", Json::array()}};
  for (int i = 0; i < 20'000; ++i) huge_enum["enum"].push_back("value " + std::to_string(i * 7919));
  Json wide = {{"type", "object"}, {"properties", Json::object()}};
  for (int i = 0; i < 3000; ++i) wide["properties"]["p" + std::to_string(i)] = {{"type", "string"}};
  Json doubling = {{"$ref", "#/$defs/d0"}, {"$defs", Json::object()}};
  for (int i = 0; i < 60; ++i) {
    const Json next = {{"$ref", "#/$defs/d" + std::to_string(i + 1)}};
    doubling["$defs"]["d" + std::to_string(i)] = {{"type", "object"},
                                                  {"properties", {{"a", next}, {"b", next}}}};
  }
  doubling["$defs"]["d60"] = {{"type", "null"}};
  const Json circle =
      Json::parse(R"({"$ref": "#/$defs/a", "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}]}}})");
  const std::pair<const char*, std::function<GrammarPart()>> cases[] = {
      {"nested repetitions", [] { return GrammarPart::regex("((a{1,500}){1,500}){1,500}"); }},
      {"exponential", [] { return GrammarPart::regex("(a|b)*a" + repeated("(a|b)", 24)); }},
      {"ambiguous", [] { return GrammarPart::regex("((a*)*)*b"); }},
      {"many repetitions", [] { return GrammarPart::regex("a{0,100000}"); }},
      {"deep groups",
       [] { return GrammarPart::regex(repeated("(", 20'000) + "a" + repeated(")", 20'000)); }},
      {"no expression", [] { return GrammarPart::regex("a{2,1}[z-a](?<x"); }},
      {"deep EBNF",
       [] {
         return GrammarPart::ebnf("root ::= " + repeated("(", 20'000) + "\"a\"" +
                                  repeated(")", 20'000));
       }},
      {"left recursion", [] { return GrammarPart::ebnf("root ::= root \"a\" | \"b\""); }},
      {"endless recursion", [] { return GrammarPart::ebnf("root ::= root"); }},
      {"no EBNF", [] { return GrammarPart::ebnf("root ::= [\x80\xff"); }},
      {"huge enum", [&] { return GrammarPart::json_schema(huge_enum); }},
      {"wide object", [&] { return GrammarPart::json_schema(wide); }},
      {"doubling", [&] { return GrammarPart::json_schema(doubling); }},
      {"circle", [&] { return GrammarPart::json_schema(circle); }},
      {"long string",
       [] {
         return GrammarPart::json_schema(
             Json::parse(R"({"type": "string", "minLength": 100000, "maxLength": 2000000000})"));
       }},
      {"long list",
       [] {
         return GrammarPart::json_schema(Json::parse(
             R"({"type": "array", "minItems": 9999, "items": {"type": "string", "maxLength": 9999}})"));
       }},
      {"range",
       [] {
         return GrammarPart::json_schema(Json::parse(
             R"({"type": "integer", "minimum": -9000000000000000000, "maximum": 9000000000000000000})"));
       }},
  };
  for (const auto& one : cases) {
    const auto& name = one.first;
    const auto& part = one.second;
    CAPTURE(std::string(name));
    const auto began = std::chrono::steady_clock::now();
    const frt_error error = failure_of([&] {
      const auto grammar =
          compiled(vocabulary, source_of(part()), {.seconds = 0.5, .bytes = 64U << 20});
      CHECK(grammar->bytes() < (uint64_t{256} << 20));
      const auto matcher = grammar->matcher();
      std::vector<uint32_t> mask = mask_for(vocabulary);
      for (int step = 0; step < 64 && matcher->fill(mask); ++step) {
        std::size_t id = 'a';
        while (!allows(mask, id)) id = (id + 1) % vocabulary.size();
        if (!matcher->accept(static_cast<int32_t>(id))) throw frt::Error(FRT_ERR_INTERNAL, name);
      }
    });
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
    CHECK((error.code == FRT_OK || error.code == FRT_ERR_INVALID_ARGUMENT));
    MESSAGE(std::string(name) << ": " << took.count() << " s " << error.message);
    CHECK(took.count() < 30);  // of a machine that does much else
  }
}

TEST_CASE("100 KB of tools compile in their budget") {
  std::vector<GrammarTool> tools;
  for (int i = 0; i < 128; ++i) {
    Json schema = {{"type", "object"}, {"properties", Json::object()}, {"required", Json::array()}};
    for (int p = 0; p < 8; ++p) {
      schema["properties"]["parameter_" + std::to_string(p)] = {
          {"type", p % 2 ? "string" : "array"},
          {"description", std::string(64, 'd')},
          {"maxLength", 10'000},
          {"items", {{"type", "string"}}},
          {"maxItems", 500}};
    }
    schema["required"].push_back("parameter_0");
    tools.push_back({"tool_" + std::to_string(i), schema, false});
  }
  const auto began = std::chrono::steady_clock::now();
  const auto grammar =
      compiled(byte_vocabulary(), source_of(GrammarPart::calls(kForm, tools, true)));
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  MESSAGE("128 tools: " << took.count() << " s, " << grammar->bytes() << " bytes");
  CHECK(takes(*grammar, "<call>\n<f=tool_7>\n<p=parameter_0>\n[]\n</p>\n</f>\n</call>"));
}
