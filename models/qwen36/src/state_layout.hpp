// SPDX-License-Identifier: Apache-2.0
// state_layout.hpp - everything a slot remembers, as regions of the state arena, and where the
// operators find them.
//
// At a boundary after n tokens (t_0 .. t_{n-1} fed, t_n sampled but not fed):
//
//   pending                 t_n
//   counts                  which tokens the present request's prompt has, and how often it
//                           generated each (frt/ops/sample.h), for penalties
//   layer.I.conv            the last width - 1 rows before the convolution, oldest first
//   layer.I.state           the delta net's S, f32 (value heads, key dim, value dim)
//   layer.I.keys, .values   rows 0 .. n-1
//   mtp.keys, mtp.values    rows 0 .. n-2: row i needs token i + 1
//   hidden                  the final normed row n-1, which waits for t_n
//   draft.hidden            the same, or the draft head's own row while drafting
//
// That is all: a restored slot continues bit for bit.
//
// Rows lie in row blocks (frt/capsule.h), so that slots and capsules share those of a prefix. With
// block_rows = 0 they lie slot by slot.
#pragma once

#include <frt/capsule.h>
#include <frt/ops/attention.h>

#include <cstdint>
#include <frt/capsule_layout.hpp>
#include <frt/exec.hpp>
#include <frt/qwen36/config.hpp>
#include <string>
#include <vector>

#include "precision.hpp"

namespace frt::qwen36 {

// The regions.
class StateLayout {
 public:
  // `with_mtp`: the draft head's regions too.
  StateLayout(const Config& config, const Precision& precision, std::int64_t max_context,
              bool with_mtp, std::int64_t block_rows = 0);

  const frt_capsule_layout& table() const noexcept { return layout_.table(); }
  std::uint64_t fixed_bytes() const noexcept { return fixed_bytes_; }  // of a slot, without padding
  std::uint64_t row_bytes() const noexcept { return row_bytes_; }      // of all rows of a position
  // What one step reads and writes of S and the windows.
  std::uint64_t step_bytes() const noexcept { return step_bytes_; }
  // Of the arena, spare blocks included.
  std::uint64_t arena_bytes(std::int64_t slots) const noexcept;
  std::uint64_t block_bytes() const noexcept;  // 0: no blocks
  std::int64_t slot_blocks() const noexcept;
  void set_spare_blocks(std::int64_t count) noexcept;
  // Without max_context: what a capsule depends on.
  std::string canonical_text() const { return layout_.canonical_text(); }

 private:
  void add_fixed(std::string name, frt_dtype dtype, std::uint64_t bytes);
  void add_rows(std::string name, frt_dtype dtype, std::uint64_t row_bytes, std::int64_t lag = 0);

  std::int64_t max_context_;
  CapsuleLayout layout_;
  std::uint64_t fixed_bytes_ = 0;
  std::uint64_t row_bytes_ = 0;
  std::uint64_t step_bytes_ = 0;
};

// Addresses in slot 0, of keys and values in block 0 where there are blocks; slot s is
// `slot_stride` bytes per slot further.
struct LayerState {
  void* conv = nullptr;
  void* delta = nullptr;
  void* keys = nullptr;
  void* values = nullptr;
};
struct StateMap {
  std::int64_t slot_stride = 0;
  frt_row_blocks blocks{};
  std::int64_t max_rows = 0;
  void* pending = nullptr;
  void* counts = nullptr;
  std::vector<LayerState> layers;
  LayerState mtp;
  void* hidden = nullptr;
  void* draft_hidden = nullptr;
};
StateMap map_state(const Config& config, const State& state, std::int64_t max_context,
                   bool with_mtp);

}  // namespace frt::qwen36
