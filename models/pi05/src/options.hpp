// SPDX-License-Identifier: Apache-2.0
// options.hpp - what the user may say about a policy: the schemas of the two plugins, and the
// values read from them.
#pragma once

#include <frt/config.h>

#include <cstdint>
#include <frt/plugin.hpp>
#include <string>
#include <vector>

#include "engine.hpp"

namespace frt::pi05 {

// Which plugin a model belongs to: one chunk per observation, or branches with guidance.
enum class Family : std::uint8_t { kPlain, kGuided };

const frt_config_schema_v1& option_schema(Family family);

enum class Choice : std::uint8_t { kAuto, kOn, kOff };

struct Options {
  frt_dtype activation = FRT_DTYPE_NONE;  // NONE: auto
  frt_dtype residual = FRT_DTYPE_NONE;
  bool fp8 = false;                   // the layers' products multiply FP8 by FP8
  std::string calibration;            // path of their static scales; empty: none given
  std::int64_t horizon = 0;           // 0: the checkpoint's
  std::vector<std::int64_t> steps;    // captured; empty: the checkpoint's. The first is the default
  std::vector<std::int64_t> prompts;  // buckets of prompt tokens, ascending, the last is the limit
  std::int64_t samples = 1;
  std::int64_t slots = 1;
  std::string preset;
  std::string norm_stats, tokenizer, default_prompt;  // paths; empty: none given
  Choice state_in_prompt = Choice::kAuto;
  // Guided only.
  Guidance guidance = Guidance::kFused;
  std::string prompt_template = "openpi_clean";
  std::vector<std::string> tags;  // of every branch but the last
  double beta = 1.5;              // until set_guidance says otherwise
};

// Throws FRT_ERR_INVALID_ARGUMENT for values that do not fit each other or the model.
Options read_options(const ConfigView& view, const Config& config, Family family);

}  // namespace frt::pi05
