// SPDX-License-Identifier: Apache-2.0
// selftest_plan.hpp - which runs a golden file of the network holds, read from the names, shapes
// and values of its tensors: nothing about a file is assumed that the file states.
//
//   in.* or in_*          inputs: image{i} (HWC or CHW), source{i}, tokens, uncond_tokens, noise
//   <run>.mask            a run with these views, whatever its name. A run without a mask is named
//                         v<bits>, one bit per view, or v<n>, the first n views
//   time.cond             one row per step and one more: the steps of every run without a number.
//                         Without it the tensors v0, v1, ... of a run are counted
//   steps<N>.*, h<N>.*    the base run in N steps; with h<N>.noise of N rows
//   uncond.*              the base run under the other prompt
//   cfg<beta>.*           guidance of the base run towards its prompt
//   samples.*             the base run from several noises
//   rtc.*                 continuation of rtc.prev: rtc.<schedule>.*, rtc.trained.*, rtc.lock.*
//
// The base run is the one that the others vary. Its tensors say which: at step 0 the conditional
// branch of guidance is the base run, at strength 1 all of it is, and so is a continuation whose
// weights are all zero. A file that has none of these means v2, or its first run.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "selftest_goldens.hpp"

namespace frt::pi05 {

struct ViewRun {
  std::string name;
  std::vector<std::int32_t> mask;  // (views)
};
struct GuidedRun {
  std::string name;
  float beta = 1;
};
// "steps4", 4; "h50", 50.
struct NumberedRun {
  std::string name;
  std::int64_t number = 0;
};
struct ContinuedRun {
  std::string name, schedule;
};

struct GoldenPlan {
  std::string inputs;  // "in." or "in_"
  std::vector<ViewRun> views;
  std::size_t base = 0;  // of views
  std::int64_t steps = 0;
  std::vector<GuidedRun> guided;
  std::vector<NumberedRun> step_counts, horizons;
  std::vector<ContinuedRun> continued;

  const ViewRun& base_run() const { return views.at(base); }
};

// Whether the tensors of a safetensors file are goldens of the network; reads its header alone.
bool holds_network(const std::filesystem::path& file);

// For a model of so many `views`, whose own step count is taken where the file says none. Throws
// FRT_ERR_FORMAT for a file that contradicts itself, FRT_ERR_MISMATCH for more views.
GoldenPlan read_plan(const Goldens& goldens, std::int64_t views, std::int64_t model_steps);

// How many leading rows of `actions` are those of `previous`, both of `width` columns.
std::int64_t locked_rows(const std::vector<float>& actions, const std::vector<float>& previous,
                         std::size_t width);

}  // namespace frt::pi05
