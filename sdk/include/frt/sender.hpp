// SPDX-License-Identifier: Apache-2.0
// frt/sender.hpp - how errors name the plugin or model that a call went to. For hosts: the text
// goes in front of what the call reports. Header only.
#pragma once

#include <string>
#include <string_view>

namespace frt {

// "plugin acme.fast".  [any]
inline std::string plugin_sender(std::string_view id) {
  return "plugin " + std::string(id);
}

// "model 'chat' (plugin acme.fast)"; "model 'chat'" where the plugin's id is unknown.  [any]
inline std::string model_sender(std::string_view name, std::string_view plugin) {
  const std::string model = "model '" + std::string(name) + "'";
  return plugin.empty() ? model : model + " (" + plugin_sender(plugin) + ")";
}

}  // namespace frt
