// SPDX-License-Identifier: Apache-2.0
#include "cli/capsule_setup.hpp"

#include <frt/core/config.hpp>

#include <utility>

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

}  // namespace

core::HostSchema lm_host_schema() {
  core::OptionSpec model;
  model.key = "model";
  model.doc = "the model to serve";
  model.reference = "model";
  core::OptionSpec speculation =
      option("speculation", FRT_CONFIG_ENUM, "auto",
             "drafts of a model with a draft head, which change no token; auto: as many as pay");
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
                             "bytes of files for capsules that have no name of their own"),
                      option("capsule_trust", FRT_CONFIG_BOOL, "false",
                             "use capsules also where other users could have written them"),
                      option("capsule_spacing", FRT_CONFIG_SIZE, "16k",
                             "tokens between the capsules kept within a long prompt"),
                      option("capsule_min_tokens", FRT_CONFIG_SIZE, "256",
                             "a boundary closer to the one before is not kept"),
                      speculation},
          .doc = "a language model's sessions"};
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

std::unique_ptr<CapsuleRegistry> open_capsules(App& app, const LmModel& model,
                                               const CapsuleOptions& options) {
  CapsuleOptions complete = options;
  complete.model = {model.info().vocabulary, model.info().prefill_chunk};
  complete.layout = model.capsule_layout();
  auto registry = std::make_unique<CapsuleRegistry>(model.context(), model.capsules(), complete);
  if (!registry->opening().problem.empty()) {
    app.log().write("capsules", FRT_LOG_WARNING, registry->opening().problem);
  }
  show_notices(app, *registry);
  return registry;
}

void show_notices(App& app, CapsuleRegistry& registry) {
  for (const std::string& notice : registry.take_notices()) {
    app.log().write("capsules", FRT_LOG_WARNING, notice);
  }
}

}  // namespace frt::host
