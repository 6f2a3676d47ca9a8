// SPDX-License-Identifier: Apache-2.0
// line_reader.hpp - lines from a person, with editing and history on a terminal, or from a pipe.
#pragma once

#include <memory>
#include <optional>
#include <string>

namespace frt::host {

class LineReader {
 public:
  // With a terminal on stdin and stderr: line editing (libedit), with `history` (a file, or empty
  // for none) read now and written at the end, readable by its owner alone.
  explicit LineReader(std::string history);
  ~LineReader();
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;

  // The next line without its end; nothing at the end of the input. A signal ends the wait with an
  // empty line. The prompt goes to stderr and is shown on a terminal only.
  std::optional<std::string> read(const std::string& prompt);
  bool interactive() const noexcept;

 private:
  struct Editor;
  std::unique_ptr<Editor> editor_;  // null: not a terminal
};

// The file for `name` in the user's state folder ($XDG_STATE_HOME or ~/.local/state, then "frt"),
// whose folder is made with mode 0700; empty if there is no home.
std::string state_file(const std::string& name);

}  // namespace frt::host
