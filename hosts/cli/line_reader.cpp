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
#include <utility>

#include "cli/signals.hpp"

namespace frt::host {

namespace {

// What libedit's callbacks find.
struct Wait {
  std::string prompt;
  bool interrupted = false;
  int typed_ahead = 0;  // bytes that the terminal took before the editor did
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
  std::mbstate_t state{};
  for (;;) {
    if (!wait_for_input()) {
      wait_of(edit).interrupted = true;
      errno = EINTR;
      return -1;
    }
    char byte = 0;
    const ssize_t count = read(STDIN_FILENO, &byte, 1);
    if (count < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (count <= 0) return static_cast<int>(count);
    // A terminal that edits lines itself keeps a Ctrl-D as NUL.
    int& typed_ahead = wait_of(edit).typed_ahead;
    if (typed_ahead > 0 && byte == '\0') byte = kControlD;
    if (typed_ahead > 0) --typed_ahead;
    switch (std::mbrtowc(character, &byte, 1, &state)) {
      case static_cast<std::size_t>(-2):  // more bytes of it follow
        continue;
      case static_cast<std::size_t>(-1):  // not UTF-8: shown as what it is, and refused later
        *character = L'\uFFFD';
        return 1;
      default:
        return 1;
    }
  }
}

bool is_regular(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(path, ignored);
}

}  // namespace

LineReader::LineReader(std::string history) {
  if (!isatty(STDIN_FILENO) || !isatty(STDERR_FILENO) || !use_utf8()) return;
  editor_ = std::make_unique<Editor>();
  editor_->file = std::move(history);
  editor_->edit = el_init("frt-host", stdin, stderr, stderr);
  editor_->history = history_init();
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
  el_source(editor_->edit, nullptr);
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
  editor_->wait = {prompt, false, typed_ahead};
  int count = 0;
  const char* text = el_gets(editor_->edit, &count);
  if (editor_->wait.interrupted) {
    el_reset(editor_->edit);
    std::fputc('\n', stderr);
    return Outcome::kInterrupted;
  }
  if (!text || count <= 0) return Outcome::kEnd;
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
