// SPDX-License-Identifier: Apache-2.0
// From text to a checked manifest.
//
// The reader goes through the tables once and reports everything it meets; nothing stops it but a
// syntax error, since after one there is no tree. Each table becomes a list of raw settings, gets
// its overrides appended, and is checked against a list of options: the manifest's own
// (tables.cpp), the plugin's, or the host's. So there is one way to be wrong and one way to say so.
#include "manifest/overrides.hpp"
#include "util/toml_reader.hpp"

#include <frt/core/manifest.hpp>
#include <frt/core/plugin.hpp>
#include <frt/io/file.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace frt::core {

namespace {

namespace fs = std::filesystem;

constexpr uint64_t kManifestLimit = uint64_t{1} << 20;
const std::vector<std::string> kTopKeys = {
    "schema", "plugin", "plugin-options", "device", "model", "environment", "host"};

bool is_name(std::string_view name) {
  return !name.empty() && name.size() <= 64 && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-';
  });
}

RawValue raw_value(const TomlNode& node) {
  RawValue value;
  switch (node.kind) {
    case TomlNode::Kind::kString:
      value.kind = RawValue::Kind::kString;
      value.text = node.text;
      break;
    case TomlNode::Kind::kInteger:
      value.kind = RawValue::Kind::kInteger;
      value.integer = node.integer;
      break;
    case TomlNode::Kind::kFloat:
      value.kind = RawValue::Kind::kFloat;
      value.number = node.number;
      break;
    case TomlNode::Kind::kBool:
      value.kind = RawValue::Kind::kBool;
      value.integer = node.integer;
      break;
    default:
      value.text = toml_kind_name(node.kind);
  }
  return value;
}

class Reader {
 public:
  Reader(const fs::path& path, std::shared_ptr<const SourceText> text,
         const ManifestRequest& request)
      : request_(request), diagnostics_(text.get()), overrides_(request, diagnostics_) {
    manifest_.path = path;
    manifest_.text = text;
    manifest_.resolving.base_folder = fs::absolute(path).parent_path();
    manifest_.resolving.flag_folder =
        request.flag_folder.empty() ? fs::current_path() : request.flag_folder;
    manifest_.resolving.environment = request.environment;
  }

  Manifest read(std::string_view text) {
    const std::size_t before = diagnostics_.all().size();
    const TomlNode root = parse_toml(text, *manifest_.text, diagnostics_);
    if (diagnostics_.all().size() != before) diagnostics_.throw_if_errors();
    read_schema_number(root);
    for (const TomlMember& member : root.members) {
      if (is_free_key(member.key)) continue;
      if (std::find(kTopKeys.begin(), kTopKeys.end(), member.key) != kTopKeys.end()) continue;
      Diagnostic& d = diagnostics_.error(FRT_ERR_INVALID_ARGUMENT, member.key_position,
                                         "unknown key `" + member.key + "`");
      d.hint = did_you_mean(member.key, kTopKeys);
      d.notes.push_back(fmt::format("known keys: {}", fmt::join(kTopKeys, ", ")));
    }
    read_plugins(root);
    // Names first: tables refer to each other in any order.
    const std::vector<const TomlMember*> devices = named_tables(root, "device");
    const std::vector<const TomlMember*> models = named_tables(root, "model");
    const std::vector<const TomlMember*> environments = named_tables(root, "environment");
    for (const TomlMember* member : devices) manifest_.resolving.devices.push_back(member->key);
    for (const TomlMember* member : models) manifest_.resolving.models.push_back(member->key);
    std::vector<std::string>& names = manifest_.resolving.environments;
    for (const TomlMember* member : environments) names.push_back(member->key);
    names.insert(names.end(), request_.environments.begin(), request_.environments.end());
    for (const TomlMember* member : devices) read_device(*member);
    for (const TomlMember* member : models) read_model(*member);
    for (const TomlMember* member : environments) read_environment(*member);
    for (const TomlMember* member : named_tables(root, "host")) read_host(*member);
    read_plugin_options(root);
    overrides_.finish(diagnostics_);
    diagnostics_.throw_if_errors();
    manifest_.warnings = diagnostics_.warnings();
    return std::move(manifest_);
  }

