// SPDX-License-Identifier: Apache-2.0
// line_reader.hpp - lines from a person, with editing and history on a terminal, or from a pipe. A
// text that is pasted into a terminal is one line, whatever line feeds it has: they stay in it.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace frt::host {

class LineReader {
 public:
  // With a terminal on stdin and stderr: line editing (libedit), with `history` (a file, or empty
  // for none) read now and written at the end, readable by its owner alone. Makes the character
  // type of the process's locale UTF-8, which the editor needs; without such a locale there is no
  // editing.
  explicit LineReader(std::string history);
  ~LineReader();
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;

  enum class Outcome {
    kLine,
    kEnd,          // of the input
    kInterrupted,  // a signal ended the wait (InterruptGuard); what was typed is dropped
  };
  // What Tab completes: `words` gives the whole lines that the line until the cursor may become.
  void complete_with(std::function<std::vector<std::string>(std::string_view line)> words);

  // The next line without its end, of at most kMostBytes. The prompt goes to stderr and is shown on
  // a terminal only. Throws FRT_ERR_OUT_OF_RANGE for a longer line and
  // FRT_ERR_INVALID_ARGUMENT for one that was typed and is no UTF-8, which are skipped, and
  // FRT_ERR_IO if the input cannot be read.
  Outcome read(const std::string& prompt, std::string& line);
  bool interactive() const noexcept { return editor_ != nullptr; }

  static constexpr std::size_t kMostBytes = std::size_t{16} << 20;

 private:
  struct Editor;

  Outcome read_edited(const std::string& prompt, std::string& line);
  Outcome read_plain(std::string& line);

  std::unique_ptr<Editor> editor_;  // null: not a terminal
  std::string pending_;             // read from the pipe
  std::size_t begin_ = 0;           // of what is not yet given out
  bool at_end_ = false;
};

// The file for `name` in the user's state folder ($XDG_STATE_HOME or ~/.local/state, then "frt"),
// whose folder is made with mode 0700; empty if there is no home.
std::string state_file(const std::string& name);

}  // namespace frt::host
