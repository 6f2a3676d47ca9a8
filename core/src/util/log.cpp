// SPDX-License-Identifier: Apache-2.0
// spdlog writes; this file decides what a line looks like. Text from plugins never reaches a
// format string, and control characters in it cannot forge a second line.
#include <frt/core/log.hpp>
#include <frt/io/retry.hpp>
#include <frt/io/utf8.hpp>

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <spdlog/logger.h>
#include <spdlog/sinks/base_sink.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <chrono>
#include <cstdlib>
#include <ctime>
#include <mutex>
#include <utility>

namespace frt::core {

namespace {

// Lines to a file descriptor, each in one write, so that lines of several processes stay whole.
class DescriptorSink final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  explicit DescriptorSink(int descriptor) : descriptor_(descriptor) {}

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    std::string line(message.payload.data(), message.payload.size());
    line += '\n';
    std::string_view rest = line;
    while (!rest.empty()) {
      const ssize_t put =
          io::retried([&] { return ::write(descriptor_, rest.data(), rest.size()); });
      if (put <= 0) return;  // nobody is left to tell
      rest.remove_prefix(static_cast<std::size_t>(put));
    }
  }
  void flush_() override {}

 private:
  int descriptor_;
};

spdlog::level::level_enum spdlog_level(frt_log_level level) {
  switch (level) {
    case FRT_LOG_DEBUG:
      return spdlog::level::debug;
    case FRT_LOG_INFO:
      return spdlog::level::info;
    case FRT_LOG_WARNING:
      return spdlog::level::warn;
    default:
      return spdlog::level::err;
  }
}

const char* color_of(frt_log_level level) {
  switch (level) {
    case FRT_LOG_DEBUG:
      return "\x1b[2m";
    case FRT_LOG_INFO:
      return "";
    case FRT_LOG_WARNING:
      return "\x1b[33m";
    default:
      return "\x1b[31m";
  }
}

// A message may have several lines; they are indented. What a terminal obeys is escaped.
std::string tame(std::string_view text) {
  std::string tamed = io::printable(text, io::Keep::kLines);
  for (std::size_t at = 0; (at = tamed.find('\n', at)) != std::string::npos;) {
    tamed.replace(at, 1, "\n    ");
    at += 5;
  }
  return tamed;
}

}  // namespace

struct Log::State {
  LogOptions options;
  bool colored = false;
  spdlog::logger logger;
  explicit State(const LogOptions& o)
      : options(o), logger("frt", std::make_shared<DescriptorSink>(o.descriptor)) {
    colored =
        o.format == LogFormat::kText &&
        (o.color == LogColor::kOn ||
         (o.color == LogColor::kAuto && ::isatty(o.descriptor) != 0 && !std::getenv("NO_COLOR")));
    logger.set_level(spdlog_level(o.level));
  }
};

Log::Log(const LogOptions& options) : state_(std::make_unique<State>(options)) {}
Log::~Log() = default;

bool Log::shows(frt_log_level level) const noexcept {
  return state_->logger.should_log(spdlog_level(level));
}

void Log::write(std::string_view source, frt_log_level level, std::string_view text) noexcept {
  if (!shows(level)) return;
  try {
    if (state_->options.receiver) {
      return state_->options.receiver(level, io::printable(source, io::Keep::kLines),
                                      io::printable(text, io::Keep::kLines));
    }
    const auto now = std::chrono::system_clock::now();
    const auto ms =
        std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch()).count() %
        1000;
    const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
    std::string line;
    if (state_->options.format == LogFormat::kJsonLines) {
      // One text at a time: a tree of values would allocate when it is destroyed.
      const auto json_string = [](std::string_view part) {
        using Json = nlohmann::ordered_json;
        return Json(part).dump(-1, ' ', true, Json::error_handler_t::replace);
      };
      line = fmt::format(
          R"({{"time":"{:%Y-%m-%dT%H:%M:%S}.{:03}Z","level":{},"source":{},"text":{}}})",
          fmt::gmtime(seconds), ms, json_string(log_level_name(level)), json_string(source),
          json_string(text));
    } else {
      const char* color = state_->colored ? color_of(level) : "";
      line = fmt::format("{:%H:%M:%S}.{:03} {}{}{} {}: {}", fmt::localtime(seconds), ms, color,
                         log_level_name(level), *color ? "\x1b[0m" : "", tame(source), tame(text));
    }
    state_->logger.log(spdlog_level(level), spdlog::string_view_t(line.data(), line.size()));
  } catch (...) {
    // A log that fails must not stop the work it tells about.
    return;
  }
}

const char* log_level_name(frt_log_level level) noexcept {
  static constexpr const char* kNames[] = {
      "debug", "info", "warning", "error", "host misbehaving", "plugin misbehaving"};
  return level < std::size(kNames) ? kNames[level] : "?";
}

namespace {

thread_local Log* log_of_thread = nullptr;

}  // namespace

LogScope::LogScope(Log* log) noexcept : before_(std::exchange(log_of_thread, log)) {}

LogScope::~LogScope() {
  log_of_thread = before_;
}

Log* LogScope::current() noexcept {
  return log_of_thread;
}

}  // namespace frt::core
