// SPDX-License-Identifier: Apache-2.0
// frt/environment.hpp: the C table of a class, and what it keeps from the class.
#include <doctest/doctest.h>

#include <array>
#include <cstring>
#include <frt/environment.hpp>
#include <limits>
#include <memory>
#include <string>

namespace {

constexpr double kLow[] = {-1, -1}, kHigh[] = {1, 1};

// Remembers what it was told.
class Bare {
 public:
  Bare()
      : port_(frt::make_environment_port("state", "", FRT_ENVIRONMENT_STATE, FRT_DTYPE_F32, {2})),
        action_(
            frt::make_environment_port("action", "", FRT_ENVIRONMENT_ARRAY, FRT_DTYPE_F64, {2})),
        array_(frt::array_of(port_, state_.data())) {
    info_.struct_size = sizeof(info_);
    info_.port_count = 1;
    info_.ports = &port_;
    info_.action = &action_;
    info_.action_low = kLow;
    info_.action_high = kHigh;
    seen_.struct_size = sizeof(seen_);
    seen_.array_count = 1;
    seen_.arrays = &array_;
    seen_.prompt = "go";
  }
  const frt_environment_info& info() const { return info_; }
  void reset(const frt_environment_start& start) {
    if (start.seed == 13) throw frt::Error(FRT_ERR_DEVICE, "no power");
    steps = 0;
  }
  const frt_observation& observe() {
    if (steps == 7) throw frt::Error(FRT_ERR_DEVICE, "the lens is dirty");
    return seen_;
  }
  frt_environment_result step(std::span<const double> action) {
    if (steps == 3) throw std::runtime_error("stuck");
    last = {action[0], action[1]};
    ++steps;
    return {0, FRT_EPISODE_SUCCEEDED, 0.5};
  }

  int steps = 0;
  std::array<double, 2> last{};

 protected:
  frt_environment_info info_{};

 private:
  std::array<float, 2> state_{};
  frt_environment_port port_, action_;
  frt_array array_;
  frt_observation seen_{};
};

class Able : public Bare {
 public:
  Able() {
    info_.task_count = 2;
    info_.tasks = tasks_;
  }
  void set_task(uint32_t asked) { task = asked; }
  static void expert_action(std::span<double> action) { action[0] = action[1] = 0.5; }
  static std::string draw(uint32_t frames) { return std::string(frames, ' '); }

  uint32_t task = 0;

 private:
  frt_environment_task tasks_[2] = {{"a", "do a"}, {"b", "do b"}};
};

template <class Environment>
struct Plugin {
  std::unique_ptr<Environment> create(const frt_environment_params& params) {
    if (std::strcmp(params.name, "none") == 0) throw frt::Error(FRT_ERR_NOT_FOUND, "no such arm");
    auto made = std::make_unique<Environment>();
    last = made.get();
    return made;
  }
  Environment* last = nullptr;
};

template <class Environment>
class Made {
 public:
  Made() {
    frt_environment_params params{};
    params.struct_size = sizeof(params);
    params.name = "arm";
    params.config = &config_;
    REQUIRE(table.create(frt::handle<frt_plugin>(&plugin), &params, &handle, &error) == FRT_OK);
  }
  ~Made() { table.destroy(handle); }
  Made(const Made&) = delete;
  Made& operator=(const Made&) = delete;

  frt_status reset(uint64_t seed = 1, uint32_t task = FRT_TASK_ANY) {
    const frt_environment_start start = {sizeof(start), task, seed};
    return table.reset(handle, &start, &error);
  }
  frt_status step(double x, double y) {
    const double action[] = {x, y};
    result = {};
    result.struct_size = sizeof(result);
    return table.step(handle, action, &result, &error);
  }
  frt_status observe() {
    seen = {};
    seen.struct_size = sizeof(seen);
    return table.observe(handle, &seen, &error);
  }
  std::string words() const { return error.message; }
  Environment& self() { return *plugin.last; }

  static constexpr frt_environment_v1 table =
      frt::environment_table<Plugin<Environment>, Environment>();
  Plugin<Environment> plugin;
  frt_environment handle = nullptr;
  frt_environment_result result{};
  frt_observation seen{};
  frt_error error{};

 private:
  frt_config config_ = {sizeof(frt_config), 0, nullptr};
};

}  // namespace

// What a class lacks is NULL in its table.
static_assert(!Made<Bare>::table.set_task && !Made<Bare>::table.expert_action &&
              !Made<Bare>::table.draw);

TEST_CASE("a class sees finite actions within their limits only, and only in an episode") {
  Made<Bare> made;
  CHECK(made.step(0, 0) == FRT_ERR_BAD_STATE);
  CHECK(made.words() == "step: no episode runs; call `reset` first");
  CHECK(made.observe() == FRT_ERR_BAD_STATE);
  REQUIRE(made.reset() == FRT_OK);
  REQUIRE(made.step(5, -0.25) == FRT_OK);
  CHECK(made.self().last == std::array<double, 2>{1, -0.25});
  CHECK(made.result.struct_size == sizeof(made.result));
  CHECK(made.result.flags == FRT_EPISODE_SUCCEEDED);
  CHECK(made.result.reward == 0.5);
  CHECK(made.step(std::numeric_limits<double>::quiet_NaN(), 0) == FRT_ERR_INVALID_ARGUMENT);
  CHECK(made.words() == "step: value 0 of the action is nan");
  CHECK(made.step(0, -std::numeric_limits<double>::infinity()) == FRT_ERR_INVALID_ARGUMENT);
  CHECK(made.self().steps == 1);
  CHECK(made.step(-7, 0) == FRT_OK);  // the episode goes on
  CHECK(made.self().last == std::array<double, 2>{-1, 0});
  REQUIRE(made.observe() == FRT_OK);
  CHECK(std::string(made.seen.prompt) == "go");
}

