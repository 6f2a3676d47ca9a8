// SPDX-License-Identifier: Apache-2.0
// frt/lm/state_layout.hpp - everything a slot remembers, as regions of the state arena, and where
// the operators find them.
//
// At a boundary after n tokens (t_0 .. t_{n-1} fed, t_n sampled but not fed):
//
//   pending                 t_n
//   counts                  which tokens the present request's prompt has, and how often it
//                           generated each (frt/ops/sample.h), for penalties
//   layer.I.keys, .values   rows 0 .. n-1 of an attention layer
//
// An architecture with more state adds its regions. A restored slot continues bit for bit.
//
// Rows lie in pages (frt/capsule.h), so that slots and capsules share those of a prefix. With
// page_rows = 0 they lie slot by slot.
#pragma once

#include <frt/capsule.h>
#include <frt/ops/attention.h>

#include <cstdint>
#include <frt/capsule_layout.hpp>
#include <frt/exec.hpp>
#include <frt/lm/config.hpp>
#include <string>
#include <vector>

#include <frt/lm/precision.hpp>

namespace frt::lm {

// The regions.
class StateLayout {
 public:
  // Adds `pending` and `counts`.
  StateLayout(const Config& config, std::int64_t max_context, std::int64_t page_rows);
  virtual ~StateLayout() = default;

  // Keys and values of attention layer `layer`.
  void add_attention(std::size_t layer, const Config& config, const Precision& precision);

  const frt_capsule_layout& table() const noexcept { return layout_.table(); }
  std::uint64_t fixed_bytes() const noexcept { return fixed_bytes_; }  // of a slot, without padding
  std::uint64_t row_bytes() const noexcept { return row_bytes_; }      // of all rows of a position
  // What one step reads and writes of a slot whatever its position.
  std::uint64_t step_bytes() const noexcept { return step_bytes_; }
  // Of the arena, spare pages included.
  std::uint64_t arena_bytes(std::int64_t slots) const noexcept;
  std::uint64_t page_bytes() const noexcept;  // 0: no pages
  std::int64_t slot_pages() const noexcept;
  void set_spare_pages(std::int64_t count) noexcept;
  // Without max_context: what a capsule depends on.
  std::string canonical_text() const { return layout_.canonical_text(); }

 protected:
  void add_fixed(std::string name, frt_dtype dtype, std::uint64_t bytes);
  void add_rows(std::string name, frt_dtype dtype, std::uint64_t row_bytes, std::int64_t lag = 0);
  void count_step(std::uint64_t bytes) noexcept { step_bytes_ += bytes; }

 private:
  std::int64_t max_context_;
  CapsuleLayout layout_;
  std::uint64_t fixed_bytes_ = 0;
  std::uint64_t row_bytes_ = 0;
  std::uint64_t step_bytes_ = 0;
};

// Addresses in slot 0, of keys and values in page 0 where there are pages; slot s is
// `slot_stride` bytes per slot further.
struct LayerState {
  void* keys = nullptr;
  void* values = nullptr;
};
struct StateMap {
  // Without keys and values of layers.
  StateMap(const State& state, std::int64_t max_context);
  virtual ~StateMap() = default;

  std::int64_t slot_stride = 0;
  frt_page_table pages{};
  std::int64_t max_rows = 0;
  void* pending = nullptr;
  void* counts = nullptr;
  std::vector<LayerState> layers;
};

// Where the region `name` begins, in slot 0 or page 0.
void* region_address(const State& state, const std::string& name);
// Keys and values of an attention layer.
LayerState attention_state(const State& state, std::size_t layer);

// "layer.3.keys"
std::string layer_region(std::size_t layer, const char* what);

}  // namespace frt::lm
