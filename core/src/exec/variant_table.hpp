// SPDX-License-Identifier: Apache-2.0
// variant_table.hpp - the variants of one graph: found by exact key, ordered by last use.
//
// An open-addressing index (power of two, at most half full, linear probing, removal by shifting
// back) over variants that are linked from the most to the least recently used. find() looks at
// the most recent one first, which is the usual hit. Nothing but insert() allocates.
#pragma once

#include <frt/exec.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "exec/host_call.hpp"

namespace frt::core {

struct Variant {
  frt_shape_key key = 0;
  frt_backend_exec exec = nullptr;  // null in eager contexts, unless adopted
  frt_record_fn record = nullptr;   // eager contexts
  void* user = nullptr;
  uint64_t stream_mask = 0;         // streams it was used on
  std::vector<frt_buffer> buffers;  // copied or filled by the recipe, retained
  HostCalls calls;                  // host functions that the executable calls
  Variant* newer = nullptr;
  Variant* older = nullptr;
};

class VariantTable {
 public:
  VariantTable() = default;
  ~VariantTable();
  VariantTable(const VariantTable&) = delete;
  VariantTable& operator=(const VariantTable&) = delete;

  // Null if the key is missing.  [hot]
  Variant* find(frt_shape_key key) const noexcept {
    if (newest_ && newest_->key == key) return newest_;
    return probe(key);
  }

  // Makes it the most recently used.  [hot]
  void touch(Variant& variant) noexcept {
    if (newest_ != &variant) move_to_front(variant);
  }

  // Room for one more, so that the next insert cannot fail.  [setup]
  void reserve_one();
  // As the most recently used. The key is not there yet; reserve_one() was called.  [setup]
  Variant& insert(std::unique_ptr<Variant> variant) noexcept;
  // Hands it back.  [setup]
  std::unique_ptr<Variant> remove(Variant& variant) noexcept;

  Variant* newest() const noexcept { return newest_; }
  Variant* oldest() const noexcept { return oldest_; }
  uint32_t size() const noexcept { return size_.load(std::memory_order_relaxed); }  // [any]

 private:
  Variant* probe(frt_shape_key key) const noexcept;
  std::size_t home(frt_shape_key key) const noexcept {
    return static_cast<std::size_t>((key * 0x9E3779B97F4A7C15ull) >> shift_);
  }
  void place(Variant* variant) noexcept;
  void move_to_front(Variant& variant) noexcept;
  void link_front(Variant& variant) noexcept;
  void unlink(Variant& variant) noexcept;

  std::vector<Variant*> index_;
  uint32_t shift_ = 64;
  Variant* newest_ = nullptr;
  Variant* oldest_ = nullptr;
  std::atomic<uint32_t> size_{0};
};

}  // namespace frt::core
