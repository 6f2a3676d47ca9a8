// SPDX-License-Identifier: Apache-2.0
// frt-plugin-check: does a backend plugin do what the headers say? Its streams, events and
// executables by the rules of frt/backend.h. Every operator it offers, with random inputs and odd
// shapes, against the CPU backend in its reference numerics (f32, one fixed order of reduction);
// and products and whatever moves, counts, converts, routes or samples against values computed here
// in double, which judge the CPU backend, too (expected.hpp).
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
#include <cctype>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <frt/error.hpp>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "check.hpp"
#include "variants.hpp"

namespace {

using frt::conformance::Backend;
using frt::conformance::Case;
using frt::conformance::Option;
using frt::conformance::Skip;
using frt::conformance::Suite;
using frt::conformance::VariantWatch;
using Json = nlohmann::ordered_json;

// "key=value" as an option of the device.
Option option_of(const std::string& text) {
  const auto equals = text.find('=');
  if (equals == std::string::npos) {
    throw frt::Error(FRT_ERR_INVALID_ARGUMENT, "--set '" + text + "': expected key=value");
  }
  return {text.substr(0, equals), text.substr(equals + 1)};
}

struct Choice {
  std::string filter;           // text in the name
  std::set<std::string> names;  // only these, if any
  int part = 1, parts = 1;   // of the cases that the filter leaves, each parts-th from this one on
  double seconds = 0;        // no case begins later; 0: all of them
  bool one_of_each = false;  // of cases whose names differ in numbers only the middle one
  bool once = false;         // eagerly alone
  bool strict = false;       // an operator that is offered supports all arguments
  bool fp8_activations = false;  // the backend rounds x, and must
  bool all_variants = false;     // every offered kernel variant must run, whatever the cases
  int repeat = 1;                // so often each
  uint64_t seed = 1;
};

// Whether the choice leaves no case out.
bool is_full(const Choice& choice) {
  return choice.filter.empty() && choice.names.empty() && choice.parts == 1 &&
         choice.seconds == 0 && !choice.one_of_each;
}

// "3/16".
void read_part(const std::string& text, Choice& choice) {
  int end = 0;
  if (std::sscanf(text.c_str(), "%d/%d%n", &choice.part, &choice.parts, &end) != 2 ||
      static_cast<std::size_t>(end) != text.size() || choice.part < 1 ||
      choice.part > choice.parts) {
    throw frt::Error(FRT_ERR_INVALID_ARGUMENT,
                     "--part '" + text + "': expected I/N with I from 1 to N, e.g. 3/16");
  }
}

// The names in a file, one a line.
std::set<std::string> read_names(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw frt::Error(FRT_ERR_NOT_FOUND, "--cases: cannot read " + path);
  std::set<std::string> names;
  for (std::string line; std::getline(file, line);) {
    if (!line.empty()) names.insert(line);
  }
  if (names.empty()) throw frt::Error(FRT_ERR_INVALID_ARGUMENT, "--cases: no names in " + path);
  return names;
}

using Entries = std::vector<const Suite::Entry*>;

Entries one_of_each(const Entries& all) {
  std::map<std::string, Entries> kinds;
  for (const Suite::Entry* entry : all) {
    std::string kind;
    for (const char c : entry->name) {
      if (!std::isdigit(static_cast<unsigned char>(c))) kind += c;
    }
    kinds[kind].push_back(entry);
  }
  Entries chosen;
  for (const auto& [kind, members] : kinds) chosen.push_back(members[members.size() / 2]);
  return chosen;
}

Entries chosen_cases(const Suite& suite, const Choice& choice) {
  Entries all, chosen;
  for (const Suite::Entry& entry : suite.cases()) {
    if (entry.name.find(choice.filter) == std::string::npos) continue;
    if (choice.names.empty() || choice.names.contains(entry.name)) all.push_back(&entry);
  }
  if (choice.one_of_each) all = one_of_each(all);
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (static_cast<int>(i) % choice.parts == choice.part - 1) {
      chosen.insert(chosen.end(), choice.repeat, all[i]);
    }
  }
  if (choice.seconds > 0) {
    std::mt19937_64 random(choice.seed);
    for (std::size_t i = chosen.size(); i > 1; --i) std::swap(chosen[i - 1], chosen[random() % i]);
  }
  return chosen;
}

