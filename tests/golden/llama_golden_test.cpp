// SPDX-License-Identifier: Apache-2.0
// Every golden tensor of the Llama fixtures through the real plugins: hidden states, logits, greedy
// ids, keys and values; prefill and decode; captured and eager. The goldens are transformers'.
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "model_rig.hpp"

using frt::test::kFixtures;
using frt::test::ModelRig;
using frt::test::run_selftest;
using frt::test::SelftestOutcome;

namespace {

constexpr const char* kRoom = "\nmax_context = 512\nslots = 1";

SelftestOutcome verify(const std::filesystem::path& checkpoint,
                       const std::filesystem::path& goldens, const std::string& options) {
  const ModelRig rig(checkpoint.string(), options + kRoom, "", 0, "", "frt.llama");
  return run_selftest(rig, goldens);
}

void check(const char* fixture, const std::string& options) {
  CAPTURE(fixture);
  CAPTURE(options);
  const std::filesystem::path folder = kFixtures / "llama" / fixture;
  const SelftestOutcome outcome = verify(folder, folder, options);
  CHECK(outcome.failures == std::vector<std::string>{});
  CHECK(outcome.skipped == std::vector<std::string>{});
  CHECK(outcome.passed > 20);
}

// A copy of a checkpoint with another config.json.
class Changed {
 public:
  Changed(const std::string& fixture, const std::string& before, const std::string& after) {
    REQUIRE(mkdtemp(path_.data()));
    const std::filesystem::path from = kFixtures / "llama" / fixture;
    std::filesystem::copy_file(from / "model.safetensors", folder() / "model.safetensors");
    std::ifstream file(from / "config.json");
    std::string text{std::istreambuf_iterator<char>(file), {}};
    const std::size_t at = text.find(before);
    REQUIRE(at != std::string::npos);
    text.replace(at, before.size(), after);
    std::ofstream(folder() / "config.json") << text;
  }
  ~Changed() { std::filesystem::remove_all(path_); }
  Changed(const Changed&) = delete;
  Changed& operator=(const Changed&) = delete;
  std::filesystem::path folder() const { return path_; }

 private:
  std::string path_ = std::filesystem::temp_directory_path() / "frt-llama-XXXXXX";
};

}  // namespace

TEST_CASE("f32 activations reproduce every golden tensor of transformers' Llama") {
  for (const char* fixture : {"gqa_llama3", "tied_linear", "biases"}) {
    check(fixture, "activations = \"f32\"");
  }
}

TEST_CASE("bf16 activations of a Llama stay within the documented distance of the goldens") {
  for (const char* fixture : {"gqa_llama3", "tied_linear", "biases"}) {
    check(fixture, "activations = \"bf16\"");
  }
}

TEST_CASE("a Llama prompt longer than the prefill chunk gives the same tensors") {
  check("gqa_llama3", "activations = \"f32\"\nprefill_chunk = 32\npage_rows = 64");
  check("biases", "activations = \"f32\"\nprefill_chunk = 32\npage_rows = 0");
}

TEST_CASE("the goldens notice a Llama with the wrong rope scaling, epsilon or rope base") {
  struct Change {
    const char *fixture, *before, *after;
  };
  for (const Change& change :
       std::vector<Change>{{"gqa_llama3", "\"factor\": 8.0", "\"factor\": 16.0"},
                           {"gqa_llama3", "\"low_freq_factor\": 1.0", "\"low_freq_factor\": 2.0"},
                           {"gqa_llama3", "\"rope_theta\": 500000.0", "\"rope_theta\": 400000.0"},
                           {"tied_linear", "\"factor\": 4.0", "\"factor\": 3.0"},
                           {"tied_linear", "\"rms_norm_eps\": 1e-05", "\"rms_norm_eps\": 1e-02"},
                           {"biases", "\"mlp_bias\": true", "\"mlp_bias\": false"},
                           {"biases", "\"attention_bias\": true", "\"attention_bias\": false"}}) {
    CAPTURE(change.after);
    const Changed changed(change.fixture, change.before, change.after);
    const SelftestOutcome outcome =
        verify(changed.folder(), kFixtures / "llama" / change.fixture / "goldens.safetensors",
               "activations = \"f32\"");
    const auto fails = [&](const char* tensor) {
      return std::any_of(outcome.failures.begin(), outcome.failures.end(),
                         [&](const std::string& row) { return row.starts_with(tensor); });
    };
    CHECK(fails("t70.logits"));
    CHECK(fails("t70.hidden"));
  }
}
