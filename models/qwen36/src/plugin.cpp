// SPDX-License-Identifier: Apache-2.0
#include "plugin.hpp"

#include "options.hpp"
#include "tables.hpp"

namespace frt::qwen36 {

const void* Plugin::extension(std::string_view id) noexcept {
  return id == FRT_EXT_MODEL ? &model_table() : nullptr;
}

const void* Plugin::static_extension(std::string_view id) noexcept {
  return id == FRT_EXT_CONFIG_SCHEMA ? &option_schema() : nullptr;
}

}  // namespace frt::qwen36

using Qwen36Plugin = frt::qwen36::Plugin;
FRT_PLUGIN(Qwen36Plugin, model, "frt.qwen36", "0.1.0",
           "summary = \"Qwen3.6 language models: dense and mixture of experts, text\"\n");
