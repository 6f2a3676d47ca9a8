// SPDX-License-Identifier: Apache-2.0
#include "graph.hpp"

#include <algorithm>
#include <frt/error.hpp>
#include <frt/plugin.hpp>
#include <functional>
#include <queue>
#include <string>

#include "backend_device.hpp"

namespace frt::cuda {
namespace {

struct GraphDeleter {
  void operator()(cudaGraph_t graph) const noexcept { cudaGraphDestroy(graph); }
};
using GraphOwner = std::unique_ptr<std::remove_pointer_t<cudaGraph_t>, GraphDeleter>;

// For every node the nodes it waits for, each named once.
using Edges = std::vector<std::vector<uint32_t>>;

Edges read_edges(Device& device, const frt_backend_node* nodes, uint32_t count) {
  if (count > 0 && !nodes) {
    throw Error(FRT_ERR_INVALID_ARGUMENT, "exec_compose: the node array is NULL");
  }
  Edges edges(count);
  for (uint32_t i = 0; i < count; ++i) {
    const auto* exec = object<Exec>(nodes[i].exec);
    if (!exec || (nodes[i].after_count > 0 && !nodes[i].after)) {
      throw Error(FRT_ERR_INVALID_ARGUMENT,
                  "exec_compose: node " + std::to_string(i) + " has a NULL executable or list");
    }
    if (&exec->device() != &device) {
      throw Error(FRT_ERR_MISMATCH, "exec_compose: the executable of node " + std::to_string(i) +
                                        " belongs to another device");
    }
    for (uint32_t k = 0; k < nodes[i].after_count; ++k) {
      const uint32_t before = nodes[i].after[k];
      if (before >= count) {
        throw Error(FRT_ERR_OUT_OF_RANGE, "exec_compose: node " + std::to_string(i) +
                                              " waits for node " + std::to_string(before) + " of " +
                                              std::to_string(count));
      }
      if (std::find(edges[i].begin(), edges[i].end(), before) == edges[i].end()) {
        edges[i].push_back(before);
      }
    }
  }
  return edges;
}

// Kahn's algorithm with a smallest-index-first queue, so the order is the same every time.
std::vector<uint32_t> sort_nodes(const Edges& edges) {
  const auto count = static_cast<uint32_t>(edges.size());
  std::vector<std::vector<uint32_t>> followers(count);
  std::vector<std::size_t> open(count);
  std::priority_queue<uint32_t, std::vector<uint32_t>, std::greater<>> ready;
  for (uint32_t i = 0; i < count; ++i) {
    open[i] = edges[i].size();
    for (const uint32_t before : edges[i]) followers[before].push_back(i);
    if (open[i] == 0) ready.push(i);
  }
  std::vector<uint32_t> order;
  while (!ready.empty()) {
    const uint32_t i = ready.top();
    ready.pop();
    order.push_back(i);
    for (const uint32_t follower : followers[i]) {
      if (--open[follower] == 0) ready.push(follower);
    }
  }
  if (order.size() != count) {
    throw Error(FRT_ERR_CYCLE, "exec_compose: the nodes wait for each other in a circle");
  }
  return order;
}

// True if `node` waits for `before`, directly or through others.
bool waits_for(const Edges& edges, uint32_t node, uint32_t before) {
  std::vector<bool> seen(edges.size());
  std::vector<uint32_t> open{node};
  while (!open.empty()) {
    const uint32_t at = open.back();
    open.pop_back();
    for (const uint32_t next : edges[at]) {
      if (next == before) return true;
      if (!seen[next]) {
        seen[next] = true;
        open.push_back(next);
      }
    }
  }
  return false;
}

// Puts nodes that use the same pool, or are the same part, one after the other in `order`.
void order_sharers(Edges& edges, const std::vector<uint32_t>& order,
                   const frt_backend_node* nodes) {
  std::vector<std::pair<const void*, uint32_t>> last_users;
  for (const uint32_t node : order) {
    const auto* exec = object<Exec>(nodes[node].exec);
    std::vector<const void*> used{exec};
    for (const auto& pool : exec->pools()) used.push_back(pool.get());
    for (const void* resource : used) {
      const auto at = std::find_if(last_users.begin(), last_users.end(),
                                   [&](const auto& user) { return user.first == resource; });
      if (at == last_users.end()) {
        last_users.emplace_back(resource, node);
        continue;
      }
      if (!waits_for(edges, node, at->second)) edges[node].push_back(at->second);
      at->second = node;
    }
  }
}

}  // namespace

Exec::Exec(Device& device, cudaGraph_t graph, Kept kept)
    : device_(device), graph_(graph), kept_(std::move(kept)) {
  GraphOwner owner(graph);
  device_.enter("instantiating an executable");
  std::size_t nodes = 0;
  device_.check(cudaGraphGetNodes(graph, nullptr, &nodes), "instantiating an executable");
  node_count_ = nodes;
  device_.check(cudaGraphInstantiate(&exec_, graph, 0), "instantiating an executable");
  // Uploading here keeps it out of the first launch. Failing is no error: the launch uploads then.
  const cudaStream_t stream = behind(device_).service_stream();
  if (cudaGraphUpload(exec_, stream) == cudaSuccess) cudaStreamSynchronize(stream);
  cudaGetLastError();
  owner.release();
}

Exec::Exec(Device& device, cudaGraphExec_t foreign, bool owned)
    : device_(device), exec_(foreign), owned_(owned) {}

Exec::~Exec() {
  device_.make_current();
  if (owned_) cudaGraphExecDestroy(exec_);
  if (graph_) cudaGraphDestroy(graph_);
  cudaGetLastError();
}

std::unique_ptr<Exec> Exec::compose(Device& device, const frt_backend_node* nodes, uint32_t count) {
  device.enter("exec_compose");
  Edges edges = read_edges(device, nodes, count);
  const std::vector<uint32_t> order = sort_nodes(edges);
  order_sharers(edges, order, nodes);

  cudaGraph_t graph = nullptr;
  device.check(cudaGraphCreate(&graph, 0), "exec_compose");
  GraphOwner owner(graph);
  Kept kept;
  uint64_t node_count = 0;
  std::vector<cudaGraphNode_t> made(count);
  for (const uint32_t node : order) {
    const auto& part = *object<Exec>(nodes[node].exec);
    if (!part.graph_) {
      throw Error(FRT_ERR_UNSUPPORTED, "exec_compose: node " + std::to_string(node) +
                                           " is a foreign executable, which has no graph to copy");
    }
    std::vector<cudaGraphNode_t> before;
    for (const uint32_t other : edges[node]) before.push_back(made[other]);
    device.check(
        cudaGraphAddChildGraphNode(&made[node], graph, before.data(), before.size(), part.graph_),
        "exec_compose");
    node_count += part.node_count_;
    for (const auto& pool : part.pools()) {
      if (std::find(kept.pools.begin(), kept.pools.end(), pool) == kept.pools.end()) {
        kept.pools.push_back(pool);
      }
    }
  }
  auto exec = std::make_unique<Exec>(device, owner.release(), std::move(kept));
  exec->node_count_ = node_count;
  return exec;
}

}  // namespace frt::cuda
