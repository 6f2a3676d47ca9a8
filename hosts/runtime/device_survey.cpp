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
  std::vector<SurveyedFact> facts;
  const auto* status = plugin.find<frt_device_status_v1>(FRT_EXT_DEVICE_STATUS);
  if (!status || !status->report) return facts;
  const auto keep = [](void* self, const char* subject, const char* fact, const char* advice) {
    static_cast<std::vector<SurveyedFact>*>(self)->push_back(
        {subject ? subject : "", fact ? fact : "", advice ? advice : ""});
  };
  frt_error error{};
  const std::string sender = plugin.sender();
  const frt_status reported = contain(sender, "report", [&] {
    return status->report(plugin.handle(), ordinal, &facts, keep, &error);
  });
  check(reported, error, sender);
  return facts;
}

}  // namespace

Survey survey_devices(core::Registry& registry, core::Log& log, bool with_facts) {
  Survey survey;
  core::HostServices services(log);
  std::map<std::string, std::unique_ptr<core::OpenPlugin>> opened;
  const auto open = [&](const std::string& id) -> core::OpenPlugin& {
    auto& plugin = opened[id];
    if (!plugin) {
      const core::LoadedPlugin& loaded = registry.load(id);
      core::Diagnostics diagnostics;
      const core::Config options = core::resolve_config(loaded.schema.plugin_options, {},
                                                        core::ResolveContext{}, diagnostics);
      diagnostics.throw_if_errors();
      plugin = std::make_unique<core::OpenPlugin>(loaded, options, services);
    }
    return *plugin;
  };
  for (const std::string& id : registry.ids(FRT_PLUGIN_BACKEND)) {
    SurveyedPlugin row{id, 0, {}};
    try {
      core::OpenPlugin& plugin = open(id);
      const auto& backend = plugin.require<frt_backend_v1>(FRT_EXT_BACKEND);
      frt_error error{};
      const frt_status counted = contain(plugin.sender(), "device_count", [&] {
        return backend.device_count(plugin.handle(), &row.devices, &error);
      });
      check(counted, error, plugin.sender());
      if (row.devices == 0) row.problem = error.message;
      for (uint32_t ordinal = 0; ordinal < row.devices; ++ordinal) {
        SurveyedDevice device{id, ordinal, {}, {}};
        device.info = core::describe_device(backend, plugin.handle(), ordinal, plugin.sender());
        if (with_facts) device.facts = facts_of(plugin, ordinal);
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
