// SPDX-License-Identifier: Apache-2.0
// frt/plugin.hpp - writing a plugin in C++: one class, one macro, and typed views of what the
// host hands over.
//
//     class Acme {
//      public:
//       Acme(const frt::Host& host, const frt::ConfigView& config);     // may throw frt::Error
//       const void* extension(std::string_view id) noexcept;            // tables of an open plugin
//       static const void* static_extension(std::string_view id) noexcept;  // before open
//     };
//     FRT_PLUGIN(Acme, backend, "acme.fast", "0.3.1", R"(
//     targets = ["sm_90a"]
//     summary = "one line"
//     )");
//
// FRT_PLUGIN emits the exported descriptor and the card (frt/plugin.h), once per plugin, at global
// scope. Nothing the class throws leaves the plugin. Tables are plain structs of C functions; wrap
// each body in frt::guard (frt/error.hpp) and reach the object with frt::object.
//
// Header-only: a plugin imports no symbol from the host.
#pragma once

#include <frt/base.h>
#include <frt/config.h>
#include <frt/log.h>
#include <frt/plugin.h>
#include <frt/progress.h>
#include <frt/error.hpp>
#include <frt/table.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

// What a host of the oldest version promises (frt/table.hpp).
FRT_CONTRACT(frt_host, "frt_host", extension, FRT_REQUIRED(frt_host, extension));
FRT_CONTRACT(frt_log_v1, FRT_EXT_LOG, write, FRT_REQUIRED(frt_log_v1, write));
FRT_CONTRACT(frt_progress_v1, FRT_EXT_PROGRESS, report, FRT_REQUIRED(frt_progress_v1, report));
FRT_CONTRACT(frt_config, "frt_config", values);

namespace frt {

// ---- handles ------------------------------------------------------------------------------

// The C++ object behind an opaque handle, and back. The caller knows the type: it made the
// handle.  [any]
template <class Object, class Handle>
Object* object(Handle* handle) noexcept {
  return reinterpret_cast<Object*>(handle);
}
template <class Handle, class Object>
Handle handle(Object* object) noexcept {
  return reinterpret_cast<Handle>(object);
}

// ---- the host -----------------------------------------------------------------------------

// What the host gives at `open`. A copyable view; valid until the plugin is closed.
class Host {
 public:
  // Throws FRT_ERR_ABI for a table that cannot be read.  [setup]
  explicit Host(const frt_host* host)
      : host_(host),
        table_(read_table<frt_host>(host, "the host")),
        log_(read<frt_log_v1>(FRT_EXT_LOG)),
        progress_(read<frt_progress_v1>(FRT_EXT_PROGRESS)) {}

  // The host's table `id`, or null. It is read in place: ask FRT_HAS for what came later than the
  // oldest version.  [any]
  template <class Table>
  const Table* find(const char* id) const noexcept {
    return static_cast<const Table*>(table_.extension(table_.self, id));
  }

  // The host's table `id`; FRT_ERR_UNSUPPORTED if this host has none.  [any]
  template <class Table>
  const Table* require(const char* id) const {
    const Table* table = find<Table>(id);
    if (!table) {
      throw Error(FRT_ERR_UNSUPPORTED,
                  std::string("the host offers no ") + id + "; this plugin needs a newer host");
    }
    return table;
  }

  // Writes to the host's log, if it has one. `source` names the part of the plugin that speaks;
  // the host adds the plugin's id.  [any]
  void log(frt_log_level level, const std::string& text, const char* source = "") const noexcept {
    if (log_.write) log_.write(log_.self, source, level, text.c_str());
  }
  // A copy of its frt.log/1; all zero if it has none.  [any]
  const frt_log_v1& log_table() const noexcept { return log_; }

  // Reports progress; throws FRT_ERR_CANCELLED when the host asks the work to stop.  [any]
  void progress(const char* phase, uint32_t unit, uint64_t done, uint64_t total) const {
    if (!progress_.report) return;
    const frt_status status = progress_.report(progress_.self, phase, unit, done, total);
    if (status != FRT_OK) throw Error(status, std::string(phase) + ": stopped on request");
  }

  const frt_host* raw() const noexcept { return host_; }

 private:
  template <HasContract Table>
  Table read(const char* id) const {
    const void* given = find<void>(id);
    return given ? read_table<Table>(given, "the host") : Table{};
  }

