// SPDX-License-Identifier: Apache-2.0
// Whole policies: cases.json names what a robot sends and what must come out; each case brings its
// own statistics, so its interface is made from the case and not from the checkpoint.
#include <algorithm>
#include <cmath>
#include <frt/error.hpp>
#include <frt/models/json.hpp>

#include "prompt.hpp"
#include "selftest.hpp"

namespace frt::pi05 {
namespace {

namespace fs = std::filesystem;
using models::Json;

Interface case_interface(const Json& entry) {
  Interface face;
  const auto kind = entry.value("kind", std::string());
  face.name = entry.value("name", std::string());
  face.style = kind == "lerobot" ? models::NormStyle::kLerobot : models::NormStyle::kOpenpi;
  for (std::size_t i = 0; i < entry.at("images").size(); ++i) {
    face.cameras.push_back({"image" + std::to_string(i), false});
  }
  face.state_keys = {"state"};
  face.state_dim = entry.value("n_state", std::int64_t{0});
  face.action_dim = entry.value("n_actions", std::int64_t{0});
  face.state_in_prompt = entry.value("state_in_prompt", false);
  face.adapt_to_pi = entry.value("adapt_to_pi", false);
  if (entry.contains("delta_mask")) {
    for (const Json& run : entry["delta_mask"]) {
      const int count = run.get<int>();
      face.delta.insert(face.delta.end(), static_cast<std::size_t>(std::abs(count)), count > 0);
    }
  }
  if (entry.contains("relative_mask")) {
    for (const Json& bit : entry["relative_mask"]) face.delta.push_back(bit.get<int>() != 0);
  }
  const bool mean_std = entry.value("norm", std::string()) == "MEAN_STD";
  const auto norm = mean_std ? models::NormKind::kMeanStd : models::NormKind::kQuantile;
  const Json& stats = entry.at("stats");
  face.state = models::Normaliser(norm, face.style, statistics_from(stats.at("state")), "state");
  face.actions =
      models::Normaliser(norm, face.style, statistics_from(stats.at("actions")), "actions");
  face.has_statistics = true;
  return face;
}

frt_array array_of(const std::string& name, const Golden& golden) {
  frt_array array{};
  array.name = name.c_str();
  array.dtype = golden.bytes.empty() ? FRT_DTYPE_F32 : FRT_DTYPE_U8;
  array.data = golden.bytes.empty() ? static_cast<const void*>(golden.values.data())
                                    : static_cast<const void*>(golden.bytes.data());
  array.rank = static_cast<std::uint32_t>(golden.shape.size());
  std::copy(golden.shape.begin(), golden.shape.end(), array.shape);
  return array;
}

void check_case(const Model& model, const Json& entry, const fs::path& folder, Checks& checks) {
  const std::string name = entry.value("name", std::string());
  const Goldens goldens(folder / (name + ".safetensors"));
  const bool guided = entry.contains("beta");
  const Interface face = case_interface(entry);
  const Dims& dims = model.config().dims;

  Setup setup = model.parts().engine->setup();
  setup.views = static_cast<std::int64_t>(face.cameras.size());
  setup.horizon = entry.value("horizon", std::int64_t{10});
  setup.steps = {entry.value("steps", std::int64_t{10})};
  setup.samples = 1;
  setup.branches = guided ? 2 : 1;
  setup.guidance = Guidance::kFused;
  setup.image_dtype = face.image_dtype();
  const Engine engine(model.parts().states, model.parts().context, model.config(),
                      model.parts().weights, *model.parts().source, model.parts().precision, setup);
  PromptForm form;
  if (guided) form.tags = {"Advantage: positive"};
  Observer observer(engine, model.config(), face, model.tokenizer(), form);

  std::vector<std::string> names;
  std::vector<const Golden*> tensors;
  for (const Camera& camera : face.cameras) {
    if (const Golden* image = goldens.find("obs." + camera.key)) {
      names.push_back(camera.key);
      tensors.push_back(image);
    }
  }
  for (const char* key : {"state", "noise"}) {
    names.push_back(key);
    tensors.push_back(&goldens.get(std::string("obs.") + key));
  }
  std::vector<frt_array> arrays;
  for (std::size_t i = 0; i < names.size(); ++i) arrays.push_back(array_of(names[i], *tensors[i]));
  const std::string prompt = entry.value("prompt", std::string());
  frt_observation observation{};
  observation.struct_size = sizeof(observation);
  observation.array_count = static_cast<std::uint32_t>(arrays.size());
  observation.arrays = arrays.data();
  observation.prompt = prompt.c_str();
  frt_observed observed{};
  observed.struct_size = sizeof(observed);
  const Stream& stream = engine.stream();
  observer.write(observation, stream.handle(), observed);

  // The host's part: masks, resized images, state, prompts.
  const Ports& ports = engine.ports();
  const auto mask =
      ports.view_mask.download<std::int32_t>(static_cast<std::uint64_t>(setup.views), stream);
  checks.equal(name + ".mask", mask == entry.at("mask").get<std::vector<std::int32_t>>(),
               mask.size());
  const bool bytes = setup.image_dtype == FRT_DTYPE_U8;
  const auto pixels = static_cast<std::uint64_t>(dims.image * dims.image * 3);
  for (std::int64_t view = 0; view < setup.views; ++view) {
    const Golden* resized = goldens.find("resized" + std::to_string(view));
    if (!resized) continue;
    const std::string label = name + ".resized" + std::to_string(view);
    if (bytes) {
      checks.equal(label,
                   ports.images.download<std::uint8_t>(
                       pixels, stream, static_cast<std::uint64_t>(view) * pixels) == resized->bytes,
                   pixels);
      continue;
    }
    const auto values = ports.images.download<float>(
        pixels, stream, static_cast<std::uint64_t>(view) * pixels * sizeof(float));
    const auto row = static_cast<std::size_t>(dims.image * 3);
    std::vector<double> computed, golden(resized->values.begin(), resized->values.end());
    for (std::size_t y = 0; y < static_cast<std::size_t>(dims.image); y += 8) {
      for (std::size_t x = 0; x < row; ++x) {
        computed.push_back((static_cast<double>(values[y * row + x]) + 1) / 2);
      }
    }
    const double limit = 1e-6;
    checks.within(label, "max abs <= 1e-6", computed, golden, {&limit, 1});
  }
  std::vector<double> state(observed.state, observed.state + observed.state_count);
  const std::vector<double> normalised = observer.normalised(state);
  const Golden& expected_state = goldens.get("state_normalised");
  std::vector<double> golden_state(expected_state.values.begin(), expected_state.values.end());
  std::vector<double> limits;
  for (const double value : golden_state) limits.push_back(1e-6 * std::max(1.0, std::abs(value)));
  checks.within(name + ".state_normalised", "relative <= 1e-6", normalised, golden_state, limits);
  const auto check_prompt = [&](std::size_t branch, const char* key) {
    const auto ids = entry.at(key).get<std::vector<std::int32_t>>();
    checks.equal(name + "." + key, observer.prompt_ids(branch, prompt, normalised) == ids,
                 ids.size());
  };
  check_prompt(0, "prompt_ids");
  if (guided) check_prompt(1, "uncond_ids");

  // The network, and back to the robot.
  if (guided) {
    ports.beta.upload(
        std::vector<float>(static_cast<std::size_t>(setup.max_steps()), entry["beta"].get<float>()),
        stream);
  }
  Variant variant{observed.views, observed.prompt, setup.steps.front(), 1, setup.branches};
  const Recorder recorder(stream);
  engine.observe(recorder, variant);
  engine.act(recorder, variant);
  const auto actions = ports.actions.download<float>(
      static_cast<std::uint64_t>(setup.horizon * dims.action_dim), stream);
  checks.values(name + ".model_actions", Quantity::kActions, actions,
                goldens.get("model_actions").values);
  std::vector<double> robot(static_cast<std::size_t>(setup.horizon * face.action_dim));
  observer.finish(observed, actions.data(), robot.data());
  const Golden& golden = goldens.get("actions");
  const std::vector<double> expected(golden.values.begin(), golden.values.end());
  if (!checks.exact()) {
    const std::vector<float> narrow(robot.begin(), robot.end());
    checks.values(name + ".actions", Quantity::kActions, narrow, golden.values);
    return;
  }
  std::vector<double> scale(static_cast<std::size_t>(face.action_dim), 0.0);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    double& own = scale[i % scale.size()];
    own = std::max(own, std::abs(expected[i]));
  }
  for (double& limit : scale) limit *= 1e-4;
  checks.within(name + ".actions", "1e-4 of the dimension's scale", robot, expected, scale);
}

}  // namespace