 private:
  Diagnostic& error(const SourcePosition& position, std::string message) {
    return diagnostics_.error(FRT_ERR_INVALID_ARGUMENT, position, std::move(message));
  }

  void read_schema_number(const TomlNode& root) {
    const TomlMember* member = root.find("schema");
    if (!member) {
      error({1, 1, 1}, "missing key `schema`").hint = "write `schema = 1` as the first line";
    } else if (member->value.kind != TomlNode::Kind::kInteger || member->value.integer < 1) {
      error(member->value.position, "`schema`: expected the number 1");
    } else if (member->value.integer != 1) {
      error(member->value.position,
            fmt::format("this manifest has schema {}, but this host reads schema 1",
                        member->value.integer))
          .notes.push_back("update the host, or write the manifest for schema 1");
    }
  }

  // The tables [kind.NAME], without free keys; others are reported.
  std::vector<const TomlMember*> named_tables(const TomlNode& root, const char* kind) {
    std::vector<const TomlMember*> tables;
    const TomlMember* parent = root.find(kind);
    if (!parent) return tables;
    if (parent->value.kind != TomlNode::Kind::kTable) {
      error(parent->key_position, fmt::format("`{}`: expected tables [{}.NAME], found {}", kind,
                                              kind, toml_kind_name(parent->value.kind)));
      return tables;
    }
    for (const TomlMember& member : parent->value.members) {
      if (is_free_key(member.key)) continue;
      if (member.value.kind != TomlNode::Kind::kTable) {
        error(member.key_position,
              fmt::format("`{}` in [{}]: expected a table [{}.NAME], found {}", member.key, kind,
                          kind, toml_kind_name(member.value.kind)));
      } else if (!is_name(member.key)) {
        error(member.key_position,
              fmt::format("the name `{}` of a {} has characters other than letters, digits, '_' "
                          "and '-', or is too long",
                          member.key, kind));
      } else {
        tables.push_back(&member);
      }
    }
    return tables;
  }

  // The settings of a table as written; the member called `except` is left out.
  std::vector<RawSetting> settings_of(const TomlNode& table, std::string_view except = {}) {
    std::vector<RawSetting> settings;
    for (const TomlMember& member : table.members) {
      if (is_free_key(member.key) || (!except.empty() && member.key == except)) continue;
      RawSetting setting;
      setting.key = member.key;
      setting.value = raw_value(member.value);
      setting.from = {Origin::kManifest, manifest_.text->describe(member.key_position)};
      setting.key_position = member.key_position;
      setting.value_position = member.value.position;
      settings.push_back(std::move(setting));
    }
    return settings;
  }

  Config resolve(const std::string& table, const SourcePosition& position,
                 const std::vector<OptionSpec>& options, const std::vector<RawSetting>& settings,
                 const std::string& elsewhere = {}) {
    ResolveContext context = manifest_.resolving;
    context.table = table;
    context.table_position = position;
    context.elsewhere = elsewhere;
    return resolve_config(options, settings, context, diagnostics_);
  }

  // Own settings of [kind.NAME], its overrides included.
  Config resolve_own(const std::string& table, const TomlMember& member,
                     const std::vector<OptionSpec>& options, std::string_view except,
                     std::vector<RawSetting>& settings, const std::string& elsewhere = {}) {
    settings = settings_of(member.value, except);
    overrides_.apply(table, option_keys(options), settings);
    return resolve(table, member.key_position, options, settings, elsewhere);
  }

  // The settings of the sub-table `options`.
  std::vector<RawSetting> option_settings(const std::string& table, const TomlMember& member,
                                          const std::vector<std::string>& keys,
                                          SourcePosition& position) {
    std::vector<RawSetting> settings;
    position = member.key_position;
    if (const TomlMember* sub = member.value.find("options")) {
      if (sub->value.kind == TomlNode::Kind::kTable) {
        position = sub->key_position;
        settings = settings_of(sub->value);
      } else {
        error(sub->key_position, fmt::format("`options` in [{}]: expected a table [{}.options], "
                                             "found {}",
                                             table, table, toml_kind_name(sub->value.kind)));
      }
    }
    overrides_.apply(table + ".options", keys, settings);
    return settings;
  }

