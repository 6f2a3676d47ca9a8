// SPDX-License-Identifier: Apache-2.0
// frt-host rollout: episodes of an environment with the manifest's policy, and its critic where
// there is one. What happened goes to stdout, one episode per line to stderr; records
// and a picture where they are asked for.
#include <fmt/format.h>
#include <frt/core/capsules.hpp>
#include <frt/core/state.hpp>
#include <frt/io/file.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <tuple>
#include <utility>

#include "cli/app.hpp"
#include "cli/load_model.hpp"
#include "cli/terminal/interrupted.hpp"
#include "cli/terminal/number_text.hpp"
#include "cli/terminal/output.hpp"
#include "cli/terminal/signals.hpp"
#include "robot/control/keyboard.hpp"
#include "robot/control/rollout.hpp"
#include "robot/record/episode_folder.hpp"
#include "runtime/environment_choice.hpp"
#include "runtime/robot_settings.hpp"

namespace frt::host {
namespace {

struct RolloutCommand {
  std::string manifest, model, environment, record, picture, tag;
  std::string takeover;  // FROM:TO
  uint64_t episodes = 20;
  Option seed_option;
  uint64_t seed = 0;
  std::string beta;
  bool realtime = false, json = false;
};

// The ticks FROM:TO.
std::pair<uint32_t, uint32_t> parse_takeover(const std::string& text) {
  const std::size_t colon = std::min(text.find(':'), text.size());
  const auto from = parse_number<uint32_t>(text.substr(0, colon));
  const auto to = parse_number<uint32_t>(text.substr(std::min(colon + 1, text.size())));
  if (!from || !to || *to <= *from) {
    throw ExitError(ExitCode::kUsage, FRT_ERR_INVALID_ARGUMENT,
                    "'" + text + "' is no FROM:TO, ticks of each episode");
  }
  return {*from, *to};
}

void check_takeover(const RolloutCommand& command, const Environment& environment) {
  const uint32_t limit = environment.max_ticks();
  if (limit == 0 || parse_takeover(command.takeover).first < limit) return;
  throw ExitError(
      ExitCode::kUsage, FRT_ERR_INVALID_ARGUMENT,
      fmt::format("'{}' begins behind the end of an episode, which has at most {} ticks",
                  command.takeover, limit));
}

struct Totals {
  uint64_t episodes = 0, successes = 0, ticks = 0, success_ticks = 0, chunks = 0, interventions = 0;
  double reward = 0;
  std::map<std::string, uint64_t> reasons;