void check_policies(const Model& model, const fs::path& file, Checks& checks) {
  if (!model.tokenizer()) {
    return checks.skip("policy cases", "the model has no tokenizer; set the option tokenizer");
  }
  for (const Json& entry : io::read_json_file(file)) {
    check_case(model, entry, file.parent_path(), checks);
  }
}

void check_tokenizer(const Model& model, const fs::path& file, Checks& checks) {
  if (!model.tokenizer()) {
    return checks.skip("encodings", "the model has no tokenizer; set the option tokenizer");
  }
  std::size_t number = 0;
  for (const Json& entry : io::read_json_file(file)) {
    const auto ids = entry.at("ids").get<std::vector<std::int32_t>>();
    std::vector<std::int32_t> computed;
    if (entry.value("kind", std::string()) == "prompt") {
      PromptParts parts;
      const std::string task = entry.value("task", std::string());
      std::vector<double> state;
      parts.with_state = entry.at("state").is_array();
      if (parts.with_state) state = entry["state"].get<std::vector<double>>();
      parts.task = task;
      parts.state = state;
      computed = encode_prompt(*model.tokenizer(), build_prompt(parts));
    } else {
      computed = model.tokenizer()->encode(entry.at("text").get<std::string>());
    }
    checks.equal("encoding " + std::to_string(number++), computed == ids, ids.size());
  }
}

}  // namespace frt::pi05
