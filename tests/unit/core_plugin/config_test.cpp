// SPDX-License-Identifier: Apache-2.0
// Options: conversions, defaults, ranges, suggestions; sizes and variables.
#include <cmath>
#include <frt/core/config.hpp>
#include <frt/plugin.hpp>

#include "helpers.hpp"

using namespace frt::core;
using test::has;

namespace {

OptionSpec spec(const char* key, frt_config_type type, const char* default_text = nullptr) {
  OptionSpec option;
  option.key = key;
  option.type = type;
  if (default_text) option.default_text = default_text;
  return option;
}

RawSetting setting(const char* key, RawValue value) {
  RawSetting raw;
  raw.key = key;
  raw.value = std::move(value);
  raw.from = {Origin::kManifest, "m.toml:1:1"};
  return raw;
}

RawValue integer(int64_t value) {
  return {RawValue::Kind::kInteger, value, 0, {}};
}
RawValue number(double value) {
  return {RawValue::Kind::kFloat, 0, value, {}};
}
RawValue text(std::string value) {
  return {RawValue::Kind::kString, 0, 0, std::move(value)};
}
RawValue boolean(bool value) {
  return {RawValue::Kind::kBool, value, 0, {}};
}
RawValue untyped(std::string value) {
  return {RawValue::Kind::kUntyped, 0, 0, std::move(value)};
}

ResolveContext context() {
  ResolveContext result;
  result.table = "t";
  result.base_folder = "/base";
  result.flag_folder = "/here";
  result.environment = [](const std::string& name) -> std::optional<std::string> {
    return name == "HOME_OF_X" ? std::optional<std::string>("/x") : std::nullopt;
  };
  result.models = {"qa"};
  return result;
}

// The only value, or the only error's text.
std::string outcome(const OptionSpec& option, RawValue value, Config* config = nullptr) {
  Diagnostics diagnostics;
  const Config result = resolve_config({option}, {setting(option.key.c_str(), std::move(value))},
                                       context(), diagnostics);
  if (config) *config = result;
  if (diagnostics.all().empty()) return "ok";
  CHECK(diagnostics.all().size() == 1);
  CHECK(result.values().empty());
  return diagnostics.all()[0].message;
}

}  // namespace

TEST_CASE("sizes take powers of 1024 and refuse what is not a whole number") {
  CHECK(parse_size("0") == 0);
  CHECK(parse_size("4096") == 4096);
  CHECK(parse_size("32k") == 32768);
  CHECK(parse_size("32K") == 32768);
  CHECK(parse_size("1.5M") == 1572864);
  CHECK(parse_size("2G") == int64_t{2} << 30);
  CHECK(parse_size("1T") == int64_t{1} << 40);
  CHECK(parse_size("9223372036854775807") == INT64_MAX);
  for (const char* bad : {"", "k", "-1", "-1k", "1.5", "0.3k", "1kk", "1 k", " 1", "0x10", "1e3k",
                          "nan", "infk", "9223372036854775808", "99999999T", ".", ".k", "1.2.3k"}) {
    CAPTURE(bad);
    CHECK_FALSE(parse_size(bad).has_value());
  }
}

TEST_CASE("variables in paths are replaced; a missing one is an error with its name") {
  const Environment environment = [](const std::string& name) -> std::optional<std::string> {
    return name == "A" ? std::optional<std::string>("one") : std::nullopt;
  };
  std::string problem;
  CHECK(*expand_variables("${A}/x/${A}", environment, problem) == "one/x/one");
  CHECK(*expand_variables("$A and $ and }", environment, problem) == "$A and $ and }");
  CHECK_FALSE(expand_variables("${B}", environment, problem).has_value());
  CHECK(has(problem, "`B` is not set"));
  CHECK_FALSE(expand_variables("x${A", environment, problem).has_value());
  CHECK(has(problem, "without `}`"));
  CHECK_FALSE(expand_variables("${}", environment, problem).has_value());
}

