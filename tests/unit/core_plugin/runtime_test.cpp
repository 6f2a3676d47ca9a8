// SPDX-License-Identifier: Apache-2.0
// A manifest at work: plugins and devices opened together or not at all.
#include <frt/capsule.hpp>
#include <frt/core/capsules.hpp>
#include <frt/core/exec_table.hpp>
#include <frt/core/runtime.hpp>
#include <frt/core/state.hpp>

#include <array>
#include <filesystem>
#include <thread>
#include <vector>

#include "../scratch_folder.hpp"
#include "file_digest.hpp"
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
  CHECK(info.device->ordinal == 1);
  CHECK(runtime.model_plugin("m").require<ProbeTable>(kProbeId).threads == 9);
  CHECK(runtime.plugin("test.model") != nullptr);
  CHECK(runtime.plugin("test.nothing") == nullptr);
  CHECK(error_of([&] { runtime.device("unused"); }).status() == FRT_ERR_NOT_FOUND);
  CHECK(error_of([&] { runtime.model_plugin("x"); }).status() == FRT_ERR_NOT_FOUND);

  std::string summary;
  for (const SummaryRow& row : runtime.summary()) {
    summary += row.what + " " + row.name + " " + row.status + ": " + row.detail + "\n";
  }
  CHECK(has(summary, "plugin test.model loaded: model 1.2.3, ABI 0.9"));
  CHECK(has(summary, "device second open: test.xpu90, machine code for xpu_90"));
  CHECK(has(summary, "device second not chosen: test.processor: is the CPU itself"));
}

