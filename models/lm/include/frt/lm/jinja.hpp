// SPDX-License-Identifier: Apache-2.0
// frt/lm/jinja.hpp - Jinja templates, rendered as transformers' apply_chat_template renders them:
// trim_blocks, lstrip_blocks, break and continue, {% generation %}, raise_exception, strftime_now,
// tojson without escapes, values that templates cannot change. Texts know where they came from:
// what the template writes is the format's, what the conversation brings stays text from outside,
// through every operation on texts.
//
// A template is a program from outside. What one may cost is bounded: 1 MiB of source, 160 levels
// of nesting, 20 million steps (about a second), 512 MiB of values, 32 MiB of output. Errors name
// the template and the line, the last one only the line, as frt/chat.h has it:
//   FRT_ERR_FORMAT            it is no Jinja
//   FRT_ERR_UNSUPPORTED       a tag, filter or test that is not provided, or a bound
//   FRT_ERR_INVALID_ARGUMENT  it refuses the values (raise_exception), or fails on them
#pragma once

#include <cstdint>
#include <frt/models/json.hpp>
#include <frt/models/prompt_text.hpp>
#include <memory>
#include <string>
#include <string_view>

namespace frt::lm {

class JinjaTemplate {
 public:
  // Parses `source`; `name` stands for it in errors.  [any]
  JinjaTemplate(std::string_view source, std::string name);
  JinjaTemplate(JinjaTemplate&&) noexcept;
  JinjaTemplate& operator=(JinjaTemplate&&) noexcept;
  ~JinjaTemplate();

  // The variables are the members of two objects: texts in `outside` are from outside, those in
  // `own` (tokens, flags) are the format's. `now`: seconds since 1970, for strftime_now, which
  // gives local time.  [any]
  models::PromptText render(const models::Json& outside, const models::Json& own,
                            std::int64_t now) const;

  // Whether the template uses a variable of this name at all.  [any]
  bool mentions(std::string_view variable) const;

 private:
  struct Tree;
  std::unique_ptr<const Tree> tree_;
  std::string name_;
};

}  // namespace frt::lm
