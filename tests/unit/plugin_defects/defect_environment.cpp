// SPDX-License-Identifier: Apache-2.0
// An environment that counts: its state is the sum of its actions, its episode has ten steps. The
// defect is in its table, in what it says of itself, or in what it gives.
#include <frt/environment.hpp>

#include <array>
#include <chrono>
#include <cstdio>
#include <limits>
#include <stdexcept>
#include <string>
#include <thread>

#include "defects.hpp"

namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kLow[] = {-1, -1}, kHigh[] = {1, 1};
constexpr uint32_t kSide = 28, kSteps = 10;

// Says on stderr that it hangs, for good or for 1.5 s.
void may_hang(const char* call) {
  if (defects::is(std::string(call) + "_takes_long")) {
    std::fputs("hangs\n", stderr);
    std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  }
  if (!defects::is(std::string(call) + "_hangs")) return;
  std::fputs("hangs\n", stderr);
  defects::hang(call);
}

class Counter {
 public:
  Counter() : pixels_(std::size_t{3} * kSide * kSide) {
    ports_ = {frt::make_environment_port("observation/image", "RGB", FRT_ENVIRONMENT_IMAGE,
                                         FRT_DTYPE_U8, {kSide, kSide, 3}),
              frt::make_environment_port("observation/state", "sums", FRT_ENVIRONMENT_STATE,
                                         FRT_DTYPE_F32, {2})};
    action_ = frt::make_environment_port("action", "added to the sums", FRT_ENVIRONMENT_ARRAY,
                                         FRT_DTYPE_F64, {2});
    tasks_ = {{{"red", "reach the red disc"}, {"green", "reach the green disc"}}};
    info_.struct_size = sizeof(info_);
    info_.flags = FRT_ENVIRONMENT_DETERMINISTIC;
    info_.max_steps = kSteps;
    info_.doc = "sums";
    info_.port_count = 2;
    info_.ports = ports_.data();
    info_.action = &action_;
    info_.task_count = 2;
    info_.tasks = tasks_.data();
    info_.action_low = kLow;
    info_.action_high = kHigh;
    arrays_ = {frt::array_of(ports_[0], pixels_.data()), frt::array_of(ports_[1], sums_.data())};
    seen_.struct_size = sizeof(seen_);
    seen_.array_count = 2;
    seen_.arrays = arrays_.data();
    if (defects::is("environment_port_type")) ports_[1].dtype = FRT_DTYPE_F64;
    if (defects::is("environment_port_names")) ports_[1].name = ports_[0].name;
    if (defects::is("environment_no_ports")) info_.port_count = 0;
    if (defects::is("environment_action_short")) action_.dtype = FRT_DTYPE_F32;
    if (defects::is("environment_period_nan")) info_.period_s = kNan;
    if (defects::is("environment_slow")) info_.period_s = 0.1;
    if (defects::is("environment_doc_null")) info_.doc = nullptr;
    if (defects::is("environment_task_null")) tasks_[1].instruction = nullptr;
    if (defects::is("environment_task_words")) tasks_[1].name = "the green";
    if (defects::is("environment_task_twice")) tasks_[1].name = "red";
    if (defects::is("environment_long")) info_.max_steps = 2000;
    if (defects::is("environment_flags")) info_.flags = 64;
    if (defects::is("environment_chance")) info_.flags = 0;
  }
  Counter(const Counter&) = delete;
  Counter& operator=(const Counter&) = delete;

  const frt_environment_info& info() const { return info_; }
  void reset(const frt_environment_start& start) {
    may_hang("reset");
    if (defects::is("reset_fails")) throw frt::Error(FRT_ERR_DEVICE, "the arm is not plugged in");
    task_ = start.task == FRT_TASK_ANY ? static_cast<uint32_t>(start.seed % 2) : start.task;
    const bool remembers = defects::is("environment_remembers");
    const float kept = remembers ? sums_[0] : 0;
    sums_ = {static_cast<float>(start.seed) + kept, 0};
    if (defects::is("environment_ignores_seed")) {
      sums_[0] = 0;
      task_ = start.task == FRT_TASK_ANY ? 0 : start.task;
    }
    steps_ = 0;
  }
  const frt_observation& observe() {
    may_hang("observe");
    if (defects::is("observe_moves")) sums_[1] += 1;
    seen_.prompt = tasks_[task_].instruction;
    if (defects::is("observe_no_prompt")) seen_.prompt = nullptr;
    if (defects::is("observe_shape")) arrays_[0].shape[0] = kSide / 2;
    if (defects::is("observe_type")) arrays_[1].dtype = FRT_DTYPE_I32;
    if (defects::is("observe_no_data")) arrays_[1].data = nullptr;
    if (defects::is("observe_one_array")) seen_.array_count = 1;
    if (defects::is("observe_state_nan")) sums_[1] = static_cast<float>(kNan);
    return seen_;
  }
  frt_environment_result step(std::span<const double> action) {
    if (steps_ == 3) may_hang("step");
    if (defects::is("step_fails") && steps_ == 3) {
      throw frt::Error(FRT_ERR_DEVICE, "the arm is stuck");
    }
    for (std::size_t i = 0; i < 2; ++i) sums_[i] += static_cast<float>(action[i]);
    ++steps_;
    frt_environment_result result{};
    result.reward = defects::is("reward_nan") && steps_ == 3 ? kNan : action[0];
    if (steps_ >= info_.max_steps && !defects::is("never_over")) result.flags |= FRT_EPISODE_OVER;
    if (defects::is("step_flags")) result.flags |= 128;
    return result;
  }
  void set_task(uint32_t task) { task_ = defects::is("set_task_ignored") ? task_ : task; }
  void expert_action(std::span<double> action) {
    may_hang("expert_action");
    action[0] = defects::is("expert_nan") ? kNan : defects::is("expert_far") ? 2 : 0.5;
    action[1] = 0;
  }
  std::string draw(uint32_t) {
    if (defects::is("draw_huge")) return std::string(FRT_ENVIRONMENT_MAX_DRAWING + 1, ' ');
    if (defects::is("draw_garbage")) return defects::kGarbage;
    if (defects::is("draw_open")) return "<circle";
    return "<circle r=\"0.1\"/>";
  }

