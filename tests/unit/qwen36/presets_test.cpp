// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>
#include <frt/error.hpp>

#include <frt/qwen36/presets.hpp>
#include <frt/qwen36/tensors.hpp>
#include <set>
#include <string>

using frt::Error;
using namespace frt::qwen36;

namespace {

std::uint64_t parameters(const Config& config) {
  std::uint64_t sum = 0;
  for (const Tensor& tensor : checkpoint_tensors(config, false)) {
    std::uint64_t count = 1;
    for (const std::uint64_t extent : tensor.shape) count *= extent;
    sum += count;
  }
  return sum;
}

}  // namespace

TEST_CASE("the large presets have the official number of tensors and parameters") {
  // 27,781,427,952 with the vision tower, which has 460730096 of them.
  const Config dense = preset_config("qwen3.6-27b");
  CHECK(checkpoint_tensors(dense, false).size() == 851 + 15);
  CHECK(parameters(dense) == 27781427952u - 460730096u);
  const Config mixture = preset_config("qwen3.6-35b-a3b");
  CHECK(checkpoint_tensors(mixture, false).size() == 693 + 19);
}

TEST_CASE("tensor names are unique, also with experts one by one") {
  for (const Preset& preset : presets()) {
    for (const bool per_expert : {false, true}) {
      std::set<std::string> names;
      const auto tensors = checkpoint_tensors(preset_config(preset.name), per_expert);
      for (const Tensor& tensor : tensors) names.insert(tensor.name);
      CHECK(names.size() == tensors.size());
    }
  }
}

TEST_CASE("a synthetic checkpoint names preset, format, seed and dimensions") {
  const Synthetic synthetic = parse_synthetic(
      "synthetic:qwen3.6-tiny?format=nvfp4-mixed&seed=18446744073709551615&layers=12&tied=1");
  CHECK(synthetic.preset == "qwen3.6-tiny");
  CHECK(synthetic.format == Format::kNvfp4Mixed);
  CHECK(synthetic.seed == 18446744073709551615u);
  CHECK(synthetic.config.layer_count() == 12);
  CHECK(synthetic.config.attention_layers() == 3);
  CHECK(synthetic.config.tied_embeddings);
}

TEST_CASE("a synthetic checkpoint with a slip is refused, naming what there is") {
  const auto error_of = [](const char* text) -> std::string {
    try {
      parse_synthetic(text);
    } catch (const Error& error) {
      CHECK(error.status() != FRT_OK);
      return error.what();
    }
    return {};
  };
  CHECK(error_of("synthetic:qwen3.6-9b").find("qwen3.6-tiny-moe") != std::string::npos);
  CHECK(error_of("synthetic:qwen3.6-tiny?format=int8").find("nvfp4") != std::string::npos);
  CHECK(error_of("synthetic:qwen3.6-tiny?layres=4").find("layers") != std::string::npos);
  CHECK(error_of("synthetic:qwen3.6-tiny?layers=four").find("layers=four") != std::string::npos);
  CHECK(error_of("synthetic:qwen3.6-tiny?layers").find("key=value") != std::string::npos);
  CHECK(error_of("synthetic:qwen3.6-tiny?kv_heads=3").find("multiple") != std::string::npos);
}
