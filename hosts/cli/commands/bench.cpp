// SPDX-License-Identifier: Apache-2.0
// frt-host bench: prefill and decode speed as llama-bench shows it, with latencies, the share of
// the floor that memory bandwidth sets, and a comparison with an earlier run. With --profile, what
// each operator takes instead: eager, timed by events on the device.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <frt/io/file.hpp>
#include <frt/io/json.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>

#include "bench/lm_bench.hpp"
#include "cli/app.hpp"
#include "cli/build_info.hpp"
#include "cli/commands/bench_engine.hpp"
#include "cli/commands/bench_policy.hpp"
#include "cli/load_model.hpp"
#include "cli/terminal/number_list.hpp"
#include "cli/terminal/output.hpp"
#include "cli/terminal/progress_view.hpp"
#include "cli/terminal/signals.hpp"
#include "cli/terminal/table.hpp"
#include "cli/terminal/text.hpp"

namespace frt::host {
namespace {

struct BenchOptions {
  std::string manifest, model;
  std::string prefill = "512", decode = "128", depth = "0", batch = "1";
  uint32_t repetitions = 5, warmup = 1;
  std::string output = "md";
  std::string compare;
  double tolerance = 5;  // percent
  bool profile = false;
};

// The facts that every row carries.
struct Facts {
  std::string model, architecture, formats, device, backend, build, arguments;
  uint64_t parameters = 0, weight_bytes = 0;
  double bandwidth = 0;
  frt_device_status before{}, after{};  // zeros: unknown
};

double mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double deviation(const std::vector<double>& values) {
  if (values.size() < 2) return 0;
  const double center = mean(values);
  double sum = 0;
  for (const double value : values) sum += (value - center) * (value - center);
  return std::sqrt(sum / static_cast<double>(values.size() - 1));
}

// Mean MHz of the processor's cores as the system reports them; 0 if it does not.
uint32_t processor_clock() {
  std::istringstream file(io::read_optional_file("/proc/cpuinfo", 16 << 20));
  std::vector<double> clocks;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("cpu MHz")) clocks.push_back(std::stod(line.substr(line.find(':') + 1)));
  }
  return clocks.empty() ? 0 : static_cast<uint32_t>(std::lround(mean(clocks)));
}

frt_device_status status_of(const LoadedModel& loaded) {
  frt_device_status status = loaded.device_status();
  if (status.clock_mhz == 0 && (loaded.context().info().device->flags & FRT_DEVICE_PROCESSOR)) {
    status.clock_mhz = processor_clock();
  }
  return status;
}

// "1980 MHz, 34 C, 120 W"; "unknown" where nothing is.
std::string describe(const frt_device_status& status) {
  if (status.clock_mhz == 0) return "unknown";
  std::string text = fmt::format("{} MHz", status.clock_mhz);
  if (status.temperature_c) text += fmt::format(", {} C", status.temperature_c);
  if (status.power_mw) text += fmt::format(", {} W", status.power_mw / 1000);
  if (status.limited_by[0]) text += fmt::format(", held back by {}", status.limited_by);
  return text;
}

nlohmann::ordered_json to_json(const frt_device_status& status) {
  return {{"clock_mhz", status.clock_mhz},
          {"clock_limit_mhz", status.clock_limit_mhz},
          {"memory_clock_mhz", status.memory_clock_mhz},
          {"temperature_c", status.temperature_c},
          {"power_w", status.power_mw / 1000.0},
          {"limited_by", status.limited_by}};
}

std::vector<double> tokens_per_second(const BenchResult& result) {
  const BenchPoint& point = result.point;
  const auto tokens =
      static_cast<double>(point.prefill > 0 ? point.prefill : point.decode * point.batch);
  std::vector<double> rates;
  for (const double seconds : result.repetition_seconds) rates.push_back(tokens / seconds);
  return rates;
}

// Above 1 where the weights stay in a cache: the floor is what memory allows.
double floor_share(const BenchResult& result) {
  return result.floor_seconds > 0 ? result.floor_seconds / quantile(result.step_seconds, 0.5) : 0;
}

