// SPDX-License-Identifier: Apache-2.0
// frt-plugin-check: does a plugin do what the headers say? Of every plugin: card, descriptor, life,
// hosts of other versions, tables (plugin_cases.hpp). Of a model: that it is made and destroyed,
// its roles, captured runs against eager ones, capsules, options (model_cases.cpp). Of an
// environment: episodes against each other, what it gives against its ports, what it must refuse
// (environment_cases.cpp). Of a backend:
// its streams, events and executables by the rules of frt/backend.h, and every operator it offers,
// with random inputs and odd shapes, against the CPU backend in its reference numerics (f32, one
// fixed order of reduction); and products and whatever moves, counts, converts, routes or samples
// against values computed here in double, which judge the CPU backend, too (expected.hpp).
//
// No code of a plugin runs in this process (child.hpp). Each case of every plugin has a process of
// its own; the cases of operators share one, because devices open slowly, and where one crashes or
// hangs, a new process goes on with the next case.
//
// Under a tool that makes each case a hundred times slower (compute-sanitizer), --part spreads the
// cases over processes side by side, and --seconds ends a process in time: the cases are then taken
// in random order, so what is left out is left out evenly, and it is counted. --one-of-each and
// --once leave out what such a tool would see again; --list shows the order, --verbose what a case
// took, and --cases runs those of a list, e.g. what was left out. What shows itself in one run of
// many wants --repeat.
//
// A backend that lists its kernel variants (frt/draft/kernel_variants.h) is asked after each case
// which of them ran; --json has them. A run of all cases fails where a variant that the device
// offers never ran: nothing would have tested it.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <frt/error.hpp>
#include <frt/io/utf8.hpp>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include <signal.h>
#include <unistd.h>

#include "check.hpp"
#include "child.hpp"
#include "choice.hpp"
#include "plugin_cases.hpp"
#include "run.hpp"