TEST_CASE("each type takes its own values and says what it expected otherwise") {
  Config config;
  CHECK(outcome(spec("b", FRT_CONFIG_BOOL), boolean(true), &config) == "ok");
  CHECK(config.integer("b") == 1);
  CHECK(outcome(spec("b", FRT_CONFIG_BOOL), untyped("false"), &config) == "ok");
  CHECK(config.integer("b") == 0);
  CHECK(has(outcome(spec("b", FRT_CONFIG_BOOL), integer(1)),
            "expected true or false, found a whole number"));
  CHECK(has(outcome(spec("b", FRT_CONFIG_BOOL), untyped("yes")), "found 'yes'"));

  CHECK(outcome(spec("i", FRT_CONFIG_INT), integer(-3), &config) == "ok");
  CHECK(config.integer("i") == -3);
  CHECK(outcome(spec("i", FRT_CONFIG_INT), untyped("-3")) == "ok");
  CHECK(has(outcome(spec("i", FRT_CONFIG_INT), text("3")), "expected a whole number, found text"));
  CHECK(has(outcome(spec("i", FRT_CONFIG_INT), number(3)), "found a fractional number"));
  CHECK(has(outcome(spec("i", FRT_CONFIG_INT), untyped("3x")), "found '3x'"));

  CHECK(outcome(spec("s", FRT_CONFIG_SIZE), text("32k"), &config) == "ok");
  CHECK(config.integer("s") == 32768);
  CHECK(outcome(spec("s", FRT_CONFIG_SIZE), untyped("1M"), &config) == "ok");
  CHECK(config.integer("s") == 1 << 20);
  CHECK(has(outcome(spec("s", FRT_CONFIG_SIZE), text("much")), "'much' is not a size"));
  CHECK(has(outcome(spec("s", FRT_CONFIG_SIZE), integer(-1)), "'-1' is not a size"));
  CHECK(has(outcome(spec("s", FRT_CONFIG_SIZE), boolean(true)), "found true or false"));

  CHECK(outcome(spec("f", FRT_CONFIG_FLOAT), integer(2), &config) == "ok");
  CHECK(config.find("f")->number == 2.0);
  CHECK(outcome(spec("f", FRT_CONFIG_FLOAT), untyped("0.25"), &config) == "ok");
  CHECK(config.find("f")->number == 0.25);
  CHECK(has(outcome(spec("f", FRT_CONFIG_FLOAT), number(NAN)), "must be finite"));

  CHECK(outcome(spec("t", FRT_CONFIG_STRING), text("x"), &config) == "ok");
  CHECK(has(outcome(spec("t", FRT_CONFIG_STRING), integer(1)), "expected text"));
  CHECK(has(outcome(spec("t", FRT_CONFIG_STRING), text(std::string("a\0b", 3))), "zero byte"));
}

TEST_CASE("ranges include their ends, and 0 to 0 means no limit") {
  OptionSpec option = spec("i", FRT_CONFIG_INT);
  option.minimum = 1;
  option.maximum = 8;
  CHECK(outcome(option, integer(1)) == "ok");
  CHECK(outcome(option, integer(8)) == "ok");
  CHECK(has(outcome(option, integer(0)), "0 is outside 1 to 8"));
  CHECK(has(outcome(option, untyped("9")), "9 is outside 1 to 8"));
  CHECK(outcome(spec("i", FRT_CONFIG_INT), integer(INT64_MIN)) == "ok");
}

TEST_CASE("choices and references suggest the nearest name") {
  OptionSpec option = spec("e", FRT_CONFIG_ENUM);
  option.choices = {"fast", "reference"};
  CHECK(outcome(option, text("fast")) == "ok");
  Diagnostics diagnostics;
  resolve_config({option}, {setting("e", text("fsat"))}, context(), diagnostics);
  CHECK(has(diagnostics.all().at(0).message, "'fsat' is not one of: fast, reference"));
  CHECK(diagnostics.all().at(0).hint == "did you mean `fast`?");

  OptionSpec reference = spec("m", FRT_CONFIG_STRING);
  reference.reference = "model";
  CHECK(outcome(reference, text("qa")) == "ok");
  CHECK(has(outcome(reference, text("qb")), "'qb' is not a [model.NAME]"));
  reference.reference = "device";
  CHECK(has(outcome(reference, text("x")), "but there is none"));
}

