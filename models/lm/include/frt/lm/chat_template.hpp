// SPDX-License-Identifier: Apache-2.0
// frt/lm/chat_template.hpp - is the conversation format built into a plugin the one that a
// checkpoint was trained with?
//
// A checkpoint carries its format as a Jinja program: chat_template.jinja, or else "chat_template"
// in tokenizer_config.json; further ones may stand in chat_template.json (of a processor) and in
// additional_chat_templates/. None is run. Each is compared by the digest of its text, with line
// ends and space at the end of the file left out. A checkpoint without one is taken to have the
// format.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace frt::lm {

class ChatTemplate {
 public:
  ChatTemplate() = default;
  // Reads the templates in `folder`. `known`: SHA-256 of the templates that the built-in format was
  // checked against, in hex; `format`: its name. FRT_ERR_FORMAT and FRT_ERR_IO for a broken file.
  //   [setup]
  ChatTemplate(const std::filesystem::path& folder, std::span<const std::string_view> known,
               std::string_view format);

  // The user says that the built-in format is right.
  void accept() { unknown_in_.clear(); }
  // FRT_ERR_UNSUPPORTED for a template that is not one of those the format was checked against,
  // with the file and the option that overrides.  [any]
  void require_known() const;

 private:
  std::string format_;
  std::string unknown_in_;  // the file; empty: nothing to refuse
};

}  // namespace frt::lm