struct Totals {
  int passed = 0, failed = 0, skipped = 0, left = 0;
  int rounded = 0;  // with a product of rounded activations
};

// How a run is told: a line for each case that is worth one, or everything in one JSON object.
struct Report {
  bool verbose = false, json = false;
  Json cases = Json::array();

  void add(const std::string& name, const char* result, const std::string& line,
           const std::string& message, const std::vector<std::string>& variants) {
    if (json) {
      Json one = {{"name", name}, {"result", result}, {"variants", variants}};
      if (!message.empty()) one["message"] = message;
      cases.push_back(std::move(one));
    } else if (!line.empty()) {
      std::printf("%s\n", line.c_str());
      std::fflush(stdout);
    }
  }
};

// "FAIL  name   why".
std::string line_of(const char* verdict, const std::string& name, const std::string& why) {
  return std::string(verdict) + "  " + name +
         std::string(std::max<std::size_t>(60, name.size()) - name.size() + 1, ' ') + why;
}

Totals run_cases(const Suite& suite, Backend& tested, Backend& reference, const Choice& choice,
                 VariantWatch& watch, Report& report) {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  Totals totals;
  for (const Suite::Entry* entry : chosen_cases(suite, choice)) {
    if (choice.seconds > 0 &&
        std::chrono::duration<double>(Clock::now() - start).count() > choice.seconds) {
      ++totals.left;
      continue;
    }
    Case one(tested, reference, choice.seed, choice.once, choice.fp8_activations);
    const auto begin = Clock::now();
    try {
      entry->body(one);
      ++totals.passed;
      totals.rounded += one.has_rounded() ? 1 : 0;
      char measured[80];
      std::snprintf(measured, sizeof(measured), "%.2e %.2e %6.2f s", one.worst(),
                    one.worst_element(),
                    std::chrono::duration<double>(Clock::now() - begin).count());
      report.add(entry->name, "ok", report.verbose ? line_of("ok  ", entry->name, measured) : "",
                 "", watch.launched());
    } catch (const Skip& skip) {
      const bool failed = skip.declined && choice.strict;
      ++(failed ? totals.failed : totals.skipped);
      const char* verdict = failed ? "FAIL" : "skip";
      report.add(entry->name, verdict,
                 failed || report.verbose ? line_of(verdict, entry->name, skip.why) : "", skip.why,
                 watch.launched());
    } catch (const std::exception& error) {
      ++totals.failed;
      report.add(entry->name, "FAIL", line_of("FAIL", entry->name, error.what()), error.what(),
                 watch.launched());
    }
  }
  return totals;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Checks a backend plugin against the operators' definitions.");
  std::string plugin, reference, part, cases;
  Choice choice;
  std::vector<std::string> settings;
  uint32_t device = 0, threads = 0;
  bool list = false;
  Report report;
  app.add_option("plugin", plugin, "The plugin file, e.g. lib/frt/plugins/frt_cpu.so")->required();
  app.add_option("--reference", reference, "The CPU plugin; default: frt_cpu.so beside it");
  app.add_option("--device", device, "Ordinal of the device");
  app.add_option("--set", settings, "A device option of the plugin, key=value; repeatable");
  app.add_option("--filter", choice.filter, "Only cases whose name contains this text");
  app.add_option("--cases", cases, "Only the cases whose names stand in this file, one a line");
  app.add_option("--part", part, "I/N: of these each N-th case, from the I-th on");
  app.add_flag("--one-of-each", choice.one_of_each,
               "Of cases whose names differ in numbers only, the middle one");
  app.add_flag("--once", choice.once, "Each case once, eagerly: nothing is recorded");
  app.add_flag("--strict", choice.strict,
               "FRT_ERR_UNSUPPORTED fails a case; otherwise it is skipped, as where the plugin has "
               "no such operator");
  app.add_flag(
      "--fp8-activations", choice.fp8_activations,
      "The plugin rounds bf16 activations to FP8 in products of many rows with FP8 weights "
      "(with --set fp8_activations=on), which must show; for cases of `linear/1 gemm`");
  app.add_option("--repeat", choice.repeat, "Each case so often, one after the other")
      ->check(CLI::PositiveNumber);
  app.add_option("--seconds", choice.seconds,
                 "Takes the cases in random order and begins none after so many seconds")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--threads", threads,
                 "Of the reference; 0: all cores. 1 where processes run side by side");
  app.add_option("--seed", choice.seed, "Seed of the random inputs")->capture_default_str();
  app.add_flag("--verbose", report.verbose,
               "A line per case: largest relative error of a tensor, of an element, its time");
  app.add_flag("--json", report.json,
               "One JSON object: each case with the kernel variants that computed it");
  app.add_flag(
      "--all-variants", choice.all_variants,
      "Fails where a kernel variant that the device offers never ran, as a run of all cases "
      "does by itself");
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
    if (!part.empty()) read_part(part, choice);
    if (!cases.empty()) choice.names = read_names(cases);
    if (list) {
      for (const auto* entry : chosen_cases(suite, choice)) {
        std::printf("%s\n", entry->name.c_str());
      }
      return 0;
    }
    if (reference.empty()) {
      reference = (std::filesystem::path(plugin).parent_path() / "frt_cpu.so").string();
    }
    std::vector<Option> options;
    for (const std::string& text : settings) options.push_back(option_of(text));
    Backend tested(plugin, device, options);
    Backend trusted(reference, 0,
                    {{"numerics", "reference"}, {"threads", std::to_string(threads)}});
    if (!report.json) {
      std::printf("%s: %s, %s\n", tested.id().c_str(), tested.info().name,
                  tested.info().architecture);
    }
    VariantWatch watch(tested);
    const Totals totals = run_cases(suite, tested, trusted, choice, watch, report);
    const std::vector<std::string> idle = watch.idle();
    if (report.json) {
      const Json all = {{"plugin", tested.id()},   {"device", tested.info().name},
                        {"cases", report.cases},   {"passed", totals.passed},
                        {"failed", totals.failed}, {"skipped", totals.skipped},
                        {"left_out", totals.left}, {"idle_variants", idle}};
      std::printf("%s\n", all.dump(2).c_str());
    } else {
      std::printf("%d passed, %d failed, %d skipped", totals.passed, totals.failed, totals.skipped);
      if (totals.left > 0) std::printf(", %d left out for lack of time", totals.left);
      std::printf("\n");
    }
    if (totals.failed > 0) return 1;
    if (choice.fp8_activations && totals.rounded == 0) {
      std::fprintf(stderr,
                   "error: no product was rounded to FP8: --fp8-activations wants a device that "
                   "does so (--set fp8_activations=on) and cases of `linear/1 gemm`\n");
      return 1;
    }
    if (totals.passed > 0 && (choice.all_variants || is_full(choice)) && !idle.empty()) {
      for (const std::string& name : idle) {
        std::fprintf(stderr,
                     "error: the device offers the kernel variant `%s`, and no case ran it\n",
                     name.c_str());
      }
      return 1;
    }
    if (totals.passed > 0) return 0;
    std::fprintf(stderr,
                 "error: nothing was checked: the plugin offers none of the chosen operators, or "
                 "--filter, --cases, --part or --seconds leave no case; --list shows the cases\n");
    return 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
}
