// SPDX-License-Identifier: Apache-2.0
// A manifest at work. The order of members is the order of life: plugins are opened first and
// closed last; contexts lie between.
#include <frt/model.h>
#include <frt/core/capsules.hpp>
#include <frt/core/context.hpp>
#include <frt/core/exec_table.hpp>
#include <frt/core/runtime.hpp>
#include <frt/exec.hpp>
#include <frt/io/file.hpp>
#include <frt/reading.hpp>
#include <frt/text.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace frt::core {

Runtime::Runtime(Manifest manifest, Registry& registry, HostServices& services,
                 RuntimeOptions options)
    : manifest_(std::move(manifest)),
      registry_(registry),
      services_(services),
      options_(std::move(options)) {
  const auto alone = lock_plugin_setup();
  std::set<std::string> used;
  for (const ModelSpec& model : manifest_.models) used.insert(model.device());
  try {
    // All files are tried and mapped before the first plugin is opened: a trial forks, and loading
    // a library and starting a driver on different threads can deadlock. A plugin starts threads,
    // and so does a driver.
    for (const PluginEntry& entry : manifest_.plugins) {
      if (!entry.path.empty()) {
        const SchemaSource::Lookup file = registry_.check_pin(entry);
        if (file.code != FRT_OK) throw Error(file.code, file.problem);
      }
      if (entry.required) registry_.load(entry.id);
    }
    for (const ModelSpec& model : manifest_.models) registry_.load(model.plugin());
    for (const EnvironmentSpec& one : manifest_.environments) registry_.load(one.plugin());
    for (const DeviceSpec& device : manifest_.devices) {
      if (!options_.all_devices && !used.contains(device.name)) continue;
      if (device.automatic()) {
        registry_.load_all(FRT_PLUGIN_BACKEND);
      } else {
        registry_.load(device.backend());
      }
    }
    for (const ModelSpec& model : manifest_.models) {
      open(model.plugin()).require<frt_model_v1>(FRT_EXT_MODEL);
    }
    for (const EnvironmentSpec& one : manifest_.environments) open(one.plugin());
    for (const DeviceSpec& device : manifest_.devices) {
      if (options_.all_devices || used.contains(device.name)) open_device(device);
    }
  } catch (...) {
    for (RuntimeDevice& device : devices_) close(device);
    throw;
  }
}

void Runtime::close(const RuntimeDevice& device) {
  const auto alone = lock_plugin_setup();  // before the watch: waiting for others is no hang
  const SetupWatch watching = device.plugin->watch("device_close");
  close_context(device.context);
}

Runtime::~Runtime() {
  for (auto device = devices_.rbegin(); device != devices_.rend(); ++device) {
    try {
      close(*device);
      device->context = nullptr;
    } catch (const std::exception& error) {
      report_open(*device, error.what());
    }
  }
  while (!plugins_.empty()) {
    std::unique_ptr<OpenPlugin> plugin = std::move(plugins_.back());
    plugins_.pop_back();
    const bool needed = std::ranges::any_of(devices_, [&](const RuntimeDevice& device) {
      return device.context && device.plugin == plugin.get();
    });
    if (needed) OpenPlugin::keep_open(std::move(plugin));
  }
}

// What is left on a device was made by a model that is gone.
void Runtime::report_open(const RuntimeDevice& device, const char* problem) const {
  std::set<std::string> makers;
  for (const ModelSpec& model : manifest_.models) {
    if (model.device() == device.spec->name) makers.insert(model.plugin());
  }
  std::string text = fmt::format("device '{}' stays open, and plugin {} is never closed: {}",
                                 device.spec->name, device.plugin->loaded().card.id, problem);
  if (!makers.empty()) text += fmt::format("; a model of {} left that", fmt::join(makers, " or "));
  services_.log().write(makers.size() == 1 ? *makers.begin() : "core", FRT_LOG_PLUGIN_MISBEHAVING,
                        text);
}

