// SPDX-License-Identifier: Apache-2.0
// Plans: a DAG of variants, compiled to one composed executable or to steps ordered by events.
//
// Compiling sorts the nodes topologically (Kahn; among nodes that are ready, the lowest index
// first, so that the order is always the same). If the backend composes, that is all: execute is
// one launch. Otherwise the sorted nodes become steps, with events made now:
//
//   execute(S):  record `start` on S
//     each step: its stream waits for `start` if it is the first step there, and for the `done` of
//                dependencies on other streams; launch; record `done` if somebody waits for it
//     S waits for the `done` of the last step of every other stream
//
// Streams run in order, so a dependency on the same stream needs nothing, of several dependencies
// on one other stream only the latest counts, and the last step of a stream stands for all.
// Waiting for an event means its latest record at that moment, so the events serve every execute.
#include "exec/plan.hpp"

#include <algorithm>
#include <cstdio>
#include <frt/flags.hpp>
#include <queue>

#include "exec/functions.hpp"

namespace frt::core {
namespace {

using Node = frt_plan_s::Node;
using Step = frt_plan_s::Step;

std::string describe(const frt_plan_s& plan, std::size_t index) {
  const Node& node = plan.nodes[index];
  return "node " + std::to_string(index) + " (graph '" + node.graph->name + "', key " +
         key_text(node.key) + ")";
}

// Drops what compile made, after the last execute.
void reset(frt_plan_s& plan) noexcept {
  frt_context_s& context = *plan.context;
  wait_for_streams(context, plan.stream_mask);
  plan.stream_mask = 0;
  plan.compiled = false;
  plan.fused.store(0, std::memory_order_relaxed);
  const auto destroy = [&](frt_backend_event event) {
    end_with_backend(context, "event_destroy", [&] { context.backend.event_destroy(event); });
  };
  if (plan.exec) {
    end_with_backend(context, "exec_destroy", [&] { context.backend.exec_destroy(plan.exec); });
  }
  plan.exec = nullptr;
  for (Step& step : plan.steps) {
    if (step.done) destroy(step.done);
  }
  plan.steps.clear();
  if (plan.start) destroy(plan.start);
  plan.start = nullptr;
  for (Node& node : plan.nodes) node.variant = nullptr;
}

// dependencies[i]: the distinct nodes that must be done before node i.
std::vector<std::vector<uint32_t>> read_edges(const frt_plan_s& plan) {
  std::vector<std::vector<uint32_t>> dependencies(plan.nodes.size());
  for (const frt_plan_s::Edge& edge : plan.edges) {
    const uint32_t last = std::max(edge.node, edge.dependency);
    if (last >= plan.nodes.size()) {
      throw Error(FRT_ERR_OUT_OF_RANGE, "plan '" + plan.name + "': node " + std::to_string(last) +
                                            " is named in plan_after, but the plan has " +
                                            std::to_string(plan.nodes.size()) + " node(s)");
    }
    auto& list = dependencies[edge.node];
    if (std::find(list.begin(), list.end(), edge.dependency) == list.end()) {
      list.push_back(edge.dependency);
    }
  }
  return dependencies;
}

// Finds every node's variant; all that are missing are reported at once.
void find_variants(frt_plan_s& plan) {
  std::string missing;
  for (std::size_t i = 0; i < plan.nodes.size(); ++i) {
    Node& node = plan.nodes[i];
    if (node.graph->unbound_required) {
      throw Error(FRT_ERR_UNBOUND, "plan '" + plan.name + "': " + describe(plan, i) +
                                       " has a required binding without a buffer");
    }
    node.variant = node.graph->variants.find(node.key);
    if (node.variant) continue;
    if (!missing.empty()) missing += ", ";
    missing += describe(plan, i);
  }
  if (missing.empty()) return;
  throw Error(FRT_ERR_NO_VARIANT,
              "plan '" + plan.name + "': capture these before compiling: " + missing);
}

std::vector<uint32_t> sort_nodes(const frt_plan_s& plan,
                                 const std::vector<std::vector<uint32_t>>& dependencies) {
  std::vector<uint32_t> open(plan.nodes.size());
  std::vector<std::vector<uint32_t>> followers(plan.nodes.size());
  std::priority_queue<uint32_t, std::vector<uint32_t>, std::greater<>> ready;
  for (uint32_t node = 0; node < plan.nodes.size(); ++node) {
    open[node] = static_cast<uint32_t>(dependencies[node].size());
    for (uint32_t dependency : dependencies[node]) followers[dependency].push_back(node);
    if (open[node] == 0) ready.push(node);
  }
  std::vector<uint32_t> order;
  while (!ready.empty()) {
    const uint32_t node = ready.top();
    ready.pop();
    order.push_back(node);
    for (uint32_t follower : followers[node]) {
      if (--open[follower] == 0) ready.push(follower);
    }
  }
  if (order.size() == plan.nodes.size()) return order;
  std::string stuck;
  for (uint32_t node = 0; node < plan.nodes.size(); ++node) {
    if (open[node] == 0) continue;
    if (!stuck.empty()) stuck += ", ";
    stuck += std::to_string(node);
  }
  throw Error(FRT_ERR_CYCLE, "plan '" + plan.name +
                                 "': dependencies go in a circle among or before "
                                 "nodes " +
                                 stuck);
}

// True if the backend made one executable of all nodes.
bool fuse(frt_plan_s& plan, const std::vector<std::vector<uint32_t>>& dependencies) {
  frt_context_s& context = *plan.context;
  if (!context.backend.exec_compose) return false;
  std::vector<frt_backend_node> parts;
  for (std::size_t i = 0; i < plan.nodes.size(); ++i) {
    if (!plan.nodes[i].variant->exec) return false;  // a recipe of an eager context
    parts.push_back({plan.nodes[i].variant->exec, dependencies[i].data(),
                     static_cast<uint32_t>(dependencies[i].size()), 0});
  }
  frt_error reason{};
  const frt_status status = contain("backend '" + context.backend_id + "'", "exec_compose", [&] {
    return context.backend.exec_compose(context.device, parts.data(),
                                        static_cast<uint32_t>(parts.size()), &plan.exec, &reason);
  });
  if (status == FRT_ERR_UNSUPPORTED) return false;
  const std::string what = "plan '" + plan.name + "': fusing";
  backend_check(context, status, reason, what);
  require_made(context, plan.exec, "exec_compose", what);
  return true;
}

frt_backend_event make_event(frt_plan_s& plan) {
  frt_context_s& context = *plan.context;
  const std::string what = "plan '" + plan.name + "': making its events";
  frt_backend_event event = nullptr;
  setup_backend(context, "event_create", what, [&](frt_error* reason) {
    return context.backend.event_create(context.device, 0, &event, reason);
  });
  require_made(context, event, "event_create", what);
  return event;
}

void make_steps(frt_plan_s& plan, const std::vector<std::vector<uint32_t>>& dependencies,
                const std::vector<uint32_t>& order) {
  std::vector<uint32_t> step_of(plan.nodes.size());
  std::vector<bool> awaited(order.size());
  plan.steps.resize(order.size());
  for (uint32_t at = 0; at < order.size(); ++at) {
    Step& step = plan.steps[at];
    step.node = order[at];
    step_of[step.node] = at;
    const frt_stream stream = plan.nodes[step.node].stream;
    const auto on_stream = [&](const Step& other) {
      return plan.nodes[other.node].stream == stream;
    };
    const auto before = plan.steps.begin() + at;
    step.first_on_stream = std::none_of(plan.steps.begin(), before, on_stream);
    step.last_on_stream = std::none_of(order.begin() + at + 1, order.end(), [&](uint32_t node) {
      return plan.nodes[node].stream == stream;
    });
    for (uint32_t dependency : dependencies[step.node]) {
      const frt_stream other = plan.nodes[dependency].stream;
      if (other == stream) continue;
      const uint32_t needed = step_of[dependency];
      const auto same = std::find_if(step.waits.begin(), step.waits.end(), [&](uint32_t wait) {
        return plan.nodes[plan.steps[wait].node].stream == other;
      });
      if (same == step.waits.end()) {
        step.waits.push_back(needed);
      } else {
        *same = std::max(*same, needed);
      }
    }
    for (uint32_t wait : step.waits) awaited[wait] = true;
  }
  plan.start = make_event(plan);
  for (uint32_t at = 0; at < order.size(); ++at) {
    if (awaited[at] || plan.steps[at].last_on_stream) plan.steps[at].done = make_event(plan);
  }
}

void compile(frt_plan_s& plan, uint32_t flags) {
  reset(plan);
  plan.lost[0] = '\0';
  require_flags(flags, FRT_PLAN_NO_FUSE, "plan '" + plan.name + "'");
  if (plan.nodes.empty()) {
    throw Error(FRT_ERR_INVALID_ARGUMENT, "plan '" + plan.name + "' has no nodes");
  }
  try {
    const auto dependencies = read_edges(plan);
    const auto order = sort_nodes(plan, dependencies);
    find_variants(plan);
    if (!(flags & FRT_PLAN_NO_FUSE) && fuse(plan, dependencies)) {
      plan.fused.store(1, std::memory_order_relaxed);
    } else {
      make_steps(plan, dependencies, order);
    }
  } catch (...) {
    reset(plan);
    throw;
  }
  plan.compiled = true;
}

// ---- executing -----------------------------------------------------------------------------

frt_status record(frt_context_s& context, frt_backend_event event, frt_stream_s& stream) noexcept {
  stream.busy = true;
  return call_backend(context, "event_record",
                      [&] { return context.backend.event_record(event, stream.backend); });
}

frt_status wait(frt_context_s& context, frt_backend_event event, frt_stream_s& stream) noexcept {
  stream.busy = true;
  return call_backend(context, "event_wait",
                      [&] { return context.backend.event_wait(event, stream.backend); });
}

frt_status run_step(frt_plan_s& plan, const Step& step, const frt_stream_s& caller) noexcept {
  frt_context_s& context = *plan.context;
  const Node& node = plan.nodes[step.node];
  frt_stream_s& stream = *node.stream;
  plan.stream_mask |= stream.bit;
  if (step.first_on_stream && &stream != &caller) {
    if (frt_status status = wait(context, plan.start, stream); status != FRT_OK) return status;
  }
  for (uint32_t needed : step.waits) {
    const frt_status status = wait(context, plan.steps[needed].done, stream);
    if (status != FRT_OK) return status;
  }
  if (frt_status status = run_variant(*node.graph, *node.variant, stream); status != FRT_OK) {
    return status;
  }
  return step.done ? record(context, step.done, stream) : FRT_OK;
}

frt_status run_steps(frt_plan_s& plan, frt_stream_s& caller) noexcept {
  frt_context_s& context = *plan.context;
  frt_status result = record(context, plan.start, caller);
  if (result != FRT_OK) return result;
  for (const Step& step : plan.steps) {
    result = run_step(plan, step, caller);
    if (result != FRT_OK) break;
  }
  // After a failure too, so that the caller's later work is behind what did start; the first
  // error and its text are what the caller learns.
  const frt_error first = context.last_error;
  const bool failed = result != FRT_OK;
  for (const Step& step : plan.steps) {
    frt_stream_s& stream = *plan.nodes[step.node].stream;
    if (!step.last_on_stream || &stream == &caller) continue;
    frt_status status = failed ? record(context, step.done, stream) : FRT_OK;
    if (status == FRT_OK) status = wait(context, step.done, caller);
    if (result == FRT_OK) result = status;
  }
  if (failed) context.last_error = first;
  return result;
}

frt_status run_fused(frt_plan_s& plan, frt_stream_s& stream) noexcept {
  frt_context_s& context = *plan.context;
  for (Node& node : plan.nodes) use_variant(*node.graph, *node.variant, stream);
  const frt_status status = call_backend(context, "exec_launch", [&] {
    return context.backend.exec_launch(plan.exec, stream.backend);
  });
  if (status != FRT_OK) return status;
  bump(context.replays, plan.nodes.size());
  return FRT_OK;
}

void release_plan(void* handle) noexcept {
  auto* plan = static_cast<frt_plan>(handle);
  reset(*plan);
  std::erase(plan->context->plans, plan);
  for (Node& node : plan->nodes) {
    drop_stream(node.stream);
    drop_graph(node.graph);
  }
  delete plan;
}

}  // namespace

void plan_lost_variant(frt_plan_s& plan, const frt_graph_s& graph,
                       const Variant& variant) noexcept {
  const auto uses = [&](const Node& node) { return node.variant == &variant; };
  if (!plan.compiled || std::none_of(plan.nodes.begin(), plan.nodes.end(), uses)) return;
  reset(plan);
  std::snprintf(plan.lost, sizeof(plan.lost), "graph '%.100s' lost its variant 0x%016llx",
                graph.name.c_str(), static_cast<unsigned long long>(variant.key));
}

namespace exec {

frt_status plan_create(frt_context context, const char* name, frt_plan* plan,
                       frt_error* error) noexcept {
  if (!context || !plan) {
    return set_error(error, FRT_ERR_INVALID_ARGUMENT, "plan_create: a null argument");
  }
  return setup(*context, "plan_create", error, [&] {
    auto made = std::make_unique<frt_plan_s>();
    made->context = context;
    made->name = name ? name : "";
    context->plans.push_back(made.get());
    *plan = made.release();
  });
}

void plan_release(frt_plan plan) noexcept {
  if (!plan) return;
  if (!deferred(*plan->context, release_plan, plan)) release_plan(plan);
}

frt_status plan_add(frt_plan plan, frt_graph graph, frt_shape_key key, frt_stream stream,
                    uint32_t* node, frt_error* error) noexcept {
  if (!plan || !graph || !stream || !node) {
    return set_error(error, FRT_ERR_INVALID_ARGUMENT, "plan_add: a null argument");
  }
  return setup(*plan->context, "plan_add", error, [&] {
    if (graph->context != plan->context || stream->context != plan->context) {
      throw Error(FRT_ERR_INVALID_ARGUMENT, "plan '" + plan->name + "': graph '" + graph->name +
                                                "' or stream '" + stream->name +
                                                "' is of another context");
    }
    reset(*plan);
    plan->nodes.push_back({graph, key, stream});
    ++graph->references;
    retain(*stream);
    *node = static_cast<uint32_t>(plan->nodes.size() - 1);
  });
}

frt_status plan_after(frt_plan plan, uint32_t node, uint32_t dependency,
                      frt_error* error) noexcept {
  if (!plan) return set_error(error, FRT_ERR_INVALID_ARGUMENT, "plan_after: a null plan");
  return setup(*plan->context, "plan_after", error, [&] {
    reset(*plan);
    plan->edges.push_back({node, dependency});
  });
}

frt_status plan_compile(frt_plan plan, uint32_t flags, frt_error* error) noexcept {
  if (!plan) return set_error(error, FRT_ERR_INVALID_ARGUMENT, "plan_compile: a null plan");
  return setup(*plan->context, "plan_compile", error, [&] { compile(*plan, flags); });
}

uint32_t plan_fused(frt_plan plan) noexcept {
  return plan ? plan->fused.load(std::memory_order_relaxed) : 0;
}

frt_status plan_execute(frt_plan plan, frt_stream stream) noexcept {
  if (!plan) return FRT_ERR_INVALID_ARGUMENT;
  frt_context_s& context = *plan->context;
  DriverScope scope(context);
  if (frt_status status = scope.clash(); status != FRT_OK) return status;
  if (frt_status status = check_submission(context, stream, "plan_execute"); status != FRT_OK) {
    return status;
  }
  const bool inside = in_callback(context);
  if (!plan->compiled || inside) {
    return fail(context, FRT_ERR_BAD_STATE, "plan '%.100s': %s; call compile first",
                plan->name.c_str(),
                inside          ? "execute inside a record callback"
                : plan->lost[0] ? plan->lost
                                : "it is not compiled");
  }
  for (const Node& node : plan->nodes) {
    if (!node.graph->unbound_required) continue;
    return fail(context, FRT_ERR_UNBOUND, "plan '%.100s': graph '%.100s' has an unbound binding",
                plan->name.c_str(), node.graph->name.c_str());
  }
  plan->stream_mask |= stream->bit;
  const frt_status status = plan->exec ? run_fused(*plan, *stream) : run_steps(*plan, *stream);
  end_replay(context);
  return status;
}

}  // namespace exec
}  // namespace frt::core
