// SPDX-License-Identifier: Apache-2.0
// The mixture-of-experts operators; frt.moe_block/1 as a list of nodes that share one scratch.
//
// The block joins what reads the same rows: the norm, the router and the shared expert's gate are
// one group node.
#include "moe.hpp"

#include <frt/ops/checks/moe.hpp>

#include <algorithm>
#include <utility>
#include <vector>

#include "../device.hpp"
#include "numbers.hpp"
#include "products/group.hpp"
#include "products/weight.hpp"
#include "registry.hpp"

namespace frt::cpu {
namespace {

class NodeList final : public Node {
 public:
  explicit NodeList(std::vector<std::unique_ptr<Node>> nodes) : nodes_(std::move(nodes)) {
    for (const auto& node : nodes_) bytes_ = std::max(bytes_, node->scratch_bytes());
  }
  std::size_t scratch_bytes() const noexcept override { return bytes_; }
  void run(Pool& pool, std::byte* scratch) noexcept override {
    for (const auto& node : nodes_) node->run(pool, scratch);
  }

 private:
  std::vector<std::unique_ptr<Node>> nodes_;
  std::size_t bytes_ = 0;
};

// Activations x of the block, `cols` wide.
Group plain_group(const frt_moe_block_args& args, const void* x, int64_t cols) {
  Group group;
  group.rows = args.rows;
  group.row_count = args.row_count;
  group.x_dtype = args.dtype;
  group.x = x;
  group.x_stride = cols;
  return group;
}

std::unique_ptr<Node> prepare_moe_block(Device& device, const frt_moe_block_args& args) {
  check_moe_block(Checks(FRT_OP_MOE_BLOCK), args, kWeightFormats);
  const int64_t inputs = args.router.cols;
  const int64_t width = args.shared_gate_weight.rows;
  std::vector<std::unique_ptr<Node>> nodes;

  Group first = plain_group(args, args.x, inputs);
  first.residual_dtype = args.residual_dtype;
  first.residual = args.residual;
  first.delta = args.delta;
  first.norm_weight = args.norm_weight;
  first.epsilon = args.epsilon;
  first.parts.push_back({args.router, FRT_DTYPE_F32, false, args.logits, args.experts});
  if (width > 0) {
    first.parts.push_back({args.shared_expert_gate, FRT_DTYPE_F32, false, args.shared_scale, 1});
  }
  nodes.push_back(make_group_node(device, std::move(first)));

  frt_moe_route_args route{};
  route.rows = args.rows;
  route.experts = args.experts;
  route.experts_per_token = args.experts_per_token;
  route.normalise = args.normalise;
  route.row_count = args.row_count;
  route.logits = args.logits;
  route.ids = args.ids;
  route.weights = args.weights;
  nodes.push_back(make_moe_route(device, route));

  frt_moe_experts_args experts{};
  experts.dtype = args.dtype;
  experts.rows = args.rows;
  experts.experts = args.experts;
  experts.experts_per_token = args.experts_per_token;
  experts.row_count = args.row_count;
  experts.x = args.x;
  experts.ids = args.ids;
  experts.weights = args.weights;
  experts.gate = args.gate;
  experts.up = args.up;
  experts.down = args.down;
  experts.y = args.y;
  nodes.push_back(make_moe_experts(device, experts));
  if (width == 0) return std::make_unique<NodeList>(std::move(nodes));

  Group gate_up = plain_group(args, args.x, inputs);
  gate_up.gated = true;
  gate_up.parts.push_back({args.shared_gate_weight, args.dtype, false, args.shared_hidden, width});
  gate_up.parts.push_back({args.shared_up_weight, args.dtype, false, nullptr, 0});
  nodes.push_back(make_group_node(device, std::move(gate_up)));

  Group down = plain_group(args, args.shared_hidden, width);
  down.parts.push_back({args.shared_down_weight, args.dtype, false, args.shared_y, inputs});
  nodes.push_back(make_group_node(device, std::move(down)));

  frt_moe_combine_args combine{};
  combine.dtype = args.dtype;
  combine.rows = args.rows;
  combine.width = args.router.cols;
  combine.row_count = args.row_count;
  combine.routed = args.y;
  combine.shared = args.shared_y;
  combine.gate = args.shared_scale;
  combine.y = args.y;
  nodes.push_back(make_moe_combine(device, combine));
  return std::make_unique<NodeList>(std::move(nodes));
}

std::unique_ptr<Node> prepare_moe_route(Device& device, const frt_moe_route_args& args) {
  check_moe_route(Checks(FRT_OP_MOE_ROUTE), args);
  return make_moe_route(device, args);
}

std::unique_ptr<Node> prepare_moe_experts(Device& device, const frt_moe_experts_args& args) {
  check_moe_experts(Checks(FRT_OP_MOE_EXPERTS), args, kWeightFormats);
  return make_moe_experts(device, args);
}

std::unique_ptr<Node> prepare_moe_combine(Device& device, const frt_moe_combine_args& args) {
  check_moe_combine(Checks(FRT_OP_MOE_COMBINE), args);
  return make_moe_combine(device, args);
}

}  // namespace

void register_moe(KernelList& list) {
  list.add<frt_moe_route_args>(FRT_OP_MOE_ROUTE, 0, {}, prepare_moe_route);
  list.add<frt_moe_experts_args>(FRT_OP_MOE_EXPERTS, kFloatTypes, kWeightFormats,
                                 prepare_moe_experts);
  list.add<frt_moe_combine_args>(FRT_OP_MOE_COMBINE, kFloatTypes, {}, prepare_moe_combine);
  list.add<frt_moe_block_args>(FRT_OP_MOE_BLOCK, kFloatTypes, kWeightFormats, prepare_moe_block);
}

}  // namespace frt::cpu
