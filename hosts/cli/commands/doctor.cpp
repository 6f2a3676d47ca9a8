// SPDX-License-Identifier: Apache-2.0
// frt-host doctor: facts about this machine and this installation, each with a verdict and, where
// it is not good, with what to do. Works when nothing loads.
//
// Plugins are tried in child processes first, so one that crashes is a finding, not the end.
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <frt/io/file.hpp>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>

#include "cli/app.hpp"
#include "cli/build_info.hpp"
#include "cli/terminal/output.hpp"
#include "cli/terminal/progress_view.hpp"
#include "cli/terminal/table.hpp"
#include "runtime/device_survey.hpp"

namespace frt::host {
namespace {

enum class Verdict { kOk, kNote, kProblem };

struct Finding {
  std::string subject;
  Verdict verdict = Verdict::kOk;
  std::string fact;
  std::string advice;   // empty when ok
  bool detail = false;  // one of many: not for the table
};

constexpr std::size_t kShownFacts = 6;  // of a device, those that need no advice

const char* verdict_name(Verdict verdict) {
  return verdict == Verdict::kOk ? "ok" : verdict == Verdict::kNote ? "note" : "PROBLEM";
}

// The value of a line "Key:   123 kB" of /proc/meminfo in bytes; 0 if it is not there.
uint64_t memory_info(const std::string& key) {
  std::istringstream file(io::read_optional_file("/proc/meminfo", 1 << 20));
  std::string name;
  uint64_t value = 0;
  for (std::string line; std::getline(file, line);) {
    std::istringstream stream(line);
    if (stream >> name >> value && name == key + ":") return value * 1024;
  }
  return 0;
}

void check_system(std::vector<Finding>& findings) {
  utsname system{};
  uname(&system);
  findings.push_back({"system", Verdict::kOk,
                      fmt::format("{} {} {}", system.sysname, system.release, system.machine), ""});
  findings.push_back({"program", Verdict::kOk, "frt-host " + build_description(), ""});
  const uint64_t total = memory_info("MemTotal"), available = memory_info("MemAvailable");
  const bool low = total != 0 && available < total / 10;
  findings.push_back(
      {"memory", low ? Verdict::kNote : Verdict::kOk,
       fmt::format("{} of {} available", format_bytes(available), format_bytes(total)),
       low ? "close other programs before loading a large model" : ""});
  rlimit locked{};
  getrlimit(RLIMIT_MEMLOCK, &locked);
  const bool unlimited = locked.rlim_cur == RLIM_INFINITY;
  findings.push_back(
      {"locked memory", Verdict::kOk, unlimited ? "unlimited" : format_bytes(locked.rlim_cur), ""});
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  const bool few = files.rlim_cur < 256;
  findings.push_back(
      {"open files", few ? Verdict::kNote : Verdict::kOk, fmt::format("{}", files.rlim_cur),
       few ? "raise it with ulimit -n 1024: sharded checkpoints open many files" : ""});
}

void check_plugins(App& app, std::vector<Finding>& findings) {
  std::size_t usable = 0;
  std::vector<std::filesystem::path> files;
  for (const core::Candidate& candidate : app.registry().candidates()) {
    const std::string subject =
        "plugin " + (candidate.card ? candidate.card->id : candidate.path.filename().string());
    if (candidate.state == core::CandidateState::kShadowed) {
      findings.push_back({subject, Verdict::kNote,
                          candidate.path.string() + ": " + candidate.reason,
                          "remove one of the two files"});
      continue;
    }
    if (candidate.state == core::CandidateState::kRefused) {
      findings.push_back({subject, Verdict::kProblem,
                          candidate.path.string() + ": " + candidate.reason,
                          "rebuild it for this program, or remove it"});
      continue;
    }
    files.push_back(candidate.path);
    const core::ProbeResult probe = core::probe_in_child(candidate.path);
    const bool good = probe.verdict == core::ProbeVerdict::kOk;
    usable += good ? 1 : 0;
    findings.push_back({subject, good ? Verdict::kOk : Verdict::kProblem,
                        good ? candidate.card->version + ", " + candidate.path.string()
                             : "does not load: " + probe.detail,
                        good ? "" : "rebuild it, or remove " + candidate.path.string()});
  }
  if (const std::string& lock = app.options().lock; !lock.empty()) {
    const std::vector<std::string> problems = core::verify_lock(core::read_lock(lock), files);
    for (const std::string& problem : problems) {
      findings.push_back({"lock " + lock, Verdict::kProblem, problem,
                          "put back the plugin that was pinned, or pin it anew with `frt-host "
                          "plugins lock`"});
    }
    if (problems.empty()) findings.push_back({"lock " + lock, Verdict::kOk, "all match", ""});
  }
  if (usable == 0) {
    std::string searched;
    for (const std::string& place : app.registry().describe_search()) searched += "; " + place;
    findings.push_back({"plugins", Verdict::kProblem, "none is usable" + searched,
                        "install plugins beside the program (../lib/frt/plugins) or give "
                        "--plugin-dir"});
  }
}

// Which kernels the device has that `auto` means: a variant that a device lacks is slower, not
// wrong.
void check_kernels(App& app, const Survey& survey, std::vector<Finding>& findings) {
  const std::string& plugin = survey.automatic;
  if (plugin.empty()) return;
  const std::string subject = fmt::format("kernels of {}:0", plugin);
  try {
    std::size_t offered = 0;
    std::vector<Finding> missing;
    const std::vector<KernelVariant> variants =
        survey_variants(app.registry(), app.log(), plugin, 0,
                        {.with_facts = false, .setup_patience = app.setup_patience()});
    for (const KernelVariant& variant : variants) {
      offered += variant.offered ? 1 : 0;
      if (variant.offered) continue;
      const std::string needs = variant.needs.empty() ? "" : "; it needs " + variant.needs;
      missing.push_back({subject, Verdict::kOk,
                         fmt::format("{} {} does not run on this device{}", variant.operation,
                                     variant.name, needs),
                         "", true});
    }
    if (variants.empty()) return;
    findings.push_back(
        {subject, Verdict::kOk,
         fmt::format("{} of {} kernel variants are offered", offered, variants.size()), ""});
    findings.insert(findings.end(), missing.begin(), missing.end());
  } catch (const Error& error) {
    findings.push_back({subject, Verdict::kProblem, error.what(), "see the text"});
  }
}

void check_devices(App& app, std::vector<Finding>& findings) {
  const Survey survey = survey_devices(
      app.registry(), app.log(), {.with_facts = true, .setup_patience = app.setup_patience()});
  for (const SurveyedDevice& device : survey.devices) {
    const std::string subject = fmt::format("device {}:{}", device.plugin, device.ordinal);
    findings.push_back({subject, Verdict::kOk,
                        fmt::format("{} ({}, {} units), {} of {} free; {}", device.info.name,
                                    device.info.architecture, device.info.compute_units,
                                    format_bytes(device.info.memory_free),
                                    format_bytes(device.info.memory_total), device.info.detail),
                        ""});
    std::size_t plain = 0;
    for (const SurveyedFact& fact : device.facts) {
      findings.push_back({subject + " " + fact.subject,
                          fact.advice.empty() ? Verdict::kOk : Verdict::kNote, fact.fact,
                          fact.advice, fact.advice.empty() && ++plain > kShownFacts});
    }
  }
  for (const SurveyedPlugin& plugin : survey.plugins) {
    if (plugin.problem.empty()) continue;
    findings.push_back({"backend " + plugin.id, Verdict::kNote, plugin.problem,
                        "nothing to do unless this machine should have such a device"});
  }
  if (survey.automatic.empty()) {
    findings.push_back({"backend = \"auto\"", Verdict::kNote, "finds no device beside the CPU",
                        "write backend = \"frt.cpu\" to run on the CPU"});
  } else {
    findings.push_back({"backend = \"auto\"", Verdict::kOk,
                        survey.automatic + ", " + survey.automatic_reason, ""});
  }
  check_kernels(app, survey, findings);
}

ExitCode doctor(App& app, bool as_json) {
  std::vector<Finding> findings;
  check_system(findings);
  try {
    check_plugins(app, findings);
    check_devices(app, findings);
  } catch (const std::exception& error) {
    findings.push_back({"plugins", Verdict::kProblem, error.what(), "see the text"});
  }
  bool healthy = true;
  for (const Finding& finding : findings) healthy = healthy && finding.verdict != Verdict::kProblem;
  if (as_json) {
    nlohmann::ordered_json json = {{"healthy", healthy},
                                   {"findings", nlohmann::ordered_json::array()}};
    for (const Finding& finding : findings) {
      json["findings"].push_back({{"subject", finding.subject},
                                  {"verdict", verdict_name(finding.verdict)},
                                  {"fact", finding.fact},
                                  {"advice", finding.advice}});
    }
    print_json(json);
  } else {
    Table table({"", "subject", "fact"});
    std::size_t details = 0;
    for (const Finding& finding : findings) {
      details += finding.detail ? 1 : 0;
      if (finding.detail) continue;
      table.add({verdict_name(finding.verdict), finding.subject,
                 finding.fact + (finding.advice.empty() ? "" : "  -> " + finding.advice)});
    }
    write_out(table.render(TableFormat::kAligned));
    print_out(
        "{}{}\n",
        details ? fmt::format("and {} more facts of devices: --json has them\n", details) : "",
        healthy ? "no problem found" : "there are problems, see above");
  }
  return healthy ? ExitCode::kOk : ExitCode::kFailed;
}

}  // namespace

void add_doctor_command(App& app) {
  auto json = std::make_shared<bool>(false);
  Command command =
      app.program().add_subcommand("doctor", "Check this installation; suggest fixes");
  command.add_flag("--json", *json, "Print one JSON object");
  command.examples({"doctor", "doctor --json"});
  app.add_command(command, [&app, json] { return doctor(app, *json); });
}

}  // namespace frt::host
