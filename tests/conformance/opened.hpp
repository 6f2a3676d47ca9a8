// SPDX-License-Identifier: Apache-2.0
// opened.hpp - a plugin as the host of this program loads and opens it.
#pragma once

#include <frt/core/log.hpp>
#include <frt/core/plugin.hpp>
#include <frt/core/services.hpp>

#include <string>

#include "backend.hpp"

namespace frt::conformance {

inline const core::LoadedPlugin& loaded_plugin(const std::string& path) {
  core::LoadRequest request;
  request.path = path;
  return core::load_plugin(request);
}

// Opened with the defaults of its options.
struct OpenedPlugin {
  explicit OpenedPlugin(const std::string& path)
      : loaded(loaded_plugin(path)),
        plugin(loaded, config_of(loaded.schema.plugin_options, {}, "plugin"), services) {}
  OpenedPlugin(const OpenedPlugin&) = delete;
  OpenedPlugin& operator=(const OpenedPlugin&) = delete;

  core::Log log;
  core::HostServices services{log};
  const core::LoadedPlugin& loaded;
  core::OpenPlugin plugin;
};

}  // namespace frt::conformance
