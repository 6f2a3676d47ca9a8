// SPDX-License-Identifier: Apache-2.0
// Every golden tensor of every Pi0.5 fixture through the real plugins on the CPU: f32 within the
// absolute gates, bf16 within the gates of the goldens' documentation; both file formats; whole
// policies from a raw observation to robot actions.
#include <string>

#include "model_rig.hpp"

using frt::test::kFixtures;
using frt::test::ModelRig;
using frt::test::run_selftest;
using frt::test::SelftestOutcome;

namespace {

const std::filesystem::path kPolicies = kFixtures / "pi05";

// Runs the goldens `path` through the checkpoint; returns how many comparisons passed.
std::size_t check_goldens(const std::string& plugin, const std::string& checkpoint,
                          const std::string& path, const std::string& options,
                          const std::string& device_options = "") {
  CAPTURE(plugin);
  CAPTURE(checkpoint);
  CAPTURE(path);
  CAPTURE(options);
  SelftestOutcome outcome;
  try {
    const ModelRig rig((kPolicies / checkpoint).string(),
                       options + "\nprompt_buckets = \"32,128\"\ntokenizer = \"" +
                           (kPolicies / "tokenizer" / "tokenizer.model").string() + "\"",
                       device_options, 0, "", plugin);
    outcome = run_selftest(rig, kPolicies / path);
  } catch (const frt::Error& error) {
    outcome.failures.push_back(error.what());
  }
  for (const std::string& failure : outcome.failures) FAIL_CHECK(failure);
  CHECK(outcome.passed > 3);
  return outcome.passed;
}

constexpr const char* kF32 = "activations = \"f32\"";
constexpr const char* kBf16 = "activations = \"bf16\"";

}  // namespace

TEST_CASE("f32 activations reproduce every golden tensor, from both file formats") {
  for (const std::string set : {"tiny", "mid"}) {
    for (const std::string layout : {"openpi", "lerobot"}) {
      MESSAGE(set, "/", layout, ": ",
              check_goldens("frt.pi05", set + "/" + layout, set + "/golden.safetensors", kF32),
              " comparisons");
    }
  }
}

TEST_CASE("bf16 activations stay within the documented distance of the goldens") {
  for (const std::string set : {"tiny", "mid"}) {
    for (const std::string layout : {"openpi", "lerobot"}) {
      check_goldens("frt.pi05", set + "/" + layout, set + "/golden.safetensors", kBf16);
    }
  }
}

TEST_CASE("a residual stream in f32 beside bf16 activations stays within it, too") {
  check_goldens("frt.pi05", "tiny/openpi", "tiny/golden.safetensors",
                std::string(kBf16) + "\nresidual = \"f32\"");
}

TEST_CASE("reference numerics reproduce every golden tensor") {
  check_goldens("frt.pi05", "tiny/openpi", "tiny/golden.safetensors", kF32,
                "numerics = \"reference\"");
}

TEST_CASE("the guided plugin reproduces the goldens, fused and serial") {
  for (const char* form : {"fused", "serial"}) {
    check_goldens("frt.recap_cfg", "tiny/openpi", "tiny/golden.safetensors",
                  std::string(kF32) + "\nguidance = \"" + form + "\"");
  }
  check_goldens("frt.recap_cfg", "tiny/lerobot", "tiny/golden.safetensors", kBf16);
}

TEST_CASE("raw observations give the robot actions of the goldens, and prompts their ids") {
  check_goldens("frt.pi05", "tiny/openpi", "policy", kF32);
  check_goldens("frt.pi05", "tiny/openpi", "policy", kBf16);
  check_goldens("frt.pi05", "tiny/openpi", "tokenizer", kF32);
}

TEST_CASE("goldens of another checkpoint are refused or fail, never pass") {
  const ModelRig rig((kPolicies / "tiny" / "openpi").string(), kF32, "", 0, "", "frt.pi05");
  CHECK_THROWS_AS(run_selftest(rig, kPolicies / "mid" / "golden.safetensors"), frt::Error);
}
