// SPDX-License-Identifier: Apache-2.0
// log.hpp - the program's log: lines on stderr, as text for people or as JSON lines for programs.
//
//     12:03:44.120 warning frt.cpu: 3 of 4 cores are busy
//     {"time":"2026-11-21T12:03:44.120Z","level":"warning","source":"frt.cpu","text":"..."}
//
// Messages below the level are dropped before they are formatted. All functions are thread-safe.
// A program that has a log of its own takes messages instead of lines (LogOptions::receiver).
#pragma once

#include <frt/log.h>

#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace frt::core {

enum class LogFormat { kText, kJsonLines };
enum class LogColor { kAuto, kOn, kOff };  // kAuto: on a terminal, unless NO_COLOR is set

struct LogOptions {
  LogFormat format = LogFormat::kText;
  LogColor color = LogColor::kAuto;
  frt_log_level level = FRT_LOG_INFO;  // the least that is shown
  int descriptor = 2;                  // where lines go; 2 is stderr
  // Takes each message in place of the descriptor: UTF-8, with what a terminal obeys escaped; a
  // message may have several lines. What it throws is dropped.  [any]
  std::function<void(frt_log_level level, const std::string& source, const std::string& text)>
      receiver{};
};

class Log {
 public:
  explicit Log(const LogOptions& options = {});
  ~Log();
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;

  // `source` names who speaks. Bytes that are no UTF-8 are replaced. Never throws.  [any]
  void write(std::string_view source, frt_log_level level, std::string_view text) noexcept;
  bool shows(frt_log_level level) const noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// While it lives its thread works for the host that `log` belongs to (null: for none). A process
// may have several hosts: what plugins say on the thread, and the whole of errors that no record
// holds, then goes to `log`, whichever host opened last. Scopes of a thread nest. `log` outlives
// it.
class LogScope {
 public:
  explicit LogScope(Log* log) noexcept;  // [any]
  ~LogScope();
  LogScope(const LogScope&) = delete;
  LogScope& operator=(const LogScope&) = delete;

  // The log of the calling thread's innermost scope; null: it has none.  [any]
  static Log* current() noexcept;
  // That, or `other` where there is none.  [any]
  static Log& current_or(Log& other) noexcept { return current() ? *current() : other; }

 private:
  Log* before_;
};

// "debug", "info", "warning", "error", "host misbehaving", "plugin misbehaving".  [any]
const char* log_level_name(frt_log_level level) noexcept;

}  // namespace frt::core