OpenPlugin& Runtime::open(const std::string& id) {
  for (const auto& plugin : plugins_) {
    if (plugin->loaded().card.id == id) return *plugin;
  }
  const LoadedPlugin& loaded = registry_.load(id);
  const auto given = manifest_.plugin_options.find(id);
  Config options;
  if (given != manifest_.plugin_options.end()) {
    options = given->second;
  } else {
    // A plugin that the manifest does not name (the choice of an automatic device): defaults.
    Diagnostics diagnostics(manifest_.text.get());
    ResolveContext context = manifest_.resolving;
    context.table = "plugin-options." + id;
    options = resolve_config(loaded.schema.plugin_options, {}, context, diagnostics);
    diagnostics.throw_if_errors();
  }
  return *plugins_.emplace_back(std::make_unique<OpenPlugin>(loaded, options, services_));
}

void Runtime::open_device(const DeviceSpec& spec) {
  RuntimeDevice device;
  device.spec = &spec;
  std::string id = spec.backend();
  if (spec.automatic()) {
    const BackendChoice choice =
        choose_backend(registry_, spec.ordinal(),
                       [&](const std::string& wanted) -> OpenPlugin& { return open(wanted); });
    id = choice.id;
    device.choice = choice.reason;
    device.others = choice.others;
  } else {
    device.choice = "named in the manifest";
  }
  OpenPlugin& plugin = open(id);
  device.plugin = &plugin;
  device.options = spec.options ? *spec.options
                                : resolve_device_options(manifest_, spec, plugin.loaded().schema);
  ContextOptions options;
  options.name = spec.name;
  options.backend_id = id;
  options.eager = options_.eager || !spec.capture();
  options.kernels = plugin.find<frt_kernels_v1>(FRT_EXT_KERNELS);
  try {
    const auto& backend = plugin.require<frt_backend_v1>(FRT_EXT_BACKEND);
    if (options_.watch) options.kernels = options_.watch(backend, options.kernels);
    SetupWatch watching = plugin.watch("device_count");
    options.entering = [&](const char* call) { watching.enter(call); };
    device.context =
        open_context(backend, plugin.handle(), spec.ordinal(), device.options.c(), options);
  } catch (const Error& error) {
    throw Error(error.status(), "device '" + spec.name + "': " + error.what());
  }
  if (!spec.automatic()) warn_of_targets(plugin.loaded().card, device);
  devices_.push_back(std::move(device));
}

// Who names a plugin gets it; only "auto" chooses by what a card says.
void Runtime::warn_of_targets(const Card& card, const RuntimeDevice& device) const {
  const frt_device_info& info = *frt::Context(exec_table(), device.context).info().device;
  const Ranking ranking = rank_card(card, info.architecture);
  if (ranking.fit != Fit::kNone) return;
  services_.log().write("core", FRT_LOG_WARNING,
                        "plugin '" + card.id + "' on device '" + device.spec->name +
                            "': its card says that it is " + ranking.reason +
                            "; it is used since the manifest names it");
}

const RuntimeDevice& Runtime::device(std::string_view name) const {
  for (const RuntimeDevice& device : devices_) {
    if (device.spec->name == name) return device;
  }
  throw Error(FRT_ERR_NOT_FOUND, "device '" + std::string(name) + "' is not open");
}

const OpenPlugin& Runtime::model_plugin(std::string_view model) const {
  const ModelSpec* spec = manifest_.find_model(model);
  const OpenPlugin* found = spec ? plugin(spec->plugin()) : nullptr;
  if (!found) {
    throw Error(FRT_ERR_NOT_FOUND, "the manifest has no model '" + std::string(model) + "'");
  }
  return *found;
}

