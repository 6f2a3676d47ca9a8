// SPDX-License-Identifier: Apache-2.0
// robot_settings.hpp - the table [host.robot] of a manifest, and what it comes to.
#pragma once

#include <frt/core/manifest.hpp>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "robot/control/latency.hpp"
#include "robot/control/realtime.hpp"
#include "robot/control/tick_loop.hpp"
#include "robot/environment_registry.hpp"
#include "robot/policy_model.hpp"
#include "robot/service/policy_service.hpp"
#include "robot/service/server.hpp"
#include "runtime/loaded_model.hpp"

namespace frt::host {

// Everything [host.robot] can say. Without such a table all values are the defaults.
struct RobotSettings {
  std::string model, critic, planner;  // empty: the only model; none; none
  std::string environment;             // of rollout and handoff; empty: the only one there is
  bool hz_given = false;               // else ticks.hz is a default
  ServerOptions server;
  ServiceOptions service;
  TickOptions ticks;
  RealtimeOptions realtime;
  bool warm_up = true;      // a server's variants, before it listens
  double stop_value = -2;   // a value below ends an episode; values are -1 to 0
  uint32_t max_chunks = 0;  // 0: no limit
  double time_limit = 0;    // seconds of an episode; 0: no limit
  std::string record_dir;   // empty: nothing is recorded
};

// What [host.robot] may say.
HostKind robot_host_kind();
// What the manifest's first such table says.
RobotSettings robot_settings(const core::Manifest& manifest);
// What the values of one table say. Throws FRT_ERR_INVALID_ARGUMENT for those that no model can
// serve: an address that is none, limits that contradict each other, a schedule of no strengths.
RobotSettings robot_settings(const core::Config& given);

// Which model a command about policies means: `given` by the user, else the one that the manifest's
// [host.robot] names, else an empty text (the only model).
std::string policy_name(const core::Manifest& manifest, const std::string& given);

// What a record notes of the deployment: plugin files and their digests, and what the model says of
// its weights. Reads files; slow.
nlohmann::ordered_json robot_fingerprints(const LoadedModel& loaded, const std::string& model);

// The loaded model as a policy. Throws, with exit status 2, if it is none.
PolicyModel policy_of(const LoadedModel& loaded);

// What an environment is told for this policy; `tag` comes behind each instruction.  [setup]
EnvironmentRequest environment_request(const PolicyModel& policy, const std::string& tag);

// {"count", "p50", "p90", "p99", "p99.9", "max", "jitter"}.
nlohmann::ordered_json to_json(const LatencySummary& summary);

}  // namespace frt::host
