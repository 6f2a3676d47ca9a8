// SPDX-License-Identifier: Apache-2.0
// state_layout.hpp - what a slot of a Qwen3.6 model remembers beside the regions of any decoder
// (frt/lm/state_layout.hpp), at a boundary after n tokens:
//
//   layer.I.conv            the last width - 1 rows before the convolution, oldest first
//   layer.I.state           the delta net's S, f32 (value heads, key dim, value dim)
//   mtp.keys, mtp.values    rows 0 .. n-2: row i needs token i + 1
//   hidden                  the final normed row n-1, which waits for t_n
//   draft.hidden            the same, or the draft head's own row while drafting
#pragma once

#include <frt/lm/state_layout.hpp>
#include <frt/qwen36/config.hpp>
#include <vector>

namespace frt::qwen36 {

class StateLayout final : public lm::StateLayout {
 public:
  // `with_mtp`: the draft head's regions too.
  StateLayout(const Config& config, const lm::Precision& precision, std::int64_t max_context,
              bool with_mtp, std::int64_t page_rows = 0);
};

// Addresses in slot 0; slot s is `slot_stride` bytes per slot further.
struct DeltaState {
  void* conv = nullptr;
  void* delta = nullptr;
};
struct StateMap final : lm::StateMap {
  StateMap(const Config& config, const State& state, std::int64_t max_context, bool with_mtp);

  std::vector<DeltaState> delta;  // by layer; empty for attention layers
  lm::LayerState mtp;
  void* hidden = nullptr;
  void* draft_hidden = nullptr;
};

}  // namespace frt::qwen36
