// SPDX-License-Identifier: Apache-2.0
#include "runtime/environment_choice.hpp"

#include <fmt/format.h>
#include <frt/core/diagnostic.hpp>
#include <frt/io/utf8.hpp>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "runtime/exit_code.hpp"
#include "runtime/plugin_environment.hpp"

namespace frt::host {

std::string chosen_environment(const EnvironmentRegistry& own, const core::Manifest& manifest,
                               const RobotSettings& settings, const std::string& given) {
  std::vector<std::string> names = own.names();
  for (const core::EnvironmentSpec& spec : manifest.environments) {
    if (std::ranges::find(names, spec.name) == names.end()) names.push_back(spec.name);
  }
  const std::string& wanted = given.empty() ? settings.environment : given;
  if (wanted.empty() && names.size() == 1) return names.front();
  if (std::ranges::find(names, wanted) != names.end()) return wanted;
  const std::string where = manifest.path.string();
  if (names.empty()) {
    throw ExitError(ExitCode::kManifest, FRT_ERR_NOT_FOUND,
                    fmt::format("{} has no environment; add a table [environment.{}] with the "
                                "plugin of one, e.g. plugin = \"frt.reach\"",
                                where, wanted.empty() ? "NAME" : io::printable(wanted)));
  }
  const std::string there = fmt::format("there are: {}", fmt::join(names, ", "));
  if (wanted.empty()) {
    throw ExitError(ExitCode::kUsage, FRT_ERR_INVALID_ARGUMENT,
                    where + " has several environments; choose one with --environment; " + there);
  }
  const std::string hint = core::did_you_mean(wanted, names);
  throw ExitError(ExitCode::kUsage, FRT_ERR_NOT_FOUND,
                  "no environment is called " + io::quote(wanted) +
                      (hint.empty() ? "" : " (" + hint + ")") + "; " + there);
}

std::unique_ptr<Environment> make_environment(const EnvironmentRegistry& own,
                                              const LoadedModel& loaded, const std::string& name,
                                              const EnvironmentRequest& request) {
  const core::Runtime& runtime = loaded.runtime();
  if (const core::EnvironmentSpec* spec = runtime.manifest().find_environment(name)) {
    const core::OpenPlugin& plugin = runtime.environment_plugin(name);
    stage(ExitCode::kPlugin, [&] { plugin.require<frt_environment_v1>(FRT_EXT_ENVIRONMENT); });
    return std::make_unique<PluginEnvironment>(plugin, name, spec->options, request);
  }
  if (const EnvironmentKind* kind = own.find(name)) return kind->make(request);
  throw Error(FRT_ERR_NOT_FOUND, "no environment is called " + io::quote(name));
}

TickOptions ticks_of(const RobotSettings& settings, const Environment& environment,
                     const std::string& name) {
  TickOptions ticks = settings.ticks;
  const double period = environment.period_s();
  if (period <= 0) return ticks;
  if (!settings.hz_given) {
    ticks.hz = 1 / period;
  } else if (std::fabs(ticks.hz * period - 1) > 0.01) {
    throw ExitError(
        ExitCode::kManifest, FRT_ERR_MISMATCH,
        fmt::format("a step of the environment '{}' takes {:g} s, and [host.robot] says hz = {:g}; "
                    "leave hz out, or set it to {:g}",
                    name, period, ticks.hz, 1 / period));
  }
  return ticks;
}

}  // namespace frt::host
