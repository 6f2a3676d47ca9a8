// SPDX-License-Identifier: Apache-2.0
#include "cli/terminal/output.hpp"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <frt/io/json_text.hpp>
#include <frt/io/utf8.hpp>
#include <nlohmann/json.hpp>

#include "cli/terminal/signals.hpp"
#include "runtime/exit_code.hpp"

namespace frt::host {
namespace {

int failure = 0;  // errno of the first write to stdout that failed
core::Log* stderr_log = nullptr;

constexpr std::string_view kSource = "frt-host";  // of what the program itself says
constexpr std::string_view kError = "error: ";

// Waits until a part of `text` is written, and returns its size; 0: it cannot be (errno). A reader
// that is slow is waited for, also after a Ctrl-C, but not when the program is to end. The wait
// ends by itself now and then, for a signal that comes between the look at the flag and the wait; a
// part is no larger than what a pipe that can be written to takes without waiting.
std::size_t write_part(int descriptor, std::string_view text) {
  constexpr int kMilliseconds = 200;
  for (;;) {
    pollfd wait{descriptor, POLLOUT, 0};
    const int ready = ::poll(&wait, 1, kMilliseconds);
    if (ready <= 0) {
      if (InterruptGuard::ending() == 0) continue;
      errno = EINTR;
      return 0;
    }
    const ssize_t count =
        ::write(descriptor, text.data(), std::min<std::size_t>(text.size(), PIPE_BUF));
    if (count > 0) return static_cast<std::size_t>(count);
    if (count < 0 && errno != EINTR && errno != EAGAIN) return 0;
  }
}

// Past the buffer of stdio, which drops what it holds when a write is interrupted.
void put(std::string_view text, std::FILE* stream) {
  if (std::fflush(stream) != 0 && stream == stdout && failure == 0) failure = errno;
  while (!text.empty()) {
    const std::size_t count = write_part(fileno(stream), text);
    if (count == 0) {
      if (stream == stdout && failure == 0) failure = errno;
      return;
    }
    text.remove_prefix(count);
  }
}

// JSON allows DEL, C1 and the like as they are; all of them only occur inside strings.
std::string escaped(const std::string& json) {
  std::string out;
  for (std::size_t at = 0; at < json.size();) {
    const io::Utf8Step step = io::utf8_step(std::string_view(json).substr(at));
    const std::string_view part = std::string_view(json).substr(at, step.bytes);
    at += step.bytes;
    if (io::printable(part, io::Keep::kLines) == part) {
      out += part;
    } else {
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(step.character));
    }
  }
  return out;
}

}  // namespace

void prepare_output() {
  // The lowest free descriptor is the one that open() takes.
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(stream, F_GETFD) != -1) continue;
    const int flags = stream == STDOUT_FILENO ? O_RDONLY : O_RDWR;
    if (::open("/dev/null", flags) != stream) std::abort();
  }
  std::signal(SIGXFSZ, SIG_IGN);
}

void close_output() {
  if (std::fflush(stdout) != 0 && failure == 0) failure = errno;
  if (failure == 0 && std::ferror(stdout) == 0) return;
  throw ExitError(ExitCode::kFailed, FRT_ERR_IO,
                  std::string("the output could not be written: ") +
                      std::strerror(failure != 0 ? failure : EIO));
}

void put_out(std::string_view text) {
  put(io::printable(text, io::Keep::kLines), stdout);
}
void put_err(std::string_view text) {
  if (!stderr_log) return put(io::printable(text, io::Keep::kLines), stderr);
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    if (end > 0) stderr_log->write(kSource, FRT_LOG_INFO, text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}
void put_error(std::string_view text) {
  if (!stderr_log) return put_err(fmt::format("{}\n", text));
  if (text.starts_with(kError)) text.remove_prefix(kError.size());
  stderr_log->write(kSource, FRT_LOG_ERROR, text);
}

void log_stderr(core::Log* log) {
  stderr_log = log;
}

void print_json(const nlohmann::ordered_json& json, int indent) {
  const io::JsonStyle style{.indent = indent, .bad = io::BadUtf8::kReplace};
  put(escaped(io::json_text(json, style)) + "\n", stdout);
}

bool write_out(std::string_view text) {
  put(text, stdout);
  return failure == 0;
}

void write_err(std::string_view text) {
  if (!stderr_log) put(text, stderr);
}

// ---- what a model writes ------------------------------------------------------------------

bool ModelText::stdout_is_terminal() {
  return ::isatty(STDOUT_FILENO) != 0;
}

std::string ModelText::push(std::string_view piece) {
  if (!terminal_) return std::string(piece);
  cut_ += piece;
  std::size_t end = 0;
  while (end < cut_.size()) {
    const io::Utf8Step step = io::utf8_step(std::string_view(cut_).substr(end));
    if (step.kind == io::Utf8Step::kCut) break;
    end += step.bytes;
  }
  const std::string shown = io::printable(std::string_view(cut_).substr(0, end), io::Keep::kLines);
  cut_.erase(0, end);
  return shown;
}

std::string ModelText::flush() {
  return io::printable(std::exchange(cut_, {}), io::Keep::kLines);
}

}  // namespace frt::host
