// SPDX-License-Identifier: Apache-2.0
#include "chat.hpp"

#include <array>

#include "chat_format.hpp"

namespace frt::qwen36 {
namespace {

// Rendered with Jinja, each of them gives the prompts of tests/fixtures/qwen36/tokenizer.
constexpr std::array<std::string_view, 3> kKnown = {
    // Qwen3.6-27B and Qwen3.6-35B-A3B, their FP8 versions, and NVIDIA's NVFP4
    "e84f32a23fdda27689f868aa4a1a5621f41133e51a48d7f3efcbea2839574259",
    // the test checkpoints and the demo model of this project
    "24eaeccd99a6e4b40adef3b0e64c7a2ce2a870c323c73ade7b43c5fe10530734",
    "51e61f496f14fed9721b486e51b7ca6a8c04db436359519b82d8d2238018d7d8"};

}  // namespace

std::span<const std::string_view> Chat::known_templates() const {
  return kKnown;
}

models::PromptText Chat::render(const models::Json& messages, const models::Json& tools,
                                const models::Json& options) const {
  return render_chat(messages, tools, read_chat_options(options), Vision::kRefuse);
}

std::unique_ptr<lm::ChatReader> Chat::reader(const models::Json& tools,
                                             const models::Json& options) const {
  return read_answer(tools, read_chat_options(options));
}

// As render_chat() writes a call, which is as the model was taught to.
models::Json Chat::answer_form(const models::Json& options) const {
  models::Json form = {{"calls",
                        {{"begin", {"<tool_call>\n<function=", ">\n"}},
                         {"parameter", {"<parameter=", ">\n", "\n</parameter>\n"}},
                         {"end", "</function>\n</tool_call>"},
                         {"separator", "\n"}}}};
  if (read_chat_options(options).enable_thinking) {
    form["reasoning"] = {{"end", "</think>"}, {"then", "\n\n"}};
  }
  return form;
}

}  // namespace frt::qwen36
