// SPDX-License-Identifier: Apache-2.0
// interface.hpp - how a robot's arrays meet the network: names of cameras and states, resizing,
// normalisation, prompt, what the actions are relative to. From a preset of openpi, or from what a
// LeRobot checkpoint says about itself.
#pragma once

#include <cstdint>
#include <filesystem>
#include <frt/models/normaliser.hpp>
#include <map>
#include <string>
#include <vector>

#include "config.hpp"
#include "options.hpp"

namespace frt::pi05 {

struct Camera {
  std::string key;        // of the array; empty: never there
  bool required = false;  // else a missing one is masked
};

struct Interface {
  std::string name;
  models::NormStyle style = models::NormStyle::kOpenpi;
  std::vector<Camera> cameras;          // in the network's order
  std::vector<std::string> state_keys;  // joined in this order
  std::int64_t state_dim = 0;           // 0: not known, any
  std::int64_t action_dim = 0;          // values returned per action
  bool state_in_prompt = true;
  bool adapt_to_pi = false;  // ALOHA's joints and grippers
  std::vector<bool> delta;   // actions that are differences to the state; empty: none
  std::string default_prompt;
  bool has_statistics = false;
  std::string statistics_from;  // file, or why there is none
  models::Normaliser state, actions;

  frt_dtype image_dtype() const {
    return style == models::NormStyle::kOpenpi ? FRT_DTYPE_U8 : FRT_DTYPE_F32;
  }
};

// What is there is read; statistics that are there and do not fit are an error, none at all is
// not: `has_statistics` says so.  [setup]
Interface read_interface(const Config& config, const std::filesystem::path& folder,
                         const Options& options);

// Statistics of "state" and "actions" from openpi's norm_stats.json.
std::map<std::string, models::NormStatistics> read_norm_stats(const std::filesystem::path& file);
models::NormStatistics statistics_from(const models::Json& values);

// make_bool_mask(6, -1): six true, one false.
std::vector<bool> bool_mask(std::initializer_list<int> runs);

// ALOHA's joints to those of training and back; 14 values.
void aloha_state(std::vector<double>& state);
void aloha_actions(double* action);

}  // namespace frt::pi05
