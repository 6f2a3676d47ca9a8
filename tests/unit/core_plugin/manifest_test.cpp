// SPDX-License-Identifier: Apache-2.0
// Manifests that are right: what is read.
#include <chrono>
#include <frt/core/registry.hpp>

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

namespace {

constexpr const char* kWithEnvironments = R"(schema = 1
[environment.world]
plugin = "e.one"
[environment.world.options]
drift = 0.25
[environment.other]
plugin = "e.one"
[host.arm]
environment = "world"
)";

}  // namespace

TEST_CASE("environments are read with the options of their plugins, and can be set from outside") {
  ManifestFixture fixture;
  fixture.variables["FRT_ENVIRONMENT_OTHER_OPTIONS_DRIFT"] = "0.75";
  const Manifest manifest = fixture.parse(kWithEnvironments);
  REQUIRE(manifest.environments.size() == 2);
  const EnvironmentSpec& world = *manifest.find_environment("world");
  CHECK(world.plugin() == "e.one");
  CHECK(world.options.find("drift")->number == 0.25);
  CHECK(world.options.find("drift")->from.text == "/etc/m.toml:5:1");
  CHECK(manifest.find_environment("other")->options.find("drift")->number == 0.75);
  CHECK(manifest.find_environment("none") == nullptr);
  CHECK(manifest.plugin_options.contains("e.one"));
  CHECK(manifest.find_host("arm")->settings.text("environment") == "world");
  fixture.request.sets = {"environment.world.options.drift=0.5"};
  CHECK(fixture.parse(kWithEnvironments).find_environment("world")->options.find("drift")->number ==
        0.5);
  fixture.variables.clear();
  fixture.request.environment_names = {"FRT_ENVIRONMENT_OTHER_OPTIONS_DRFIT"};
  const Manifest misspelt = fixture.parse(kWithEnvironments);
  REQUIRE(misspelt.warnings.size() == 1);
  CHECK(has(render(misspelt.warnings[0]), "did you mean `FRT_ENVIRONMENT_OTHER_OPTIONS_DRIFT`?"));
}

TEST_CASE("a host may name an environment of the program itself") {
  ManifestFixture fixture;
  const char* own = "schema = 1\n[host.arm]\nenvironment = \"cell_4\"\n";
  CHECK(has(fixture.complaints(own),
            "'cell_4' names an [environment.NAME] of this manifest, but "
            "there is none"));
  fixture.request.environments = {"cell_4"};
  CHECK(fixture.parse(own).find_host("arm")->settings.text("environment") == "cell_4");
}