  // Where the winning value of `key` was written.
  static SourcePosition position_of(const std::vector<RawSetting>& settings, std::string_view key) {
    for (auto at = settings.rbegin(); at != settings.rend(); ++at) {
      if (at->key == key) return at->value_position;
    }
    return {};
  }

  // The schema of a plugin that must be of `kind`; null after a finding, or without a source.
  const ConfigSchema* plugin_schema(const std::string& id, uint32_t kind,
                                    const SourcePosition& position) {
    if (!request_.schemas) return nullptr;
    const SchemaSource::Lookup lookup = request_.schemas->find(id);
    if (lookup.kind != 0 && kind != 0 && lookup.kind != kind) {
      const auto with_article = [](uint32_t named) {
        const std::string name = plugin_kind_name(named);
        return (name.starts_with('e') ? "an " : "a ") + name;
      };
      Diagnostic& d = error(position, fmt::format("'{}' is {} plugin; here belongs {} plugin", id,
                                                  with_article(lookup.kind), with_article(kind)));
      d.notes.push_back(fmt::format("{} plugins: {}", plugin_kind_name(kind),
                                    fmt::join(request_.schemas->ids(kind), ", ")));
      return nullptr;
    }
    if (!lookup.schema) report(lookup, position);
    return lookup.schema;
  }

  void report(const SchemaSource::Lookup& lookup, const SourcePosition& position) {
    Diagnostic& d = diagnostics_.error(lookup.code, position, lookup.problem);
    d.notes = lookup.notes;
    d.plugin_refused = lookup.code != FRT_ERR_NOT_FOUND;
  }

  void read_plugins(const TomlNode& root) {
    const TomlMember* list = root.find("plugin");
    if (!list) return;
    if (list->value.kind != TomlNode::Kind::kArray) {
      error(list->key_position, "`plugin`: expected tables [[plugin]], with two brackets");
      return;
    }
    for (const TomlNode& node : list->value.items) {
      if (node.kind != TomlNode::Kind::kTable) {
        error(node.position, "`plugin`: expected tables [[plugin]]");
        continue;
      }
      const Config settings =
          resolve("[plugin]", node.position, plugin_table_options(), settings_of(node));
      if (!settings.find("id") || !settings.find("path") || !settings.find("required")) continue;
      PluginEntry entry;
      entry.id = settings.text("id");
      entry.path = settings.text("path");
      entry.required = settings.integer("required") != 0;
      entry.position = node.position;
      const bool known = std::any_of(manifest_.plugins.begin(), manifest_.plugins.end(),
                                     [&](const PluginEntry& e) { return e.id == entry.id; });
      if (known) {
        error(node.position, "plugin '" + entry.id + "' is named twice");
        continue;
      }
      if (!entry.path.empty() && !request_.no_plugin_paths.empty()) {
        error(node.position,
              "plugin '" + entry.id + "' is named by a path: " + request_.no_plugin_paths);
        continue;
      }
      if (request_.schemas) request_.schemas->pin(entry);
      manifest_.plugins.push_back(std::move(entry));
    }
    if (!request_.schemas) return;
    for (const PluginEntry& entry : manifest_.plugins) {
      const SchemaSource::Lookup file =
          entry.path.empty() ? SchemaSource::Lookup() : request_.schemas->check_pin(entry);
      if (file.code != FRT_OK) {
        report(file, entry.position);
      } else if (entry.required) {
        plugin_schema(entry.id, 0, entry.position);
      }
    }
  }

  void read_device(const TomlMember& member) {
    const std::string table = "device." + member.key;
    DeviceSpec device;
    device.name = member.key;
    device.position = member.key_position;
    std::vector<RawSetting> own;
    device.settings = resolve_own(table, member, device_table_options(), "options", own,
                                  "options of the backend belong in [" + table + ".options]");
    SourcePosition position;
    if (!device.settings.find("backend")) {
      option_settings(table, member, {}, position);
    } else if (device.automatic()) {
      read_automatic_options(table, member, device);
    } else {
      const ConfigSchema* schema =
          plugin_schema(device.backend(), FRT_PLUGIN_BACKEND, position_of(own, "backend"));
      const std::vector<OptionSpec> options = schema ? schema->options : std::vector<OptionSpec>();
      device.given_options = option_settings(table, member, option_keys(options), position);
      if (schema) {
        device.options = resolve(table + ".options", position, options, device.given_options);
      }
      used_plugins_.insert(device.backend());
    }
    manifest_.devices.push_back(std::move(device));
  }

