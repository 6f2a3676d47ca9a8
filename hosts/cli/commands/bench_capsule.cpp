// SPDX-License-Identifier: Apache-2.0
// frt-host bench capsule: what the verbs cost and what a capsule saves, as a table, as JSON, and
// the sweep over prefix lengths as a plot.
#include <fmt/format.h>
#include <unistd.h>
#include <frt/core/state.hpp>
#include <frt/io/file.hpp>

#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "bench/capsule_bench.hpp"
#include "bench/lm_bench.hpp"
#include "bench/svg_plot.hpp"
#include "cli/app.hpp"
#include "cli/build_info.hpp"
#include "cli/load_model.hpp"
#include "cli/temporary_folder.hpp"
#include "cli/terminal/number_list.hpp"
#include "cli/terminal/output.hpp"
#include "cli/terminal/signals.hpp"
#include "cli/terminal/table.hpp"
#include "cli/terminal/text.hpp"

namespace frt::host {
namespace {

struct BenchCapsuleOptions {
  std::string manifest, model;
  std::string lengths = "8k,32k", sweep;
  std::string output = "md", plot, folder;
  CapsuleBenchOptions bench;
  bool no_files = false;
};

double median(const std::vector<double>& values) {
  return quantile(values, 0.5);
}

std::string milliseconds(double seconds) {
  const int digits = seconds < 1e-3 ? 4 : seconds < 0.1 ? 3 : 1;
  return fmt::format("{:.{}f}", seconds * 1e3, digits);
}

Table timing_table(const CapsuleBenchResult& result) {
  Table table({"what", "tokens", "median ms", "p99 ms", "clock", "submit us", "MB", "GB/s",
               "floor ms", "of floor"},
              {1, 2, 3, 5, 6, 7, 8, 9});
  for (const CapsuleTiming& row : result.timings) {
    const double middle = median(row.seconds);
    const auto megabytes = static_cast<double>(row.bytes) / 1e6;
    table.add({row.name, std::to_string(row.tokens), milliseconds(middle),
               milliseconds(quantile(row.seconds, 0.99)), row.clock,
               row.submission_seconds.empty()
                   ? "-"
                   : fmt::format("{:.1f}", median(row.submission_seconds) * 1e6),
               row.bytes > 0 ? fmt::format("{:.1f}", megabytes) : "-",
               row.bytes > 0 ? fmt::format("{:.1f}", megabytes / middle / 1e3) : "-",
               row.floor_seconds > 0 ? milliseconds(row.floor_seconds) : "-",
               row.floor_seconds > 0 ? share_text(row.floor_seconds / middle) : "-"});
  }
  return table;
}

Table sweep_table(const CapsuleBenchResult& result) {
  Table table({"prefix", "cold ms", "from a capsule ms", "times faster"}, {0, 1, 2, 3});
  for (const CapsuleSweepPoint& point : result.sweep) {
    const double cold = median(point.cold_seconds), restored = median(point.capsule_seconds);
    table.add({std::to_string(point.tokens), milliseconds(cold), milliseconds(restored),
               fmt::format("{:.1f}", cold / restored)});
  }
  return table;
}

std::string short_number(uint64_t tokens) {
  return tokens % 1024 == 0 ? fmt::format("{}k", tokens / 1024) : std::to_string(tokens);
}

std::string plot(const CapsuleBenchResult& result, const std::string& title) {
  SvgSeries cold{"cold", {}}, restored{"from a device capsule", {}};
  std::vector<std::pair<double, std::string>> labels;
  for (const CapsuleSweepPoint& point : result.sweep) {
    const auto x = static_cast<double>(point.tokens);
    labels.emplace_back(x, short_number(point.tokens));
    cold.points.emplace_back(x, median(point.cold_seconds) * 1e3);
    restored.points.emplace_back(x, median(point.capsule_seconds) * 1e3);
  }
  return svg_plot(title, "tokens of the prefix", "milliseconds to the first token", labels,
                  {cold, restored});
}

nlohmann::ordered_json to_json(const CapsuleBenchResult& result) {
  nlohmann::ordered_json json = {
      {"read_bandwidth", result.rates.read}, {"copy_bandwidth", result.rates.copy},
      {"link_bandwidth", result.rates.link}, {"timings", nlohmann::json::array()},
      {"sweep", nlohmann::json::array()},    {"skipped", result.skipped}};
  for (const CapsuleTiming& row : result.timings) {
    json["timings"].push_back({{"what", row.name},
                               {"tokens", row.tokens},
                               {"clock", row.clock},
                               {"seconds", row.seconds},
                               {"submission_seconds", row.submission_seconds},
                               {"bytes", row.bytes},
                               {"floor_seconds", row.floor_seconds}});
  }
  for (const CapsuleSweepPoint& point : result.sweep) {
    json["sweep"].push_back({{"tokens", point.tokens},
                             {"cold_seconds", point.cold_seconds},
                             {"capsule_seconds", point.capsule_seconds}});
  }
  return json;
}

ExitCode bench_capsule(App& app, BenchCapsuleOptions options) {
  options.bench.lengths = parse_number_list(options.lengths);
  std::erase(options.bench.lengths, 0u);
  if (!options.sweep.empty()) options.bench.sweep = parse_number_list(options.sweep);
  LoadedModel loaded = load_model(app, options.manifest, options.model);
  const LmModel model = loaded.language_model();
  std::unique_ptr<TemporaryFolder> files;
  if (!options.no_files) {
    files = std::make_unique<TemporaryFolder>(options.folder);
    options.bench.folder = files->path();
  }
  const InterruptGuard interrupt;
  const CapsuleBenchResult result =
      bench_capsules(model, options.bench, *core::state_table(), [&](const std::string& now) {
        if (app.draws_progress()) fmt::print(stderr, "\r\x1b[K{} ...", now);
        return InterruptGuard::requested();
      });
  if (app.draws_progress()) fmt::print(stderr, "\r\x1b[K");
  const std::string device = loaded.context().info().device->name;
  const std::string title = fmt::format("{} on {}: {} new tokens behind a prefix",
                                        loaded.info().architecture, device, options.bench.suffix);
  if (options.output == "json") {
    nlohmann::ordered_json json = {{"model", loaded.name()},
                                   {"architecture", loaded.info().architecture},
                                   {"device", device},
                                   {"backend", loaded.context().info().backend_id},
                                   {"build", build_description()}};
    json.update(to_json(result));
    print_json(json);
  } else {
    print_out("{}\n{}\n\n{}", loaded.info().architecture, device,
              timing_table(result).render(TableFormat::kMarkdown));
    if (!result.sweep.empty()) {
      print_out("\n{}", sweep_table(result).render(TableFormat::kMarkdown));
    }
    print_out("\nread {:.0f} GB/s, copy {:.0f} GB/s, link {:.1f} GB/s; {}\n",
              result.rates.read / 1e9, result.rates.copy / 1e9, result.rates.link / 1e9,
              build_description());
  }
  for (const std::string& text : result.skipped) print_err("not measured: {}\n", text);
  if (!options.plot.empty()) io::write_file_atomically(options.plot, plot(result, title));
  return ExitCode::kOk;
}

}  // namespace

std::function<ExitCode()> add_bench_capsule(App& app, Command command) {
  auto options = std::make_shared<BenchCapsuleOptions>();
  command.add_option("manifest", options->manifest, kManifestDoc).required();
  command.add_option("--model", options->model, kModelDoc).type_name("NAME");
  command
      .add_option("--lengths", options->lengths,
                  "Measure prefixes of these numbers of tokens; 0: none")
      .type_name("LIST")
      .check(parse_number_list)
      .capture_default_str();
  const Option sweep =
      command
          .add_option("--sweep", options->sweep,
                      "Measure the first token after prefixes of these lengths, too, e.g. 1k-64k*2")
          .type_name("LIST")
          .check(parse_number_list);
  command
      .add_option("--suffix", options->bench.suffix, "Read this many new tokens after each prefix")
      .range(1, 1 << 20)
      .capture_default_str();
  command
      .add_option("-r,--repetitions", options->bench.repetitions, "Measure this many repetitions")
      .range(1u, 100000u)
      .capture_default_str();
  command
      .add_option("--index", options->bench.index,
                  "Measure an index of this many capsules; 0: do not")
      .capture_default_str();
  const Option folder =
      command
          .add_option("--folder", options->folder, "Write capsule files here; default: in $TMPDIR")
          .type_name("DIR")
          .existing_folder();
  command.add_flag("--no-files", options->no_files, "Measure memory only").excludes(folder);
  command.add_option("--plot", options->plot, "Write the sweep as SVG")
      .type_name("FILE")
      .needs(sweep);
  command.add_option("-o,--output", options->output, "Print results on stdout in this format")
      .one_of({"md", "json"})
      .capture_default_str();
  command.examples({"bench capsule my.toml --lengths 1k",
                    "bench capsule my.toml --sweep 1k-64k*2 --plot first-token.svg"});
  return [&app, options] { return bench_capsule(app, *options); };
}

}  // namespace frt::host
