// SPDX-License-Identifier: Apache-2.0
// Guidance: the numerical contract. Combination and steps against f32 are conformance cases of
// frt.flow_update/1; the chain against the reference, fused against serial, is in the goldens.
#include <algorithm>
#include <cmath>

#include "policy_driver.hpp"

using namespace frt::test;

namespace {

double cosine(const std::vector<float>& a, const std::vector<float>& b) {
  double dot = 0, aa = 0, bb = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double x = a[i], y = b[i];
    dot += x * y;
    aa += x * x;
    bb += y * y;
  }
  return dot / std::sqrt(aa * bb);
}

void set_strength(const ModelRig& rig, const PolicyDriver& driver, std::vector<float> strengths) {
  frt_error error{};
  REQUIRE(driver.role->set_guidance(rig.model, strengths.data(), strengths.size(), driver.stream,
                                    &error) == FRT_OK);
}

struct Guided {
  explicit Guided(const std::string& options)
      : rig(policy_checkpoint("tiny/openpi"), options, "", 0, "", "frt.recap_cfg"), driver(rig) {
    driver.fill(11);
    driver.set_tokens(0, {2, 40, 41, 42, 43});
    driver.set_tokens(1, {2, 40, 41});
  }
  ModelRig rig;
  PolicyDriver driver;
  std::vector<float> infer(uint32_t branches = 0) const {
    return driver.infer(PolicyDriver::shape(3, 5, branches));
  }
};

}  // namespace

TEST_CASE("strength 1 with the second branch left out is the plain policy, bit for bit") {
  for (const char* type : {"f32", "bf16"}) {
    const std::string options = std::string("activations = \"") + type + "\"";
    const Guided guided(options);
    const ModelRig plain(policy_checkpoint("tiny/openpi"), options, "", 0, "", "frt.pi05");
    const PolicyDriver driver(plain);
    driver.fill(11);
    driver.set_tokens(0, {2, 40, 41, 42, 43});
    CHECK(guided.infer(1) == driver.infer(PolicyDriver::shape(3, 5)));
  }
}

TEST_CASE("strength 1 with both branches collapses to the guided one") {
  const Guided guided("activations = \"bf16\"");
  set_strength(guided.rig, guided.driver, {1.0f});
  CHECK(cosine(guided.infer(), guided.infer(1)) >= 0.9999);
}

TEST_CASE("fused and serial guidance agree, also at other strengths") {
  for (const float strength : {1.0f, 1.5f, 2.0f, 2.5f}) {
    const Guided fused("activations = \"bf16\"");
    const Guided serial("activations = \"bf16\"\nguidance = \"serial\"");
    set_strength(fused.rig, fused.driver, {strength});
    set_strength(serial.rig, serial.driver, {strength});
    CHECK(cosine(fused.infer(), serial.infer()) >= 0.9995);
  }
}

TEST_CASE("branches with one prompt make guidance vanish at any strength") {
  const Guided guided("activations = \"f32\"");
  guided.driver.set_tokens(1, {2, 40, 41, 42, 43});
  set_strength(guided.rig, guided.driver, {2.5f});
  const std::vector<float> strong = guided.infer();
  set_strength(guided.rig, guided.driver, {1.0f});
  CHECK(guided.infer() == strong);
  CHECK(cosine(strong, guided.infer(1)) >= 0.999999);
}

TEST_CASE("the strength may differ from step to step, and costs no capture") {
  const Guided guided("activations = \"f32\"");
  std::vector<float> strengths(guided.driver.info.max_steps, 1.0f);
  set_strength(guided.rig, guided.driver, strengths);
  const std::vector<float> flat = guided.infer();
  strengths.back() = 2.0f;
  set_strength(guided.rig, guided.driver, strengths);
  const std::vector<float> late = guided.infer();
  CHECK(late != flat);
  strengths.front() = 2.0f;
  set_strength(guided.rig, guided.driver, strengths);
  CHECK(guided.infer() != late);
  CHECK(guided.rig.context.counters().captures_since_ready == 0);
}

TEST_CASE("strengths below 1 are refused with the reason") {
  const Guided guided("activations = \"f32\"");
  frt_error error{};
  for (const float strength : {0.99f, 0.0f, -1.0f}) {
    CHECK(guided.driver.role->set_guidance(guided.rig.model, &strength, 1, guided.driver.stream,
                                           &error) == FRT_ERR_OUT_OF_RANGE);
    CHECK(std::string(error.message).find("below 1") != std::string::npos);
  }
  const float nan = std::nanf("");
  CHECK(guided.driver.role->set_guidance(guided.rig.model, &nan, 1, guided.driver.stream, &error) ==
        FRT_ERR_INVALID_ARGUMENT);
  const float three[] = {1, 1, 1};
  CHECK(guided.driver.role->set_guidance(guided.rig.model, three, 3, guided.driver.stream,
                                         &error) == FRT_ERR_INVALID_ARGUMENT);
}

TEST_CASE("a policy without guidance says where it is to be had") {
  const ModelRig rig(policy_checkpoint("tiny/openpi"), "", "", 0, "", "frt.pi05");
  const PolicyDriver driver(rig);
  CHECK(driver.info.guidance_branches == 1);
  const float strength = 2;
  frt_error error{};
  CHECK(driver.role->set_guidance(rig.model, &strength, 1, driver.stream, &error) ==
        FRT_ERR_UNSUPPORTED);
  CHECK(std::string(error.message).find("frt.recap_cfg") != std::string::npos);
}

TEST_CASE("three branches: each guided one pulls with its own strength") {
  const std::string tags = "tags = \"Advantage: positive|Speed: fast\"\nactivations = \"f32\"";
  const Guided guided(tags);
  REQUIRE(guided.driver.info.guidance_branches == 3);
  guided.driver.set_tokens(2, {2, 40, 41});
  set_strength(guided.rig, guided.driver, {1.5f, 1.0f});
  const std::vector<float> first = guided.infer();
  set_strength(guided.rig, guided.driver, {1.0f, 1.5f});
  CHECK(guided.infer() != first);
}
