// SPDX-License-Identifier: Apache-2.0
// frt-host bench engine: many requests at once, at a rate or as many at a time, and what each of
// them waits for, with the names that vLLM's benchmark gives its results.
#include "cli/commands/bench_engine.hpp"

#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/engine_bench.hpp"
#include "bench/lm_bench.hpp"
#include "cli/build_info.hpp"
#include "cli/load_model.hpp"
#include "cli/terminal/output.hpp"
#include "cli/terminal/signals.hpp"
#include "cli/terminal/table.hpp"
#include "runtime/lm_settings.hpp"

namespace frt::host {
namespace {

struct BenchEngineOptions {
  std::string manifest, model;
  EngineLoad load;
  double step_ms = 100;
  std::string speculation;
  std::vector<std::string> goodput;
  bool interleave = false, json = false;
};

void print_table(const EngineBenchResult& result) {
  Table table({"milliseconds", "mean", "p50", "p90", "p99"}, {1, 2, 3, 4});
  const nlohmann::ordered_json json = engine_bench_json(result);
  const auto add = [&](const char* name, const char* what) {
    const auto cell = [&](const char* of) {
      return fmt::format("{:.2f}", json[fmt::format("{}_{}_ms", of, name)].get<double>());
    };
    table.add({what, cell("mean"), cell("p50"), cell("p90"), cell("p99")});
  };
  add("ttft", "time to first token (TTFT)");
  add("tpot", "time per output token (TPOT)");
  add("itl", "inter-token latency (ITL)");
  add("e2el", "end to end (E2EL)");
  const auto number = [&](const char* name) { return json[name].get<double>(); };
  print_out(
      "{} requests in {:.2f} s, {} failed: {:.2f} requests/s, {:.1f} output tokens/s, {:.1f} "
      "tokens/s\n{} of {} prompt tokens reused, {:.2f} entries per decode step, {} preemptions\n"
      "{} of {} drafts accepted in {} of {} decode steps\n\n"
      "{}",
      result.completed, result.duration, result.failed, number("request_throughput"),
      number("output_throughput"), number("total_token_throughput"), result.stats.cached_tokens,
      result.total_input_tokens, number("mean_batch"), result.stats.preemptions,
      result.stats.accepted_tokens, result.stats.draft_tokens, result.stats.draft_rounds,
      result.stats.decode_steps, table.render(TableFormat::kMarkdown));
  if (result.load.targets.any()) {
    print_out("\n{} of {} requests met their targets: a goodput of {:.2f} requests/s\n",
              result.good, result.completed, number("request_goodput"));
  }
  if (result.load.turns > 1) {
    print_out(
        "\nturns after the first: {} of {} prompt tokens reused ({:.1f} %), p50 of TTFT {:.2f} ms; "
        "of first turns {:.2f} ms\n",
        result.later_cached_tokens, result.later_input_tokens, number("later_turn_hit_rate") * 100,
        number("p50_later_turn_ttft_ms"), number("p50_first_turn_ttft_ms"));
  }
}

ExitCode bench(App& app, const BenchEngineOptions& options) {
  LoadedModel loaded = load_model(app, options.manifest, options.model);
  const LmModel model = loaded.language_model();
  CapsuleSettings settings = capsule_settings(loaded.runtime().manifest(), loaded.name());
  settings.capsules.folder.clear();  // the benchmark leaves nothing behind
  settings.capsules.disk_bytes = 0;
  const auto registry = open_capsules(app.log(), model, settings.capsules);
  EngineOptions engine_options;
  engine_options.queue_limit = static_cast<uint32_t>(options.load.requests);
  engine_options.step_seconds = options.step_ms / 1e3;
  engine_options.interleave_prefills = options.interleave;
  engine_options.session = settings.session;
  if (!options.speculation.empty()) {
    engine_options.session.speculation = drafting_from(options.speculation);
  }
  EngineLoad load = options.load;
  load.targets = targets_from(options.goodput);
  const InterruptGuard interrupt;
  EngineBenchResult result;
  {
    Engine engine(model, registry.get(), engine_options);
    result = bench_engine(engine, model, load, [] { return InterruptGuard::requested(); });
  }
  if (options.json) {
    nlohmann::ordered_json json = {{"model_id", loaded.name()},
                                   {"architecture", loaded.info().architecture},
                                   {"device", loaded.context().info().device->name},
                                   {"backend", loaded.context().info().backend_id},
                                   {"build", build_description()},
                                   {"step_ms", options.step_ms}};
    json.update(engine_bench_json(result));
    print_json(json);
  } else {
    print_table(result);
  }
  if (result.failed == 0) return ExitCode::kOk;
  print_err("{} requests failed; the first: {}\n", result.failed, result.first_error);
  return ExitCode::kFailed;
}

}  // namespace

std::function<ExitCode()> add_bench_engine(App& app, Command command) {
  auto options = std::make_shared<BenchEngineOptions>();
  EngineLoad& load = options->load;
  command.add_option("manifest", options->manifest, kManifestDoc).required();
  command.add_option("--model", options->model, kModelDoc).type_name("NAME");
  command.add_option("--num-prompts", load.requests, "Send this many requests")
      .range(uint64_t{1}, uint64_t{1000000})
      .capture_default_str();
  command
      .add_option("--request-rate", load.request_rate,
                  "Send this many requests per second; 0: all at once")
      .range(0.0, 1e6)
      .capture_default_str();
  command
      .add_option("--max-concurrency", load.max_concurrency,
                  "Run at most this many requests at a time; 0: any number")
      .capture_default_str();
  command
      .add_option("--input-len", load.input_len,
                  "Give each prompt this many tokens after its prefix")
      .range(uint64_t{1}, uint64_t{1} << 24)
      .capture_default_str();
  command.add_option("--output-len", load.output_len, "Generate this many tokens per request")
      .range(uint64_t{1}, uint64_t{1} << 24)
      .capture_default_str();
  command
      .add_option("--range-ratio", load.range_ratio,
                  "Draw lengths from LEN * (1 - X) to LEN * (1 + X)")
      .range(0.0, 0.99)
      .capture_default_str();
  const Option prefix =
      command
          .add_option("--prefix-len", load.prefix_len, "Start prompts with this many shared tokens")
          .range(uint64_t{0}, uint64_t{1} << 24)
          .capture_default_str();
  command.add_option("--prefixes", load.prefixes, "Use this many different shared prefixes")
      .range(1u, 100000u)
      .capture_default_str()
      .needs(prefix);
  const Option turns =
      command
          .add_option("--turns", load.turns,
                      "Let each request be the first of this many turns of an agent, each with all "
                      "that was said before it")
          .range(uint64_t{1}, uint64_t{10000})
          .capture_default_str();
  command
      .add_option("--tool-len", load.tool_len,
                  "Add this many tokens of a tool's output before each further turn")
      .range(uint64_t{1}, uint64_t{1} << 24)
      .capture_default_str()
      .needs(turns);
  command
      .add_option("--goodput", options->goodput,
                  "Print how many requests meet these milliseconds: ttft:MS, tpot:MS, "
                  "e2el:MS")
      .type_name("NAME:MS")
      .check([](const std::string& text) {
        targets_from({&text, 1});
      });
  command.add_option("--seed", load.seed, "Seed the random prompts, lengths and arrivals")
      .capture_default_str();
  command
      .add_option(
          "--step-ms", options->step_ms,
          "Limit a step to this many milliseconds on average while a request decodes; 0: no limit")
      .range(0.0, 60000.0)
      .capture_default_str();
  command
      .add_option("--speculation", options->speculation,
                  "Use drafts of a model with a draft head; auto: as many as pay; default: what "
                  "[host.lm] says")
      .one_of({"auto", "on", "off"});
  command.add_flag("--interleave", options->interleave, "Prefill prompts in turn, chunk by chunk");
  command.add_flag("--json", options->json, "Print JSON, with the field names of vLLM's benchmark");
  command.examples({"bench engine my.toml --num-prompts 32 --input-len 64",
                    "bench engine my.toml --request-rate 4 --prefix-len 256 --json",
                    "bench engine my.toml --turns 8 --goodput ttft:500 tpot:50"},
                   "The names of the results are those of vLLM's benchmark.");
  return [&app, options] { return bench(app, *options); };
}

}  // namespace frt::host
