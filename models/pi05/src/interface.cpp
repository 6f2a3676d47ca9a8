// SPDX-License-Identifier: Apache-2.0
#include "interface.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <frt/error.hpp>
#include <frt/models/linear_weight.hpp>
#include <frt/models/safetensors.hpp>

namespace frt::pi05 {
namespace {

namespace fs = std::filesystem;
using models::Json;
using models::NormKind;
using models::NormStatistics;
using models::NormStyle;

constexpr std::int64_t kAlohaDim = 14;

Interface droid(const std::string& name) {
  Interface face;
  face.name = name;
  face.cameras = {{"observation/exterior_image_1_left", true},
                  {"observation/wrist_image_left", true}};
  face.state_keys = {"observation/joint_position", "observation/gripper_position"};
  face.state_dim = 8;
  face.action_dim = 8;
  if (name == "pi05_full_droid_finetune" || name == "pi05_droid_jointpos_polaris") {
    face.delta = bool_mask({7, -1});
  }
  return face;
}

Interface preset(const std::string& name, const Config& config) {
  Interface face;
  face.name = name;
  if (name == "pi05_libero") {
    face.cameras = {{"observation/image", true}, {"observation/wrist_image", true}};
    face.state_keys = {"observation/state"};
    face.state_dim = 8;
    face.action_dim = 7;
    face.state_in_prompt = false;
  } else if (name == "pi05_droid" || name == "pi05_full_droid_finetune" ||
             name == "pi05_droid_finetune" || name == "pi05_droid_jointpos_polaris") {
    face = droid(name);
  } else if (name == "pi05_aloha") {
    face.cameras = {{"images/cam_high", true},
                    {"images/cam_left_wrist", false},
                    {"images/cam_right_wrist", false}};
    face.state_keys = {"state"};
    face.state_dim = kAlohaDim;
    face.action_dim = kAlohaDim;
    face.adapt_to_pi = true;
    face.delta = bool_mask({6, -1, 6, -1});
  } else if (name == "base") {
    face.cameras = {{"image/base_0_rgb", false},
                    {"image/left_wrist_0_rgb", false},
                    {"image/right_wrist_0_rgb", false}};
    face.state_keys = {"state"};
    face.action_dim = config.dims.action_dim;
  } else {
    throw Error(FRT_ERR_INVALID_ARGUMENT,
                "preset = \"" + name +
                    "\": unknown; choose pi05_libero, pi05_droid, pi05_full_droid_finetune, "
                    "pi05_droid_finetune, pi05_droid_jointpos_polaris, pi05_aloha or base");
  }
  if (face.action_dim > config.dims.action_dim) {
    throw Error(FRT_ERR_MISMATCH, "preset " + name + " has " + std::to_string(face.action_dim) +
                                      " values per action, the checkpoint " +
                                      std::to_string(config.dims.action_dim));
  }
  return face;
}

// ---- openpi's statistics ---------------------------------------------------------------------

std::vector<fs::path> stats_files(const fs::path& folder) {
  std::vector<fs::path> files;
  if (fs::is_regular_file(folder / "norm_stats.json")) files.push_back(folder / "norm_stats.json");
  if (fs::is_directory(folder / "assets")) {
    for (const auto& entry : fs::recursive_directory_iterator(folder / "assets")) {
      if (entry.path().filename() == "norm_stats.json") files.push_back(entry.path());
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

void use_statistics(Interface& face, NormKind state_kind, NormKind action_kind,
                    const NormStatistics& state, const NormStatistics& actions,
                    const std::string& from) {
  face.state = models::Normaliser(state_kind, face.style, state, "state (" + from + ")");
  face.actions = models::Normaliser(action_kind, face.style, actions, "actions (" + from + ")");
  face.has_statistics = true;
  face.statistics_from = from;
  const auto dims = static_cast<std::int64_t>(face.state.dimensions());
  if (face.state_dim == 0) face.state_dim = dims;
  if (face.name == "base" && face.actions.dimensions() > 0) {
    face.action_dim =
        std::min(face.action_dim, static_cast<std::int64_t>(face.actions.dimensions()));
  }
}

void read_openpi_statistics(Interface& face, const fs::path& folder, const Options& options) {
  fs::path file = options.norm_stats;
  if (file.empty()) {
    const std::vector<fs::path> found =
        folder.empty() ? std::vector<fs::path>() : stats_files(folder);
    if (found.empty()) {
      face.statistics_from = (folder.empty() ? "a synthetic checkpoint" : folder.string()) +
                             " has no norm_stats.json; converters leave it beside the checkpoint: "
                             "name it with norm_stats";
      return;
    }
    if (found.size() > 1) {
      std::string names;
      for (const fs::path& path : found) names += (names.empty() ? "" : ", ") + path.string();
      face.statistics_from = "several statistics (" + names + "): choose one with norm_stats";
      return;
    }
    file = found.front();
  }
  const auto features = read_norm_stats(file);
  const auto feature = [&](const char* name) {
    const auto found = features.find(name);
    if (found == features.end()) {
      throw Error(FRT_ERR_NOT_FOUND, file.string() + ": no statistics of \"" + name + "\"");
    }
    return found->second;
  };
  use_statistics(face, NormKind::kQuantile, NormKind::kQuantile, feature("state"),
                 feature("actions"), file.string());
}

// ---- LeRobot ---------------------------------------------------------------------------------

NormKind norm_kind(const Json& config, const char* feature) {
  const Json mapping = config.value("normalization_mapping", Json::object());
  const std::string kind = mapping.value(feature, std::string("QUANTILES"));
  if (kind == "QUANTILES") return NormKind::kQuantile;
  if (kind == "MEAN_STD") return NormKind::kMeanStd;
  if (kind == "MIN_MAX") return NormKind::kMinMax;
  if (kind == "IDENTITY") return NormKind::kIdentity;
  throw Error(FRT_ERR_UNSUPPORTED, "normalization_mapping." + std::string(feature) + " is \"" +
                                       kind +
                                       "\", expected QUANTILES, MEAN_STD, MIN_MAX or IDENTITY");
}

// The file a pipeline's step keeps its tensors in; empty if it is not there.
fs::path state_file(const fs::path& folder, const char* pipeline, const std::string& step,
                    const char* older) {
  const fs::path json = folder / (std::string(pipeline) + ".json");
  if (fs::is_regular_file(json)) {
    const Json steps = io::read_json_file(json).value("steps", Json::array());
    for (const Json& entry : steps) {
      if (!entry.is_object() || entry.value("registry_name", std::string()) != step) continue;
      const std::string name = entry.value("state_file", std::string());
      if (name.empty() || name.find('/') != std::string::npos) continue;
      if (fs::is_regular_file(folder / name)) return folder / name;
    }
  }
  return fs::is_regular_file(folder / older) ? folder / older : fs::path();
}

NormStatistics tensors_of(const fs::path& file, const std::string& feature) {
  const models::Checkpoint tensors = models::Checkpoint::open(file);
  const auto read = [&](const char* statistic) {
    const models::TensorView* tensor = tensors.find(feature + "." + statistic);
    if (!tensor) return std::vector<double>();
    const std::vector<float> values = models::to_f32(*tensor);
    return std::vector<double>(values.begin(), values.end());
  };
  return {read("mean"), read("std"), read("q01"), read("q99"), read("min"), read("max")};
}

std::vector<bool> relative_mask(const Json& config, std::int64_t dims) {
  std::vector<bool> mask(static_cast<std::size_t>(dims), true);
  const auto lower = [](std::string text) {
    std::transform(text.begin(), text.end(), text.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    return text;
  };
  const Json names = config.value("action_feature_names", Json());
  const Json excluded = config.value("relative_exclude_joints", Json::array());
  if (!names.is_array()) return mask;
  for (std::size_t i = 0; i < std::min(mask.size(), names.size()); ++i) {
    for (const Json& token : excluded) {
      if (!names[i].is_string() || !token.is_string()) continue;
      if (lower(names[i].get<std::string>()).find(lower(token.get<std::string>())) !=
          std::string::npos) {
        mask[i] = false;
      }
    }
  }
  return mask;
}

std::int64_t feature_size(const Json& feature) {
  const Json shape = feature.value("shape", Json::array());
  return shape.size() == 1 && shape[0].is_number_integer() ? shape[0].get<std::int64_t>() : 0;
}

Interface lerobot(const Config& config, const fs::path& folder, const Options& options) {
  Interface face;
  face.name = "lerobot";
  face.style = NormStyle::kLerobot;
  const Json& json = config.json;
  const Json inputs = json.value("input_features", Json::object());
  for (const auto& [name, feature] : inputs.items()) {
    if (feature.value("type", std::string()) != "VISUAL") continue;
    const bool empty = name.starts_with("observation.images.empty_camera");
    face.cameras.push_back({empty ? "" : name, false});
  }
  if (face.cameras.empty()) {
    throw Error(FRT_ERR_FORMAT,
                (folder / "config.json").string() + ": input_features has no camera (type VISUAL)");
  }
  face.state_keys = {"observation.state"};
  if (inputs.contains("observation.state")) {
    face.state_dim = feature_size(inputs["observation.state"]);
  }
  const Json outputs = json.value("output_features", Json::object());
  face.action_dim = outputs.contains("action") ? feature_size(outputs["action"]) : 0;
  if (face.action_dim < 1 || face.action_dim > config.dims.action_dim) {
    throw Error(FRT_ERR_FORMAT, (folder / "config.json").string() +
                                    ": output_features.action.shape is not one number from 1 to " +
                                    std::to_string(config.dims.action_dim));
  }
  if (json.value("use_relative_actions", false)) {
    face.delta = relative_mask(json, face.action_dim);
  }
  const NormKind state_kind = norm_kind(json, "STATE");
  const NormKind action_kind = norm_kind(json, "ACTION");
  if (!options.norm_stats.empty()) {
    const auto features = read_norm_stats(options.norm_stats);
    const auto feature = [&](const char* name) {
      const auto found = features.find(name);
      return found == features.end() ? NormStatistics() : found->second;
    };
    use_statistics(face, state_kind, action_kind, feature("state"), feature("actions"),
                   options.norm_stats);
    return face;
  }
  const fs::path before = state_file(folder, "policy_preprocessor", "normalizer_processor",
                                     "policy_preprocessor_step_2_normalizer_processor.safetensors");
  const fs::path after =
      state_file(folder, "policy_postprocessor", "unnormalizer_processor",
                 "policy_postprocessor_step_0_unnormalizer_processor.safetensors");
  if (before.empty() || after.empty()) {
    face.statistics_from = folder.string() +
                           " has no tensors of its normaliser steps; name openpi's "
                           "norm_stats.json of the same data with norm_stats";
    return face;
  }
  use_statistics(face, state_kind, action_kind, tensors_of(before, "observation.state"),
                 tensors_of(after, "action"), before.string());
  return face;
}

}  // namespace

std::vector<bool> bool_mask(std::initializer_list<int> runs) {
  std::vector<bool> mask;
  for (const int run : runs)
    mask.insert(mask.end(), static_cast<std::size_t>(std::abs(run)), run > 0);
  return mask;
}

models::NormStatistics statistics_from(const Json& values) {
  const auto read = [&](const char* name) {
    std::vector<double> out;
    if (!values.is_object() || !values.contains(name) || !values[name].is_array()) return out;
    for (const Json& value : values[name]) {
      out.push_back(value.is_number() ? value.get<double>() : std::nan(""));
    }
    return out;
  };
  return {read("mean"), read("std"), read("q01"), read("q99"), read("min"), read("max")};
}

std::map<std::string, NormStatistics> read_norm_stats(const fs::path& file) {
  const Json json = io::read_json_file(file);
  const Json stats = json.is_object() ? json.value("norm_stats", Json()) : Json();
  if (!stats.is_object()) {
    throw Error(FRT_ERR_FORMAT, file.string() + ": no object \"norm_stats\"");
  }
  std::map<std::string, NormStatistics> features;
  for (const auto& [name, values] : stats.items()) features[name] = statistics_from(values);
  return features;
}

Interface read_interface(const Config& config, const fs::path& folder, const Options& options) {
  Interface face;
  if (options.preset == "auto" && config.layout == Layout::kLerobot) {
    face = lerobot(config, folder, options);
  } else {
    face = preset(options.preset == "auto" ? "base" : options.preset, config);
    read_openpi_statistics(face, folder, options);
  }
  if (options.state_in_prompt != Choice::kAuto) {
    face.state_in_prompt = options.state_in_prompt == Choice::kOn;
  }
  face.default_prompt = options.default_prompt;
  return face;
}

// ---- ALOHA -----------------------------------------------------------------------------------

namespace {
constexpr std::array<double, 14> kFlip = {1, -1, -1, 1, 1, 1, 1, 1, -1, -1, 1, 1, 1, 1};
constexpr std::size_t kGrippers[] = {6, 13};
}  // namespace

// The gripper: linear position, then the angle of its crank, scaled to 0 .. 1.
void aloha_state(std::vector<double>& state) {
  for (std::size_t i = 0; i < std::min(state.size(), kFlip.size()); ++i) state[i] *= kFlip[i];
  for (const std::size_t gripper : kGrippers) {
    if (gripper >= state.size()) continue;
    constexpr double kOpen = 0.05800, kClosed = 0.01844;  // metres
    constexpr double kArm = 0.022, kHorn = 0.036;         // metres
    const double position = state[gripper] * (kOpen - kClosed) + kClosed;
    const double sine = (kArm * kArm + position * position - kHorn * kHorn) / (2 * kArm * position);
    state[gripper] = (std::asin(std::clamp(sine, -1.0, 1.0)) - 0.5476) / (1.6296 - 0.5476);
  }
}

void aloha_actions(double* action) {
  for (std::size_t i = 0; i < kFlip.size(); ++i) action[i] *= kFlip[i];
  for (const std::size_t gripper : kGrippers) {
    action[gripper] = (action[gripper] + 0.5476 + 0.6213) / (1.4910 + 0.6213);
  }
}

}  // namespace frt::pi05