const OpenPlugin& Runtime::environment_plugin(std::string_view environment) const {
  const EnvironmentSpec* spec = manifest_.find_environment(environment);
  const OpenPlugin* found = spec ? plugin(spec->plugin()) : nullptr;
  if (!found) {
    throw Error(FRT_ERR_NOT_FOUND,
                "the manifest has no environment '" + std::string(environment) + "'");
  }
  return *found;
}

const OpenPlugin* Runtime::plugin(std::string_view id) const noexcept {
  for (const auto& plugin : plugins_) {
    if (plugin->loaded().card.id == id) return plugin.get();
  }
  return nullptr;
}

std::vector<SummaryRow> Runtime::summary() const {
  std::vector<SummaryRow> rows;
  for (const auto& plugin : plugins_) {
    const LoadedPlugin& loaded = plugin->loaded();
    rows.push_back(
        {"plugin", loaded.card.id, "loaded",
         fmt::format("{} {}, ABI {}.{}, {}{}", plugin_kind_name(loaded.card.kind),
                     loaded.card.version, loaded.card.abi_major, loaded.card.abi_minor,
                     loaded.path.string(), loaded.digest.empty() ? "" : ", digest verified")});
  }
  for (const Candidate& candidate : registry_.candidates()) {
    if (candidate.state == CandidateState::kUsable) continue;
    rows.push_back({"plugin",
                    candidate.card ? candidate.card->id : candidate.path.filename().string(),
                    candidate.state == CandidateState::kRefused ? "rejected" : "shadowed",
                    candidate.path.string() + ": " + candidate.reason});
  }
  for (const RuntimeDevice& device : devices_) {
    rows.push_back({"device", device.spec->name, "open",
                    device.plugin->loaded().card.id + ", " + device.choice});
    for (const std::string& other : device.others) {
      rows.push_back({"device", device.spec->name, "not chosen", other});
    }
  }
  return rows;
}

// ---- models --------------------------------------------------------------------------------

frt_model_info describe_model(const frt_model_v1& table, frt_model model,
                              const std::string& sender) {
  const auto info =
      ask<frt_model_info>(sender, [&](frt_model_info* out) { return table.info(model, out); });
  checked_text(info.architecture, sender + ": the architecture in its frt_model_info");
  checked_text(info.formats, sender + ": the formats in its frt_model_info");
  return info;
}

namespace {

// A port that hosts could not use, before one does.
void check_port(const frt_port& port, const frt::Context& context, const std::string& sender) {
  const std::string name(checked_text(port.name, sender + ": the name of a port"));
  const std::string what = sender + ": its port '" + name + "' ";
  const auto refuse = [&](const std::string& text) {
    throw Error(FRT_ERR_MISMATCH, what + text + "; correct it in the plugin");
  };
  if (!port.buffer) refuse("has no buffer");
  if ((port.direction & ~(FRT_PORT_INPUT | FRT_PORT_OUTPUT)) || port.direction == 0) {
    refuse("has direction " + std::to_string(port.direction) +
           ", which is not made of FRT_PORT_INPUT and FRT_PORT_OUTPUT");
  }
  if (port.rank > FRT_PORT_MAX_RANK) refuse("has rank " + std::to_string(port.rank));
  const uint32_t bits = dtype_bits(port.dtype);
  if (bits == 0) refuse("has no element type");
  const uint64_t bytes = frt::Buffer::retain(context, port.buffer).bytes();
  uint64_t elements = 1;
  for (const int64_t extent : std::span(port.shape, port.rank)) {
    const bool fits =
        extent >= 0 && (extent == 0 || elements <= UINT64_MAX / 64 / static_cast<uint64_t>(extent));
    if (!fits) refuse("has extent " + std::to_string(extent));
    elements *= static_cast<uint64_t>(extent);
  }
  if ((elements * bits + 7) / 8 > bytes) {
    refuse("is said to hold " + std::to_string(elements) + " elements of " +
           dtype_name(port.dtype) + ", but its buffer has " + std::to_string(bytes) + " bytes");
  }
}

void check_ports(const frt_model_v1& table, frt_model model, frt_context context,
                 const std::string& sender) {
  constexpr uint64_t kMost = 4096;
  const frt_port* ports = nullptr;
  uint64_t count = 0;
  check(contain(sender, "ports", [&] { return table.ports(model, &ports, &count); }),
        sender + ": ports");
  if (count > kMost || (count && !ports)) {
    throw Error(FRT_ERR_ABI, sender + ": ports gives " + std::to_string(count) +
                                 (ports ? " ports" : " ports at NULL"));
  }
  const frt::Context own(exec_table(), context);
  for (const frt_port& port : std::span(ports, count)) check_port(port, own, sender);
}

}  // namespace

