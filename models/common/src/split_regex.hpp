// SPDX-License-Identifier: Apache-2.0
// The regular expression of a Split pre-tokenizer: written for Oniguruma (Ruby syntax, UTF-8), run
// by PCRE2 with its JIT.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

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

  // What matching needs beside the expression; made once, it serves any number of calls of one
  // thread. The stack of PCRE2's JIT is mapped memory: made for each call, it was a third of the
  // time of a conversation of short parts.
  class Scratch {
   public:
    Scratch();
    ~Scratch();
    Scratch(const Scratch&) = delete;
    Scratch& operator=(const Scratch&) = delete;

   private:
    friend class SplitRegex;
    struct Parts;
    std::unique_ptr<Parts> parts_;
  };

  // Calls `visit` with the non-empty matches and what lies between them, in order ("Isolated"),
  // as they are found. `text` is valid UTF-8. Throws FRT_ERR_UNSUPPORTED when a match takes more
  // steps or memory than is allowed; what `visit` throws passes.  [any]
  void split(std::string_view text, Scratch& scratch,
             const std::function<void(std::string_view)>& visit) const;

 private:
  struct Code;
  std::unique_ptr<const Code> code_;
};

}  // namespace frt::models