 private:
  std::array<frt_environment_port, 2> ports_{};
  frt_environment_port action_{};
  std::array<frt_environment_task, 2> tasks_{};
  frt_environment_info info_{};
  std::vector<uint8_t> pixels_;
  std::array<float, 2> sums_{};
  std::array<frt_array, 2> arrays_{};
  frt_observation seen_{};
  uint32_t task_ = 0, steps_ = 0;
};

class Plugin {
 public:
  Plugin(const frt::Host&, const frt::ConfigView&) {}
  static std::unique_ptr<Counter> create(const frt_environment_params&) {
    return std::make_unique<Counter>();
  }
  static frt_status open(const frt_host* host, const frt_config* config, frt_plugin* plugin,
                         frt_error* error) {
    return frt::detail::PluginTrampolines<Plugin>::open(host, config, plugin, error);
  }
  static const void* any_extension(frt_plugin plugin, const char* id) {
    return frt::detail::PluginTrampolines<Plugin>::extension(plugin, id);
  }
  static const void* static_extension(std::string_view) noexcept { return nullptr; }
  const void* extension(std::string_view id) noexcept {
    if (id != FRT_EXT_ENVIRONMENT || defects::is("environment_missing")) return nullptr;
    return defects::with_defect(kTable, "environment", spoil);
  }

 private:
  static constexpr frt_environment_v1 kTable = frt::environment_table<Plugin, Counter>();

  // What a table made with frt/environment.hpp cannot do.
  static void spoil(frt_environment_v1& table) {
    if (defects::is("environment_no_step")) table.step = nullptr;
    if (defects::is("create_makes_nothing")) {
      table.create = [](frt_plugin, const frt_environment_params*, frt_environment*,
                        frt_error*) -> frt_status { return FRT_OK; };
    }
    if (defects::is("reset_throws")) {
      table.reset = [](frt_environment, const frt_environment_start*, frt_error*) -> frt_status {
        throw std::runtime_error("no such luck");
      };
    }
    if (defects::is("observe_throws")) {
      table.observe = [](frt_environment, frt_observation*, frt_error*) -> frt_status {
        throw std::runtime_error("no such luck");
      };
    }
    if (defects::is("step_throws")) {
      table.step = [](frt_environment, const double*, frt_environment_result*,
                      frt_error*) -> frt_status { throw std::runtime_error("no such luck"); };
    }
    if (defects::is("step_code_alone")) {
      table.step = [](frt_environment, const double*, frt_environment_result*, frt_error*) {
        return FRT_ERR_DEVICE;
      };
    }
    if (defects::is("step_unchecked")) {
      // As without the checks of frt/environment.hpp.
      table.step = [](frt_environment environment, const double* action,
                      frt_environment_result* result, frt_error* error) {
        const double finite[2] = {action[0] == action[0] ? action[0] : 0,
                                  action[1] == action[1] ? action[1] : 0};
        return kTable.step(environment, finite, result, error);
      };
    }
    if (defects::is("step_error_stays")) {
      static bool failed = false;
      table.step = [](frt_environment environment, const double* action,
                      frt_environment_result* result, frt_error* error) {
        const frt_status status = kTable.step(environment, action, result, error);
        failed = failed || status == FRT_ERR_INVALID_ARGUMENT;
        return status;
      };
      table.reset = [](frt_environment environment, const frt_environment_start* start,
                       frt_error* error) {
        if (failed && start->task == FRT_TASK_ANY) {
          return frt::set_error(error, FRT_ERR_DEVICE, "it failed once");
        }
        return kTable.reset(environment, start, error);
      };
    }
    if (defects::is("draw_ignores_sink")) {
      table.draw = [](frt_environment, uint32_t, frt_sink sink, void* user, frt_error*) {
        sink(user, "<g/>", 4);
        return FRT_OK;
      };
    }
  }
};

}  // namespace

DEFECT_PLUGIN(Plugin, environment, "test.environment");
