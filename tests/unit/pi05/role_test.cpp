// SPDX-License-Identifier: Apache-2.0
// The role of a policy: nothing that changes at run time records anything again.
#include <algorithm>
#include <array>
#include <cmath>
#include <frt/core/exec_table.hpp>
#include <frt/draft/plan.hpp>
#include <map>

#include "policy_driver.hpp"

using namespace frt::test;

namespace {

uint64_t captures(const ModelRig& rig) {
  return rig.context.counters().captures_since_ready;
}

double distance(const std::vector<float>& a, const std::vector<float>& b) {
  REQUIRE(a.size() == b.size());
  double most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double difference = std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
    if (!(difference <= most)) most = difference;  // NaN, too
    if (std::isnan(most)) break;
  }
  return most;
}

}  // namespace

TEST_CASE("prompts, masks, noises, states and strengths change without a capture") {
  const ModelRig rig(policy_checkpoint("tiny/openpi"),
                     "activations = \"f32\"\nprompt_buckets = \"8,32\"" + tokenizer_option(), "", 0,
                     "", "frt.recap_cfg");
  const PolicyDriver driver(rig);
  driver.fill(1);
  driver.set_tokens(1, {2, 50, 60});
  std::vector<std::vector<float>> results;
  for (const uint32_t length : {3u, 8u, 9u, 32u}) {
    std::vector<int32_t> ids(length);
    for (uint32_t i = 0; i < length; ++i) ids[i] = static_cast<int32_t>(20 + 7 * i);
    driver.set_tokens(0, ids);
    results.push_back(driver.infer(PolicyDriver::shape(3, length)));
  }
  driver.set_noise(9);
  results.push_back(driver.infer(PolicyDriver::shape(3, 32)));
  driver.set_mask({1, 0, 1});
  results.push_back(driver.infer(PolicyDriver::shape(2, 32)));
  const std::vector<float> strength = {2.5f};
  frt_error error{};
  REQUIRE(driver.role->set_guidance(rig.model, strength.data(), 1, driver.stream, &error) ==
          FRT_OK);
  results.push_back(driver.infer(PolicyDriver::shape(2, 32)));
  uint32_t tokens = 0;
  REQUIRE(driver.role->set_prompt(rig.model, 0, "pick up the cup", "{\"state\": [0.1, -0.2]}",
                                  driver.stream, &tokens, &error) == FRT_OK);
  results.push_back(driver.infer(PolicyDriver::shape(2, tokens)));
  for (std::size_t i = 1; i < results.size(); ++i)
    CHECK(distance(results[i], results[i - 1]) > 1e-4);
  CHECK(captures(rig) == 0);
}

TEST_CASE("a graph with room for more views gives the same actions") {
  const ModelRig rig(policy_checkpoint("tiny/openpi"), "activations = \"f32\"", "", 0, "",
                     "frt.pi05");
  const PolicyDriver driver(rig);
  driver.fill(2);
  driver.set_tokens(0, {2, 40, 41, 42});
  driver.set_mask({0, 1, 1});
  const std::vector<float> exact = driver.infer(PolicyDriver::shape(2, 4));
  CHECK(distance(driver.infer(PolicyDriver::shape(3, 4)), exact) < 1e-5);
  CHECK(distance(driver.infer(PolicyDriver::shape(3, 200)), exact) < 1e-5);
}

TEST_CASE("keys say what is not there") {
  const ModelRig rig(policy_checkpoint("tiny/openpi"),
                     "activations = \"f32\"\nsteps = \"10,4\"\nprompt_buckets = \"16\"", "", 0, "",
                     "frt.pi05");
  const PolicyDriver driver(rig);
  const auto status = [&](frt_policy_shape shape) {
    frt_shape_key key = 0;
    return driver.role->infer_key(rig.model, &shape, &key);
  };
  frt_policy_shape shape = PolicyDriver::shape(3, 16);
  CHECK(status(shape) == FRT_OK);
  shape.steps = 4;
  CHECK(status(shape) == FRT_OK);
  shape.steps = 5;
  CHECK(status(shape) == FRT_ERR_NO_VARIANT);
  shape.steps = 0;
  shape.branches = 2;
  CHECK(status(shape) == FRT_ERR_NO_VARIANT);
  shape.branches = 1;
  shape.samples = 2;
  CHECK(status(shape) == FRT_ERR_NO_VARIANT);
  shape.samples = 0;
  shape.views = 4;
  CHECK(status(shape) == FRT_ERR_OUT_OF_RANGE);
  shape.views = 1;
  shape.prompt = 17;
  CHECK(status(shape) == FRT_ERR_OUT_OF_RANGE);
  for (const uint32_t size : {0u, 4u, 1u << 20}) {
    shape.struct_size = size;
    CHECK(status(shape) == FRT_ERR_ABI);
  }
}

