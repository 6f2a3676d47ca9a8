// SPDX-License-Identifier: Apache-2.0
// frt.reach: the reaching task (world.hpp) as an environment plugin.
#include <frt/environment.hpp>

#include <array>
#include <cmath>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "examples/reach/drawing.hpp"
#include "examples/reach/world.hpp"

namespace reach {
namespace {

class Environment {
 public:
  Environment()
      : ports_{frt::make_environment_port(
                   "observation/image", "RGB: the point is white, the discs are coloured",
                   FRT_ENVIRONMENT_IMAGE, FRT_DTYPE_U8, {World::kImage, World::kImage, 3}),
               frt::make_environment_port("observation/state",
                                          "x and y of the point, in sides of the square",
                                          FRT_ENVIRONMENT_STATE, FRT_DTYPE_F32, {2})},
        action_(frt::make_environment_port(
            "action", "a step in x and y, in sides of the square, at most 0.06 long",
            FRT_ENVIRONMENT_ARRAY, FRT_DTYPE_F64, {2})) {
    for (uint32_t disc = 0; disc < World::kDiscs; ++disc) {
      instructions_[disc] = World::instruction_of(disc);
      tasks_[disc] = {World::name_of(disc), instructions_[disc].c_str()};
    }
    info_.struct_size = sizeof(info_);
    info_.flags = FRT_ENVIRONMENT_DETERMINISTIC;
    info_.max_steps = World::kMaxTicks;
    info_.port_count = ports_.size();
    info_.task_count = tasks_.size();
    info_.doc = "a point that goes to the disc that the instruction names";
    info_.ports = ports_.data();
    info_.action = &action_;
    info_.tasks = tasks_.data();
    arrays_ = {frt::array_of(ports_[0], world_.image().data()),
               frt::array_of(ports_[1], world_.state().data())};
    observation_.struct_size = sizeof(observation_);
    observation_.array_count = arrays_.size();
    observation_.arrays = arrays_.data();
  }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

  const frt_environment_info& info() const noexcept { return info_; }
  void reset(const frt_environment_start& start) {
    world_.reset(start.seed, start.task == FRT_TASK_ANY ? std::nullopt : std::optional(start.task));
  }
  const frt_observation& observe() {
    world_.look();
    observation_.prompt = instructions_[world_.goal()].c_str();
    return observation_;
  }
  // Rewarded for each side of the square that the point came nearer.
  frt_environment_result step(std::span<const double> action) {
    const double before = world_.distance();
    world_.apply(action);
    frt_environment_result result{};
    result.reward = before - world_.distance();
    if (world_.succeeded()) result.flags |= FRT_EPISODE_SUCCEEDED;
    if (world_.over()) result.flags |= FRT_EPISODE_OVER;
    return result;
  }
  void set_task(uint32_t disc) { world_.choose(disc); }
  void expert_action(std::span<double> action) const { world_.expert_action(action); }
  std::string draw(uint32_t frames) const { return reach::draw(world_, frames); }

 private:
  World world_;
  std::array<std::string, World::kDiscs> instructions_;
  std::array<frt_environment_task, World::kDiscs> tasks_{};
  std::array<frt_environment_port, 2> ports_;
  frt_environment_port action_;
  frt_environment_info info_{};
  std::array<frt_array, 2> arrays_{};
  frt_observation observation_{};
};

class Plugin {
 public:
  Plugin(const frt::Host&, const frt::ConfigView&) {}
  static std::unique_ptr<Environment> create(const frt_environment_params&) {
    return std::make_unique<Environment>();
  }
  static const void* extension(std::string_view id) noexcept {
    return id == FRT_EXT_ENVIRONMENT ? &kEnvironment : nullptr;
  }
  static const void* static_extension(std::string_view) noexcept { return nullptr; }

 private:
  static constexpr frt_environment_v1 kEnvironment = frt::environment_table<Plugin, Environment>();
};

}  // namespace
}  // namespace reach

FRT_PLUGIN(reach::Plugin, environment, "frt.reach", "0.1.0",
           "summary = \"a point that goes to the disc that the instruction names\"\n");