  void add(const EpisodeResult& result) {
    ++episodes;
    ticks += result.ticks;
    chunks += result.chunks;
    interventions += result.interventions;
    reward += result.reward;
    ++reasons[result.stop_reason];
    if (result.success) {
      ++successes;
      success_ticks += result.ticks;
    }
  }
  double rate() const { return episodes ? double(successes) / double(episodes) : 0; }
  double mean_reward() const { return episodes ? reward / double(episodes) : 0; }
  double mean_ticks() const { return successes ? double(success_ticks) / double(successes) : 0; }
};

nlohmann::ordered_json report(const Totals& totals, const Rollout& rollout, uint64_t captures,
                              uint64_t boundary_bytes) {
  const TickCounters& counters = rollout.counters();
  nlohmann::ordered_json json = {{"episodes", totals.episodes},
                                 {"successes", totals.successes},
                                 {"success_rate", totals.rate()},
                                 {"mean_ticks", totals.mean_ticks()},
                                 {"mean_reward", totals.mean_reward()},
                                 {"chunks", totals.chunks},
                                 {"ticks", totals.ticks},
                                 {"interventions", totals.interventions},
                                 {"stop_reasons", totals.reasons},
                                 {"inference_ms", to_json(rollout.inference_ms().summary())},
                                 {"reset_ms", to_json(rollout.reset_ms().summary())},
                                 {"boundary_bytes", boundary_bytes},
                                 {"tick_us", to_json(rollout.tick_us().summary())},
                                 {"late_us", to_json(rollout.late_us().summary())},
                                 {"deadline_miss_total", counters.deadline_misses},
                                 {"stale_drop_total", counters.stale_drops},
                                 {"refused_total", counters.refused},
                                 {"safe_action_total", counters.safe_actions},
                                 {"clamped_total", counters.clamped},
                                 {"skipped_ticks", rollout.skipped_ticks()},
                                 {"captures_since_ready", captures}};
  return json;
}

std::string to_text(const Totals& totals, const Rollout& rollout, uint64_t captures,
                    uint64_t boundary_bytes, bool realtime) {
  std::string reasons;
  for (const auto& [reason, count] : totals.reasons) {
    reasons += fmt::format("{}{} {}", reasons.empty() ? "" : ", ", reason, count);
  }
  const TickCounters& counters = rollout.counters();
  std::string out = fmt::format(
      "success {} of {} episodes ({:.1f} %), {:.1f} ticks on average, reward {:.3f}; ended by: {}\n"
      "inference   {}\n{}"
      "reset       {}, {} bytes restored\n"
      "captures since ready: {}; deadline misses {}, stale chunks {}, refused {}, "
      "safe actions {}\n",
      totals.successes, totals.episodes, 100 * totals.rate(), totals.mean_ticks(),
      totals.mean_reward(), reasons, to_text(rollout.inference_ms().summary()),
      histogram(rollout.inference_ms().values(), 8, 50), to_text(rollout.reset_ms().summary()),
      boundary_bytes, captures, counters.deadline_misses, counters.stale_drops, counters.refused,
      counters.safe_actions);
  if (realtime) {
    out += fmt::format("tick late   {}; {} ticks skipped\n",
                       to_text(rollout.late_us().summary(), "us"), rollout.skipped_ticks());
  }
  return out;
}

ExitCode run(App& app, const RolloutCommand& command) {
  const core::Manifest given = app.manifests().load(command.manifest);
  const RobotSettings settings = robot_settings(given);
  RolloutOptions options;
  options.realtime = command.realtime;
  options.stop_value = settings.stop_value;
  options.max_chunks = settings.max_chunks;
  options.time_limit = settings.time_limit;
  options.steps = settings.service.steps;
  options.seed = command.seed_option.given() ? command.seed : settings.service.seed;
  options.guidance = command.beta.empty()
                         ? settings.service.guidance
                         : stage(ExitCode::kUsage, [&] { return parse_strengths(command.beta); });
  const std::string environment =
      chosen_environment(app.environments(), given, settings, command.environment);
  if (!command.takeover.empty()) {
    std::tie(options.takeover_from, options.takeover_to) = parse_takeover(command.takeover);
  }
  const std::string folder = command.record.empty() ? settings.record_dir : command.record;
  options.record_frames = !folder.empty();
  std::optional<EpisodeFolder> records;  // made before the first episode, so that none is in vain
  if (!folder.empty()) records.emplace(folder);
  const uint64_t first_record = records ? records->next() : 0;
  if (!command.picture.empty()) io::check_output(command.picture);

  LoadedModel loaded =
      load_model(app, command.manifest, command.model.empty() ? settings.model : command.model);
  const PolicyModel policy = policy_of(loaded);
  stage(ExitCode::kManifest, [&] { settings.ticks.check(policy.info().horizon); });
  std::unique_ptr<CriticModel> critic;
  std::unique_ptr<CriticRunner> critic_runner;
  if (!settings.critic.empty()) {
    const LoadedModel::Companion& made = loaded.load_also(settings.critic);
    critic = std::make_unique<CriticModel>(made.context, made.made.table, made.made.handle,
                                           made.name, made.made.plugin->loaded().card.id);
    critic_runner = std::make_unique<CriticRunner>(*critic);
  }
  PolicyRunner runner(policy);
  EpisodeBoundary boundary(core::state_table(), core::capsules_table(), runner);
  const std::unique_ptr<Environment> world = make_environment(
      app.environments(), loaded, environment, environment_request(policy, command.tag));
  if (!command.takeover.empty()) check_takeover(command, *world);
  options.ticks = ticks_of(settings, *world, environment);
  const std::unique_ptr<EpisodePicture> picture =
      command.picture.empty() ? nullptr : world->picture();
  if (!command.picture.empty() && !picture) {
    throw ExitError(ExitCode::kUsage, FRT_ERR_UNSUPPORTED,
                    "the environment '" + environment + "' draws no picture; leave --picture out");
  }
  Rollout rollout(runner, critic_runner.get(), *world, boundary, options);
  const std::string realtime = apply_realtime(settings.realtime);
  if (!realtime.empty()) print_err("{}\n", realtime);

  const InterruptGuard interrupt;
  Keyboard keyboard;
  rollout.keys = [&] {
    OperatorKeys keys = keyboard.poll();
    keys.end = keys.end || InterruptGuard::requested();
    return keys;
  };
  nlohmann::ordered_json fingerprints;  // of files that may be large
  std::string manifest;                 // as seen from the records
  if (records) {
    fingerprints = robot_fingerprints(loaded, policy.name());
    manifest = records->path_to(loaded.runtime().manifest().path);
  }
  Totals totals;
  EpisodeRecord record;
  for (uint64_t episode = 0; episode < command.episodes && !InterruptGuard::requested();
       ++episode) {
    const EpisodeResult result = rollout.run(episode, record);
    totals.add(result);
    if (records) {
      const EndAllowance files(kKeepTime);
      record.set_deployment(manifest, fingerprints);
      records->write(record);
    }
    if (picture) picture->add_episode();
    if (!app.options().quiet) {
      print_err(
          "episode {:3}  {:<12} {:2} ticks  {} chunks{}{}\n", episode, result.stop_reason,
          result.ticks, result.chunks,
          critic ? fmt::format("  value {:.3f}", result.last_value) : "",
          result.interventions ? fmt::format("  {} by the operator", result.interventions) : "");
    }
  }
  if (picture) {
    const std::vector<double> chunk_ms = rollout.inference_ms().values();
    io::write_file_atomically(
        command.picture,
        picture->svg(fmt::format("{}: {} of {} episodes succeed ({:.1f} %)", policy.name(),
                                 totals.successes, totals.episodes, 100 * totals.rate()),
                     fmt::format("{:.1f} ticks on average, guidance {}, on {}", totals.mean_ticks(),
                                 to_text(options.guidance), policy.context().info().device->name),
                     chunk_ms));
  }
  if (records && !app.options().quiet) {
    print_err("records: {} in {}, from episode_{:06} on\n", totals.episodes, folder, first_record);
  }
  const uint64_t captures = policy.context().counters().captures_since_ready;
  if (command.json) {
    print_json(report(totals, rollout, captures, boundary.bytes()));
  } else {
    print_out("{}", to_text(totals, rollout, captures, boundary.bytes(), command.realtime));
  }
  if (picture && !app.options().quiet) {
    print_err("picture: {} (open it in a browser)\n", command.picture);
  }
  return InterruptGuard::requested() ? interrupted_status() : ExitCode::kOk;
}

}  // namespace

void add_rollout_command(App& app) {
  auto options = std::make_shared<RolloutCommand>();
  Command command = app.program().add_subcommand(
      "rollout", "Run episodes of an environment with a policy and its critic");
  command.add_option("manifest", options->manifest, "Read this manifest (TOML) with [host.robot]")
      .required();
  command.add_option("--model", options->model, kModelDoc).type_name("NAME");
  command
      .add_option("--environment", options->environment,
                  "Act on this environment; default: the manifest's, else the only one")
      .type_name("NAME");
  command.add_option("-n,--episodes", options->episodes, "Run this many episodes")
      .range(uint64_t{1}, uint64_t{1} << 40)
      .capture_default_str();
  options->seed_option = command.add_option(
      "--seed", options->seed, "Seed the first episode; each further one takes the next number");
  command
      .add_option("--beta", options->beta,
                  "Set the guidance strength, one number or one per step; 1: no guidance")
      .type_name("X[,X...]")
      .check([](const std::string& text) { parse_strengths(text); });
  command.add_option("--tag", options->tag, "Append this text to each instruction")
      .type_name("TEXT");
  command
      .add_option("--record", options->record,
                  "Write each episode here as .npz and .mcap, numbered after the files in it")
      .type_name("DIR");
  command.add_option("--picture", options->picture, "Draw the first episodes into this SVG file")
      .type_name("FILE");
  command.add_option("--takeover", options->takeover, "Let the operator act in these ticks")
      .type_name("FROM:TO")
      .check([](const std::string& text) { parse_takeover(text); });
  command.add_flag("--realtime", options->realtime,
                   "Keep the tick rate (hz) instead of simulating");
  command.add_flag("--json", options->json, "Print one JSON object on stdout");
  command.examples({"rollout share/frt/manifests/reach.toml --picture reach.svg",
                    "rollout share/frt/manifests/reach.toml --realtime --record episodes"},
                   "Keys while it runs: END or q ends an episode, t takes over and gives back.");
  app.add_command(command, [&app, options] { return run(app, *options); });
}

}  // namespace frt::host
