// SPDX-License-Identifier: Apache-2.0
// capsule_setup.hpp - from the table [host.lm] of a manifest to the capsules of a model.
#pragma once

#include <frt/core/manifest.hpp>

#include <filesystem>
#include <memory>
#include <string>

#include "cli/app.hpp"
#include "cli/loaded_model.hpp"
#include "lm/capsules/registry.hpp"
#include "lm/session.hpp"

namespace frt::host {

// What [host.lm] may say.
core::HostSchema lm_host_schema();

// What it says about `model`; the defaults where there is no such table.
struct CapsuleSettings {
  CapsuleOptions capsules;
  SessionOptions session;
};
CapsuleSettings capsule_settings(const core::Manifest& manifest, const std::string& model);

// The capsules of a model, with what is on the disk. Says on stderr what is wrong with the folder.
std::unique_ptr<CapsuleRegistry> open_capsules(App& app, const LmModel& model,
                                               const CapsuleOptions& options);

// Shows what the background met.
void show_notices(App& app, CapsuleRegistry& registry);

}  // namespace frt::host
