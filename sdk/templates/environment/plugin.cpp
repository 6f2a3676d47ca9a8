// SPDX-License-Identifier: Apache-2.0
// The plugin of acme.catch: the world (world.hpp) as frt.environment/1.
#include "world.hpp"

#include <frt/environment.hpp>

#include <algorithm>
#include <array>
#include <cstdio>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace acme {
namespace {

constexpr frt_config_option kOptions[] = {
    {"drift", FRT_CONFIG_FLOAT, 0, "0.003", nullptr, 0, 0.05,
     "how far a disc goes in one step, in sides of the square"},
};
constexpr frt_config_schema_v1 kSchema = frt::config_schema(frt::kNoOptions, kOptions);

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.3f", value);
  return text;
}

std::string circle(Point center, double radius, const std::string& attributes) {
  return "<circle cx=\"" + number(center.x) + "\" cy=\"" + number(center.y) + "\" r=\"" +
         number(radius) + "\" " + attributes;
}

// Moves cx and cy along `path`, one place a frame, and waits at its end.
std::string moving(const std::vector<Point>& path, uint32_t frames) {
  const std::string head = "<animate dur=\"" + number(FRT_DRAWING_FRAME_S * frames) +
                           "s\" repeatCount=\"indefinite\" attributeName=\"";
  std::string xs, ys;
  for (std::size_t frame = 0; frame < frames; ++frame) {
    const Point& place = path[std::min(frame, path.size() - 1)];
    xs += (frame ? ";" : "") + number(place.x);
    ys += (frame ? ";" : "") + number(place.y);
  }
  return head + "cx\" values=\"" + xs + "\"/>" + head + "cy\" values=\"" + ys + "\"/></circle>\n";
}

class Catch {
 public:
  explicit Catch(const frt_environment_params& params)
      : world_(frt::ConfigView(params.config).get_float("drift")) {
    ports_ = {frt::make_environment_port("observation/image", "RGB", FRT_ENVIRONMENT_IMAGE,
                                         FRT_DTYPE_U8, {World::kSide, World::kSide, 3}),
              frt::make_environment_port("observation/state", "the point, in sides of the square",
                                         FRT_ENVIRONMENT_STATE, FRT_DTYPE_F32, {2})};
    action_ = frt::make_environment_port("action", "a step in x and y, in sides of the square",
                                         FRT_ENVIRONMENT_ARRAY, FRT_DTYPE_F64, {2});
    for (uint32_t i = 0; i < World::kDiscs; ++i) {
      instructions_[i] = std::string("catch the ") + World::kNames[i] + " disc";
      tasks_[i] = {World::kNames[i], instructions_[i].c_str()};
    }
    info_.struct_size = sizeof(info_);
    info_.flags = FRT_ENVIRONMENT_DETERMINISTIC;
    info_.max_steps = World::kMaxSteps;
    info_.doc = "a point that catches the drifting disc that the instruction names";
    info_.port_count = static_cast<uint32_t>(ports_.size());
    info_.ports = ports_.data();
    info_.action = &action_;
    info_.action_low = kLow;
    info_.action_high = kHigh;
    info_.task_count = World::kDiscs;
    info_.tasks = tasks_.data();
    arrays_ = {frt::array_of(ports_[0], world_.image().data()),
               frt::array_of(ports_[1], world_.state().data())};
    observation_.struct_size = sizeof(observation_);
    observation_.array_count = static_cast<uint32_t>(arrays_.size());
    observation_.arrays = arrays_.data();
  }
  // What the info and the observation point to stays where it is.
  Catch(const Catch&) = delete;
  Catch& operator=(const Catch&) = delete;

  const frt_environment_info& info() const { return info_; }

  void reset(const frt_environment_start& start) {
    world_.reset(start.seed, start.task == FRT_TASK_ANY ? std::nullopt : std::optional(start.task));
  }
  const frt_observation& observe() {
    world_.look();
    observation_.prompt = instructions_[world_.goal()].c_str();
    return observation_;
  }
  // The action is within its limits already. Rewarded for what the point came nearer.
  frt_environment_result step(std::span<const double> action) {
    const double before = world_.distance();
    world_.step(action[0], action[1]);
    frt_environment_result result{};
    result.reward = before - world_.distance();
    if (world_.caught()) result.flags |= FRT_EPISODE_SUCCEEDED;
    if (world_.steps() >= World::kMaxSteps) result.flags |= FRT_EPISODE_OVER;
    return result;
  }

  // What follows is optional: leave out what your environment cannot do.
  void set_task(uint32_t task) { world_.set_goal(task); }
  void expert_action(std::span<double> action) const {
    const Point goal = world_.discs()[world_.goal()], point = world_.point();
    action[0] = std::clamp(0.5 * (goal.x - point.x), -World::kMaxStep, World::kMaxStep);
    action[1] = std::clamp(0.5 * (goal.y - point.y), -World::kMaxStep, World::kMaxStep);
  }
  std::string draw(uint32_t frames) const {
    const uint8_t* color = World::kColors[world_.goal()];
    const std::string fill = "fill=\"rgb(" + std::to_string(color[0]) + "," +
                             std::to_string(color[1]) + "," + std::to_string(color[2]) + ")\">";
    return circle(world_.goal_path().back(), World::kDiscRadius, fill) +
           moving(world_.goal_path(), frames) +
           circle(world_.path().back(), World::kPointRadius, "fill=\"#f0f0f0\">") +
           moving(world_.path(), frames);
  }

 private:
  static constexpr double kLow[] = {-World::kMaxStep, -World::kMaxStep};
  static constexpr double kHigh[] = {World::kMaxStep, World::kMaxStep};

  World world_;
  std::vector<frt_environment_port> ports_;
  frt_environment_port action_{};
  std::array<std::string, World::kDiscs> instructions_;
  std::array<frt_environment_task, World::kDiscs> tasks_{};
  frt_environment_info info_{};
  std::vector<frt_array> arrays_;
  frt_observation observation_{};
};

class Plugin {
 public:
  Plugin(const frt::Host&, const frt::ConfigView&) {}
  static std::unique_ptr<Catch> create(const frt_environment_params& params) {
    return std::make_unique<Catch>(params);
  }
  static const void* extension(std::string_view id) noexcept {
    return id == FRT_EXT_ENVIRONMENT ? &kEnvironment : nullptr;
  }
  static const void* static_extension(std::string_view id) noexcept {
    return id == FRT_EXT_CONFIG_SCHEMA ? &kSchema : nullptr;
  }

 private:
  static constexpr frt_environment_v1 kEnvironment = frt::environment_table<Plugin, Catch>();
};

}  // namespace
}  // namespace acme

FRT_PLUGIN(acme::Plugin, environment, "acme.catch", "0.1.0",
           "summary = \"a point that catches a drifting disc\"\n");