namespace {

// Graphs in a row, each after the one before, on streams of their own.
class Chain {
 public:
  Chain(const ModelRig& rig, const PolicyDriver& driver)
      : context_(rig.context),
        driver_(driver),
        plan_(frt::core::plan_draft(), rig.context, "chain") {}

  void add(frt_graph graph, PolicyDriver::KeyFunction function, const frt_policy_shape& shape) {
    streams_.push_back(context_.create_stream("part"));
    const uint32_t node = plan_.add(graph, driver_.key(function, shape), streams_.back());
    if (node > 0) plan_.after(node, node - 1);
  }
  void compile() { plan_.compile(); }
  void execute() const { plan_.execute(driver_.stream); }

 private:
  const frt::Context& context_;
  const PolicyDriver& driver_;
  std::vector<frt::Stream> streams_;
  frt::Plan plan_;
};

}  // namespace

TEST_CASE("the parts of an inference as a plan give the whole one") {
  const ModelRig rig(policy_checkpoint("tiny/openpi"), "activations = \"f32\"", "", 0, "",
                     "frt.pi05");
  const PolicyDriver driver(rig);
  driver.fill(3);
  driver.set_tokens(0, {2, 30, 31});
  const frt_policy_shape shape = PolicyDriver::shape(3, 3);
  const std::vector<float> whole = driver.infer(shape);
  Chain two(rig, driver), three(rig, driver);
  two.add(driver.info.observe, driver.role->observe_key, shape);
  two.add(driver.info.act, driver.role->act_key, shape);
  three.add(driver.info.vision, driver.role->vision_key, shape);
  three.add(driver.info.prefix, driver.role->prefix_key, shape);
  three.add(driver.info.act, driver.role->act_key, shape);
  for (Chain* chain : {&two, &three}) {
    chain->compile();
    driver.write(driver.info.actions, std::vector<float>(whole.size(), 7.0f));
    chain->execute();
    CHECK(driver.actions(shape) == whole);
  }
}

TEST_CASE("vision, prefix and actions run at rates of their own") {
  for (const char* guidance : {"fused", "serial"}) {
    const ModelRig rig(policy_checkpoint("tiny/openpi"),
                       std::string("activations = \"f32\"\nguidance = \"") + guidance + "\"", "", 0,
                       "", "frt.recap_cfg");
    const PolicyDriver driver(rig);
    const frt_policy_shape shape = PolicyDriver::shape(2, 4, 2);
    const std::vector<std::vector<int32_t>> prompts = {{2, 30, 31}, {2, 9, 8, 7}};
    const auto say = [&](std::size_t prompt) {
      driver.set_tokens(0, prompts[prompt]);
      driver.set_tokens(1, {2, 40});
    };
    // What is right: whole inferences of two images under two prompts and two noises.
    const auto see = [&](uint64_t image, uint64_t noise) {
      driver.fill(image);
      driver.set_mask({1, 0, 1});
      driver.set_noise(noise);
    };
    std::map<std::array<uint64_t, 3>, std::vector<float>> expected;
    for (const uint64_t image : {1u, 2u}) {
      for (const uint64_t prompt : {0u, 1u}) {
        for (const uint64_t noise : {5u, 6u}) {
          see(image, noise);
          say(prompt);
          expected[{image, prompt, noise}] = driver.infer(shape);
        }
      }
    }
    CHECK(expected.at({1, 0, 5}) != expected.at({2, 0, 5}));
    CHECK(expected.at({1, 0, 5}) != expected.at({1, 1, 5}));
    Chain fast(rig, driver);  // twice for each look
    fast.add(driver.info.prefix, driver.role->prefix_key, shape);
    fast.add(driver.info.act, driver.role->act_key, shape);
    fast.compile();
    for (const uint64_t image : {1u, 2u}) {
      see(image, 5);
      driver.vision(shape);
      for (const uint64_t prompt : {1u, 0u}) {
        say(prompt);
        driver.set_noise(5);
        fast.execute();
        CHECK(driver.actions(shape) == expected.at({image, prompt, 5}));
        driver.set_noise(6);
        CHECK(driver.act(shape) == expected.at({image, prompt, 6}));
      }
    }
    // A look alone changes nothing of the actions, a whole inference nothing of the look.
    see(1, 5);
    driver.vision(shape);
    CHECK(driver.act(shape) == expected.at({2, 0, 5}));
    see(2, 5);
    driver.infer(shape);
    driver.prefix(shape);
    CHECK(driver.act(shape) == expected.at({1, 0, 5}));
    CHECK(rig.context.counters().captures_since_ready == 0);
  }
}

