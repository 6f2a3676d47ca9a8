// SPDX-License-Identifier: Apache-2.0
#include "runtime/lm_settings.hpp"

#include <frt/core/config.hpp>
#include <frt/core/diagnostic.hpp>
#include <frt/error.hpp>
#include <frt/io/json.hpp>

#include <cmath>
#include <filesystem>
#include <limits>
#include <utility>

#include "lm/sampling.hpp"

namespace frt::host {
namespace {

core::OptionSpec option(const char* key, frt_config_type type, const char* default_text,
                        const char* doc) {
  core::OptionSpec spec;
  spec.key = key;
  spec.type = type;
  spec.default_text = default_text;
  spec.doc = doc;
  return spec;
}

core::HostSchema lm_host_schema() {
  core::OptionSpec model;
  model.key = "model";
  model.doc = "the model to serve";
  model.reference = "model";
  core::OptionSpec speculation =
      option("speculation", FRT_CONFIG_ENUM, "auto",
             "drafts of a model with a draft head; they change no token; auto: as many as pay");
  speculation.choices = {"auto", "on", "off"};
  return {.type = "lm",
          .options = {model,
                      option("capsule_dir", FRT_CONFIG_PATH, "",
                             "folder of the disk tier; absent: no disk tier"),
                      option("capsule_device", FRT_CONFIG_SIZE, "2G",
                             "bytes of device memory for capsules; 0: none are kept there"),
                      option("capsule_host", FRT_CONFIG_SIZE, "4G",
                             "bytes of pinned host memory for capsules; 0: none"),
                      option("capsule_disk", FRT_CONFIG_SIZE, "64G",
                             "bytes of the files of capsules that nobody named"),
                      option("capsule_trust", FRT_CONFIG_BOOL, "false",
                             "also use capsules that other users could have written"),
                      option("capsule_spacing", FRT_CONFIG_SIZE, "16k",
                             "tokens between the capsules kept within a long prompt"),
                      option("capsule_min_tokens", FRT_CONFIG_SIZE, "256",
                             "tokens; a boundary closer to the one before gets no capsule"),
                      speculation},
          .doc = "a language model's sessions"};
}

constexpr uint64_t kMostConfig = uint64_t{1} << 20;  // bytes

// Throws frt::Error for values that no run could sample with.
void check_generation_config(const std::filesystem::path& file) {
  io::Json config = io::read_json_file(file, {.bytes = kMostConfig});
  if (!config.is_object()) throw Error(FRT_ERR_FORMAT, "it is no object");
  // A whole number may be written with a point.
  if (const auto top_k = config.find("top_k"); top_k != config.end() && top_k->is_number_float()) {
    const double value = top_k->get<double>();
    if (value == std::floor(value) && std::abs(value) <= std::numeric_limits<int32_t>::max()) {
      *top_k = static_cast<int32_t>(value);
    }
  }
  resolve_sampling({}, config);
}

}  // namespace

HostKind lm_host_kind() {
  return {lm_host_schema()};
}

CapsuleSettings capsule_settings(const core::Manifest& manifest, const std::string& model) {
  const core::HostSchema schema = lm_host_schema();
  core::Diagnostics none;
  core::ResolveContext context;
  context.environment = [](const std::string&) { return std::nullopt; };
  // The defaults: of every key but the required one.
  std::vector<core::OptionSpec> optional(schema.options.begin() + 1, schema.options.end());
  core::Config config = core::resolve_config(optional, {}, context, none);
  for (const core::HostSpec& host : manifest.hosts) {
    if (host.type == schema.type && host.settings.text("model") == model) config = host.settings;
  }
  const auto number = [&](const char* key) { return static_cast<uint64_t>(config.integer(key)); };
  CapsuleSettings settings;
  settings.capsules.folder = config.text("capsule_dir");
  settings.capsules.trust = number("capsule_trust") != 0;
  settings.capsules.device_bytes = number("capsule_device");
  settings.capsules.host_bytes = number("capsule_host");
  settings.capsules.disk_bytes = number("capsule_disk");
  settings.session.spacing = number("capsule_spacing");
  settings.session.min_tokens = number("capsule_min_tokens");
  settings.session.speculation = drafting_from(config.text("speculation"));
  return settings;
}

void check_generation_configs(const core::Manifest& manifest) {
  core::Diagnostics findings(manifest.text.get());
  for (const core::ModelSpec& model : manifest.models) {
    const std::filesystem::path file =
        std::filesystem::path(model.checkpoint()) / "generation_config.json";
    std::error_code ignored;
    if (!std::filesystem::exists(file, ignored)) continue;
    try {
      check_generation_config(file);
    } catch (const Error& error) {
      findings.error(error.status(), model.position,
                     "[model." + model.name + "]: " + file.string() + ": " + error.what());
    }
  }
  findings.throw_if_errors();
}

std::unique_ptr<CapsuleRegistry> open_capsules(core::Log& log, const LmModel& model,
                                               const CapsuleOptions& options) {
  CapsuleOptions complete = options;
  complete.model = {model.info().vocabulary, model.info().prefill_chunk};
  complete.layout = model.capsule_layout();
  auto registry = std::make_unique<CapsuleRegistry>(model.context(), model.capsules(), complete);
  if (!registry->opening().problem.empty()) {
    log.write("capsules", FRT_LOG_WARNING, registry->opening().problem);
  }
  show_notices(log, *registry);
  return registry;
}

void show_notices(core::Log& log, CapsuleRegistry& registry) {
  for (const std::string& notice : registry.take_notices()) {
    log.write("capsules", FRT_LOG_WARNING, notice);
  }
}

}  // namespace frt::host
