// SPDX-License-Identifier: Apache-2.0
// Cases of an environment: its table is called by itself, with no host's code in between, so that
// what is judged is what the plugin says; PluginEnvironment, by which rollouts drive it, judges
// what it gives.
#include <frt/environment.h>
#include <frt/core/log.hpp>
#include <frt/core/plugin.hpp>
#include <frt/core/services.hpp>
#include <frt/error.hpp>
#include <frt/reading.hpp>
#include <frt/role/contracts.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "check.hpp"
#include "made_text.hpp"
#include "option_cases.hpp"
#include "plugin_cases.hpp"
#include "runtime/plugin_environment.hpp"

namespace frt::conformance {
namespace {

constexpr uint32_t kSteps = 24;  // where episodes are compared

[[noreturn]] void fail(const std::string& text) {
  throw Error(FRT_ERR_MISMATCH, text);
}

// One plugin opened by the host that a program has.
class Opened {
 public:
  explicit Opened(const Subject& subject)
      : subject_(subject),
        loaded_(load(subject)),
        plugin_(loaded_, config_of(loaded_.schema.plugin_options, {}, "plugin"), services_) {}
  const core::OpenPlugin& plugin() const { return plugin_; }
  const frt_environment_v1& table() const {
    return plugin_.require<frt_environment_v1>(FRT_EXT_ENVIRONMENT);
  }
  const std::vector<core::OptionSpec>& schema() const { return loaded_.schema.options; }
  core::Config config(const std::vector<Option>& more = {}) const {
    return config_of(schema(), with_options(subject_.options, more), "environment");
  }

 private:
  static const core::LoadedPlugin& load(const Subject& subject) {
    core::LoadRequest request;
    request.path = subject.plugin;
    return core::load_plugin(request);
  }
  const Subject& subject_;
  core::Log log_;
  core::HostServices services_{log_};
  const core::LoadedPlugin& loaded_;
  core::OpenPlugin plugin_;
};

// What a look showed, and what the step before it led to.
struct Moment {
  std::vector<std::byte> arrays;
  std::string prompt;
  uint32_t flags = 0;
  double reward = 0;

  bool operator==(const Moment& other) const {
    return arrays == other.arrays && prompt == other.prompt && flags == other.flags &&
           std::memcmp(&reward, &other.reward, sizeof(reward)) == 0;
  }
};
using Moments = std::vector<Moment>;

// An environment that was made, by the raw table.
class Raw {
 public:
  explicit Raw(const Opened& opened) : opened_(opened), table_(opened.table()) {
    const core::Config config = opened.config();
    frt_environment_params params{};
    params.struct_size = sizeof(params);
    params.name = "checked";
    params.config = config.c();
    frt_error error{};
    const frt_status status = contain(sender(), "create", [&] {
      return table_.create(opened.plugin().handle(), &params, &handle_, &error);
    });
    check(status, error, sender() + ": create");
    if (!handle_) fail(sender() + ": `create` returns FRT_OK and no environment");
    try {
      info_ = host::read_environment_info(table_, handle_, sender());
    } catch (...) {
      table_.destroy(handle_);
      throw;
    }
  }
  ~Raw() { table_.destroy(handle_); }
  Raw(const Raw&) = delete;
  Raw& operator=(const Raw&) = delete;

  const frt_environment_v1& table() const { return table_; }
  frt_environment handle() const { return handle_; }
  const frt_environment_info& info() const { return info_; }
  std::string sender() const { return opened_.plugin().sender(); }
  std::size_t width() const { return static_cast<std::size_t>(info_.action->shape[0]); }

