// SPDX-License-Identifier: Apache-2.0
// Options: schema in, user's values in, checked values out.
//
// Defaults go through the very conversion that user values go through, so a schema whose default
// its own type refuses is found when the schema is read and not when somebody relies on it.
#include <frt/contracts.hpp>
#include <frt/core/config.hpp>
#include <frt/text.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>

namespace frt::core {

namespace {

using Kind = RawValue::Kind;

const char* raw_kind_name(const RawValue& value) {
  switch (value.kind) {
    case Kind::kBool:
      return "true or false";
    case Kind::kInteger:
      return "a whole number";
    case Kind::kFloat:
      return "a fractional number";
    case Kind::kString:
      return "text";
    case Kind::kUntyped:
      return "text";
    case Kind::kOther:
      return value.text.c_str();
  }
  return "?";
}

const char* expected_name(frt_config_type type) {
  switch (type) {
    case FRT_CONFIG_BOOL:
      return "true or false";
    case FRT_CONFIG_INT:
      return "a whole number";
    case FRT_CONFIG_SIZE:
      return "a size such as 4096, \"32k\" or \"1.5M\"";
    case FRT_CONFIG_FLOAT:
      return "a number";
    case FRT_CONFIG_PATH:
      return "a path (text)";
    default:
      return "text";
  }
}

std::optional<int64_t> parse_integer(std::string_view text) {
  int64_t value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<double> parse_number(std::string_view text) {
  double value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

struct Problem {
  std::string message;  // completes "`key` in [table]: ..."
  std::string hint;
};

// Reads a number of the option's type into `out`; false if the value is of another kind.
bool read_number(const OptionSpec& spec, const RawValue& raw, Config::Value& out) {
  const bool text = raw.kind == Kind::kUntyped;
  if (spec.type == FRT_CONFIG_FLOAT) {
    const std::optional<double> number = text                       ? parse_number(raw.text)
                                         : raw.kind == Kind::kFloat ? std::optional(raw.number)
                                         : raw.kind == Kind::kInteger
                                             ? std::optional(static_cast<double>(raw.integer))
                                             : std::nullopt;
    if (!number) return false;
    out.number = *number;
    return true;
  }
  std::optional<int64_t> integer;
  if (raw.kind == Kind::kInteger) {
    integer = raw.integer;
  } else if (spec.type == FRT_CONFIG_SIZE && (text || raw.kind == Kind::kString)) {
    integer = parse_size(raw.text);
  } else if (text) {
    integer = parse_integer(raw.text);
  }
  if (!integer || (spec.type == FRT_CONFIG_SIZE && *integer < 0)) return false;
  out.integer = *integer;
  return true;
}

std::optional<Problem> check_range(const OptionSpec& spec, const Config::Value& value) {
  if (spec.type == FRT_CONFIG_FLOAT && !std::isfinite(value.number)) {
    return Problem{"the number must be finite", {}};
  }
  if (spec.minimum == 0 && spec.maximum == 0) return std::nullopt;
  const double number =
      spec.type == FRT_CONFIG_FLOAT ? value.number : static_cast<double>(value.integer);
  if (number >= spec.minimum && number <= spec.maximum) return std::nullopt;
  return Problem{
      fmt::format("{:.15g} is outside {:.15g} to {:.15g}", number, spec.minimum, spec.maximum), {}};
}

std::optional<Problem> read_path(const OptionSpec& spec, const std::string& text, bool from_person,
                                 const std::filesystem::path& folder, const ResolveContext& context,
                                 std::string& out) {
  if (text.find('\0') != std::string::npos) return Problem{"a path cannot contain a zero byte", {}};
  if (!spec.verbatim_prefix.empty() && text.starts_with(spec.verbatim_prefix)) {
    out = text;
    return std::nullopt;
  }
  std::string problem;
  const auto expanded = expand_variables(text, context.environment, problem);
  if (!expanded) return Problem{problem, {}};
  if (expanded->empty()) {
    if (from_person && !spec.default_text) return Problem{"the path is empty", {}};
    out.clear();
    return std::nullopt;
  }
  const std::filesystem::path path(*expanded);
  out = (path.is_absolute() ? path : folder / path).lexically_normal().string();
  return std::nullopt;
}

// Checks one value against its option.
std::optional<Problem> convert(const OptionSpec& spec, const RawValue& raw, Origin origin,
                               const ResolveContext& context, Config::Value& out) {
  out.key = spec.key;
  out.type = spec.type;
  out.doc = spec.doc;
  const Problem wrong_type{
      fmt::format("expected {}, found {}", expected_name(spec.type),
                  raw.kind == Kind::kUntyped ? "'" + raw.text + "'" : raw_kind_name(raw)),
      {}};
  switch (spec.type) {
    case FRT_CONFIG_BOOL:
      if (raw.kind == Kind::kBool) {
        out.integer = raw.integer;
      } else if (raw.kind == Kind::kUntyped && (raw.text == "true" || raw.text == "1")) {
        out.integer = 1;
      } else if (raw.kind == Kind::kUntyped && (raw.text == "false" || raw.text == "0")) {
        out.integer = 0;
      } else {
        return wrong_type;
      }
      return std::nullopt;
    case FRT_CONFIG_INT:
    case FRT_CONFIG_SIZE:
    case FRT_CONFIG_FLOAT:
      if (!read_number(spec, raw, out)) {
        if (spec.type == FRT_CONFIG_SIZE &&
            (raw.kind == Kind::kString || raw.kind == Kind::kInteger)) {
          return Problem{
              fmt::format("'{}' is not {}",
                          raw.kind == Kind::kString ? raw.text : std::to_string(raw.integer),
                          expected_name(spec.type)),
              {}};
        }
        return wrong_type;
      }
      return check_range(spec, out);
    default:
      break;
  }
  if (raw.kind != Kind::kString && raw.kind != Kind::kUntyped) return wrong_type;
  if (spec.type == FRT_CONFIG_PATH) {
    const bool by_manifest = origin == Origin::kManifest || origin == Origin::kDefault;
    return read_path(spec, raw.text, origin != Origin::kDefault,
                     by_manifest ? context.base_folder : context.flag_folder, context, out.text);
  }
  if (raw.text.find('\0') != std::string::npos) {
    return Problem{"text cannot contain a zero byte", {}};
  }
  out.text = raw.text;
  const auto one_of = [&](const std::vector<std::string>& names,
                          const std::string& what) -> std::optional<Problem> {
    if (std::find(names.begin(), names.end(), raw.text) != names.end()) return std::nullopt;
    return Problem{names.empty()
                       ? fmt::format("'{}' names {}, but there is none", raw.text, what)
                       : fmt::format("'{}' is not {}: {}", raw.text, what, fmt::join(names, ", ")),
                   did_you_mean(raw.text, names)};
  };
  if (spec.type == FRT_CONFIG_ENUM) return one_of(spec.choices, "one of");
  // An empty reference with an empty default means: none.
  if (raw.text.empty() && spec.default_text && spec.default_text->empty()) return std::nullopt;
  if (spec.reference == "device")
    return one_of(context.devices, "a [device.NAME] of this manifest");
  if (spec.reference == "model") return one_of(context.models, "a [model.NAME] of this manifest");
  if (spec.reference == "environment")
    return one_of(context.environments, "an [environment.NAME] of this manifest");
  return std::nullopt;
}

RawValue default_value(const OptionSpec& spec) {
  RawValue raw;
  raw.kind = Kind::kUntyped;
  raw.text = spec.default_text.value_or("");
  return raw;
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  for (;;) {
    const std::size_t end = text.find(separator);
    parts.emplace_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

std::vector<OptionSpec> read_options(const frt_config_option* options, uint64_t count,
                                     const std::string& plugin_id, const char* list) {
  constexpr int kMostNumerics = 8;
  int numerics = 0;
  std::vector<OptionSpec> specs;
  const std::string of = "plugin " + plugin_id + ": its option schema (" + list + ") ";
  const auto refuse = [&](const std::string& what) {
    return Error(FRT_ERR_FORMAT, of + "is broken: " + what + "; ask its author for a fix");
  };
  const auto unknown = [&](const std::string& what) {
    return Error(FRT_ERR_UNSUPPORTED, of + "has what this version does not know: " + what +
                                          "; a newer version of what loads the plugin may");
  };
  if (count > 0 && !options) throw refuse("the list is null");
  if (count > 4096) throw refuse(std::to_string(count) + " options");
  ResolveContext context;
  context.base_folder = context.flag_folder = "/";
  context.environment = process_environment;
  for (uint64_t i = 0; i < count; ++i) {
    const frt_config_option& option = options[i];
    if (!option.key || !*option.key) throw refuse("option " + std::to_string(i) + " has no key");
    const auto text = [&](const char* member, const char* name) {
      const std::string which = " of option " + std::to_string(i);
      return std::string(checked_text(member, "plugin " + plugin_id + ": the " + name + which));
    };
    OptionSpec spec;
    spec.key = text(option.key, "key");
    spec.type = option.type;
    if (option.type > FRT_CONFIG_PATH) {
      throw unknown("the type " + std::to_string(option.type) + " of '" + spec.key + "'");
    }
    if (option.default_text) spec.default_text = text(option.default_text, "default");
    if (option.type == FRT_CONFIG_ENUM) {
      if (!option.choices || !*option.choices) throw refuse("'" + spec.key + "' has no choices");
      spec.choices = split(text(option.choices, "choices"), '|');
    }
    if ((option.flags & ~FRT_OPTION_NUMERICS) != 0) {
      throw unknown("the flags " + std::to_string(option.flags) + " of '" + spec.key + "'");
    }
    spec.numerics = (option.flags & FRT_OPTION_NUMERICS) != 0;
    if (spec.numerics && (spec.type == FRT_CONFIG_STRING || spec.type == FRT_CONFIG_PATH)) {
      throw refuse("'" + spec.key + "' is FRT_OPTION_NUMERICS, which text and paths cannot be");
    }
    if (spec.numerics && ++numerics > kMostNumerics) {
      throw refuse("more than 8 options are FRT_OPTION_NUMERICS");
    }
    spec.minimum = option.minimum;
    spec.maximum = option.maximum;
    if (option.doc) spec.doc = text(option.doc, "doc");
    for (const OptionSpec& other : specs) {
      if (other.key == spec.key) throw refuse("'" + spec.key + "' is there twice");
    }
    Config::Value value;
    if (spec.default_text && spec.type != FRT_CONFIG_PATH) {
      const auto problem = convert(spec, default_value(spec), Origin::kDefault, context, value);
      if (problem) throw refuse("the default of '" + spec.key + "': " + problem->message);
    }
    specs.push_back(std::move(spec));
  }
  return specs;
}

}  // namespace

ConfigSchema read_schema(const frt_config_schema_v1& given, const std::string& plugin_id) {
  const auto table = read_table<frt_config_schema_v1>(&given, "plugin " + plugin_id);
  ConfigSchema schema;
  schema.plugin_options =
      read_options(table.plugin_options, table.plugin_option_count, plugin_id, "plugin options");
  schema.options = read_options(table.options, table.option_count, plugin_id, "options");
  return schema;
}

std::vector<std::string> option_keys(const std::vector<OptionSpec>& options) {
  std::vector<std::string> keys;
  for (const OptionSpec& option : options) keys.push_back(option.key);
  return keys;
}

const char* config_type_name(frt_config_type type) noexcept {
  static constexpr const char* kNames[] = {"true/false", "whole number", "size", "number",
                                           "text",       "choice",       "path"};
  return type < std::size(kNames) ? kNames[type] : "?";
}

std::optional<std::string> process_environment(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value ? std::optional<std::string>(value) : std::nullopt;
}

Config::Config(std::vector<Value> values) {
  auto data = std::make_shared<Data>();
  data->values = std::move(values);
  for (const Value& value : data->values) {
    frt_config_value c{};
    c.key = value.key.c_str();
    c.type = value.type;
    c.is_default = value.from.origin == Origin::kDefault ? 1 : 0;
    c.integer = value.integer;
    c.number = value.number;
    c.text = value.text.c_str();
    data->c_values.push_back(c);
  }
  data->view.struct_size = sizeof(frt_config);
  data->view.count = static_cast<uint32_t>(data->c_values.size());
  data->view.values = data->c_values.data();
  data_ = std::move(data);
}

const Config::Value* Config::find(std::string_view key) const noexcept {
  for (const Value& value : data_->values) {
    if (value.key == key) return &value;
  }
  return nullptr;
}

const std::string& Config::text(std::string_view key) const {
  if (const Value* value = find(key)) return value->text;
  throw Error(FRT_ERR_INTERNAL, "no option '" + std::string(key) + "' in this config");
}

int64_t Config::integer(std::string_view key) const {
  if (const Value* value = find(key)) return value->integer;
  throw Error(FRT_ERR_INTERNAL, "no option '" + std::string(key) + "' in this config");
}

Config resolve_config(const std::vector<OptionSpec>& options, const std::vector<RawSetting>& given,
                      const ResolveContext& context, Diagnostics& diagnostics) {
  const std::vector<std::string> keys = option_keys(options);
  const auto report = [&](const RawSetting& setting, const SourcePosition& position,
                          const std::string& what) -> Diagnostic& {
    const std::string source =
        setting.from.origin == Origin::kManifest ? "" : setting.from.text + ": ";
    return diagnostics.error(FRT_ERR_INVALID_ARGUMENT, position, source + what);
  };
  for (const RawSetting& setting : given) {
    if (std::find(keys.begin(), keys.end(), setting.key) != keys.end()) continue;
    Diagnostic& d = report(setting, setting.key_position,
                           "unknown key `" + setting.key + "` in [" + context.table + "]");
    d.hint = did_you_mean(setting.key, keys);
    d.notes.push_back(keys.empty() ? "[" + context.table + "] takes no keys"
                                   : fmt::format("known keys: {}", fmt::join(keys, ", ")));
    if (!context.elsewhere.empty()) d.notes.push_back(context.elsewhere);
  }
  std::vector<Config::Value> values;
  for (const OptionSpec& spec : options) {
    // The later a setting was added, the higher its precedence.
    const auto found = std::find_if(given.rbegin(), given.rend(), [&](const RawSetting& setting) {
      return setting.key == spec.key;
    });
    Config::Value value;
    if (found == given.rend()) {
      if (!spec.default_text) {
        Diagnostic& d =
            diagnostics.error(FRT_ERR_INVALID_ARGUMENT, context.table_position,
                              "missing key `" + spec.key + "` in [" + context.table + "]");
        if (!spec.doc.empty()) d.notes.push_back(spec.key + ": " + spec.doc);
        continue;
      }
      if (const auto problem =
              convert(spec, default_value(spec), Origin::kDefault, context, value)) {
        diagnostics.error(
            FRT_ERR_INVALID_ARGUMENT, context.table_position,
            "the default of `" + spec.key + "` in [" + context.table + "]: " + problem->message);
        continue;
      }
    } else {
      value.from = found->from;
      if (const auto problem = convert(spec, found->value, found->from.origin, context, value)) {
        Diagnostic& d =
            report(*found, found->value_position,
                   "`" + spec.key + "` in [" + context.table + "]: " + problem->message);
        d.hint = problem->hint;
        if (!spec.doc.empty()) d.notes.push_back(spec.key + ": " + spec.doc);
        continue;
      }
    }
    values.push_back(std::move(value));
  }
  return Config(std::move(values));
}

std::optional<int64_t> parse_size(std::string_view text) noexcept {
  if (text.empty()) return std::nullopt;
  int shift = 0;
  switch (text.back()) {
    case 'k':
    case 'K':
      shift = 10;
      break;
    case 'M':
      shift = 20;
      break;
    case 'G':
      shift = 30;
      break;
    case 'T':
      shift = 40;
      break;
    default:
      break;
  }
  if (shift == 0) {
    const auto value = parse_integer(text);
    return value && *value >= 0 ? value : std::nullopt;
  }
  text.remove_suffix(1);
  if (text.empty() || text.find_first_not_of("0123456789.") != std::string_view::npos) {
    return std::nullopt;
  }
  const auto value = parse_number(text);
  if (!value) return std::nullopt;
  const double scaled = std::ldexp(*value, shift);
  // Beyond 2^53 a double no longer holds every whole number; no real size comes near.
  if (scaled > 9007199254740992.0 || scaled != std::floor(scaled)) return std::nullopt;
  return static_cast<int64_t>(scaled);
}

std::optional<std::string> expand_variables(std::string_view text, const Environment& environment,
                                            std::string& problem) {
  std::string expanded;
  for (;;) {
    const std::size_t start = text.find("${");
    expanded += text.substr(0, start);
    if (start == std::string_view::npos) return expanded;
    const std::size_t end = text.find('}', start);
    if (end == std::string_view::npos) {
      problem = "`${` without `}`";
      return std::nullopt;
    }
    const std::string name(text.substr(start + 2, end - start - 2));
    if (name.empty()) {
      problem = "`${}` names no variable";
      return std::nullopt;
    }
    const auto value = environment ? environment(name) : std::nullopt;
    if (!value) {
      problem = "environment variable `" + name + "` is not set; set it, or write the path out";
      return std::nullopt;
    }
    expanded += *value;
    text.remove_prefix(end + 1);
  }
}

}  // namespace frt::core