  const frt_host* host_;
  frt_host table_;
  frt_log_v1 log_;
  frt_progress_v1 progress_;
};

// ---- options ------------------------------------------------------------------------------

// The options the user chose, by key. The host has checked them against the schema, so a getter
// throws (FRT_ERR_INVALID_ARGUMENT) only if the plugin asks for a key or a type that its schema
// does not have. Valid while the frt_config is: the call that got it.
class ConfigView {
 public:
  // NULL: no options. Throws FRT_ERR_ABI for a config that cannot be read.  [setup]
  explicit ConfigView(const frt_config* config) : config_(read(config)) {}

  bool has(std::string_view key) const noexcept { return find(key) != nullptr; }
  // True if the value is the schema's default: the user said nothing.
  bool is_default(std::string_view key) const { return at(key).is_default != 0; }

  bool get_bool(std::string_view key) const { return typed(key, FRT_CONFIG_BOOL).integer != 0; }
  int64_t get_int(std::string_view key) const { return typed(key, FRT_CONFIG_INT).integer; }
  // A size or count that the user may have written as "32k"; never negative.
  uint64_t get_size(std::string_view key) const {
    return static_cast<uint64_t>(typed(key, FRT_CONFIG_SIZE).integer);
  }
  double get_float(std::string_view key) const { return typed(key, FRT_CONFIG_FLOAT).number; }
  // STRING, ENUM and PATH values.
  std::string get_string(std::string_view key) const {
    const frt_config_value& value = at(key);
    if (value.type < FRT_CONFIG_STRING || value.type > FRT_CONFIG_PATH || !value.text) {
      throw wrong_type(key);
    }
    return value.text;
  }

  const frt_config* raw() const noexcept { return &config_; }

 private:
  static frt_config read(const frt_config* given) {
    if (!given) return {sizeof(frt_config), 0, nullptr};
    const auto config = read_table<frt_config>(given, "the host");
    bool whole = config.count == 0 || config.values;
    for (uint32_t i = 0; whole && i < config.count; ++i) whole = config.values[i].key != nullptr;
    if (whole) return config;
    throw Error(FRT_ERR_ABI, "the host: its frt_config has " + std::to_string(config.count) +
                                 " values, of which one or all are NULL; rebuild the host");
  }
  const frt_config_value* find(std::string_view key) const noexcept {
    for (uint32_t i = 0; i < config_.count; ++i) {
      if (key == config_.values[i].key) return &config_.values[i];
    }
    return nullptr;
  }
  const frt_config_value& at(std::string_view key) const {
    if (const frt_config_value* value = find(key)) return *value;
    throw Error(FRT_ERR_INVALID_ARGUMENT, "option '" + std::string(key) +
                                              "' is not in the config the host handed over; "
                                              "the plugin's schema and its code disagree");
  }
  const frt_config_value& typed(std::string_view key, frt_config_type type) const {
    const frt_config_value& value = at(key);
    if (value.type != type) throw wrong_type(key);
    return value;
  }
  static Error wrong_type(std::string_view key) {
    return Error(FRT_ERR_INVALID_ARGUMENT, "option '" + std::string(key) +
                                               "' has another type than the code asks for; "
                                               "the plugin's schema and its code disagree");
  }

  frt_config config_;
};

// Schema tables from arrays of frt_config_option with static storage:
//     static constexpr frt_config_option kOptions[] = {...};
//     static constexpr frt_config_schema_v1 kSchema = frt::config_schema(frt::kNoOptions,
//     kOptions);
struct NoOptions {};
inline constexpr NoOptions kNoOptions{};

template <std::size_t M>
constexpr frt_config_schema_v1 config_schema(NoOptions, const frt_config_option (&options)[M]) {
  return {sizeof(frt_config_schema_v1), 0, nullptr, 0, options, M};
}
template <std::size_t N>
constexpr frt_config_schema_v1 config_schema(const frt_config_option (&plugin_options)[N],
                                             NoOptions) {
  return {sizeof(frt_config_schema_v1), 0, plugin_options, N, nullptr, 0};
}
template <std::size_t N, std::size_t M>
constexpr frt_config_schema_v1 config_schema(const frt_config_option (&plugin_options)[N],
                                             const frt_config_option (&options)[M]) {
  return {sizeof(frt_config_schema_v1), 0, plugin_options, N, options, M};
}

// ---- the descriptor's functions -------------------------------------------------------------

namespace detail {

// Writes the full text of truncated errors to the host's log.
class LogErrorSink {
 public:
  explicit LogErrorSink(const Host& host)
      : log_(host.log_table()), sink_(log_.write ? &write : nullptr, this) {}

