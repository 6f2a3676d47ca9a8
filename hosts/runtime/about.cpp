// SPDX-License-Identifier: Apache-2.0
#include "runtime/about.hpp"

#include <algorithm>
#include <string>

namespace frt::host {
namespace {

using Json = nlohmann::ordered_json;

const char* origin_name(core::Origin origin) noexcept {
  switch (origin) {
    case core::Origin::kDefault:
      return "default";
    case core::Origin::kManifest:
      return "manifest";
    case core::Origin::kEnvironment:
      return "environment";
    case core::Origin::kFlag:
      return "flag";
  }
  return "?";
}

// Null: clients are not told.
Json told_value(const core::Config::Value& value) {
  switch (value.type) {
    case FRT_CONFIG_BOOL:
      return value.integer != 0;
    case FRT_CONFIG_INT:
    case FRT_CONFIG_SIZE:
      return value.integer;
    case FRT_CONFIG_FLOAT:
      return value.number;
    case FRT_CONFIG_ENUM:
      return value.text;
    case FRT_CONFIG_STRING:
      if (value.from.origin == core::Origin::kDefault) return value.text;
      break;
    default:
      break;  // a path; its default, too, has this machine's folders in it
  }
  return value.text.empty() ? Json("") : Json();
}

Json table_json(const std::string& name, const core::Config& config) {
  Json values = Json::array();
  for (const core::Config::Value& value : config.values()) {
    Json told = {{"key", value.key}, {"value", told_value(value)}};
    if (told["value"].is_null()) told["redacted"] = true;
    told["source"] = origin_name(value.from.origin);
    values.push_back(std::move(told));
  }
  return {{"table", name}, {"values", std::move(values)}};
}

Json manifest_json(const core::Runtime& runtime) {
  const core::Manifest& manifest = runtime.manifest();
  Json tables = Json::array();
  const auto add = [&](const std::string& name, const core::Config& config) {
    if (!config.values().empty()) tables.push_back(table_json(name, config));
  };
  for (const auto& [id, options] : manifest.plugin_options) add("plugin-options." + id, options);
  for (const core::DeviceSpec& device : manifest.devices) {
    add("device." + device.name, device.settings);
    if (device.options) add("device." + device.name + ".options", *device.options);
  }
  for (const core::ModelSpec& model : manifest.models) {
    add("model." + model.name, model.settings);
    add("model." + model.name + ".options", model.options);
  }
  for (const core::HostSpec& host : manifest.hosts) add("host." + host.name, host.settings);
  return tables;
}

}  // namespace

Json about_json(const core::Runtime& runtime, const char* program) {
  Json models = Json::array(), devices = Json::array(), plugins = Json::array();
  std::vector<const core::OpenPlugin*> open;
  const auto note = [&](const core::OpenPlugin& plugin) -> const core::Card& {
    if (std::ranges::find(open, &plugin) == open.end()) open.push_back(&plugin);
    return plugin.loaded().card;
  };
  for (const core::ModelSpec& model : runtime.manifest().models) {
    const core::OpenPlugin* plugin = runtime.plugin(model.plugin());
    if (!plugin) continue;
    const core::Card& card = note(*plugin);
    models.push_back({{"id", model.name},
                      {"plugin", card.id},
                      {"plugin_version", card.version},
                      {"device", model.device()}});
    const core::RuntimeDevice& device = runtime.device(model.device());
    const auto same = [&](const Json& each) { return each["id"] == model.device(); };
    if (std::ranges::any_of(devices, same)) continue;
    const core::Card& backend = note(*device.plugin);
    devices.push_back({{"id", model.device()},
                       {"backend", backend.id},
                       {"backend_version", backend.version},
                       {"ordinal", device.spec->ordinal()}});
  }
  const auto version = [](uint32_t major, uint32_t minor) {
    return std::to_string(major) + "." + std::to_string(minor);
  };
  for (const core::OpenPlugin* plugin : open) {
    const core::Card& card = plugin->loaded().card;
    plugins.push_back({{"id", card.id},
                       {"kind", core::plugin_kind_name(card.kind)},
                       {"version", card.version},
                       {"abi", version(card.abi_major, card.abi_minor)}});
  }
  return {{"object", "about"},
          {"program", program},
          {"abi", version(FRT_ABI_MAJOR, FRT_ABI_MINOR)},
          {"models", std::move(models)},
          {"devices", std::move(devices)},
          {"plugins", std::move(plugins)},
          {"manifest", manifest_json(runtime)}};
}

}  // namespace frt::host
