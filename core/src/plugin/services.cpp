// SPDX-License-Identifier: Apache-2.0
// Opening a plugin, and the tables it gets. Each plugin has its own frt_host, so that log and
// progress know who speaks.
#include <frt/core/capsules.hpp>
#include <frt/core/exec_table.hpp>
#include <frt/core/plugin.hpp>
#include <frt/core/services.hpp>
#include <frt/core/state.hpp>

#include <fmt/format.h>

#include <string_view>

namespace frt::core {

frt_status HostServices::report(std::string_view source, std::string_view phase, uint32_t unit,
                                uint64_t done, uint64_t total) noexcept {
  if (!progress_) return FRT_OK;
  try {
    return progress_(source, phase, unit, done, total);
  } catch (...) {
    return FRT_ERR_CALLBACK;
  }
}

struct OpenPlugin::HostView {
  HostServices& services;
  std::string id;
  frt_log_v1 log{};
  frt_progress_v1 progress{};
  frt_host host{};

  HostView(HostServices& host_services, std::string plugin_id)
      : services(host_services), id(std::move(plugin_id)) {
    log = {sizeof(frt_log_v1), 0, this, &HostView::write};
    progress = {sizeof(frt_progress_v1), 0, this, &HostView::report};
    host = {sizeof(frt_host), FRT_ABI_MAJOR, FRT_ABI_MINOR, this, &HostView::extension};
  }

  static void write(void* self, const char* source, frt_log_level level, const char* text) {
    auto& view = *static_cast<HostView*>(self);
    if (!view.services.log().shows(level)) return;
    try {
      const bool part = source && *source && view.id != source;
      view.services.log().write(part ? view.id + "/" + source : view.id, level, text ? text : "");
    } catch (...) {
      // Out of memory while logging: the message is lost, the work goes on.
      return;
    }
  }

  static frt_status report(void* self, const char* phase, uint32_t unit, uint64_t done,
                           uint64_t total) {
    auto& view = *static_cast<HostView*>(self);
    return view.services.report(view.id, phase ? phase : "", unit, done, total);
  }

  static const void* extension(void* self, const char* id) {
    const auto& view = *static_cast<HostView*>(self);
    const std::string_view name = id ? id : "";
    if (name == FRT_EXT_EXEC) return exec_table();
    if (name == FRT_EXT_PLAN) return plan_draft();
    if (name == FRT_EXT_GRAPH) return graph_draft();
    if (name == FRT_EXT_STATE) return state_table();
    if (name == FRT_EXT_CAPSULES) return capsules_table();
    if (name == FRT_EXT_LOG) return &view.log;
    if (name == FRT_EXT_PROGRESS) return &view.progress;
    return nullptr;
  }
};

namespace {

// `open`, which must not throw; what it throws all the same becomes an error like others.
frt_status open_guarded(const LoadedPlugin& loaded, const frt_host& host, const Config& options,
                        frt_plugin* plugin, frt_error* error) {
  const auto thrown = [&](const char* what) {
    return set_error(
        error, FRT_ERR_INTERNAL,
        fmt::format("its `open` threw across the ABI: {}; ask its author for a fix", what));
  };
  try {
    return loaded.descriptor->open(&host, options.c(), plugin, error);
  } catch (const std::exception& exception) {
    return thrown(exception.what());
  } catch (...) {
    return thrown("an exception of unknown type");
  }
}

}  // namespace

OpenPlugin::OpenPlugin(const LoadedPlugin& loaded, const Config& options, HostServices& services)
    : loaded_(loaded), host_(std::make_unique<HostView>(services, loaded.card.id)) {
  const Card& card = loaded.card;
  if (card.abi_minor > FRT_ABI_MINOR) {
    services.log().write(card.id, FRT_LOG_INFO,
                         fmt::format("built for ABI {}.{}, used as {}.{}: what came later is not "
                                     "used",
                                     card.abi_major, card.abi_minor, FRT_ABI_MAJOR, FRT_ABI_MINOR));
  }
  frt_error error{};
  frt_plugin plugin = nullptr;
  check(open_guarded(loaded, host_->host, options, &plugin, &error), error, "plugin " + card.id);
  if (!plugin) {
    throw Error(FRT_ERR_INTERNAL,
                "plugin " + loaded.card.id + ": open reported success but made no object");
  }
  plugin_ = plugin;
}

OpenPlugin::~OpenPlugin() {
  loaded_.descriptor->close(plugin_);
}

}  // namespace frt::core
