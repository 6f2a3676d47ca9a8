// SPDX-License-Identifier: Apache-2.0
// graph.hpp - recorded node sequences and the executables made of them.
//
// A Recording collects what a capturing stream is given. capture_end turns it into a Program: the
// nodes in order and ONE block of scratch, as large as the largest node wants. An Exec is what the
// host launches: one Program, or, composed, several in an order that respects their dependencies.
// Programs are shared, never copied.
//
// Nodes own buffers and scratch that only one thread may use at a time, so
//  - launches of one Exec run in the order in which they were submitted, on whatever streams: each
//    takes a ticket at launch, and the stream's thread waits for its turn;
//  - a Program that is part of several Execs runs in one of them at a time (a mutex that only
//    stream threads take, and only while they run nodes, so it cannot close a circle).
#pragma once

#include <frt/backend.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "counter.hpp"
#include "memory.hpp"
#include "node.hpp"

namespace frt::cpu {

class Device;

// What a capturing stream has been given so far.
class Recording {
 public:
  void add(std::unique_ptr<Node> node) { nodes_.push_back(std::move(node)); }
  // Marks the capture as failed; the first reason is kept.  [driver]
  void fail(const char* reason) noexcept {
    if (!failure_) failure_ = reason;
  }
  const char* failure() const noexcept { return failure_; }
  std::vector<std::unique_ptr<Node>> take_nodes() noexcept { return std::move(nodes_); }

 private:
  std::vector<std::unique_ptr<Node>> nodes_;
  const char* failure_ = nullptr;  // static text
};

class Program {
 public:
  // FRT_ERR_OUT_OF_MEMORY if the scratch cannot be had.  [setup]
  explicit Program(std::vector<std::unique_ptr<Node>> nodes);

  // Runs all nodes; the first error one of them reports. On a stream's thread.  [hot]
  frt_status run(Pool& pool) noexcept;
  uint64_t node_count() const noexcept { return nodes_.size(); }

 private:
  std::vector<std::unique_ptr<Node>> nodes_;
  Scratch scratch_;
  std::mutex running_;
};

class Exec {
 public:
  Exec(Device& device, std::vector<std::shared_ptr<Program>> programs)
      : device_(device), programs_(std::move(programs)) {}

  Device& device() const noexcept { return device_; }
  uint64_t node_count() const noexcept;

  // The place of a launch among all launches of this Exec.  [hot]
  uint64_t take_ticket() noexcept { return tickets_.fetch_add(1, std::memory_order_relaxed); }
  // Waits for the turn of `ticket`, runs, and passes the turn on. On a stream's thread.  [hot]
  frt_status run(uint64_t ticket, Pool& pool, SpinBudget spin) noexcept;

  // One Exec that runs `nodes` in an order that respects `after`, ties by index.
  // FRT_ERR_CYCLE, FRT_ERR_OUT_OF_RANGE, FRT_ERR_MISMATCH (another device).  [setup]
  static std::unique_ptr<Exec> compose(Device& device, const frt_backend_node* nodes,
                                       uint32_t count);

 private:
  Device& device_;
  std::vector<std::shared_ptr<Program>> programs_;
  alignas(64) std::atomic<uint64_t> tickets_{0};  // a cache line of the launching thread
  Counter turn_;                                  // the ticket that may run
};

}  // namespace frt::cpu