RuntimeModel Runtime::create_model(const std::string& name, uint32_t flags) const {
  RuntimeModel model;
  model.plugin = &model_plugin(name);
  model.table = &model.plugin->require<frt_model_v1>(FRT_EXT_MODEL);
  const ModelSpec& spec = *manifest_.find_model(name);
  warn_of_targets(model.plugin->loaded().card, device(spec.device()));
  frt_model_params params{};
  params.struct_size = sizeof(params);
  params.flags = flags;
  params.context = device(spec.device()).context;
  params.name = spec.name.c_str();
  params.checkpoint = spec.checkpoint().c_str();
  params.config = spec.options.c();
  const std::string sender = model_sender(name, model.plugin->loaded().card.id);
  frt_error error{};
  {
    const SetupWatch watching = model.plugin->watch("create");
    const frt_status status = contain(sender, "create", [&] {
      return model.table->create(model.plugin->handle(), &params, &model.handle, &error);
    });
    check(status, error, error.message[0] ? sender : sender + ": create");
  }
  if (!model.handle) {
    throw Error(FRT_ERR_INTERNAL, sender + ": create reported success but made no object");
  }
  try {
    describe_model(*model.table, model.handle, sender);
    if (!(flags & FRT_MODEL_WITHOUT_WEIGHTS)) {
      check_ports(*model.table, model.handle, params.context, sender);
      bind_capsules(name, *model.table, model.handle);
    }
  } catch (...) {
    destroy_model(model);
    throw;
  }
  return model;
}

void Runtime::destroy_model(const RuntimeModel& model) const noexcept {
  model.plugin->end("destroy", [&] { model.table->destroy(model.handle); });
}

// ---- capsules ------------------------------------------------------------------------------

namespace {

// A plugin as part of a fingerprint: its id, and which build of it. Its file stays open from here
// on, so that the digest is that of what was loaded, also when the path shows a newer build by
// then.
struct PluginIdentity {
  explicit PluginIdentity(const LoadedPlugin& plugin)
      : id(plugin.card.id),
        version(plugin.card.version),
        path(plugin.path.string()),
        digest(plugin.digest),
        file(io::open_file(plugin.path, "plugin")) {}

  std::string id, version, path, digest;
  io::Descriptor file;

  void add_to(std::vector<Fingerprint::Field>& fields, const std::string& name) const {
    const std::string build = FRT_FINGERPRINT_BUILD + name;
    fields.push_back({name, id});
    fields.push_back({build + ".version", version});
    fields.push_back({build + ".file", digest.empty() ? sha256_file(file.get(), path) : digest});
  }
};

std::string value_text(const Config::Value& value) {
  switch (value.type) {
    case FRT_CONFIG_BOOL:
      return value.integer ? "true" : "false";
    case FRT_CONFIG_FLOAT:
      return fmt::format("{}", value.number);
    case FRT_CONFIG_ENUM:
      return value.text;
    default:
      return std::to_string(value.integer);
  }
}

// What was chosen of the options that decide the bits of results.
void add_numerics(std::vector<Fingerprint::Field>& fields, const std::string& name,
                  const std::vector<OptionSpec>& specs, const Config& chosen) {
  for (const OptionSpec& spec : specs) {
    const Config::Value* value = spec.numerics ? chosen.find(spec.key) : nullptr;
    if (value) fields.push_back({name + ".options." + spec.key, value_text(*value)});
  }
}

}  // namespace

