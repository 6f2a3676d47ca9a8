// SPDX-License-Identifier: Apache-2.0
// reach_plugin.hpp - the plugin frt.reach, opened as a host does, and environments made of it.
#pragma once

#include <frt/core/log.hpp>
#include <frt/core/plugin.hpp>
#include <frt/core/services.hpp>

#include <string>

#include "runtime/plugin_environment.hpp"

namespace reach_test {

inline const frt::core::LoadedPlugin& load(const std::string& path) {
  frt::core::LoadRequest request;
  request.path = path;
  return frt::core::load_plugin(request);
}

// A plugin without options.
class OpenedPlugin {
 public:
  explicit OpenedPlugin(const std::string& path = FRT_PLUGIN_DIR "/frt_reach.so")
      : plugin_(load(path), frt::core::Config(), services_) {}
  const frt::core::OpenPlugin& operator*() const { return plugin_; }

 private:
  frt::core::Log log_;
  frt::core::HostServices services_{log_};
  frt::core::OpenPlugin plugin_;
};

// The reaching task.
class World : private OpenedPlugin, public frt::host::PluginEnvironment {
 public:
  explicit World(const frt::host::EnvironmentRequest& request = {})
      : frt::host::PluginEnvironment(OpenedPlugin::operator*(), "reach", frt::core::Config(),
                                     request) {}
};

}  // namespace reach_test
