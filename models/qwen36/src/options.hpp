// SPDX-License-Identifier: Apache-2.0
// options.hpp - what the user may say about a model: the schema, and the values read from it.
#pragma once

#include <frt/config.h>

#include <cstdint>
#include <frt/plugin.hpp>
#include <frt/qwen36/config.hpp>
#include <optional>
#include <vector>

#include "precision.hpp"

namespace frt::qwen36 {

const frt_config_schema_v1& option_schema();

enum class Speculation : std::uint8_t { kAuto, kOn, kOff };

struct Options {
  std::int64_t slots = 0;
  std::int64_t max_context = 0;  // 0: as much as fits
  std::int64_t prefill_chunk = 0;
  std::int64_t max_batch = 0;
  std::int64_t block_rows = 0;                 // 0: no row blocks
  std::optional<std::int64_t> capsule_blocks;  // row blocks beside those of the slots; none: auto
  frt_dtype activation = FRT_DTYPE_NONE;       // NONE: auto
  frt_dtype residual = FRT_DTYPE_NONE;
  frt_dtype cache = FRT_DTYPE_NONE;
  Speculation speculation = Speculation::kAuto;
};

// Throws FRT_ERR_INVALID_ARGUMENT for values that do not fit each other or the model.
Options read_options(const ConfigView& view, const Config& config);

// Whether the user says that the built-in conversation format is right whatever template the
// checkpoint has. Also for a model without weights, whose other options nobody reads.
bool takes_builtin_chat_template(const ConfigView& view);

// Resolves what is automatic. `only_f32`: every weight is stored in F32.
Precision choose_precision(const Options& options, bool only_f32);

// 1, 2, 4, ... and `largest`: the sizes that steps are captured for.
std::vector<std::int32_t> buckets(std::int64_t largest);

}  // namespace frt::qwen36
