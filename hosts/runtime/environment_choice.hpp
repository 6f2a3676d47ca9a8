// SPDX-License-Identifier: Apache-2.0
// environment_choice.hpp - what rollout and handoff act on: an [environment.NAME] of the manifest,
// which a plugin provides, or one that the program brings itself.
#pragma once

#include <frt/core/manifest.hpp>

#include <memory>
#include <string>

#include "robot/environment.hpp"
#include "robot/environment_registry.hpp"
#include "runtime/loaded_model.hpp"
#include "runtime/robot_settings.hpp"

namespace frt::host {

// The name of the one that is meant: `given` by the user, else what `settings` say, else the only
// one there is. Throws with exit status 2, or 3 for what is wrong in the manifest, with the names
// that there are.  [any]
std::string chosen_environment(const EnvironmentRegistry& own, const core::Manifest& manifest,
                               const RobotSettings& settings, const std::string& given);

// Makes it. A table of the manifest goes before an environment of the program of the same name.
// Throws what its plugin reports, with exit status 4 for a table that cannot be read.  [setup]
std::unique_ptr<Environment> make_environment(const EnvironmentRegistry& own,
                                              const LoadedModel& loaded, const std::string& name,
                                              const EnvironmentRequest& request);

// What `settings` say of ticks, at the environment's own pace where it has one: `hz` is left out or
// agrees. Throws, with exit status 3, if it does not.  [any]
TickOptions ticks_of(const RobotSettings& settings, const Environment& environment,
                     const std::string& name);

}  // namespace frt::host
