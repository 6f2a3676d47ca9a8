// SPDX-License-Identifier: Apache-2.0
#include "cli/app.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <new>
#include <set>
#include <string_view>
#include <utility>

#include "cli/terminal/interrupted.hpp"
#include "cli/terminal/load_view.hpp"
#include "cli/terminal/memory_reserve.hpp"
#include "cli/terminal/output.hpp"
#include "cli/terminal/signals.hpp"
#include "cli/terminal/table.hpp"
#include "runtime/http_settings.hpp"
#include "runtime/lm_settings.hpp"
#include "runtime/robot_settings.hpp"

namespace frt::host {
namespace {

constexpr std::string_view kError = "error: ", kIndent = "  ";
constexpr std::string_view kFormatOption = "--log-format", kJsonLines = "jsonl";

constexpr const char* kMore =
    R"(Exit status: 0 ok, 1 failed run, 2 usage, 3 manifest, 4 plugin refused, 5 device,
128 + a signal's number: interrupted by it, e.g. 130 by Ctrl-C.
`frt-host COMMAND --help` explains a command, `--help-all` all; share/frt/... is in the installation.)";

// Before the command line is parsed: what is wrong with it is said in the format that it asks for.
bool asks_for_json_lines(int argc, char** argv) {
  const char* environment = std::getenv("FRT_LOG_FORMAT");
  bool json = environment && environment == kJsonLines;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == "--") break;
    if (!word.starts_with(kFormatOption)) continue;
    const std::string_view rest = word.substr(kFormatOption.size());
    if (rest.empty() && i + 1 < argc) json = argv[i + 1] == kJsonLines;
    if (rest.starts_with('=')) json = rest.substr(1) == kJsonLines;
  }
  return json;
}

bool wants_color(const std::string& choice, int descriptor) {
  if (choice == "on") return true;
  if (choice == "off") return false;
  return std::getenv("NO_COLOR") == nullptr && isatty(descriptor) != 0;
}

frt_log_level log_level(const std::string& name) {
  if (name == "debug") return FRT_LOG_DEBUG;
  if (name == "warning") return FRT_LOG_WARNING;
  return name == "error" ? FRT_LOG_ERROR : FRT_LOG_INFO;
}

// An error as the program shows it. Names in it may hold line feeds: no line but the first begins
// where lines of the program begin.
std::string error_text(std::string_view what) {
  if (what.starts_with(kError)) return std::string(what);  // a finding, as core::render() shows it
  std::string text(kError);
  for (const char c : what) {
    text += c;
    if (c == '\n') text += kIndent;
  }
  return text;
}

// The commands, from the program's own downwards, that the command line named.
std::vector<std::string> named_commands(const Command& program) {
  std::vector<std::string> names;
  for (const Command& command : program.subcommands()) {
    if (!command.parsed()) continue;
    names.push_back(command.name());
    for (std::string& name : named_commands(command)) names.push_back(std::move(name));
  }
  return names;
}

[[noreturn]] void refuse_usage(const std::string& text) {
  throw ExitError(ExitCode::kUsage, FRT_ERR_INVALID_ARGUMENT, text);
}

// Options of all commands that would have no effect on this one.
void check_global_options(const GlobalOptions& options, const std::vector<std::string>& command) {
  static const std::set<std::string> kWithoutManifest = {"completion", "devices", "doctor",
                                                         "launch",     "plugins", "version"};
  const std::string& first = command.front();
  const std::string& last = command.back();
  const bool no_manifest = (kWithoutManifest.contains(first) && last != "show") ||
                           (first == "config" && (last == "default" || last == "schema"));
  if (no_manifest && !options.sets.empty()) {
    refuse_usage("--set changes a value of a manifest, and this command reads none; leave it out");
  }
  std::set<std::string> seen;
  for (const std::string& set : options.sets) {
    const std::string path = set.substr(0, set.find('='));
    if (!seen.insert(path).second) {
      refuse_usage("--set " + path + " is given twice; leave one of them out");
    }
  }
  // A lock that is to be written may not be there; who looks for what is wrong shows it himself.
  const bool writes_lock = first == "plugins" && last == "lock";
  if (!options.lock.empty() && !writes_lock && first != "doctor") {
    stage(ExitCode::kPlugin, [&] { core::read_lock(options.lock); });
  }
}

}  // namespace

