// SPDX-License-Identifier: Apache-2.0
#include "cli/line_reader.hpp"

#include <histedit.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iostream>

namespace frt::host {

struct LineReader::Editor {
  EditLine* edit = nullptr;
  History* history = nullptr;
  std::string file, prompt;
};

namespace {

constexpr int kHistorySize = 1000;

char* show_prompt(EditLine* edit) {
  void* data = nullptr;
  el_get(edit, EL_CLIENTDATA, &data);
  return static_cast<std::string*>(data)->data();
}

}  // namespace

LineReader::LineReader(std::string history) {
  if (!isatty(STDIN_FILENO) || !isatty(STDERR_FILENO)) return;
  editor_ = std::make_unique<Editor>();
  editor_->file = std::move(history);
  editor_->edit = el_init("frt-host", stdin, stderr, stderr);
  editor_->history = history_init();
  HistEvent event;
  ::history(editor_->history, &event, H_SETSIZE, kHistorySize);
  ::history(editor_->history, &event, H_SETUNIQUE, 1);
  if (!editor_->file.empty()) {
    ::history(editor_->history, &event, H_LOAD, editor_->file.c_str());
  }
  el_set(editor_->edit, EL_CLIENTDATA, &editor_->prompt);
  el_set(editor_->edit, EL_PROMPT, show_prompt);
  el_set(editor_->edit, EL_EDITOR, "emacs");
  el_set(editor_->edit, EL_HIST, ::history, editor_->history);
  el_set(editor_->edit, EL_SIGNAL, 0);
  el_source(editor_->edit, nullptr);
}

LineReader::~LineReader() {
  if (!editor_) return;
  if (!editor_->file.empty()) {
    const mode_t before = umask(077);
    HistEvent event;
    ::history(editor_->history, &event, H_SAVE, editor_->file.c_str());
    umask(before);
  }
  history_end(editor_->history);
  el_end(editor_->edit);
}

bool LineReader::interactive() const noexcept {
  return editor_ != nullptr;
}

std::optional<std::string> LineReader::read(const std::string& prompt) {
  if (!editor_) {
    std::string line;
    if (!std::getline(std::cin, line)) return std::nullopt;
    return line;
  }
  editor_->prompt = prompt;
  int count = 0;
  errno = 0;
  const char* text = el_gets(editor_->edit, &count);
  if (!text || count <= 0) {
    if (errno != EINTR) return std::nullopt;
    el_reset(editor_->edit);
    std::fputc('\n', stderr);
    return std::string();
  }
  std::string line(text, static_cast<std::size_t>(count));
  while (!line.empty() && (line.back() == '\n' || line.back() == '\r')) line.pop_back();
  if (!line.empty()) {
    HistEvent event;
    ::history(editor_->history, &event, H_ENTER, line.c_str());
  }
  return line;
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
