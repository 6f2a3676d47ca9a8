// SPDX-License-Identifier: Apache-2.0
// Growth, both ways round, at the tables themselves: this source is built twice. With today's
// headers it loads plugins that were built with enlarged ones (enlarge), and with enlarged headers,
// beside a core that was built with them, it loads plugins of today. A struct of the other side is
// longer or shorter than the one that this side knows, and everything works all the same.
#include <dlfcn.h>
#include <doctest/doctest.h>

#include <frt/capsule.hpp>
#include <frt/core/capsules.hpp>
#include <frt/core/context.hpp>
#include <frt/core/exec_table.hpp>
#include <frt/core/state.hpp>
#include <frt/exec.hpp>
#include <frt/reading.hpp>
#include <frt/role/contracts.hpp>
#include <string>
#include <string_view>

#include "v0_9.h"

using namespace frt;

namespace {

const void* host_extension(void*, const char* id) {
  const std::string_view name = id;
  if (name == FRT_EXT_EXEC) return core::exec_table();
  if (name == FRT_EXT_STATE) return core::state_table();
  return name == FRT_EXT_CAPSULES ? core::capsules_table() : nullptr;
}

frt_host make_host() {
  frt_host host{};
  host.struct_size = sizeof(host);
  host.abi_major = FRT_ABI_MAJOR;
  host.abi_minor = FRT_ABI_MINOR;
  host.extension = host_extension;
  return host;
}

// A plugin of the other side, opened. Its file is never unloaded.
class Plugin {
 public:
  explicit Plugin(const std::string& file) {
    void* library = ::dlopen((FRT_TEST_PLUGINS "/" + file).c_str(), RTLD_NOW | RTLD_LOCAL);
    const char* problem = library ? "" : ::dlerror();
    REQUIRE_MESSAGE(library != nullptr, problem);
    const auto* given = static_cast<const frt_plugin_desc*>(::dlsym(library, FRT_PLUGIN_SYMBOL));
    REQUIRE(given != nullptr);
    // Without this the test compares a version with itself.
    REQUIRE(given->struct_size == sizeof(frt_plugin_desc) + (FRT_TEST_OTHER_IS_LARGER ? 32 : -32));
    descriptor_ = read_table<frt_plugin_desc>(given, file);
    frt_error error{};
    check(descriptor_.open(&host_, nullptr, &handle_, &error), error);
  }
  ~Plugin() { descriptor_.close(handle_); }
  Plugin(const Plugin&) = delete;
  Plugin& operator=(const Plugin&) = delete;

  frt_plugin handle() const { return handle_; }
  template <class Table>
  Table table(const char* id) const {
    return read_table<Table>(descriptor_.extension(handle_, id), id);
  }

 private:
  frt_host host_ = make_host();
  frt_plugin_desc descriptor_{};
  frt_plugin handle_ = nullptr;
};

// A device of the other side's backend.
struct Device {
  Device() {
    const auto kernels = plugin.table<frt_kernels_v1>(FRT_EXT_KERNELS);
    core::ContextOptions options;
    options.name = "d";
    options.backend_id = "test.device";
    options.kernels = &kernels;
    handle = core::open_context(plugin.table<frt_backend_v1>(FRT_EXT_BACKEND), plugin.handle(), 0,
                                nullptr, options);
  }
  ~Device() {
    try {
      core::close_context(handle);
    } catch (const Error& error) {
      FAIL_CHECK(error.what());  // a check failed before; its objects are still there
    }
  }

  Plugin plugin{"defect_backend.so"};
  frt_context handle = nullptr;
};

}  // namespace

TEST_CASE("a program and a backend in C of version 0.9 work") {
  core::ContextOptions options;
  options.backend_id = "test.frozen";
  const frt_context context = core::open_context(
      *static_cast<const frt_backend_v1*>(v0_9_backend()), nullptr, 0, nullptr, options);
  const char* problem = v0_9_program(core::exec_table(), context);
  CHECK_MESSAGE(problem == nullptr, problem);
  CHECK_NOTHROW(core::close_context(context));
}

TEST_CASE("a backend of the other side describes its device and has its kernels resolved") {
  const Device device;
  const Context context(core::exec_table(), device.handle);
  const frt_context_info info = context.info();
  CHECK(std::string(info.device->name) == "null");
  CHECK(std::string(info.device->architecture) == "null_1");
  CHECK(info.memory_free == 1 << 30);
  const char* names[] = {"test.nothing/1"};
  frt_kernel found{};
  frt_error error{};
  check(core::exec_table()->kernels_resolve(device.handle, nullptr, names, 1, 0, 0, nullptr, 0,
                                            &found, &error),
        error);
  const bool callable = found.launch != nullptr;
  CHECK(callable);
}

TEST_CASE("a model of the other side is created, asked, saved into a capsule and destroyed") {
  const Device device;
  const Context context(core::exec_table(), device.handle);
  const Plugin plugin("defect_model.so");
  const auto table = plugin.table<frt_model_v1>(FRT_EXT_MODEL);
  frt_model_params params{};
  params.struct_size = sizeof(params);
  params.context = device.handle;
  params.name = "m";
  params.checkpoint = "synthetic:x";
  frt_model model = nullptr;
  frt_error error{};
  check(table.create(plugin.handle(), &params, &model, &error), error);
  REQUIRE(model != nullptr);
  {
    const auto info =
        ask<frt_model_info>("model", [&](frt_model_info* out) { return table.info(model, out); });
    CHECK(std::string(info.architecture) == "nothing");
    const auto role = find_extension<frt_role_lm_v1>(table, model, FRT_EXT_ROLE_LM, "model");
    REQUIRE(role.has_value());
    const auto limits =
        ask<frt_lm_info>("model", [&](frt_lm_info* out) { return role->info(model, out); });
    CHECK(limits.vocabulary == 64);
    CHECK(limits.mask_words == 2);

    const auto capsule = find_extension<frt_capsule_v1>(table, model, FRT_EXT_CAPSULE, "model");
    REQUIRE(capsule.has_value());
    const frt_capsule_layout* layout = nullptr;
    check(capsule->layout(model, &layout, &error), error);
    CHECK(read_table<frt_capsule_layout>(layout, "model").region_count == 1);
    frt_state state = nullptr;
    check(capsule->state(model, &state, &error), error);
    frt_state_info arena{};
    arena.struct_size = sizeof(arena);
    check(core::state_table()->state_info(state, &arena), "state_info");
    CHECK(arena.slots == 2);

    const Stream stream = context.create_stream("main");
    const frt_capsules_v1& capsules = *core::capsules_table();
    frt_capsule taken = nullptr;
    check(capsules.snapshot(state, 0, 0, FRT_SPACE_HOST, stream.handle(), &taken, &error), error);
    check(capsules.restore(taken, 1, stream.handle()), "restore");
    check(capsules.sync(taken), "sync");
    capsules.release(taken);
  }
  const frt_counters counters = context.counters();
  CHECK(counters.buffer_bytes[FRT_SPACE_DEVICE] > 4096);
  CHECK(counters.buffer_bytes[7] == 0);
  table.destroy(model);
}
