// SPDX-License-Identifier: Apache-2.0
// The layers of an expert as one kernel, on the host: whether they fit, how many clusters run.
#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "../../common/exchange.hpp"
#include "../../common/launch.cuh"
#include "../layers.hpp"
#include "layers_plan.hpp"

namespace frt::cuda {
namespace {

// Clusters that run at the same time.
int clusters_at_once(Device& device, const FlowKernel& kernel, std::size_t shared_bytes) {
  static std::mutex mutex;
  static std::map<std::pair<int, void (*)(FlowArgs)>, int> known;
  const std::lock_guard lock(mutex);
  const std::pair key(device.ordinal(), kernel.function);
  if (const auto place = known.find(key); place != known.end()) return place->second;
  raise_shared_limit(device, kernel.function, shared_bytes);
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim.x = kFlowCluster;
  attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(kFlowCluster);
  config.blockDim = dim3(kFlowBlockThreads);
  config.dynamicSmemBytes = shared_bytes;
  config.attrs = &attribute;
  config.numAttrs = 1;
  int clusters = 0;
  device.check(cudaOccupancyMaxActiveClusters(&clusters, kernel.function, &config),
               "layers of a flow expert: clusters");
  return known[key] = clusters;
}

struct LayersPlan {
  FlowKernel kernel;
  int clusters, rest;  // bytes of shared memory beside the ring
};

// False: these shapes, types and formats are not for it.
bool plan_layers(Device& device, FlowLayersCall& args, LayersPlan& plan) {
  if (!flow_fits(args)) return false;
  const bool fp8 = flow_fp8(args);
  const int rows = flow_rows(args) + (fp8 ? 0 : flow_shifts(args));
  if (rows > (fp8 ? 56 : 104)) return false;
  plan.kernel = rows <= 24   ? flow_kernel_24(fp8)
                : rows <= 56 ? flow_kernel_56(fp8)
                             : flow_kernel_104();
  const auto shared_bytes = static_cast<std::size_t>(device.properties().shared_bytes_block);
  const int tiles = static_cast<int>(ceil_div(args.width, kFlowOutputs));
  const int64_t most = ceil_div(2 * args.hidden, kFlowOutputs);
  plan.clusters =
      std::min(clusters_at_once(device, plan.kernel, shared_bytes),
               static_cast<int>(std::max(ceil_div(most, kFlowCluster), int64_t{tiles})));
  if (plan.clusters == 0 || ceil_div(tiles, plan.clusters) > kFlowPieces) return false;
  plan.rest =
      plan.kernel.area + plan.kernel.shared_bytes(static_cast<int>(ceil_div(tiles, plan.clusters)));
  return true;
}

}  // namespace

bool supports_flow_layers_fused(Device& device, FlowLayersCall& args) {
  LayersPlan plan;
  return plan_layers(device, args, plan);
}

void launch_flow_layers_fused(Stream& stream, FlowLayersCall& args) {
  Device& device = stream.device();
  LayersPlan plan;
  plan_layers(device, args, plan);
  const auto& [kernel, clusters, rest] = plan;
  const int shared_bytes = device.properties().shared_bytes_block;
  const auto made = std::make_unique<FlowArgs>();
  const int blocks = clusters * kFlowCluster;
  void* scratch = stream.scratch(flow_scratch(args, kernel, blocks).bytes);
  flow_fill(*made, args, kernel, blocks, scratch, work_counters(stream),
            [&](const BoxedTensor& boxes) {
              return make_boxed_tensor_map(device, boxes, "layers of a flow expert");
            });
  made->stages = std::min(kFlowMostStages, (shared_bytes - rest) / kFlowUnitBytes);
  const Grid grid{dim3(static_cast<unsigned>(blocks)), dim3(kFlowBlockThreads),
                  static_cast<std::size_t>(made->stages * kFlowUnitBytes + rest), kFlowCluster};
  // All blocks are there at once, or none is.
  const CoResidentLaunch co_resident(&stream);
  launch(stream, grid, kernel.function, *made);
}

}  // namespace frt::cuda
