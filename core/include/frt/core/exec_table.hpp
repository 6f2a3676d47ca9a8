// SPDX-License-Identifier: Apache-2.0
// exec_table.hpp - where programs that embed core get the exec contract (frt/exec.h) from; the
// host hands the same table to plugins under FRT_EXT_EXEC.
#pragma once

#include <frt/draft/graph.h>
#include <frt/draft/plan.h>
#include <frt/exec.h>

#include <string_view>

namespace frt::core {

// The one table. Never NULL, complete, lives as long as the program.  [any]
const frt_exec_v1* exec_table() noexcept;

// The drafts beside it, for FRT_EXT_PLAN and FRT_EXT_GRAPH. Never NULL.  [any]
const frt_plan_draft* plan_draft() noexcept;
const frt_graph_draft* graph_draft() noexcept;

// The table of core under a name ("frt.exec/1", "frt.plan/draft1", "frt.state/1"); null: none.
// [any]
const void* core_table(std::string_view id) noexcept;

}  // namespace frt::core
