// SPDX-License-Identifier: Apache-2.0
#include <frt/core/manifest.hpp>

namespace frt::core {

namespace {

OptionSpec option(std::string key, frt_config_type type, std::optional<std::string> default_text,
                  std::string doc) {
  OptionSpec spec;
  spec.key = std::move(key);
  spec.type = type;
  spec.default_text = std::move(default_text);
  spec.doc = std::move(doc);
  return spec;
}

std::vector<OptionSpec> make_device_options() {
  OptionSpec ordinal = option("ordinal", FRT_CONFIG_INT, "0", "which device of the backend");
  ordinal.minimum = 0;
  ordinal.maximum = 1023;
  return {option("backend", FRT_CONFIG_STRING, std::nullopt,
                 "plugin id, or \"auto\" for the best device that is not the processor"),
          ordinal,
          option("capture", FRT_CONFIG_BOOL, "true",
                 "false: graphs run their recipe at each replay, for profilers")};
}

std::vector<OptionSpec> make_model_options() {
  OptionSpec device = option("device", FRT_CONFIG_STRING, std::nullopt, "name of a [device.NAME]");
  device.reference = "device";
  OptionSpec checkpoint = option("checkpoint", FRT_CONFIG_PATH, std::nullopt,
                                 "folder of weights, or \"synthetic:<preset>\"");
  checkpoint.verbatim_prefix = kSyntheticPrefix;
  return {option("plugin", FRT_CONFIG_STRING, std::nullopt, "id of a model plugin"), device,
          checkpoint};
}

}  // namespace

const std::vector<OptionSpec>& plugin_table_options() {
  static const std::vector<OptionSpec> options = {
      option("id", FRT_CONFIG_STRING, std::nullopt, "the plugin's id, as on its card"),
      option("path", FRT_CONFIG_PATH, "", "its file, and no other; absent: the search path"),
      option("required", FRT_CONFIG_BOOL, "false", "true: it must load, used or not")};
  return options;
}

const std::vector<OptionSpec>& device_table_options() {
  static const std::vector<OptionSpec> options = make_device_options();
  return options;
}

const std::vector<OptionSpec>& model_table_options() {
  static const std::vector<OptionSpec> options = make_model_options();
  return options;
}

const std::vector<OptionSpec>& environment_table_options() {
  static const std::vector<OptionSpec> options = {
      option("plugin", FRT_CONFIG_STRING, std::nullopt, "id of an environment plugin")};
  return options;
}

}  // namespace frt::core
