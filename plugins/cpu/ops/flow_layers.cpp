// SPDX-License-Identifier: Apache-2.0
// frt.flow_layers/1: the operators that it is composed of, one layer after the other.
#include <frt/flow_layers.hpp>
#include <frt/ops/checks/flow_layers.hpp>

#include <memory>
#include <utility>
#include <vector>

#include "dense.hpp"
#include "products/weight.hpp"
#include "registry.hpp"

namespace frt::cpu {
namespace {

std::unique_ptr<Node> prepare_flow_layers(Device& device, const frt_flow_layers_args& args) {
  check_flow_layers(Checks(FRT_OP_FLOW_LAYERS), args, kWeightFormats);
  std::vector<std::unique_ptr<Node>> nodes;
  for (int32_t i = 0; i < args.layer_count; ++i) {
    const FlowLayerParts parts(args, args.layers[i]);
    nodes.push_back(make_norm_qkv(device, parts.qkv));
    nodes.push_back(make_attention(device, parts.attention));
    nodes.push_back(make_dense(device, parts.output));
    nodes.push_back(make_norm_geglu(device, parts.geglu));
    nodes.push_back(make_dense(device, parts.down));
  }
  return std::make_unique<SequenceNode>(std::move(nodes));
}

}  // namespace

void register_flow_layers(KernelList& list) {
  list.add<frt_flow_layers_args>(FRT_OP_FLOW_LAYERS, kFloatTypes | FRT_DTYPE_BIT(FRT_DTYPE_F8_E4M3),
                                 kWeightFormats, prepare_flow_layers);
}

}  // namespace frt::cpu
