// SPDX-License-Identifier: Apache-2.0
// prompt_options.hpp - the options of commands that generate: how to sample, when to stop.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/command_line.hpp"
#include "lm/lm_model.hpp"
#include "lm/sampling.hpp"

namespace frt::host {

struct PromptOptions {
  SamplingChoice sampling;
  std::string max_new = "256";     // human number
  std::vector<std::string> stops;  // stop strings
  bool ignore_eos = false;

  void add_to(Command command);
  // The number of --max-new. Throws ExitError(kUsage).
  uint64_t max_new_tokens() const;
};

// The ids that end a text: the checkpoint's stop_token_ids.
std::vector<int32_t> stop_token_ids(const nlohmann::ordered_json& defaults);

}  // namespace frt::host
