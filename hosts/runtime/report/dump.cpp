// SPDX-License-Identifier: Apache-2.0
// The resolved manifest, for people and programs, with the source of each value.
#include "runtime/report/manifest_report.hpp"

#include <frt/core/toml_text.hpp>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace frt::host {

using namespace core;

namespace {

using Json = nlohmann::ordered_json;

std::string toml_value(const Config::Value& value) {
  switch (value.type) {
    case FRT_CONFIG_BOOL:
      return value.integer ? "true" : "false";
    case FRT_CONFIG_INT:
    case FRT_CONFIG_SIZE:
      return std::to_string(value.integer);
    case FRT_CONFIG_FLOAT:
      return fmt::format("{}", value.number);
    default:
      return toml_quote(value.text);
  }
}

Json json_value(const Config::Value& value) {
  switch (value.type) {
    case FRT_CONFIG_BOOL:
      return value.integer != 0;
    case FRT_CONFIG_INT:
    case FRT_CONFIG_SIZE:
      return value.integer;
    case FRT_CONFIG_FLOAT:
      return value.number;
    default:
      return value.text;
  }
}

std::string toml_value(const RawValue& value) {
  switch (value.kind) {
    case RawValue::Kind::kBool:
      return value.integer ? "true" : "false";
    case RawValue::Kind::kInteger:
      return std::to_string(value.integer);
    case RawValue::Kind::kFloat:
      return fmt::format("{}", value.number);
    default:
      return toml_quote(value.text);
  }
}

Json json_value(const RawValue& value) {
  switch (value.kind) {
    case RawValue::Kind::kBool:
      return value.integer != 0;
    case RawValue::Kind::kInteger:
      return value.integer;
    case RawValue::Kind::kFloat:
      return value.number;
    default:
      return value.text;
  }
}

class TomlWriter {
 public:
  void table(const std::string& header) { text_ += "\n" + header + "\n"; }
  void line(const std::string& key, const std::string& value, const std::string& source) {
    const std::string assignment = toml_key(key) + " = " + value;
    text_ += fmt::format("{:<40}  # {}\n", assignment, source);
  }
  void config(const Config& config) {
    for (const Config::Value& value : config.values()) {
      line(value.key, toml_value(value), value.from.text);
    }
  }
  std::string text_ = "schema = 1\n";
};

Json json_config(const Config& config) {
  Json json = Json::object();
  for (const Config::Value& value : config.values()) {
    json[value.key] = {{"value", json_value(value)}, {"source", value.from.text}};
  }
  return json;
}

// What will be given to an automatic device: the last setting of each key wins.
std::vector<const RawSetting*> winners(const std::vector<RawSetting>& settings) {
  std::vector<const RawSetting*> result;
  for (std::size_t i = 0; i < settings.size(); ++i) {
    bool last = true;
    for (std::size_t j = i + 1; j < settings.size(); ++j) {
      last = last && settings[j].key != settings[i].key;
    }
    if (last) result.push_back(&settings[i]);
  }
  return result;
}

}  // namespace

std::string dump_toml(const Manifest& manifest) {
  TomlWriter writer;
  for (const PluginEntry& plugin : manifest.plugins) {
    const std::string source = manifest.text->describe(plugin.position);
    writer.table("[[plugin]]");
    writer.line("id", toml_quote(plugin.id), source);
    if (!plugin.path.empty()) writer.line("path", toml_quote(plugin.path.string()), source);
    writer.line("required", plugin.required ? "true" : "false", source);
  }
  for (const auto& [id, options] : manifest.plugin_options) {
    if (options.values().empty()) continue;
    writer.table("[plugin-options." + toml_key(id) + "]");
    writer.config(options);
  }
  for (const DeviceSpec& device : manifest.devices) {
    writer.table("[device." + device.name + "]");
    writer.config(device.settings);
    if (device.options ? !device.options->values().empty() : !device.given_options.empty()) {
      writer.table("[device." + device.name + ".options]");
    }
    if (device.options) {
      writer.config(*device.options);
    } else {
      for (const RawSetting* setting : winners(device.given_options)) {
        writer.line(setting->key, toml_value(setting->value), setting->from.text);
      }
    }
  }
  for (const ModelSpec& model : manifest.models) {
    writer.table("[model." + model.name + "]");
    writer.config(model.settings);
    if (model.options.values().empty()) continue;
    writer.table("[model." + model.name + ".options]");
    writer.config(model.options);
  }
  for (const EnvironmentSpec& environment : manifest.environments) {
    writer.table("[environment." + environment.name + "]");
    writer.config(environment.settings);
    if (environment.options.values().empty()) continue;
    writer.table("[environment." + environment.name + ".options]");
    writer.config(environment.options);
  }
  for (const HostSpec& host : manifest.hosts) {
    writer.table("[host." + host.name + "]");
    if (host.type != host.name) {
      writer.line("type", toml_quote(host.type), manifest.text->describe(host.position));
    }
    writer.config(host.settings);
  }
  return writer.text_;
}

std::string dump_json(const Manifest& manifest) {
  Json json = {{"schema", 1}, {"manifest", manifest.path.string()}};
  Json& plugins = json["plugin"] = Json::array();
  for (const PluginEntry& plugin : manifest.plugins) {
    plugins.push_back({{"id", plugin.id},
                       {"path", plugin.path.string()},
                       {"required", plugin.required},
                       {"source", manifest.text->describe(plugin.position)}});
  }
  Json& plugin_options = json["plugin-options"] = Json::object();
  for (const auto& [id, options] : manifest.plugin_options) {
    plugin_options[id] = json_config(options);
  }
  Json& devices = json["device"] = Json::object();
  for (const DeviceSpec& device : manifest.devices) {
    Json& entry = devices[device.name] = json_config(device.settings);
    if (device.options) {
      entry["options"] = json_config(*device.options);
    } else {
      Json& options = entry["options"] = Json::object();
      for (const RawSetting* setting : winners(device.given_options)) {
        options[setting->key] = {{"value", json_value(setting->value)},
                                 {"source", setting->from.text}};
      }
    }
  }
  Json& models = json["model"] = Json::object();
  for (const ModelSpec& model : manifest.models) {
    Json& entry = models[model.name] = json_config(model.settings);
    entry["options"] = json_config(model.options);
  }
  Json& environments = json["environment"] = Json::object();
  for (const EnvironmentSpec& environment : manifest.environments) {
    Json& entry = environments[environment.name] = json_config(environment.settings);
    entry["options"] = json_config(environment.options);
  }
  Json& hosts = json["host"] = Json::object();
  for (const HostSpec& host : manifest.hosts) {
    Json& entry = hosts[host.name] = json_config(host.settings);
    if (host.type != host.name) entry["type"] = host.type;
  }
  return json.dump(2, ' ', false, Json::error_handler_t::replace);
}

}  // namespace frt::host
