// SPDX-License-Identifier: Apache-2.0
// frt/qwen36/tensors.hpp - every tensor of a Qwen3.6 checkpoint by its official name and shape. The
// synthetic weights of the model plugin and tools that write checkpoints both follow it.  [any]
#pragma once

#include <frt/lm/tensors.hpp>
#include <frt/qwen36/config.hpp>
#include <vector>

namespace frt::qwen36 {

using lm::Format;
using lm::format_name;
using lm::is_quantised;
using lm::Packing;
using lm::packing;
using lm::parse_format;
using lm::Range;
using lm::Role;
using lm::Tensor;
using lm::value_range;

// All tensors of the text model in layer order, the draft head last (if config.mtp_layers > 0).
// Experts as three-dimensional tensors, or one by one with `per_expert`. Names start with
// "model.language_model.", "lm_head." and "mtp.".
std::vector<Tensor> checkpoint_tensors(const Config& config, bool per_expert);

}  // namespace frt::qwen36
