// SPDX-License-Identifier: Apache-2.0
// operator_shape.hpp - what one call of an operator of frt/ops works on, for tables that people
// read: its sizes, and the bytes of weights it must read.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace frt::host {

struct OperatorShape {
  std::string text;           // "4 x 5120 -> 17408 + 17408 nvfp4"; empty: not known
  uint64_t weight_bytes = 0;  // that the call reads at least; 0: none, or not known
};

// `args` is the operator's argument struct, as its launch got it; nothing in device memory is
// looked at.  [any]
OperatorShape operator_shape(std::string_view name, const void* args);

// How many of `experts` the tokens of `rows` rows choose between them, each `chosen` different
// ones, if all experts are as likely: the expected number. 0 experts: 0.  [any]
double expected_experts(uint32_t experts, uint32_t chosen, uint32_t rows);

}  // namespace frt::host
