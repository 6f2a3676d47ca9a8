// SPDX-License-Identifier: Apache-2.0
// diagnostic.hpp - what is wrong with a text that a person wrote: one finding with its position,
// shown the way compilers show it, and a collector, so that all findings come in one pass.
//
//     error: unknown key `max_contxt`
//       --> demo.toml:19:1
//        |
//     19 | max_contxt = "256k"
//        | ^^^^^^^^^^ did you mean `max_context`?
//        = known keys: max_context, slots
//
// Positions count from 1; columns count characters. A position with line 0 is unknown: then only
// the message is shown (a finding about an environment variable, say). What is shown stays short
// whatever the text: a long line is cut around the position, a long message at its end.
#pragma once

#include <frt/error.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace frt::core {

// A place in a text. `length` characters are underlined.
struct SourcePosition {
  uint32_t line = 0;
  uint32_t column = 0;
  uint32_t length = 1;

  bool known() const noexcept { return line != 0; }
};

// The text positions refer to. Immutable once made.
class SourceText {
 public:
  SourceText(std::string name, std::string_view text);
  const std::string& name() const noexcept { return name_; }
  // Line `number` (from 1) without its end; empty outside the text.
  std::string_view line(uint32_t number) const noexcept;
  // "name:line:column", or the name alone.
  std::string describe(const SourcePosition& position) const;

 private:
  std::string name_;
  std::vector<std::string> lines_;
};

enum class Severity { kError, kWarning };

struct Diagnostic {
  Severity severity = Severity::kError;
  frt_status code = FRT_ERR_INVALID_ARGUMENT;  // the class of the finding, for exit codes
  std::string message;                         // one sentence without a full stop
  std::string file;                            // empty: no position
  SourcePosition position;
  std::string source_line;         // the line of `position`, or its part around it
  uint32_t source_column = 0;      // where `position` is within `source_line`
  std::string hint;                // stands beside the caret, e.g. "did you mean `slots`?"
  std::vector<std::string> notes;  // further lines, each shown after "= "
  bool plugin_refused = false;     // the text is fine, a plugin file that it names is not
};

// The block shown above, without a final newline.  [any]
std::string render(const Diagnostic& diagnostic);

// Thrown by Diagnostics::throw_if_errors. what() is all errors, rendered, with a blank line
// between them.
class DiagnosticError : public Error {
 public:
  explicit DiagnosticError(std::vector<Diagnostic> diagnostics);
  const std::vector<Diagnostic>& diagnostics() const noexcept { return diagnostics_; }
  // True if every finding is a refused plugin: nothing is wrong with the text itself.
  bool only_refused_plugins() const noexcept;

 private:
  std::vector<Diagnostic> diagnostics_;
};

// Collects findings about one text, at most kMaxFindings of each severity: a text of a few KB can
// have thousands, and each of them costs a look for what was meant.  [setup]
class Diagnostics {
 public:
  // `text` may be null (then findings have no position); it outlives the collector.
  explicit Diagnostics(const SourceText* text = nullptr) : text_(text) {}

  static constexpr uint32_t kMaxFindings = 50;

  // Adds a finding; the reference is valid until the next call. One error too many throws as
  // throw_if_errors does, with a last error that says so. One warning too many is replaced by a
  // warning that says so, and later ones are left out.
  Diagnostic& error(frt_status code, const SourcePosition& position, std::string message);
  Diagnostic& warning(const SourcePosition& position, std::string message);

  const std::vector<Diagnostic>& all() const noexcept { return all_; }
  bool has_errors() const noexcept;
  // The warnings, in order of position.
  std::vector<Diagnostic> warnings() const;
  // Throws DiagnosticError with every error, in order of position. Its status is the code that
  // all errors share, or FRT_ERR_INVALID_ARGUMENT.
  void throw_if_errors() const;

 private:
  Diagnostic& add(Severity severity, frt_status code, const SourcePosition& position,
                  std::string message);
  const SourceText* text_;
  std::vector<Diagnostic> all_;
  uint32_t errors_ = 0, warnings_ = 0;
  Diagnostic left_out_;  // what a warning too many is written to
};

// The candidate that `word` was probably meant to be, or an empty string: small edit distance,
// swapped neighbours count as one.  [any]
std::string closest(std::string_view word, const std::vector<std::string>& candidates);

// "did you mean `x`?", or an empty string.  [any]
std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace frt::core