nlohmann::ordered_json to_json(const BenchResult& result, const Facts& facts) {
  const std::vector<double> rates = tokens_per_second(result);
  nlohmann::ordered_json json = {{"test", bench_name(result.point)},
                                 {"prefill", result.point.prefill},
                                 {"decode", result.point.decode},
                                 {"depth", result.point.depth},
                                 {"batch", result.point.batch},
                                 {"tokens_per_second", mean(rates)},
                                 {"deviation", deviation(rates)},
                                 {"repetitions", rates.size()},
                                 {"repetition_seconds", result.repetition_seconds}};
  if (!result.step_seconds.empty()) {
    json["step_ms"] = {{"p50", quantile(result.step_seconds, 0.5) * 1e3},
                       {"p90", quantile(result.step_seconds, 0.9) * 1e3},
                       {"p99", quantile(result.step_seconds, 0.99) * 1e3},
                       {"min", quantile(result.step_seconds, 0) * 1e3}};
    json["host_us"] = {{"p50", quantile(result.submit_seconds, 0.5) * 1e6},
                       {"p99", quantile(result.submit_seconds, 0.99) * 1e6}};
    json["floor_bytes"] = result.floor_bytes;
    if (result.floor_seconds > 0) {
      json["floor_ms"] = result.floor_seconds * 1e3;
      json["floor_share"] = floor_share(result);
    }
  }
  if (result.flops > 0) {
    json["tflops"] = result.flops / quantile(result.repetition_seconds, 0.5) / 1e12;
  }
  json["model"] = facts.model;
  json["architecture"] = facts.architecture;
  json["formats"] = facts.formats;
  json["parameters"] = facts.parameters;
  json["weight_bytes"] = facts.weight_bytes;
  json["device"] = facts.device;
  json["backend"] = facts.backend;
  json["build"] = facts.build;
  json["arguments"] = facts.arguments;
  json["read_bandwidth"] = facts.bandwidth;
  json["clock_before_mhz"] = facts.before.clock_mhz;
  json["clock_after_mhz"] = facts.after.clock_mhz;
  json["before"] = to_json(facts.before);
  json["after"] = to_json(facts.after);
  return json;
}

Table to_table(const std::vector<BenchResult>& results, const Facts& facts) {
  Table table({"model", "weights", "device", "build", "test", "tok/s", "p50 ms", "p90 ms", "p99 ms",
               "min ms", "host us", "floor ms", "of floor"},
              {5, 6, 7, 8, 9, 10, 11, 12});
  for (const BenchResult& result : results) {
    const std::vector<double> rates = tokens_per_second(result);
    // Prefill shows the time of a whole repetition.
    const auto& times =
        result.step_seconds.empty() ? result.repetition_seconds : result.step_seconds;
    const auto ms = [&](double q) { return fmt::format("{:.2f}", quantile(times, q) * 1e3); };
    // What the host does per step, while the device works on the one before.
    const std::string host =
        result.submit_seconds.empty()
            ? "-"
            : fmt::format("{:.1f}", quantile(result.submit_seconds, 0.5) * 1e6);
    const bool floor = result.floor_seconds > 0;
    table.add({facts.model, format_bytes(facts.weight_bytes), facts.device, facts.build,
               bench_name(result.point),
               fmt::format("{:.2f} ± {:.2f}", mean(rates), deviation(rates)), ms(0.5), ms(0.9),
               ms(0.99), ms(0), host,
               floor ? fmt::format("{:.2f}", result.floor_seconds * 1e3) : "-",
               floor ? share_text(floor_share(result)) : "-"});
  }
  return table;
}