  // What the plugin answers.
  Reply try_reset(uint64_t seed, uint32_t task) {
    frt_environment_start start{};
    start.struct_size = sizeof(start);
    start.task = task;
    start.seed = seed;
    return asked(sender(), "reset",
                 [&](Reply& reply) { return table_.reset(handle_, &start, &reply.error); });
  }
  Reply try_step(const std::vector<double>& action, frt_environment_result& result) {
    result = {};
    result.struct_size = sizeof(result);
    return asked(sender(), "step", [&](Reply& reply) {
      return table_.step(handle_, action.data(), &result, &reply.error);
    });
  }
  Reply try_observe(frt_observation& observation) {
    observation = {};
    observation.struct_size = sizeof(observation);
    return asked(sender(), "observe",
                 [&](Reply& reply) { return table_.observe(handle_, &observation, &reply.error); });
  }

  // The same, which must succeed.
  void reset(uint64_t seed, uint32_t task = FRT_TASK_ANY) {
    const Reply reply = try_reset(seed, task);
    check(reply.status, reply.error, sender() + ": reset");
    last_ = {};
  }
  void step(const std::vector<double>& action) {
    frt_environment_result result{};
    const Reply reply = try_step(action, result);
    check(reply.status, reply.error, sender() + ": step");
    last_.flags = result.flags;
    last_.reward = result.reward;
  }
  Moment look() {
    frt_observation seen{};
    const Reply reply = try_observe(seen);
    check(reply.status, reply.error, sender() + ": observe");
    Moment moment = last_;
    if (seen.array_count != info_.port_count || !seen.arrays || !seen.prompt) {
      fail(sender() + ": `observe` gives " + std::to_string(seen.array_count) + " arrays and " +
           (seen.prompt ? "a prompt" : "no prompt") + "; it has " +
           std::to_string(info_.port_count) + " ports and always an instruction");
    }
    moment.prompt = seen.prompt;
    for (uint32_t i = 0; i < seen.array_count; ++i) {
      const frt_array& array = seen.arrays[i];
      uint64_t bytes = dtype_bits(array.dtype) / 8;
      for (uint32_t axis = 0; axis < array.rank; ++axis) {
        bytes *= static_cast<uint64_t>(array.shape[axis]);
      }
      const auto* data = static_cast<const std::byte*>(array.data);
      moment.arrays.insert(moment.arrays.end(), data, data + bytes);
    }
    return moment;
  }

  double low(std::size_t i) const { return info_.action_low ? info_.action_low[i] : -1; }
  double high(std::size_t i) const { return info_.action_high ? info_.action_high[i] : 1; }
  // A random action within the limits, -1 to 1 where there are none.
  std::vector<double> action(std::mt19937_64& random) const {
    std::vector<double> values(width());
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = low(i) + (high(i) - low(i)) * (static_cast<double>(random() >> 11) * 0x1p-53);
    }
    return values;
  }
  // A reset and kSteps random actions; what was seen at each.
  Moments episode(uint64_t seed, uint32_t task = FRT_TASK_ANY) {
    std::mt19937_64 random(seed);
    reset(seed, task);
    Moments moments = {look()};
    for (uint32_t i = 0; i < kSteps; ++i) {
      step(action(random));
      moments.push_back(look());
    }
    return moments;
  }

 private:
  const Opened& opened_;
  const frt_environment_v1& table_;
  frt_environment handle_ = nullptr;
  frt_environment_info info_{};
  Moment last_;
};

void needs_determinism(const Raw& raw) {
  if (raw.info().flags & FRT_ENVIRONMENT_DETERMINISTIC) return;
  throw Skip{"the environment does not say that it is deterministic"};
}

void require_equal(const Moments& found, const Moments& expected, const std::string& what) {
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const Moment &a = found[i], &b = expected[i];
    if (a == b) continue;
    const char* differs = a.arrays != b.arrays   ? "the arrays differ"
                          : a.prompt != b.prompt ? "the instruction differs"
                          : a.flags != b.flags   ? "the flags differ"
                                                 : "the reward differs";
    fail(what + ": after step " + std::to_string(i) + " " + differs +
         "; an episode depends on its seed, its task and its actions alone");
  }
}

