// SPDX-License-Identifier: Apache-2.0
// Growth through everything that hosts use: a manifest at work with the plugins of the other side,
// and each role and extension of a model. Built twice, as exec_test.cpp.
#include <doctest/doctest.h>

#include <cstring>
#include <frt/core/capsules.hpp>
#include <frt/core/exec_table.hpp>
#include <frt/core/runtime.hpp>
#include <frt/core/state.hpp>
#include <frt/reading.hpp>
#include <frt/role/contracts.hpp>
#include <string>
#include <vector>

#include "lm/chat/stream.hpp"
#include "lm/lm_model.hpp"
#include "robot/policy_model.hpp"

using namespace frt;

namespace {

constexpr const char* kManifest = R"(
schema = 1
[device.d]
backend = "auto"
[model.m]
plugin = "test.model"
device = "d"
checkpoint = "synthetic:x"
options = { width = 2 }
[model.r]
plugin = "test.roles"
device = "d"
checkpoint = "synthetic:x"
)";

core::LogOptions silent() {
  core::LogOptions options;
  options.descriptor = -1;
  return options;
}

// The plugins of the other side, tried, loaded, chosen and opened as a host does it, and a model of
// the manifest: "m" is a language model, "r" has the other roles.
class World {
 public:
  explicit World(const std::string& name)
      : registry_(options()), services_(log_), runtime_(manifest(), registry_, services_) {
    model = runtime_.create_model(name);
    context = Context(core::exec_table(), runtime_.device("d").context);
  }
  ~World() {
    context = Context();
    runtime_.destroy_model(model);
  }
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  const core::Runtime& runtime() const { return runtime_; }
  template <HasContract Table>
  Table extension(const char* id) const {
    const auto found = find_extension<Table>(*model.table, model.handle, id, "m");
    REQUIRE(found.has_value());
    return *found;
  }

  core::RuntimeModel model;
  Context context;

 private:
  core::RegistryOptions options() {
    core::RegistryOptions made;
    made.plugin_folders = {FRT_TEST_PLUGINS};
    made.use_environment = false;
    made.own_folder = "/nowhere";
    made.trials.clear();
    made.log = &log_;
    return made;
  }
  core::Manifest manifest() {
    core::ManifestRequest request;
    request.environment = [](const std::string&) { return std::nullopt; };
    request.schemas = &registry_;
    return core::parse_manifest(kManifest, "/m.toml", request);
  }

  core::Log log_{silent()};
  core::Registry registry_;
  core::HostServices services_;
  core::Runtime runtime_;
};

template <class Table>
void is_of_the_other_side(const void* given) {
  uint32_t size = 0;
  std::memcpy(&size, given, sizeof(size));
  CHECK(size == sizeof(Table) + (FRT_TEST_OTHER_IS_LARGER ? 32 : -32));
}

}  // namespace

TEST_CASE("the automatic choice takes a backend of the other side; the summary shows all plugins") {
  const World world("m");
  CHECK(world.runtime().device("d").plugin->loaded().card.id == "test.device");
  CHECK(world.runtime().summary().size() == 4);  // three plugins and a device
  is_of_the_other_side<frt_model_v1>(world.model.plugin->loaded().descriptor->extension(
      world.model.plugin->handle(), FRT_EXT_MODEL));
  const auto info = core::describe_model(*world.model.table, world.model.handle, "m");
  CHECK(std::string(info.architecture) == "nothing");
}

TEST_CASE("a language model of the other side has limits, keys and a fingerprint") {
  const World world("m");
  const host::LmModel lm(world.context, core::state_table(), core::capsules_table(),
                         world.model.table, world.model.handle, "m");
  CHECK(lm.info().vocabulary == 64);
  CHECK(lm.prefill_key(1) == 0);
  CHECK_FALSE(lm.capsules().fingerprint().empty());
}

TEST_CASE("a tokenizer and a chat format of the other side encode, decode and stream") {
  const World world("r");
  const host::TextModel text(*world.model.table, world.model.handle, "r", "r");
  CHECK(text.encode_text("abc", 0, 3) == std::vector<int32_t>{0, 1, 2});
  CHECK_THROWS_AS((void)text.encode_text("abcd", 0, 3), Error);  // max_tokens has arrived
  CHECK(text.decode(std::vector<int32_t>{2, 1}) == "cb");
  host::TextStream stream(text, 0);
  CHECK(stream.push(4) == "e");
  CHECK(text.render({}, nullptr, nullptr).text == "hi");
  CHECK(text.parse("hi", nullptr, nullptr)["content"] == "hi");
  CHECK(text.generation_defaults()["top_k"] == 3);
  host::ChatStream chat(text, nullptr, nullptr);
  CHECK(chat.push("hello").size() == 1);
  CHECK(chat.message()["content"] == "hello");
}

