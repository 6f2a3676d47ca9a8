// SPDX-License-Identifier: Apache-2.0
#include "runtime/device_survey.hpp"

#include <frt/core/context.hpp>
#include <frt/core/runtime.hpp>
#include <frt/core/services.hpp>

#include <map>
#include <memory>

namespace frt::host {
namespace {

std::vector<SurveyedFact> facts_of(core::OpenPlugin& plugin, uint32_t ordinal) {
  const auto* status = plugin.find<frt_device_status_v1>(FRT_EXT_DEVICE_STATUS);
  if (!status) return {};
  const core::SetupWatch watching = plugin.watch("report");
  return device_facts(*status, plugin.handle(), ordinal, plugin.sender());
}

std::unique_ptr<core::OpenPlugin> open_plugin(const core::LoadedPlugin& loaded,
                                              core::HostServices& services) {
  core::Diagnostics diagnostics;
  const core::Config options =
      core::resolve_config(loaded.schema.plugin_options, {}, core::ResolveContext{}, diagnostics);
  diagnostics.throw_if_errors();
  return std::make_unique<core::OpenPlugin>(loaded, options, services);
}

}  // namespace

std::vector<KernelVariant> survey_variants(core::Registry& registry, core::Log& log,
                                           const std::string& id, uint32_t ordinal,
                                           const SurveyOptions& options) {
  core::HostServices services(log);
  services.setup_patience = options.setup_patience;
  const auto alone = core::lock_plugin_setup();
  const core::LoadedPlugin& loaded = registry.load(id);
  const auto plugin = open_plugin(loaded, services);
  const auto* table = plugin->find<frt_kernel_variants_draft>(FRT_EXT_KERNEL_VARIANTS);
  if (!table) return {};
  const auto& backend = plugin->require<frt_backend_v1>(FRT_EXT_BACKEND);
  core::Diagnostics diagnostics;
  const core::Config settings =
      core::resolve_config(loaded.schema.options, {}, core::ResolveContext{}, diagnostics);
  diagnostics.throw_if_errors();
  frt_error error{};
  frt_backend_device device = nullptr;
  core::SetupWatch watching = plugin->watch("device_open");
  const frt_status opened = contain(plugin->sender(), "device_open", [&] {
    return backend.device_open(plugin->handle(), ordinal, settings.c(), &device, &error);
  });
  check(opened, error, plugin->sender());
  if (!device) throw Error(FRT_ERR_INTERNAL, plugin->sender() + ": device_open made no device");
  const auto close = [&](frt_backend_device_s* opened_device) {
    watching.enter("device_close");
    backend.device_close(opened_device);
  };
  const std::unique_ptr<frt_backend_device_s, decltype(close)> closer(device, close);
  watching.enter("list");
  return list_kernel_variants(*table, device, plugin->sender());
}

Survey survey_devices(core::Registry& registry, core::Log& log, const SurveyOptions& options) {
  const auto alone = core::lock_plugin_setup();
  Survey survey;
  core::HostServices services(log);
  services.setup_patience = options.setup_patience;
  std::map<std::string, std::unique_ptr<core::OpenPlugin>> opened;
  const auto open = [&](const std::string& id) -> core::OpenPlugin& {
    auto& plugin = opened[id];
    if (!plugin) plugin = open_plugin(registry.load(id), services);
    return *plugin;
  };
  // All files are tried and mapped before a plugin may start threads (core/runtime.hpp).
  const std::vector<std::string> ids = registry.ids(FRT_PLUGIN_BACKEND);
  registry.load_all(FRT_PLUGIN_BACKEND);
  for (const std::string& id : ids) {
    SurveyedPlugin row{id, 0, {}};
    try {
      core::OpenPlugin& plugin = open(id);
      const auto& backend = plugin.require<frt_backend_v1>(FRT_EXT_BACKEND);
      frt_error error{};
      core::SetupWatch watching = plugin.watch("device_count");
      uint32_t count = 0;
      const frt_status counted =
          core::count_devices(backend, plugin.handle(), plugin.sender(), count, error);
      check(counted, error, plugin.sender());
      row.devices = count;
      if (row.devices == 0) row.problem = error.message;
      for (uint32_t ordinal = 0; ordinal < row.devices; ++ordinal) {
        SurveyedDevice device{id, ordinal, {}, {}};
        watching.enter("device_info");
        device.info = core::describe_device(backend, plugin.handle(), ordinal, plugin.sender());
        if (options.with_facts) device.facts = facts_of(plugin, ordinal);
        survey.devices.push_back(std::move(device));
      }
    } catch (const Error& error) {
      row.problem = error.what();
    }
    survey.plugins.push_back(std::move(row));
  }
  try {
    const core::BackendChoice choice = core::choose_backend(registry, 0, open);
    survey.automatic = choice.id;
    survey.automatic_reason = choice.reason;
    survey.automatic_others = choice.others;
  } catch (const Error& error) {
    survey.automatic_reason = error.what();
  }
  return survey;
}

}  // namespace frt::host