void tables(const Subject& subject) {
  const Opened opened(subject);
  for (int round = 0; round < 2; ++round) const Raw raw(opened);
}

// As a rollout drives it: each observation against its ports, each result.
void gives_what_it_says(const Subject& subject) {
  const Opened opened(subject);
  host::PluginEnvironment environment(opened.plugin(), "checked", opened.config());
  const Raw raw(opened);
  std::mt19937_64 random(subject.seed);
  const uint32_t steps = std::min(raw.info().max_steps ? raw.info().max_steps : 256u, 1024u);
  for (uint64_t seed = 0; seed < 3; ++seed) {
    environment.reset(subject.seed + seed);
    for (uint32_t i = 0; i < steps && !environment.over(); ++i) {
      subject.alive();
      environment.observe();
      environment.apply(raw.action(random));
    }
    if (raw.info().max_steps == steps && !environment.over()) {
      fail(environment.sender() + ": after max_steps = " + std::to_string(raw.info().max_steps) +
           " steps the episode is not over; set FRT_EPISODE_OVER");
    }
    environment.apply(raw.action(random));  // a hand-off goes on
    environment.observe();
  }
}

void same_seed(const Subject& subject) {
  const Opened opened(subject);
  Raw raw(opened);
  needs_determinism(raw);
  const Moments first = raw.episode(subject.seed);
  const Moments other = raw.episode(subject.seed + 1);
  require_equal(raw.episode(subject.seed), first, "the same seed a second time");
  Raw fresh(opened);
  require_equal(fresh.episode(subject.seed), first, "the same seed in another environment");
  if (other.front() == first.front()) {
    throw Warn{"two seeds begin with the same observation: is the seed used?"};
  }
}

// Objects of one plugin know nothing of each other.
void two_at_once(const Subject& subject) {
  const Opened opened(subject);
  Raw one(opened);
  needs_determinism(one);
  Raw two(opened);
  const Moments expected = one.episode(subject.seed);
  std::mt19937_64 random(subject.seed), noise(subject.seed + 1);
  one.reset(subject.seed);
  two.reset(subject.seed + 1);
  Moments found = {one.look()};
  for (uint32_t i = 0; i < kSteps; ++i) {
    two.step(two.action(noise));
    one.step(one.action(random));
    two.look();
    found.push_back(one.look());
  }
  require_equal(found, expected, "an episode beside that of another environment");
}

void looking_changes_nothing(const Subject& subject) {
  const Opened opened(subject);
  Raw raw(opened);
  needs_determinism(raw);
  const Moments expected = raw.episode(subject.seed);
  std::mt19937_64 random(subject.seed);
  raw.reset(subject.seed);
  Moments found;
  for (uint32_t i = 0; i <= kSteps; ++i) {
    if (i > 0) raw.step(raw.action(random));
    for (int look = 0; look < 3; ++look) raw.look();
    found.push_back(raw.look());
  }
  require_equal(found, expected, "an episode with more looks");
}

// What a host must not do is refused in words, and changes nothing.
void refuses(const Subject& subject) {
  const Opened opened(subject);
  Raw raw(opened);
  frt_environment_result result{};
  frt_observation seen{};
  const std::vector<double> zeros(raw.width());
  require_refusal(raw.try_step(zeros, result), "step before the first reset", FRT_ERR_BAD_STATE);
  require_refusal(raw.try_observe(seen), "observe before the first reset", FRT_ERR_BAD_STATE);
  require_refusal(raw.try_reset(subject.seed, raw.info().task_count),
                  "reset with task " + std::to_string(raw.info().task_count) + " of " +
                      std::to_string(raw.info().task_count),
                  FRT_ERR_OUT_OF_RANGE);
  needs_determinism(raw);
  const Moments expected = raw.episode(subject.seed);
  std::mt19937_64 random(subject.seed);
  raw.reset(subject.seed);
  Moments found = {raw.look()};
  for (uint32_t i = 0; i < kSteps; ++i) {
    std::vector<double> action = raw.action(random);
    const std::size_t at = i % action.size();
    const double right = action[at];
    for (const double wrong : {std::nan(""), std::numeric_limits<double>::infinity(),
                               -std::numeric_limits<double>::infinity()}) {
      action[at] = wrong;
      require_refusal(raw.try_step(action, result),
                      "step with " + std::to_string(wrong) + " as value " + std::to_string(at),
                      FRT_ERR_INVALID_ARGUMENT);
    }
    action[at] = right;
    raw.step(action);
    found.push_back(raw.look());
  }
  require_equal(found, expected, "an episode with refused actions between its steps");
}

