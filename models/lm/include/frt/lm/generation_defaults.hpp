// SPDX-License-Identifier: Apache-2.0
// frt/lm/generation_defaults.hpp - how the makers of a checkpoint want it to be sampled, and which
// tokens end a text. [any]
#pragma once

#include <cstdint>
#include <filesystem>
#include <frt/models/json.hpp>
#include <vector>

namespace frt::lm {

// generation_config.json of `folder` as frt_chat_v1::generation_defaults reports it; without the
// file only stop_token_ids from `end_ids`. FRT_ERR_FORMAT names the file and the key.
models::Json read_generation_defaults(const std::filesystem::path& folder,
                                      const std::vector<std::int32_t>& end_ids);

}  // namespace frt::lm
