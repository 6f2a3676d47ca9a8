// SPDX-License-Identifier: Apache-2.0
// frt.flow_layers/1: the layers of a flow expert. Every shape, type and format can run as the
// operators that a layer is composed of, eight kernels for each; some run as the one kernel of
// flow/sm90/layers_fused.cu.
#include <frt/flow_layers.hpp>
#include <frt/ops/checks/flow_layers.hpp>

#include "../common/call.hpp"
#include "../common/weight.hpp"
#include "../registry.hpp"
#include "layers.hpp"

namespace frt::cuda {
namespace {

void launch_composed(Stream& stream, FlowLayersCall& args) {
  for (int32_t i = 0; i < args.layer_count; ++i) {
    const FlowLayerParts parts(args, args.layers[i]);
    run_operator(stream, FRT_OP_NORM_QKV, parts.qkv);
    run_operator(stream, FRT_OP_DENSE_ATTENTION, parts.attention);
    run_operator(stream, FRT_OP_DENSE, parts.output);
    run_operator(stream, FRT_OP_NORM_GEGLU, parts.geglu);
    run_operator(stream, FRT_OP_DENSE, parts.down);
  }
}

constexpr Variant<FlowLayersCall> kLayersVariants[] = {
    {"fused",
     {feature::kWgmma | feature::kClusters | feature::kBulkCopies | feature::kCoResident},
     supports_flow_layers_fused,
     launch_flow_layers_fused},
    {"composed", {}, nullptr, launch_composed},
};
constexpr Variants<FlowLayersCall> kLayersTable{FRT_OP_FLOW_LAYERS, kLayersVariants};

void flow_layers(Stream& stream, const frt_flow_layers_args& args) {
  check_flow_layers(Checks(FRT_OP_FLOW_LAYERS), args, kWeightFormats);
  run_variant(stream, kLayersTable, args);
}

}  // namespace

void register_flow_layers(KernelList& list) {
  list.add<frt_flow_layers_args>(FRT_OP_FLOW_LAYERS, kFloatTypes | FRT_DTYPE_BIT(FRT_DTYPE_F8_E4M3),
                                 kWeightFormats, flow_layers);
  list.add_variants(kLayersTable);
}

}  // namespace frt::cuda
