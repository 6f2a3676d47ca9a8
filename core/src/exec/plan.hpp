// SPDX-License-Identifier: Apache-2.0
// plan.hpp - what graphs must tell plans.
#pragma once

#include "exec/objects.hpp"

namespace frt::core {

// `variant` of `graph` is about to go: a plan that was compiled with it waits for its work, drops
// what was made of it, and refuses to execute until it is compiled again.  [setup]
void plan_lost_variant(frt_plan_s& plan, const frt_graph_s& graph, const Variant& variant) noexcept;

}  // namespace frt::core