void print(const std::vector<BenchResult>& results, const Facts& facts, const std::string& output) {
  if (output == "md" || output == "csv") {
    const Table table = to_table(results, facts);
    print_out("{}", table.render(output == "md" ? TableFormat::kMarkdown : TableFormat::kCsv));
    if (output == "md") {
      print_out(
          "\nread bandwidth {:.1f} GB/s; clock before: {}; after: {}; {}\n"
          "arguments: {}\n",
          facts.bandwidth / 1e9, describe(facts.before), describe(facts.after), facts.architecture,
          facts.arguments);
    }
  } else if (output == "jsonl") {
    for (const auto& result : results) print_json(to_json(result, facts), -1);
  } else {
    auto list = nlohmann::ordered_json::array();
    for (const auto& result : results) list.push_back(to_json(result, facts));
    print_json(list);
  }
}

// Compares with the JSON output of an earlier run; true if nothing became slower than allowed. What
// was run on something else is compared, too, but not in silence.
bool compare(const std::vector<BenchResult>& results, const BenchOptions& options,
             const Facts& facts) {
  const io::Json base = io::read_json_file(options.compare);
  const bool rows = base.is_array() && std::all_of(base.begin(), base.end(),
                                                   [](const auto& row) { return row.is_object(); });
  if (!rows) {
    throw ExitError(
        ExitCode::kUsage, FRT_ERR_FORMAT,
        "--compare " + options.compare + ": not the output of an earlier `frt-host bench -o json`");
  }
  bool good = true;
  std::size_t compared = 0;
  const std::initializer_list<std::pair<const char*, const std::string*>> known = {
      {"model", &facts.model},
      {"formats", &facts.formats},
      {"device", &facts.device},
      {"backend", &facts.backend}};
  for (const auto& [key, now] : known) {
    const std::string before = base.empty() ? *now : base[0].value(key, *now);
    if (before != *now) print_err("note: {} was {}, is {}\n", key, before, *now);
  }
  for (const BenchResult& result : results) {
    for (const auto& row : base) {
      if (row.value("test", std::string()) != bench_name(result.point)) continue;
      const double before = row.value("tokens_per_second", 0.0);
      const double now = mean(tokens_per_second(result));
      const double change = (now / before - 1) * 100;
      const bool slower = change < -options.tolerance;
      good = good && !slower;
      ++compared;
      print_err("{}: {:.2f} -> {:.2f} tok/s ({:+.1f} %){}\n", bench_name(result.point), before, now,
                change, slower ? "  REGRESSION" : "");
    }
  }
  if (compared == 0) {
    throw ExitError(ExitCode::kUsage, FRT_ERR_NOT_FOUND,
                    "--compare " + options.compare + " has no row of these tests");
  }
  return good;
}

std::vector<BenchPoint> points(const BenchOptions& options) {
  std::vector<BenchPoint> list;
  for (const uint64_t depth : parse_number_list(options.depth)) {
    for (const uint64_t tokens : parse_number_list(options.prefill)) {
      if (tokens > 0) list.push_back({.prefill = tokens, .depth = depth});
    }
    for (const uint64_t tokens : parse_number_list(options.decode)) {
      for (const uint64_t batch : parse_number_list(options.batch)) {
        if (tokens == 0) continue;
        if (batch == 0 || batch > UINT32_MAX) {
          throw ExitError(ExitCode::kUsage, FRT_ERR_OUT_OF_RANGE, "--batch needs 1 or more");
        }
        list.push_back({.decode = tokens, .depth = depth, .batch = static_cast<uint32_t>(batch)});
      }
    }
  }
  if (list.empty()) {
    throw ExitError(ExitCode::kUsage, FRT_ERR_INVALID_ARGUMENT,
                    "nothing to measure: --prefill and --decode are both 0");
  }
  return list;
}

// What is read to learn the bandwidth: far more than the caches of such a device hold.
uint64_t probe_bytes(const frt_context_info& device) {
  constexpr uint64_t kLeast = uint64_t{1} << 28, kMost = uint64_t{1} << 32;
  const uint64_t wanted = std::clamp(device.memory_total / 64, kLeast, kMost);
  return std::min(wanted, device.memory_free / 4) / 256 * 256;
}