std::vector<Fingerprint::Field> model_fingerprint(const frt_capsule_v1& capsule, frt_model model,
                                                  const OpenPlugin& plugin,
                                                  const std::string& sender) {
  const frt_fingerprint_field* given = nullptr;
  uint64_t count = 0;
  frt_error error{};
  const SetupWatch watching = plugin.watch("fingerprint");
  const frt_status status = contain(
      sender, "fingerprint", [&] { return capsule.fingerprint(model, &given, &count, &error); });
  check(status, error, sender);
  constexpr uint64_t kMost = 65536;  // some per file of weights
  if (count > kMost || (count && !given)) {
    throw Error(FRT_ERR_ABI, sender + ": its fingerprint has " + std::to_string(count) +
                                 (given ? " fields" : " fields at NULL"));
  }
  const auto text = [&](const char* member) {
    return std::string(checked_text(member, sender + ": a text of its fingerprint"));
  };
  std::vector<Fingerprint::Field> fields;
  for (const frt_fingerprint_field& field : std::span(given, count)) {
    fields.push_back({text(field.name), text(field.value)});
  }
  return fields;
}

frt_state Runtime::bind_capsules(std::string_view model, const frt_model_v1& table,
                                 frt_model object) const {
  const OpenPlugin& opened = model_plugin(model);
  const std::string what = model_sender(model, opened.loaded().card.id);
  const auto capsule = find_extension<frt_capsule_v1>(table, object, FRT_EXT_CAPSULE, what);
  if (!capsule) return nullptr;
  frt_error error{};
  frt_state state = nullptr;
  const frt_status status =
      contain(what, "state", [&] { return capsule->state(object, &state, &error); });
  check(status, error, what);
  if (!state) throw Error(FRT_ERR_ABI, what + ": its " FRT_EXT_CAPSULE " gives a NULL state");
  const RuntimeDevice& on = device(manifest_.find_model(model)->device());
  const auto backend = std::make_shared<const PluginIdentity>(on.plugin->loaded());
  const frt_device_info& info = *frt::Context(exec_table(), on.context).info().device;
  const auto plugin = std::make_shared<const PluginIdentity>(opened.loaded());
  std::vector<Fingerprint::Field> numerics = {{FRT_FINGERPRINT_BUILD "device", info.architecture}};
  if (info.numerics[0]) {
    numerics.push_back({FRT_FINGERPRINT_BUILD "device.numerics", info.numerics});
  }
  const ConfigSchema& schema = on.plugin->loaded().schema;
  add_numerics(numerics, FRT_FINGERPRINT_BUILD "backend", schema.plugin_options,
               on.plugin->options());
  add_numerics(numerics, FRT_FINGERPRINT_BUILD "device", schema.options, on.options);
  core::bind_capsules(state, [=, &opened, log = &services_.log(), capsule = *capsule] {
    std::vector<Fingerprint::Field> fields;
    backend->add_to(fields, "backend");
    plugin->add_to(fields, "plugin");
    fields.insert(fields.end(), numerics.begin(), numerics.end());
    bool versioned = false;
    for (Fingerprint::Field& field : model_fingerprint(capsule, object, opened, what)) {
      versioned |= field.name == FRT_FINGERPRINT_STATE;
      fields.push_back({"model." + field.name, std::move(field.value)});
    }
    if (!versioned) {
      log->write("core", FRT_LOG_WARNING,
                 what + ": its fingerprint has no field `" FRT_FINGERPRINT_STATE
                        "`: when its regions begin to mean something else, old capsules will be "
                        "taken for good ones; ask its author for a version of the state");
    }
    return fields;
  });
  return state;
}

}  // namespace frt::core
