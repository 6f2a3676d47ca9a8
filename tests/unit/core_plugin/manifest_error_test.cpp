// SPDX-License-Identifier: Apache-2.0
// Manifests that are wrong: each mistake has its message, its place and its suggestion, and all
// mistakes come at once.
#include "manifest_fixture.hpp"

using namespace frt::core;
using test::has;
using test::ManifestFixture;

namespace {

// kComplete with one text replaced.
std::string edited(const std::string& from, const std::string& to) {
  std::string text = test::kComplete;
  const std::size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

}  // namespace

TEST_CASE("an unknown key is shown the way compilers show it") {
  ManifestFixture fixture;
  const auto findings = fixture.findings(edited("max_context = \"64k\"", "max_contxt = \"64k\""));
  REQUIRE(findings.size() == 1);
  CHECK(render(findings[0]) ==
        "error: unknown key `max_contxt` in [model.q.options]\n"
        "  --> /etc/m.toml:26:1\n"
        "   |\n"
        "26 | max_contxt = \"64k\"\n"
        "   | ^^^^^^^^^^ did you mean `max_context`?\n"
        "   = known keys: slots, max_context, numerics, adapter");
}

TEST_CASE("a syntax error has a position and stops the reading") {
  ManifestFixture fixture;
  auto findings = fixture.findings("schema = 1\n[device.gpu0\nbackend = 1\n");
  REQUIRE(findings.size() == 1);
  CHECK(findings[0].code == FRT_ERR_FORMAT);
  CHECK(findings[0].position.line == 2);
  CHECK(has(findings[0].message, "TOML syntax"));
  findings = fixture.findings("schema = 1\nschema = 1\n");
  CHECK(findings[0].position.line == 2);
  findings = fixture.findings("schema = \"");
  CHECK(findings.size() == 1);
  findings = fixture.findings(std::string("schema = 1\n\0", 12));
  CHECK(findings.size() == 1);
  findings = fixture.findings("schema = 1\nx-a = \"\xff\"\n");
  CHECK(findings.size() == 1);
  // Letters outside ASCII: as a bare key, as a value, and behind a continued line.
  findings = fixture.findings("schema = 1\n\xc3\xa4 = 1\n");
  CHECK(findings.at(0).position.line == 2);
  CHECK(fixture.findings("schema = \xce\xa8\n").size() == 1);
  CHECK(fixture.parse("schema = 1\nx-a = \"\"\"b \\\n  \xc3\xa4\"\"\"\n").path == "/etc/m.toml");
}

TEST_CASE("every mistake of a manifest is reported in one pass, in order of lines") {
  ManifestFixture fixture;
  const auto findings = fixture.findings(R"(modle = 1
[device.d]
backend = 3
ordinal = -1
captur = true
[model.m]
plugin = "m.one"
device = "e"
checkpoint = "synthetic:x"
[model.m.options]
slots = "two"
numerics = "slow"
max_context = "64 k"
[host.ln]
[host.lm]
)");
  std::vector<uint32_t> lines;
  std::string all;
  for (const Diagnostic& finding : findings) {
    lines.push_back(finding.position.line);
    all += render(finding) + "\n";
  }
  CHECK(lines == std::vector<uint32_t>{1, 1, 3, 4, 5, 8, 11, 12, 13, 14, 15});
  CHECK(has(all, "missing key `schema`"));
  CHECK(has(all, "unknown key `modle`"));
  CHECK(has(all, "did you mean `model`?"));
  CHECK(has(all, "`backend` in [device.d]: expected text, found a whole number"));
  CHECK(has(all, "-1 is outside 0 to 1023"));
  CHECK(has(all, "did you mean `capture`?"));
  CHECK(has(all, "'e' is not a [device.NAME] of this manifest: d"));
  CHECK(has(all, "`slots` in [model.m.options]: expected a whole number, found text"));
  CHECK(has(all, "'slow' is not one of: fast, reference"));
  CHECK(has(all, "'64 k' is not a size"));
  CHECK(has(all, "unknown host `ln`"));
  CHECK(has(all, "did you mean `lm`?"));
  CHECK(has(all, "missing key `model` in [host.lm]"));
}

TEST_CASE("missing keys are reported at their table") {
  ManifestFixture fixture;
  const auto findings = fixture.findings("schema = 1\n\n[device.d]\n[model.m]\n");
  REQUIRE(findings.size() == 4);
  CHECK(findings[0].position.line == 3);
  CHECK(has(findings[0].message, "missing key `backend` in [device.d]"));
  CHECK(has(findings[1].message, "missing key `plugin`"));
  CHECK(has(findings[2].message, "missing key `device`"));
  CHECK(has(findings[3].message, "missing key `checkpoint`"));
}

TEST_CASE("a schema that is missing, mistyped or of the future says what to do") {
  ManifestFixture fixture;
  CHECK(has(fixture.complaints(""), "write `schema = 1` as the first line"));
  CHECK(has(fixture.complaints("schema = \"1\"\n"), "expected the number 1"));
  CHECK(has(fixture.complaints("schema = 0\n"), "expected the number 1"));
  CHECK(has(fixture.complaints("schema = 2\n"), "has schema 2, but this host reads schema 1"));
}

TEST_CASE("tables that are something else are told what they should be") {
  ManifestFixture fixture;
  const std::string all = fixture.complaints(
      "schema = 1\ndevice = 3\nplugin = { id = \"x\" }\nplugin-options = [1]\n"
      "[model]\nm = 1\n[host]\nlm = \"x\"\n");
  CHECK(has(all, "`device`: expected tables [device.NAME], found a whole number"));
  CHECK(has(all, "expected tables [[plugin]], with two brackets"));
  CHECK(has(all, "expected tables [plugin-options.\"ID\"]"));
  CHECK(has(all, "expected a table [model.NAME], found a whole number"));
  CHECK(has(all, "expected a table [host.NAME], found text"));
  CHECK(has(fixture.complaints("schema = 1\nplugin = [3]\n"), "expected tables [[plugin]]"));
  CHECK(has(fixture.complaints("schema = 1\n[device.d]\nbackend = \"auto\"\noptions = 3\n"),
            "expected a table [device.d.options], found a whole number"));
  CHECK(has(fixture.complaints("schema = 1\n[device.d]\nbackend = [\"auto\"]\n"),
            "expected text, found an array"));
  CHECK(has(fixture.complaints("schema = 1\n[device.\"a b\"]\nbackend = \"auto\"\n"),
            "has characters other than letters"));
  CHECK(has(fixture.complaints("schema = 1\n[host.h]\ntype = 3\n"), "expected text"));
}

TEST_CASE("missing, refused and mistaken plugins are reported where they are named") {
  ManifestFixture fixture;
  auto findings = fixture.findings(edited("plugin     = \"m.one\"", "plugin     = \"m.two\""));
  REQUIRE(findings.size() == 1);
  CHECK(findings[0].code == FRT_ERR_NOT_FOUND);
  CHECK(findings[0].position.line == 21);
  CHECK(findings[0].position.column == 14);
  CHECK(findings[0].notes == std::vector<std::string>{"searched /nowhere"});
  findings = fixture.findings(edited("backend = \"b.one\"", "backend = \"bad\""));
  REQUIRE(findings.size() == 1);
  CHECK(findings[0].code == FRT_ERR_ABI);
  CHECK(has(findings[0].message, "was refused: too old"));
  CHECK(DiagnosticError(findings).only_refused_plugins());
  findings = fixture.findings("schema = 1\n[device.d]\nbackend = \"bad\"\nordnal = 1\n");
  CHECK(findings.size() == 2);
  CHECK_FALSE(DiagnosticError(findings).only_refused_plugins());
  findings = fixture.findings(edited("backend = \"b.one\"", "backend = \"m.one\""));
  REQUIRE(findings.size() == 1);
  CHECK(has(findings[0].message, "'m.one' is a model plugin; here belongs a backend plugin"));
  CHECK(has(findings[0].notes.at(0), "backend plugins: b.one"));
  findings = fixture.findings("schema = 1\n[[plugin]]\nid = \"gone\"\nrequired = true\n");
  REQUIRE(findings.size() == 1);
  CHECK(has(findings[0].message, "no plugin 'gone'"));
  CHECK(fixture.parse("schema = 1\n[[plugin]]\nid = \"gone\"\n").plugins.size() == 1);
}

TEST_CASE("plugin entries are checked for keys and doubles") {
  ManifestFixture fixture;
  CHECK(has(fixture.complaints("schema = 1\n[[plugin]]\npath = \"x\"\n"),
            "missing key `id` in [[plugin]]"));
  CHECK(has(fixture.complaints("schema = 1\n[[plugin]]\nid = \"a\"\n[[plugin]]\nid = \"a\"\n"),
            "plugin 'a' is named twice"));
  CHECK(has(fixture.complaints("schema = 1\n[[plugin]]\nid = \"a\"\nrequird = true\n"),
            "did you mean `required`?"));
}

TEST_CASE("plugin options with dots need quotes, and are checked") {
  ManifestFixture fixture;
  CHECK(has(fixture.complaints("schema = 1\n[plugin-options.b.one]\npool = 1\n"),
            "write [plugin-options.\"b.one\"]"));
  CHECK(has(fixture.complaints(edited("pool = 3", "pol = 3")), "did you mean `pool`?"));
  CHECK(has(fixture.complaints("schema = 1\n[plugin-options.nobody]\n"), "no plugin 'nobody'"));
}

TEST_CASE("an automatic device refuses keys that no backend takes") {
  ManifestFixture fixture;
  const std::string all = fixture.complaints(edited("threads = 3", "thraeds = 3"));
  CHECK(has(all, "no backend takes it"));
  CHECK(has(all, "did you mean `threads`?"));
}

TEST_CASE("an unset variable in a path is an error at the path") {
  ManifestFixture fixture;
  const auto findings = fixture.findings(edited("\"weights\"", "\"${FRT_MODELS}/q\""));
  REQUIRE(findings.size() == 1);
  CHECK(findings[0].position.line == 23);
  CHECK(has(findings[0].message, "`FRT_MODELS` is not set"));
  fixture.variables["FRT_MODELS"] = "/models";
  CHECK(fixture.parse(edited("\"weights\"", "\"${FRT_MODELS}/q\"")).models[0].checkpoint() ==
        "/models/q");
}

TEST_CASE("carets stand under their word behind tabs and behind characters of several bytes") {
  ManifestFixture fixture;
  std::string text = fixture.complaints("schema = 1\n\t\tnope = 1\n");
  CHECK(has(text, "2 | \t\tnope = 1\n  | \t\t^^^^"));
  text = fixture.complaints("schema = 1\n\"\xc3\xa9\xc3\xa9\" = { a = 1 }\n");
  CHECK(has(text, "  | ^^^^"));
}

TEST_CASE("a short text of many mistakes costs a short report") {
  ManifestFixture fixture;
  std::string line = "model = {";
  for (int i = 0; i < 2000; ++i) line += "k" + std::to_string(i) + "={},";
  line.back() = '}';
  CHECK(fixture.findings("schema = 1\n" + line + "\n").size() == 51);
  const std::string all = fixture.complaints("schema = 1\n" + line + "\n");
  CHECK(has(all, "more than 50 errors"));
  CHECK(all.size() < 64 << 10);
  // One mistake in a long line, and one long word.
  const auto findings = fixture.findings("schema = 1\ny" + std::string(100'000, 'x') + " = 1\n");
  CHECK(render(findings.at(0)).size() < 4 << 10);
  CHECK(findings.at(0).message.size() > 100'000);
}

TEST_CASE("a long line is cut around the mistake, and the caret stays under it") {
  ManifestFixture fixture;
  const std::string text = "schema = 1\nmodel = {x-a = \"" + std::string(300, 'b') +
                           "äöü\", m = 7, x-b = \"" + std::string(300, 'c') + "\"}\n";
  const auto findings = fixture.findings(text);
  REQUIRE(findings.size() == 1);
  const Diagnostic& d = findings[0];
  CHECK(d.position.column > 300);
  CHECK(d.source_line.starts_with("...b"));
  CHECK(d.source_line.ends_with("c..."));
  const std::string shown = render(d);
  CHECK(has(shown, "äöü\", m = 7"));
  // Columns count characters, and three of them have two bytes.
  const std::size_t caret = shown.size() - shown.rfind("| ") - 2;
  CHECK(shown.ends_with("^"));
  CHECK(d.source_line.find("m = 7") == caret - 1 + 3);
}

TEST_CASE("warnings beyond a number of them are left out") {
  ManifestFixture fixture;
  std::string text = "schema = 1\n[device.d]\nbackend = \"b.one\"\n";
  for (int i = 0; i < 200; ++i) {
    text += "[model.m" + std::to_string(i) +
            "]\nplugin = \"m.one\"\ndevice = \"d\"\ncheckpoint = \"/nowhere\"\n";
  }
  const auto warnings = fixture.parse(text).warnings;
  REQUIRE(warnings.size() == 51);
  CHECK(has(warnings.back().message, "more than 50 warnings"));
}

TEST_CASE("a mistake in an environment is reported where it is made, with what to write") {
  ManifestFixture fixture;
  const std::string good = "schema = 1\n[environment.world]\nplugin = \"e.one\"\n";
  CHECK(fixture.parse(good).environments.size() == 1);
  auto findings = fixture.findings(good + "[host.arm]\nenvironment = \"wrold\"\n");
  REQUIRE(findings.size() == 1);
  CHECK(findings[0].position.line == 5);
  CHECK(has(render(findings[0]), "did you mean `world`?"));
  findings = fixture.findings("schema = 1\n[environment.world]\nplugin = \"m.one\"\n");
  REQUIRE(findings.size() == 1);
  CHECK(findings[0].position.line == 3);
  CHECK(has(findings[0].message, "'m.one' is a model plugin; here belongs an environment plugin"));
  CHECK(has(findings[0].notes.at(0), "environment plugins: e.one"));
  CHECK(has(fixture.complaints(edited("plugin     = \"m.one\"", "plugin     = \"e.one\"")),
            "'e.one' is an environment plugin; here belongs a model plugin"));
  CHECK(has(fixture.complaints("schema = 1\n[environment.world]\n"), "missing key `plugin`"));
  CHECK(has(fixture.complaints(good + "drift = 1\n"),
            "options of the plugin belong in [environment.world.options]"));
  CHECK(has(fixture.complaints(good + "[environment.world.options]\ndrfit = 1\n"),
            "did you mean `drift`?"));
  CHECK(has(fixture.complaints(good + "[environment.world.options]\ndrift = 7\n"), "drift"));
  CHECK(has(fixture.complaints("schema = 1\n[enviroment.world]\n"), "did you mean `environment`?"));
  CHECK(has(fixture.complaints("schema = 1\nenvironment = 3\n"),
            "expected tables [environment.NAME]"));
}