void reset_after_an_error(const Subject& subject) {
  const Opened opened(subject);
  Raw raw(opened);
  needs_determinism(raw);
  const Moments expected = raw.episode(subject.seed);
  frt_environment_result result{};
  raw.reset(subject.seed + 1);
  raw.try_step(std::vector<double>(raw.width(), std::nan("")), result);
  raw.try_reset(subject.seed, raw.info().task_count);
  require_equal(raw.episode(subject.seed), expected, "an episode after errors");
}

void actions_out_of_range(const Subject& subject) {
  const Opened opened(subject);
  Raw raw(opened);
  const auto run = [&](double factor) {
    raw.reset(subject.seed);
    Moments moments = {raw.look()};
    for (uint32_t i = 0; i < kSteps; ++i) {
      std::vector<double> action(raw.width());
      for (std::size_t at = 0; at < action.size(); ++at) {
        const double limit = (i + at) % 2 == 0 ? raw.high(at) : raw.low(at);
        action[at] = limit + factor * ((i + at) % 2 == 0 ? 1 : -1);
      }
      raw.step(action);
      moments.push_back(raw.look());
      if (!std::isfinite(moments.back().reward)) {
        fail("a large action leads to the reward " + std::to_string(moments.back().reward));
      }
    }
    return moments;
  };
  if (!raw.info().action_low || !raw.info().action_high) {
    run(1e6);
    throw Skip{"the action has no limits below and above; large ones were done"};
  }
  needs_determinism(raw);
  const Moments expected = run(0);
  for (const double factor : {1.0, 1e300}) {
    require_equal(run(factor), expected,
                  "actions beyond their limits, against those at the limits");
  }
}

void tasks(const Subject& subject) {
  const Opened opened(subject);
  Raw raw(opened);
  const frt_environment_info& info = raw.info();
  if (info.task_count == 0) throw Skip{"the environment has one task without a name"};
  const auto require_prompt = [&](uint32_t task, const char* after) {
    const std::string found = raw.look().prompt, expected = info.tasks[task].instruction;
    if (found == expected) return;
    fail("after " + std::string(after) + " of task " + std::to_string(task) +
         " the instruction is \"" + found + "\", the task's is \"" + expected + "\"");
  };
  const auto set_task = [&](uint32_t task) {
    return asked(raw.sender(), "set_task", [&](Reply& reply) {
      return raw.table().set_task(raw.handle(), task, &reply.error);
    });
  };
  for (uint32_t task = 0; task < info.task_count; ++task) {
    subject.alive();
    raw.reset(subject.seed, task);
    require_prompt(task, "a reset");
    if (!raw.table().set_task) continue;
    const uint32_t other = (task + 1) % info.task_count;
    const Reply reply = set_task(other);
    check(reply.status, reply.error, raw.sender() + ": set_task");
    require_prompt(other, "set_task");
  }
  if (!raw.table().set_task) return;
  require_refusal(set_task(info.task_count), "set_task of a task that there is not",
                  FRT_ERR_OUT_OF_RANGE);
}