// A row per operator and shape, and their sum.
ExitCode profile(const LmBench& runner, OperatorTimer& timer, const std::vector<BenchPoint>& list,
                 const BenchOptions& options, const Facts& facts) {
  constexpr uint32_t kSteps = 10;
  auto all = nlohmann::ordered_json::array();
  for (const BenchPoint& point : list) {
    const uint32_t steps = point.prefill > 0
                               ? 1
                               : static_cast<uint32_t>(std::min<uint64_t>(
                                     std::max(kSteps, options.repetitions), point.decode));
    const std::vector<OperatorTime> times =
        runner.profile(point, steps, timer, [] { return InterruptGuard::requested(); });
    double total = 0;
    for (const OperatorTime& time : times) {
      total += std::accumulate(time.microseconds.begin(), time.microseconds.end(), 0.0) / steps;
    }
    Table table({"operator", "shape", "calls", "median us", "p90 us", "us per step", "share",
                 "GB/s", "of bandwidth"},
                {2, 3, 4, 5, 6, 7, 8});
    auto rows = nlohmann::ordered_json::array();
    for (const OperatorTime& time : times) {
      const auto calls = static_cast<double>(time.microseconds.size()) / steps;
      const double each = quantile(time.microseconds, 0.5);
      const double sum =
          std::accumulate(time.microseconds.begin(), time.microseconds.end(), 0.0) / steps;
      const double rate = each > 0 ? static_cast<double>(time.shape.weight_bytes) / each * 1e6 : 0;
      table.add(
          {time.name, time.shape.text.empty() ? "-" : time.shape.text, fmt::format("{:g}", calls),
           fmt::format("{:.2f}", each), fmt::format("{:.2f}", quantile(time.microseconds, 0.9)),
           fmt::format("{:.1f}", sum), fmt::format("{:.1f} %", 100 * sum / total),
           rate > 0 ? fmt::format("{:.0f}", rate / 1e9) : "-",
           rate > 0 && facts.bandwidth > 0 ? fmt::format("{:.0f} %", 100 * rate / facts.bandwidth)
                                           : "-"});
      rows.push_back({{"operator", time.name},
                      {"shape", time.shape.text},
                      {"calls", calls},
                      {"median_us", each},
                      {"step_us", sum},
                      {"weight_bytes", time.shape.weight_bytes}});
    }
    table.add(
        {"all of the backend", "", "", "", "", fmt::format("{:.1f}", total), "100 %", "", ""});
    all.push_back({{"test", bench_name(point)}, {"step_us", total}, {"operators", rows}});
    if (options.output == "md" || options.output == "csv") {
      const bool md = options.output == "md";
      print_out("{}{}\n", md ? bench_name(point) + ", eager, " + facts.device + "\n\n" : "",
                table.render(md ? TableFormat::kMarkdown : TableFormat::kCsv));
    } else if (options.output == "jsonl") {
      print_json(all.back(), -1);
    }
  }
  if (options.output == "json") print_json(all);
  return ExitCode::kOk;
}

ExitCode bench(App& app, const BenchOptions& options) {
  const std::vector<BenchPoint> list = points(options);
  OperatorTimer timer;  // outlives the device it watches
  LoadOptions load;
  if (options.profile) {
    load.runtime.eager = true;
    load.runtime.watch = [&timer](const frt_backend_v1& backend, const frt_kernels_v1* kernels) {
      return timer.watch(backend, kernels);
    };
  }
  LoadedModel loaded = load_model(app, options.manifest, options.model, load);
  const LmModel model = loaded.language_model();
  const InterruptGuard interrupt;
  const frt_model_info info = loaded.info();
  const frt_context_info context = loaded.context().info();
  Facts facts;
  facts.model = loaded.name();
  facts.architecture = info.architecture;
  facts.formats = info.formats;
  facts.parameters = info.parameters;
  facts.weight_bytes = info.weight_bytes;
  facts.device = context.device->name;
  facts.backend = context.backend_id;
  facts.build = build_description();
  facts.arguments =
      fmt::format("-p {} -n {} -d {} -b {} -r {} --warmup {}", options.prefill, options.decode,
                  options.depth, options.batch, options.repetitions, options.warmup);
  facts.bandwidth = measure_read_bandwidth(loaded.context(), probe_bytes(context));
  const LmBench runner(model, facts.bandwidth);
  if (options.profile) return profile(runner, timer, list, options, facts);
  facts.before = status_of(loaded);
  std::vector<BenchResult> results;
  for (const BenchPoint& point : list) {
    if (app.draws_progress()) fmt::print(stderr, "\r\x1b[K{} ...", bench_name(point));
    results.push_back(runner.run(point, options.repetitions, options.warmup,
                                 [] { return InterruptGuard::requested(); }));
  }
  if (app.draws_progress()) fmt::print(stderr, "\r\x1b[K");
  facts.after = status_of(loaded);
  print(results, facts, options.output);
  return options.compare.empty() || compare(results, options, facts) ? ExitCode::kOk
                                                                     : ExitCode::kFailed;
}

}  // namespace

