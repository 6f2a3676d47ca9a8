// SPDX-License-Identifier: Apache-2.0
// Models with an operator of their own, of one name, made by the real Runtime on one context of the
// backend frt.cpu: again after they were destroyed, and several at once.
#include <frt/core/exec_table.hpp>
#include <frt/core/runtime.hpp>
#include <frt/exec.hpp>

#include "helpers.hpp"

using namespace frt::core;

namespace {

constexpr frt_shape_key kKey = 1;

// A runtime with one device and the models `one`, which adds 1, and `ten`, which adds 10.
struct Program {
  explicit Program(bool capture)
      : runtime(manifest(capture), registry, services),
        context(exec_table(), runtime.device("d").context),
        stream(context.create_stream("test")) {}

  Manifest manifest(bool capture) {
    ManifestRequest request;
    request.environment = [](const std::string&) { return std::nullopt; };
    request.schemas = &registry;
    const std::string model =
        "plugin = \"test.own_operator\"\ndevice = \"d\"\n"
        "checkpoint = \"synthetic:x\"\n";
    return parse_manifest(std::string("schema = 1\n[device.d]\nbackend = \"frt.cpu\"\ncapture = ") +
                              (capture ? "true" : "false") + "\n[model.one]\n" + model +
                              "[model.ten]\n" + model + "[model.ten.options]\nnumber = 10\n",
                          "/m.toml", request);
  }
  // The model's total after one more replay.
  int64_t step(const RuntimeModel& model) const {
    const frt_model_graph* graphs = nullptr;
    const frt_port* ports = nullptr;
    uint64_t count = 0;
    REQUIRE(model.table->graphs(model.handle, &graphs, &count) == FRT_OK);
    REQUIRE(count == 1);
    REQUIRE(model.table->ports(model.handle, &ports, &count) == FRT_OK);
    REQUIRE(count == 1);
    context.checked(exec_table()->graph_replay(graphs[0].graph, kKey, stream), "graph_replay");
    stream.sync();
    return *frt::Buffer::retain(context, ports[0].buffer).pointer<const int64_t>();
  }

  Log log{[] {
    LogOptions options;
    options.descriptor = -1;
    return options;
  }()};
  HostServices services{log};
  Registry registry{[] {
    RegistryOptions options;
    options.plugin_folders = {test::kPlugins / "own_operator", FRT_PLUGIN_DIR};
    options.use_environment = false;
    options.own_folder = "/nowhere";
    options.probing = Probing::kNever;
    return options;
  }()};
  Runtime runtime;
  frt::Context context;
  frt::Stream stream;
};

}  // namespace

TEST_CASE("a model with an operator of its own is made, destroyed and made again on one context") {
  for (const bool capture : {true, false}) {
    CAPTURE(capture);
    const Program program(capture);
    for (int time = 0; time < 3; ++time) {
      CAPTURE(time);
      const RuntimeModel model = program.runtime.create_model("one");
      CHECK(program.step(model) == 1);
      CHECK(program.step(model) == 2);
      program.runtime.destroy_model(model);
    }
    // Nothing is left of them.
    const frt_counters counters = program.context.counters();
    for (const uint64_t bytes : counters.buffer_bytes) CHECK(bytes == 0);
  }
}

TEST_CASE("models with operators of one name live side by side, each with its own operator") {
  for (const bool capture : {true, false}) {
    CAPTURE(capture);
    const Program program(capture);
    const RuntimeModel one = program.runtime.create_model("one");
    const RuntimeModel ten = program.runtime.create_model("ten");
    const RuntimeModel again = program.runtime.create_model("one");
    CHECK(program.step(one) == 1);
    CHECK(program.step(ten) == 10);
    CHECK(program.step(again) == 1);
    CHECK(program.step(ten) == 20);
    CHECK(program.step(one) == 2);
    program.runtime.destroy_model(one);
    // The operators of those that are left are still theirs, and so is that of a new one.
    CHECK(program.step(ten) == 30);
    CHECK(program.step(again) == 2);
    const RuntimeModel third = program.runtime.create_model("one");
    CHECK(program.step(third) == 1);
    program.runtime.destroy_model(ten);
    CHECK(program.step(third) == 2);
    CHECK(program.step(again) == 3);
    program.runtime.destroy_model(again);
    program.runtime.destroy_model(third);
  }
}