TEST_CASE("paths start at the manifest, those of flags at the working folder") {
  Config config;
  const OptionSpec path = spec("p", FRT_CONFIG_PATH);
  CHECK(outcome(path, text("a/../b"), &config) == "ok");
  CHECK(config.text("p") == "/base/b");
  CHECK(outcome(path, text("/abs"), &config) == "ok");
  CHECK(config.text("p") == "/abs");
  CHECK(outcome(path, text("${HOME_OF_X}/y"), &config) == "ok");
  CHECK(config.text("p") == "/x/y");
  CHECK(has(outcome(path, text("${NOT_THERE}/y")), "`NOT_THERE` is not set"));
  CHECK(has(outcome(path, text("")), "the path is empty"));
  RawSetting flag = setting("p", untyped("c"));
  flag.from = {Origin::kFlag, "--set t.p=c"};
  Diagnostics diagnostics;
  CHECK(resolve_config({path}, {flag}, context(), diagnostics).text("p") == "/here/c");

  OptionSpec checkpoint = spec("p", FRT_CONFIG_PATH);
  checkpoint.verbatim_prefix = "synthetic:";
  CHECK(outcome(checkpoint, text("synthetic:tiny?seed=${X}"), &config) == "ok");
  CHECK(config.text("p") == "synthetic:tiny?seed=${X}");
}

TEST_CASE("defaults fill in, required keys are demanded, the last setting wins") {
  Diagnostics diagnostics;
  const Config config = resolve_config(
      {spec("a", FRT_CONFIG_INT, "5"), spec("b", FRT_CONFIG_INT), spec("c", FRT_CONFIG_SIZE, "1k"),
       spec("d", FRT_CONFIG_INT)},
      {setting("d", integer(1)), setting("d", untyped("2"))}, context(), diagnostics);
  CHECK(config.integer("a") == 5);
  CHECK(config.find("a")->from.origin == Origin::kDefault);
  CHECK(config.integer("c") == 1024);
  CHECK(config.integer("d") == 2);
  REQUIRE(diagnostics.all().size() == 1);
  CHECK(has(diagnostics.all()[0].message, "missing key `b` in [t]"));
}

TEST_CASE("the C view holds every value in schema order and survives copies") {
  Diagnostics diagnostics;
  Config copy;
  {
    const Config config =
        resolve_config({spec("z", FRT_CONFIG_STRING, "last"), spec("a", FRT_CONFIG_FLOAT, "1.5")},
                       {setting("a", number(2.5))}, context(), diagnostics);
    copy = config;
  }
  const frt_config* c = copy.c();
  REQUIRE(c->count == 2);
  CHECK(c->struct_size == sizeof(frt_config));
  CHECK(std::string(c->values[0].key) == "z");
  CHECK(std::string(c->values[0].text) == "last");
  CHECK(c->values[0].is_default == 1);
  CHECK(c->values[1].is_default == 0);
  const frt::ConfigView view(c);
  CHECK(view.get_float("a") == 2.5);
  CHECK(view.get_string("z") == "last");
  CHECK(view.is_default("z"));
  CHECK_FALSE(view.has("y"));
  CHECK(test::error_of([&] { view.get_int("a"); }).status() == FRT_ERR_INVALID_ARGUMENT);
  CHECK(test::error_of([&] { view.get_int("y"); }).status() == FRT_ERR_INVALID_ARGUMENT);
}