  // Which backend will be chosen is not known here; a key that none of them takes is wrong anyway.
  void read_automatic_options(const std::string& table, const TomlMember& member,
                              DeviceSpec& device) {
    std::set<std::string> keys;
    if (request_.schemas) {
      for (const std::string& id : request_.schemas->ids(FRT_PLUGIN_BACKEND)) {
        const SchemaSource::Lookup lookup = request_.schemas->find(id);
        if (!lookup.schema) continue;
        for (const OptionSpec& option : lookup.schema->options) keys.insert(option.key);
      }
    }
    const std::vector<std::string> known(keys.begin(), keys.end());
    SourcePosition position;
    device.given_options = option_settings(table, member, known, position);
    for (const RawSetting& setting : device.given_options) {
      if (!request_.schemas || keys.contains(setting.key)) continue;
      Diagnostic& d = error(setting.key_position, "unknown key `" + setting.key + "` in [" + table +
                                                      ".options]: no backend takes it");
      d.hint = did_you_mean(setting.key, known);
    }
  }

  // [kind.NAME]: what names a plugin, and the options that it gives to it. `own` are its settings.
  template <class Spec>
  Spec read_plugin_table(const std::string& table, const TomlMember& member, uint32_t kind,
                         const std::vector<OptionSpec>& settings, std::vector<RawSetting>& own) {
    Spec spec;
    spec.name = member.key;
    spec.position = member.key_position;
    spec.settings = resolve_own(table, member, settings, "options", own,
                                "options of the plugin belong in [" + table + ".options]");
    const ConfigSchema* schema = nullptr;
    if (spec.settings.find("plugin")) {
      schema = plugin_schema(spec.settings.text("plugin"), kind, position_of(own, "plugin"));
      used_plugins_.insert(spec.settings.text("plugin"));
    }
    SourcePosition position;
    const std::vector<OptionSpec> options = schema ? schema->options : std::vector<OptionSpec>();
    const std::vector<RawSetting> given =
        option_settings(table, member, option_keys(options), position);
    if (schema) spec.options = resolve(table + ".options", position, options, given);
    return spec;
  }

  void read_environment(const TomlMember& member) {
    std::vector<RawSetting> own;
    manifest_.environments.push_back(read_plugin_table<EnvironmentSpec>(
        "environment." + member.key, member, FRT_PLUGIN_ENVIRONMENT, environment_table_options(),
        own));
  }

  void read_model(const TomlMember& member) {
    std::vector<RawSetting> own;
    auto model = read_plugin_table<ModelSpec>("model." + member.key, member, FRT_PLUGIN_MODEL,
                                              model_table_options(), own);
    if (const Config::Value* checkpoint = model.settings.find("checkpoint")) {
      std::error_code code;
      if (!checkpoint->text.starts_with(kSyntheticPrefix) && !fs::exists(checkpoint->text, code)) {
        diagnostics_.warning(position_of(own, "checkpoint"),
                             "checkpoint '" + checkpoint->text + "' does not exist");
      }
    }
    manifest_.models.push_back(std::move(model));
  }

  void read_host(const TomlMember& member) {
    const std::string table = "host." + member.key;
    HostSpec host;
    host.name = host.type = member.key;
    host.position = member.key_position;
    SourcePosition type_position = member.key_position;
    if (const TomlMember* type = member.value.find("type")) {
      type_position = type->value.position;
      if (type->value.kind != TomlNode::Kind::kString) {
        error(type_position, "`type` in [" + table + "]: expected text");
        return;
      }
      host.type = type->value.text;
    }
    std::vector<std::string> types;
    const HostSchema* schema = nullptr;
    for (const HostSchema& candidate : request_.hosts) {
      types.push_back(candidate.type);
      if (candidate.type == host.type) schema = &candidate;
    }
    if (!schema) {
      Diagnostic& d = error(type_position, "unknown host `" + host.type + "`");
      d.hint = did_you_mean(host.type, types);
      d.notes.push_back(fmt::format("known hosts: {}", fmt::join(types, ", ")));
      return;
    }
    std::vector<RawSetting> own;
    host.settings = resolve_own(table, member, schema->options, "type", own);
    manifest_.hosts.push_back(std::move(host));
  }

