// SPDX-License-Identifier: Apache-2.0
// Every golden tensor of every Pi0.5 fixture through the real plugins: f32 within the
// absolute gates, bf16 within the gates of the goldens' documentation; both file formats; whole
// policies from a raw observation to robot actions.
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "model_rig.hpp"

using frt::test::kFixtures;
using frt::test::ModelRig;
using frt::test::on_cpu;
using frt::test::run_selftest;
using frt::test::SelftestOutcome;

namespace {

const std::filesystem::path kPolicies = kFixtures / "pi05";

// Runs the goldens `path` through the checkpoint; returns how many comparisons passed. None may be
// skipped: a fixture holds nothing that a model could not be compared with.
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
  for (const std::string& skipped : outcome.skipped) FAIL_CHECK(skipped);
  CHECK(outcome.passed > 3);
  return outcome.passed;
}

struct TemporaryFile {
  std::filesystem::path path;
  explicit TemporaryFile(const std::string& content) {
    std::string pattern =
        (std::filesystem::temp_directory_path() / "frt-goldens-XXXXXX.safetensors").string();
    const int descriptor = mkstemps(pattern.data(), 12);
    REQUIRE(descriptor >= 0);
    ::close(descriptor);
    path = pattern;
    std::ofstream(path, std::ios::binary) << content;
  }
  ~TemporaryFile() { std::filesystem::remove(path); }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
};

std::string content_of(const std::filesystem::path& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

// A safetensors file with parts of tensor names replaced by others of the same length.
std::string renamed(const std::filesystem::path& file,
                    const std::vector<std::pair<std::string, std::string>>& changes) {
  std::string content = content_of(file);
  for (const auto& [from, to] : changes) {
    REQUIRE(from.size() == to.size());
    std::size_t found = content.find(from);
    REQUIRE(found != std::string::npos);
    for (; found != std::string::npos; found = content.find(from, found)) {
      content.replace(found, from.size(), to);
    }
  }
  return content;
}

// The same with the first value of one f32 tensor changed by 1.
std::string spoiled(const std::filesystem::path& file, const std::string& tensor) {
  std::string content = content_of(file);
  std::uint64_t header = 0;
  std::memcpy(&header, content.data(), sizeof(header));
  const auto entry = nlohmann::json::parse(content.substr(8, header)).at(tensor);
  REQUIRE(entry.at("dtype") == "F32");
  char* at = content.data() + 8 + header + entry.at("data_offsets").at(0).get<std::size_t>();
  float value = 0;
  std::memcpy(&value, at, sizeof(value));
  value += 1;
  std::memcpy(at, &value, sizeof(value));
  return content;
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

TEST_CASE("a golden prompt longer than every bucket leaves the recorded graphs out, and says so") {
  const ModelRig rig((kPolicies / "tiny" / "openpi").string(),
                     std::string(kF32) + "\nprompt_buckets = \"4\"", "", 0, "", "frt.pi05");
  const SelftestOutcome outcome = run_selftest(rig, kPolicies / "tiny" / "golden.safetensors");
  CHECK(outcome.failures.empty());
  REQUIRE(outcome.skipped.size() == 1);
  CHECK(outcome.skipped[0].starts_with("recorded graphs is skipped: the golden prompt has"));
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

TEST_CASE("reference numerics reproduce every golden tensor" * doctest::skip(!on_cpu())) {
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

TEST_CASE("goldens with other runs, step counts, strengths and horizons are taken as they are") {
  for (const char* options : {kF32, kBf16}) {
    const auto passed = check_goldens("frt.pi05", "tiny/openpi", "other/five_steps.safetensors",
                                      std::string(options) + "\nhorizon = 6\nsteps = \"5\"");
    CHECK(passed > 60);
  }
  check_goldens("frt.recap_cfg", "tiny/lerobot", "other/five_steps.safetensors",
                std::string(kF32) + "\nhorizon = 6");
}

TEST_CASE("a file of goldens may call its inputs in_ and have no masks") {
  const TemporaryFile file(renamed(kPolicies / "other" / "five_steps.safetensors",
                                   {{"\"in.", "\"in_"}, {"\"v011.mask", "\"v011.MASK"}}));
  const ModelRig rig((kPolicies / "tiny" / "openpi").string(), std::string(kF32) + "\nhorizon = 6",
                     "", 0, "", "frt.pi05");
  const SelftestOutcome outcome = run_selftest(rig, file.path);
  CHECK(outcome.failures == std::vector<std::string>{});
  CHECK(outcome.skipped.size() == 1);  // v011.MASK
  CHECK(outcome.passed > 60);
}

TEST_CASE("a golden that differs fails, whatever its run is called") {
  for (const char* tensor : {"v011.v4", "cfg1.7.x3", "steps7.actions", "h13.actions",
                             "rtc.ramp.actions", "samples.actions", "all.actions"}) {
    CAPTURE(tensor);
    const TemporaryFile file(spoiled(kPolicies / "other" / "five_steps.safetensors", tensor));
    const ModelRig rig((kPolicies / "tiny" / "openpi").string(),
                       std::string(kF32) + "\nhorizon = 6", "", 0, "", "frt.pi05");
    const SelftestOutcome outcome = run_selftest(rig, file.path);
    REQUIRE(!outcome.failures.empty());
    CHECK(outcome.failures.front().starts_with(tensor));
  }
}

TEST_CASE("goldens of another checkpoint are refused or fail, never pass") {
  const ModelRig rig((kPolicies / "tiny" / "openpi").string(), kF32, "", 0, "", "frt.pi05");
  CHECK_THROWS_AS(run_selftest(rig, kPolicies / "mid" / "golden.safetensors"), frt::Error);
}
