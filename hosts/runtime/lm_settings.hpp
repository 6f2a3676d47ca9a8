// SPDX-License-Identifier: Apache-2.0
// lm_settings.hpp - from the table [host.lm] of a manifest to the capsules of a model.
#pragma once

#include <frt/core/log.hpp>
#include <frt/core/manifest.hpp>

#include <memory>
#include <string>

#include "lm/capsules/registry.hpp"
#include "lm/lm_model.hpp"
#include "lm/session.hpp"
#include "runtime/manifest_loader.hpp"

namespace frt::host {

// What [host.lm] may say.
HostKind lm_host_kind();

// What it says about `model`; the defaults where there is no such table.
struct CapsuleSettings {
  CapsuleOptions capsules;
  SessionOptions session;
};
CapsuleSettings capsule_settings(const core::Manifest& manifest, const std::string& model);

// Checks the sampling values that the checkpoints of `manifest` bring (generation_config.json),
// without a device: throws core::DiagnosticError with every model whose file no run could use.
// [setup]
void check_generation_configs(const core::Manifest& manifest);

// The capsules of a model, with what is on the disk. Logs what is wrong with the folder.  [setup]
std::unique_ptr<CapsuleRegistry> open_capsules(core::Log& log, const LmModel& model,
                                               const CapsuleOptions& options);

// Logs what the background met.
void show_notices(core::Log& log, CapsuleRegistry& registry);

}  // namespace frt::host
