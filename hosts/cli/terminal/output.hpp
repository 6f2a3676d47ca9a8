// SPDX-License-Identifier: Apache-2.0
// output.hpp - everything that the program writes to its streams: results to stdout, words about
// the run to stderr.
//
// Nearly every line may hold what others wrote: names in files, text of plugins and models, the
// lines of a manifest. On a terminal such text could move the cursor, change the title or rewrite
// what stands above. So each line goes through printable() of frt/io/utf8.hpp, line feeds and tabs
// excepted, whether a terminal is there or not: a listing that is piped ends on one, too. Two kinds
// of text go out otherwise: JSON, where the same characters are escaped as JSON does it, and what
// a model writes, which is made printable on a terminal and passed on as it is to anything else.
//
// What cannot be written to stdout (a full device, a closed descriptor) is remembered, and
// close_output() makes it an error: no command ends with status 0 whose results were lost.
//
// Threads: the main thread.
#pragma once

#include <fmt/format.h>
#include <frt/core/log.hpp>

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <utility>

namespace frt::host {

// Once, before anything is opened. A standard stream that is closed is replaced by one that cannot
// be written to (stdout) or that swallows everything (stderr), so that no file of ours takes its
// descriptor. A file that grows beyond the limit of the process (RLIMIT_FSIZE) is an error of the
// write instead of a signal. SIGPIPE ends the program, as a pipe expects.
void prepare_output();

// Flushes stdout. Throws ExitError(kFailed) with the reason if something could not be written.
void close_output();

// Lines to stdout or stderr, made printable.
void put_out(std::string_view text);
void put_err(std::string_view text);
// An error of one or more lines, without a line feed at its end, to stderr.
void put_error(std::string_view text);

// From now on each line for stderr, and each error, goes to `log` instead, as an entry of its own:
// a log of JSON lines holds nothing else. `log` outlives the program's last words; null: as before.
void log_stderr(core::Log* log);

template <class... Args>
void print_out(fmt::format_string<Args...> format, Args&&... args) {
  put_out(fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void print_err(fmt::format_string<Args...> format, Args&&... args) {
  put_err(fmt::format(format, std::forward<Args>(args)...));
}

// `json` and a newline to stdout. Text that is no UTF-8 becomes U+FFFD.
void print_json(const nlohmann::ordered_json& json, int indent = 2);

// `text`, and out with it; false if stdout does not take it. For data.
bool write_out(std::string_view text);
// The same for stderr, where it may get lost. Nothing goes out past a log of JSON lines.
void write_err(std::string_view text);

// What a model writes, piece by piece.
class ModelText {
 public:
  // `terminal`: whether to make it printable.
  explicit ModelText(bool terminal = stdout_is_terminal()) : terminal_(terminal) {}

  // What may be shown once `piece` was written. A character may be cut between two pieces.
  std::string push(std::string_view piece);
  // The rest.
  std::string flush();

  static bool stdout_is_terminal();

 private:
  bool terminal_;
  std::string cut_;  // the begin of a character
};

}  // namespace frt::host
