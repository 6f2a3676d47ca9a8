// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <cstdlib>
#include <frt/error.hpp>
#include <frt/io/file.hpp>
#include <frt/lm/jinja.hpp>
#include <frt/models/json.hpp>
#include <string>
#include <utility>

using frt::Error;
using frt::lm::JinjaTemplate;
using frt::models::Json;
using frt::models::PromptText;

namespace {

const std::string kFolder = std::string(FRT_FIXTURES_DIR) + "/chat_templates/";
constexpr std::int64_t kNow = 1753000000;  // of the goldens

struct Utc {
  Utc() {
    setenv("TZ", "UTC", 1);
    tzset();
  }
};
const Utc kUtc;

// The text, or "error".
std::string rendered(const std::string& source, const Json& outside, const Json& own) {
  try {
    return JinjaTemplate(source, "t").render(outside, own, kNow).text();
  } catch (const Error&) {
    return "error";
  }
}

std::string expected(const Json& entry) {
  return entry.contains("error") ? "error" : entry["text"].get<std::string>();
}

PromptText render(const std::string& source, const Json& outside = Json::object()) {
  return JinjaTemplate(source, "t").render(outside, Json::object(), kNow);
}

std::string refusal(const std::string& source, frt_status status) {
  try {
    render(source, {{"messages", Json::array({"a"})}});
  } catch (const Error& error) {
    return error.status() == status ? error.what() : "another status: " + std::string(error.what());
  }
  return "accepted";
}

// The parts of a text that are from outside, each in brackets.
std::string marked(const PromptText& text) {
  std::string out;
  std::size_t at = 0;
  for (const auto& range : text.plain()) {
    out += text.text().substr(at, range.begin - at) + "[" +
           text.text().substr(range.begin, range.end - range.begin) + "]";
    at = range.end;
  }
  return out + text.text().substr(at);
}

std::string repeated(const std::string& text, int count) {
  std::string out;
  for (int i = 0; i < count; ++i) out += text;
  return out;
}

}  // namespace

TEST_CASE("conversations render as Jinja2 renders them, for each form of template") {
  const Json cases = frt::io::read_json_file(kFolder + "renderings.json");
  CHECK(cases.size() == 126);
  for (const Json& entry : cases) {
    INFO(entry["template"].get<std::string>() << " " << entry["case"].get<std::string>());
    const std::string source =
        frt::io::read_file(kFolder + entry["template"].get<std::string>(), "template", 1 << 20);
    CHECK(rendered(source, entry["outside"], entry["own"]) == expected(entry));
  }
}

TEST_CASE("expressions and statements give what Jinja2 gives") {
  const Json goldens = frt::io::read_json_file(kFolder + "language.json");
  CHECK(goldens["cases"].size() > 70);
  for (const Json& entry : goldens["cases"]) {
    INFO(entry["template"].get<std::string>());
    CHECK(rendered(entry["template"], goldens["variables"], Json::object()) == expected(entry));
  }
}

TEST_CASE("the template of Qwen3.6, interpreted, gives the goldens of its built-in format") {
  const std::string folder = std::string(FRT_FIXTURES_DIR) + "/qwen36/tokenizer/";
  const JinjaTemplate own(frt::io::read_file(folder + "chat_template.jinja", "template", 1 << 20),
                          "chat_template.jinja");
  int same = 0;
  for (const Json& entry : frt::io::read_json_file(folder + "renderings.json")) {
    INFO(entry["name"].get<std::string>());
    Json flags = entry.value("options", Json::object());
    if (!flags.contains("add_generation_prompt")) flags["add_generation_prompt"] = true;
    const Json outside = {{"messages", entry["messages"]}, {"tools", entry.value("tools", Json())}};
    std::string text = "error";
    try {
      text = own.render(outside, flags, kNow).text();
    } catch (const Error&) {
    }
    CHECK(text == (entry.contains("error") ? "error" : entry["prompt"].get<std::string>()));
    ++same;
  }
  CHECK(same >= 24);
}

