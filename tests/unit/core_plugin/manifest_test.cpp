// SPDX-License-Identifier: Apache-2.0
// Manifests that are right: what is read, the dumps, the JSON schema.
#include <chrono>
#include <frt/core/registry.hpp>
#include <nlohmann/json.hpp>

#include "manifest_fixture.hpp"

using namespace frt::core;
using test::has;
using test::ManifestFixture;

TEST_CASE("a complete manifest is read with its defaults and sources") {
  ManifestFixture fixture;
  const Manifest manifest = fixture.parse(test::kComplete);
  REQUIRE(manifest.devices.size() == 2);
  const DeviceSpec& gpu = *manifest.find_device("gpu0");
  CHECK(gpu.automatic());
  CHECK(gpu.ordinal() == 0);
  CHECK(gpu.capture());
  CHECK_FALSE(gpu.options.has_value());
  const DeviceSpec& cpu = *manifest.find_device("cpu");
  CHECK(cpu.backend() == "b.one");
  CHECK(cpu.ordinal() == 2);
  CHECK_FALSE(cpu.capture());
  REQUIRE(cpu.options.has_value());
  CHECK(cpu.options->integer("threads") == 6);
  const ModelSpec& model = *manifest.find_model("q");
  CHECK(model.plugin() == "m.one");
  CHECK(model.device() == "gpu0");
  CHECK(model.checkpoint() == "/etc/weights");
  CHECK(model.options.integer("slots") == 4);
  CHECK(model.options.integer("max_context") == 65536);
  CHECK(model.options.find("slots")->from.text == "default");
  CHECK(model.options.find("max_context")->from.text == "/etc/m.toml:26:1");
  const HostSpec& host = *manifest.find_host("lm");
  CHECK(host.settings.text("model") == "q");
  CHECK(host.settings.text("folder") == "/etc/capsules");
  CHECK(manifest.find_host("web")->name == "public");
  CHECK(manifest.plugin_options.at("b.one").integer("pool") == 3);
  CHECK(manifest.plugin_options.contains("m.one"));
  REQUIRE(manifest.plugins.size() == 1);
  CHECK(manifest.plugins[0].path == "/etc/plugins/one.so");
  CHECK(fixture.schemas.pinned == std::vector<std::string>{"b.one"});
  CHECK(manifest.find_device("none") == nullptr);
}

TEST_CASE("a checkpoint that does not exist is a warning, a synthetic one is none") {
  ManifestFixture fixture;
  const Manifest manifest = fixture.parse(test::kComplete);
  REQUIRE(manifest.warnings.size() == 1);
  CHECK(has(render(manifest.warnings[0]), "checkpoint '/etc/weights' does not exist"));
  std::string text = test::kComplete;
  text.replace(text.find("\"weights\""), 9, "\"synthetic:tiny\"");
  CHECK(fixture.parse(text).warnings.empty());
}

TEST_CASE("without a source of schemas options are read but not checked") {
  ManifestFixture fixture;
  fixture.request.schemas = nullptr;
  const Manifest manifest = fixture.parse(test::kComplete);
  CHECK(manifest.models.size() == 1);
  CHECK(manifest.models[0].options.values().empty());
}

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

TEST_CASE("the JSON schema describes tables, plugin options and hosts") {
  ManifestFixture fixture;
  const auto schema = nlohmann::json::parse(manifest_json_schema(
      fixture.request.hosts, {{"b.one", FRT_PLUGIN_BACKEND, test::FakeSchemas::backend()},
                              {"m.one", FRT_PLUGIN_MODEL, test::FakeSchemas::model()}}));
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
  CHECK(schema["properties"]["host"]["properties"]["lm"]["required"] == nlohmann::json({"model"}));
  const auto& plugin_options = schema["properties"]["plugin-options"]["properties"];
  CHECK(plugin_options["b.one"]["properties"]["pool"]["type"] == "integer");
  CHECK_FALSE(nlohmann::json::parse(
                  manifest_json_schema({}, {}))["properties"]["model"]["additionalProperties"]
                  .contains("allOf"));
}

TEST_CASE(
    "a manifest file is read from disk; a missing file, a folder and a huge file are errors") {
  const test::Folder folder;
  ManifestFixture fixture;
  const auto path = folder.write("robot.toml", "schema = 1\n[device.d]\nbackend = \"auto\"\n");
  CHECK(load_manifest(path, fixture.request).devices.size() == 1);
  CHECK(test::error_of([&] {
          load_manifest(folder.path() / "no.toml", fixture.request);
        }).status() == FRT_ERR_NOT_FOUND);
  CHECK(test::error_of([&] { load_manifest(folder.path(), fixture.request); }).status() ==
        FRT_ERR_IO);
  const auto huge = folder.write("huge.toml", std::string(2 << 20, '#'));
  CHECK(test::error_of([&] { load_manifest(huge, fixture.request); }).status() ==
        FRT_ERR_OUT_OF_RANGE);
}
