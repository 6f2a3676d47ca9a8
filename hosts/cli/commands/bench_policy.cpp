// SPDX-License-Identifier: Apache-2.0
// frt-host bench policy: what one inference of a policy takes, whole and in its parts, after a
// change of its inputs, and what a reset takes: from the submission to the end of the work on the
// device, as a control loop waits for it. Inputs are synthetic and deterministic.
#include <fmt/format.h>
#include <frt/role/policy.h>
#include <frt/capsule.hpp>
#include <frt/core/capsules.hpp>

#include <chrono>
#include <cstdio>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <vector>

#include "bench/lm_bench.hpp"
#include "cli/app.hpp"
#include "cli/build_info.hpp"
#include "cli/commands/bench_policy.hpp"
#include "cli/load_model.hpp"
#include "cli/terminal/output.hpp"
#include "cli/terminal/signals.hpp"
#include "cli/terminal/table.hpp"
#include "robot/policy_model.hpp"
#include "robot/random_inputs.hpp"
#include "runtime/robot_settings.hpp"

namespace frt::host {
namespace {

struct BenchPolicyOptions {
  std::string manifest, model;
  uint32_t views = 0, prompt = 30, steps = 0, samples = 1, branches = 0;
  uint32_t repetitions = 100, warmup = 10;
  std::string output = "md";
};

struct PolicyTiming {
  std::string name;
  std::vector<double> seconds;
};

class PolicyBench {
 public:
  PolicyBench(const LoadedModel& loaded, const BenchPolicyOptions& options)
      : context_(loaded.context()),
        model_(loaded.handle()),
        sender_(loaded.sender()),
        options_(options),
        role_(loaded.extension<frt_role_policy_v1>(FRT_EXT_ROLE_POLICY)),
        stream_(context_.create_stream("bench", -1)) {
    if (!role_) {
      throw ExitError(ExitCode::kUsage, FRT_ERR_UNSUPPORTED,
                      sender_ + " is no policy (it lacks " FRT_EXT_ROLE_POLICY
                                "); bench it without the word policy");
    }
    info_ = read_policy_info(context_, *role_, model_, sender_);
    shape_.struct_size = sizeof(shape_);
    shape_.views = options.views ? options.views : info_.views;
    shape_.prompt = options.prompt;
    shape_.steps = options.steps ? options.steps : info_.default_steps;
    shape_.samples = options.samples;
    shape_.branches = options.branches ? options.branches : info_.guidance_branches;
  }

  const frt_policy_info& info() const { return info_; }
  const frt_policy_shape& shape() const { return shape_; }