TEST_CASE("every operation on texts keeps which bytes came from outside") {
  const Json outside = {{"s", " a<x>b "}, {"d", {{"k", "v"}, {"n", 1}}}, {"l", {"p", "q"}}};
  const auto of = [&](const std::string& expression) {
    return marked(render("{{ " + expression + " }}", outside));
  };
  CHECK(of("'<' + s|trim + '>'") == "<[a<x>b]>");
  CHECK(of("s.strip().split('<')[1]") == "[x>b]");
  CHECK(of("('<' ~ s ~ '>').split('x')[0]") == "<[ a<]");
  CHECK(of("(s ~ '|')|upper") == "[ A<X>B ]|");
  CHECK(of("s|replace('<', '{')") == "[ a]{[x>b ]");
  CHECK(of("'<s>'|replace('s', s|trim)") == "<[a<x>b]>");
  CHECK(of("(s|trim)[1:-1]") == "[<x>]");
  CHECK(of("(s|trim)[::-1]") == "[b>x<a]");
  CHECK(of("(s|trim|list)[1]") == "[<]");
  CHECK(of("l|join('-')") == "[p]-[q]");
  CHECK(of("'%s|%d' % (s|trim, 3)") == "[a<x>b]|3");
  CHECK(of("'{}!'.format(s|trim)") == "[a<x>b]!");
  CHECK(of("d|tojson") == R"([{"k": "v", "n": 1}])");
  CHECK(of("{'own': s|trim}|tojson") == R"({"own": "[a<x>b]"})");
  CHECK(of("d") == "[{'k': 'v', 'n': 1}]");
  CHECK(of("(s ~ 'x\n' ~ s)|indent(2)") == "[ a<x>b ]x\n  [ a<x>b ]");
  CHECK(of("(s|trim)|reverse") == "[b>x<a]");
  CHECK(of("s|trim|title") == "[A<X>b]");
  CHECK(marked(render("{% macro m(x) %}<{{ x }}>{% endmacro %}{{ m(s|trim) }}", outside)) ==
        "<[a<x>b]>");
  CHECK(marked(render("{% set y %}<{{ s|trim }}>{% endset %}{{ y }}", outside)) == "<[a<x>b]>");
}

TEST_CASE("errors name the line and the cause, and the template where no client reads them") {
  CHECK(refusal("a\n{{ nothing.x }}", FRT_ERR_INVALID_ARGUMENT) ==
        "chat template, line 2: 'nothing' is undefined");
  CHECK(refusal("\n\n{{ raise_exception('only\x1b users') }}", FRT_ERR_INVALID_ARGUMENT) ==
        "chat template, line 3: it refuses the conversation: only\\x1b users");
  CHECK(refusal("\n{% if %}{% endif %}", FRT_ERR_FORMAT) ==
        "chat template t, line 2: unexpected '%}'");
  CHECK(refusal("{% for x in y %}", FRT_ERR_FORMAT) ==
        "chat template t, line 1: expected {% endfor %}, found end of the template");
  CHECK(refusal("{% include 'x' %}", FRT_ERR_UNSUPPORTED) ==
        "chat template t, line 1: {% include %} is not supported in chat templates");
  CHECK(refusal("{{ 1|urlize }}", FRT_ERR_UNSUPPORTED) ==
        "chat template t, line 1: there is no filter 'urlize'");
  CHECK(refusal("\xff", FRT_ERR_FORMAT) == "chat template t, line 1: it is not UTF-8 at byte 0");
}

