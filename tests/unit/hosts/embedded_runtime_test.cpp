// SPDX-License-Identifier: Apache-2.0
// A program that embeds the runtime: from the demo manifest to text, without a terminal, a command
// line or a server.
#include <doctest/doctest.h>

#include <set>
#include <string>
#include <vector>

#include "lm/engine/generate.hpp"
#include "runtime/device_survey.hpp"
#include "runtime/exit_code.hpp"
#include "runtime/lm_settings.hpp"
#include "runtime/loaded_model.hpp"
#include "runtime/manifest_loader.hpp"

namespace {

using namespace frt::host;
namespace core = frt::core;

const std::string kDemo = std::string(FRT_SOURCE_DIR) + "/hosts/manifests/demo.toml";

struct Program {
  static core::RegistryOptions plugins() {
    core::RegistryOptions options;
    options.plugin_folders = {FRT_PLUGIN_DIR};
    return options;
  }

  core::Log log{{.level = FRT_LOG_ERROR}};
  core::Registry registry{plugins()};
  ManifestLoader loader{registry, log, {{lm_host_kind()}, {}}};
};

class Listener final : public LoadObserver {
 public:
  void progress(std::string_view phase, uint32_t, uint64_t, uint64_t) override {
    phases.insert(std::string(phase));
  }
  void phase_ended() override { ++ended; }
  bool cancelled() const override { return cancel && phases.contains("weights"); }
  void ready(const ReadyModel& model) override { models.push_back(model); }

  bool cancel = false;
  int ended = 0;
  std::set<std::string> phases;
  std::vector<ReadyModel> models;
};

std::string continue_text(const LmModel& model, const std::string& prompt, uint64_t tokens) {
  Engine engine(model, nullptr);
  EngineRequest request;
  request.prompt = model.encode(prompt);
  request.max_new = tokens;
  request.sampling.top_p = request.sampling.repetition_penalty = 1;  // greedy
  return model.decode(generate(engine, std::move(request)).tokens);
}

}  // namespace

TEST_CASE("a program without a terminal generates text from a manifest") {
  Program program;
  Listener listener;
  LoadOptions options;
  options.observer = &listener;
  const LoadedModel loaded(program.loader, kDemo, "", options);
  CHECK(loaded.name() == "demo");
  CHECK(loaded.load_seconds() > 0);
  CHECK(listener.phases.contains("plugins"));
  CHECK(listener.phases.contains("weights"));
  CHECK(listener.ended > 0);
  REQUIRE(listener.models.size() == 1);
  const ReadyModel& ready = listener.models.front();
  CHECK(ready.name == "demo");
  CHECK(ready.device == "cpu0");
  CHECK(ready.backend == "frt.cpu");
  CHECK(ready.weight_bytes > 0);

  const LmModel model = loaded.language_model();
  const std::string text = continue_text(model, "Felix and his friend", 12);
  CHECK(!text.empty());
  CHECK(continue_text(model, "Felix and his friend", 12) == text);
}

TEST_CASE("nobody needs to listen, and an error says which stage it belongs to") {
  Program program;
  CHECK_NOTHROW(LoadedModel(program.loader, kDemo, "demo"));
  const auto stage_of = [&](const std::string& model, const std::string& set) {
    LoadOptions options;
    if (!set.empty()) options.sets = {set};
    try {
      LoadedModel(program.loader, kDemo, model, options);
    } catch (const ExitError& error) {
      return error.exit_code();
    }
    return ExitCode::kOk;
  };
  CHECK(stage_of("none", "") == ExitCode::kManifest);
  CHECK(stage_of("", "device.cpu0.ordinal=7") == ExitCode::kDevice);
  CHECK(stage_of("", "model.demo.checkpoint=nowhere") == ExitCode::kFailed);
}

TEST_CASE("an observer stops a load") {
  Program program;
  Listener listener;
  listener.cancel = true;
  LoadOptions options;
  options.observer = &listener;
  try {
    LoadedModel(program.loader, kDemo, "", options);
    FAIL("the load went on");
  } catch (const frt::Error& error) {
    CHECK(error.status() == FRT_ERR_CANCELLED);
  }
  CHECK(listener.models.empty());
}

TEST_CASE("a table that the program does not understand is refused, one that it does is read") {
  Program program;
  CHECK_THROWS_AS(
      program.loader.load(std::string(FRT_SOURCE_DIR) + "/hosts/manifests/serve-demo.toml"),
      core::DiagnosticError);
  const core::Manifest manifest = program.loader.load(kDemo);
  CHECK(capsule_settings(manifest, "demo").session.spacing == 16384);
}

TEST_CASE("a program asks what the plugins see") {
  Program program;
  const Survey survey = survey_devices(program.registry, program.log);
  bool cpu = false;
  for (const SurveyedDevice& device : survey.devices) cpu = cpu || device.plugin == "frt.cpu";
  CHECK(cpu);
}