namespace {

using frt::conformance::Choice;
using frt::conformance::Item;
using frt::conformance::Items;
using frt::conformance::Option;
using frt::conformance::PluginCase;
using frt::conformance::Report;
using frt::conformance::Rounding;
using frt::conformance::Run;
using frt::conformance::Subject;
using frt::conformance::Suite;
using frt::conformance::Totals;
using Json = nlohmann::ordered_json;

// "key=value" as an option of the device.
Option option_of(const std::string& text) {
  const auto equals = text.find('=');
  if (equals == std::string::npos) {
    throw frt::Error(FRT_ERR_INVALID_ARGUMENT, "--set '" + text + "': expected key=value");
  }
  return {text.substr(0, equals), text.substr(equals + 1)};
}

// The CPU backend of this installation; never that of the folder where a vendor's plugin lies,
// unless there is no other.
std::string find_reference(const std::string& plugin) {
  namespace fs = std::filesystem;
  std::error_code code;
  const fs::path program = fs::read_symlink("/proc/self/exe", code).parent_path();
  const fs::path places[] = {program / ".." / "lib" / "frt" / "plugins", program,
                             fs::path(plugin).parent_path()};
  std::string searched;
  for (const fs::path& folder : places) {
    const fs::path file = (folder / "frt_cpu.so").lexically_normal();
    if (fs::exists(file, code)) return file.string();
    searched += (searched.empty() ? "" : ", ") + file.string();
  }
  throw frt::Error(FRT_ERR_NOT_FOUND,
                   "the reference, the CPU backend, is not installed (searched: " + searched +
                       "); give its file with --reference");
}

// A folder for files of the run.
class Folder {
 public:
  Folder() {
    std::error_code code;
    path_ = (std::filesystem::temp_directory_path(code) / "frt-plugin-check-XXXXXX").string();
    if (code || !::mkdtemp(path_.data())) {
      throw frt::Error(FRT_ERR_IO, "cannot make a folder " + path_ + "; set TMPDIR");
    }
  }
  ~Folder() {
    std::error_code code;
    std::filesystem::remove_all(path_, code);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

constexpr const char* kNothing =
    "nothing was checked: the plugin offers none of the chosen operators, or --filter, --cases, "
    "--part or --seconds leave no case; --list shows the cases";

// An option that changes nothing is a mistake: who gives it believes that it does.
void refuse_idle_options(const CLI::App& app, uint32_t kind, bool makes_model) {
  const auto refuse = [&](std::initializer_list<const char*> options, const char* why) {
    for (const char* option : options) {
      if (app.count(option) > 0) {
        throw frt::Error(FRT_ERR_INVALID_ARGUMENT,
                         std::string(option) + " has no effect: " + why + "; leave it out");
      }
    }
  };
  if (kind == FRT_PLUGIN_MODEL) {
    refuse({"--device", "--strict", "--once", "--activations", "--all-variants", "--threads",
            "--seconds"},
           "it is for the operators of a backend, and this plugin is a model");
    if (!makes_model) {
      refuse({"--set", "--backend", "--prompt"}, "no model is made without --checkpoint");
    }
  } else if (kind == FRT_PLUGIN_BACKEND) {
    refuse({"--checkpoint", "--backend", "--prompt"},
           "it is for models, and this plugin is a backend");
  } else if (kind == FRT_PLUGIN_ENVIRONMENT) {
    refuse({"--device", "--strict", "--once", "--activations", "--all-variants", "--threads",
            "--seconds"},
           "it is for the operators of a backend, and this plugin is an environment");
    refuse({"--checkpoint", "--backend", "--prompt"},
           "it is for models, and this plugin is an environment");
  }
  if (app.count("--json") > 0) refuse({"--verbose"}, "--json tells everything");
  if (app.count("--in-process") > 0) refuse({"--timeout"}, "--in-process has no clock");
  if (app.count("--list") > 0) refuse({"--json", "--verbose"}, "--list runs no case");
}

// Cases about the model would all fail for it, and say so in the words of a plugin.
void require_checkpoint(const std::string& checkpoint) {
  std::error_code code;
  if (checkpoint.empty() || checkpoint.starts_with("synthetic:") ||
      std::filesystem::exists(checkpoint, code)) {
    return;
  }
  throw frt::Error(FRT_ERR_NOT_FOUND,
                   "--checkpoint " + checkpoint + ": no such file or folder in " +
                       std::filesystem::current_path(code).string() + "; nothing was checked");
}

// `status`, unless a part of the report could not be written.
int end_of_output(int status) {
  if (std::fflush(stdout) == 0 && !std::ferror(stdout)) return status;
  std::fprintf(stderr, "error: the output could not be written\n");
  return 1;
}

// What the card says; kind 0 where it cannot be read, which the first case reports.
frt::core::Card card_of(const std::string& plugin) {
  try {
    return frt::core::read_image(plugin).card;
  } catch (const frt::Error&) {
    return {};
  }
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(
      "Checks a plugin, a backend, a model or an environment, against what the headers say.");
  std::string part, cases, activations;
  Subject subject;
  Choice choice;
  std::vector<std::string> settings;
  bool list = false;
  Report report;
  app.add_option("plugin", subject.plugin, "The plugin file, e.g. lib/frt/plugins/frt_cpu.so")
      ->required();
  app.add_option("--reference", subject.reference,
                 "The CPU plugin; default: that of this installation, else frt_cpu.so beside the "
                 "plugin. Needed for operators and models");
  app.add_option("--device", subject.device, "Ordinal of the device, of a backend");
  app.add_option("--set", settings,
                 "An option of the backend's device, the model or the environment, key=value; "
                 "repeatable");
  app.add_option("--checkpoint", subject.checkpoint,
                 "What a model is made of; without it no model is made");
  app.add_option("--backend", subject.backend,
                 "The backend plugin that a model runs on; default: the reference");
  app.add_option(
      "--prompt", subject.prompt,
      "The instruction that a policy is given; default: \"go left\", or ids where it takes "
      "no words or not these");
  app.add_option("--filter", choice.filter, "Only cases whose name contains this text, as it is");
  app.add_option("--cases", cases, "Only the cases whose names stand in this file, one a line");
  app.add_option("--part", part, "I/N: of these each N-th case, from the I-th on");
  app.add_flag("--one-of-each", choice.one_of_each,
               "Of cases whose names differ in numbers only, the middle one");
  app.add_flag("--once", choice.once, "Each case once, eagerly: nothing is recorded");
  app.add_flag("--strict", choice.strict,
               "FRT_ERR_UNSUPPORTED fails a case; otherwise it is skipped, as where the plugin has "
               "no such operator");
  app.add_option("--activations", activations,
                 "fp8, fp4: the plugin rounds activations to that in products of many rows with "
                 "FP8 (NVFP4) weights (with --set activations=...), which must show; for the cases "
                 "of ` gemm` and, for fp4, of `moe_`")
      ->check(CLI::IsMember({"fp8", "fp4"}));
  app.add_option("--repeat", choice.repeat, "Each case so often, one after the other")
      ->check(CLI::PositiveNumber);
  app.add_option("--seconds", choice.seconds,
                 "Takes the cases in random order and begins none after so many seconds")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--threads", choice.threads,
                 "Of the reference; 0: all cores. 1 where processes run side by side");
  app.add_option("--seed", choice.seed,
                 "Seed of the random inputs, and of the order with --seconds")
      ->capture_default_str();
  app.add_flag("--verbose", report.verbose,
               "A line per case: largest relative error of a tensor, of an element, its time");
  app.add_flag(
      "--json", report.json,
      "One JSON object: each case with its verdict and the kernel variants that computed it");
  app.add_flag(
      "--all-variants", choice.all_variants,
      "Fails where a kernel variant that the device offers never ran, as a run of all cases "
      "does by itself");
  app.add_option(
         "--timeout", choice.patience,
         "Seconds that one case, or making one model, may take before it counts as hanging; 0: any "
         "time")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_flag("--in-process", choice.in_process,
               "Run everything in this process: for debuggers; a crash ends the check");
  app.add_flag("--list", list, "Only list the cases");
  CLI11_PARSE(app, argc, argv);

  Suite suite;
  frt::conformance::add_runtime_cases(suite);
  frt::conformance::add_draft_cases(suite);
  frt::conformance::add_elementwise_cases(suite);
  frt::conformance::add_norm_cases(suite);
  frt::conformance::add_embed_cases(suite);
  frt::conformance::add_linear_cases(suite);
  frt::conformance::add_linear_gemm_cases(suite);
  frt::conformance::add_gated_delta_cases(suite);
  frt::conformance::add_attention_cases(suite);
  frt::conformance::add_moe_cases(suite);
  frt::conformance::add_sample_cases(suite);
  frt::conformance::add_weight_cases(suite);
  frt::conformance::add_dense_cases(suite);
  frt::conformance::add_dense_attention_cases(suite);
  frt::conformance::add_dense_fp8_cases(suite);
  frt::conformance::add_flow_cases(suite);
  frt::conformance::add_flow_layers_cases(suite);
  try {
    if (!part.empty()) frt::conformance::read_part(part, choice);
    if (!activations.empty()) {
      choice.activations = activations == "fp8" ? Rounding::kFp8 : Rounding::kFp4;
    }
    if (!cases.empty()) choice.names = frt::conformance::read_names(cases);
    const frt::core::Card card = card_of(subject.plugin);
    const std::vector<PluginCase> of_plugin = frt::conformance::plugin_cases(card.kind);
    const bool is_backend = card.kind == FRT_PLUGIN_BACKEND;
    const Suite none;
    const Items items =
        frt::conformance::chosen_cases(of_plugin, is_backend ? suite : none, choice);
    refuse_idle_options(app, card.kind, !subject.checkpoint.empty());
    if (items.empty()) {
      throw frt::Error(FRT_ERR_NOT_FOUND, kNothing);
    }
    if (list) {
      for (const Item& item : items) std::printf("%s\n", item.name.c_str());
      return end_of_output(0);
    }
    require_checkpoint(subject.checkpoint);
    for (const std::string& text : settings) subject.options.push_back(option_of(text));
    subject.seed = choice.seed;
    const bool runs_model = card.kind == FRT_PLUGIN_MODEL && !subject.checkpoint.empty();
    if (subject.reference.empty() &&
        (std::any_of(items.begin(), items.end(), frt::conformance::needs_reference) ||
         (runs_model && subject.backend.empty()))) {
      subject.reference = find_reference(subject.plugin);
    }
    const Folder folder;
    subject.folder = folder.path();
    frt::conformance::adopt_orphans();
    if (!choice.in_process) frt::conformance::note_interruptions();
    Run run(items, subject, choice, card.id, report);
    if (!report.json) {
      const std::string& name = card.id.empty() ? subject.plugin : card.id;
      std::printf("checking %s: %zu case%s\n", frt::io::printable(name).c_str(), items.size(),
                  items.size() == 1 ? "" : "s");
      std::fflush(stdout);
    }
    try {
      run.all();
    } catch (const frt::conformance::Interrupted&) {
      if (!report.json) run.print_summary();
      throw;
    }
    const Totals& totals = run.totals();
    const std::vector<std::string> idle = run.idle();
    if (report.json) {
      const Json all = {
          {"plugin", card.id},         {"device", run.device()},  {"seed", choice.seed},
          {"cases", report.cases},     {"passed", totals.passed}, {"failed", totals.failed},
          {"skipped", totals.skipped}, {"left_out", totals.left}, {"idle_variants", idle}};
      std::printf("%s\n", all.dump(2, ' ', false, Json::error_handler_t::replace).c_str());
    } else {
      run.print_summary();
    }
    if (totals.failed > 0) return 1;
    if (choice.activations != Rounding::kNone && totals.rounded == 0) {
      std::fprintf(stderr,
                   "error: no product was rounded: --activations wants a device that does so "
                   "(--set activations=%s) and cases of products with such weights\n",
                   activations.c_str());
      return 1;
    }
    if (totals.passed > 0 && (choice.all_variants || frt::conformance::is_full(choice)) &&
        !idle.empty()) {
      for (const std::string& name : idle) {
        std::fprintf(stderr,
                     "error: the device offers the kernel variant `%s`, and no case ran it\n",
                     name.c_str());
      }
      return 1;
    }
    if (totals.passed > 0) return end_of_output(0);
    std::fprintf(stderr, "error: %s\n", kNothing);
    return 1;
  } catch (const frt::conformance::Interrupted& interrupted) {
    // As it would have ended this program; the folder is gone by now.
    ::signal(interrupted.signal, SIG_DFL);
    ::raise(interrupted.signal);
    return 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
}
