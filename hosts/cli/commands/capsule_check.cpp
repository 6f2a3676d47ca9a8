// SPDX-License-Identifier: Apache-2.0
// frt-host capsule check: random cases of snapshot, restore, fork and going back on the manifest's
// model, a language model or a policy, and device, compared to the bit. The output ends with PASS
// or FAIL.
#include <fmt/format.h>
#include <frt/capsule.hpp>
#include <frt/core/capsules.hpp>
#include <frt/core/state.hpp>

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "bench/capsule_check.hpp"
#include "bench/state_check.hpp"
#include "cli/app.hpp"
#include "cli/load_model.hpp"
#include "cli/temporary_folder.hpp"
#include "cli/terminal/interrupted.hpp"
#include "cli/terminal/output.hpp"
#include "cli/terminal/signals.hpp"
#include "runtime/robot_settings.hpp"

namespace frt::host {
namespace {

struct CheckCommandOptions {
  std::string manifest, model, folder;
  CapsuleCheckOptions check;
  bool no_files = false;
  bool json = false;
};

// Both kinds of results have the same members.
template <class Result>
ExitCode report(const Result& result, const CheckCommandOptions& options,
                const LoadedModel& loaded) {
  const bool good = result.failures.empty() && result.cases == options.check.cases;
  if (options.json) {
    const nlohmann::ordered_json json = {{"pass", good},
                                         {"cases", result.cases},
                                         {"compared", result.compared},
                                         {"drawn", result.drawn},
                                         {"failures", result.failures}};
    print_json(json);
  } else {
    for (const std::string& failure : result.failures) print_out("{}\n", failure);
    print_out("{} cases on {}:", result.cases, loaded.context().info().device->name);
    for (const auto& [name, count] : result.drawn) print_out(" {} {};", count, name);
    print_out("\ncompared to the bit:");
    for (const auto& [name, count] : result.compared) print_out(" {} {};", count, name);
    print_out(" {} differences\n{}\n", result.failures.size(), good ? "PASS" : "FAIL");
  }
  if (result.failures.empty() && InterruptGuard::requested()) return interrupted_status();
  return good ? ExitCode::kOk : ExitCode::kFailed;
}

// Of several models the one that the manifest's hosts agree on; empty: they name none, or two.
std::string model_of_hosts(const core::Manifest& manifest) {
  std::string name;
  for (const core::HostSpec& host : manifest.hosts) {
    const core::Config::Value* model = host.settings.find("model");
    if (!model || model->text.empty()) continue;
    if (!name.empty() && name != model->text) return {};
    name = model->text;
  }
  return name;
}

ExitCode check(App& app, CheckCommandOptions options) {
  if (options.model.empty()) options.model = model_of_hosts(app.manifests().load(options.manifest));
  LoadedModel loaded = load_model(app, options.manifest, options.model);
  const bool is_policy = loaded.table().extension(loaded.handle(), FRT_EXT_ROLE_POLICY) != nullptr;
  std::optional<PolicyModel> policy;
  std::optional<LmModel> language;
  if (is_policy) {
    policy = policy_of(loaded);
  } else {
    language = loaded.language_model();
  }
  std::unique_ptr<TemporaryFolder> files;
  if (!options.no_files) {
    if (language) {
      language->capsules().fingerprint();
    } else if (policy->info().state) {
      Capsules(core::capsules_table(), loaded.context(), policy->info().state).fingerprint();
    }
    files = std::make_unique<TemporaryFolder>(options.folder);
    options.check.folder = files->path();
  }
  const InterruptGuard interrupt;
  const auto step = [&](const auto& now) {
    if (app.draws_progress()) {
      fmt::print(stderr, "\r\x1b[K{} of {} cases, {} differences", now.cases, options.check.cases,
                 now.failures.size());
    }
    return InterruptGuard::requested();
  };
  const auto done = [&](const auto& result) {
    if (app.draws_progress()) fmt::print(stderr, "\r\x1b[K");
    return report(result, options, loaded);
  };
  if (language) return done(check_capsules(*language, options.check, step));
  const StateCheckOptions wanted = {options.check.cases, options.check.seed, options.check.first,
                                    options.check.folder};
  return done(
      check_policy_state(*policy, core::state_table(), core::capsules_table(), wanted, step));
}

}  // namespace

void add_capsule_check(App& app, Command capsule) {
  auto options = std::make_shared<CheckCommandOptions>();
  Command command =
      capsule.add_subcommand("check", "Restore and fork at random and compare every bit");
  command.add_option("manifest", options->manifest, kManifestDoc).required();
  command.add_option("--model", options->model, kModelDoc).type_name("NAME");
  command.add_option("--cases", options->check.cases, "Try this many random cases")
      .capture_default_str();
  command.add_option("--seed", options->check.seed, "Seed the cases").capture_default_str();
  command.add_option("--first", options->check.first, "Begin with this case").capture_default_str();
  command
      .add_option("--tokens", options->check.most_tokens,
                  "Use prompts of at most this many tokens; 0: three and a half chunks")
      .capture_default_str();
  const Option folder =
      command
          .add_option("--folder", options->folder, "Write capsule files here; default: in $TMPDIR")
          .type_name("DIR")
          .existing_folder();
  command.add_flag("--no-files", options->no_files, "Check memory only").excludes(folder);
  command.add_flag("--json", options->json, "Print JSON");
  command.examples({"capsule check my.toml --cases 20 --set model.demo.options.slots=3"});
  app.add_command(command, [&app, options] { return check(app, *options); });
}

}  // namespace frt::host
