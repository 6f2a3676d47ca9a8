// SPDX-License-Identifier: Apache-2.0
// Checkpoints that cannot be run say why.
#include <filesystem>
#include <frt/models/json.hpp>
#include <frt/models/safetensors.hpp>
#include <frt/models/safetensors_writer.hpp>
#include <fstream>
#include <functional>

#include "policy_driver.hpp"

using namespace frt::test;
using frt::models::Json;

namespace {

namespace fs = std::filesystem;

// A copy of a checkpoint with another config and other tensors.
class Spoiled {
 public:
  Spoiled(const std::string& base, const std::function<void(Json&)>& config,
          const std::function<std::string(const std::string&)>& rename = {}) {
    folder_ = fs::temp_directory_path() /
              ("frt_pi05_" + std::to_string(::getpid()) + "_" + std::to_string(next_++));
    fs::create_directories(folder_);
    Json json = frt::io::read_json_file(fs::path(policy_checkpoint(base)) / "config.json");
    config(json);
    std::ofstream(folder_ / "config.json") << json.dump();
    const auto from = frt::models::Checkpoint::open(policy_checkpoint(base));
    frt::models::SafetensorsWriter writer(folder_ / "model.safetensors");
    const auto name_of = [&](const frt::models::TensorView& tensor) {
      return rename ? rename(std::string(tensor.name)) : std::string(tensor.name);
    };
    for (const auto& tensor : from.tensors()) {
      if (!name_of(tensor).empty()) writer.declare(name_of(tensor), tensor.dtype, tensor.shape);
    }
    for (const auto& tensor : from.tensors()) {
      if (!name_of(tensor).empty()) writer.write(name_of(tensor), tensor.read());
    }
    writer.finish();
  }
  ~Spoiled() { fs::remove_all(folder_); }
  std::string path() const { return folder_.string(); }

 private:
  static inline int next_ = 0;
  fs::path folder_;
};

void refused(const std::string& path, const char* text, const std::string& options = "") {
  CAPTURE(text);
  CHECK_THROWS_WITH_AS(ModelRig(path, options, "", 0, "", "frt.pi05"), doctest::Contains(text),
                       frt::Error);
}

const auto kSame = [](Json&) {};

}  // namespace

TEST_CASE("a pi0 checkpoint is recognised") {
  const Spoiled pi0("tiny/openpi", kSame, [](const std::string& name) {
    const std::size_t dense = name.find("layernorm.dense.weight");
    if (name.find("gemma_expert") != std::string::npos && dense != std::string::npos) {
      return name.substr(0, dense) + "layernorm.weight";
    }
    return name;
  });
  refused(pi0.path(), "pi0 checkpoint");
}

TEST_CASE("checkpoints with memory, and of other types, are refused") {
  const Spoiled visual("tiny/lerobot", [](Json& json) { json["use_visual_memory"] = true; });
  refused(visual.path(), "use_visual_memory");
  const Spoiled proprio("tiny/openpi", kSame, [](const std::string& name) {
    return name == "paligemma_with_expert.gemma_expert.lm_head.weight"
               ? std::string("proprio_history_proj.weight")
               : name;
  });
  refused(proprio.path(), "memory (MEM)");
  const Spoiled other("tiny/lerobot", [](Json& json) { json["type"] = "smolvla"; });
  refused(other.path(), "smolvla");
  const Spoiled neither("tiny/openpi", [](Json& json) { json.erase("action_horizon"); });
  refused(neither.path(), "action_horizon");
}

TEST_CASE("missing and misshapen tensors are named") {
  const Spoiled missing("tiny/openpi", kSame, [](const std::string& name) {
    return name.ends_with("layers.1.mlp.fc1.weight") ? std::string() : name;
  });
  refused(missing.path(), "layers.1.mlp.fc1.weight");
  const Spoiled shape("tiny/openpi", [](Json& json) { json["dims"]["em"] = 64; });
  refused(shape.path(), "[96, 32]");
  const Spoiled dims("tiny/openpi", [](Json& json) { json["dims"]["vh"] = 5; });
  refused(dims.path(), "dims.vh");
  const Spoiled unknown("tiny/openpi", [](Json& json) { json["dims"]["width"] = 5; });
  refused(unknown.path(), "'width'");
}

TEST_CASE("a checkpoint whose embedding has the other tied name, or whose time MLP the older one") {
  const Spoiled renamed("tiny/openpi", kSame, [](const std::string& name) {
    if (name == "paligemma_with_expert.paligemma.lm_head.weight") {
      return std::string(
          "paligemma_with_expert.paligemma.model.language_model.embed_tokens.weight");
    }
    return name.starts_with("time_mlp_") ? "action_" + name : name;
  });
  const ModelRig rig(renamed.path(), "activations = \"f32\"", "", 0, "", "frt.pi05");
  CHECK(run_selftest(rig, kFixtures / "pi05" / "tiny" / "golden.safetensors").failures.empty());
}

TEST_CASE("options that fit nothing are refused") {
  const std::string tiny = policy_checkpoint("tiny/openpi");
  refused(tiny, "preset", "preset = \"pi05_unknown\"");
  refused(tiny, "prompt_buckets", "prompt_buckets = \"10,x\"");
  refused(tiny, "prompt_buckets", "prompt_buckets = \"201\"");
  refused(tiny, "steps", "steps = \"0\"");
  refused(tiny, "No such file", "tokenizer = \"/nonexistent/tokenizer.model\"");
  refused(policy_checkpoint("tiny"), "config.json");
  refused(tiny, "leave residual out", "activations = \"f32\"\nresidual = \"bf16\"");
  refused(tiny, "leave residual out", "precision = \"f32\"\nresidual = \"bf16\"");
}

TEST_CASE("a policy from nothing runs") {
  const ModelRig rig(
      "synthetic:pi05?img=28&vw=48&vl=1&vh=4&vm=64&w=64&m=96&ew=32&em=48&L=2&nh=4&hd=16&vocab=300&"
      "horizon=8",
      "", "", 0, "", "frt.pi05");
  const PolicyDriver driver(rig);
  driver.fill(1);
  driver.set_tokens(0, {2, 5, 6});
  const std::vector<float> actions = driver.infer(PolicyDriver::shape(3, 3));
  for (const float value : actions) CHECK(std::abs(value) < 100);
  CHECK(actions.size() == 8 * 32);
}