  std::vector<PolicyTiming> run() {
    const frt_shape_key whole = key(role_->infer_key);
    fill();
    std::vector<PolicyTiming> timings;
    const auto replay = [this](frt_graph graph, frt_shape_key graph_key) {
      context_.checked(context_.table().graph_replay(graph, graph_key, stream_.handle()), "replay");
    };
    timings.push_back(measure("infer", [&] { replay(info_.infer, whole); }));
    if (info_.has_split) {
      const frt_shape_key observe = key(role_->observe_key);
      const frt_shape_key act = key(role_->act_key);
      timings.push_back(measure("observe", [&] { replay(info_.observe, observe); }));
      timings.push_back(measure("act", [&] { replay(info_.act, act); }));
    }
    if (info_.has_split == 2) {
      const frt_shape_key vision = key(role_->vision_key);
      const frt_shape_key prefix = key(role_->prefix_key);
      timings.push_back(measure("vision", [&] { replay(info_.vision, vision); }));
      timings.push_back(measure("prefix", [&] { replay(info_.prefix, prefix); }));
    }
    if (info_.prompt_tokens) {
      const Buffer ids =
          context_.alloc(FRT_SPACE_HOST_PINNED, shape_.prompt * sizeof(int32_t), "ids");
      std::fill_n(ids.pointer<int32_t>(), shape_.prompt, 7);
      timings.push_back(measure("infer, new prompt", [&] {
        copy(info_.prompt_tokens, ids, "prompt");
        replay(info_.infer, whole);
      }));
    }
    if (info_.noise) {
      const Buffer fresh = context_.alloc(
          FRT_SPACE_HOST_PINNED,
          uint64_t{shape_.samples} * info_.horizon * info_.action_dim * sizeof(float),
          "fresh noise");
      std::fill_n(fresh.pointer<float>(), fresh.bytes() / sizeof(float), 0.5f);
      timings.push_back(measure("infer, new noise", [&] {
        copy(info_.noise, fresh, "noise");
        replay(info_.infer, whole);
      }));
    }
    if (shape_.branches > 1 && info_.guidance_branches > 1 && role_->set_guidance) {
      const std::vector<float> strengths(info_.guidance_branches - 1, 2.0f);
      timings.push_back(measure("infer, new strength", [&] {
        frt_error error{};
        check(role_->set_guidance(model_, strengths.data(), strengths.size(), stream_.handle(),
                                  &error),
              error, sender_);
        replay(info_.infer, whole);
      }));
    }
    if (info_.state) {
      const Capsules verbs(core::capsules_table(), context_, info_.state);
      const Capsule boundary = verbs.snapshot(0, 0, FRT_SPACE_DEVICE, stream_);
      timings.push_back(measure(fmt::format("reset, {:.1f} MB restored", boundary.bytes() * 1e-6),
                                [&] { boundary.restore(0, stream_); }));
    }
    return timings;
  }

 private:
  using KeyFunction = frt_status (*)(frt_model, const frt_policy_shape*, frt_shape_key*);

  frt_shape_key key(KeyFunction function) const {
    frt_shape_key key = 0;
    const frt_status status = function(model_, &shape_, &key);
    if (status == FRT_OK) return key;
    throw ExitError(
        ExitCode::kUsage, status,
        fmt::format("the model has no variant of {} views, {} prompt tokens, {} steps, "
                    "{} samples and {} branches; set them in the manifest's options",
                    shape_.views, shape_.prompt, shape_.steps, shape_.samples, shape_.branches));
  }

  void copy(frt_buffer target, const Buffer& source, const char* what) const {
    context_.checked(context_.table().buffer_copy(target, 0, source.handle(), 0, source.bytes(),
                                                  stream_.handle()),
                     what);
  }

  void fill() const {
    std::mt19937_64 random(1);
    std::vector<int32_t> mask(info_.views, 0);
    std::fill_n(mask.begin(), std::min(shape_.views, info_.views), 1);
    write_random_inputs(context_, info_, mask,
                        std::vector<int32_t>(std::max(1u, info_.guidance_branches),
                                             static_cast<int32_t>(shape_.prompt)),
                        random, stream_);
  }

  PolicyTiming measure(const std::string& name, const std::function<void()>& work) const {
    PolicyTiming timing;
    timing.name = name;
    timing.seconds.reserve(options_.repetitions);
    for (uint32_t i = 0; i < options_.warmup + options_.repetitions; ++i) {
      if (InterruptGuard::requested()) throw Error(FRT_ERR_CANCELLED, "stopped on request");
      const auto start = std::chrono::steady_clock::now();
      work();
      stream_.sync();
      const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
      if (i >= options_.warmup) timing.seconds.push_back(taken.count());
    }
    return timing;
  }