TEST_CASE("a template that would run for ever, or take all memory or stack, ends in an error") {
  const char* const hostile[] = {
      // Time.
      "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
      "{% set ns = namespace(s='ab') %}{% for i in range(40) %}{% set ns.s = ns.s + ns.s %}"
      "{% endfor %}",
      "{% set a = 'a' * 1000000 %}{{ (a + 'b') in (a + a) }}",
      "{% set a = 'a' * 1000000 %}{{ a.split(a[:500000] + 'b') }}",
      "{% for i in range(99999) %}{% set x = 'abcdefgh' * 9999 %}{% endfor %}",
      "{{ (range(99999)|list)|unique }}",
      // Memory.
      "{% set ns = namespace(l=[]) %}{% for i in range(99999) %}{% set ns.l = ns.l + [i] %}"
      "{% endfor %}",
      "{{ 'a' * 9999999999 }}",
      "{{ [0] * 9999999999 }}",
      "{{ range(9999999999) }}",
      "{{ 'a'|indent(9999999) }}",
      "{{ '%999999999d' % 1 }}",
      "{% set a = 'a' * 9999 %}{{ a|replace('', 'b' * 99999) }}",
      "{% for i in range(99999) %}{{ 'a' * 9999 }}{% endfor %}",
      "{% set ns = namespace() %}{% for i in range(99999) %}{% set ns.s = [ns.s, 'a' * 99999] %}"
      "{% endfor %}",
      "{{ strftime_now('%9999999999d') ~ ('a' * 99999999) }}",
      // Stack.
      "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
      "{% macro m(x) %}{{ m(x|map('trim')|list) }}{% endmacro %}{{ m(['a']) }}",
      "{% set ns = namespace(l=[]) %}{% for i in range(9999) %}{% set ns.l = [ns.l] %}{% endfor %}"
      "{{ ns.l }}",
  };
  const std::string maps = "{{ 'a'|map('map'" + repeated(", 'map'", 20'000) + ", 'upper') }}";
  CHECK(refusal(maps, FRT_ERR_UNSUPPORTED).find("nested too deeply") != std::string::npos);
  for (const char* const source : hostile) {
    CAPTURE(source);
    // Its text, whichever status it has.
    CHECK(refusal(source, FRT_ERR_UNSUPPORTED).find(", line 1: ") != std::string::npos);
  }
  CHECK(refusal(repeated("{% if true %}", 500) + repeated("{% endif %}", 500), FRT_ERR_UNSUPPORTED)
            .find("nested more than") != std::string::npos);
  const std::pair<const char*, const char*> brackets[] = {
      {"(", ")"}, {"[", "]"}, {"-", ""}, {"not ", ""}, {"{'a':", "}"}, {"a if ", ""}, {"x[", "]"}};
  for (const auto& bracket : brackets) {
    const char *const open = bracket.first, *const close = bracket.second;
    CAPTURE(open);
    CHECK(refusal("{{ " + repeated(open, 50'000) + "1" + repeated(close, 50'000) + " }}",
                  FRT_ERR_UNSUPPORTED)
              .find("nested more than") != std::string::npos);
  }
  CHECK(refusal("{{ 1" + repeated(" + 1", 50'000) + " }}", FRT_ERR_UNSUPPORTED)
            .find("nested more than") != std::string::npos);
  CHECK(refusal(std::string((1 << 20) + 1, 'a'), FRT_ERR_UNSUPPORTED).find("bytes long") !=
        std::string::npos);
}

TEST_CASE(
    "namespaces that hold themselves and macros that outlive their scope leave nothing behind") {
  CHECK(render("{% set ns = namespace() %}{% set ns.self = ns %}{{ ns.self.self is defined }}")
            .text() == "True");
  CHECK(render("{% set ns = namespace() %}{% for i in range(3) %}{% macro m() %}{{ i }}{% endmacro "
               "%}{% set ns.m = m %}{% endfor %}{{ ns.m() }}")
            .text() == "2");
  CHECK(render("{% set ns = namespace() %}{% for i in range(2) %}{% set ns.l = loop %}{% endfor %}"
               "{{ ns.l.index }}")
            .text() == "2");
}
