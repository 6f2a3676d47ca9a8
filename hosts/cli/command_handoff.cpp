// SPDX-License-Identifier: Apache-2.0
// frt-host handoff: a planner names discs of the reaching task, an actor moves to them, interrupts
// come in between. The times of each interrupt go to stdout.
//
// The planner is a list, or a language model of the manifest: the first colour that its text names
// is the next subgoal. It needs a [device.NAME] of its own (the same device may have two), since
// one thread at a time may drive a context.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>

#include "cli/app.hpp"
#include "cli/loaded_model.hpp"
#include "cli/robot_setup.hpp"
#include "cli/signals.hpp"
#include "lm/generator.hpp"
#include "robot/handoff.hpp"

namespace frt::host {
namespace {

struct HandoffCommand {
  std::string manifest, model, planner, tag;
  std::string prompt = "Once upon a time there was a ball. The color of the ball was";
  double seconds = 10, plan_every = 2;
  uint32_t interrupts = 5;
  uint64_t seed = 0;
  bool json = false;
};

constexpr const char* kColors[] = {"red", "green", "blue"};

// The disc that a text names first; -1 if it names none.
int named_disc(const std::string& text) {
  std::size_t first = std::string::npos;
  int disc = -1;
  for (int i = 0; i < 3; ++i) {
    const std::size_t at = text.find(kColors[i]);
    if (at < first) {
      first = at;
      disc = i;
    }
  }
  return disc;
}

// Posts a subgoal every `plan_every` seconds until told to end.
class Planner {
 public:
  Planner(const HandoffCommand& command, SubgoalMailbox& mailbox, std::optional<LmModel> model)
      : command_(command), mailbox_(mailbox), model_(std::move(model)) {
    if (model_) generator_ = std::make_unique<Generator>(*model_, 0);
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
        const int disc = plan();
        if (ended_) break;
        mailbox_.post(ReachWorld::instruction_of(static_cast<uint32_t>(disc)) + suffix(), false);
        ++plans_;
        next += static_cast<int64_t>(command_.plan_every * 1e9);
        while (!ended_ && monotonic_ns() < next) {
          sleep_until_ns(std::min(next, monotonic_ns() + 20000000));
        }
      }
    } catch (const std::exception& error) {
      failure_ = error.what();
    }
  }

  // A model that names no disc leaves the choice to the list.
  int plan() {
    const int listed = static_cast<int>(plans_ % 3);
    if (!model_) return listed;
    GenerationRequest request;
    request.prompt = model_->encode(command_.prompt);
    request.max_new = 48;
    request.sampling.temperature = 1;
    request.sampling.top_p = 1;
    request.sampling.seed = command_.seed + plans_;
    std::string text;
    TextStream decoder(*model_, FRT_DECODE_SKIP_SPECIAL);
    request.on_token = [&](int32_t id, float) {
      text += decoder.push(id);
      return ended_ || named_disc(text) >= 0 ? Next::kStop : Next::kContinue;
    };
    generator_->run(request);
    const int disc = named_disc(text);
    return disc >= 0 ? disc : listed;
  }

  std::string suffix() const { return command_.tag.empty() ? "" : " " + command_.tag; }

  const HandoffCommand& command_;
  SubgoalMailbox& mailbox_;
  std::optional<LmModel> model_;
  std::unique_ptr<Generator> generator_;
  std::atomic<bool> ended_{false};
  std::atomic<uint32_t> plans_{0};
  std::string failure_;
  std::thread thread_;
};

// Posts interrupts at times that have nothing to do with ticks.
void interrupt_now_and_then(const HandoffCommand& command, SubgoalMailbox& mailbox,
                            const std::atomic<bool>& ended) {
  const std::string suffix = command.tag.empty() ? "" : " " + command.tag;
  const int64_t start = monotonic_ns();
  for (uint32_t i = 0; i < command.interrupts; ++i) {
    const double at = command.seconds * (i + 0.7317) / (command.interrupts + 0.5);
    const int64_t when = start + static_cast<int64_t>(at * 1e9);
    while (!ended && monotonic_ns() < when) {
      sleep_until_ns(std::min(when, monotonic_ns() + 20000000));
    }
    if (ended) return;
    mailbox.post(ReachWorld::instruction_of(i + 1) + suffix, true);
  }
}

