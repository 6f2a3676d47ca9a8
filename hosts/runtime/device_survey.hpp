// SPDX-License-Identifier: Apache-2.0
// device_survey.hpp - what every backend plugin sees: for `devices`, without opening a device, and
// for `doctor`.
#pragma once

#include <frt/backend.h>
#include <frt/device_status.h>
#include <frt/core/log.hpp>
#include <frt/core/registry.hpp>
#include <frt/draft/kernel_variants.hpp>

#include <chrono>

#include <string>
#include <vector>

#include "runtime/plugin_reports.hpp"

namespace frt::host {

struct SurveyedDevice {
  std::string plugin;  // id
  uint32_t ordinal = 0;
  frt_device_info info{};
  std::vector<SurveyedFact> facts;  // only where asked for
};

struct SurveyedPlugin {
  std::string id;
  uint32_t devices = 0;
  std::string problem;  // why there is none; empty if there is one
};

struct Survey {
  std::vector<SurveyedDevice> devices;
  std::vector<SurveyedPlugin> plugins;  // all usable backends
  // What `backend = "auto"` means for ordinal 0: the id, or empty and the reason.
  std::string automatic, automatic_reason;
  std::vector<std::string> automatic_others;
};

struct SurveyOptions {
  bool with_facts = false;  // also what a plugin reports about its devices; may take a second
  // How long a plugin may be silent in a call before the log names it.
  std::chrono::milliseconds setup_patience{std::chrono::seconds(30)};
};

// Opens every usable backend plugin and asks it. A plugin that fails is a row with its problem.
// [setup]
Survey survey_devices(core::Registry& registry, core::Log& log, const SurveyOptions& options = {});

// The kernel variants of a device that the survey found, as its plugin lists them
// (frt/draft/kernel_variants.h): opens the device. Empty: the plugin does not list them. Throws
// what opening answers.  [setup]
std::vector<KernelVariant> survey_variants(core::Registry& registry, core::Log& log,
                                           const std::string& plugin, uint32_t ordinal,
                                           const SurveyOptions& options = {});

}  // namespace frt::host
