// SPDX-License-Identifier: Apache-2.0
// The environment of a plugin as rollouts drive it, with the plugin frt.reach; and the names,
// limits and pictures around it.
#include <doctest/doctest.h>

#include <cmath>
#include <frt/error.hpp>
#include <limits>
#include <string>
#include <vector>

#include "examples/reach/drawing.hpp"
#include "examples/reach/world.hpp"
#include "reach_plugin.hpp"
#include "robot/record/episode_svg.hpp"
#include "runtime/environment_choice.hpp"

using namespace frt::host;
using reach_test::World;

namespace {

// What `body` throws.
template <class Body>
std::string refusal(const Body& body) {
  try {
    body();
  } catch (const frt::Error& error) {
    return error.what();
  }
  return "nothing was refused";
}

bool has(const std::string& text, const std::string& part) {
  CAPTURE(text);
  return text.find(part) != std::string::npos;
}

std::vector<uint8_t> image_of(World& world) {
  world.observe();
  return {world.images().begin(), world.images().end()};
}

}  // namespace

TEST_CASE("the reaching task is its world: same image, same motion, same end") {
  World world;
  reach::World twin;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    world.reset(seed);
    twin.reset(seed);
    CHECK(world.instruction() == reach::World::instruction_of(twin.goal()));
    std::vector<double> action(2);
    while (!world.over() && !world.succeeded()) {
      twin.look();
      CHECK(image_of(world) == twin.image());
      CHECK(world.state()[0] == twin.state()[0]);
      REQUIRE(world.operator_action(action));
      const double before = twin.distance();
      world.apply(action);
      twin.apply(action);
      CHECK(world.reward() == before - twin.distance());
      CHECK(world.succeeded() == twin.succeeded());
      CHECK(world.over() == twin.over());
    }
    CHECK(world.succeeded());
  }
}

TEST_CASE("a policy gets arrays under the names it reads, and an instruction with a tag") {
  EnvironmentRequest request;
  request.names = {
      {"pose", false, true, {}}, {"cam/left", true, true, {}}, {"other", false, true, {}}};
  request.suffix = " now";
  World world(request);
  world.reset(1);
  const frt_observation& seen = world.observe();
  REQUIRE(seen.array_count == 2);
  CHECK(std::string(seen.arrays[0].name) == "cam/left");
  CHECK(std::string(seen.arrays[1].name) == "pose");
  const std::vector<EnvironmentSubgoal> subgoals = world.subgoals();
  REQUIRE(subgoals.size() == 3);
  CHECK(subgoals[1].name == "green");
  CHECK(subgoals[1].instruction == "reach the green disc");
  world.choose(1);
  CHECK(world.instruction() == "reach the green disc now");
  CHECK(std::string(world.observe().prompt) == "reach the green disc now");
  world.reset(1, 2);
  CHECK(world.instruction() == "reach the blue disc now");
  CHECK(has(refusal([&] { world.reset(1, 3); }),
            "environment 'reach' (plugin frt.reach): reset: there is no task 3"));
}

TEST_CASE("a name that environment and policy share goes before the order of the others") {
  frt_environment_port ports[4]{};
  const char* names[] = {"left", "right", "joints", "depth"};
  const uint32_t kinds[] = {FRT_ENVIRONMENT_IMAGE, FRT_ENVIRONMENT_IMAGE, FRT_ENVIRONMENT_STATE,
                            FRT_ENVIRONMENT_ARRAY};
  for (int i = 0; i < 4; ++i) {
    ports[i].name = names[i];
    ports[i].kind = kinds[i];
  }
  frt_environment_info info{};
  info.port_count = 4;
  info.ports = ports;
  using Names = std::vector<std::string>;
  CHECK(names_for_policy(info, {}) == Names{"left", "right", "joints", "depth"});
  CHECK(names_for_policy(info, {{"a", true, true, {}}, {"left", true, true, {}}}) ==
        Names{"left", "a", "joints", "depth"});
  CHECK(names_for_policy(info, {{"s", false, true, {}}, {"a", true, true, {}}}) ==
        Names{"a", "right", "s", "depth"});
}

TEST_CASE("a wrong action is refused, moves nothing, and the episode goes on") {
  World world;
  world.reset(3);
  const std::vector<uint8_t> before = image_of(world);
  for (const double wrong : {std::nan(""), std::numeric_limits<double>::infinity()}) {
    CHECK(has(refusal([&] {
                world.apply(std::vector<double>{0, wrong});
              }),
              "step: value 1 of the action is"));
    CHECK(image_of(world) == before);
  }
  world.apply(std::vector<double>{100, 0});
  CHECK(image_of(world) != before);
}

TEST_CASE("before a reset nothing can be seen or done") {
  World world;
  CHECK(has(refusal([&] { world.observe(); }), "observe: no episode runs"));
  CHECK(has(refusal([&] { world.apply(std::vector<double>{0, 0}); }), "step: no episode runs"));
}

TEST_CASE("a plugin of another kind is no environment") {
  CHECK(has(refusal([] {
              const reach_test::OpenedPlugin other(FRT_PLUGIN_DIR "/frt_value_critic.so");
              PluginEnvironment(*other, "arm", frt::core::Config());
            }),
            "plugin frt.value_critic offers no frt.environment/1"));
}

