// SPDX-License-Identifier: Apache-2.0
// A trial in a child process.
//
// The child is a fork: it loads the file, checks the descriptor, asks for the option schema, writes
// a verdict into a pipe and leaves with _exit. What its constructors print to stderr goes into a
// second pipe, for the last line of it is usually the reason of an abort. The parent waits with a
// limit, and reads both pipes meanwhile so that a talkative child cannot block.
//
// Loading must leave no process behind: it would run beside the host as well, and a fork that goes
// on where it began would be a second host. The child adopts orphans (a daemon is one), so that it
// finds and ends them. The parent ends the child's process group. It does not wait for whoever else
// has the pipes, nor without a limit for a child that a driver holds.
//
// Verdict: 'E' as soon as the plugin is asked for its schema; 'O' for fine, and a line for each
// file that loading it mapped; 'R' and the reason for refused. Neither of the two: it crashed.
#include <frt/core/child_process.hpp>
#include <frt/core/plugin.hpp>
#include <frt/io/file.hpp>

#include "plugin/plugin_file.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <link.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>
#include <optional>

namespace frt::core {

namespace {

constexpr std::size_t kKeptOutput = 16384;
constexpr std::size_t kMostMapped = kKeptOutput / 2;  // bytes of a verdict
constexpr std::size_t kPipeBytes = 65536;             // what a pipe of Linux holds
constexpr int kCheckEvery = 50;                       // ms; whether a child whose pipes stay ended

struct Pipe {
  io::Descriptor read_end, write_end;
  static Pipe make() {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) {
      throw Error(FRT_ERR_IO, std::string("cannot make a pipe: ") + std::strerror(errno));
    }
    return {io::Descriptor(ends[0]), io::Descriptor(ends[1])};
  }
};

void write_all(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const ssize_t put = ::write(descriptor, text.data(), text.size());
    if (put <= 0 && errno != EINTR) return;
    if (put > 0) text.remove_prefix(static_cast<std::size_t>(put));
  }
}

// The files that are mapped now, by the dynamic linker's word.
std::vector<std::string> mapped_files() {
  std::vector<std::string> files;
  ::dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* list) {
        if (info->dlpi_name && info->dlpi_name[0] == '/') {
          static_cast<std::vector<std::string>*>(list)->emplace_back(info->dlpi_name);
        }
        return 0;
      },
      &files);
  return files;
}

// "O", and the files that were not mapped before; without them if they are too many to tell.
std::string good_verdict(const std::vector<std::string>& before) {
  std::string text = "O";
  for (const std::string& file : mapped_files()) {
    if (std::find(before.begin(), before.end(), file) == before.end()) text += "\n" + file;
  }
  return text.size() > kMostMapped ? "O" : text;
}

std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    if (end != 0) lines.emplace_back(text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  return lines;
}

// Ends the children of one thread of this process, as many as are read at once; false: it has none.
bool end_children_of(int tasks, const char* thread) {
  const std::string path = std::string(thread) + "/children";
  const io::Descriptor file(::openat(tasks, path.c_str(), O_RDONLY | O_CLOEXEC));
  char block[4096];
  const ssize_t got = ::read(file.get(), block, sizeof(block));
  // Numbers with a blank behind each.
  std::string_view list(block, got > 0 ? static_cast<std::size_t>(got) : 0);
  list = list.substr(0, list.rfind(' ') + 1);
  bool any = false;
  for (const char *at = list.data(), *end = at + list.size(); at < end; ++at, any = true) {
    pid_t child = 0;
    at = std::from_chars(at, end, child).ptr;
    if (child > 0) ::kill(child, SIGKILL);
  }
  return any;
}

// A child belongs to the thread that started it, or, when that has ended, to another one.
bool end_children_of_threads() {
  const std::unique_ptr<DIR, int (*)(DIR*)> tasks(::opendir("/proc/self/task"), ::closedir);
  bool any = false;
  while (const dirent* entry = tasks ? ::readdir(tasks.get()) : nullptr) {
    if (entry->d_name[0] != '.') any |= end_children_of(::dirfd(tasks.get()), entry->d_name);
  }
  return any;
}

// True if this process has children, running or ended. All of them are ended.
bool end_children() {
  siginfo_t info{};
  if (::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0) return false;
  for (;;) {
    const bool any = end_children_of_threads();
    // Those of a child come to this process when it ends.
    const pid_t ended = ::waitpid(-1, nullptr, any ? 0 : WNOHANG);
    if (ended < 0 && errno == EINTR) continue;
    if (ended <= 0) return true;
  }
}

[[noreturn]] void run_child(const std::filesystem::path& path, int verdict, int output) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  ::setpgid(0, 0);
  const pid_t self = ::getpid();
  const rlimit no_core{0, 0};
  ::setrlimit(RLIMIT_CORE, &no_core);
  // The host's handlers are not for the child: a crash is to be a crash.
  // With SIGCHLD ignored the system would take the children that end_children() looks for.
  for (const int number : {SIGABRT, SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTERM, SIGINT, SIGCHLD}) {
    ::signal(number, SIG_DFL);
  }
  ::dup2(output, STDOUT_FILENO);
  ::dup2(output, STDERR_FILENO);
  std::string line;
  try {
    const PluginImage image = read_image(path);
    const std::vector<std::string> before = mapped_files();
    const frt_plugin_desc descriptor =
        read_descriptor(*map_plugin(path, io::Descriptor()), image.card);
    if (::getpid() != self) ::_exit(0);  // a fork of the plugin's: the verdict is not its own
    write_all(verdict, "E");
    ask_schema(descriptor, image.card.id);
    line = good_verdict(before);
  } catch (const std::exception& error) {
    line = std::string("R") + error.what();
  } catch (...) {
    line = "Rloading it threw an exception of unknown type";
  }
  if (::getpid() != self) ::_exit(0);
  if (end_children() && line[0] == 'O') {
    line = "Rloading it started a process that stays; start none before `open`";
  }
  write_all(verdict, line);
  ::_exit(0);
}

