// SPDX-License-Identifier: Apache-2.0
// Opening a plugin, and the tables it gets. Each plugin has its own frt_host, so that log and
// progress know who speaks.
#include <frt/core/capsules.hpp>
#include <frt/core/exec_table.hpp>
#include <frt/core/plugin.hpp>
#include <frt/core/services.hpp>
#include <frt/core/state.hpp>

#include <fmt/format.h>

#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <shared_mutex>
#include <string_view>
#include <utility>
#include <vector>

namespace frt::core {

frt_status HostServices::report(std::string_view source, std::string_view phase, uint32_t unit,
                                uint64_t done, uint64_t total) noexcept {
  reports_.fetch_add(1, std::memory_order_relaxed);
  if (!progress_) return FRT_OK;
  try {
    return progress_(source, phase, unit, done, total);
  } catch (...) {
    return FRT_ERR_CALLBACK;
  }
}

namespace {

// The watch whose call this thread is in.
thread_local SetupWatch* innermost = nullptr;

}  // namespace

SetupWatch::SetupWatch(HostServices& services, const std::string& plugin, const char* call) noexcept
    : log_(services.log()),
      services_(&services),
      patience_(services.setup_patience),
      plugin_(plugin),
      call_(call) {
  start();
}

SetupWatch::SetupWatch(Log& log, std::chrono::milliseconds patience, const std::string& plugin,
                       const char* call) noexcept
    : log_(log), patience_(patience), plugin_(plugin), call_(call) {
  start();
}

// The thread lives no longer than the calls: nothing that a plugin does at setup meets threads of
// the host before and after them. It takes no signals.
void SetupWatch::start() noexcept {
  static const int registered = std::atexit([] { at_exit(); });
  static_cast<void>(registered);
  outer_ = std::exchange(innermost, this);
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::exception&) {
    done_ = true;  // without a thread nobody watches, and the call goes on
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void SetupWatch::at_exit() noexcept {
  if (!innermost) return;
  try {
    innermost->log_.write(innermost->plugin_, FRT_LOG_ERROR,
                          fmt::format("exit() was called inside its `{}`; a plugin must return an "
                                      "error and never end the process: leave it out",
                                      innermost->call_));
  } catch (...) {
    // The log has no memory for it; the status tells.
  }
  std::fflush(nullptr);
  ::_exit(EXIT_FAILURE);
}

namespace {

struct Crash {
  int number;
  const char* name;
};
constexpr Crash kCrashes[] = {{SIGSEGV, "SIGSEGV"},
                              {SIGBUS, "SIGBUS"},
                              {SIGILL, "SIGILL"},
                              {SIGFPE, "SIGFPE"},
                              {SIGABRT, "SIGABRT"}};

}  // namespace

// Only what a signal handler may call. The handler is gone by then, so that the signal ends the
// program as it would have without.
void SetupWatch::at_crash(int number) noexcept {
  if (innermost) {
    const auto put = [](const char* text) {
      [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text, std::strlen(text));
    };
    put("error: plugin ");
    put(innermost->plugin_.c_str());
    for (const Crash& crash : kCrashes) {
      if (crash.number != number) continue;
      put(": ");
      put(crash.name);
    }
    put(" inside its `");
    put(innermost->call_);
    put("`; leave the plugin out, or ask its author for a fix\n");
  }
  ::raise(number);
}

void SetupWatch::name_crashes() noexcept {
  for (const Crash& crash : kCrashes) {
    struct sigaction before {};
    if (::sigaction(crash.number, nullptr, &before) != 0 || before.sa_handler != SIG_DFL) continue;
    struct sigaction action {};
    action.sa_handler = at_crash;
    action.sa_flags = static_cast<int>(SA_RESETHAND | SA_NODEFER | SA_ONSTACK);
    ::sigaction(crash.number, &action, nullptr);
  }
}

SetupWatch::~SetupWatch() {
  for (SetupWatch** at = &innermost; *at; at = &(*at)->outer_) {
    if (*at != this) continue;
    *at = outer_;
    break;
  }
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    done_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void SetupWatch::enter(const char* call) noexcept {
  {
    const std::lock_guard lock(mutex_);
    call_ = call;
    ++entered_;
  }
  changed_.notify_one();
}

void SetupWatch::run() noexcept {
  std::unique_lock lock(mutex_);
  while (!done_) {
    const uint64_t entered = entered_, reported = reports();
    const auto over = [&] { return done_ || entered_ != entered; };
    if (changed_.wait_for(lock, patience_, over) || reports() != reported) continue;
    try {
      log_.write(plugin_, FRT_LOG_WARNING,
                 fmt::format("its `{}` has not returned for {} s and reports no progress; if it "
                             "hangs, end this program and leave the plugin out",
                             call_, std::chrono::duration<double>(patience_).count()));
    } catch (...) {
      return;  // out of memory while logging: the call goes on
    }
    changed_.wait(lock, over);
  }
}

struct OpenPlugin::HostView {
  // The host, while it is there: threads of a plugin that is never closed may outlive it.
  std::shared_mutex ending;
  HostServices* services;
  std::string id;
  frt_log_v1 log{};
  frt_progress_v1 progress{};
  frt_host host{};

  HostView(HostServices& host_services, std::string plugin_id)
      : services(&host_services), id(std::move(plugin_id)) {
    log = {sizeof(frt_log_v1), 0, this, &HostView::write};
    progress = {sizeof(frt_progress_v1), 0, this, &HostView::report};
    host = {sizeof(frt_host), FRT_ABI_MAJOR, FRT_ABI_MINOR, this, &HostView::extension};
  }

  static void write(void* self, const char* source, frt_log_level level, const char* text) {
    auto& view = *static_cast<HostView*>(self);
    try {
      const std::shared_lock lock(view.ending);
      if (!view.services) return;
      // A plugin has one object for each host. An error of one may come through the other's table.
      Log& log = LogScope::current_or(view.services->log());
      if (!log.shows(level)) return;
      const bool part = source && *source && view.id != source;
      log.write(part ? view.id + "/" + source : view.id, level, text ? text : "");
    } catch (...) {
      // Out of memory while logging: the message is lost, the work goes on.
      return;
    }
  }

  static frt_status report(void* self, const char* phase, uint32_t unit, uint64_t done,
                           uint64_t total) {
    auto& view = *static_cast<HostView*>(self);
    const std::shared_lock lock(view.ending);
    if (!view.services) return FRT_OK;
    return view.services->report(view.id, phase ? phase : "", unit, done, total);
  }

  static const void* extension(void* self, const char* id) {
    const auto& view = *static_cast<HostView*>(self);
    const std::string_view name = id ? id : "";
    if (name == FRT_EXT_LOG) return &view.log;
    if (name == FRT_EXT_PROGRESS) return &view.progress;
    return core_table(name);
  }
};

const void* core_table(std::string_view id) noexcept {
  if (id == FRT_EXT_EXEC) return exec_table();
  if (id == FRT_EXT_PLAN) return plan_draft();
  if (id == FRT_EXT_GRAPH) return graph_draft();
  if (id == FRT_EXT_STATE) return state_table();
  if (id == FRT_EXT_CAPSULES) return capsules_table();
  return nullptr;
}

OpenPlugin::OpenPlugin(const LoadedPlugin& loaded, const Config& options, HostServices& services)
    : loaded_(loaded),
      options_(options),
      host_(std::make_unique<HostView>(services, loaded.card.id)) {
  const Card& card = loaded.card;
  if (card.abi_minor > FRT_ABI_MINOR) {
    services.log().write(card.id, FRT_LOG_INFO,
                         fmt::format("built for ABI {}.{}, used as {}.{}: what came later is not "
                                     "used",
                                     card.abi_major, card.abi_minor, FRT_ABI_MAJOR, FRT_ABI_MINOR));
  }
  frt_error error{};
  frt_plugin plugin = nullptr;
  const auto alone = lock_plugin_setup();
  const SetupWatch watching = watch("open");
  const frt_status status = contain(sender(), "open", [&] {
    return loaded.descriptor->open(&host_->host, options.c(), &plugin, &error);
  });
  check(status, error, sender());
  if (!plugin) {
    throw Error(FRT_ERR_INTERNAL, sender() + ": open reported success but made no object");
  }
  plugin_ = plugin;
}

SetupWatch OpenPlugin::watch(const char* call) const {
  return SetupWatch(*host_->services, loaded_.card.id, call);
}

OpenPlugin::~OpenPlugin() {
  const auto alone = lock_plugin_setup();
  end("close", [&] { loaded_.descriptor->close(plugin_); });
}

void OpenPlugin::keep_open(std::unique_ptr<OpenPlugin> plugin) noexcept {
  static auto* const kKept = new std::vector<std::unique_ptr<OpenPlugin>>;
  const auto alone = lock_plugin_setup();
  {
    const std::unique_lock lock(plugin->host_->ending);
    plugin->host_->services = nullptr;
  }
  try {
    kKept->push_back(std::move(plugin));
  } catch (const std::bad_alloc&) {
    static_cast<void>(plugin.release());
  }
}

void OpenPlugin::end(const char* call, const std::function<void()>& run) const noexcept {
  const SetupWatch watching = watch(call);
  const auto thrown = [&](const char* what) noexcept {
    try {
      host_->services->log().write(loaded_.card.id, FRT_LOG_ERROR,
                                   "its `" + std::string(call) + "` threw across the ABI: " + what +
                                       "; ask its author for a fix");
    } catch (...) {
      // The log has no memory for it.
    }
  };
  try {
    run();
  } catch (const std::exception& error) {
    thrown(error.what());
  } catch (...) {
    thrown("an exception of unknown type");
  }
}

}  // namespace frt::core
