// SPDX-License-Identifier: Apache-2.0
// The SDK as an author of plugins gets it: installed into a folder of its own, the template of a
// plugin, delay, copied out of it, configured, built, and its model run on a device for tests
// (eagerly: that device records nothing).
#include <frt/model.h>

#include <frt/core/exec_table.hpp>
#include <frt/core/runtime.hpp>
#include <frt/exec.hpp>

#include "helpers.hpp"

using namespace frt::core;
namespace fs = std::filesystem;

namespace {

void run(const std::string& command, const fs::path& log) {
  const int status = std::system((command + " > '" + log.string() + "' 2>&1").c_str());
  if (status != 0) FAIL("failed: " << command << "\n" << test::read(log));
}

Manifest manifest_of(const std::string& text, Registry& registry) {
  ManifestRequest request;
  request.environment = [](const std::string&) { return std::nullopt; };
  request.schemas = &registry;
  return parse_manifest(text, "/m.toml", request);
}

}  // namespace

TEST_CASE("the template builds from an installed SDK, and its model runs") {
  const test::Folder folder;
  const fs::path sdk = folder.path() / "sdk", source = folder.path() / "mine";
  const fs::path log = folder.path() / "log";
  run("cmake --install '" FRT_BINARY_DIR "' --component sdk --prefix '" + sdk.string() + "'", log);
  CHECK(fs::exists(sdk / "include" / "frt" / "exec.h"));
  CHECK_FALSE(fs::exists(sdk / "lib" / "frt" / "plugins"));
  fs::copy(sdk / "share" / "frt-sdk" / "templates" / "delay", source);
  run("cmake -G Ninja -S '" + source.string() + "' -B '" + (source / "build").string() +
          "' -DCMAKE_PREFIX_PATH='" + sdk.string() +
          "' -DCMAKE_CXX_COMPILER='" FRT_TEST_COMPILER "' -DCMAKE_CXX_FLAGS='" FRT_TEST_FLAGS
          "' -DFRT_SANITIZE='" FRT_TEST_SANITIZE "'",
      log);
  run("cmake --build '" + (source / "build").string() + "'", log);

  RegistryOptions options;
  options.plugin_folders = {source / "build"};
  options.own_folder = test::kPlugins / "devices";
  options.use_environment = false;
  Registry registry(options);
  REQUIRE(registry.find_usable("acme.delay") != nullptr);

  Log quiet;
  HostServices services(quiet);
  const Runtime runtime(manifest_of("schema = 1\n[device.d]\nbackend = \"test.processor\"\n"
                                    "capture = false\n"
                                    "[model.m]\nplugin = \"acme.delay\"\ndevice = \"d\"\n"
                                    "checkpoint = \"synthetic:none\"\noptions = { width = 3 }\n",
                                    registry),
                        registry, services);
  const OpenPlugin& plugin = runtime.model_plugin("m");
  const auto& table = plugin.require<frt_model_v1>(FRT_EXT_MODEL);
  const ModelSpec& spec = runtime.manifest().models[0];
  const frt::Context context(exec_table(), runtime.device("d").context);
  const frt_model_params params = {
      sizeof(params), 0, context, spec.name.c_str(), spec.checkpoint().c_str(), spec.options.c()};
  frt_model model = nullptr;
  frt_error error{};
  for (const uint32_t size : {0u, 4u, 1u << 20}) {
    frt_model_params wrong = params;
    wrong.struct_size = size;
    CHECK(table.create(plugin.handle(), &wrong, &model, &error) == FRT_ERR_ABI);
    CHECK(std::string(error.message).starts_with("the host: its frt_model_params says"));
  }
  frt::check(table.create(plugin.handle(), &params, &model, &error), error);
  {
    const frt_port* ports = nullptr;
    const frt_model_graph* graphs = nullptr;
    uint64_t port_count = 0, graph_count = 0;
    frt::check(table.ports(model, &ports, &port_count), "ports");
    frt::check(table.graphs(model, &graphs, &graph_count), "graphs");
    REQUIRE(port_count == 2);
    REQUIRE(graph_count == 1);
    CHECK(ports[0].shape[0] == 3);
    const frt::Buffer input = frt::Buffer::retain(context, ports[0].buffer);
    const frt::Buffer output = frt::Buffer::retain(context, ports[1].buffer);
    const frt::Stream stream = context.create_stream("test");
    std::vector<float> before(3, 0.0f);
    for (int step = 1; step <= 3; ++step) {
      const std::vector<float> now(3, static_cast<float>(step));
      input.upload(now, stream);
      context.checked(exec_table()->graph_replay(graphs[0].graph, 1, stream), "replay");
      CHECK(output.download<float>(3, stream) == before);
      before = now;
    }
  }
  table.destroy(model);
}
