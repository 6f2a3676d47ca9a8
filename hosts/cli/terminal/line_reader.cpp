// SPDX-License-Identifier: Apache-2.0
// Every wait for input is a poll of stdin and of the signals' pipe (InterruptGuard::descriptor()).
// libedit reads through read_character(), so this holds for the editor, too.
#include "cli/terminal/line_reader.hpp"

#include <histedit.h>
#include <langinfo.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
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

#include "cli/terminal/output.hpp"
#include "cli/terminal/signals.hpp"

namespace frt::host {

namespace {

// What libedit's callbacks find.
struct Wait {
  std::string prompt;
  bool interrupted = false;
  int typed_ahead = 0;         // bytes that the terminal took before the editor did
  bool broken = false;         // some of it is no UTF-8
  bool too_long = false;       // some of it was left out
  std::optional<char> unread;  // the first byte of what comes next
  std::function<std::vector<std::string>(std::string_view)> words;
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

// Terminals send a pasted text between these, if they are asked to. Within it, Enter is a part of
// the text.
constexpr const char* kAskForPaste = "\x1b[?2004h";
constexpr const char* kEndPaste = "\x1b[?2004l";
constexpr const char* kPasteBegins = "\x1b[200~";
constexpr std::wstring_view kPasteEnds = L"\x1b[201~";

std::string utf8_of(const std::wstring& text) {
  std::string bytes;
  std::mbstate_t state{};
  char each[MB_LEN_MAX];
  for (const wchar_t character : text) {
    const std::size_t count = std::wcrtomb(each, character, &state);
    if (count != static_cast<std::size_t>(-1)) bytes.append(each, count);
  }
  return bytes;
}

// Bound to kPasteBegins. What is pasted steers nothing: control characters are left out, and so is
// what is beyond the limit.
unsigned char insert_paste(EditLine* edit, int) {
  std::wstring text;
  while (!text.ends_with(kPasteEnds)) {
    wchar_t character = 0;
    if (read_character(edit, &character) != 1) return CC_EOF;
    text += character == L'\r' ? L'\n' : character;
    if (text.size() > LineReader::kMostBytes) {
      wait_of(edit).too_long = true;
      text.erase(0, text.size() - kPasteEnds.size());
    }
  }
  text.resize(text.size() - kPasteEnds.size());
  std::erase_if(text, [](wchar_t c) { return (c < L' ' && c != L'\n' && c != L'\t') || c == 127; });
  if (!text.empty() && el_insertstr(edit, utf8_of(text).c_str()) != 0) return CC_ERROR;
  return CC_REFRESH;
}

// Bound to Tab: what all continuations have in common; of several without that, the list.
unsigned char complete_line(EditLine* edit, int) {
  const LineInfo* info = el_line(edit);
  const std::string line(info->buffer, info->cursor);
  std::vector<std::string> words;
  if (wait_of(edit).words) words = wait_of(edit).words(line);
  std::erase_if(words, [&](const std::string& word) { return !word.starts_with(line); });
  if (words.empty()) return CC_ERROR;
  std::string common = words.front();
  for (const std::string& word : words) {
    const auto differs = std::ranges::mismatch(common, word).in1;
    common.erase(differs, common.end());
  }
  if (common.size() > line.size()) {
    return el_insertstr(edit, common.c_str() + line.size()) == 0 ? CC_REFRESH : CC_ERROR;
  }
  std::string list = "\n";
  for (const std::string& word : words) list += word + "\n";
  put_err(list);
  return CC_REDISPLAY;
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
void write_terminal(const char* text) {
  pollfd out{STDERR_FILENO, POLLOUT, 0};
  if (poll(&out, 1, 0) == 1 && (out.revents & POLLOUT) != 0) write_err(text);
}

bool terminal_pastes() {
  const char* kind = std::getenv("TERM");
  return kind && *kind && std::strcmp(kind, "dumb") != 0;
}

[[noreturn]] void refuse_length() {
  throw Error(FRT_ERR_OUT_OF_RANGE, "a line has more than " +
                                        std::to_string(LineReader::kMostBytes) +
                                        " bytes and was skipped; send less at a time");
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
  read_settings(editor_->edit);  // these may replace all bindings
  // The wide calls keep the words that they are given; the others keep copies that el_end()
  // forgets.
  el_wset(editor_->edit, EL_ADDFN, L"frt-paste", L"Insert a pasted text", insert_paste);
  el_set(editor_->edit, EL_BIND, kPasteBegins, "frt-paste", nullptr);
  el_wset(editor_->edit, EL_ADDFN, L"frt-complete", L"Complete a command", complete_line);
  el_set(editor_->edit, EL_BIND, "\t", "frt-complete", nullptr);
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

void LineReader::complete_with(
    std::function<std::vector<std::string>(std::string_view line)> words) {
  if (editor_) editor_->wait.words = std::move(words);
}

LineReader::Outcome LineReader::read(const std::string& prompt, std::string& line) {
  return editor_ ? read_edited(prompt, line) : read_plain(line);
}

LineReader::Outcome LineReader::read_edited(const std::string& prompt, std::string& line) {
  // Takes the terminal before the prompt is shown: what is typed at the prompt is the editor's.
  el_set(editor_->edit, EL_PREP_TERM, 1);
  int typed_ahead = 0;
  if (ioctl(STDIN_FILENO, FIONREAD, &typed_ahead) != 0) typed_ahead = 0;
  Wait& wait = editor_->wait;
  wait.prompt = prompt;
  wait.interrupted = wait.broken = wait.too_long = false;
  wait.typed_ahead = typed_ahead;
  int count = 0;
  const bool pastes = terminal_pastes();
  if (pastes) write_terminal(kAskForPaste);
  const char* text = el_gets(editor_->edit, &count);
  if (pastes) write_terminal(kEndPaste);
  if (editor_->wait.interrupted) {
    el_reset(editor_->edit);
    write_terminal("\n");
    return Outcome::kInterrupted;
  }
  if (!text || count <= 0) return Outcome::kEnd;
  if (editor_->wait.broken) {
    throw Error(FRT_ERR_INVALID_ARGUMENT,
                "what was typed is not valid UTF-8; set the terminal to UTF-8");
  }
  if (editor_->wait.too_long) refuse_length();
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
      refuse_length();
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