TEST_CASE("a plugin's schema is copied, and a broken one is refused with its option") {
  static const frt_config_option kGood[] = {
      {"mode", FRT_CONFIG_ENUM, 0, "b", "a|b", 0, 0, "doc"},
      {"n", FRT_CONFIG_INT, 0, nullptr, nullptr, 1, 2, nullptr}};
  const frt_config_schema_v1 good = frt::config_schema(frt::kNoOptions, kGood);
  const ConfigSchema schema = read_schema(good, "p");
  REQUIRE(schema.options.size() == 2);
  CHECK(schema.options[0].choices == std::vector<std::string>{"a", "b"});
  CHECK_FALSE(schema.options[1].default_text.has_value());
  CHECK(option_keys(schema.options) == std::vector<std::string>{"mode", "n"});

  const auto refusal = [](const frt_config_option& first, const frt_config_option& second,
                          frt_status status = FRT_ERR_FORMAT) {
    const frt_config_option options[] = {first, second};
    const frt_config_schema_v1 table = {sizeof(table), 0, nullptr, 0, options, 2};
    const frt::Error error = test::error_of([&] { read_schema(table, "acme"); });
    CHECK(error.status() == status);
    CHECK(has(error.what(), "acme"));
    return std::string(error.what());
  };
  const frt_config_option ok = {"ok", FRT_CONFIG_INT, 0, "1", nullptr, 0, 0, ""};
  CHECK(has(refusal(ok, ok), "'ok' is there twice"));
  CHECK(has(refusal(ok, {nullptr, FRT_CONFIG_INT, 0, "1", nullptr, 0, 0, ""}),
            "option 1 has no key"));
  // A newer version may have them: the plugin is not broken.
  CHECK(has(refusal(ok, {"x", 99, 0, "1", nullptr, 0, 0, ""}, FRT_ERR_UNSUPPORTED),
            "does not know: the type 99 of 'x'"));
  CHECK(has(refusal(ok, {"x", FRT_CONFIG_INT, 64, "1", nullptr, 0, 0, ""}, FRT_ERR_UNSUPPORTED),
            "does not know: the flags 64 of 'x'"));
  CHECK(has(refusal(ok, {"x", FRT_CONFIG_ENUM, 0, "1", nullptr, 0, 0, ""}), "'x' has no choices"));
  CHECK(has(refusal(ok, {"x", FRT_CONFIG_INT, 0, "9", nullptr, 1, 8, ""}), "default of 'x'"));
  CHECK(has(refusal(ok, {"x", FRT_CONFIG_PATH, FRT_OPTION_NUMERICS, "", nullptr, 0, 0, ""}),
            "'x' is FRT_OPTION_NUMERICS"));
  frt_config_schema_v1 odd = good;
  for (const uint32_t size : {3u, 0xffffffffu}) {
    odd.struct_size = size;
    const frt::Error error = test::error_of([&] { read_schema(odd, "acme"); });
    CHECK(error.status() == FRT_ERR_ABI);
    CHECK(has(error.what(), "plugin acme: its frt.config-schema/1 says that it has"));
  }
  const frt_config_schema_v1 null_list = {sizeof(null_list), 0, nullptr, 0, nullptr, 3};
  CHECK(has(test::error_of([&] { read_schema(null_list, "acme"); }).what(), "list is null"));
}

TEST_CASE("a schema says which options decide the bits of results, and not of many") {
  frt_config_option options[9];
  std::vector<std::string> keys;
  for (int i = 0; i < 9; ++i) keys.push_back("k" + std::to_string(i));
  for (std::size_t i = 0; i < 9; ++i) {
    options[i] = {keys[i].c_str(), FRT_CONFIG_INT, FRT_OPTION_NUMERICS, "1", nullptr, 0, 0, ""};
  }
  const auto schema_of = [&](uint64_t count) {
    return read_schema({sizeof(frt_config_schema_v1), 0, nullptr, 0, options, count}, "acme");
  };
  CHECK(has(test::error_of([&] { schema_of(9); }).what(), "more than 8 options"));
  options[3].flags = 0;
  const ConfigSchema schema = schema_of(9);
  for (std::size_t i = 0; i < 9; ++i) CHECK(schema.options[i].numerics == (i != 3));
}

TEST_CASE("suggestions are near words or nothing") {
  const std::vector<std::string> words = {"max_context", "slots", "seed"};
  CHECK(closest("max_contxt", words) == "max_context");
  CHECK(closest("solts", words) == "slots");
  CHECK(closest("sed", words) == "seed");
  CHECK(closest("temperature", words).empty());
  CHECK(closest("", words).empty());
  CHECK(closest(std::string(1000, 'x'), words).empty());
}
