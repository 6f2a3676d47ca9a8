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
#include "cli/capsule_setup.hpp"
#include "cli/episode_replay.hpp"
#include "cli/loaded_model.hpp"
#include "cli/terminal/output.hpp"
#include "lm/run_record.hpp"
#include "lm/session.hpp"
#include "lm/step_runner.hpp"

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

ExitCode replay(App& app, const ReplayOptions& options) {
  if (is_episode_file(options.record)) {
    return replay_episode(app, options.record, options.manifest, options.anyway, options.json);
  }
  const RunRecord record = read_record(options.record);
  LoadedModel loaded(app, options.manifest.empty() ? record.manifest : options.manifest,
                     record.model, load_options_of_record(options.manifest));
  const LmModel model = loaded.language_model();
  check_fingerprint(record, model, options.anyway);
  StepRunner runner(model);
  CapsuleSettings settings = capsule_settings(loaded.runtime().manifest(), loaded.name());
  settings.capsules.device_bytes = settings.capsules.host_bytes = settings.capsules.disk_bytes = 0;
  std::unique_ptr<CapsuleRegistry> registry;
  if (record.capsule) {
    registry = open_capsules(app, model, settings.capsules);
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
      app.program().add_subcommand("replay", "Make a recorded run again and compare every bit");
  command.add_option("record", options->record, "What `run --record` or `rollout --record` wrote")
      .required();
  command
      .add_option("--manifest", options->manifest,
                  "Instead of the one it was recorded with, or that one, plugins by path included")
      .type_name("FILE");
  command.add_flag("--anyway", options->anyway,
                   "Replay even if the model, plugin or backend differs");
  command.add_flag("--json", options->json, "As JSON");
  command.examples(
      {"replay run.json", "replay episodes/episode_000000.npz"},
      "A record is no reason to load native code: a manifest that the record alone names may not\n"
      "give paths of plugins. Give that manifest with --manifest if you trust it.\n\n"
      "Exit status: 0 the same, bit for bit; 1 not the same.");
  app.add_command(command, [&app, options] { return replay(app, *options); });
}

}  // namespace frt::host
