// SPDX-License-Identifier: Apache-2.0
// device_survey.hpp - what every backend plugin sees, without opening a device: for `devices` and
// `doctor`.
#pragma once

#include <frt/backend.h>
#include <frt/device_status.h>
#include <frt/core/log.hpp>
#include <frt/core/registry.hpp>

#include <string>
#include <vector>

namespace frt::host {

// What a backend reports about a device (frt_device_status_v1).
struct SurveyedFact {
  std::string subject, fact, advice;
};

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

// Opens every usable backend plugin and asks it. A plugin that fails is a row with its problem.
// `with_facts`: also for what it reports about its devices, which may take a second.
Survey survey_devices(core::Registry& registry, core::Log& log, bool with_facts = false);

}  // namespace frt::host
