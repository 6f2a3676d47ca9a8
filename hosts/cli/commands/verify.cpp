// SPDX-License-Identifier: Apache-2.0
// frt-host verify: runs the manifest's model against golden tensors. What is run and which gates
// apply is the model plugin's frt.selftest/1; this command finds the files and prints.
//
// Verdict: PASS if every comparison that could be made passed and at least one was made.
#include <fmt/format.h>
#include <frt/selftest.h>

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/app.hpp"
#include "cli/load_model.hpp"
#include "cli/terminal/output.hpp"
#include "cli/terminal/table.hpp"
#include "runtime/plugin_reports.hpp"

namespace frt::host {
namespace {

struct VerifyOptions {
  std::string manifest;
  std::string model;
  std::vector<std::string> goldens;
  bool only_failures = false;
  bool json = false;
};

const char* verdict_name(uint32_t verdict) {
  return verdict == FRT_VERDICT_PASS ? "PASS" : verdict == FRT_VERDICT_FAIL ? "FAIL" : "skip";
}

std::string figure(double value, const char* format) {
  return std::isnan(value) ? "-" : fmt::format(fmt::runtime(format), value);
}

nlohmann::ordered_json figure_json(double value) {
  return std::isfinite(value) ? nlohmann::ordered_json(value) : nlohmann::ordered_json();
}

nlohmann::ordered_json to_json(const SelftestRow& row) {
  return {{"goldens", row.goldens},
          {"tensor", row.tensor},
          {"verdict", verdict_name(row.figures.verdict)},
          {"gate", row.gate},
          {"values", row.figures.values},
          {"max_abs", figure_json(row.figures.max_abs)},
          {"relative", figure_json(row.figures.relative)},
          {"cosine_min", figure_json(row.figures.cosine_min)},
          {"cosine_mean", figure_json(row.figures.cosine_mean)},
          {"argmax_agreement", figure_json(row.figures.argmax_agreement)}};
}

std::string to_text(const std::vector<SelftestRow>& rows, bool only_failures) {
  Table table(
      {"tensor", "values", "max abs", "relative", "cosine min", "argmax", "verdict", "gate"},
      {1, 2, 3, 4, 5});
  for (const SelftestRow& row : rows) {
    const frt_selftest_row& figures = row.figures;
    if (only_failures && figures.verdict != FRT_VERDICT_FAIL) continue;
    table.add({row.tensor, fmt::format("{}", figures.values), figure(figures.max_abs, "{:.2e}"),
               figure(figures.relative, "{:.2e}"), figure(figures.cosine_min, "{:.6f}"),
               figure(figures.argmax_agreement, "{:.3f}"), verdict_name(figures.verdict),
               row.gate});
  }
  return table.render(TableFormat::kAligned);
}

ExitCode verify(App& app, const VerifyOptions& options) {
  std::vector<std::filesystem::path> paths;
  for (const std::string& text : options.goldens) {
    std::error_code error;
    paths.push_back(std::filesystem::canonical(text, error));
    if (error) {
      throw ExitError(ExitCode::kUsage, FRT_ERR_NOT_FOUND,
                      "no goldens at " + text + ": " + error.message() +
                          "; give a .safetensors file or a folder");
    }
  }
  LoadedModel loaded = load_model(app, options.manifest, options.model);
  const auto selftest = loaded.extension<frt_selftest_v1>(FRT_EXT_SELFTEST);
  if (!selftest) {
    throw ExitError(ExitCode::kPlugin, FRT_ERR_UNSUPPORTED,
                    loaded.sender() + ": its plugin offers no " + FRT_EXT_SELFTEST);
  }
  std::vector<SelftestRow> rows;
  for (const auto& path : paths) {
    core::SetupWatch watch = loaded.watch("run");
    const std::vector<SelftestRow> found =
        run_selftest(*selftest, loaded.handle(), path.string(), loaded.sender(),
                     [&] { watch.enter("run"); });  // a row is progress
    rows.insert(rows.end(), found.begin(), found.end());
  }
  std::size_t count[3] = {};
  for (const SelftestRow& row : rows) {
    ++count[row.figures.verdict <= FRT_VERDICT_SKIP ? row.figures.verdict : 1];
  }
  const bool pass = count[FRT_VERDICT_FAIL] == 0 && count[FRT_VERDICT_PASS] > 0;
  if (options.json) {
    nlohmann::ordered_json json = {{"model", loaded.name()},
                                   {"verdict", pass ? "PASS" : "FAIL"},
                                   {"passed", count[FRT_VERDICT_PASS]},
                                   {"failed", count[FRT_VERDICT_FAIL]},
                                   {"skipped", count[FRT_VERDICT_SKIP]},
                                   {"rows", nlohmann::ordered_json::array()}};
    for (const SelftestRow& row : rows) json["rows"].push_back(to_json(row));
    print_json(json);
  } else {
    write_out(to_text(rows, options.only_failures));
    print_out("{}: {} passed, {} failed, {} skipped\n", pass ? "PASS" : "FAIL",
              count[FRT_VERDICT_PASS], count[FRT_VERDICT_FAIL], count[FRT_VERDICT_SKIP]);
  }
  return pass ? ExitCode::kOk : ExitCode::kFailed;
}

}  // namespace

void add_verify_command(App& app) {
  auto options = std::make_shared<VerifyOptions>();
  Command command = app.program().add_subcommand(
      "verify", "Run a model against golden tensors and print PASS or FAIL");
  command.add_option("manifest", options->manifest, kManifestDoc).required();
  command
      .add_option(
          "--goldens", options->goldens,
          "Compare with this .safetensors file, or with those of this folder; may be repeated")
      .type_name("PATH")
      .required()
      .one_each();
  command.add_option("--model", options->model, kModelDoc).type_name("NAME");
  command.add_flag("--only-failed", options->only_failures, "Show only comparisons that failed");
  command.add_flag("--json", options->json, "Print one JSON object");
  command.examples({"verify my.toml --goldens goldens"},
                   "Exit status: 0 every comparison passed, 1 one failed or none could be made.");
  app.add_command(command, [&app, options] { return verify(app, *options); });
}

}  // namespace frt::host
