// SPDX-License-Identifier: Apache-2.0
#include "registry.hpp"

namespace frt::cpu {

void register_operators(KernelList& list) {
  register_attention(list);
  register_causal_conv(list);
  register_checksum(list);
  register_embed(list);
  register_gated_delta(list);
  register_norm(list);
  register_rows(list);
  register_sample(list);
  register_tokens(list);
}

}  // namespace frt::cpu