TEST_CASE("an error of the class's own ends the episode, and a reset begins another one") {
  Made<Bare> made;
  REQUIRE(made.reset() == FRT_OK);
  for (int i = 0; i < 3; ++i) REQUIRE(made.step(0, 0) == FRT_OK);
  CHECK(made.step(0, 0) == FRT_ERR_INTERNAL);
  CHECK(made.words().find("stuck") != std::string::npos);
  CHECK(made.observe() == FRT_ERR_BAD_STATE);
  REQUIRE(made.reset() == FRT_OK);
  CHECK(made.observe() == FRT_OK);
  made.self().steps = 7;
  CHECK(made.observe() == FRT_ERR_DEVICE);
  CHECK(made.words() == "the lens is dirty");
  CHECK(made.step(0, 0) == FRT_ERR_BAD_STATE);
  REQUIRE(made.reset() == FRT_OK);
  CHECK(made.reset(13) == FRT_ERR_DEVICE);
  CHECK(made.observe() == FRT_ERR_BAD_STATE);
}

TEST_CASE("a task that there is not, a struct of no version and a NULL are refused in words") {
  Made<Able> made;
  CHECK(made.reset(1, 2) == FRT_ERR_OUT_OF_RANGE);
  CHECK(made.words() == "reset: there is no task 2; the environment has 2");
  CHECK(made.table.set_task(made.handle, 0, &made.error) == FRT_ERR_BAD_STATE);
  REQUIRE(made.reset(1, 1) == FRT_OK);
  CHECK(made.table.set_task(made.handle, 1, &made.error) == FRT_OK);
  CHECK(made.self().task == 1);
  CHECK(made.table.set_task(made.handle, 2, &made.error) == FRT_ERR_OUT_OF_RANGE);
  CHECK(made.table.reset(made.handle, nullptr, &made.error) == FRT_ERR_ABI);
  CHECK(made.table.reset(nullptr, nullptr, &made.error) == FRT_ERR_INVALID_ARGUMENT);
  CHECK(made.words() == "reset: environment is NULL");
  REQUIRE(made.reset() == FRT_OK);
  const double action[] = {0, 0};
  CHECK(made.table.step(made.handle, action, nullptr, &made.error) == FRT_ERR_INVALID_ARGUMENT);
  frt_observation small{};
  small.struct_size = 3;
  CHECK(made.table.observe(made.handle, &small, &made.error) == FRT_ERR_ABI);
  double expert[2] = {};
  CHECK(made.table.expert_action(made.handle, expert, &made.error) == FRT_OK);
  CHECK(expert[1] == 0.5);
  CHECK(made.table.expert_action(made.handle, nullptr, &made.error) == FRT_ERR_INVALID_ARGUMENT);
}

TEST_CASE("a drawing goes to the sink, and the sink's code comes back") {
  Made<Able> made;
  std::string text;
  const frt_sink take = [](void* user, const void* data, uint64_t bytes) -> frt_status {
    static_cast<std::string*>(user)->append(static_cast<const char*>(data), bytes);
    return bytes > 4 ? FRT_ERR_CANCELLED : FRT_OK;
  };
  const auto draw = [&](uint32_t frames) {
    return made.table.draw(made.handle, frames, take, &text, &made.error);
  };
  CHECK(draw(3) == FRT_ERR_BAD_STATE);
  REQUIRE(made.reset() == FRT_OK);
  CHECK(draw(3) == FRT_OK);
  CHECK(text == "   ");
  CHECK(draw(0) == FRT_ERR_INVALID_ARGUMENT);
  CHECK(draw(9) == FRT_ERR_CANCELLED);
}

TEST_CASE("a creation that fails gives the words of the class and makes nothing") {
  Plugin<Bare> plugin;
  const frt_config config = {sizeof(frt_config), 0, nullptr};
  frt_environment_params params{};
  params.struct_size = sizeof(params);
  params.name = "none";
  params.config = &config;
  frt_environment made = nullptr;
  frt_error error{};
  constexpr frt_environment_v1 table = frt::environment_table<Plugin<Bare>, Bare>();
  CHECK(table.create(frt::handle<frt_plugin>(&plugin), &params, &made, &error) ==
        FRT_ERR_NOT_FOUND);
  CHECK(std::string(error.message) == "no such arm");
  CHECK(made == nullptr);
  params.config = nullptr;
  CHECK(table.create(frt::handle<frt_plugin>(&plugin), &params, &made, &error) == FRT_ERR_ABI);
}
