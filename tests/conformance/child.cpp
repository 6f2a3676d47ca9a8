// SPDX-License-Identifier: Apache-2.0
#include "child.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <frt/core/child_process.hpp>
#include <frt/error.hpp>
#include <frt/io/file.hpp>
#include <frt/io/json.hpp>
#include <fstream>
#include <optional>
#include <string_view>
#include <thread>
#include <vector>

namespace frt::conformance {
namespace {

constexpr std::size_t kLongestMessage = 1 << 20;  // one line of a child
constexpr io::JsonLimits kMessageLimits{.bytes = kLongestMessage, .depth = 4};
constexpr std::size_t kLongestWords = 400;     // of its last line
constexpr std::chrono::seconds kKillLimit{5};  // for a process to end that was killed

// Signals that end a program from outside; the last one that came, or 0.
constexpr int kInterruptions[] = {SIGHUP, SIGINT, SIGTERM, SIGPIPE};
volatile std::sig_atomic_t interruption = 0;

struct Pipe {
  io::Descriptor read_end, write_end;
  Pipe() {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) {
      throw Error(FRT_ERR_IO, std::string("cannot make a pipe: ") + std::strerror(errno));
    }
    read_end = io::Descriptor(ends[0]);
    write_end = io::Descriptor(ends[1]);
    ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
  }
};

void write_all(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const ssize_t put = ::write(descriptor, text.data(), text.size());
    if (put <= 0 && errno != EINTR) return;
    if (put > 0) text.remove_prefix(static_cast<std::size_t>(put));
  }
}

// One line, whatever bytes its texts have.
std::string line_of(const Message& message) {
  return message.dump(-1, ' ', false, Message::error_handler_t::replace) + "\n";
}

// Nothing, if it is no message: a plugin may write into files that it has not opened.
std::optional<Message> message_of(std::string_view line) {
  try {
    Message message = io::parse_json(line, "message", kMessageLimits);
    if (message.is_object()) return message;
  } catch (const Error&) {
  }
  return std::nullopt;
}

[[noreturn]] void run(const std::function<void(const Send&)>& body, int answers, int output) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  for (const int number : kInterruptions) {
    struct sigaction before {};
    ::sigaction(number, nullptr, &before);
    if (before.sa_handler != SIG_IGN) ::signal(number, SIG_DFL);
  }
  ::setpgid(0, 0);
  const rlimit no_core{0, 0};
  ::setrlimit(RLIMIT_CORE, &no_core);
  std::fflush(nullptr);
  ::dup2(output, STDOUT_FILENO);
  ::dup2(output, STDERR_FILENO);
  // In a group of its own it cannot read from a terminal; nor is the caller's input the plugin's.
  const io::Descriptor nothing(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  ::dup2(nothing.get(), STDIN_FILENO);
  const pid_t self = ::getpid();
  const Send send = [&](const Message& message) {
    // A process that the plugin forked has nothing to say.
    if (::getpid() == self) write_all(answers, line_of(message));
  };
  try {
    body(send);
    send({{"done", true}});
  } catch (const std::exception& error) {
    send({{"stop", error.what()}});
  } catch (...) {
    send({{"stop", "an exception of unknown type"}});
  }
  // Ends as programs do: the destructors of the plugin and the sanitizers' last look belong to it.
  std::exit(0);
}

std::vector<pid_t> children() {
  std::ifstream list("/proc/self/task/" + std::to_string(::getpid()) + "/children");
  std::vector<pid_t> found;
  for (pid_t one = 0; list >> one;) found.push_back(one);
  return found;
}

// The children that this program had before it started one: of a shell, say, that became this
// program by `exec`. Nobody waits for them, so that no later process gets one of their numbers.
std::vector<pid_t>& inherited() {
  static std::vector<pid_t> kept;
  return kept;
}

