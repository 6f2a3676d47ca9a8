// SPDX-License-Identifier: Apache-2.0
// config.hpp - what a checkpoint folder says about its network: the two public layouts (openpi's
// conversion and LeRobot), their config.json, and the sizes.
//
// Public checkpoints all have the same sizes and do not state them; an extra key `dims` in
// config.json overrides them. Refused with the reason: pi0 checkpoints (not 0.5), checkpoints with
// visual or proprioceptive memory, other model types.
#pragma once

#include <cstdint>
#include <filesystem>
#include <frt/models/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace frt::pi05 {

// Sizes; the names of `dims` in config.json in brackets.
struct Dims {
  std::int64_t image = 224;          // pixels a side [img]
  std::int64_t patch = 14;           // pixels a side [patch]
  std::int64_t vision_width = 1152;  // [vw]
  std::int64_t vision_layers = 27;   // [vl]
  std::int64_t vision_heads = 16;    // [vh]
  std::int64_t vision_mlp = 4304;    // [vm]
  std::int64_t width = 2048;         // of the prefix [w]
  std::int64_t mlp = 16384;          // of the prefix [m]
  std::int64_t expert_width = 1024;  // [ew]
  std::int64_t expert_mlp = 4096;    // [em]
  std::int64_t layers = 18;          // of prefix and expert [L]
  std::int64_t heads = 8;            // query heads of both; one key/value head [nh]
  std::int64_t head_dim = 256;       // [hd]
  std::int64_t vocabulary = 257152;  // [vocab]
  std::int64_t action_dim = 32;      // [ad]

  std::int64_t cells() const { return (image / patch) * (image / patch); }  // tokens per view
  std::int64_t vision_head() const { return vision_width / vision_heads; }
  std::int64_t patch_values() const { return 3 * patch * patch; }
  std::int64_t patch_columns() const { return (patch_values() + 15) / 16 * 16; }  // padded
  std::int64_t query_width() const { return heads * head_dim; }
  std::int64_t modulations() const { return 2 * layers + 1; }  // norms with a condition
};

enum class Layout : std::uint8_t { kOpenpi, kLerobot };

struct Config {
  Layout layout = Layout::kOpenpi;
  Dims dims;
  std::int64_t horizon = 50;
  std::int64_t steps = 10;
  std::int64_t max_prompt = 200;
  std::int64_t max_delay = 0;  // rows that training held at the previous chunk; 0: none
  double min_period = 4e-3;
  double max_period = 4.0;
  models::Json json;  // the whole file, for what the interface needs
};

// Of config.json in `folder`. Throws FRT_ERR_NOT_FOUND, FRT_ERR_FORMAT, FRT_ERR_UNSUPPORTED.
Config read_config(const std::filesystem::path& folder);

// Reads `dims` over what is there, and checks that the sizes fit each other.
void override_dims(Dims& dims, const models::Json& values, const std::string& where);
void set_dim(Dims& dims, std::string_view name, std::int64_t value);
std::vector<std::string_view> dim_names();
std::string dims_text(const Dims& dims);  // "img 224 patch 14 ..."

// "2 views of 224x224, vision 27x1152, prefix 18x2048, expert 18x1024".
std::string describe(const Config& config, std::size_t views);

// A digest-ready text of everything that changes what is computed.
std::string canonical_text(const Config& config);

}  // namespace frt::pi05
