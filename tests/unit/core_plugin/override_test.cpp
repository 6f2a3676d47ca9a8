// SPDX-License-Identifier: Apache-2.0
// Precedence: default < manifest < environment < flag.
#include "manifest_fixture.hpp"

using namespace frt::core;
using test::has;
using test::ManifestFixture;

TEST_CASE("a later layer wins over an earlier one, and says so") {
  ManifestFixture fixture;
  const auto context = [&] { return fixture.parse(test::kComplete).models[0].options; };
  CHECK(context().integer("max_context") == 65536);
  fixture.variables["FRT_MODEL_Q_OPTIONS_MAX_CONTEXT"] = "8k";
  CHECK(context().integer("max_context") == 8192);
  CHECK(context().find("max_context")->from.text == "environment FRT_MODEL_Q_OPTIONS_MAX_CONTEXT");
  fixture.request.sets = {"model.q.options.max_context=4k", "model.q.options.max_context=2k"};
  CHECK(context().integer("max_context") == 2048);
  CHECK(context().find("max_context")->from.origin == Origin::kFlag);
}

TEST_CASE("every kind of table can be overridden") {
  ManifestFixture fixture;
  fixture.variables["FRT_DEVICE_CPU_ORDINAL"] = "7";
  fixture.variables["FRT_PLUGIN_OPTIONS_B_ONE_POOL"] = "5";
  fixture.variables["FRT_HOST_LM_FOLDER"] = "here";
  fixture.request.sets = {"device.cpu.capture=true", "device.cpu.options.threads=1",
                          "device.gpu0.options.threads=2", "plugin-options.m.one.x=1"};
  // m.one has no plugin options, so the last flag is an error.
  CHECK(has(fixture.complaints(test::kComplete),
            "--set plugin-options.m.one.x=1: unknown key `x` in [plugin-options.m.one]"));
  fixture.request.sets.back() = "host.public.listen=a:1";
  const Manifest manifest = fixture.parse(test::kComplete);
  CHECK(manifest.find_device("cpu")->ordinal() == 7);
  CHECK(manifest.find_device("cpu")->capture());
  CHECK(manifest.find_device("cpu")->options->integer("threads") == 1);
  const Config chosen =
      resolve_device_options(manifest, *manifest.find_device("gpu0"), test::FakeSchemas::backend());
  CHECK(chosen.integer("threads") == 2);
  CHECK(manifest.plugin_options.at("b.one").integer("pool") == 5);
  CHECK(manifest.find_host("lm")->settings.text("folder") == "/data/here");
  CHECK(manifest.find_host("web")->settings.text("listen") == "a:1");
}

TEST_CASE("an option of a plugin that is set beside its table is told where it belongs") {
  ManifestFixture fixture;
  fixture.request.sets = {"device.gpu0.threads=2", "model.q.slots=4", "model.q.options.slot=4"};
  const auto complaints = fixture.complaints(test::kComplete);
  CHECK(has(complaints, "unknown key `threads` in [device.gpu0]"));
  CHECK(has(complaints, "options of the backend belong in [device.gpu0.options]"));
  CHECK(has(complaints, "unknown key `slots` in [model.q]"));
  CHECK(has(complaints, "options of the plugin belong in [model.q.options]"));
  CHECK(complaints.find("[model.q.options.options]") == std::string::npos);
}

TEST_CASE("a plugin id with dots may be quoted in a flag") {
  ManifestFixture fixture;
  fixture.request.sets = {"plugin-options.\"b.one\".pool=8"};
  CHECK(fixture.parse(test::kComplete).plugin_options.at("b.one").integer("pool") == 8);
}

TEST_CASE("another plugin or device may be chosen by flag") {
  ManifestFixture fixture;
  fixture.request.sets = {"device.gpu0.backend=b.one", "model.q.device=cpu"};
  const Manifest manifest = fixture.parse(test::kComplete);
  CHECK(manifest.find_device("gpu0")->options->integer("threads") == 3);
  CHECK(manifest.find_model("q")->device() == "cpu");
}

TEST_CASE("flags that are malformed, meet no table or no type are errors that quote them") {
  ManifestFixture fixture;
  fixture.request.sets = {
      "nonsense",       "a=b",      "model.q.options.slots=many", "model.r.options.slots=1",
      "model..slots=1", "x.\"y.z=1"};
  const std::string all = fixture.complaints(test::kComplete);
  CHECK(has(all, "--set nonsense: expected table.key=value"));
  CHECK(has(all, "--set a=b: expected table.key=value"));
  CHECK(has(all, "expected a whole number, found 'many'"));
  CHECK(has(all, "--set model.r.options.slots=1: there is no table [model.r.options]"));
  CHECK(has(all, "did you mean `model.q.options`?"));
  CHECK(has(all, "--set model..slots=1: expected"));
  CHECK(has(all, "--set x.\"y.z=1: expected"));
}

TEST_CASE("a bad value from the environment names the variable") {
  ManifestFixture fixture;
  fixture.variables["FRT_MODEL_Q_OPTIONS_SLOTS"] = "0";
  CHECK(has(fixture.complaints(test::kComplete),
            "environment FRT_MODEL_Q_OPTIONS_SLOTS: `slots` in [model.q.options]: 0 is outside"));
}

TEST_CASE("a variable that looks like ours and sets nothing is warned of") {
  ManifestFixture fixture;
  fixture.request.environment_names = {"FRT_MODEL_Q_OPTIONS_SLOTZ", "FRT_MODELS", "FRT_PLUGIN_PATH",
                                       "PATH", "FRT_MODEL_Q_DEVICE"};
  const Manifest manifest = fixture.parse(test::kComplete);
  std::string all;
  for (const Diagnostic& warning : manifest.warnings) all += render(warning) + "\n";
  CHECK(has(all, "warning: environment variable FRT_MODEL_Q_OPTIONS_SLOTZ sets nothing"));
  CHECK(has(all, "did you mean `FRT_MODEL_Q_OPTIONS_SLOTS`?"));
  CHECK(manifest.warnings.size() == 2);  // and the checkpoint
}
