// SPDX-License-Identifier: Apache-2.0
#include "runtime/robot_settings.hpp"

#include <frt/core/digest.hpp>
#include <frt/io/file.hpp>

#include "runtime/exit_code.hpp"

namespace frt::host {
namespace {

core::OptionSpec option(std::string key, frt_config_type type, std::string fallback,
                        std::string doc, double minimum = 0, double maximum = 0) {
  core::OptionSpec spec;
  spec.key = std::move(key);
  spec.type = type;
  spec.default_text = std::move(fallback);
  spec.doc = std::move(doc);
  spec.minimum = minimum;
  spec.maximum = maximum;
  return spec;
}

core::HostSchema robot_host_schema() {
  core::OptionSpec model =
      option("model", FRT_CONFIG_STRING, "", "the policy; default: the only model");
  model.reference = "model";
  core::OptionSpec critic =
      option("critic", FRT_CONFIG_STRING, "", "the model that values observations; default: none");
  critic.reference = "model";
  core::OptionSpec planner =
      option("planner", FRT_CONFIG_STRING, "",
             "the language model that names subgoals in a hand-off; default: a list does");
  planner.reference = "model";
  core::OptionSpec environment =
      option("environment", FRT_CONFIG_STRING, "",
             "what rollout and handoff act on; default: the only environment");
  environment.reference = "environment";
  core::OptionSpec safe = option("safe_action", FRT_CONFIG_ENUM, "hold",
                                 "what is sent when no action is there in time");
  safe.choices = {"hold", "ramp", "stop"};
  std::vector<core::OptionSpec> options = {
      model,
      critic,
      planner,
      environment,
      option("listen", FRT_CONFIG_STRING, "127.0.0.1:8000", "address and port of the websocket"),
      option("api_key", FRT_CONFIG_STRING, "", "what clients must send; empty: nothing"),
      option("max_message", FRT_CONFIG_SIZE, "32M", "bytes of one observation"),
      option("buffer_memory", FRT_CONFIG_SIZE, "128M",
             "bytes that all connections hold; at least two max_message"),
      option("max_clients", FRT_CONFIG_INT, "8", "robots at a time", 1, 1024),
      option(
          "max_clients_per_address", FRT_CONFIG_INT, "-1",
          "robots at a time from one IPv4 address or IPv6 network (/64); 0: as many as there may "
          "be; -1: half of max_clients, and from this machine itself as many as there may be",
          -1, 1024),
      option("max_connections", FRT_CONFIG_INT, "256",
             "connections at a time: robots, and those whose handshake is not complete", 2, 65536),
      option("handshake_timeout_ms", FRT_CONFIG_INT, "10000",
             "milliseconds until a connection's handshake is complete", 1, 3600000),
      option("receive_timeout_ms", FRT_CONFIG_INT, "10000",
             "milliseconds from a message's first byte to its last", 1, 3600000),
      option(
          "ping_ms", FRT_CONFIG_INT, "30000",
          "milliseconds of silence after which a client is pinged, and closed after as long again; "
          "0: never",
          0, 3600000),
      option(
          "idle_ms", FRT_CONFIG_INT, "300000",
          "milliseconds without a request after which a client gives its place to a newcomer that "
          "finds none; 0: never",
          0, 86400000),
      option("deadline_ms", FRT_CONFIG_INT, "1000",
             "milliseconds until a request is answered or refused", 1, 3600000),
      option("write_timeout_ms", FRT_CONFIG_INT, "2000",
             "milliseconds after which a client that does not read is cut off", 1, 3600000),
      option("stale_ms", FRT_CONFIG_FLOAT, "0",
             "milliseconds after which an observation or a chunk is not used; 0: no limit", 0,
             3600000),
      option("request_log", FRT_CONFIG_PATH, "",
             "file of JSON lines about requests, without observations and actions; empty: none"),
      option("steps", FRT_CONFIG_INT, "0", "denoising steps; 0: the model's default", 0, 1000),
      option("warm_up", FRT_CONFIG_BOOL, "true",
             "serve: run each variant of the model once before the first client is let in"),
      option("beta", FRT_CONFIG_FLOAT, "1", "guidance strength; 1: none", 1, 100),
      option("beta_schedule", FRT_CONFIG_STRING, "",
             "strengths by step in place of beta, e.g. \"2.5, 2, 1.5\"; the last one continues"),
      option("seed", FRT_CONFIG_INT, "0", "seed of the noise", 0, 9007199254740992.0),
      option("default_prompt", FRT_CONFIG_STRING, "", "instruction for requests without one"),
      option("hz", FRT_CONFIG_FLOAT, "50",
             "actions per second; left out: the environment's own pace, where it has one", 0.1,
             10000),
      option("execute", FRT_CONFIG_INT, "0", "actions of a chunk that are used; 0: all", 0, 65535),
      option("lead", FRT_CONFIG_INT, "0",
             "ticks before a chunk's end at which the next one is asked for", 0, 65535),
      safe,
      option("ramp_ticks", FRT_CONFIG_INT, "10", "safe_action = ramp: ticks until zero is reached",
             1, 65535),
      option("max_change", FRT_CONFIG_FLOAT, "0",
             "largest step of an action's value from tick to tick; 0: no limit", 0, 1e9),
      option("stop_value", FRT_CONFIG_FLOAT, "-2", "the critic ends an episode below this value",
             -1000, 1000),
      option("max_chunks", FRT_CONFIG_INT, "0", "chunks of an episode; 0: no limit", 0, 1000000),
      option("time_limit", FRT_CONFIG_FLOAT, "0", "seconds of an episode; 0: no limit", 0, 86400),
      option("record_dir", FRT_CONFIG_PATH, "", "folder of recorded episodes; empty: none"),
      option("lock_memory", FRT_CONFIG_BOOL, "false", "keep all memory resident (mlockall)"),
      option("fifo_priority", FRT_CONFIG_INT, "0", "SCHED_FIFO priority of the loop; 0: not", 0,
             99),
      option("spin_us", FRT_CONFIG_FLOAT, "0",
             "microseconds of busy waiting before each tick: steadier without fifo_priority", 0,
             100000),
      option("cpu", FRT_CONFIG_INT, "-1", "core that the loop stays on; -1: any", -1, 4095),
  };
  return {.type = "robot", .options = std::move(options), .doc = "a policy that drives a robot"};
}

}  // namespace

HostKind robot_host_kind() {
  return {robot_host_schema(),
          [](const core::Manifest&, const core::HostSpec& host) { robot_settings(host.settings); }};
}

RobotSettings robot_settings(const core::Manifest& manifest) {
  if (const core::HostSpec* host = manifest.find_host("robot")) {
    return robot_settings(host->settings);
  }
  core::Diagnostics none;
  return robot_settings(core::resolve_config(robot_host_schema().options, {}, {}, none));
}

RobotSettings robot_settings(const core::Config& given) {
  const auto number = [&](const char* key) { return given.find(key)->number; };
  const auto whole = [&](const char* key) { return static_cast<uint32_t>(given.integer(key)); };
  RobotSettings settings;
  settings.model = given.text("model");
  settings.critic = given.text("critic");
  settings.planner = given.text("planner");
  settings.environment = given.text("environment");
  settings.server.listen = given.text("listen");
  settings.server.api_key = given.text("api_key");
  settings.server.max_message = static_cast<uint64_t>(given.integer("max_message"));
  settings.server.buffer_memory = static_cast<uint64_t>(given.integer("buffer_memory"));
  settings.server.max_clients = whole("max_clients");
  if (given.integer("max_clients_per_address") >= 0) {
    settings.server.max_clients_per_address = whole("max_clients_per_address");
  }
  settings.server.max_connections = whole("max_connections");
  settings.server.deadline = std::chrono::milliseconds(given.integer("deadline_ms"));
  settings.server.write_timeout = std::chrono::milliseconds(given.integer("write_timeout_ms"));
  settings.server.handshake_timeout =
      std::chrono::milliseconds(given.integer("handshake_timeout_ms"));
  settings.server.receive_timeout = std::chrono::milliseconds(given.integer("receive_timeout_ms"));
  settings.server.ping_interval = std::chrono::milliseconds(given.integer("ping_ms"));
  settings.server.idle_limit = std::chrono::milliseconds(given.integer("idle_ms"));
  settings.server.request_log = given.text("request_log");
  settings.server.check();
  settings.service.steps = whole("steps");
  settings.service.guidance.values = {number("beta")};
  if (const std::string& schedule = given.text("beta_schedule"); !schedule.empty()) {
    settings.service.guidance = parse_strengths(schedule);
    const GuidanceStrengths& strengths = settings.service.guidance;
    const auto steps = static_cast<uint32_t>(strengths.values.size() / strengths.branches);
    strengths.table(steps, strengths.branches);  // throws for what is no strength
  }
  settings.warm_up = given.integer("warm_up") != 0;
  settings.service.seed = static_cast<uint64_t>(given.integer("seed"));
  settings.service.stale_ms = number("stale_ms");
  settings.service.default_prompt = given.text("default_prompt");
  settings.ticks.hz = number("hz");
  settings.hz_given = given.find("hz")->from.origin != core::Origin::kDefault;
  settings.ticks.spin_us = number("spin_us");
  settings.ticks.execute = whole("execute");
  settings.ticks.lead = whole("lead");
  settings.ticks.stale_ms = number("stale_ms");
  settings.ticks.max_change = number("max_change");
  settings.ticks.ramp_ticks = whole("ramp_ticks");
  const std::string& safe = given.text("safe_action");
  settings.ticks.safe = safe == "ramp"   ? SafeAction::kRamp
                        : safe == "stop" ? SafeAction::kStop
                                         : SafeAction::kHold;
  settings.stop_value = number("stop_value");
  settings.max_chunks = whole("max_chunks");
  settings.time_limit = number("time_limit");
  settings.record_dir = given.text("record_dir");
  settings.realtime.lock_memory = given.integer("lock_memory") != 0;
  settings.realtime.fifo_priority = static_cast<int>(given.integer("fifo_priority"));
  settings.realtime.cpu = static_cast<int>(given.integer("cpu"));
  return settings;
}

std::string policy_name(const core::Manifest& manifest, const std::string& given) {
  const core::HostSpec* host = manifest.find_host("robot");
  return given.empty() && host ? host->settings.text("model") : given;
}

namespace {

std::string file_digest(const std::filesystem::path& path) {
  try {
    const io::Descriptor file = io::open_file(path, "plugin");
    return core::sha256_file(file.get(), path.string());
  } catch (const Error& error) {
    if (error.status() != FRT_ERR_NOT_FOUND) throw;
    return "";  // replaced since it was loaded
  }
}

}  // namespace

nlohmann::ordered_json robot_fingerprints(const LoadedModel& loaded, const std::string& model) {
  const core::Runtime& runtime = loaded.runtime();
  const core::ModelSpec& spec = *runtime.manifest().find_model(model);
  nlohmann::ordered_json json;
  const auto plugin = [&](const char* what, const core::OpenPlugin& opened) {
    const core::LoadedPlugin& file = opened.loaded();
    json[what] = {
        {"id", file.card.id}, {"version", file.card.version}, {"sha256", file_digest(file.path)}};
  };
  plugin("backend", *runtime.device(spec.device()).plugin);
  plugin("model", runtime.model_plugin(model));
  if (const auto capsule = loaded.extension<frt_capsule_v1>(FRT_EXT_CAPSULE)) {
    for (const auto& [name, value] : core::model_fingerprint(
             *capsule, loaded.handle(), runtime.model_plugin(model), loaded.sender())) {
      json[name] = value;
    }
  }
  return json;
}

PolicyModel policy_of(const LoadedModel& loaded) {
  return stage(ExitCode::kUsage, [&] {
    return PolicyModel(loaded.context(), &loaded.table(), loaded.handle(), loaded.name(),
                       loaded.plugin());
  });
}

nlohmann::ordered_json to_json(const LatencySummary& s) {
  return {{"count", s.count}, {"p50", s.p50}, {"p90", s.p90},        {"p99", s.p99},
          {"p99.9", s.p999},  {"max", s.max}, {"jitter", s.jitter()}};
}

EnvironmentRequest environment_request(const PolicyModel& policy, const std::string& tag) {
  return {policy.names(), tag.empty() ? "" : " " + tag};
}

}  // namespace frt::host
