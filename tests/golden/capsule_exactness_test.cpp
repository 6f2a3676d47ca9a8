// SPDX-License-Identifier: Apache-2.0
// Capsules of whole models: random cases of restoring, forking and going back, compared to the bit
// with runs that were never interrupted (hosts/bench/capsule_check.hpp). FRT_EXACTNESS_CASES is the
// number per model.
#include <cstdlib>
#include <filesystem>
#include <frt/core/capsules.hpp>
#include <frt/core/state.hpp>
#include <string>

#include "../unit/scratch_folder.hpp"
#include "bench/capsule_check.hpp"
#include "lm/lm_model.hpp"
#include "model_rig.hpp"

namespace {

uint64_t cases() {
  const char* text = std::getenv("FRT_EXACTNESS_CASES");
  return text && *text ? std::strtoull(text, nullptr, 10) : 16;
}

using Folder = frt::test::ScratchFolder;

void check_model(const std::string& checkpoint, const std::string& options,
                 const std::string& plugin = "frt.qwen36") {
  CAPTURE(checkpoint);
  CAPTURE(options);
  const frt::test::ModelRig rig(checkpoint, options, "", 0, "", plugin);
  const frt::host::LmModel model(rig.context, frt::core::state_table(), frt::core::capsules_table(),
                                 rig.table, rig.model, "m");
  const frt_fingerprint_field field{"test", "exactness"};
  model.capsules().bind({&field, 1});
  model.capsules().fingerprint();
  const Folder folder;
  frt::host::CapsuleCheckOptions check;
  check.cases = cases();
  check.folder = folder.path;
  const auto result = frt::host::check_capsules(model, check, nullptr);
  CHECK(result.cases == check.cases);
  CHECK(result.compared.at("restored") == check.cases);
  CHECK(result.failures == std::vector<std::string>{});
}

const std::string kFixtureModels = frt::test::kFixtures / "qwen36";

}  // namespace

TEST_CASE("capsules of a dense model restore, fork and go back bit for bit") {
  check_model(kFixtureModels + "/dense",
              "slots = 4\nmax_context = 128\nprefill_chunk = 16\npage_rows = 0");
}

TEST_CASE("capsules of a mixture of experts restore, fork and go back bit for bit") {
  check_model(kFixtureModels + "/moe",
              "slots = 4\nmax_context = 128\nprefill_chunk = 16\npage_rows = 0");
}

TEST_CASE("the same with rows in pages, which forks share") {
  check_model(kFixtureModels + "/dense",
              "slots = 4\nmax_context = 256\nprefill_chunk = 48\npage_rows = 64\n"
              "capsule_pages = 16");
  check_model(kFixtureModels + "/moe",
              "slots = 3\nmax_context = 256\nprefill_chunk = 32\npage_rows = 64\n"
              "capsule_pages = 16");
}

TEST_CASE("capsules of a Llama restore, fork and go back bit for bit") {
  check_model((frt::test::kFixtures / "llama/gqa_llama3").string(),
              "slots = 3\nmax_context = 256\nprefill_chunk = 32\npage_rows = 64\n"
              "capsule_pages = 16",
              "frt.llama");
}
