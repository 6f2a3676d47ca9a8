// SPDX-License-Identifier: Apache-2.0
// The regular expression of a Split pre-tokenizer: written for Oniguruma (Ruby syntax, UTF-8), run
// by PCRE2 with its JIT.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace frt::models {

// `pattern` in the syntax of PCRE2, with the same meaning under the options SplitRegex uses. Throws
// FRT_ERR_UNSUPPORTED, naming the construct, for anything whose meaning is not known to be equal;
// `where` starts the message.
std::string pcre_pattern(std::string_view pattern, std::string_view where);

class SplitRegex {
 public:
  // An Oniguruma expression, or with `literal` a text to be found as it stands.
  SplitRegex(std::string_view pattern, bool literal, std::string_view where);
  ~SplitRegex();
  SplitRegex(SplitRegex&&) noexcept;
  SplitRegex& operator=(SplitRegex&&) noexcept;

  // Appends the non-empty matches and what lies between them, in order ("Isolated"). `text` is
  // valid UTF-8; `out` views it. Throws FRT_ERR_UNSUPPORTED when matching exceeds PCRE2's limits.
  // [any]
  void split(std::string_view text, std::vector<std::string_view>& out) const;

 private:
  struct Code;
  std::unique_ptr<const Code> code_;
};

}  // namespace frt::models
