// SPDX-License-Identifier: Apache-2.0
// manifest.hpp - the file that says what runs where: plugins, devices, models, environments, hosts.
//
//     schema = 1
//     [[plugin]]                      # optional: pin or add a plugin file
//     id = "acme.fast"
//     path = "plugins/acme.so"        # this file or none, relative to this one; absent: the search
//                                     # path
//     required = true                 # it must load, used or not; default false
//     [plugin-options."acme.fast"]    # what the plugin accepts at open
//     [device.NAME]
//     backend = "auto"                # or a plugin id
//     ordinal = 0
//     capture = true                  # false: graphs run their recipe at each replay
//     [device.NAME.options]           # what the backend accepts per device
//     [model.NAME]
//     plugin = "acme.model"
//     device = "NAME"
//     checkpoint = "folder"           # or "synthetic:<preset>": not a path
//     [model.NAME.options]
//     [environment.NAME]
//     plugin = "acme.arm"
//     [environment.NAME.options]      # what the plugin accepts per environment
//     [host.NAME]                     # the program's own tables
//     type = "..."                    # default: NAME
//
// Keys that start with "x-" are free. All findings come in one pass, with positions and
// suggestions (diagnostic.hpp). Tables of hosts are checked against schemas that the program
// hands in: core does not know what they mean.
//
// Every value can be overridden: `device.gpu0.ordinal` by the environment variable
// FRT_DEVICE_GPU0_ORDINAL and by the flag `--set device.gpu0.ordinal=1`; options of a plugin by
// FRT_MODEL_TALK_OPTIONS_SLOTS and `--set model.talk.options.slots=2`.
#pragma once

#include <frt/core/config.hpp>
#include <frt/core/diagnostic.hpp>

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace frt::core {

// The backend that means: the best one that is not the processor the program runs on.
inline constexpr const char* kAutoBackend = "auto";
// A checkpoint that starts so is made by the model plugin itself.
inline constexpr const char* kSyntheticPrefix = "synthetic:";

struct PluginEntry {
  std::string id;
  std::filesystem::path path;  // absolute; empty: the search path
  bool required = false;
  SourcePosition position;
};

struct DeviceSpec {
  std::string name;
  Config settings;                        // backend, ordinal, capture
  std::vector<RawSetting> given_options;  // before they are checked
  std::optional<Config> options;          // absent while backend is "auto"
  SourcePosition position;

  const std::string& backend() const { return settings.text("backend"); }
  uint32_t ordinal() const { return static_cast<uint32_t>(settings.integer("ordinal")); }
  bool capture() const { return settings.integer("capture") != 0; }
  bool automatic() const { return backend() == kAutoBackend; }
};

struct ModelSpec {
  std::string name;
  Config settings;  // plugin, device, checkpoint
  Config options;
  SourcePosition position;

  const std::string& plugin() const { return settings.text("plugin"); }
  const std::string& device() const { return settings.text("device"); }
  const std::string& checkpoint() const { return settings.text("checkpoint"); }
};

struct EnvironmentSpec {
  std::string name;
  Config settings;  // plugin
  Config options;
  SourcePosition position;

  const std::string& plugin() const { return settings.text("plugin"); }
};

struct HostSpec {
  std::string name;
  std::string type;
  Config settings;
  SourcePosition position;
};

struct Manifest {
  std::filesystem::path path;
  std::vector<PluginEntry> plugins;
  std::vector<DeviceSpec> devices;
  std::vector<ModelSpec> models;
  std::vector<EnvironmentSpec> environments;
  std::vector<HostSpec> hosts;
  std::map<std::string, Config> plugin_options;  // by plugin id; those that are used or given
  std::vector<Diagnostic> warnings;

  // By name; null if there is none.
  const DeviceSpec* find_device(std::string_view name) const noexcept;
  const ModelSpec* find_model(std::string_view name) const noexcept;
  const EnvironmentSpec* find_environment(std::string_view name) const noexcept;
  // The first host of this type; null if there is none.
  const HostSpec* find_host(std::string_view type) const noexcept;

  // What is needed to check the options of an automatic device once its backend is known.
  ResolveContext resolving;
  std::shared_ptr<const SourceText> text;
};

// A table that a program understands: [host.NAME] with this type.
struct HostSchema {
  std::string type;
  std::vector<OptionSpec> options;
  std::string doc;
};

// Where plugin schemas come from: the registry, or nothing (then options stay unchecked).
class SchemaSource {
 public:
  virtual ~SchemaSource() = default;
  // A plugin of the manifest; called before any find().
  virtual void pin(const PluginEntry& entry) = 0;

  struct Lookup {
    const ConfigSchema* schema = nullptr;  // null: see problem
    uint32_t kind = 0;                     // FRT_PLUGIN_*; 0 unknown
    frt_status code = FRT_OK;              // FRT_ERR_NOT_FOUND, or why the plugin was refused
    std::string problem;                   // one sentence
    std::vector<std::string> notes;        // e.g. where was searched
  };
  virtual Lookup find(const std::string& id) = 0;
  // Whether the file that `entry` names is there and is that plugin; loads nothing. `schema` is
  // null, `problem` empty if it is.
  virtual Lookup check_pin(const PluginEntry& entry) = 0;
  // The ids of all usable plugins of a kind, for suggestions.
  virtual std::vector<std::string> ids(uint32_t kind) = 0;
};

struct ManifestRequest {
  std::vector<HostSchema> hosts;
  // Those of the program itself, which references may name beside those of the manifest.
  std::vector<std::string> environments;
  std::vector<std::string> sets;  // "--set" texts: path=value
  Environment environment = process_environment;
  // All names of environment variables, to warn of misspelt ones; may be empty.
  std::vector<std::string> environment_names;
  SchemaSource* schemas = nullptr;
  std::string no_plugin_paths;        // why no [[plugin]] may give a path; empty: they may
  std::filesystem::path flag_folder;  // relative paths of flags; empty: the current folder
};

// Reads and checks a manifest. Throws DiagnosticError with all findings (50 at most); its status is
// FRT_ERR_NOT_FOUND or FRT_ERR_IO if the file cannot be read.  [setup]
Manifest load_manifest(const std::filesystem::path& path, const ManifestRequest& request);
// The same from memory; `path` names it and is where relative paths start.
Manifest parse_manifest(std::string_view text, const std::filesystem::path& path,
                        const ManifestRequest& request);

// Checks the options of an automatic device against the backend that was chosen for it. Throws
// DiagnosticError.  [setup]
Config resolve_device_options(const Manifest& manifest, const DeviceSpec& device,
                              const ConfigSchema& schema);

// The names of all environment variables of this process.  [any]
std::vector<std::string> process_environment_names();

// The keys of the manifest's own tables, as option lists: one truth for the reader and for who
// shows them.  [any]
const std::vector<OptionSpec>& plugin_table_options();       // [[plugin]]
const std::vector<OptionSpec>& device_table_options();       // [device.NAME], without `options`
const std::vector<OptionSpec>& model_table_options();        // [model.NAME], without `options`
const std::vector<OptionSpec>& environment_table_options();  // [environment.NAME], the same

// What a plugin takes, for who shows it.
struct PluginSchema {
  std::string id;
  uint32_t kind = 0;
  ConfigSchema schema;
};

}  // namespace frt::core
