// SPDX-License-Identifier: Apache-2.0
// A complete manifest and made-up plugins for it.
#pragma once

#include <frt/core/manifest.hpp>
#include <frt/core/plugin.hpp>
#include <map>

#include "helpers.hpp"

namespace test {

inline constexpr const char* kComplete = R"(schema = 1
x-note = { anything = [1, 2] }

[[plugin]]
id = "b.one"
path = "plugins/one.so"
required = true

[device.gpu0]
backend = "auto"
[device.gpu0.options]
threads = 3

[device.cpu]
backend = "b.one"
ordinal = 2
capture = false
options = { threads = 6 }

[model.q]
plugin     = "m.one"
device     = "gpu0"
checkpoint = "weights"
x-comment  = "free"
[model.q.options]
max_context = "64k"

[host.lm]
model  = "q"
folder = "capsules"

[host.public]
type   = "web"
listen = "127.0.0.1:80"

[plugin-options."b.one"]
pool = 3
)";

// b.one is a backend, m.one a model, e.one an environment; "bad" is refused; others do not exist.
class FakeSchemas final : public frt::core::SchemaSource {
 public:
  static frt::core::OptionSpec option(const char* key, frt_config_type type, const char* text,
                                      double minimum = 0, double maximum = 0) {
    frt::core::OptionSpec spec;
    spec.key = key;
    spec.type = type;
    if (text) spec.default_text = text;
    spec.minimum = minimum;
    spec.maximum = maximum;
    return spec;
  }
  static frt::core::ConfigSchema backend() {
    return {{option("pool", FRT_CONFIG_INT, "1")}, {option("threads", FRT_CONFIG_INT, "0", 0, 64)}};
  }
  static frt::core::ConfigSchema model() {
    frt::core::ConfigSchema schema;
    schema.options = {
        option("slots", FRT_CONFIG_INT, "4", 1, 64), option("max_context", FRT_CONFIG_SIZE, "32k"),
        option("numerics", FRT_CONFIG_ENUM, "fast"), option("adapter", FRT_CONFIG_PATH, "")};
    schema.options[2].choices = {"fast", "reference"};
    return schema;
  }

  static frt::core::ConfigSchema environment() {
    return {{}, {option("drift", FRT_CONFIG_FLOAT, "0.5", 0, 1)}};
  }

  void pin(const frt::core::PluginEntry& entry) override { pinned.push_back(entry.id); }
  Lookup find(const std::string& id) override {
    if (id == "b.one") return {&backend_, FRT_PLUGIN_BACKEND, FRT_OK, {}, {}};
    if (id == "m.one") return {&model_, FRT_PLUGIN_MODEL, FRT_OK, {}, {}};
    if (id == "e.one") return {&environment_, FRT_PLUGIN_ENVIRONMENT, FRT_OK, {}, {}};
    if (id == "bad") return {nullptr, 0, FRT_ERR_ABI, "plugin 'bad' was refused: too old", {}};
    return {nullptr, 0, FRT_ERR_NOT_FOUND, "no plugin '" + id + "'", {"searched /nowhere"}};
  }
  Lookup check_pin(const frt::core::PluginEntry&) override { return {}; }
  std::vector<std::string> ids(uint32_t kind) override {
    return {kind == FRT_PLUGIN_BACKEND ? "b.one" : kind == FRT_PLUGIN_MODEL ? "m.one" : "e.one"};
  }

  std::vector<std::string> pinned;

 private:
  frt::core::ConfigSchema backend_ = backend();
  frt::core::ConfigSchema model_ = model();
  frt::core::ConfigSchema environment_ = environment();
};

struct ManifestFixture {
  FakeSchemas schemas;
  std::map<std::string, std::string> variables;
  frt::core::ManifestRequest request;

  ManifestFixture() {
    request.schemas = &schemas;
    request.flag_folder = "/data";
    request.environment = [this](const std::string& name) -> std::optional<std::string> {
      const auto found = variables.find(name);
      return found == variables.end() ? std::nullopt : std::optional(found->second);
    };
    frt::core::HostSchema lm;
    lm.type = "lm";
    lm.options = {FakeSchemas::option("model", FRT_CONFIG_STRING, nullptr),
                  FakeSchemas::option("folder", FRT_CONFIG_PATH, "")};
    lm.options[0].reference = "model";
    frt::core::HostSchema arm;
    arm.type = "arm";
    arm.options = {FakeSchemas::option("environment", FRT_CONFIG_STRING, "")};
    arm.options[0].reference = "environment";
    frt::core::HostSchema web;
    web.type = "web";
    web.options = {FakeSchemas::option("listen", FRT_CONFIG_STRING, "localhost:80")};
    request.hosts = {lm, web, arm};
  }
  ManifestFixture(const ManifestFixture&) = delete;
  ManifestFixture& operator=(const ManifestFixture&) = delete;

  frt::core::Manifest parse(const std::string& text) {
    return frt::core::parse_manifest(text, "/etc/m.toml", request);
  }
  // The findings of a manifest that must be refused.
  std::vector<frt::core::Diagnostic> findings(const std::string& text) {
    try {
      parse(text);
    } catch (const frt::core::DiagnosticError& error) {
      return error.diagnostics();
    }
    FAIL("the manifest was accepted:\n" << text);
    return {};
  }
  // All of them, rendered.
  std::string complaints(const std::string& text) {
    std::string result;
    for (const auto& finding : findings(text)) result += render(finding) + "\n";
    return result;
  }
};

}  // namespace test
