// SPDX-License-Identifier: Apache-2.0
#include <frt/core/exec_table.hpp>

#include "exec/functions.hpp"

namespace frt::core {
namespace {

// In the order of frt_exec_v1; -Wmissing-field-initializers holds it complete.
constexpr frt_exec_v1 kTable = {
    sizeof(frt_exec_v1),       0,
    exec::context_info,        exec::context_counters,
    exec::context_ready,       exec::context_sync,
    exec::context_last_error,  exec::buffer_alloc,
    exec::buffer_wrap,         exec::buffer_view,
    exec::buffer_retain,       exec::buffer_release,
    exec::buffer_info,         exec::buffer_copy,
    exec::buffer_copy_batch,   exec::buffer_fill,
    exec::stream_create,       exec::stream_wrap,
    exec::stream_release,      exec::stream_sync,
    exec::stream_wait,         exec::stream_native,
    exec::stream_backend,      exec::event_create,
    exec::event_release,       exec::event_record,
    exec::event_query,         exec::event_sync,
    exec::event_elapsed,       exec::graph_create,
    exec::graph_release,       exec::graph_capture,
    exec::graph_replay,        exec::graph_has_variant,
    exec::graph_evict,         exec::graph_variant_count,
    exec::graph_keys,          exec::kernels_resolve,
    exec::kernels_register,    exec::kernels_release,
    exec::stream_call,         exec::backend_stream_native,
    exec::buffer_copy_between,
};

constexpr frt_plan_draft kPlans = {
    exec::plan_create,  exec::plan_release, exec::plan_add,     exec::plan_after,
    exec::plan_compile, exec::plan_fused,   exec::plan_execute,
};

constexpr frt_graph_draft kGraphs = {
    exec::graph_declare,
    exec::graph_bind,
    exec::graph_bound,
    exec::graph_adopt,
};

}  // namespace

const frt_exec_v1* exec_table() noexcept {
  return &kTable;
}

const frt_plan_draft* plan_draft() noexcept {
  return &kPlans;
}

const frt_graph_draft* graph_draft() noexcept {
  return &kGraphs;
}

}  // namespace frt::core
