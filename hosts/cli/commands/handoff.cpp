// SPDX-License-Identifier: Apache-2.0
// frt-host handoff: a planner names subgoals of an environment, an actor pursues them, interrupts
// come in between. The times of each interrupt go to stdout.
//
// The planner is a list, or a language model of the manifest: the first subgoal that its text names
// is the next one. It needs a [device.NAME] of its own (the same device may have two), since
// one thread at a time may drive a context.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "cli/app.hpp"
#include "cli/load_model.hpp"
#include "cli/terminal/interrupted.hpp"
#include "cli/terminal/output.hpp"
#include "cli/terminal/signals.hpp"
#include "cli/terminal/table.hpp"
#include "examples/handoff.hpp"
#include "lm/engine/generate.hpp"
#include "lm/sampling.hpp"
#include "runtime/environment_choice.hpp"
#include "runtime/robot_settings.hpp"

namespace frt::host {
namespace {

struct HandoffCommand {
  std::string manifest, model, planner, environment, tag;
  std::string prompt = "Felix and his friend Pip had a small";
  double seconds = 10, plan_every = 2;
  uint32_t interrupts = 5;
  uint64_t seed = 0;
  bool json = false;
  Option prompt_option;
};

using Subgoals = std::vector<EnvironmentSubgoal>;

bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

// The subgoal that a text names first, as a word; none if it names none. `complete`: no text
// comes.
std::optional<std::size_t> named_subgoal(const Subgoals& subgoals, const std::string& text,
                                         bool complete = true) {
  std::size_t first = std::string::npos;
  std::optional<std::size_t> named;
  for (std::size_t i = 0; i < subgoals.size(); ++i) {
    const std::string& word = subgoals[i].name;
    for (std::size_t at = text.find(word); at < first; at = text.find(word, at + 1)) {
      const std::size_t end = at + word.size();
      const bool ends = end == text.size() ? complete : !is_letter(text[end]);
      if (!ends || (at > 0 && is_letter(text[at - 1]))) continue;
      first = at;
      named = i;
    }
  }
  return named;
}

// Posts a subgoal every `plan_every` seconds until told to end.
class Planner {
 public:
  // `say`: what it planned goes to stderr.
  Planner(const HandoffCommand& command, const Subgoals& subgoals, SubgoalMailbox& mailbox,
          std::optional<LmModel> model, bool say)
      : command_(command),
        subgoals_(subgoals),
        mailbox_(mailbox),
        model_(std::move(model)),
        say_(say) {
    if (model_) {
      EngineOptions options;
      options.slots = 1;
      engine_ = std::make_unique<Engine>(*model_, nullptr, options);
    }
    thread_ = std::thread([this] { run(); });
  }
  ~Planner() { end(); }

  void end() {
    ended_ = true;
    if (thread_.joinable()) thread_.join();
  }
  uint32_t plans() const noexcept { return plans_; }
  const std::string& failure() const noexcept { return failure_; }  // after end()

 private:
  void run() {
    try {
      int64_t next = monotonic_ns();
      while (!ended_) {
        const std::size_t planned = plan();
        if (ended_) break;
        const std::string& subgoal = subgoals_[planned].instruction;
        mailbox_.post(subgoal + suffix(), false);
        ++plans_;
        if (say_) print_err("plan: {} -> {}\n", text_.empty() ? "the next" : text_, subgoal);
        next += static_cast<int64_t>(command_.plan_every * 1e9);
        while (!ended_ && monotonic_ns() < next) {
          sleep_until_ns(std::min(next, monotonic_ns() + 20000000));
        }
      }
    } catch (const std::exception& error) {
      failure_ = error.what();
    }
  }

  // A model that names no subgoal leaves the choice to the list.
  std::size_t plan() {
    const std::size_t listed = plans_ % subgoals_.size();
    if (!model_) return listed;
    EngineRequest request;
    request.prompt = model_->encode(command_.prompt);
    request.max_new = 16;
    SamplingChoice choice;
    choice.seed = command_.seed + plans_;
    request.sampling = resolve_sampling(choice, model_->generation_defaults());
    text_.clear();
    TextStream decoder(*model_, FRT_DECODE_SKIP_SPECIAL);
    GenerationReader reader;
    reader.cancelled = [this] { return ended_.load(); };
    reader.ends = [&](int32_t id, float) {
      text_ += decoder.push(id);
      return named_subgoal(subgoals_, text_, false) ? Next::kStop : Next::kContinue;
    };
    generate(*engine_, std::move(request), reader);
    return named_subgoal(subgoals_, text_).value_or(listed);
  }

  std::string suffix() const { return command_.tag.empty() ? "" : " " + command_.tag; }

