// SPDX-License-Identifier: Apache-2.0
// config.hpp - the dimensions of a Llama model, from config.json or a preset. Everything that
// changes the computation is either understood or refused by name. Errors: FRT_ERR_NOT_FOUND,
// FRT_ERR_FORMAT (a key is missing, of a wrong type or out of range), FRT_ERR_MISMATCH (another
// architecture), FRT_ERR_UNSUPPORTED, each with file, key, what was expected and what was found.
// All functions are [any].
#pragma once

#include <cstdint>
#include <filesystem>
#include <frt/lm/config.hpp>
#include <frt/lm/synthetic.hpp>
#include <frt/models/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace frt::llama {

struct Config : lm::Config {
  std::int64_t layers = 0;
  bool attention_bias = false;  // of q_proj, k_proj, v_proj and o_proj
  bool mlp_bias = false;        // of gate_proj, up_proj and down_proj
};

// Reads <folder>/config.json.
Config read_config(const std::filesystem::path& folder);

// From parsed JSON; `file` stands for it in errors.
Config parse_config(const models::Json& json, std::string_view file);

// Every field that changes results, in one line; equal texts mean equal models.
std::string canonical_text(const Config& config);

// For people: "32 layers, hidden 4096, 32 query heads, 8 KV heads".
std::string describe(const Config& config);

// The configuration of a synthetic checkpoint, with the dimensions that its name changes.
Config synthetic_config(const lm::SyntheticName& name, std::string_view checkpoint);

// All tensors of the model by their official names, in layer order.
std::vector<lm::Tensor> checkpoint_tensors(const Config& config);

}  // namespace frt::llama