TEST_CASE("several samples of one observation equal single ones") {
  const ModelRig rig(policy_checkpoint("tiny/openpi"), "activations = \"f32\"\nsamples = 3", "", 0,
                     "", "frt.pi05");
  const PolicyDriver driver(rig);
  driver.fill(4);
  driver.set_tokens(0, {2, 30, 31});
  frt_policy_shape shape = PolicyDriver::shape(3, 3);
  shape.samples = 3;
  const std::vector<float> all = driver.infer(shape);
  const uint64_t chunk = uint64_t{driver.info.horizon} * driver.info.action_dim;
  const std::vector<float> noise = driver.read<float>(driver.info.noise, 3 * chunk);
  shape.samples = 1;
  for (uint64_t i = 0; i < 3; ++i) {
    const auto at = static_cast<std::ptrdiff_t>(i * chunk);
    const auto size = static_cast<std::ptrdiff_t>(chunk);
    driver.write(driver.info.noise,
                 std::vector<float>(noise.begin() + at, noise.begin() + at + size));
    const std::vector<float> one = driver.infer(shape);
    CHECK(distance(one, std::vector<float>(all.begin() + at, all.begin() + at + size)) < 1e-5);
  }
}

TEST_CASE("a continuation is set, refused and taken back") {
  const ModelRig rig(policy_checkpoint("tiny/openpi"), "activations = \"f32\"", "", 0, "",
                     "frt.pi05");
  const PolicyDriver driver(rig);
  driver.fill(5);
  driver.set_tokens(0, {2, 30, 31});
  const frt_policy_shape shape = PolicyDriver::shape(3, 3);
  const std::vector<float> free = driver.infer(shape);
  const uint32_t dim = driver.info.action_dim;
  std::vector<float> rest(6 * dim, 0.5f);
  frt_policy_previous previous{};
  previous.struct_size = sizeof(previous);
  previous.mode = FRT_CONTINUE_LOCKED;
  previous.delay = 2;
  previous.rows = 6;
  previous.actions = rest.data();
  const auto set = [&] {
    frt_error error{};
    return driver.role->set_continuation(rig.model, &previous, driver.stream, &error);
  };
  REQUIRE(set() == FRT_OK);
  const std::vector<float> locked = driver.infer(shape);
  for (uint32_t i = 0; i < 2 * dim; ++i) CHECK(locked[i] == 0.5f);
  CHECK(distance(locked, free) > 1e-3);

  previous.mode = FRT_CONTINUE_GUIDED;
  previous.execution_horizon = 6;
  REQUIRE(set() == FRT_OK);
  CHECK(distance(driver.infer(shape), free) > 1e-3);

  previous.mode = FRT_CONTINUE_CLEAN;  // not trained with a delay
  CHECK(set() == FRT_ERR_UNSUPPORTED);
  previous.mode = FRT_CONTINUE_LOCKED;
  previous.delay = 7;
  CHECK(set() == FRT_ERR_OUT_OF_RANGE);
  previous.delay = 1;
  rest[3] = std::nanf("");
  CHECK(set() == FRT_ERR_INVALID_ARGUMENT);
  previous.mode = FRT_CONTINUE_NONE;
  REQUIRE(set() == FRT_OK);
  CHECK(driver.infer(shape) == free);
}
