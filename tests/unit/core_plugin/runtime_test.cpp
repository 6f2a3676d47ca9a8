// SPDX-License-Identifier: Apache-2.0
// A manifest at work: plugins and devices opened together or not at all.
#include <frt/core/exec_table.hpp>
#include <frt/core/runtime.hpp>

#include "helpers.hpp"
#include "plugins/probe_table.hpp"

using namespace frt::core;
using test::error_of;
using test::has;

namespace {

struct Program {
  Log log{[] {
    LogOptions options;
    options.descriptor = -1;
    return options;
  }()};
  HostServices services{log};
  Registry registry{[] {
    RegistryOptions options;
    options.plugin_folders = {test::kPlugins / "good", test::kPlugins / "devices"};
    options.use_environment = false;
    options.own_folder = "/nowhere";
    options.probing = Probing::kNever;
    return options;
  }()};

  Manifest manifest(const std::string& text) {
    ManifestRequest request;
    request.environment = [](const std::string&) { return std::nullopt; };
    request.schemas = &registry;
    return parse_manifest(text, "/m.toml", request);
  }
};

constexpr const char* kText = R"(
schema = 1
[device.first]
backend = "test.xpu80"
capture = false
[device.second]
backend = "auto"
ordinal = 1
[device.second.options]
lanes = 3
[device.unused]
backend = "test.processor"
[model.m]
plugin = "test.model"
device = "second"
checkpoint = "synthetic:x"
[plugin-options."test.model"]
threads = 9
)";

}  // namespace

TEST_CASE("a runtime opens what models use, with options, and closes it again") {
  Program program;
  const Runtime runtime(program.manifest(kText), program.registry, program.services);
  const RuntimeDevice& device = runtime.device("second");
  CHECK(device.plugin->loaded().card.id == "test.xpu90");
  CHECK(device.options.integer("lanes") == 3);
  frt_context_info info{};
  info.struct_size = sizeof(info);
  REQUIRE(exec_table()->context_info(device.context, &info) == FRT_OK);
  CHECK(std::string(info.name) == "second");
  CHECK(std::string(info.backend_id) == "test.xpu90");
  CHECK(info.eager == 0);
  CHECK(info.device.ordinal == 1);
  CHECK(runtime.model_plugin("m").require<ProbeTable>(kProbeId).threads == 9);
  CHECK(runtime.plugin("test.model") != nullptr);
  CHECK(runtime.plugin("test.nothing") == nullptr);
  CHECK(error_of([&] { runtime.device("unused"); }).status() == FRT_ERR_NOT_FOUND);
  CHECK(error_of([&] { runtime.model_plugin("x"); }).status() == FRT_ERR_NOT_FOUND);

  std::string summary;
  for (const SummaryRow& row : runtime.summary()) {
    summary += row.what + " " + row.name + " " + row.status + ": " + row.detail + "\n";
  }
  CHECK(has(summary, "plugin test.model loaded: model 1.2.3, ABI 1.0"));
  CHECK(has(summary, "device second open: test.xpu90, machine code for xpu_90a"));
  CHECK(has(summary, "device second not chosen: test.processor: is the processor itself"));
}

TEST_CASE("all devices are opened when asked for, eager ones as such") {
  Program program;
  const Runtime runtime(program.manifest(kText), program.registry, program.services,
                        {.all_devices = true});
  frt_context_info info{};
  info.struct_size = sizeof(info);
  REQUIRE(exec_table()->context_info(runtime.device("first").context, &info) == FRT_OK);
  CHECK(info.eager == 1);
  CHECK(runtime.device("unused").plugin->loaded().card.id == "test.processor");
}

TEST_CASE("a device that fails to open closes the others and names itself") {
  Program program;
  const std::string text = std::string(kText) + "[device.unused.options]\nlanes = 8\n";
  const frt::Error error = error_of([&] {
    Runtime(program.manifest(text), program.registry, program.services, {.all_devices = true});
  });
  CHECK(error.status() == FRT_ERR_DEVICE);
  CHECK(has(error.what(), "device 'unused' (test.processor): "));
  CHECK(has(error.what(), "eight lanes are too many"));
}

TEST_CASE("the options of an automatic device are checked against the chosen backend") {
  Program program;
  std::string text = kText;
  text.replace(text.find("lanes = 3"), 9, "lanes = 9");
  const frt::Error error =
      error_of([&] { Runtime(program.manifest(text), program.registry, program.services); });
  CHECK(error.status() == FRT_ERR_INVALID_ARGUMENT);
  CHECK(has(error.what(), "m.toml:10:9"));
  CHECK(has(error.what(), "9 is outside 1 to 8"));
}