TEST_CASE("hosts on several threads open and close one plugin's devices one at a time") {
  std::array<std::string, 4> failed;
  std::vector<std::thread> threads;
  for (std::string& failure : failed) {
    threads.emplace_back([&failure] {
      try {
        for (int i = 0; i < 5; ++i) {
          Program program;
          const Runtime runtime(program.manifest(kText), program.registry, program.services);
        }
      } catch (const std::exception& error) {
        failure = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& failure : failed) CHECK(failure == "");
}

TEST_CASE("a manifest that names a plugin's file runs with that file or not at all") {
  const auto refusal = [](const std::string& entry) {
    Program program;
    const frt::Error error = error_of([&] { program.manifest(kText + entry); });
    return std::string(error.what());
  };
  for (const char* required : {"", "required = true\n", "required = false\n"}) {
    const std::string entry = std::string("[[plugin]]\nid = \"test.model\"\n") + required;
    CHECK(has(refusal(entry + "path = \"/nowhere/model.so\"\n"), "/nowhere/model.so"));
    CHECK(has(refusal(entry + "path = \"" + test::broken("abi").string() + "\"\n"),
              "its card says 'test.broken'"));
  }
  Program program;
  const std::string good = "[[plugin]]\nid = \"test.model\"\npath = \"" +
                           test::kGoodModel.string() + "\"\nrequired = true\n";
  const Runtime runtime(program.manifest(kText + good), program.registry, program.services);
  CHECK(runtime.model_plugin("m").loaded().path == test::kGoodModel);
  Program other;  // whose registry never heard of the manifest
  ManifestRequest request;
  request.environment = [](const std::string&) { return std::nullopt; };
  const frt::Error error = error_of([&] {
    Runtime(parse_manifest(kText + good, "/m.toml", request), other.registry, other.services);
  });
  CHECK(error.status() == FRT_ERR_BAD_STATE);
}

TEST_CASE("a required plugin must load, used or not") {
  Program program;
  const frt::Error error = error_of([&] {
    program.manifest(std::string(kText) + "[[plugin]]\nid = \"test.gone\"\nrequired = true\n");
  });
  CHECK(error.status() == FRT_ERR_NOT_FOUND);
  CHECK(has(error.what(), "no plugin 'test.gone'"));
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
  CHECK(has(error.what(), "device 'unused': backend 'test.processor': opening device 0: "));
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

namespace {

// A model object that has nothing but capsules.
struct CapsuleModel {
  frt_state state = nullptr;
  int asked = 0;
  const frt_fingerprint_field fields[2] = {{"config", "tiny"}, {"weights", "synthetic:x"}};

  static frt_status layout(frt_model, const frt_capsule_layout**, frt_error*) {
    return FRT_ERR_UNSUPPORTED;
  }
  static frt_status state_of(frt_model self, frt_state* state, frt_error*) {
    *state = reinterpret_cast<CapsuleModel*>(self)->state;
    return FRT_OK;
  }
  static frt_status fingerprint(frt_model self, const frt_fingerprint_field** fields,
                                uint64_t* count, frt_error*) {
    auto& model = *reinterpret_cast<CapsuleModel*>(self);
    ++model.asked;
    *fields = model.fields;
    *count = 2;
    return FRT_OK;
  }
  static const void* extension(frt_model self, const char* id) {
    static constexpr frt_capsule_v1 kTable = {sizeof(frt_capsule_v1), 0, layout, state_of,
                                              fingerprint};
    const bool capsules = std::string(id) == FRT_EXT_CAPSULE;
    return capsules && reinterpret_cast<CapsuleModel*>(self)->state ? &kTable : nullptr;
  }
};

}  // namespace

TEST_CASE(
    "a fingerprint is of core, backend, plugin, their builds and model; it is asked for once") {
  Program program;
  const Runtime runtime(program.manifest(kText), program.registry, program.services);
  CapsuleModel model;
  frt_model_v1 table{};
  table.extension = &CapsuleModel::extension;
  const auto object = reinterpret_cast<frt_model>(&model);
  CHECK(runtime.bind_capsules("m", table, object) == nullptr);  // no capsules

  const frt::Context context(exec_table(), runtime.device("second").context);
  const frt_region region{"keys", FRT_REGION_ROWS, FRT_DTYPE_BF16, 4, 8, 1};
  const frt_capsule_layout layout{sizeof(layout), 1, &region, 0, 0};
  const frt::State state(state_table(), context, layout, 1, "state");
  model.state = state.handle();
  const frt::Capsules capsules(capsules_table(), context, state.handle());
  CHECK(error_of([&] { capsules.fingerprint(); }).status() == FRT_ERR_BAD_STATE);
  CHECK(runtime.bind_capsules("m", table, object) == state.handle());
  CHECK(error_of([&] { runtime.bind_capsules("m", table, object); }).status() == FRT_ERR_EXISTS);
  CHECK(model.asked == 0);

  std::vector<std::pair<std::string, std::string>> found;
  for (const auto& field : capsules.fingerprint()) found.emplace_back(field.name, field.value);
  const auto file = [&](const OpenPlugin* plugin) {
    return test::file_digest(plugin->loaded().path);
  };
  const std::vector<std::pair<std::string, std::string>> expected = {
      {"abi", "0.9"},
      {"arena.page_rows", "0"},
      {"arena.regions", sha256_hex("keys rows bf16 4 1\n")},
      {"backend", "test.xpu90"},
      {"build.backend.version", "1"},
      {"build.backend.file", file(runtime.device("second").plugin)},
      {"plugin", "test.model"},
      {"build.plugin.version", "1.2.3"},
      {"build.plugin.file", file(&runtime.model_plugin("m"))},
      {"build.device", context.info().device->architecture},
      {"build.device.numerics", "41 units"},
      {"build.device.options.lanes", "3"},
      {"model.config", "tiny"},
      {"model.weights", "synthetic:x"}};
  REQUIRE(found.size() == expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    CHECK(found[i].first == expected[i].first);
    CHECK(found[i].second == expected[i].second);
  }
  capsules.fingerprint();
  CHECK(model.asked == 1);
}

namespace {

constexpr const char* kTwoBuilds = R"(
schema = 1
[device.one]
backend = "test.xpu90"
ordinal = 0
[device.one.options]
lanes = 2
[device.two]
backend = "test.xpu90"
ordinal = 1
[device.two.options]
lanes = 3
[model.here]
plugin = "test.model"
device = "one"
checkpoint = "synthetic:x"
[model.there]
plugin = "test.model"
device = "two"
checkpoint = "synthetic:x"
)";

// The capsules of one model of the manifest, as a host binds them.
struct Side {
  Side(const Runtime& runtime, const std::string& device, const std::string& name)
      : context(exec_table(), runtime.device(device).context),
        stream(context.create_stream("main")),
        state(state_table(), context, layout(), 3, "state"),
        capsules(capsules_table(), context, state.handle()) {
    model.state = state.handle();
    table.extension = &CapsuleModel::extension;
    runtime.bind_capsules(name, table, reinterpret_cast<frt_model>(&model));
    capsules.fingerprint();
  }
  static frt_capsule_layout layout() {
    static constexpr frt_region kRegion{"keys", FRT_REGION_ROWS, FRT_DTYPE_BF16, 4, 8, 0};
    return {sizeof(frt_capsule_layout), 1, &kRegion, 0, 0};
  }
  frt::Capsule taken(uint32_t slot, uint64_t boundary) const {
    frt::Capsule made = capsules.snapshot(slot, boundary, FRT_SPACE_HOST, stream);
    made.sync();
    return made;
  }
  std::string origin(uint32_t slot, uint64_t boundary) const {
    return std::string(taken(slot, boundary).other_build());
  }

  CapsuleModel model;
  frt_model_v1 table{};
  frt::Context context;
  frt::Stream stream;
  frt::State state;
  frt::Capsules capsules;
};

using Folder = frt::test::ScratchFolder;

}  // namespace

TEST_CASE(
    "a slot that goes on from what a device of other numerics computed says what both are, through "
    "forks and files, until it is cleared") {
  const Folder folder;
  Program program;
  const Runtime runtime(program.manifest(kTwoBuilds), program.registry, program.services);
  const Side one(runtime, "one", "here"), two(runtime, "two", "there");
  one.state.reserve(0, 0, 4, one.stream);
  one.taken(0, 4).save(folder.path, "first", "");
  CHECK(one.origin(0, 4).empty());
  CHECK(one.capsules.load(folder.path, "first", FRT_SPACE_HOST).other_build().empty());

  const frt::Capsule loaded = two.capsules.load(folder.path, "first", FRT_SPACE_HOST);
  const std::string difference =
      "build.device.numerics: here 41 units, not stored\n"
      "build.device.options.lanes: here 3, stored 2";
  CHECK(std::string(loaded.other_build()) == difference);
  loaded.restore(0, two.stream);
  two.state.reserve(0, 4, 6, two.stream);
  CHECK(two.origin(0, 6) == difference);
  two.capsules.fork_slot(0, 6, std::array{1u}, two.stream);
  CHECK(two.origin(1, 6) == difference);
  const frt::Capsule mixed = two.taken(1, 6);
  mixed.fork(std::array{2u}, two.stream);
  CHECK(two.origin(2, 6) == difference);

  // What both computed a part of is of another build to either.
  mixed.save(folder.path, "mixed", "");
  for (const Side* side : {&one, &two}) {
    const frt::Capsule again = side->capsules.load(folder.path, "mixed", FRT_SPACE_HOST);
    CHECK(has(std::string(again.other_build()), "build.continues: stored "));
    again.restore(1, side->stream);
    CHECK(has(side->origin(1, 6), "build.continues: stored "));
  }
  const std::string seen_from_one =
      std::string(one.capsules.load(folder.path, "mixed", FRT_SPACE_HOST).other_build());
  CHECK(has(seen_from_one, "build.device.options.lanes: here 2, stored 3"));
  CHECK(has(seen_from_one, "build.device.numerics: stored 41 units, not here"));

  two.state.clear(1, two.stream);
  CHECK(two.origin(1, 0).empty());
  two.state.reserve(1, 0, 2, two.stream);
  CHECK(two.origin(1, 2).empty());
}