TEST_CASE("a picture has the first episodes as they were, whatever came after them") {
  World world;
  const std::unique_ptr<EpisodePicture> picture = world.picture();
  REQUIRE(picture);
  std::vector<std::string> instructions;
  std::vector<double> action(2);
  for (uint64_t seed = 0; seed < 14; ++seed) {
    world.reset(seed);
    instructions.push_back(world.instruction());
    while (!world.over() && !world.succeeded()) {
      world.operator_action(action);
      world.apply(action);
    }
    picture->add_episode();
  }
  const std::string svg = picture->svg("fourteen", "of them", std::vector<double>{2, 2, 3, 9});
  std::size_t polylines = 0;
  for (std::size_t at = 0; (at = svg.find("<polyline", at)) != std::string::npos; ++at) ++polylines;
  CHECK(polylines == 12);
  CHECK(svg.find("missed") == std::string::npos);  // the operator reaches every disc
  for (std::size_t i = 0; i < 12; ++i) CHECK(has(svg, ">" + instructions[i] + "</text>"));
  CHECK(has(svg, " ticks</text>"));
  CHECK(has(svg, "9.00 ms (p99), longest 9.00 ms"));  // as the console says
  CHECK(svg.ends_with("</svg>\n"));
}

TEST_CASE("drawings of all lengths move together, and an instruction is no markup") {
  reach::World world;
  world.reset(5);
  const reach::Point start = world.point();
  world.apply(std::vector<double>{0.01, 0});
  const std::string drawing = reach::draw(world, 4);
  char first[16];
  std::snprintf(first, sizeof(first), "%.3f;", start.x);
  CHECK(has(drawing, std::string("values=\"") + first));
  CHECK(has(drawing, "dur=\"0.48s\""));
  CHECK(drawing_frames(1) > 2);
  const std::string svg =
      episodes_svg({{drawing, "less < more & \"more\"", true, 1}}, "t", "l", {});
  CHECK(has(svg, "less &lt; more &amp;"));
  CHECK(has(svg, ">1 ticks</text>"));
}

TEST_CASE("an environment with a pace of its own sets hz, and one that contradicts it is refused") {
  class Slow final : public Environment {
   public:
    void reset(uint64_t) override {}
    const frt_observation& observe() override { return observation_; }
    std::span<const uint8_t> images() const override { return {}; }
    std::span<const float> state() const override { return {}; }
    uint32_t action_dim() const override { return 3; }
    double period_s() const override { return 0.05; }
    void apply(std::span<const double>) override {}
    bool operator_action(std::span<double>) override { return false; }
    bool succeeded() const override { return false; }
    bool over() const override { return false; }
    const std::string& instruction() const override { return instruction_; }

   private:
    frt_observation observation_{};
    std::string instruction_;
  };
  Slow slow;
  RobotSettings settings;
  CHECK(ticks_of(settings, slow, "arm").hz == doctest::Approx(20));
  settings.hz_given = true;
  CHECK(has(refusal([&] { ticks_of(settings, slow, "arm"); }),
            "a step of the environment 'arm' takes 0.05 s, and [host.robot] says hz = 50; leave hz "
            "out, or set it to 20"));
  settings.ticks.hz = 20;
  CHECK(ticks_of(settings, slow, "arm").hz == 20);
  CHECK(ticks_of(settings, World(), "reach").hz == 20);
  CHECK(has(refusal([&] { require_action_width(slow, 2, "p"); }),
            "the environment takes actions of 3 values, model 'p' gives 2"));
  CHECK_NOTHROW(require_action_width(slow, 3, "p"));
}

TEST_CASE("an environment is chosen by its name, and the only one needs none") {
  EnvironmentRegistry own;
  frt::core::Manifest manifest;
  manifest.path = "/etc/m.toml";
  RobotSettings settings;
  const auto chosen = [&](const std::string& given) {
    return refusal(
        [&] { throw frt::Error(FRT_OK, chosen_environment(own, manifest, settings, given)); });
  };
  CHECK(has(chosen(""), "/etc/m.toml has no environment; add a table [environment.NAME]"));
  CHECK(has(chosen("leg"), "add a table [environment.leg]"));
  manifest.environments.emplace_back().name = "reach";
  CHECK(chosen("") == "reach");
  own.add({.name = "arm_4", .doc = "an arm", .make = [](const EnvironmentRequest& request) {
             return std::make_unique<World>(request);
           }});
  CHECK(chosen("arm_4") == "arm_4");
  CHECK(has(chosen(""),
            "has several environments; choose one with --environment; there are: "
            "arm_4, reach"));
  settings.environment = "reach";
  CHECK(chosen("") == "reach");
  CHECK(has(chosen("raech"),
            "no environment is called 'raech' (did you mean `reach`?); there are: "
            "arm_4, reach"));
}

TEST_CASE("a program registers environments of its own by name") {
  EnvironmentRegistry own;
  const auto make = [](const EnvironmentRequest& request) {
    return std::make_unique<World>(request);
  };
  own.add({.name = "arm_4", .doc = "an arm", .make = make});
  REQUIRE(own.find("arm_4"));
  CHECK(own.find("leg") == nullptr);
  CHECK(own.names() == std::vector<std::string>{"arm_4"});
  CHECK_THROWS_AS(own.add({.name = "arm_4", .doc = "", .make = make}), frt::Error);
  for (const char* name : {"", "Arm", "an arm", "arm\n"}) {
    CHECK_THROWS_AS(own.add({.name = name, .doc = "", .make = make}), frt::Error);
  }
  CHECK_THROWS_AS(own.add({.name = "nothing", .doc = ""}), frt::Error);
}