  const Context& context_;
  frt_model model_;
  std::string sender_;
  const BenchPolicyOptions& options_;
  std::optional<frt_role_policy_v1> role_;
  Stream stream_;
  frt_policy_info info_{};
  frt_policy_shape shape_{};
};

ExitCode bench_policy(App& app, const BenchPolicyOptions& options) {
  LoadedModel loaded = load_model(
      app, options.manifest, policy_name(app.manifests().load(options.manifest), options.model));
  const InterruptGuard interrupt;
  PolicyBench bench(loaded, options);
  const std::vector<PolicyTiming> timings = bench.run();
  const frt_policy_shape& shape = bench.shape();
  const frt_model_info info = loaded.info();
  const frt_context_info context = loaded.context().info();
  const frt_counters counters = loaded.context().counters();
  const auto ms = [](const PolicyTiming& timing, double q) {
    return quantile(timing.seconds, q) * 1e3;
  };
  if (options.output == "json") {
    nlohmann::ordered_json json = {{"model", loaded.name()},
                                   {"architecture", info.architecture},
                                   {"formats", info.formats},
                                   {"device", context.device->name},
                                   {"backend", context.backend_id},
                                   {"build", build_description()},
                                   {"views", shape.views},
                                   {"prompt", shape.prompt},
                                   {"steps", shape.steps},
                                   {"samples", shape.samples},
                                   {"branches", shape.branches},
                                   {"horizon", bench.info().horizon},
                                   {"captures_since_ready", counters.captures_since_ready}};
    for (const PolicyTiming& timing : timings) {
      json["timings"].push_back({{"name", timing.name},
                                 {"p50_ms", ms(timing, 0.5)},
                                 {"p90_ms", ms(timing, 0.9)},
                                 {"p99_ms", ms(timing, 0.99)},
                                 {"min_ms", ms(timing, 0)},
                                 {"max_ms", ms(timing, 1)}});
    }
    print_json(json);
    return ExitCode::kOk;
  }
  Table table({"what", "median ms", "p90 ms", "p99 ms", "min ms", "max ms"}, {1, 2, 3, 4, 5});
  for (const PolicyTiming& timing : timings) {
    const auto cell = [&](double q) { return fmt::format("{:.3f}", ms(timing, q)); };
    table.add({timing.name, cell(0.5), cell(0.9), cell(0.99), cell(0), cell(1)});
  }
  print_out(
      "{}\n{} views, {} prompt tokens, {} steps, horizon {}, {} samples, {} branches; {}, {}, "
      "{} weights; {} captures while measuring\n",
      table.render(TableFormat::kMarkdown), shape.views, shape.prompt, shape.steps,
      bench.info().horizon, shape.samples, shape.branches, info.architecture, context.device->name,
      info.formats, counters.captures_since_ready);
  return ExitCode::kOk;
}

}  // namespace

std::function<ExitCode()> add_bench_policy(App& app, Command command) {
  auto options = std::make_shared<BenchPolicyOptions>();
  command.add_option("manifest", options->manifest, "Read this manifest (TOML)").required();
  command.add_option("--model", options->model, kModelDoc).type_name("NAME");
  command.add_option("--views", options->views, "Use this many camera images; 0: all")
      .capture_default_str();
  command.add_option("--prompt", options->prompt, "Use this many prompt tokens")
      .range(1u, 100000u)
      .capture_default_str();
  command
      .add_option("--steps", options->steps,
                  "Make this many denoising steps; 0: the model's default")
      .capture_default_str();
  command.add_option("--samples", options->samples, "Make this many chunks of one observation")
      .range(1u, 1000u)
      .capture_default_str();
  command
      .add_option("--branches", options->branches,
                  "Use this many guidance branches; 0: all, 1: none")
      .capture_default_str();
  command
      .add_option("-r,--repetitions", options->repetitions,
                  "Measure this many inferences of each kind")
      .range(1u, 1000000u)
      .capture_default_str();
  command.add_option("--warmup", options->warmup, "Run this many inferences before measuring")
      .capture_default_str();
  command.add_option("-o,--output", options->output, "Print results on stdout in this format")
      .one_of({"md", "json"})
      .capture_default_str();
  command.examples({"bench policy share/frt/manifests/reach.toml --model plain --prompt 24"});
  return [&app, options] { return bench_policy(app, *options); };
}

}  // namespace frt::host
