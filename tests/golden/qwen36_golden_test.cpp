// SPDX-License-Identifier: Apache-2.0
// Every golden tensor of every fixture through the real plugins on the CPU: f32 within the
// absolute gates, bf16 within the gates of the goldens' documentation.
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "model_rig.hpp"

using frt::test::kFixtures;
using frt::test::ModelRig;
using frt::test::on_cpu;
using frt::test::run_selftest;
using frt::test::SelftestOutcome;

namespace {

// Folders below `root` that hold goldens.
std::vector<std::filesystem::path> golden_folders(const std::filesystem::path& root) {
  std::vector<std::filesystem::path> folders;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root)) {
    if (entry.path().filename() == "goldens.safetensors") {
      folders.push_back(entry.path().parent_path());
    }
  }
  std::sort(folders.begin(), folders.end());
  REQUIRE(!folders.empty());
  return folders;
}

std::size_t check_folder(const std::filesystem::path& folder, const std::string& options,
                         const std::string& device_options) {
  CAPTURE(folder.string());
  CAPTURE(options);
  CAPTURE(device_options);
  SelftestOutcome outcome;
  try {
    const ModelRig rig(folder.string(), options + "\nmax_context = 512\nslots = 1", device_options);
    outcome = run_selftest(rig, folder);
  } catch (const frt::Error& error) {
    outcome.failures.push_back(error.what());
  }
  for (const std::string& failure : outcome.failures) FAIL_CHECK(failure);
  for (const std::string& skipped : outcome.skipped) FAIL_CHECK(skipped);
  CHECK(outcome.passed > 3);
  return outcome.passed;
}

constexpr const char* kF32 = "activations = \"f32\"";
constexpr const char* kBf16 = "activations = \"bf16\"";

}  // namespace

TEST_CASE("f32 activations reproduce every golden tensor") {
  for (const auto& folder : golden_folders(kFixtures / "qwen36")) {
    MESSAGE(folder.filename().string(), ": ", check_folder(folder, kF32, ""), " tensors");
  }
}

TEST_CASE("reference numerics reproduce every golden tensor" * doctest::skip(!on_cpu())) {
  for (const auto& folder : golden_folders(kFixtures / "qwen36")) {
    check_folder(folder, kF32, "numerics = \"reference\"");
  }
}

TEST_CASE("bf16 activations stay within the documented distance of the goldens") {
  for (const auto& folder : golden_folders(kFixtures / "qwen36")) check_folder(folder, kBf16, "");
}

TEST_CASE("a prompt longer than the prefill chunk gives the same tensors") {
  for (const char* fixture : {"dense", "moe", "text"}) {
    check_folder(kFixtures / "qwen36" / fixture, std::string(kF32) + "\nprefill_chunk = 64", "");
  }
}

TEST_CASE("prompt lengths around chunk edges and other head ratios reproduce their goldens") {
  for (const auto& folder : golden_folders(kFixtures / "qwen36_lengths")) {
    check_folder(folder, kF32, "");
  }
}

TEST_CASE("the trained demo model reproduces the reference implementation") {
  check_folder(kFixtures / "demo", kF32, "");
  check_folder(kFixtures / "demo", kBf16, "");
}

TEST_CASE("what goldens lack for a comparison is skipped, and not in silence") {
  std::ifstream whole(kFixtures / "qwen36" / "text" / "goldens.safetensors", std::ios::binary);
  std::string content{std::istreambuf_iterator<char>(whole), {}};
  const std::string logits = "\"t12.logits\"";
  const std::size_t at = content.find(logits);
  REQUIRE(at != std::string::npos);
  content.replace(at, logits.size(), "\"t12.absent\"");
  std::string folder = (std::filesystem::temp_directory_path() / "frt-goldens-XXXXXX").string();
  REQUIRE(mkdtemp(folder.data()));
  const std::filesystem::path file = std::filesystem::path(folder) / "goldens.safetensors";
  std::ofstream(file, std::ios::binary) << content;
  SelftestOutcome outcome;
  try {
    const ModelRig rig((kFixtures / "qwen36" / "text").string(),
                       std::string(kF32) + "\nmax_context = 512\nslots = 1");
    outcome = run_selftest(rig, file);
  } catch (const frt::Error& error) {
    outcome.failures.push_back(error.what());
  }
  std::filesystem::remove_all(folder);
  CHECK(outcome.failures.empty());
  const auto skips = [&](const std::string& name) {
    return std::any_of(outcome.skipped.begin(), outcome.skipped.end(),
                       [&](const std::string& row) { return row.starts_with(name + " "); });
  };
  CHECK(skips("t12.split"));
  CHECK(skips("t12.prefixes"));
  CHECK(skips("t12.absent"));
  CHECK(outcome.skipped.size() == 3);
}

TEST_CASE("goldens of another model are refused, naming the tensor") {
  const ModelRig rig((kFixtures / "qwen36" / "text").string(), "max_context = 512\nslots = 1");
  CHECK_THROWS_WITH_AS(run_selftest(rig, kFixtures / "qwen36" / "dense"),
                       doctest::Contains("another model"), frt::Error);
}