 private:
  static void write(void* self, const char* text) {
    const frt_log_v1& log = static_cast<LogErrorSink*>(self)->log_;
    log.write(log.self, "", FRT_LOG_ERROR, text);
  }

  const frt_log_v1 log_;
  ErrorSink sink_;
};

// The object behind frt_plugin. Its sink is there before the plugin is made and after it is gone.
template <class Plugin>
struct OpenedPlugin : private LogErrorSink, public Plugin {
  OpenedPlugin(const Host& host, const ConfigView& config)
      : LogErrorSink(host), Plugin(host, config) {}
};

template <class Plugin>
struct PluginTrampolines {
  static frt_status open(const frt_host* host, const frt_config* config, frt_plugin* plugin,
                         frt_error* error) {
    return guard(error, [&] {
      const Host given(host);
      if (!plugin) throw Error(FRT_ERR_INVALID_ARGUMENT, "open: plugin must be given");
      // When the plugin's constructor throws, its own sink is gone already.
      const LogErrorSink meanwhile(given);
      return guard(error, [&] {
        Plugin* opened = new OpenedPlugin<Plugin>(given, ConfigView(config));
        *plugin = handle<frt_plugin>(opened);
      });
    });
  }
  static void close(frt_plugin plugin) {
    delete static_cast<OpenedPlugin<Plugin>*>(object<Plugin>(plugin));
  }
  static const void* extension(frt_plugin plugin, const char* id) {
    if (!id) return nullptr;
    if (const void* table = Plugin::static_extension(id)) return table;
    return plugin ? object<Plugin>(plugin)->extension(id) : nullptr;
  }
};

}  // namespace detail
}  // namespace frt

#define FRT_PLUGIN_KIND_backend FRT_PLUGIN_BACKEND
#define FRT_PLUGIN_KIND_model FRT_PLUGIN_MODEL
#define FRT_PLUGIN_KIND_environment FRT_PLUGIN_ENVIRONMENT
#define FRT_PLUGIN_TEXT_(text) #text
#define FRT_PLUGIN_TEXT(text) FRT_PLUGIN_TEXT_(text)

// For people, in `frt-host plugins show`; a build may define a revision.
#ifdef FRT_BUILD_REVISION
#define FRT_BUILD_TEXT "compiler " __VERSION__ ", revision " FRT_BUILD_REVISION
#else
#define FRT_BUILD_TEXT "compiler " __VERSION__
#endif

// Emits card and descriptor. `kind` is the word backend, model or environment; `id` and `version`
// are string literals; `card_toml` holds further lines of the card (targets, requires, ...), or "".
// GCC wants the visibility on the first declaration and `used` on the definition.
// clang-format off
#define FRT_PLUGIN(Class, kind, id, version, card_toml)                                           \
  FRT_PLUGIN_CARD("id = \"" id "\"\nkind = \"" #kind "\"\nabi = \""                               \
                  FRT_PLUGIN_TEXT(FRT_ABI_MAJOR) "." FRT_PLUGIN_TEXT(FRT_ABI_MINOR)               \
                  "\"\nversion = \"" version "\"\n" card_toml);                                    \
  extern "C" {                                                                                    \
  __attribute__((visibility("default"))) extern const frt_plugin_desc frt_plugin_v1;              \
  __attribute__((used)) const frt_plugin_desc frt_plugin_v1 = {                                   \
      sizeof(frt_plugin_desc),                                                                    \
      FRT_ABI_MAJOR,                                                                              \
      FRT_ABI_MINOR,                                                                              \
      FRT_PLUGIN_KIND_##kind,                                                                     \
      FRT_BUILD_SANITIZER,                                                                        \
      id,                                                                                         \
      version,                                                                                    \
      FRT_BUILD_TEXT,                                                                             \
      &frt::detail::PluginTrampolines<Class>::open,                                               \
      &frt::detail::PluginTrampolines<Class>::close,                                              \
      &frt::detail::PluginTrampolines<Class>::extension};                                         \
  }                                                                                               \
  static_assert(true, "ends the macro")
// clang-format on
