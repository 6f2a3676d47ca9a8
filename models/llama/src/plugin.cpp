// SPDX-License-Identifier: Apache-2.0
#include <frt/lm/options.hpp>
#include <frt/lm/plugin.hpp>

#include "architecture.hpp"

namespace frt::llama {
namespace {

constexpr auto kOptions = lm::with_options({lm::kTemplateFileOption});
constexpr frt_config_schema_v1 kSchema = lm::schema(kOptions);

struct Traits {
  static std::unique_ptr<const lm::Architecture> open(const frt_model_params& params) {
    if (params.checkpoint && lm::is_synthetic(params.checkpoint)) {
      return std::make_unique<Architecture>(std::string_view(params.checkpoint));
    }
    const std::filesystem::path folder = lm::checkpoint_folder(params);
    return std::make_unique<Architecture>(
        read_config(folder),
        lm::TemplateChat(folder, lm::template_file(ConfigView(params.config))));
  }
  static const frt_config_schema_v1& options() { return kSchema; }
};

}  // namespace
}  // namespace frt::llama

using LlamaPlugin = frt::lm::Plugin<frt::llama::Traits>;
FRT_PLUGIN(LlamaPlugin, model, "frt.llama", "0.1.0",
           "model_types = [\"llama\"]\n"
           "summary = \"Llama language models: grouped-query attention, rope scaling, text\"\n");
