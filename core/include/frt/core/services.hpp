// SPDX-License-Identifier: Apache-2.0
// services.hpp - what this host gives to its plugins: the exec table, the arenas, the log, and
// progress. One object for all plugins; it outlives them.
#pragma once

#include <frt/progress.h>
#include <frt/core/log.hpp>
#include <frt/error_sink.hpp>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

namespace frt::core {

// Receives progress of `source` (a plugin's id or a part of the program). Returns FRT_OK, or
// FRT_ERR_CANCELLED to stop the work. Called on any thread.
using ProgressSink = std::function<frt_status(std::string_view source, std::string_view phase,
                                              uint32_t unit, uint64_t done, uint64_t total)>;

class HostServices {
 public:
  // `log` is borrowed; `progress` may be empty.
  explicit HostServices(Log& log, ProgressSink progress = {})
      : log_(log), progress_(std::move(progress)), error_sink_(&HostServices::write_full, this) {}

  Log& log() noexcept { return log_; }
  // How long a setup call may show no progress before SetupWatch says so; set before plugins open.
  std::chrono::milliseconds setup_patience{std::chrono::seconds(30)};
  // How often progress was reported.  [any]
  uint64_t reports() const noexcept { return reports_.load(std::memory_order_relaxed); }
  // Reports progress; FRT_OK without a sink. What a sink throws becomes FRT_ERR_CALLBACK.  [any]
  frt_status report(std::string_view source, std::string_view phase, uint32_t unit, uint64_t done,
                    uint64_t total) noexcept;

 private:
  Log& log_;
  ProgressSink progress_;
  std::atomic<uint64_t> reports_{0};
  // Errors of core and the host itself; a plugin logs its own (frt/plugin.hpp).
  static void write_full(void* self, const char* text) {
    LogScope::current_or(static_cast<HostServices*>(self)->log_).write("core", FRT_LOG_ERROR, text);
  }
  ErrorSink error_sink_;
};

// While it lives a plugin is in setup calls, one after the other. If one shows no progress for the
// patience, one warning in the log names plugin and call: a call that hangs cannot be stopped, but
// nobody shall have to guess who it is. If the program ends inside such a call, for the plugin
// calls exit(), an error in the log names them, too, and the status is EXIT_FAILURE. What plugins
// say on this thread meanwhile goes to the watch's log (LogScope).  [setup]
class SetupWatch {
 public:
  // `plugin` and `call` outlive it. Progress and patience are those of `services`.
  SetupWatch(HostServices& services, const std::string& plugin, const char* call) noexcept;
  // Where no plugin can report progress yet.
  SetupWatch(Log& log, std::chrono::milliseconds patience, const std::string& plugin,
             const char* call) noexcept;
  ~SetupWatch();
  SetupWatch(const SetupWatch&) = delete;
  SetupWatch& operator=(const SetupWatch&) = delete;

  // The plugin is in `call` from now on, or got on in it: the time begins anew.
  void enter(const char* call) noexcept;

  // For a program that is its own: a signal that ends it inside a watched call is named with the
  // plugin and the call on stderr first. Handlers of others stay.  [setup]
  static void name_crashes() noexcept;

 private:
  static void at_exit() noexcept;
  static void at_crash(int number) noexcept;
  void start() noexcept;
  void run() noexcept;
  uint64_t reports() const noexcept { return services_ ? services_->reports() : 0; }

  Log& log_;
  const LogScope scope_{&log_};
  const HostServices* services_ = nullptr;
  const std::chrono::milliseconds patience_;
  const std::string& plugin_;
  std::mutex mutex_;
  std::condition_variable changed_;
  const char* call_;
  uint64_t entered_ = 0;
  bool done_ = false;
  SetupWatch* outer_ = nullptr;  // the one before of this thread
  std::thread thread_;
};

}  // namespace frt::core
