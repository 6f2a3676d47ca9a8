// SPDX-License-Identifier: Apache-2.0
// Every wait for input is a poll of stdin and of the signals' pipe (InterruptGuard::descriptor()).
// libedit reads through read_character(), so this holds for the editor, too.
#include "cli/line_reader.hpp"

#include <histedit.h>
#include <langinfo.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cwchar>
#include <filesystem>
#include <frt/error.hpp>
#include <frt/io/file.hpp>
#include <new>
#include <optional>
#include <utility>

#include "cli/output.hpp"
#include "cli/signals.hpp"

namespace frt::host {

namespace {

// What libedit's callbacks find.
struct Wait {
  std::string prompt;
  bool interrupted = false;
  int typed_ahead = 0;         // bytes that the terminal took before the editor did
  bool broken = false;         // some of it is no UTF-8
  std::optional<char> unread;  // the first byte of what comes next
};

}  // namespace

struct LineReader::Editor {
  EditLine* edit = nullptr;
  History* history = nullptr;
  std::string file;
  Wait wait;
};

namespace {

constexpr int kHistorySize = 1000;
constexpr char kControlD = '\x04';
// libedit parses a line of its settings into a buffer of 1,024 characters, without a look at it.
constexpr std::size_t kSettingsBytes = std::size_t{64} << 10, kSettingsLine = 500;
constexpr std::size_t kBlock = std::size_t{64} << 10;

[[noreturn]] void refuse_input(int code) {
  throw Error(FRT_ERR_IO, std::string("cannot read the standard input: ") + std::strerror(code) +
                              "; give a terminal, a pipe or a file");
}

// Waits until stdin can be read; false: a signal came first.
bool wait_for_input() {
  for (;;) {
    pollfd waits[] = {{STDIN_FILENO, POLLIN, 0}, {InterruptGuard::descriptor(), POLLIN, 0}};
    const int ready = poll(waits, 2, -1);
    if (ready < 0 && errno != EINTR) refuse_input(errno);
    if (ready <= 0) continue;
    if (waits[1].revents != 0) return false;
    if (waits[0].revents != 0) return true;
  }
}

// The editor decodes what is typed with the locale, and drops what it cannot decode.
bool use_utf8() {
  for (const char* locale : {"", "C.UTF-8", "en_US.UTF-8"}) {
    if (std::setlocale(LC_CTYPE, locale) && std::strcmp(nl_langinfo(CODESET), "UTF-8") == 0) {
      return true;
    }
  }
  std::setlocale(LC_CTYPE, "C");
  return false;
}

Wait& wait_of(EditLine* edit) {
  void* data = nullptr;
  el_get(edit, EL_CLIENTDATA, &data);
  return *static_cast<Wait*>(data);
}

char* show_prompt(EditLine* edit) {
  return wait_of(edit).prompt.data();
}

// 1: a character; 0: the end of the input; -1: an error, or a signal.
int read_character(EditLine* edit, wchar_t* character) {
  Wait& wait = wait_of(edit);
  std::mbstate_t state{};
  for (;;) {
    char byte = 0;
    if (wait.unread) {
      byte = *std::exchange(wait.unread, std::nullopt);
    } else {
      if (!wait_for_input()) {
        wait.interrupted = true;
        errno = EINTR;
        return -1;
      }
      const ssize_t count = read(STDIN_FILENO, &byte, 1);
      if (count < 0 && (errno == EINTR || errno == EAGAIN)) continue;
      if (count <= 0) return static_cast<int>(count);
      // A terminal that edits lines itself keeps a Ctrl-D as NUL.
      if (wait.typed_ahead > 0 && byte == '\0') byte = kControlD;
      if (wait.typed_ahead > 0) --wait.typed_ahead;
    }
    const bool inside = std::mbsinit(&state) == 0;
    switch (std::mbrtowc(character, &byte, 1, &state)) {
      case static_cast<std::size_t>(-2):  // more bytes of it follow
        continue;
      case static_cast<std::size_t>(-1):  // not UTF-8: shown as what it is, and refused later
        if (inside) wait.unread = byte;   // what it should have ended may be a key, such as Enter
        wait.broken = true;
        *character = L'\uFFFD';
        return 1;
      default:
        return 1;
    }
  }
}

// The editor keeps two images of the whole terminal, which says itself how large it is.
bool fits_editor() {
  constexpr unsigned kMostCharacters = 1u << 20;
  winsize size{};
  if (ioctl(STDIN_FILENO, TIOCGWINSZ, &size) != 0) return true;  // as libedit: 80 x 24
  if (unsigned{size.ws_row} * size.ws_col <= kMostCharacters) return true;
  print_err(
      "warning: the terminal says that it has {} rows of {} characters; lines are read without an "
      "editor (stty rows 24 cols 80 sets a size)\n",
      size.ws_row, size.ws_col);
  return false;
}

// The user's settings of the editor, as libedit looks for them; empty: there are none.
std::string settings_file() {
  const char* named = std::getenv("EDITRC");
  const char* home = std::getenv("HOME");
  if (named && *named) return named;
  return home && *home ? std::string(home) + "/.editrc" : std::string();
}

// Settings that libedit can take are taken; of others the user is told.
void read_settings(EditLine* edit) {
  const std::string path = settings_file();
  std::error_code ignored;
  if (path.empty() || !std::filesystem::exists(path, ignored)) return;
  try {
    const std::string text = io::read_file(path, "settings of the line editor", kSettingsBytes);
    std::size_t line = 1;
    for (std::size_t at = 0; at < text.size(); ++line) {
      const std::size_t end = std::min(text.find('\n', at), text.size());
      if (end - at > kSettingsLine) {
        throw Error(FRT_ERR_OUT_OF_RANGE, path + ":" + std::to_string(line) + ": more than " +
                                              std::to_string(kSettingsLine) +
                                              " bytes; make the line shorter");
      }
      at = end + 1;
    }
    el_source(edit, path.c_str());
  } catch (const Error& error) {
    print_err("warning: the settings of the line editor are not used: {}\n", error.what());
  }
}

// A terminal that was stopped (Ctrl-S) takes nothing, and must not keep the program from its end.
void end_line() {
  pollfd out{STDERR_FILENO, POLLOUT, 0};
  if (poll(&out, 1, 0) == 1 && (out.revents & POLLOUT) != 0) put_err("\n");
}

bool is_regular(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(path, ignored);
}

}  // namespace

LineReader::LineReader(std::string history) {
  if (!isatty(STDIN_FILENO) || !isatty(STDERR_FILENO) || !use_utf8() || !fits_editor()) return;
  editor_ = std::make_unique<Editor>();
  editor_->file = std::move(history);
  editor_->edit = el_init("frt-host", stdin, stderr, stderr);
  editor_->history = history_init();
  if (!editor_->edit || !editor_->history) throw std::bad_alloc();
  HistEvent event;
  ::history(editor_->history, &event, H_SETSIZE, kHistorySize);
  ::history(editor_->history, &event, H_SETUNIQUE, 1);
  if (is_regular(editor_->file)) {
    ::history(editor_->history, &event, H_LOAD, editor_->file.c_str());
  }
  el_set(editor_->edit, EL_CLIENTDATA, &editor_->wait);
  el_set(editor_->edit, EL_PROMPT, show_prompt);
  el_set(editor_->edit, EL_EDITOR, "emacs");
  el_set(editor_->edit, EL_HIST, ::history, editor_->history);
  el_set(editor_->edit, EL_SIGNAL, 0);
  el_set(editor_->edit, EL_GETCFN, read_character);
  read_settings(editor_->edit);
}

LineReader::~LineReader() {
  if (!editor_) return;
  std::error_code ignored;
  if (is_regular(editor_->file) || !std::filesystem::exists(editor_->file, ignored)) {
    const mode_t before = umask(077);
    HistEvent event;
    ::history(editor_->history, &event, H_SAVE, editor_->file.c_str());
    umask(before);
  }
  history_end(editor_->history);
  el_end(editor_->edit);
}

LineReader::Outcome LineReader::read(const std::string& prompt, std::string& line) {
  return editor_ ? read_edited(prompt, line) : read_plain(line);
}

LineReader::Outcome LineReader::read_edited(const std::string& prompt, std::string& line) {
  // Takes the terminal before the prompt is shown: what is typed at the prompt is the editor's.
  el_set(editor_->edit, EL_PREP_TERM, 1);
  int typed_ahead = 0;
  if (ioctl(STDIN_FILENO, FIONREAD, &typed_ahead) != 0) typed_ahead = 0;
  editor_->wait = {prompt, false, typed_ahead, false, editor_->wait.unread};
  int count = 0;
  const char* text = el_gets(editor_->edit, &count);
  if (editor_->wait.interrupted) {
    el_reset(editor_->edit);
    end_line();
    return Outcome::kInterrupted;
  }
  if (!text || count <= 0) return Outcome::kEnd;
  if (editor_->wait.broken) {
    throw Error(FRT_ERR_INVALID_ARGUMENT,
                "what was typed is not valid UTF-8; set the terminal to UTF-8");
  }
  line.assign(text, static_cast<std::size_t>(count));
  while (!line.empty() && (line.back() == '\n' || line.back() == '\r')) line.pop_back();
  if (!line.empty()) {
    HistEvent event;
    ::history(editor_->history, &event, H_ENTER, line.c_str());
  }
  return Outcome::kLine;
}

LineReader::Outcome LineReader::read_plain(std::string& line) {
  bool too_long = false;
  std::size_t searched = begin_;
  for (;;) {
    const std::size_t end = std::min(pending_.find('\n', searched), pending_.size());
    const bool ended = end < pending_.size();
    searched = end;
    if (ended || (at_end_ && (too_long || begin_ < end))) {
      line.assign(pending_, begin_, end - begin_);
      begin_ = ended ? end + 1 : end;
      if (!line.empty() && line.back() == '\r') line.pop_back();
      if (!too_long && line.size() <= kMostBytes) return Outcome::kLine;
      throw Error(FRT_ERR_OUT_OF_RANGE, "a line has more than " + std::to_string(kMostBytes) +
                                            " bytes and was skipped; send less at a time");
    }
    if (at_end_) return Outcome::kEnd;
    // Once per read, not per line: what was given out goes, and so does a line that is too long.
    too_long = too_long || pending_.size() - begin_ > kMostBytes;
    pending_.erase(0, too_long ? pending_.size() : begin_);
    begin_ = 0;
    searched = pending_.size();
    if (!wait_for_input()) return Outcome::kInterrupted;
    const std::size_t held = pending_.size();
    pending_.resize(held + kBlock);
    const ssize_t count = ::read(STDIN_FILENO, pending_.data() + held, kBlock);
    const int code = errno;
    pending_.resize(held + static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
    if (count == 0) at_end_ = true;
    if (count < 0 && code != EINTR && code != EAGAIN) {
      at_end_ = true;
      refuse_input(code);
    }
  }
}

std::string state_file(const std::string& name) {
  namespace fs = std::filesystem;
  const char* state = std::getenv("XDG_STATE_HOME");
  const char* home = std::getenv("HOME");
  fs::path folder;
  if (state && state[0] == '/') {
    folder = state;
  } else if (home && home[0] == '/') {
    folder = fs::path(home) / ".local" / "state";
  } else {
    return {};
  }
  folder /= "frt";
  std::error_code error;
  if (fs::create_directories(folder, error)) {
    fs::permissions(folder, fs::perms::owner_all, error);
  }
  return error ? std::string() : (folder / name).string();
}

}  // namespace frt::host