  const HandoffCommand& command_;
  const Subgoals& subgoals_;
  SubgoalMailbox& mailbox_;
  std::optional<LmModel> model_;
  bool say_;
  std::string text_;  // that the model wrote
  std::unique_ptr<Engine> engine_;
  std::atomic<bool> ended_{false};
  std::atomic<uint32_t> plans_{0};
  std::string failure_;
  std::thread thread_;
};

// Posts interrupts at times that have nothing to do with ticks.
void interrupt_now_and_then(const HandoffCommand& command, const Subgoals& subgoals,
                            SubgoalMailbox& mailbox, const std::atomic<bool>& ended) {
  const std::string suffix = command.tag.empty() ? "" : " " + command.tag;
  const int64_t start = monotonic_ns();
  for (uint32_t i = 0; i < command.interrupts; ++i) {
    const double at = command.seconds * (i + 0.7317) / (command.interrupts + 0.5);
    const int64_t when = start + static_cast<int64_t>(at * 1e9);
    while (!ended && monotonic_ns() < when) {
      sleep_until_ns(std::min(when, monotonic_ns() + 20000000));
    }
    if (ended) return;
    mailbox.post(subgoals[(i + std::size_t{1}) % subgoals.size()].instruction + suffix, true);
  }
}

std::string arrow(const std::vector<double>& action) {
  std::string text;
  for (std::size_t i = 0; i < std::min<std::size_t>(action.size(), 2); ++i) {
    text += fmt::format("{}{:+.3f}", i ? " " : "", action[i]);
  }
  return text;
}

nlohmann::ordered_json to_json(const HandoffResult& result, uint32_t plans, uint64_t captures,
                               double worst) {
  auto list = nlohmann::ordered_json::array();
  for (const InterruptTimes& times : result.interrupts) {
    list.push_back({{"instruction", times.instruction},
                    {"in_flight", times.in_flight},
                    {"free_ms", times.free_ms},
                    {"overwritten_ms", times.overwritten_ms},
                    {"replay_ms", times.replay_ms},
                    {"action_ms", times.action_ms},
                    {"overhead_ms", times.overhead_ms()},
                    {"in_time", times.in_time()},
                    {"before", times.before},
                    {"after", times.after}});
  }
  return {{"ticks", result.ticks},
          {"chunks", result.chunks},
          {"plans", plans},
          {"subgoals", result.subgoals},
          {"reached", result.reached},
          {"interrupts", list},
          {"worst_overhead_ms", worst},
          {"chunk_ms", to_json(result.replay_ms)},
          {"late_us", to_json(result.late_us)},
          {"deadline_miss_total", result.counters.deadline_misses},
          {"stale_drop_total", result.counters.stale_drops},
          {"refused_total", result.counters.refused},
          {"safe_action_total", result.counters.safe_actions},
          {"skipped_ticks", result.skipped_ticks},
          {"captures_since_ready", captures}};
}

void print(const HandoffResult& result, uint32_t plans, uint64_t captures, bool json) {
  double worst = 0;
  uint64_t in_time = 0;
  for (const InterruptTimes& times : result.interrupts) {
    worst = std::max(worst, times.overhead_ms());
    in_time += times.in_time() ? 1 : 0;
  }
  if (json) {
    print_json(to_json(result, plans, captures, worst));
    return;
  }
  const TickCounters& counters = result.counters;
  if (!result.interrupts.empty()) {
    Table table({"interrupt", "action before", "device free ms", "replay ms", "new action",
                 "sent ms", "overhead ms"},
                {2, 3, 5, 6});
    for (const InterruptTimes& times : result.interrupts) {
      table.add({times.instruction, arrow(times.before), fmt::format("{:.3f}", times.free_ms),
                 fmt::format("{:.3f}", times.replay_ms), arrow(times.after),
                 fmt::format("{:.3f}", times.action_ms),
                 fmt::format("{:.3f}", times.overhead_ms())});
    }
    print_out(
        "{}\n{} of {} interrupts took effect within one replay and a millisecond; worst "
        "overhead {:.3f} ms\n",
        table.render(TableFormat::kMarkdown), in_time, result.interrupts.size(), worst);
  }
  print_out(
      "{} ticks, {} chunks, {} plans, {} subgoals taken up, {} reached\n"
      "chunk taken {}\n"
      "tick late   {}; {} ticks skipped\n"
      "captures since ready: {}; deadline misses {}, stale chunks {}, refused {}, safe actions "
      "{}\n",
      result.ticks, result.chunks, plans, result.subgoals, result.reached,
      to_text(result.replay_ms), to_text(result.late_us, "us"), result.skipped_ticks, captures,
      counters.deadline_misses, counters.stale_drops, counters.refused, counters.safe_actions);
}

ExitCode run(App& app, const HandoffCommand& command) {
  const core::Manifest manifest = app.manifests().load(command.manifest);
  const RobotSettings settings = robot_settings(manifest);
  const std::string& planner_name = command.planner.empty() ? settings.planner : command.planner;
  if (planner_name.empty() && command.prompt_option.given()) {
    throw ExitError(
        ExitCode::kUsage, FRT_ERR_INVALID_ARGUMENT,
        "--prompt is for a language model that plans, and here a list does; name a language "
        "model with --planner, or leave --prompt out");
  }
  const std::string environment =
      chosen_environment(app.environments(), manifest, settings, command.environment);
  LoadedModel loaded =
      load_model(app, command.manifest, command.model.empty() ? settings.model : command.model);
  const PolicyModel policy = policy_of(loaded);
  stage(ExitCode::kManifest, [&] { settings.ticks.check(policy.info().horizon); });
  std::optional<LmModel> planner_model;
  if (!planner_name.empty()) {
    const LoadedModel::Companion& made = loaded.load_also(planner_name);
    if (made.context.handle() == policy.context().handle()) {
      throw ExitError(ExitCode::kManifest, FRT_ERR_INVALID_ARGUMENT,
                      "planner and actor share a [device.NAME]; give the planner one of its own "
                      "(it may be the same device: same backend, same ordinal)");
    }
    planner_model = made.language_model();
  }
  PolicyRunner runner(policy);
  const std::unique_ptr<Environment> world = make_environment(
      app.environments(), loaded, environment, environment_request(policy, command.tag));
  const Subgoals subgoals = world->subgoals();
  if (subgoals.empty()) {
    throw ExitError(ExitCode::kUsage, FRT_ERR_UNSUPPORTED,
                    "the environment '" + environment +
                        "' has no subgoals that a planner could name; choose another with "
                        "--environment");
  }
  HandoffOptions options;
  options.ticks = ticks_of(settings, *world, environment);
  options.seconds = command.seconds;
  options.seed = command.seed;
  options.steps = settings.service.steps;
  options.guidance = settings.service.guidance;
  SubgoalMailbox mailbox;
  Handoff handoff(runner, *world, mailbox, options);
  handoff.on_subgoal = [&](const std::string& instruction) {
    if (const auto named = named_subgoal(subgoals, instruction)) world->choose(*named);
  };
  const std::string realtime = apply_realtime(settings.realtime);
  if (!realtime.empty()) print_err("{}\n", realtime);
  const InterruptGuard guard;
  handoff.stopped = [] { return InterruptGuard::requested(); };

  std::atomic<bool> ended{false};
  Planner planner(command, subgoals, mailbox, std::move(planner_model), !app.options().quiet);
  std::thread operator_thread([&] { interrupt_now_and_then(command, subgoals, mailbox, ended); });
  HandoffResult result;
  std::exception_ptr failure;
  try {
    result = handoff.run();
  } catch (...) {
    failure = std::current_exception();
  }
  ended = true;
  planner.end();
  operator_thread.join();
  if (failure) std::rethrow_exception(failure);
  if (!planner.failure().empty()) {
    throw Error(FRT_ERR_CALLBACK, "the planner failed: " + planner.failure());
  }
  print(result, planner.plans(), policy.context().counters().captures_since_ready, command.json);
  return InterruptGuard::requested() ? interrupted_status() : ExitCode::kOk;
}

}  // namespace

void add_handoff_command(App& app) {
  auto options = std::make_shared<HandoffCommand>();
  Command command = app.program().add_subcommand(
      "handoff", "Let a planner give subgoals to a policy, and measure interrupts");
  command.add_option("manifest", options->manifest, "Read this manifest (TOML) with [host.robot]")
      .required();
  command.add_option("--model", options->model, "Act with this model; default: the manifest's")
      .type_name("NAME");
  command
      .add_option("--planner", options->planner,
                  "Plan with this language model; default: the manifest's, else a list of subgoals")
      .type_name("NAME");
  command
      .add_option("--environment", options->environment,
                  "Act on this environment; default: the manifest's, else the only one")
      .type_name("NAME");
  options->prompt_option =
      command.add_option("--prompt", options->prompt, "Let the planner continue this text")
          .type_name("TEXT");
  command.add_option("--tag", options->tag, "Append this text to each instruction")
      .type_name("TEXT");
  command.add_option("--seconds", options->seconds, "Run for this many seconds")
      .range(0.1, 86400.0)
      .capture_default_str();
  command.add_option("--plan-every", options->plan_every, "Plan again after this many seconds")
      .range(0.01, 86400.0)
      .capture_default_str();
  command
      .add_option("--interrupts", options->interrupts,
                  "Interrupt this many times, spread over the run")
      .capture_default_str();
  command.add_option("--seed", options->seed, "Seed the environment and the noise")
      .capture_default_str();
  command.add_flag("--json", options->json, "Print one JSON object on stdout");
  command.examples({"handoff share/frt/manifests/handoff.toml",
                    "handoff share/frt/manifests/reach.toml --interrupts 20    # a list plans"});
  app.add_command(command, [&app, options] { return run(app, *options); });
}

}  // namespace frt::host
