// SPDX-License-Identifier: Apache-2.0
// A mixture's chosen experts are known to the device alone: the bytes are those of
// expected_experts.
#include "bench/operator_shape.hpp"

#include <fmt/format.h>
#include <frt/ops/attention.h>
#include <frt/ops/gated_delta.h>
#include <frt/ops/linear.h>
#include <frt/ops/moe.h>
#include <frt/weights.hpp>

#include <algorithm>
#include <cmath>

namespace frt::host {
namespace {

uint64_t bytes_of(const frt_weight& weight) {
  return static_cast<uint64_t>(weight_bytes(weight.format, weight.rows, weight.cols).total());
}

OperatorShape products(int32_t rows, std::initializer_list<const frt_weight*> weights) {
  OperatorShape shape;
  for (const frt_weight* weight : weights) {
    shape.text += shape.text.empty()
                      ? fmt::format("{} x {} -> {}", rows, weight->cols, weight->rows)
                      : fmt::format(" + {}", weight->rows);
    shape.weight_bytes += bytes_of(*weight);
  }
  shape.text += fmt::format(" {}", weight_name((*weights.begin())->format));
  return shape;
}

OperatorShape mixture(int32_t rows, int32_t experts, int32_t chosen, const frt_expert_weight& gate,
                      const frt_expert_weight& up, const frt_expert_weight& down) {
  const double read = expected_experts(static_cast<uint32_t>(experts),
                                       static_cast<uint32_t>(chosen), static_cast<uint32_t>(rows));
  OperatorShape shape;
  shape.text = fmt::format("{} x {}, {} of {} x {} {}", rows, gate.expert.cols, chosen, experts,
                           gate.expert.rows, weight_name(gate.expert.format));
  const uint64_t each = bytes_of(gate.expert) + bytes_of(up.expert) + bytes_of(down.expert);
  shape.weight_bytes = static_cast<uint64_t>(read * static_cast<double>(each));
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
    return mixture(a.rows, a.experts, a.experts_per_token, a.gate, a.up, a.down);
  }
  if (name == FRT_OP_MOE_BLOCK) {
    const auto& a = as<frt_moe_block_args>(args);
    OperatorShape shape = mixture(a.rows, a.experts, a.experts_per_token, a.gate, a.up, a.down);
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

double expected_experts(uint32_t experts, uint32_t chosen, uint32_t rows) {
  if (experts == 0) return 0;
  // A row passes an expert by with this probability.
  const double passed = 1 - static_cast<double>(chosen) / experts;
  return experts * (1 - std::pow(passed, rows));
}

}  // namespace frt::host
