// SPDX-License-Identifier: Apache-2.0
// A mixture's chosen experts are known to the device alone: the bytes are those of rows * chosen
// different experts, at most of all, which is what one row reads and more than several rows must.
#include "lm/operator_shape.hpp"

#include <fmt/format.h>
#include <frt/ops/attention.h>
#include <frt/ops/gated_delta.h>
#include <frt/ops/linear.h>
#include <frt/ops/moe.h>

#include <algorithm>

namespace frt::host {
namespace {

constexpr const char* kFormatNames[FRT_WEIGHT_FORMAT_COUNT] = {
    "f32", "bf16", "fp8-block", "fp8-tensor", "fp8-channel", "nvfp4"};

const char* format_of(const frt_weight& weight) {
  return weight.format < FRT_WEIGHT_FORMAT_COUNT ? kFormatNames[weight.format] : "?";
}

uint64_t bytes_of(const frt_weight& weight) {
  const auto rows = static_cast<uint64_t>(weight.rows);
  const auto columns = static_cast<uint64_t>(weight.cols);
  const uint64_t scale = weight.scale_dtype == FRT_DTYPE_F32 ? 4 : 2;
  const auto blocks = [](uint64_t extent, int32_t block) {
    const auto size = static_cast<uint64_t>(std::max(block, 1));
    return (extent + size - 1) / size;
  };
  switch (weight.format) {
    case FRT_WEIGHT_F32:
      return rows * columns * 4;
    case FRT_WEIGHT_BF16:
      return rows * columns * 2;
    case FRT_WEIGHT_FP8_BLOCK:
      return rows * columns +
             blocks(rows, weight.block_rows) * blocks(columns, weight.block_cols) * scale;
    case FRT_WEIGHT_FP8_CHANNEL:
      return rows * (columns + scale);
    case FRT_WEIGHT_NVFP4:
      return rows * columns / 2 + rows * columns / 16;
    default:
      return rows * columns;
  }
}

OperatorShape products(int32_t rows, std::initializer_list<const frt_weight*> weights) {
  OperatorShape shape;
  for (const frt_weight* weight : weights) {
    shape.text += shape.text.empty()
                      ? fmt::format("{} x {} -> {}", rows, weight->cols, weight->rows)
                      : fmt::format(" + {}", weight->rows);
    shape.weight_bytes += bytes_of(*weight);
  }
  shape.text += fmt::format(" {}", format_of(**weights.begin()));
  return shape;
}

OperatorShape mixture(int32_t rows, int32_t experts, int32_t chosen, const frt_expert_weight& gate,
                      const frt_expert_weight& up, const frt_expert_weight& down) {
  const auto read = static_cast<uint64_t>(std::min(int64_t{rows} * chosen, int64_t{experts}));
  OperatorShape shape;
  shape.text = fmt::format("{} x {}, {} of {} x {} {}", rows, gate.expert.cols, chosen, experts,
                           gate.expert.rows, format_of(gate.expert));
  shape.weight_bytes = read * (bytes_of(gate.expert) + bytes_of(up.expert) + bytes_of(down.expert));
  return shape;
}

OperatorShape sequences(const frt_sequences& shape) {
  return {fmt::format("{} x {}", shape.count, shape.rows), 0};
}

template <class Args>
const Args& as(const void* args) {
  return *static_cast<const Args*>(args);
}

}  // namespace

OperatorShape operator_shape(std::string_view name, const void* args) {
  if (name == FRT_OP_LINEAR) {
    const auto& a = as<frt_linear_args>(args);
    return products(a.rows, {&a.weight});
  }
  if (name == FRT_OP_NORM_LINEARS) {
    const auto& a = as<frt_norm_linears_args>(args);
    if (a.part_count < 1 || !a.parts) return {};
    OperatorShape shape = products(a.rows, {&a.parts[0].weight});
    for (int32_t i = 1; i < a.part_count; ++i) {
      shape.text += fmt::format(" + {}", a.parts[i].weight.rows);
      shape.weight_bytes += bytes_of(a.parts[i].weight);
    }
    return shape;
  }
  if (name == FRT_OP_NORM_GATE_UP) {
    const auto& a = as<frt_norm_gate_up_args>(args);
    return products(a.rows, {&a.gate_weight, &a.up_weight});
  }
  if (name == FRT_OP_MOE_EXPERTS) {
    const auto& a = as<frt_moe_experts_args>(args);
    return mixture(a.rows, a.experts, a.chosen, a.gate, a.up, a.down);
  }
  if (name == FRT_OP_MOE_BLOCK) {
    const auto& a = as<frt_moe_block_args>(args);
    OperatorShape shape = mixture(a.rows, a.experts, a.chosen, a.gate, a.up, a.down);
    shape.weight_bytes += bytes_of(a.router);
    if (a.shared_gate_weight.rows > 0) {
      shape.weight_bytes += bytes_of(a.shared_gate_weight) + bytes_of(a.shared_up_weight) +
                            bytes_of(a.shared_down_weight) + bytes_of(a.shared_expert_gate);
    }
    return shape;
  }
  if (name == FRT_OP_GATED_DELTA_BLOCK) {
    return sequences(as<frt_gated_delta_block_args>(args).delta.sequences);
  }
  if (name == FRT_OP_GATED_DELTA) return sequences(as<frt_gated_delta_args>(args).sequences);
  if (name == FRT_OP_CAUSAL_CONV) return sequences(as<frt_causal_conv_args>(args).sequences);
  return {};
}

}  // namespace frt::host
