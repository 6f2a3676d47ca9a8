// SPDX-License-Identifier: Apache-2.0
// frt-host replay: makes a recorded run again, step by step, and says where it first differs.
// Exit status 0: the same tokens and log probabilities, bit for bit.
#include <fmt/format.h>
#include <frt/io/utf8.hpp>

#include <bit>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/app.hpp"
#include "cli/load_model.hpp"
#include "cli/terminal/output.hpp"
#include "lm/run_record.hpp"
#include "lm/session.hpp"
#include "lm/step_runner.hpp"
#include "runtime/episode_replay.hpp"
#include "runtime/lm_settings.hpp"

namespace frt::host {
namespace {

struct ReplayOptions {
  std::string record, manifest;
  bool anyway = false;
  bool json = false;
};

std::string describe(const LmModel& model, int32_t token, float log_probability) {
  const std::string text =
      model.has_tokenizer()
          ? " " + nlohmann::json(model.decode({&token, 1}))
                      .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)
          : std::string();
  return fmt::format("{}{} ({:.9g}, bits {:08x})", token, text, log_probability,
                     std::bit_cast<uint32_t>(log_probability));
}

// What of the fingerprint differs does not make the run impossible, only unlikely to be the same.
void check_fingerprint(const RunRecord& record, const LmModel& model, bool anyway) {
  const std::string difference = fingerprint_difference(record, model.capsules().fingerprint());
  if (difference.empty()) return;
  if (!anyway) {
    throw Error(FRT_ERR_MISMATCH, "the run was recorded with something else: " + difference +
                                      "; use that again, or give --anyway to see what differs");
  }
  print_err("note: {}\n", io::printable(difference));
}

ExitCode show_episode(App& app, const ReplayOptions& options) {
  const EpisodeRecord record = read_episode(options.record);
  const LoadedModel loaded = load_model(
      app, options.manifest.empty() ? recorded_manifest(options.record, record) : options.manifest,
      record.meta().policy, load_options_of_record(options.manifest));
  const EpisodeReplay replay = replay_episode(loaded, record, options.record, options.anyway);
  for (const std::string& change : replay.changes) print_err("note: {}\n", io::printable(change));
  const bool equal = replay.difference.empty();
  if (options.json) {
    print_json(nlohmann::ordered_json{{"record", options.record},
                                      {"chunks", record.chunks()},
                                      {"equal_chunks", replay.equal_chunks},
                                      {"identical", equal},
                                      {"difference", replay.difference}});
  } else if (equal) {
    print_out("identical: {} chunks, bit for bit\n", replay.equal_chunks);
  } else {
    print_out("different after {} equal chunks: {}\n", replay.equal_chunks, replay.difference);
  }
  return equal ? ExitCode::kOk : ExitCode::kFailed;
}

ExitCode replay(App& app, const ReplayOptions& options) {
  if (is_episode_file(options.record)) return show_episode(app, options);
  const RunRecord record = read_record(options.record);
  LoadedModel loaded =
      load_model(app, options.manifest.empty() ? record.manifest : options.manifest, record.model,
                 load_options_of_record(options.manifest));
  const LmModel model = loaded.language_model();
  check_fingerprint(record, model, options.anyway);
  StepRunner runner(model);
  CapsuleSettings settings = capsule_settings(loaded.runtime().manifest(), loaded.name());
  settings.capsules.device_bytes = settings.capsules.host_bytes = settings.capsules.disk_bytes = 0;
  std::unique_ptr<CapsuleRegistry> registry;
  if (record.capsule) {
    registry = open_capsules(app.log(), model, settings.capsules);
    registry->require_folder();
  }
  Session session(model, runner, registry.get(), 0, settings.session);
  if (record.capsule && session.restore(record.capsule->name)->digest != record.capsule->digest) {
    throw Error(FRT_ERR_MISMATCH, "capsule '" + record.capsule->name +
                                      "' holds other tokens than when the run was recorded; it was "
                                      "written anew since, restore the old file");
  }
  const ReplayResult result = replay(record, session, runner);
  if (options.json) {
    nlohmann::ordered_json json = {
        {"same", result.same}, {"tokens", record.tokens.size()}, {"compared", result.compared}};
    if (!result.same) {
      json["first_difference"] = {
          {"token", result.compared},
          {"recorded",
           {{"id", result.recorded_token}, {"logprob", result.recorded_log_probability}}},
          {"now", {{"id", result.token}, {"logprob", result.log_probability}}}};
    }
    print_json(json);
  } else if (result.same) {
    print_out("the same: {} tokens and their log probabilities, bit for bit\n", result.compared);
  } else {
    print_out("first difference at token {} of {}: recorded {}, now {}\n", result.compared,
              record.tokens.size(),
              describe(model, result.recorded_token, result.recorded_log_probability),
              describe(model, result.token, result.log_probability));
  }
  return result.same ? ExitCode::kOk : ExitCode::kFailed;
}

}  // namespace

void add_replay_command(App& app) {
  auto options = std::make_shared<ReplayOptions>();
  Command command =
      app.program().add_subcommand("replay", "Repeat a recorded run and compare every bit");
  command
      .add_option("record", options->record,
                  "Read this file of `run --record` or `rollout --record`")
      .required();
  command
      .add_option("--manifest", options->manifest,
                  "Use this manifest instead of the recorded one; it may name plugins by path")
      .type_name("FILE");
  command.add_flag("--anyway", options->anyway,
                   "Replay even if the model, plugin or backend differs");
  command.add_flag("--json", options->json, "Print JSON");
  command.examples(
      {"replay run.json", "replay episodes/episode_000000.npz"},
      "A record is no reason to load native code: a manifest that the record alone names may not\n"
      "give paths of plugins. Give that manifest with --manifest if you trust it.\n\n"
      "Exit status: 0 the same, bit for bit; 1 not the same.");
  app.add_command(command, [&app, options] { return replay(app, *options); });
}

}  // namespace frt::host