// Kills what the child started and left behind, whatever group or session it is in. Not for ever:
// one may be inside a call of a driver that does not return.
void kill_orphans() {
  const auto end = std::chrono::steady_clock::now() + kKillLimit;
  while (std::chrono::steady_clock::now() < end) {
    bool found = false, ended = false;
    for (const pid_t one : children()) {
      if (std::find(inherited().begin(), inherited().end(), one) != inherited().end()) continue;
      found = true;
      ::kill(one, SIGKILL);
      if (::waitpid(one, nullptr, WNOHANG) > 0) ended = true;
    }
    if (!found) return;
    if (!ended) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

// What a child prints, shown as it comes.
class Output {
 public:
  void add(std::string_view text) {
    const std::string_view shown = text.substr(0, kMostOutput - std::min(kMostOutput, shown_));
    std::fwrite(shown.data(), 1, shown.size(), stderr);
    shown_ += shown.size();
    if (shown.size() < text.size() && !told_) {
      told_ = true;
      std::fprintf(stderr, "\n(the plugin prints more than %zu bytes: the rest is left out)\n",
                   kMostOutput);
    }
    end_.append(text);
    if (end_.size() > 2 * kLongestWords) end_.erase(0, end_.size() - 2 * kLongestWords);
  }
  // The last line, "; its last words: ..."; empty where it printed nothing.
  std::string words() const {
    std::string text = end_;
    text.erase(text.find_last_not_of(" \t\r\n") + 1);
    const std::size_t start = text.rfind('\n');
    if (start != std::string::npos) text.erase(0, start + 1);
    if (text.size() > kLongestWords) text.erase(0, text.size() - kLongestWords);
    return text.empty() ? text : "; its last words: " + text;
  }

 private:
  std::size_t shown_ = 0;
  bool told_ = false;
  std::string end_;
};

// The messages of a child, from the bytes of a pipe.
class Answers {
 public:
  explicit Answers(const Send& receive) : receive_(receive) {}
  bool done() const { return done_; }

  void add(std::string_view text) {
    bytes_.append(text);
    for (std::size_t end; (end = bytes_.find('\n')) != std::string::npos;) {
      const std::optional<Message> message = message_of(bytes_.substr(0, end));
      bytes_.erase(0, end + 1);
      if (!message) continue;
      if (message->contains("done")) {
        done_ = true;
      } else {
        done_ = message->contains("stop");
        receive_(*message);
      }
    }
    if (bytes_.size() > kLongestMessage) bytes_.clear();
  }

 private:
  const Send& receive_;
  std::string bytes_;
  bool done_ = false;  // it said its last
};

// Gives `sink` what can be read now; whether there was something.
template <class Sink>
bool drain(const io::Descriptor& from, Sink& sink) {
  bool any = false;
  char block[4096];
  // A bound: a child that prints without end must not keep this process from its clock.
  for (int i = 0; i < 64; ++i) {
    const ssize_t got = ::read(from.get(), block, sizeof(block));
    if (got <= 0) break;
    any = true;
    sink.add(std::string_view(block, static_cast<std::size_t>(got)));
  }
  return any;
}

}  // namespace

void adopt_orphans() {
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  // Inherited as ignored, the system would wait for the children and keep no status.
  ::signal(SIGCHLD, SIG_DFL);
  inherited() = children();
}

void note_interruptions() {
  for (const int number : kInterruptions) {
    struct sigaction before {};
    if (::sigaction(number, nullptr, &before) != 0 || before.sa_handler == SIG_IGN) continue;
    struct sigaction action {};
    action.sa_handler = [](int arrived) { interruption = arrived; };
    action.sa_flags = SA_RESTART;
    ::sigaction(number, &action, nullptr);
  }
}

ChildEnd run_in_child(const std::function<void(const Send&)>& body, const Send& receive,
                      double patience) {
  using Clock = std::chrono::steady_clock;
  Pipe answers, output;
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child < 0) throw Error(FRT_ERR_IO, std::string("cannot fork: ") + std::strerror(errno));
  if (child == 0) {
    // Flags of a file, such as whether it blocks, are shared with those who inherited it.
    ::close(answers.read_end.release());
    ::close(output.read_end.release());
    run(body, answers.write_end.get(), output.write_end.get());
  }
  ::setpgid(child, child);
  ::close(answers.write_end.release());
  ::close(output.write_end.release());

  Answers heard(receive);
  Output printed;
  auto last = Clock::now();
  bool hung = false;
  // The end of the process counts, not that of the pipes: what it forked may hold those open.
  for (;;) {
    const bool ended = core::child_has_ended(child);
    if (drain(answers.read_end, heard)) last = Clock::now();
    drain(output.read_end, printed);
    if (ended || interruption != 0) break;
    if (patience > 0 && std::chrono::duration<double>(Clock::now() - last).count() > patience) {
      hung = true;
      break;
    }
    // A pipe that has ended is always ready; then the child ends, too.
    pollfd polled[2] = {{answers.read_end.get(), POLLIN, 0}, {output.read_end.get(), POLLIN, 0}};
    ::poll(polled, 2, 20);
    if (((polled[0].revents | polled[1].revents) & POLLIN) == 0) ::usleep(1000);
  }
  const std::optional<int> waited = core::end_child(child, kKillLimit);
  kill_orphans();
  if (interruption != 0) throw Interrupted{interruption};
  drain(answers.read_end, heard);
  drain(output.read_end, printed);

  using How = ChildEnd::How;
  if (hung || !waited) {
    char limit[32];
    std::snprintf(limit, sizeof(limit), "%g s", patience);
    const char* stays = waited ? "" : "; SIGKILL does not end its process either";
    return {How::kHung, std::string("no end after ") + limit + stays + printed.words()};
  }
  const int status = *waited;
  if (WIFSIGNALED(status)) {
    return {How::kCrashed,
            std::string("signal ") + ::strsignal(WTERMSIG(status)) + printed.words()};
  }
  if (WEXITSTATUS(status) != 0 || !heard.done()) {
    return {How::kCrashed, "it ended the process with exit status " +
                               std::to_string(WEXITSTATUS(status)) + printed.words()};
  }
  return {};
}

}  // namespace frt::conformance
