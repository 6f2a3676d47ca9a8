// SPDX-License-Identifier: Apache-2.0
// frt/lm/template_chat.hpp - the conversation format that a checkpoint brings with it: its Jinja
// chat template, rendered as transformers' apply_chat_template does. Answers are text: what a model
// writes for a tool call differs with each template and stays in the content.
//
// The template is chat_template.jinja of the folder, or else "chat_template" of
// tokenizer_config.json (a text, or a list of named ones); additional_chat_templates/NAME.jinja
// adds named ones. A conversation with tools takes the one named "tool_use" if there is one, every
// other "default". Its variables are messages, tools, documents (none), the special tokens of
// tokenizer_config.json and special_tokens_map.json, and the options that are given.
//
// Contents that are lists of texts are joined, and arguments of calls that are JSON text are
// parsed: that is what templates are written for.
#pragma once

#include <exception>
#include <filesystem>
#include <frt/lm/chat.hpp>
#include <frt/lm/jinja.hpp>
#include <map>
#include <string>

namespace frt::lm {

class TemplateChat final : public Chat {
 public:
  TemplateChat() = default;  // without a template
  // `file`: a template in place of those of the folder; empty: none. What is wrong with a template
  // is thrown by render(): prompts without a conversation work all the same.  [setup]
  TemplateChat(const std::filesystem::path& folder, const std::string& file);

  std::string_view name() const override { return "the checkpoint's chat template"; }
  bool follows_checkpoint() const override { return true; }
  // FRT_ERR_UNSUPPORTED without a template, for tools that the template has no place for and for
  // contents that are no text; errors of JinjaTemplate.
  models::PromptText render(const models::Json& messages, const models::Json& tools,
                            const models::Json& options) const override;
  std::unique_ptr<ChatReader> reader(const models::Json& tools,
                                     const models::Json& options) const override;

 private:
  const JinjaTemplate& choose(bool tools) const;

  std::string folder_;
  std::map<std::string, JinjaTemplate> templates_;  // by name
  models::Json tokens_ = models::Json::object();    // "bos_token": "<s>" ...
  std::exception_ptr failure_;                      // of reading them
};

}  // namespace frt::lm
