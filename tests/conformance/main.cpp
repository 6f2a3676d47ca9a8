// SPDX-License-Identifier: Apache-2.0
// frt-plugin-check: does a backend plugin compute what the operators' headers say? Every operator
// it offers, with random inputs and odd shapes, against the CPU backend in its reference numerics
// (f32, one fixed order of reduction).
#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <frt/error.hpp>
#include <string>
#include <vector>

#include "check.hpp"

namespace {

using frt::conformance::Backend;
using frt::conformance::Case;
using frt::conformance::Option;
using frt::conformance::Skip;
using frt::conformance::Suite;

// "key=value" as an option of the device.
Option option_of(const std::string& text) {
  const auto equals = text.find('=');
  if (equals == std::string::npos) {
    throw frt::Error(FRT_ERR_INVALID_ARGUMENT, "--set '" + text + "': expected key=value");
  }
  return {text.substr(0, equals), text.substr(equals + 1)};
}

struct Totals {
  int passed = 0, failed = 0, skipped = 0;
};

Totals run_cases(const Suite& suite, Backend& tested, Backend& reference, const std::string& filter,
                 uint64_t seed, bool verbose) {
  Totals totals;
  for (const Suite::Entry& entry : suite.cases()) {
    if (entry.name.find(filter) == std::string::npos) continue;
    Case one(tested, reference, seed);
    try {
      entry.body(one);
      ++totals.passed;
      if (verbose) std::printf("ok    %-60s %.2e\n", entry.name.c_str(), one.worst());
    } catch (const Skip& skip) {
      ++totals.skipped;
      if (verbose) std::printf("skip  %-60s %s\n", entry.name.c_str(), skip.why.c_str());
    } catch (const std::exception& error) {
      ++totals.failed;
      std::printf("FAIL  %-60s %s\n", entry.name.c_str(), error.what());
    }
    std::fflush(stdout);
  }
  return totals;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Checks a backend plugin against the operators' definitions.");
  std::string plugin, reference, filter;
  std::vector<std::string> settings;
  uint32_t device = 0;
  uint64_t seed = 1;
  bool verbose = false, list = false;
  app.add_option("plugin", plugin, "The plugin file, e.g. lib/frt/plugins/frt_cpu.so")->required();
  app.add_option("--reference", reference, "The CPU plugin; default: frt_cpu.so beside it");
  app.add_option("--device", device, "Ordinal of the device");
  app.add_option("--set", settings, "A device option of the plugin, key=value; repeatable");
  app.add_option("--filter", filter, "Only cases whose name contains this text");
  app.add_option("--seed", seed, "Seed of the random inputs")->capture_default_str();
  app.add_flag("--verbose", verbose, "A line per case, with its largest relative error");
  app.add_flag("--list", list, "Only list the cases");
  CLI11_PARSE(app, argc, argv);

  Suite suite;
  frt::conformance::add_elementwise_cases(suite);
  frt::conformance::add_norm_cases(suite);
  frt::conformance::add_embed_cases(suite);
  frt::conformance::add_linear_cases(suite);
  frt::conformance::add_linear_wide_cases(suite);
  frt::conformance::add_gated_delta_cases(suite);
  frt::conformance::add_attention_cases(suite);
  frt::conformance::add_moe_cases(suite);
  frt::conformance::add_sample_cases(suite);
  if (list) {
    for (const auto& entry : suite.cases()) std::printf("%s\n", entry.name.c_str());
    return 0;
  }
  try {
    if (reference.empty()) {
      reference = (std::filesystem::path(plugin).parent_path() / "frt_cpu.so").string();
    }
    std::vector<Option> options;
    for (const std::string& text : settings) options.push_back(option_of(text));
    Backend tested(plugin, device, options);
    Backend trusted(reference, 0, {{"numerics", "reference"}});
    std::printf("%s: %s, %s\n", tested.id().c_str(), tested.info().name,
                tested.info().architecture);
    const Totals totals = run_cases(suite, tested, trusted, filter, seed, verbose);
    std::printf("%d passed, %d failed, %d skipped\n", totals.passed, totals.failed, totals.skipped);
    return totals.failed > 0 || totals.passed == 0 ? 1 : 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
}
