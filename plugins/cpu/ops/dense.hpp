// SPDX-License-Identifier: Apache-2.0
// dense.hpp - what operators with a norm or a product inside share: nodes, one after another.
#pragma once

#include <frt/ops/dense.h>
#include <frt/ops/dense_attention.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "../device.hpp"
#include "../node.hpp"

namespace frt::cpu {

// Nodes of operators that are also parts of others; arguments are checked already.  [setup]
std::unique_ptr<Node> make_dense(Device& device, const frt_dense_args& args);
std::unique_ptr<Node> make_norm_dense(Device& device, const frt_norm_dense_args& args);
std::unique_ptr<Node> make_norm_geglu(Device& device, const frt_norm_geglu_args& args);
std::unique_ptr<Node> make_rope(const frt_rope_args& args);
std::unique_ptr<Node> make_norm_qkv(Device& device, const frt_norm_qkv_args& args);
std::unique_ptr<Node> make_attention(Device& device, const frt_dense_attention_args& args);

// Fused operators that need no more than their parts, in order.
class SequenceNode final : public Node {
 public:
  explicit SequenceNode(std::vector<std::unique_ptr<Node>> nodes) : nodes_(std::move(nodes)) {}
  std::size_t scratch_bytes() const noexcept override {
    std::size_t bytes = 0;
    for (const auto& node : nodes_) bytes = std::max(bytes, node->scratch_bytes());
    return bytes;
  }
  void run(Pool& pool, std::byte* scratch) noexcept override {
    for (const auto& node : nodes_) node->run(pool, scratch);
  }

 private:
  std::vector<std::unique_ptr<Node>> nodes_;
};

template <class... Nodes>
std::unique_ptr<Node> make_sequence(Nodes... nodes) {
  std::vector<std::unique_ptr<Node>> list;
  (list.push_back(std::move(nodes)), ...);
  return std::make_unique<SequenceNode>(std::move(list));
}

}  // namespace frt::cpu