void add_bench_command(App& app) {
  auto options = std::make_shared<BenchOptions>();
  Command command = app.program().add_subcommand("bench", "Measure prefill and decode speed");
  // Not required by the parser: `bench capsule` has its own.
  command.add_option("manifest", options->manifest, kManifestDoc);
  command.add_option("--model", options->model, kModelDoc).type_name("NAME");
  const auto list = [&](const char* flags, std::string& target, const char* doc) {
    command.add_option(flags, target, doc)
        .type_name("LIST")
        .check(parse_number_list)
        .capture_default_str();
  };
  list("-p,--prefill", options->prefill,
       "Prefill prompts of these lengths, e.g. 512 or 128-1024*2; 0: none");
  list("-n,--decode", options->decode, "Decode these numbers of tokens");
  list("-d,--depth", options->depth, "Fill the KV cache with these numbers of tokens first");
  list("-b,--batch", options->batch, "Decode these numbers of sequences in a step");
  command.add_option("-r,--repetitions", options->repetitions, "Measure this many repetitions")
      .range(1u, 100000u)
      .capture_default_str();
  command.add_option("--warmup", options->warmup, "Run this many repetitions before measuring")
      .capture_default_str();
  command.add_option("-o,--output", options->output, "Print results on stdout in this format")
      .one_of({"md", "json", "jsonl", "csv"})
      .capture_default_str();
  const Option compare =
      command
          .add_option("--compare", options->compare, "Fail if slower than this earlier JSON output")
          .type_name("FILE")
          .existing_file();
  command.add_flag("--profile", options->profile,
                   "Measure each operator on its own, over -r steps (at least 10)");
  command
      .add_option("--tolerance", options->tolerance,
                  "With --compare: allow a loss of this many percent")
      .capture_default_str()
      .needs(compare);
  command.examples({"bench share/frt/manifests/synthetic.toml -p 512 -n 64",
                    "bench my.toml --prefill 0 --decode 64 --batch 1,4 --output csv",
                    "bench my.toml --compare before.json --tolerance 5"});
  Command capsule = command.add_subcommand("capsule", "Measure what capsules cost and save");
  const std::function<ExitCode()> capsules = add_bench_capsule(app, capsule);
  Command engine = command.add_subcommand("engine", "Measure many requests at once");
  const std::function<ExitCode()> engines = add_bench_engine(app, engine);
  Command policy = command.add_subcommand("policy", "Measure the inferences of a policy");
  const std::function<ExitCode()> policies = add_bench_policy(app, policy);
  app.add_command(command, [&app, options, capsule, capsules, engine, engines, policy, policies] {
    if (capsule.parsed()) return capsules();
    if (engine.parsed()) return engines();
    if (policy.parsed()) return policies();
    if (options->manifest.empty()) {
      throw ExitError(ExitCode::kUsage, FRT_ERR_INVALID_ARGUMENT, "manifest is required");
    }
    return bench(app, *options);
  });
}

}  // namespace frt::host