void keep(std::string& kept, std::string_view more) {
  kept.append(more);
  if (kept.size() > kKeptOutput) kept.erase(0, kept.size() - kKeptOutput);
}

// Appends what can be read; false at the end.
bool drain(int descriptor, std::string& kept) {
  char block[4096];
  const ssize_t got = ::read(descriptor, block, sizeof(block));
  if (got < 0) return errno == EINTR || errno == EAGAIN;
  if (got == 0) return false;
  keep(kept, {block, static_cast<std::size_t>(got)});
  return true;
}

// What a pipe holds now, though somebody may still write into it.
void drain_rest(int descriptor, std::string& kept) {
  ::fcntl(descriptor, F_SETFL, O_NONBLOCK);
  char block[kPipeBytes];
  const ssize_t got = ::read(descriptor, block, sizeof(block));
  if (got > 0) keep(kept, {block, static_cast<std::size_t>(got)});
}

// Reads both pipes until both end, the child does, or the time is over; false if it is over.
bool read_both(pid_t child, int verdict, int output, std::string& line, std::string& text,
               std::chrono::steady_clock::time_point limit) {
  pollfd polled[2] = {{verdict, POLLIN, 0}, {output, POLLIN, 0}};
  std::string* const sinks[2] = {&line, &text};
  int open_ends = 2;
  while (open_ends > 0) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
                          limit - std::chrono::steady_clock::now())
                          .count();
    if (left <= 0) return false;
    const bool last = child_has_ended(child);
    const auto patience = static_cast<int>(std::min<long long>(left, kCheckEvery));
    const int ready = ::poll(polled, 2, last ? 0 : patience);
    if (ready < 0 && errno != EINTR) return false;
    if (last) {
      for (int i = 0; i < 2; ++i) {
        if (polled[i].fd >= 0) drain_rest(polled[i].fd, *sinks[i]);
      }
      return true;
    }
    for (int i = 0; i < 2 && ready > 0; ++i) {
      if (polled[i].fd < 0 || polled[i].revents == 0) continue;
      if (!drain(polled[i].fd, *sinks[i])) {
        polled[i].fd = -1;
        --open_ends;
      }
    }
  }
  return true;
}

std::string last_line(std::string text) {
  text.erase(text.find_last_not_of(" \t\r\n") + 1);
  const std::size_t start = text.rfind('\n');
  if (start != std::string::npos) text.erase(0, start + 1);
  return text.substr(0, 200);
}

}  // namespace

ProbeResult probe_in_child(const std::filesystem::path& path, std::chrono::milliseconds timeout,
                           std::chrono::milliseconds end_limit) {
  const auto alone = lock_plugin_setup();
  Pipe verdict = Pipe::make();
  Pipe output = Pipe::make();
  const auto limit = std::chrono::steady_clock::now() + timeout;
  const pid_t child = ::fork();
  if (child < 0) {
    throw Error(FRT_ERR_IO, std::string("cannot fork for a trial: ") + std::strerror(errno));
  }
  if (child == 0) run_child(path, verdict.write_end.get(), output.write_end.get());
  ::close(verdict.write_end.release());
  ::close(output.write_end.release());
  std::string line, text;
  const bool ended =
      read_both(child, verdict.read_end.get(), output.read_end.get(), line, text, limit);
  // With its group; what it did is decided by now.
  const std::optional<int> waited = end_child(child, end_limit);
  const bool asked = line.starts_with('E');
  if (asked) line.erase(0, 1);
  const bool lost = waited == kStatusLost;  // then the verdict, the last that it wrote, decides
  if (!line.empty() && waited && (lost || WIFEXITED(*waited))) {
    if (line[0] == 'O') return {ProbeVerdict::kOk, "loads", lines_of(line.substr(1))};
    return {ProbeVerdict::kRefused, line.substr(1), {}};
  }
  const std::string said = last_line(text);
  const std::string suffix = said.empty() ? "" : "; its last words: " + said;
  const std::string what = asked ? "its `extension` (" FRT_EXT_CONFIG_SCHEMA ")" : "loading it";
  if (!waited) {
    return {ProbeVerdict::kTimeout,
            what +
                " left a process that does not end although it was killed: a call of a driver "
                "that does not return holds it; look at the kernel's log" +
                suffix,
            {}};
  }
  const int status = *waited;
  if (!ended) {
    return {ProbeVerdict::kTimeout,
            what + " took longer than " + std::to_string(timeout.count()) + " ms" + suffix,
            {}};
  }
  if (lost) {
    return {ProbeVerdict::kCrashed,
            what +
                " ended the process; how is not known, for this program ignores SIGCHLD or waits "
                "for the children of others" +
                suffix,
            {}};
  }
  if (WIFSIGNALED(status)) {
    return {ProbeVerdict::kCrashed,
            what + " ended the process with signal " + ::strsignal(WTERMSIG(status)) + suffix,
            {}};
  }
  return {
      ProbeVerdict::kCrashed,
      what + " ended the process with exit status " + std::to_string(WEXITSTATUS(status)) + suffix,
      {}};
}

}  // namespace frt::core
