// SPDX-License-Identifier: Apache-2.0
#include "plugin_cases.hpp"

#include <frt/contracts.hpp>
#include <frt/core/context.hpp>
#include <frt/error.hpp>
#include <frt/reading.hpp>

#include "check.hpp"

namespace frt::conformance {
namespace {

[[noreturn]] void fail(const std::string& text) {
  throw Error(FRT_ERR_ABI, text);
}

const core::LoadedPlugin& load(const Subject& subject) {
  core::LoadRequest request;
  request.path = subject.plugin;
  return core::load_plugin(request);
}

core::Config plugin_defaults(const core::LoadedPlugin& loaded) {
  return config_of(loaded.schema.plugin_options, {}, "plugin");
}

// One plugin opened by the host that a program has.
struct Opened {
  explicit Opened(const Subject& subject)
      : loaded(load(subject)), plugin(loaded, plugin_defaults(loaded), services) {}
  core::Log log;
  core::HostServices services{log};
  const core::LoadedPlugin& loaded;
  core::OpenPlugin plugin;
};

void card(const Subject& subject) {
  core::read_image(subject.plugin);
}

void loads(const Subject& subject) {
  load(subject);
}

void opens_twice(const Subject& subject) {
  for (int round = 0; round < 2; ++round) const Opened opened(subject);
}

void two_at_once(const Subject& subject) {
  const Opened first(subject), second(subject);
}

void unknown_extensions(const Subject& subject) {
  const Opened opened(subject);
  for (const char* id : {"", "frt", "frt.nothing/1", "frt.backend/1x", "frt.backend/",
                         "frt.model/1 ", "frt.kernels/999"}) {
    const void* table = contain(opened.plugin.sender(), "extension", [&] {
      return opened.loaded.descriptor->extension(opened.plugin.handle(), id);
    });
    if (table) {
      fail(opened.plugin.sender() + ": `extension` gives a table for \"" + id +
           "\", which nobody has defined; compare the whole id and return NULL");
    }
  }
}

void backend_tables(const Subject& subject) {
  const Opened opened(subject);
  opened.plugin.require<frt_backend_v1>(FRT_EXT_BACKEND);
  opened.plugin.require<frt_kernels_v1>(FRT_EXT_KERNELS);
}

// As a host opens it, with its kernels in the registry.
void backend_device(const Subject& subject) {
  const Opened opened(subject);
  const core::Config config = config_of(opened.loaded.schema.options, subject.options, "device");
  core::ContextOptions options;
  options.name = "checked";
  options.backend_id = opened.loaded.card.id;
  options.kernels = &opened.plugin.require<frt_kernels_v1>(FRT_EXT_KERNELS);
  for (int round = 0; round < 2; ++round) {
    core::close_context(core::open_context(opened.plugin.require<frt_backend_v1>(FRT_EXT_BACKEND),
                                           opened.plugin.handle(), subject.device, config.c(),
                                           options));
  }
}

// No device beyond the last one, and no crash about it.
void backend_no_device(const Subject& subject) {
  const Opened opened(subject);
  const auto& table = opened.plugin.require<frt_backend_v1>(FRT_EXT_BACKEND);
  uint32_t count = 0;
  frt_error error{};
  check(table.device_count(opened.plugin.handle(), &count, &error), error, "device_count");
  const core::Config config = config_of(opened.loaded.schema.options, subject.options, "device");
  frt_backend_device device = nullptr;
  error = {};
  if (table.device_open(opened.plugin.handle(), count, config.c(), &device, &error) == FRT_OK) {
    table.device_close(device);
    fail(opened.plugin.sender() + ": `device_open` opens device " + std::to_string(count) + " of " +
         std::to_string(count) + "; refuse ordinals that device_count does not have");
  }
  if (error.message[0] == '\0') {
    fail(opened.plugin.sender() + ": `device_open` refuses device " + std::to_string(count) +
         " without a message");
  }
}

}  // namespace

std::vector<PluginCase> plugin_cases(uint32_t kind) {
  std::vector<PluginCase> cases = {{"plugin card", card}};
  if (kind == 0) return cases;
  cases.push_back({"plugin load", loads});
  cases.push_back({"plugin opens twice", opens_twice});
  cases.push_back({"plugin opens two at once", two_at_once});
  cases.push_back({"plugin unknown extensions", unknown_extensions});
  if (kind == FRT_PLUGIN_BACKEND) {
    cases.push_back({"plugin tables", backend_tables});
    cases.push_back({"plugin device", backend_device});
    cases.push_back({"plugin no such device", backend_no_device});
  } else {
    add_model_cases(cases);
  }
  // Last: a plugin that works with no host fails the cases above, which say more.
  add_host_cases(cases, kind);
  return cases;
}

}  // namespace frt::conformance
