// SPDX-License-Identifier: Apache-2.0
// moe.hpp - the nodes of the mixture-of-experts operators, as the block puts them together.
// Arguments are checked already. All are [setup].
#pragma once

#include <frt/ops/moe.h>

#include <memory>

#include "../node.hpp"

namespace frt::cpu {

std::unique_ptr<Node> make_moe_route(Device& device, const frt_moe_route_args& args);
std::unique_ptr<Node> make_moe_experts(Device& device, const frt_moe_experts_args& args);
std::unique_ptr<Node> make_moe_combine(Device& device, const frt_moe_combine_args& args);

}  // namespace frt::cpu