App::App(std::string program) : command_line_("Runs models from a manifest.", std::move(program)) {
  Command command = command_line_.program();
  command.require_subcommand();
  command.examples(
      {"chat checkpoints/my-model", "run share/frt/manifests/demo.toml --prompt 'Once upon a time'",
       "config check my.toml"},
      kMore);
  command.add_option("--color", options_.color, "Choose when to use colours")
      .one_of({"auto", "on", "off"})
      .envname("FRT_COLOR")
      .capture_default_str();
  command
      .add_option("--log-format", options_.log_format, "Write log lines on stderr in this format")
      .one_of({"text", "jsonl"})
      .envname("FRT_LOG_FORMAT")
      .capture_default_str();
  command.add_option("--log-level", options_.log_level, "Show log lines of this level and above")
      .one_of({"debug", "info", "warning", "error"})
      .envname("FRT_LOG_LEVEL")
      .capture_default_str();
  command
      .add_option(
          "--plugin-dir", options_.plugin_folders,
          "Search this folder for plugins first; then those of FRT_PLUGIN_PATH (absolute folders "
          "with ':' between them), then lib/frt/plugins beside bin")
      .type_name("DIR")
      .existing_folder()
      .one_each();
  command
      .add_option("--set", options_.sets,
                  "Override a value of the manifest, e.g. model.qwen.options.slots=2")
      .type_name("PATH=VALUE")
      .one_each();
  command.add_option("--lock", options_.lock, "Refuse plugins that differ from this frt.lock")
      .type_name("FILE")
      .envname("FRT_LOCK");
  command
      .add_option("--setup-patience", options_.setup_patience,
                  "Show which plugin is silent for this many seconds while it starts")
      .type_name("SECONDS")
      .envname("FRT_SETUP_PATIENCE")
      .range(0.001, 86400.0)
      .capture_default_str();
  command.add_flag("-q,--quiet", options_.quiet, "Show only results, warnings and errors")
      .envname("FRT_QUIET");
}

void App::add_command(Command command, std::function<ExitCode()> body) {
  command.callback([this, body = std::move(body)] { chosen_ = body; });
}

int App::run(int argc, char** argv) {
  prepare_output();
  const bool json_lines = asks_for_json_lines(argc, argv);
  end_on_signals(!json_lines);
  fill_memory_reserve();
  if (json_lines) {
    options_.log_format = kJsonLines;
    log_stderr(&log());
  }
  const ExitCode status = guarded([&] {
    const auto done = command_line_.parse(argc, argv);
    if (done) return *done;
    log_.reset();  // it may have been made before its options were known
    log_stderr(options_.log_format == kJsonLines ? &log() : nullptr);
    color_tables(color_stdout());
    check_global_options(options_, named_commands(command_line_.program()));
    return chosen_();
  });
  const ExitCode closed = guarded([] {
    close_output();
    return ExitCode::kOk;
  });
  log_stderr(nullptr);
  return static_cast<int>(status == ExitCode::kOk ? closed : status);
}

// Runs `body`; what it throws is shown and becomes an exit status.
ExitCode App::guarded(const std::function<ExitCode()>& body) {
  const auto fail = [](ExitCode code, const std::string& text) {
    put_error(text);
    return code;
  };
  const auto say = [&](ExitCode code, const std::string& text) {
    return fail(code, error_text(text));
  };
  const auto failed = [&](ExitCode code, const Error& error) {
    const bool interrupted = error.status() == FRT_ERR_CANCELLED && interrupting_signal() != 0;
    return say(interrupted ? interrupted_status() : code, error.what());
  };
  try {
    return body();
  } catch (const core::DiagnosticError& error) {
    // A manifest that is right but names a plugin that cannot be had is the plugin's fault.
    return fail(error.only_refused_plugins() ? ExitCode::kPlugin : ExitCode::kManifest,
                error.what());
  } catch (const ExitError& error) {
    return failed(error.exit_code(), error);
  } catch (const Error& error) {
    const bool lost = error.status() == FRT_ERR_DEVICE_LOST;
    return failed(lost ? ExitCode::kDevice : ExitCode::kFailed, error);
  } catch (const std::bad_alloc&) {
    return say(ExitCode::kFailed,
               "there is not enough memory; end other programs, or raise the limit of this one "
               "(ulimit -v)");
  } catch (const std::exception& error) {
    return say(ExitCode::kFailed, error.what());
  }
}

core::Log& App::log() {
  if (!log_) {
    core::LogOptions options;
    options.format =
        options_.log_format == kJsonLines ? core::LogFormat::kJsonLines : core::LogFormat::kText;
    options.color = options_.color == "on"    ? core::LogColor::kOn
                    : options_.color == "off" ? core::LogColor::kOff
                                              : core::LogColor::kAuto;
    options.level = options_.quiet ? FRT_LOG_WARNING : log_level(options_.log_level);
    log_ = std::make_unique<core::Log>(options);
  }
  return *log_;
}

core::Registry& App::registry() {
  if (!registry_) {
    core::RegistryOptions options;
    for (const std::string& folder : options_.plugin_folders) {
      options.plugin_folders.emplace_back(folder);
    }
    if (!options_.lock.empty()) options.lock = options_.lock;
    options.log = &log();
    options.patience = setup_patience();
    registry_ = std::make_unique<core::Registry>(std::move(options));
  }
  return *registry_;
}

ManifestLoader& App::manifests() {
  if (!manifests_) {
    LoaderOptions options;
    options.hosts = {lm_host_kind(), http_host_kind(), robot_host_kind()};
    options.sets = options_.sets;
    options.environments = environments_.names();
    manifests_ = std::make_unique<ManifestLoader>(registry(), log(), std::move(options));
  }
  return *manifests_;
}

LoadObserver& App::load_view() {
  if (!load_view_) load_view_ = std::make_unique<LoadView>(draws_progress(), options_.quiet);
  return *load_view_;
}

bool App::color_stderr() const {
  return wants_color(options_.color, STDERR_FILENO);
}
bool App::color_stdout() const {
  return wants_color(options_.color, STDOUT_FILENO);
}

bool App::draws_progress() const {
  return !options_.quiet && options_.log_format == "text" && isatty(STDERR_FILENO) != 0;
}

}  // namespace frt::host
