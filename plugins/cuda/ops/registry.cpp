// SPDX-License-Identifier: Apache-2.0
#include "registry.hpp"

#include "../small_copies.hpp"

namespace frt::cuda {

void register_operators(KernelList& list) {
  register_attention(list);
  register_causal_conv(list);
  register_checksum(list);
  register_convert(list);
  register_dense(list);
  register_dense_attention(list);
  register_elementwise(list);
  register_embed(list);
  register_fill(list);
  register_flow(list);
  register_flow_layers(list);
  register_gated_delta(list);
  register_gated_delta_commit(list);
  register_linear(list);
  register_moe(list);
  register_norm(list);
  register_patch_embed(list);
  register_row_norm(list);
  register_rows(list);
  register_sample(list);
  register_small_copies(list.device());
  register_tokens(list);
}

}  // namespace frt::cuda
