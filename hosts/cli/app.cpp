// SPDX-License-Identifier: Apache-2.0
#include "cli/app.hpp"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <utility>

#include "cli/capsule_setup.hpp"
#include "cli/robot_setup.hpp"

namespace frt::host {
namespace {

constexpr const char* kFooter = R"(Examples:
  frt-host run demo.toml --prompt 'Once upon a time'
  frt-host chat demo.toml
  frt-host config check robot.toml

Exit status: 0 ok, 1 failed run, 2 usage, 3 manifest, 4 plugin refused, 5 device.
`frt-host COMMAND --help` explains a command, `frt-host --help-all` all of them.)";

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

}  // namespace

App::App(std::string program) : parser_("Runs models from a manifest.", std::move(program)) {
  parser_.require_subcommand(1);
  parser_.fallthrough();
  parser_.set_help_all_flag("--help-all", "Explain every command");
  parser_.footer(kFooter);
  parser_.add_option("--color", options_.color, "Colours and bars")
      ->check(CLI::IsMember({"auto", "on", "off"}))
      ->envname("FRT_COLOR")
      ->capture_default_str();
  parser_.add_option("--log-format", options_.log_format, "Log lines on stderr")
      ->check(CLI::IsMember({"text", "jsonl"}))
      ->envname("FRT_LOG_FORMAT")
      ->capture_default_str();
  parser_.add_option("--log-level", options_.log_level, "The least that is logged")
      ->check(CLI::IsMember({"debug", "info", "warning", "error"}))
      ->envname("FRT_LOG_LEVEL")
      ->capture_default_str();
  parser_.add_option("--plugin-dir", options_.plugin_folders, "Look for plugins here first")
      ->type_name("DIR")
      ->check(CLI::ExistingDirectory)
      ->allow_extra_args(false);
  parser_.add_option("--set", options_.sets, "Override a value: model.qwen.options.slots=2")
      ->type_name("PATH=VALUE")
      ->allow_extra_args(false);
  parser_.add_option("--lock", options_.lock, "Refuse plugins that differ from this frt.lock")
      ->type_name("FILE")
      ->envname("FRT_LOCK");
  parser_.add_flag("-q,--quiet", options_.quiet, "Only results, warnings and errors")
      ->envname("FRT_QUIET");
}

void App::add_command(CLI::App* command, std::function<ExitCode()> body) {
  // The library reads "-1" into an unsigned value as the largest one there is.
  const CLI::Validator not_negative(
      [](std::string& text) {
        return text.starts_with('-') ? text + " is below 0" : std::string();
      },
      "");
  for (CLI::Option* option : command->get_options({})) {
    if (option->get_type_name().starts_with("UINT")) option->check(not_negative);
  }
  command->callback([this, body = std::move(body)] { chosen_ = body; });
}

int App::run(int argc, char** argv) {
  const auto fail = [](ExitCode code, const std::string& text) {
    std::fputs(text.c_str(), stderr);
    std::fputc('\n', stderr);
    return static_cast<int>(code);
  };
  try {
    try {
      parser_.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
      // Help and version are "errors" with status 0 that print to stdout.
      return parser_.exit(error) == 0 ? 0 : static_cast<int>(ExitCode::kUsage);
    }
    return static_cast<int>(chosen_());
  } catch (const core::DiagnosticError& error) {
    // A manifest that is right but names a plugin that cannot be had is the plugin's fault.
    return fail(error.only_refused_plugins() ? ExitCode::kPlugin : ExitCode::kManifest,
                error.what());
  } catch (const ExitError& error) {
    return fail(error.exit_code(), std::string("error: ") + error.what());
  } catch (const Error& error) {
    const bool lost = error.status() == FRT_ERR_DEVICE_LOST;
    return fail(lost ? ExitCode::kDevice : ExitCode::kFailed,
                std::string("error: ") + error.what());
  } catch (const std::exception& error) {
    return fail(ExitCode::kFailed, std::string("error: ") + error.what());
  }
}

core::Log& App::log() {
  if (!log_) {
    core::LogOptions options;
    options.format =
        options_.log_format == "jsonl" ? core::LogFormat::kJsonLines : core::LogFormat::kText;
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
    registry_ = std::make_unique<core::Registry>(std::move(options));
  }
  return *registry_;
}

std::vector<core::HostSchema> App::host_schemas() {
  core::OptionSpec model;
  model.key = "model";
  model.doc = "the model to serve";
  model.reference = "model";
  core::OptionSpec listen;
  listen.key = "listen";
  listen.default_text = "127.0.0.1:8080";
  listen.doc = "address and port";
  return {lm_host_schema(),
          {.type = "http", .options = {listen, model}, .doc = "the HTTP server"},
          robot_host_schema()};
}

core::Manifest App::load_manifest(const std::string& path, const std::vector<std::string>& sets) {
  core::ManifestRequest request;
  request.hosts = host_schemas();
  request.sets = options_.sets;
  request.sets.insert(request.sets.end(), sets.begin(), sets.end());
  request.environment_names = core::process_environment_names();
  request.schemas = &registry();
  core::Manifest manifest = [&] {
    try {
      return core::load_manifest(path, request);
    } catch (const core::DiagnosticError&) {
      throw;
    } catch (const Error& error) {
      throw ExitError(ExitCode::kManifest, error.status(), error.what());
    }
  }();
  for (const core::Diagnostic& warning : manifest.warnings) {
    const std::string text = core::render(warning);
    if (warnings_.insert(text).second) log().write("", FRT_LOG_WARNING, text);
  }
  return manifest;
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