TEST_CASE("a policy of the other side takes an observation and gives actions") {
  const World world("r");
  const host::PolicyModel policy(world.context, world.model.table, world.model.handle, "m");
  CHECK(policy.info().horizon == 2);
  REQUIRE(policy.names().size() == 1);
  CHECK(policy.names()[0].name == "state");
  frt_policy_shape shape{};
  shape.struct_size = sizeof(shape);
  shape.prompt = 3;
  shape.branches = 1;
  CHECK(policy.infer_key(shape) == 31);

  const Stream stream = world.context.create_stream("main");
  const double state[] = {10, 20};
  frt_array array{"state", state, FRT_DTYPE_F64, 1, {2}};
  frt_observation observation{};
  observation.struct_size = sizeof(observation);
  observation.array_count = 1;
  observation.arrays = &array;
  const int32_t prompt[] = {4, 5, 6};
  observation.prompt_tokens = prompt;
  observation.prompt_token_count = 3;
  frt_observed observed{};
  observed.struct_size = sizeof(observed);
  frt_error error{};
  check(
      policy.observation().write(policy.handle(), &observation, stream.handle(), &observed, &error),
      error);
  CHECK(observed.prompt == 3);
  const float actions[] = {1, 2, 3, 4};
  double robot[4] = {};
  check(policy.observation().finish(policy.handle(), &observed, actions, robot, &error), error);
  CHECK(robot[0] == 11);
  CHECK(robot[3] == 24);

  const float before[] = {0.5f, 0};
  frt_policy_previous previous{};
  previous.struct_size = sizeof(previous);
  previous.rows = 1;
  previous.actions = before;
  check(policy.role().set_continuation(policy.handle(), &previous, stream.handle(), &error), error);
}

TEST_CASE("a critic of the other side takes an instruction") {
  const World world("r");
  const host::CriticModel critic(world.context, world.model.table, world.model.handle, "m");
  CHECK(critic.info().state_dim == 2);
  const Stream stream = world.context.create_stream("main");
  CHECK_NOTHROW(critic.set_instruction("fold", stream));
  CHECK_THROWS_AS(critic.set_instruction("fly", stream), Error);
}

TEST_CASE("a selftest of the other side reports its rows") {
  const World world("r");
  const auto selftest = world.extension<frt_selftest_v1>(FRT_EXT_SELFTEST);
  struct Seen {
    std::string tensor;
    double agreement = 0;
  } seen;
  frt_error error{};
  const auto report = [](void* user, const frt_selftest_row* row) -> frt_status {
    is_of_the_other_side<frt_selftest_row>(row);
    *static_cast<Seen*>(user) = {row->tensor, row->argmax_agreement};
    return FRT_OK;
  };
  check(selftest.run(world.model.handle, "/nowhere", report, &seen, &error), error);
  CHECK(seen.tensor == "t0.logits");
  CHECK(seen.agreement == 1);
}

TEST_CASE("a calibration of the other side takes a shape and writes its text") {
  const World world("r");
  const auto calibration = world.extension<frt_calibration_v1>(FRT_EXT_CALIBRATION);
  const Stream stream = world.context.create_stream("main");
  frt_error error{};
  check(calibration.begin(world.model.handle, &error), error);
  frt_policy_shape shape{};
  shape.struct_size = sizeof(shape);
  shape.branches = 1;
  check(calibration.note(world.model.handle, &shape, stream.handle(), &error), error);
  shape.branches = 2;
  CHECK(calibration.note(world.model.handle, &shape, stream.handle(), &error) ==
        FRT_ERR_OUT_OF_RANGE);
  std::string text;
  const auto sink = [](void* user, const void* data, uint64_t bytes) -> frt_status {
    static_cast<std::string*>(user)->append(static_cast<const char*>(data), bytes);
    return FRT_OK;
  };
  check(calibration.write(world.model.handle, 1.0, sink, &text, &error), error);
  CHECK(text == "{}");
}

TEST_CASE("a device status of the other side is read and its facts are reported") {
  const World world("r");
  const core::OpenPlugin& plugin = *world.runtime().device("d").plugin;
  const auto& table = plugin.require<frt_device_status_v1>(FRT_EXT_DEVICE_STATUS);
  const auto status = ask<frt_device_status>(
      "d", [&](frt_device_status* out) { return table.read(plugin.handle(), 0, out, nullptr); });
  CHECK(status.clock_mhz == 1200);
  CHECK(std::string(status.limited_by) == "power");
  int facts = 0;
  const auto found = [](void* self, const char*, const char*, const char*) {
    ++*static_cast<int*>(self);
  };
  frt_error error{};
  check(table.report(plugin.handle(), 0, &facts, found, &error), error);
  CHECK(facts == 1);
}
