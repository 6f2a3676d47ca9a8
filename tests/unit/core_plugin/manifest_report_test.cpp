// SPDX-License-Identifier: Apache-2.0
// A resolved manifest as TOML and as JSON, and the JSON Schema of manifests: hosts show them.
#include "runtime/report/manifest_report.hpp"

#include <nlohmann/json.hpp>

#include "manifest_fixture.hpp"
#include "mutated_text.hpp"

using namespace frt::core;
using frt::host::dump_json;
using frt::host::dump_toml;
using frt::host::manifest_json_schema;
using test::has;
using test::ManifestFixture;

TEST_CASE("the TOML dump is a manifest that gives the same dump, and names every source") {
  ManifestFixture fixture;
  fixture.request.sets = {"model.q.options.slots=2"};
  const std::string dump = dump_toml(fixture.parse(test::kComplete));
  CHECK(has(dump, "slots = 2"));
  CHECK(has(dump, "# --set model.q.options.slots=2"));
  CHECK(has(dump, "# default"));
  CHECK(has(dump, "# /etc/m.toml:26:1"));
  fixture.request.sets.clear();
  const Manifest again = fixture.parse(dump);
  const auto without_sources = [](std::string text) {
    std::string result;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = text.find('\n', at);
      const std::string line = text.substr(at, end - at);
      result += line.substr(0, line.find(" #")) + "\n";
      at = end + 1;
    }
    return result;
  };
  CHECK(without_sources(dump_toml(again)) == without_sources(dump));
}

TEST_CASE("the JSON dump holds value and source of everything") {
  ManifestFixture fixture;
  const auto json = nlohmann::json::parse(dump_json(fixture.parse(test::kComplete)));
  CHECK(json["schema"] == 1);
  CHECK(json["model"]["q"]["options"]["max_context"]["value"] == 65536);
  CHECK(json["model"]["q"]["options"]["max_context"]["source"] == "/etc/m.toml:26:1");
  CHECK(json["model"]["q"]["options"]["numerics"]["value"] == "fast");
  CHECK(json["device"]["cpu"]["capture"]["value"] == false);
  CHECK(json["device"]["gpu0"]["options"]["threads"]["value"] == 3);
  CHECK(json["host"]["public"]["type"] == "web");
  CHECK(json["plugin"][0]["id"] == "b.one");
  CHECK(json["plugin-options"]["b.one"]["pool"]["value"] == 3);
}

TEST_CASE("environments are dumped with their options, and the dump can be read") {
  ManifestFixture fixture;
  const Manifest manifest = fixture.parse(
      "schema = 1\n[environment.world]\nplugin = \"e.one\"\n[environment.world.options]\n"
      "drift = 0.25\n");
  const std::string dump = dump_toml(manifest);
  CHECK(has(dump, "[environment.world.options]"));
  CHECK(fixture.parse(dump).find_environment("world")->options.find("drift")->number == 0.25);
  const auto json = nlohmann::json::parse(dump_json(manifest));
  CHECK(json["environment"]["world"]["plugin"]["value"] == "e.one");
  CHECK(json["environment"]["world"]["options"]["drift"]["value"] == 0.25);
}

TEST_CASE("the JSON schema describes tables, plugin options and hosts") {
  ManifestFixture fixture;
  const auto schema = nlohmann::json::parse(
      manifest_json_schema(fixture.request.hosts,
                           {{"b.one", FRT_PLUGIN_BACKEND, test::FakeSchemas::backend()},
                            {"m.one", FRT_PLUGIN_MODEL, test::FakeSchemas::model()},
                            {"e.one", FRT_PLUGIN_ENVIRONMENT, test::FakeSchemas::environment()}}));
  CHECK(schema["$schema"] == "https://json-schema.org/draft/2020-12/schema");
  CHECK(schema["additionalProperties"] == false);
  const auto& model = schema["properties"]["model"]["additionalProperties"];
  CHECK(model["required"] == nlohmann::json({"plugin", "device", "checkpoint"}));
  const auto& branch = model["allOf"][0];
  CHECK(branch["if"]["properties"]["plugin"]["const"] == "m.one");
  const auto& options = branch["then"]["properties"]["options"]["properties"];
  CHECK(options["numerics"]["enum"] == nlohmann::json({"fast", "reference"}));
  CHECK(options["slots"]["maximum"] == 64);
  CHECK(options["slots"]["default"] == 4);
  CHECK(options["max_context"]["type"] == nlohmann::json({"integer", "string"}));
  const auto& environment = schema["properties"]["environment"]["additionalProperties"];
  CHECK(environment["required"] == nlohmann::json({"plugin"}));
  CHECK(
      environment["allOf"][0]["then"]["properties"]["options"]["properties"]["drift"]["maximum"] ==
      1);
  CHECK(schema["properties"]["host"]["properties"]["lm"]["required"] == nlohmann::json({"model"}));
  const auto& plugin_options = schema["properties"]["plugin-options"]["properties"];
  CHECK(plugin_options["b.one"]["properties"]["pool"]["type"] == "integer");
  CHECK_FALSE(nlohmann::json::parse(
                  manifest_json_schema({}, {}))["properties"]["model"]["additionalProperties"]
                  .contains("allOf"));
}

TEST_CASE("whatever is read can be shown, and what is shown can be read") {
  std::mt19937_64 random(3);
  ManifestFixture fixture;
  int shown = 0;
  for (int round = 0; round < 1500; ++round) {
    const std::string text = test::mutated(test::kComplete, random);
    std::optional<Manifest> manifest;
    try {
      manifest = fixture.parse(text);
    } catch (const frt::Error&) {
      continue;
    }
    CHECK_NOTHROW(fixture.parse(dump_toml(*manifest)));
    CHECK(nlohmann::json::accept(dump_json(*manifest)));
    ++shown;
  }
  CHECK(shown > 30);
}