void print(const HandoffResult& result, uint32_t plans, uint64_t captures, bool json) {
  double worst = 0;
  for (const InterruptTimes& times : result.interrupts) {
    worst = std::max(worst, times.overhead_ms());
  }
  if (json) {
    auto list = nlohmann::ordered_json::array();
    for (const InterruptTimes& times : result.interrupts) {
      list.push_back({{"instruction", times.instruction},
                      {"in_flight", times.in_flight},
                      {"free_ms", times.free_ms},
                      {"overwritten_ms", times.overwritten_ms},
                      {"replay_ms", times.replay_ms},
                      {"action_ms", times.action_ms},
                      {"overhead_ms", times.overhead_ms()}});
    }
    fmt::print("{}\n",
               nlohmann::ordered_json{{"ticks", result.ticks},
                                      {"chunks", result.chunks},
                                      {"plans", plans},
                                      {"subgoals", result.subgoals},
                                      {"reached", result.reached},
                                      {"interrupts", list},
                                      {"worst_overhead_ms", worst},
                                      {"replay_ms_p50", result.replay_ms.p50},
                                      {"deadline_miss_total", result.counters.deadline_misses},
                                      {"captures_since_ready", captures}}
                   .dump(2));
    return;
  }
  fmt::print(
      "interrupt               device free   overwritten   replay   new action   overhead\n");
  for (const InterruptTimes& times : result.interrupts) {
    fmt::print("{:<22}  {:8.3f} ms  {:9.3f} ms {:6.3f} ms {:9.3f} ms {:7.3f} ms\n",
               times.instruction.substr(0, 22), times.free_ms, times.overwritten_ms,
               times.replay_ms, times.action_ms, times.overhead_ms());
  }
  fmt::print(
      "{} ticks, {} chunks, {} plans, {} subgoals taken up, {} discs reached; worst overhead "
      "{:.3f} ms\nchunk used  {}\ntick late   {}\ncaptures since ready: {}; deadline misses {}\n",
      result.ticks, result.chunks, plans, result.subgoals, result.reached, worst,
      to_text(result.replay_ms), to_text(result.late_us, "us"), captures,
      result.counters.deadline_misses);
}

ExitCode run(App& app, const HandoffCommand& command) {
  const RobotSettings settings = robot_settings(app.load_manifest(command.manifest));
  LoadedModel loaded(app, command.manifest, command.model.empty() ? settings.model : command.model);
  const PolicyModel policy = policy_of(loaded);
  std::optional<LmModel> planner_model;
  if (!command.planner.empty()) {
    const LoadedModel::Companion& made = loaded.load_also(command.planner);
    if (made.context.handle() == policy.context().handle()) {
      throw ExitError(ExitCode::kManifest, FRT_ERR_INVALID_ARGUMENT,
                      "planner and actor share a [device.NAME]; give the planner one of its own "
                      "(it may be the same device: same backend, same ordinal)");
    }
    planner_model = made.language_model();
  }
  PolicyRunner runner(policy);
  ReachWorld world = make_reach_world(policy, command.tag);
  HandoffOptions options;
  options.ticks = settings.ticks;
  options.seconds = command.seconds;
  options.seed = command.seed;
  options.steps = settings.service.steps;
  options.beta = settings.service.beta;
  SubgoalMailbox mailbox;
  Handoff handoff(runner, world, mailbox, options);
  handoff.on_subgoal = [&](const std::string& instruction) {
    const int disc = named_disc(instruction);
    if (disc >= 0) world.choose(static_cast<uint32_t>(disc));
  };
  const std::string realtime = apply_realtime(settings.realtime);
  if (!realtime.empty()) fmt::print(stderr, "{}\n", realtime);
  const InterruptGuard guard;
  handoff.stopped = [] { return InterruptGuard::requested(); };

  std::atomic<bool> ended{false};
  Planner planner(command, mailbox, std::move(planner_model));
  std::thread operator_thread([&] { interrupt_now_and_then(command, mailbox, ended); });
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
  return InterruptGuard::requested() ? ExitCode::kFailed : ExitCode::kOk;
}

}  // namespace

void add_handoff_command(App& app) {
  auto options = std::make_shared<HandoffCommand>();
  CLI::App* command = app.parser().add_subcommand(
      "handoff", "A planner names subgoals, an actor follows; interrupts are timed");
  command->add_option("manifest", options->manifest, "The manifest (TOML), see [host.robot]")
      ->required();
  command->add_option("--model", options->model, "The actor")->type_name("NAME");
  command
      ->add_option("--planner", options->planner, "A language model that plans; else a list does")
      ->type_name("NAME");
  command->add_option("--prompt", options->prompt, "What the planner continues")->type_name("TEXT");
  command->add_option("--tag", options->tag, "Text put behind each instruction")->type_name("TEXT");
  command->add_option("--seconds", options->seconds, "How long")
      ->check(CLI::Range(0.1, 86400.0))
      ->capture_default_str();
  command->add_option("--plan-every", options->plan_every, "Seconds from plan to plan")
      ->check(CLI::Range(0.01, 86400.0))
      ->capture_default_str();
  command->add_option("--interrupts", options->interrupts, "How many, spread over the time")
      ->capture_default_str();
  command->add_option("--seed", options->seed, "Of the world and the noise")->capture_default_str();
  command->add_flag("--json", options->json, "One JSON object on stdout");
  app.add_command(command, [&app, options] { return run(app, *options); });
}

}  // namespace frt::host
