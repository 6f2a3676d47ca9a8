// SPDX-License-Identifier: Apache-2.0
// The name of a variable follows from the table and the key: FRT_ + upper case, everything else
// than letters and digits becomes '_'. So no variable has to be taken apart: for each key that
// exists its name is made and looked up.
#include "manifest/overrides.hpp"

#include <algorithm>
#include <optional>
#include <string_view>

extern "C" char** environ;

namespace frt::core {

namespace {

std::string variable_name(const std::string& table, const std::string& key) {
  std::string name = "FRT_" + table + "_" + key;
  for (char& c : name) {
    if (c >= 'a' && c <= 'z') {
      c = static_cast<char>(c - 'a' + 'A');
    } else if (!(c >= 'A' && c <= 'Z') && !(c >= '0' && c <= '9')) {
      c = '_';
    }
  }
  return name;
}

// Splits a.b."c.d".e at its dots; nothing if quotes or segments are broken.
std::optional<std::vector<std::string>> split_path(std::string_view path) {
  std::vector<std::string> segments(1);
  for (std::size_t i = 0; i < path.size(); ++i) {
    if (path[i] == '.') {
      segments.emplace_back();
    } else if (path[i] == '"') {
      const std::size_t end = path.find('"', i + 1);
      if (end == std::string_view::npos) return std::nullopt;
      segments.back() += path.substr(i + 1, end - i - 1);
      i = end;
    } else {
      segments.back() += path[i];
    }
  }
  for (const std::string& segment : segments) {
    if (segment.empty()) return std::nullopt;
  }
  return segments;
}

}  // namespace

std::vector<std::string> process_environment_names() {
  std::vector<std::string> names;
  for (char** entry = environ; entry && *entry; ++entry) {
    const std::string_view text(*entry);
    names.emplace_back(text.substr(0, text.find('=')));
  }
  return names;
}

Overrides::Overrides(const ManifestRequest& request, Diagnostics& diagnostics) : request_(request) {
  for (const std::string& text : request.sets) {
    const std::size_t equal = text.find('=');
    const auto segments =
        equal == std::string::npos ? std::nullopt : split_path(text.substr(0, equal));
    if (!segments || segments->size() < 3) {
      diagnostics
          .error(FRT_ERR_INVALID_ARGUMENT, {}, "--set " + text + ": expected table.key=value")
          .notes.push_back("for example --set model.NAME.options.KEY=VALUE");
      continue;
    }
    Flag flag;
    flag.text = text;
    for (std::size_t i = 0; i + 1 < segments->size(); ++i) {
      flag.table += (i ? "." : "") + (*segments)[i];
    }
    flag.key = segments->back();
    flag.value = text.substr(equal + 1);
    flags_.push_back(std::move(flag));
  }
}

void Overrides::apply(const std::string& table, const std::vector<std::string>& keys,
                      std::vector<RawSetting>& settings) {
  tables_.push_back(table);
  const auto add = [&](const std::string& key, const std::string& value, Origin origin,
                       const std::string& source) {
    RawSetting setting;
    setting.key = key;
    setting.value.kind = RawValue::Kind::kUntyped;
    setting.value.text = value;
    setting.from = {origin, source};
    settings.push_back(std::move(setting));
  };
  for (const std::string& key : keys) {
    const std::string name = variable_name(table, key);
    variables_.insert(name);
    const auto value = request_.environment ? request_.environment(name) : std::nullopt;
    if (value) add(key, *value, Origin::kEnvironment, "environment " + name);
  }
  for (Flag& flag : flags_) {
    if (flag.table != table) continue;
    flag.used = true;
    add(flag.key, flag.value, Origin::kFlag, "--set " + flag.text);
  }
}

void Overrides::finish(Diagnostics& diagnostics) const {
  for (const Flag& flag : flags_) {
    if (flag.used) continue;
    Diagnostic& d = diagnostics.error(
        FRT_ERR_INVALID_ARGUMENT, {},
        "--set " + flag.text + ": there is no table [" + flag.table + "] to set something in");
    d.hint = did_you_mean(flag.table, tables_);
    d.notes.push_back("--set changes a table that the manifest has; write [" + flag.table +
                      "] there first, with what it requires");
  }
  const std::vector<std::string> known(variables_.begin(), variables_.end());
  for (const std::string& name : request_.environment_names) {
    const bool ours = name.starts_with("FRT_DEVICE_") || name.starts_with("FRT_MODEL_") ||
                      name.starts_with("FRT_ENVIRONMENT_") || name.starts_with("FRT_HOST_") ||
                      name.starts_with("FRT_PLUGIN_OPTIONS_");
    if (!ours || variables_.contains(name)) continue;
    diagnostics.warning({}, "environment variable " + name + " sets nothing in this manifest")
        .hint = did_you_mean(name, known);
  }
}

}  // namespace frt::core
