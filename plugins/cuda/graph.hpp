// SPDX-License-Identifier: Apache-2.0
// graph.hpp - executables: recorded, composed of others, or adopted.
//
// An Exec keeps the CUDA graph it was instantiated from (composing needs it), and what its nodes
// refer to: scratch blocks, and the tasks of the host.
//
// What never overlaps:
//  - launches of one Exec: CUDA orders a launch behind the launches before it of the same
//    executable, on whatever streams ("only one instance of graphExec may be executing at a time",
//    cudaGraphLaunch);
//  - Execs recorded on one stream that use scratch memory: they share its pool (scratch.hpp).
//    Launches on different streams are ordered by an event. Inside a composition, parts that share
//    a pool and are not ordered yet get an edge; so do two nodes that run the same part.
#pragma once

#include <cuda_runtime_api.h>
#include <frt/backend.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "host_task.hpp"
#include "scratch.hpp"

namespace frt::cuda {

class Device;

// What a recording leaves for its executable to keep.
struct Kept {
  std::vector<std::shared_ptr<ScratchPool>> pools;
  std::vector<std::shared_ptr<Block>> blocks;
  std::vector<std::unique_ptr<HostTask>> tasks;
};

class Exec {
 public:
  // Instantiates `graph`, which the Exec owns from here on, also if that fails.  [setup]
  Exec(Device& device, cudaGraph_t graph, Kept kept);
  // Takes a foreign executable; `owned`: it is destroyed with this one.  [setup]
  Exec(Device& device, cudaGraphExec_t foreign, bool owned);
  ~Exec();
  Exec(const Exec&) = delete;
  Exec& operator=(const Exec&) = delete;

  Device& device() const noexcept { return device_; }
  cudaGraphExec_t native() const noexcept { return exec_; }
  const std::vector<std::shared_ptr<ScratchPool>>& pools() const noexcept { return kept_.pools; }
  // Nodes of the device, those of parts included; 0 for a foreign executable, which cannot be
  // asked.  [any]
  uint64_t node_count() const noexcept { return node_count_; }

  // One executable of child graphs. FRT_ERR_CYCLE, FRT_ERR_OUT_OF_RANGE, FRT_ERR_MISMATCH (another
  // device); FRT_ERR_UNSUPPORTED if a part is foreign: there is no graph to take from it.  [setup]
  static std::unique_ptr<Exec> compose(Device& device, const frt_backend_node* nodes,
                                       uint32_t count);

 private:
  Device& device_;
  cudaGraph_t graph_ = nullptr;  // null: foreign
  cudaGraphExec_t exec_ = nullptr;
  bool owned_ = true;
  uint64_t node_count_ = 0;
  Kept kept_;
};

}  // namespace frt::cuda