void expert(const Subject& subject) {
  const Opened opened(subject);
  Raw raw(opened);
  if (!raw.table().expert_action) throw Skip{"the environment has no expert_action"};
  raw.reset(subject.seed);
  for (uint32_t i = 0; i < kSteps; ++i) {
    std::vector<double> action(raw.width(), std::nan(""));
    const Reply reply = asked(raw.sender(), "expert_action", [&](Reply& answer) {
      return raw.table().expert_action(raw.handle(), action.data(), &answer.error);
    });
    check(reply.status, reply.error, raw.sender() + ": expert_action");
    for (std::size_t at = 0; at < action.size(); ++at) {
      const bool within = (!raw.info().action_low || action[at] >= raw.info().action_low[at]) &&
                          (!raw.info().action_high || action[at] <= raw.info().action_high[at]);
      if (std::isfinite(action[at]) && within) continue;
      fail("expert_action gives " + std::to_string(action[at]) + " as value " + std::to_string(at) +
           ", which is not within the limits of the action");
    }
    raw.step(action);
  }
}

void draws(const Subject& subject) {
  const Opened opened(subject);
  host::PluginEnvironment environment(opened.plugin(), "checked", opened.config());
  if (!environment.draws()) throw Skip{"the environment draws nothing"};
  Raw raw(opened);
  std::mt19937_64 random(subject.seed);
  environment.reset(subject.seed);
  raw.reset(subject.seed);
  for (uint32_t i = 0; i <= kSteps; ++i) {
    const std::string text = environment.draw(i + 1);
    const auto count = [&](const char* piece) {
      std::size_t found = 0;
      for (std::size_t at = 0; (at = text.find(piece, at)) != std::string::npos; ++at) ++found;
      return found;
    };
    if (count("<") != count(">") || count("<svg") > 0) {
      fail("the drawing after step " + std::to_string(i) +
           " is not made of whole SVG elements without <svg>");
    }
    if (i < kSteps) environment.apply(raw.action(random));
  }
  const Reply stopped = asked(
      raw.sender(), "draw",
      [&](Reply& reply) {
        return raw.table().draw(raw.handle(), 1, Reply::take, &reply, &reply.error);
      },
      FRT_ERR_CANCELLED);
  if (stopped.calls > 0) {
    require_refusal(stopped, "draw with a sink that returns FRT_ERR_CANCELLED", FRT_ERR_CANCELLED);
  }
}

// Each option in turn, by the plugin's own table.
void rare_options(const Subject& subject) {
  const Opened opened(subject);
  if (opened.schema().empty()) throw Skip{"the environment has no options"};
  const frt_environment_v1& table = opened.table();
  const std::string sender = opened.plugin().sender();
  try_options(opened.schema(), subject.options, "environment", "create",
              [&](const std::vector<Option>& more) {
                const core::Config config = opened.config(more);
                frt_environment_params params{};
                params.struct_size = sizeof(params);
                params.name = "checked";
                params.config = config.c();
                subject.alive();
                Creation made;
                frt_environment environment = nullptr;
                made.status = contain(sender, "create", [&] {
                  return table.create(opened.plugin().handle(), &params, &environment, &made.error);
                });
                if (made.status == FRT_OK) table.destroy(environment);
                return made;
              });
}

}  // namespace

void add_environment_cases(std::vector<PluginCase>& cases) {
  cases.push_back({"environment tables", tables, true});
  cases.push_back({"environment gives what it says", gives_what_it_says, true});
  cases.push_back({"environment same seed, same episode", same_seed, true});
  cases.push_back({"environment two at once", two_at_once});
  cases.push_back({"environment looking changes nothing", looking_changes_nothing, true});
  cases.push_back({"environment refuses", refuses});
  cases.push_back({"environment reset after an error", reset_after_an_error});
  cases.push_back({"environment actions out of range", actions_out_of_range});
  cases.push_back({"environment tasks", tasks});
  cases.push_back({"environment expert action", expert});
  cases.push_back({"environment draws", draws});
  cases.push_back({"environment rare options", rare_options});
}

}  // namespace frt::conformance