  void read_plugin_options(const TomlNode& root) {
    std::set<std::string> done;
    const TomlMember* parent = root.find("plugin-options");
    if (parent && parent->value.kind != TomlNode::Kind::kTable) {
      error(parent->key_position, "`plugin-options`: expected tables [plugin-options.\"ID\"]");
      parent = nullptr;
    }
    for (const TomlMember& member : parent ? parent->value.members : std::vector<TomlMember>()) {
      if (is_free_key(member.key)) continue;
      done.insert(member.key);
      if (member.value.kind != TomlNode::Kind::kTable) {
        error(member.key_position, "`" + member.key + "` in [plugin-options]: expected a table");
        continue;
      }
      const auto nested =
          std::find_if(member.value.members.begin(), member.value.members.end(),
                       [](const TomlMember& m) { return m.value.kind == TomlNode::Kind::kTable; });
      if (nested != member.value.members.end() && !is_free_key(nested->key)) {
        error(member.key_position, "an id with dots needs quotes").hint =
            "write [plugin-options.\"" + member.key + "." + nested->key + "\"]";
        continue;
      }
      resolve_plugin_options(member.key, member.key_position, settings_of(member.value));
    }
    for (const std::string& id : used_plugins_) {
      if (!done.contains(id)) resolve_plugin_options(id, {}, {});
    }
  }

  void resolve_plugin_options(const std::string& id, const SourcePosition& position,
                              std::vector<RawSetting> settings) {
    const std::string table = "plugin-options." + id;
    const ConfigSchema* schema = nullptr;
    if (request_.schemas) {
      // A used plugin that is missing was reported where it is used.
      if (used_plugins_.contains(id)) {
        schema = request_.schemas->find(id).schema;
      } else {
        schema = plugin_schema(id, 0, position);
      }
    }
    overrides_.apply(
        table, schema ? option_keys(schema->plugin_options) : std::vector<std::string>(), settings);
    if (schema) {
      manifest_.plugin_options.emplace(id,
                                       resolve(table, position, schema->plugin_options, settings));
    }
  }

  const ManifestRequest& request_;
  Manifest manifest_;
  Diagnostics diagnostics_;
  Overrides overrides_;
  std::set<std::string> used_plugins_;
};

template <class Item>
const Item* find_where(const std::vector<Item>& items, std::string Item::*key,
                       std::string_view value) noexcept {
  for (const Item& item : items) {
    if (item.*key == value) return &item;
  }
  return nullptr;
}

}  // namespace

const DeviceSpec* Manifest::find_device(std::string_view name) const noexcept {
  return find_where(devices, &DeviceSpec::name, name);
}

const ModelSpec* Manifest::find_model(std::string_view name) const noexcept {
  return find_where(models, &ModelSpec::name, name);
}

const EnvironmentSpec* Manifest::find_environment(std::string_view name) const noexcept {
  return find_where(environments, &EnvironmentSpec::name, name);
}

const HostSpec* Manifest::find_host(std::string_view type) const noexcept {
  return find_where(hosts, &HostSpec::type, type);
}

Manifest load_manifest(const fs::path& path, const ManifestRequest& request) {
  std::string text;
  try {
    text = io::read_file(path, "manifest", kManifestLimit);
  } catch (const Error& error) {
    Diagnostics diagnostics;
    diagnostics.error(error.status(), {}, error.what());
    diagnostics.throw_if_errors();
  }
  return parse_manifest(text, path, request);
}

Manifest parse_manifest(std::string_view text, const fs::path& path,
                        const ManifestRequest& request) {
  auto source = std::make_shared<const SourceText>(path.string(), text);
  return Reader(path, std::move(source), request).read(text);
}

Config resolve_device_options(const Manifest& manifest, const DeviceSpec& device,
                              const ConfigSchema& schema) {
  ResolveContext context = manifest.resolving;
  context.table = "device." + device.name + ".options";
  context.table_position = device.position;
  Diagnostics diagnostics(manifest.text.get());
  Config config = resolve_config(schema.options, device.given_options, context, diagnostics);
  diagnostics.throw_if_errors();
  return config;
}

}  // namespace frt::core
