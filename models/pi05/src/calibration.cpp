// SPDX-License-Identifier: Apache-2.0
#include "calibration.hpp"

#include <algorithm>
#include <cmath>
#include <frt/error.hpp>
#include <frt/models/json.hpp>
#include <frt/models/sha256.hpp>

namespace frt::pi05 {
namespace {

using models::Json;

constexpr const char* kFormat = "frt.calibration/1";
constexpr const char* kModel = "pi05";
constexpr const char* kMakeOne = "; make one with `frt-host calibrate`";

[[noreturn]] void broken(const std::string& file, const std::string& text) {
  throw Error(FRT_ERR_FORMAT, file + ": " + text + kMakeOne);
}

std::string text_of(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

// A scale whose reciprocal is a number, too; 0: none.
float scale_of(const Json& input) {
  if (!input.is_object()) return 0;
  const auto found = input.find("scale");
  if (found == input.end() || !found->is_number()) return 0;
  const auto scale = static_cast<float>(found->get<double>());
  return std::isfinite(scale) && scale > 0 && std::isfinite(1 / scale) ? scale : 0;
}

}  // namespace

std::vector<std::string> calibrated_inputs(const Dims& dims) {
  std::vector<std::string> names;
  const auto tower = [&](const std::string& name, std::int64_t layers, bool last_is_keys) {
    for (std::int64_t i = 0; i < layers; ++i) {
      const std::string layer = name + "." + std::to_string(i) + ".";
      names.push_back(layer + "qkv");
      if (last_is_keys && i + 1 == layers) break;
      for (const char* product : {"output", "hidden", "down"}) names.push_back(layer + product);
    }
  };
  tower("vision", dims.vision_layers, false);
  tower("prefix", dims.layers, true);
  tower("expert", dims.layers, false);
  return names;
}

std::string checkpoint_digest(const FileDigests& files) {
  std::string text;
  for (const auto& [name, digest] : files) text += name + " " + digest + "\n";
  return models::sha256_text(text);
}

Calibration Calibration::read(const std::filesystem::path& file, const Dims& dims,
                              const FileDigests& checkpoint) {
  const std::string name = file.string();
  const Json json = io::read_json_file(file);
  if (!json.is_object() || text_of(json, "format") != kFormat) {
    broken(name, std::string("no calibration: \"format\" is not \"") + kFormat + "\"");
  }
  if (text_of(json, "model") != kModel) {
    broken(name,
           "a calibration of \"" + text_of(json, "model") + "\", expected \"" + kModel + "\"");
  }
  const Json source = json.value("checkpoint", Json::object());
  const std::string found = source.is_object() ? text_of(source, "digest") : std::string();
  const std::string expected = checkpoint_digest(checkpoint);
  if (found.empty()) broken(name, "says no checkpoint.digest");
  if (found != expected) {
    std::string differing;
    const Json files = source.value("files", Json::object());
    for (const auto& [weights, digest] : checkpoint) {
      if (files.is_object() && text_of(files, weights.c_str()) == digest) continue;
      differing += (differing.empty() ? "" : ", ") + weights;
    }
    throw Error(FRT_ERR_MISMATCH,
                name + " was made with another checkpoint: digest " + found + ", this one has " +
                    expected + " (different: " + (differing.empty() ? "further files" : differing) +
                    ")" + kMakeOne);
  }
  const Json frames = json.value("frames", Json());
  if (!frames.is_number_unsigned() || frames.get<std::uint64_t>() == 0) {
    broken(name, "\"frames\" is no number of frames");
  }
  const Json inputs = json.value("inputs", Json());
  if (!inputs.is_object()) broken(name, "has no object \"inputs\"");

  Calibration calibration;
  std::string missing;
  for (const std::string& input : calibrated_inputs(dims)) {
    const auto entry = inputs.find(input);
    if (entry == inputs.end()) {
      missing += (missing.empty() ? "" : ", ") + input;
      continue;
    }
    const float scale = scale_of(*entry);
    if (scale == 0) {
      broken(name, "inputs[\"" + input + "\"].scale is not a positive, finite number");
    }
    calibration.scales_[input] = scale;
  }
  if (!missing.empty()) broken(name, "no scale of " + missing);
  for (const auto& [input, entry] : inputs.items()) {
    if (!calibration.scales_.contains(input)) {
      broken(name, "inputs[\"" + input + "\"] is no product of this model, which has " +
                       std::to_string(calibration.scales_.size()));
    }
  }
  return calibration;
}

Calibration Calibration::uniform(const Dims& dims, float largest) {
  Calibration calibration;
  for (const std::string& input : calibrated_inputs(dims)) {
    calibration.scales_[input] = largest / kLargestE4m3;
  }
  return calibration;
}

std::string Calibration::digest() const {
  Json json = Json::object();
  for (const auto& [input, scale] : scales_) json[input] = scale;
  return models::sha256_text(json.dump());
}

std::string calibration_text(const Dims& dims, const Measured& measured, double margin) {
  if (!std::isfinite(margin) || margin < 1) {
    throw Error(FRT_ERR_INVALID_ARGUMENT,
                "calibration: a margin of " + std::to_string(margin) + ", expected 1 or more");
  }
  if (measured.frames == 0) {
    throw Error(FRT_ERR_BAD_STATE, "calibration: no frame was noted");
  }
  Json files = Json::object();
  for (const auto& [name, digest] : measured.checkpoint) files[name] = digest;
  Json inputs = Json::object();
  for (const std::string& input : calibrated_inputs(dims)) {
    const auto found = measured.largest.find(input);
    if (found == measured.largest.end()) {
      throw Error(FRT_ERR_BAD_STATE, "calibration: nothing was seen of " + input);
    }
    const double largest = found->second;
    if (!std::isfinite(largest)) {
      throw Error(FRT_ERR_FORMAT, "calibration: the input of " + input +
                                      " is NaN or infinite; the checkpoint or a frame is broken");
    }
    // An input of zeros only: any scale will do.
    inputs[input] = {{"largest", largest},
                     {"scale", largest > 0 ? largest * margin / kLargestE4m3 : 1.0}};
  }
  const Json json = {
      {"format", kFormat},
      {"model", kModel},
      {"checkpoint", {{"digest", checkpoint_digest(measured.checkpoint)}, {"files", files}}},
      {"frames", measured.frames},
      {"margin", margin},
      {"activations", measured.activations},
      {"inputs", inputs}};
  return json.dump(2) + "\n";
}

}  // namespace frt::pi05
