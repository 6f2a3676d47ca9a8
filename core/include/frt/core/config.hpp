// SPDX-License-Identifier: Apache-2.0
// config.hpp - options: schemas as C++ values, what a user gave for them, and the checked result
// that is handed over as an frt_config (frt/config.h).
//
// A value comes from one of four places; the later one wins: the schema's default, the manifest,
// an environment variable, a flag. Each result keeps where it came from.
//
// Conversions: BOOL true/false; INT whole numbers; SIZE whole numbers or "32k", "1.5M", "2G", "1T"
// (powers of 1024); FLOAT any number; STRING and ENUM text; PATH text with ${NAME} expanded from
// the environment and, unless empty, made absolute.
#pragma once

#include <frt/config.h>
#include <frt/core/diagnostic.hpp>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace frt::core {

// ---- schemas --------------------------------------------------------------------------------

struct OptionSpec {
  std::string key;
  frt_config_type type = FRT_CONFIG_STRING;
  std::optional<std::string> default_text;  // as the user would write it; absent: required
  std::vector<std::string> choices;         // ENUM
  double minimum = 0, maximum = 0;          // both 0: no limit
  std::string doc;
  // "device", "model" or "environment": the text must be the name of such a table of the manifest.
  std::string reference = {};
  // PATH: a text that starts so is no path and stays as it is ("synthetic:").
  std::string verbatim_prefix = {};
  bool numerics = false;  // FRT_OPTION_NUMERICS
};

// What one plugin accepts.
struct ConfigSchema {
  std::vector<OptionSpec> plugin_options;  // for `open`: [plugin-options.<id>]
  std::vector<OptionSpec> options;         // backend: per device; others: per model, environment
};

// Copies a plugin's table. Throws FRT_ERR_FORMAT naming plugin and option if the schema is broken
// (a null or repeated key, an unknown type, a default that its own type refuses); FRT_ERR_ABI if
// the table cannot be read.  [setup]
ConfigSchema read_schema(const frt_config_schema_v1& table, const std::string& plugin_id);

// The keys of `options`, in order.  [any]
std::vector<std::string> option_keys(const std::vector<OptionSpec>& options);

// "text", "whole number", "size", ...  [any]
const char* config_type_name(frt_config_type type) noexcept;

// ---- what the user gave ---------------------------------------------------------------------

enum class Origin { kDefault, kManifest, kEnvironment, kFlag };

// Where a value came from. `text` is for people: "default", "demo.toml:12:3",
// "environment FRT_MODEL_TALK_OPTIONS_SLOTS", "--set model.talk.options.slots=2".
struct Provenance {
  Origin origin = Origin::kDefault;
  std::string text = "default";
};

// One value before it is checked. Text from the environment and from flags has no type of its
// own (kUntyped) and is read as the option's type wants it.
struct RawValue {
  enum class Kind { kBool, kInteger, kFloat, kString, kUntyped, kOther };
  Kind kind = Kind::kOther;
  int64_t integer = 0;  // kBool: 0 or 1; kInteger
  double number = 0;    // kFloat
  std::string text;     // kString, kUntyped; kOther: what it is instead, e.g. "a table"
};

struct RawSetting {
  std::string key;
  RawValue value;
  Provenance from;
  SourcePosition key_position;  // in the manifest; unknown for environment and flags
  SourcePosition value_position;
};

// Looks up an environment variable.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;

// The process's environment.  [any]
std::optional<std::string> process_environment(const std::string& name);

// ---- the result -----------------------------------------------------------------------------

// Checked values, complete with defaults, in schema order. Immutable; copies share.
class Config {
 public:
  struct Value {
    std::string key;
    frt_config_type type = FRT_CONFIG_STRING;
    int64_t integer = 0;
    double number = 0;
    std::string text;
    Provenance from;
    std::string doc;
  };

  Config() : Config(std::vector<Value>()) {}
  explicit Config(std::vector<Value> values);

  const std::vector<Value>& values() const noexcept { return data_->values; }
  const Value* find(std::string_view key) const noexcept;
  // The text of a STRING, ENUM or PATH value; the number of a BOOL, INT or SIZE value. Throws
  // FRT_ERR_INTERNAL for a key that the schema does not have.
  const std::string& text(std::string_view key) const;
  int64_t integer(std::string_view key) const;

  // The C view; lives as long as any copy of this Config.
  const frt_config* c() const noexcept { return &data_->view; }

 private:
  struct Data {
    std::vector<Value> values;
    std::vector<frt_config_value> c_values;
    frt_config view{};
  };
  std::shared_ptr<const Data> data_;
};

// What resolving needs to know beside schema and settings.
struct ResolveContext {
  std::string table;                  // for messages, e.g. "model.talk.options"
  SourcePosition table_position;      // where a missing key is reported
  std::filesystem::path base_folder;  // relative paths of the manifest start here
  std::filesystem::path flag_folder;  // relative paths of environment and flags start here
  Environment environment;
  std::vector<std::string> devices, models, environments;  // what references may name
  std::string elsewhere;  // note on an unknown key: where else it may belong
};

// Checks `given` against `options` and fills in defaults. Findings go to `diagnostics`; a value
// with a finding is left out of the result.  [setup]
Config resolve_config(const std::vector<OptionSpec>& options, const std::vector<RawSetting>& given,
                      const ResolveContext& context, Diagnostics& diagnostics);

// ---- small readers --------------------------------------------------------------------------

// "4096", "32k", "1.5M", "2G", "1T" as a number; nothing if malformed, negative, not whole or too
// large.  [any]
std::optional<int64_t> parse_size(std::string_view text) noexcept;

// Replaces ${NAME} by its value. On failure nothing is returned and `problem` says why.  [any]
std::optional<std::string> expand_variables(std::string_view text, const Environment& environment,
                                            std::string& problem);

}  // namespace frt::core
