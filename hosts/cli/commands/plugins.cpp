// SPDX-License-Identifier: Apache-2.0
// frt-host plugins: every file that was looked at, with its state and the reason of a refusal; one
// plugin in detail; and the lock file that pins digests.
#include <fmt/format.h>
#include <frt/backend.h>
#include <frt/kernels.h>
#include <frt/core/plugin.hpp>
#include <frt/core/services.hpp>
#include <frt/draft/kernel_variants.hpp>
#include <frt/io/utf8.hpp>
#include <frt/reading.hpp>
#include <frt/text.hpp>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/app.hpp"
#include "cli/load_model.hpp"
#include "cli/terminal/output.hpp"
#include "cli/terminal/table.hpp"
#include "robot/policy_inputs.hpp"
#include "runtime/environment_report.hpp"
#include "runtime/robot_settings.hpp"

namespace frt::host {
namespace {

using Json = nlohmann::ordered_json;

const char* state_name(core::CandidateState state) {
  switch (state) {
    case core::CandidateState::kUsable:
      return "usable";
    case core::CandidateState::kShadowed:
      return "shadowed";
    case core::CandidateState::kRefused:
      return "rejected";
  }
  return "?";
}

std::string join(const std::vector<std::string>& parts, const char* between) {
  return fmt::format("{}", fmt::join(parts, between));
}

// "sm_90, portable from sm_90"; "any".
std::string targets_of(const core::Card& card) {
  if (card.targets.empty() && card.portable.empty()) return "any";
  std::string text = join(card.targets, " ");
  if (card.portable.empty()) return text;
  return text + (text.empty() ? "" : ", ") + "portable from " + join(card.portable, " ");
}

std::string name_of(const core::Candidate& candidate) {
  return candidate.card ? candidate.card->id : candidate.path.filename().string();
}

Json candidate_json(const core::Candidate& candidate) {
  Json json = {{"id", name_of(candidate)},
               {"state", state_name(candidate.state)},
               {"path", candidate.path.string()},
               {"origin", candidate.origin},
               {"trusted", candidate.trusted}};
  if (!candidate.reason.empty()) json["reason"] = candidate.reason;
  if (candidate.card) {
    const core::Card& card = *candidate.card;
    json["kind"] = core::plugin_kind_name(card.kind);
    json["version"] = card.version;
    json["abi"] = fmt::format("{}.{}", card.abi_major, card.abi_minor);
    json["targets"] = card.targets;
    json["portable"] = card.portable;
    json["requires"] = card.requirements;
    json["model_types"] = card.model_types;
    json["summary"] = card.summary;
  }
  return json;
}

std::vector<std::filesystem::path> usable_files(App& app) {
  std::vector<std::filesystem::path> files;
  for (const core::Candidate& candidate : app.registry().candidates()) {
    if (candidate.state == core::CandidateState::kUsable) files.push_back(candidate.path);
  }
  return files;
}

bool is_usable(App& app, const std::string& id) {
  return std::ranges::any_of(app.registry().candidates(), [&](const core::Candidate& candidate) {
    return candidate.state == core::CandidateState::kUsable && candidate.card->id == id;
  });
}

// Where the usable plugins differ from a lock; empty: nowhere.
std::vector<std::string> lock_problems(App& app, const std::string& path) {
  const core::LockFile file = stage(ExitCode::kPlugin, [&] { return core::read_lock(path); });
  std::vector<std::string> problems = core::verify_lock(file, usable_files(app));
  for (const core::LockEntry& entry : file.entries) {
    if (is_usable(app, entry.id)) continue;
    problems.push_back(entry.id + ": the lock pins '" + entry.file +
                       "', and no usable plugin has this id");
  }
  return problems;
}

// Of the usable plugins, one a line.
ExitCode list_ids(App& app) {
  for (const core::Candidate& candidate : app.registry().candidates()) {
    if (candidate.state == core::CandidateState::kUsable) print_out("{}\n", candidate.card->id);
  }
  return ExitCode::kOk;
}

ExitCode list(App& app, bool as_json) {
  app.registry().try_all();
  const auto& candidates = app.registry().candidates();
  const std::string& lock = app.options().lock;
  const std::vector<std::string> problems =
      lock.empty() ? std::vector<std::string>() : lock_problems(app, lock);
  const ExitCode status = problems.empty() ? ExitCode::kOk : ExitCode::kPlugin;
  if (as_json) {
    Json json = {{"search", app.registry().describe_search()}, {"plugins", Json::array()}};
    if (!lock.empty()) json["lock"] = {{"path", lock}, {"problems", problems}};
    for (const core::Candidate& candidate : candidates) {
      json["plugins"].push_back(candidate_json(candidate));
    }
    print_json(json);
    return status;
  }
  Table table({"id", "kind", "version", "targets", "state", "file or reason"});
  for (const core::Candidate& candidate : candidates) {
    const bool usable = candidate.state == core::CandidateState::kUsable;
    const auto& card = candidate.card;
    table.add(
        {name_of(candidate), card ? core::plugin_kind_name(card->kind) : "-",
         card ? card->version : "-", card ? targets_of(*card) : "-", state_name(candidate.state),
         usable ? candidate.path.string() : candidate.path.string() + ": " + candidate.reason});
  }
  write_out(table.render(TableFormat::kAligned));
  for (const std::string& place : app.registry().describe_search()) {
    print_err("searched: {}\n", io::printable(place));
  }
  for (const std::string& problem : problems) {
    print_err("{}: {}\n", io::printable(lock), io::printable(problem));
  }
  return status;
}

std::string types_text(frt_dtype_set set) {
  return set == 0 ? "-" : dtype_names(set);
}

// Short names of the patterns, each once; --json has them in words.
std::string formats_text(const std::vector<frt_weight_format>& patterns) {
  std::vector<std::string> names;
  for (const frt_weight_format& pattern : patterns) {
    std::string name = weight_name(pattern);
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }
  return names.empty() ? "-" : join(names, ", ");
}

struct KernelRow {
  std::string name, inputs, outputs;
  std::vector<frt_weight_format> weights;
};

struct DeviceKernels {
  std::vector<KernelRow> operators;
  std::vector<KernelVariant> variants;  // empty: the plugin does not list them
};

// Of the plugin's first device; empty if it is no backend or sees no device.
DeviceKernels kernels_of(const core::OpenPlugin& plugin) {
  const auto* backend = plugin.find<frt_backend_v1>(FRT_EXT_BACKEND);
  const auto* kernels = plugin.find<frt_kernels_v1>(FRT_EXT_KERNELS);
  const auto* variants = plugin.find<frt_kernel_variants_draft>(FRT_EXT_KERNEL_VARIANTS);
  DeviceKernels found;
  uint32_t count = 0;
  if (!backend || !kernels) return found;
  const std::string sender = plugin.sender();
  const auto alone = core::lock_plugin_setup();
  core::SetupWatch watching = plugin.watch("device_count");
  const frt_status counted = contain(sender, "device_count", [&] {
    return backend->device_count(plugin.handle(), &count, nullptr);
  });
  if (counted != FRT_OK || count == 0) return found;
  core::Diagnostics diagnostics;
  const core::Config options =
      core::resolve_config(plugin.loaded().schema.options, {}, core::ResolveContext{}, diagnostics);
  diagnostics.throw_if_errors();
  frt_error error{};
  frt_backend_device device = nullptr;
  watching.enter("device_open");
  const frt_status opened = contain(sender, "device_open", [&] {
    return backend->device_open(plugin.handle(), 0, options.c(), &device, &error);
  });
  check(opened, error, sender);
  if (!device) throw Error(FRT_ERR_INTERNAL, sender + ": device_open made no device");
  watching.enter("list");
  try {
    for (const frt_kernel_desc& kernel : list_kernels(*kernels, device, sender)) {
      found.operators.push_back({std::string(checked_text(kernel.name, sender + ": a kernel")),
                                 types_text(kernel.inputs),
                                 types_text(kernel.outputs),
                                 {kernel.weights, kernel.weights + kernel.weight_count}});
    }
    if (variants) found.variants = list_kernel_variants(*variants, device, sender);
  } catch (...) {
    watching.enter("device_close");
    backend->device_close(device);
    throw;
  }
  watching.enter("device_close");
  backend->device_close(device);
  return found;
}

Json option_json(const core::OptionSpec& option) {
  Json json = {{"key", option.key},
               {"type", core::config_type_name(option.type)},
               {"doc", option.doc},
               {"required", !option.default_text.has_value()}};
  if (option.default_text) json["default"] = *option.default_text;
  if (!option.choices.empty()) json["choices"] = option.choices;
  return json;
}

void print_options(const char* title, const std::vector<core::OptionSpec>& options) {
  if (options.empty()) return;
  Table table({"option", "type", "default", "meaning"});
  for (const core::OptionSpec& option : options) {
    table.add(
        {option.key,
         option.choices.empty() ? core::config_type_name(option.type) : join(option.choices, " | "),
         option.default_text.value_or("required"), option.doc});
  }
  print_out("\n{}\n", title);
  write_out(table.render(TableFormat::kAligned));
}

// What the policies of a manifest that use the plugin read and give: a plugin's sizes are those of
// a checkpoint.
Json policies_of(App& app, const std::string& id, const std::string& path) {
  Json policies = Json::array();
  const core::Manifest manifest = app.manifests().load(path);
  bool uses = false;
  for (const core::ModelSpec& spec : manifest.models) {
    if (spec.plugin() != id) continue;
    uses = true;
    const LoadedModel loaded = load_model(app, path, spec.name);
    if (!loaded.extension<frt_role_policy_v1>(FRT_EXT_ROLE_POLICY)) continue;
    const PolicyModel policy = policy_of(loaded);
    Json facts = {{"name", spec.name}};
    facts.update(policy_json(policy));
    facts["reads"] = inputs_text(policy);
    policies.push_back(std::move(facts));
  }
  if (!uses) {
    throw ExitError(ExitCode::kUsage, FRT_ERR_NOT_FOUND,
                    fmt::format("no model of {} uses the plugin {}; name another manifest", path,
                                io::printable(id)));
  }
  return policies;
}

void print_policies(const Json& policies) {
  for (const Json& policy : policies) {
    Table table({"policy", policy["name"].get<std::string>()});
    table.add({"reads", policy["reads"].get<std::string>()});
    const auto number = [&](const char* key) { return policy[key].get<uint32_t>(); };
    table.add({"views", fmt::format("{}, each {} x {} pixels", number("views"),
                                    number("image_width"), number("image_height"))});
    table.add({"state", fmt::format("{} values", number("state_dim"))});
    table.add({"prompt", fmt::format("up to {} tokens", number("prompt_tokens"))});
    table.add({"horizon", fmt::format("{} actions", number("horizon"))});
    table.add({"action", fmt::format("{} values, {} in the network", number("action_dim"),
                                     number("network_action_dim"))});
    table.add({"steps", fmt::format("{}", number("steps"))});
    table.add({"guidance branches", fmt::format("{}", number("guidance_branches"))});
    write_out("\n" + table.render(TableFormat::kAligned));
  }
}

// What the environments of a manifest that use the plugin give and take, each with its options.
Json environments_of(App& app, const core::OpenPlugin& plugin, const std::string& path) {
  const std::string& id = plugin.loaded().card.id;
  Json environments = Json::array();
  for (const core::EnvironmentSpec& spec : app.manifests().load(path).environments) {
    if (spec.plugin() != id) continue;
    Json facts = {{"name", spec.name}};
    facts.update(environment_json(PluginEnvironment(plugin, spec.name, spec.options)));
    environments.push_back(std::move(facts));
  }
  if (environments.empty()) {
    throw ExitError(ExitCode::kUsage, FRT_ERR_NOT_FOUND,
                    fmt::format("no environment of {} uses the plugin {}; name another manifest",
                                path, io::printable(id)));
  }
  return environments;
}

std::string yes(bool value) {
  return value ? "yes" : "no";
}

void print_environments(const Json& environments) {
  for (const Json& one : environments) {
    const auto text = [](const Json& value) { return value.get<std::string>(); };
    Table table({"environment", text(one["name"])});
    for (const Json& port : one["gives"]) {
      table.add(
          {"gives " + text(port["kind"]),
           fmt::format("{} {}: {}", text(port["name"]), text(port["type"]), text(port["doc"]))});
    }
    table.add({"action", text(one["action"]["type"]) + ": " + text(one["action"]["doc"])});
    std::vector<std::string> tasks;
    for (const Json& task : one["tasks"]) tasks.push_back(text(task["name"]));
    table.add({"tasks", tasks.empty() ? "one" : join(tasks, ", ")});
    const auto steps = one["max_steps"].get<uint32_t>();
    table.add({"episode", steps ? fmt::format("at most {} steps", steps) : "without a limit"});
    const double period = one["period_s"].get<double>();
    table.add({"pace", period > 0 ? fmt::format("{:g} s a step", period) : "any"});
    for (const char* key : {"deterministic", "hands_off", "expert", "draws"}) {
      std::string name = key;
      std::ranges::replace(name, '_', ' ');
      table.add({name, yes(one[key].get<bool>())});
    }
    write_out("\n" + table.render(TableFormat::kAligned));
  }
}

ExitCode show(App& app, const std::string& id, const std::string& manifest, bool as_json) {
  if (manifest.empty() && !app.options().sets.empty()) {
    throw ExitError(ExitCode::kUsage, FRT_ERR_INVALID_ARGUMENT,
                    "--set changes a value of a manifest; name the manifest with --manifest");
  }
  const core::LoadedPlugin& loaded = stage(
      ExitCode::kPlugin, [&]() -> const core::LoadedPlugin& { return app.registry().load(id); });
  core::HostServices services(app.log());
  services.setup_patience = app.setup_patience();
  core::Diagnostics diagnostics;
  const core::Config options =
      core::resolve_config(loaded.schema.plugin_options, {}, core::ResolveContext{}, diagnostics);
  diagnostics.throw_if_errors();
  const core::Card& card = loaded.card;
  const bool is_environment = card.kind == FRT_PLUGIN_ENVIRONMENT;
  DeviceKernels kernels;
  Json policies = Json::array(), environments = Json::array();
  stage(ExitCode::kPlugin, [&] {
    const core::OpenPlugin plugin(loaded, options, services);
    kernels = kernels_of(plugin);
    if (is_environment && !manifest.empty()) {
      environments = environments_of(app, plugin, manifest);
    }
  });
  if (!is_environment && !manifest.empty()) policies = policies_of(app, id, manifest);
  if (as_json) {
    Json json = candidate_json(*app.registry().find_usable(id));
    json["build"] = loaded.descriptor->build;
    json["plugin_options"] = Json::array();
    json["options"] = Json::array();
    json["kernels"] = Json::array();
    for (const auto& option : loaded.schema.plugin_options) {
      json["plugin_options"].push_back(option_json(option));
    }
    for (const auto& option : loaded.schema.options) json["options"].push_back(option_json(option));
    for (const auto& row : kernels.operators) {
      Json weights = Json::array();
      for (const auto& pattern : row.weights) weights.push_back(weight_text(pattern));
      json["kernels"].push_back({{"name", row.name},
                                 {"inputs", row.inputs},
                                 {"outputs", row.outputs},
                                 {"weights", weights}});
    }
    json["kernel_variants"] = Json::array();
    for (const KernelVariant& variant : kernels.variants) {
      json["kernel_variants"].push_back({{"operation", variant.operation},
                                         {"variant", variant.name},
                                         {"needs", variant.needs},
                                         {"offered", variant.offered}});
    }
    if (!manifest.empty())
      json[is_environment ? "environments" : "policies"] = is_environment ? environments : policies;
    print_json(json);
    return ExitCode::kOk;
  }
  print_out("{} {} ({}), ABI {}.{}\n{}\nfile: {}\nbuild: {}\ntargets: {}\n", card.id, card.version,
            core::plugin_kind_name(card.kind), card.abi_major, card.abi_minor,
            io::printable(card.summary), io::printable(loaded.path.string()),
            io::printable(loaded.descriptor->build), targets_of(card));
  if (!card.requirements.empty()) print_out("requires: {}\n", join(card.requirements, ", "));
  if (!card.model_types.empty()) print_out("model types: {}\n", join(card.model_types, ", "));
  print_options("plugin options, [plugin-options.\"ID\"]", loaded.schema.plugin_options);
  print_options(card.kind == FRT_PLUGIN_BACKEND ? "options, [device.NAME.options]"
                : card.kind == FRT_PLUGIN_MODEL ? "options, [model.NAME.options]"
                                                : "options, [environment.NAME.options]",
                loaded.schema.options);
  if (!kernels.operators.empty()) {
    Table table({"operator", "inputs", "outputs", "weights"});
    for (const auto& row : kernels.operators) {
      table.add({row.name, row.inputs, row.outputs, formats_text(row.weights)});
    }
    write_out("\noperators\n" + table.render(TableFormat::kAligned));
  }
  if (card.kind == FRT_PLUGIN_MODEL) {
    print_out(
        "\noperators: those that a model needs depend on its checkpoint and options; loading it on "
        "a backend that lacks some names them all\n");
  }
  if (!kernels.variants.empty()) {
    Table table({"operation", "kernel variant", "on device 0", "needs"});
    for (const KernelVariant& variant : kernels.variants) {
      table.add({variant.operation, variant.name, variant.offered ? "offered" : "-",
                 variant.needs.empty() ? "-" : variant.needs});
    }
    print_out("\nkernel variants, in order of preference\n{}", table.render(TableFormat::kAligned));
  }
  print_policies(policies);
  print_environments(environments);
  return ExitCode::kOk;
}

// The file that was named behind the command, or the lock of all commands, or the usual name.
std::string lock_path(const App& app, const std::string& given) {
  const std::string& general = app.options().lock;
  if (!given.empty() && !general.empty() && given != general) {
    throw ExitError(ExitCode::kUsage, FRT_ERR_INVALID_ARGUMENT,
                    fmt::format("two locks, '{}' and that of --lock or FRT_LOCK, '{}'; give one",
                                given, general));
  }
  return !given.empty() ? given : !general.empty() ? general : "frt.lock";
}

ExitCode lock(App& app, const std::string& path) {
  std::vector<core::LockEntry> entries;
  for (const std::filesystem::path& file : usable_files(app)) {
    entries.push_back(core::lock_entry(file));
  }
  core::write_lock(path, entries);
  print_out("{0}: {1} plugins pinned; use it with --lock {0} or FRT_LOCK={0}\n",
            io::printable(path), entries.size());
  return ExitCode::kOk;
}

ExitCode verify(App& app, const std::string& path) {
  const std::vector<std::string> problems = lock_problems(app, path);
  for (const std::string& problem : problems) print_out("{}\n", io::printable(problem));
  if (!problems.empty()) return ExitCode::kPlugin;
  print_out("{}: all {} plugins match\n", io::printable(path), usable_files(app).size());
  return ExitCode::kOk;
}

}  // namespace

void add_plugins_command(App& app) {
  Command plugins = app.program().add_subcommand("plugins", "List, show and pin plugins");
  plugins.require_subcommand();
  plugins.examples({"plugins ls", "plugins show frt.cpu", "plugins lock frt.lock"},
                   "Plugins are searched for in the folders of --plugin-dir, then in those of\n"
                   "FRT_PLUGIN_PATH (absolute, with ':' between them), then in lib/frt/plugins of\n"
                   "this installation. The first file with an id is taken.");

  auto list_json = std::make_shared<bool>(false);
  auto only_ids = std::make_shared<bool>(false);
  Command ls = plugins.add_subcommand("ls", "List every plugin file, and why a file is refused");
  const Option ids = ls.add_flag("--ids", *only_ids, "Print only the ids of usable plugins");
  ls.add_flag("--json", *list_json, "Print one JSON object").excludes(ids);
  ls.examples({"plugins ls", "--plugin-dir build/plugins plugins ls --json"});
  app.add_command(ls, [&app, list_json, only_ids] {
    return *only_ids ? list_ids(app) : list(app, *list_json);
  });

  auto id = std::make_shared<std::string>();
  auto show_json = std::make_shared<bool>(false);
  Command one = plugins.add_subcommand(
      "show",
      "Show the options and operators of one plugin, what its policies read, what its environments "
      "give");
  one.add_option("id", *id, "Show the plugin of this id, e.g. frt.cpu")
      .type_name("PLUGIN")
      .required();
  auto manifest = std::make_shared<std::string>();
  one.add_option(
         "--manifest", *manifest,
         "Load this manifest's models or environments of the plugin and list what they read "
         "and give")
      .type_name("FILE");
  one.add_flag("--json", *show_json, "Print one JSON object");
  one.examples({"plugins show frt.cpu",
                "plugins show frt.pi05 --manifest share/frt/manifests/reach.toml",
                "plugins show frt.reach --manifest share/frt/manifests/reach.toml"});
  app.add_command(
      one, [&app, id, manifest, show_json] { return show(app, *id, *manifest, *show_json); });

  auto pin_file = std::make_shared<std::string>();
  Command pin =
      plugins.add_subcommand("lock", "Write the digests of all usable plugins to a lock file");
  pin.add_option("file", *pin_file, "Use this lock file; default: that of --lock, or frt.lock");
  pin.examples({"plugins lock frt.lock"});
  app.add_command(pin, [&app, pin_file] { return lock(app, lock_path(app, *pin_file)); });

  auto verify_file = std::make_shared<std::string>();
  Command compare = plugins.add_subcommand("verify", "Compare all usable plugins with a lock file");
  compare.add_option("file", *verify_file,
                     "Use this lock file; default: that of --lock, or frt.lock");
  compare.examples({"plugins verify frt.lock"});
  app.add_command(compare,
                  [&app, verify_file] { return verify(app, lock_path(app, *verify_file)); });
}

}  // namespace frt::host
