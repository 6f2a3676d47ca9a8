// SPDX-License-Identifier: Apache-2.0
#include "graph.hpp"

#include <algorithm>
#include <frt/error.hpp>
#include <frt/plugin.hpp>
#include <functional>
#include <queue>
#include <string>

#include "device.hpp"

namespace frt::cpu {

Program::Program(std::vector<std::unique_ptr<Node>> nodes) : nodes_(std::move(nodes)) {
  std::size_t bytes = 0;
  for (const auto& node : nodes_) bytes = std::max(bytes, node->scratch_bytes());
  scratch_.reserve(bytes);
}

frt_status Program::run(Pool& pool) noexcept {
  const std::lock_guard lock(running_);
  frt_status first = FRT_OK;
  for (const auto& node : nodes_) {
    node->run(pool, scratch_.data());
    const frt_status status = node->status();
    if (first == FRT_OK) first = status;
  }
  return first;
}

uint64_t Exec::node_count() const noexcept {
  uint64_t count = 0;
  for (const auto& program : programs_) count += program->node_count();
  return count;
}

frt_status Exec::run(uint64_t ticket, Pool& pool, SpinBudget spin) noexcept {
  turn_.wait(ticket, spin);
  frt_status first = FRT_OK;
  for (const auto& program : programs_) {
    const frt_status status = program->run(pool);
    if (first == FRT_OK) first = status;
  }
  turn_.publish(ticket + 1);
  return first;
}

// Kahn's algorithm with a smallest-index-first queue, so the order is the same every time.
std::unique_ptr<Exec> Exec::compose(Device& device, const frt_backend_node* nodes, uint32_t count) {
  if (count > 0 && !nodes) {
    throw Error(FRT_ERR_INVALID_ARGUMENT, "exec_compose: the node array is NULL");
  }
  std::vector<std::vector<uint32_t>> followers(count);
  std::vector<uint32_t> open(count, 0);  // predecessors not placed yet
  for (uint32_t i = 0; i < count; ++i) {
    const auto* exec = object<Exec>(nodes[i].exec);
    if (!exec || (nodes[i].after_count > 0 && !nodes[i].after)) {
      throw Error(FRT_ERR_INVALID_ARGUMENT,
                  "exec_compose: node " + std::to_string(i) + " has a NULL executable or list");
    }
    if (&exec->device_ != &device) {
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
      followers[before].push_back(i);
      ++open[i];
    }
  }
  std::priority_queue<uint32_t, std::vector<uint32_t>, std::greater<>> ready;
  for (uint32_t i = 0; i < count; ++i) {
    if (open[i] == 0) ready.push(i);
  }
  std::vector<std::shared_ptr<Program>> programs;
  uint32_t placed = 0;
  while (!ready.empty()) {
    const uint32_t i = ready.top();
    ready.pop();
    ++placed;
    const auto& parts = object<Exec>(nodes[i].exec)->programs_;
    programs.insert(programs.end(), parts.begin(), parts.end());
    for (const uint32_t follower : followers[i]) {
      if (--open[follower] == 0) ready.push(follower);
    }
  }
  if (placed != count) {
    throw Error(FRT_ERR_CYCLE, "exec_compose: the nodes wait for each other in a circle");
  }
  return std::make_unique<Exec>(device, std::move(programs));
}

}  // namespace frt::cpu
