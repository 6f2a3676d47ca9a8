// SPDX-License-Identifier: Apache-2.0
// app.hpp - the program as its commands see it: global options, the log, and the terminal.
//
// Results go to stdout; everything about the run (log, bars, summaries, errors) to stderr.
#pragma once

#include <frt/core/log.hpp>
#include <frt/core/registry.hpp>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cli/command_line.hpp"
#include "robot/environment_registry.hpp"
#include "runtime/exit_code.hpp"
#include "runtime/load_observer.hpp"
#include "runtime/manifest_loader.hpp"

namespace frt::host {

// Options that every command takes.
struct GlobalOptions {
  std::string color = "auto";       // auto | on | off; NO_COLOR counts as off for auto
  std::string log_format = "text";  // text | jsonl
  std::string log_level = "info";   // debug | info | warning | error
  std::vector<std::string> plugin_folders;
  std::vector<std::string> sets;  // path=value over the manifest
  std::string lock;               // frt.lock; empty: none
  double setup_patience = 30;     // seconds without progress before a plugin's call is named
  bool quiet = false;             // no bars, no summary, warnings and errors only
};

// What every command that loads a language model takes first, and how it chooses one.
inline constexpr const char* kManifestDoc =
    "Read this manifest (TOML), or this folder with a checkpoint";
inline constexpr const char* kModelDoc = "Choose this model of the manifest";

class App {
 public:
  explicit App(std::string program);

  // Parses the command line and runs the command. Never throws; prints errors. Results that could
  // not be written are an error, too.
  int run(int argc, char** argv);

  Command program() noexcept { return command_line_.program(); }
  const GlobalOptions& options() const noexcept { return options_; }

  // What a command's callback does is returned as exit status.
  void add_command(Command command, std::function<ExitCode()> body);

  // Made when first asked for, with the global options.
  core::Log& log();
  core::Registry& registry();
  // How long a plugin may be silent while it loads, opens or starts before the log names it.
  std::chrono::milliseconds setup_patience() const {
    return std::chrono::milliseconds(static_cast<int64_t>(options_.setup_patience * 1000));
  }
  // Reads manifests, with the user's --set over them.
  ManifestLoader& manifests();
  // Shows on stderr what a load does; its life is the program's.
  LoadObserver& load_view();
  // What rollout and handoff act on. A program that brings its own adds it before run().
  EnvironmentRegistry& environments() noexcept { return environments_; }

  bool color_stderr() const;
  bool color_stdout() const;
  // Bars are drawn: stderr is a terminal, not quiet, text log.
  bool draws_progress() const;

 private:
  static ExitCode guarded(const std::function<ExitCode()>& body);

  CommandLine command_line_;
  GlobalOptions options_;
  std::unique_ptr<core::Log> log_;
  std::unique_ptr<core::Registry> registry_;
  std::unique_ptr<ManifestLoader> manifests_;
  std::unique_ptr<LoadObserver> load_view_;
  EnvironmentRegistry environments_;
  std::function<ExitCode()> chosen_;
};

void add_commands(App& app);  // all of them

// Each command adds itself; one file per command.
void add_bench_command(App& app);
// `bench capsule`; returns what it does.
std::function<ExitCode()> add_bench_capsule(App& app, Command command);
void add_calibrate_command(App& app);
void add_capsule_command(App& app);
void add_capsule_check(App& app, Command capsule);  // `capsule check`
void add_chat_command(App& app);
void add_completion_command(App& app);
void add_config_command(App& app);
void add_devices_command(App& app);
void add_doctor_command(App& app);
void add_handoff_command(App& app);
void add_launch_command(App& app);
void add_plugins_command(App& app);
void add_replay_command(App& app);
void add_tokenize_command(App& app);
void add_rollout_command(App& app);
void add_run_command(App& app);
void add_serve_command(App& app);
void add_verify_command(App& app);
void add_version_command(App& app);

}  // namespace frt::host
