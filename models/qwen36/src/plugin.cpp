// SPDX-License-Identifier: Apache-2.0
#include <frt/lm/options.hpp>
#include <frt/lm/plugin.hpp>

#include "architecture.hpp"

namespace frt::qwen36 {
namespace {

constexpr auto kOptions = lm::with_options({
    {"speculation", FRT_CONFIG_ENUM, 0, "auto", "auto|on|off", 0, 0,
     "the draft head (MTP); auto: on where the checkpoint has one"},
    {"max_drafts", FRT_CONFIG_INT, 0, "3", nullptr, 1, 7,
     "tokens that the draft head proposes at a time, at most"},
    {"draft_vocabulary", FRT_CONFIG_SIZE, 0, "0", nullptr, 0, 16777216,
     "drafts are chosen from the first tokens of the vocabulary only, which tokenizers give the "
     "most "
     "frequent ones; a multiple of 128; 0: from all. Answers stay the same, drafts cost less"},
    lm::kChatTemplateOption,
});
constexpr frt_config_schema_v1 kSchema = lm::schema(kOptions);

struct Traits {
  static std::unique_ptr<const lm::Architecture> open(const frt_model_params& params) {
    if (params.checkpoint && is_synthetic(params.checkpoint)) {
      return std::make_unique<Architecture>(parse_synthetic(params.checkpoint));
    }
    return std::make_unique<Architecture>(read_config(lm::checkpoint_folder(params)));
  }
  static const frt_config_schema_v1& options() { return kSchema; }
};

}  // namespace
}  // namespace frt::qwen36

using Qwen36Plugin = frt::lm::Plugin<frt::qwen36::Traits>;
FRT_PLUGIN(Qwen36Plugin, model, "frt.qwen36", "0.1.0",
           "model_types = [\"qwen3_5\", \"qwen3_5_text\", \"qwen3_5_moe\", "
           "\"qwen3_5_moe_text\", \"qwen3_6\", \"qwen3_6_text\", \"qwen3_6_moe\", "
           "\"qwen3_6_moe_text\"]\n"
           "summary = \"Qwen3.6 language models: dense and mixture of experts, text\"\n");
