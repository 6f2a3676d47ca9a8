// SPDX-License-Identifier: Apache-2.0
// table_ring.hpp - changed entries of the page table on their way to the device.
//
// A copy to the device reads its source when its turn comes, and a slot's entries may have changed
// again by then. So every change is written to a place of its own in a ring of pinned memory, which
// is used again when the copy is known to be done. Only a caller that is kPlaces changes ahead of
// the device waits.
#pragma once

#include <cstdint>
#include <frt/exec.hpp>
#include <span>
#include <string>
#include <vector>

namespace frt::core {

class TableRing {
 public:
  static constexpr uint32_t kPlaces = 64;

  // `entries`: the most of one change.  [setup]
  void create(const Context& context, uint32_t entries, const std::string& name);

  // Puts a change into the next place: `source` gets buffer, offset and bytes of it (the members
  // source, source_offset, bytes). FRT_ERR_OUT_OF_RANGE: kPlaces are staged and not submitted.
  // [hot]
  frt_status stage(std::span<const int32_t> entries, frt_copy& source) noexcept;
  // The copies of what was staged since the last call are submitted to `stream`.  [hot]
  frt_status submitted(frt_stream stream) noexcept;
  // They are not submitted after all.  [hot]
  void withdraw() noexcept { staged_ = 0; }

 private:
  struct Place {
    Event done;
    uint32_t covered_by = 0;  // the place whose event says that this one's copy is done
    bool used = false;
  };

  Buffer buffer_;
  uint64_t place_bytes_ = 0;
  std::vector<Place> places_;
  uint32_t next_ = 0;    // place
  uint32_t staged_ = 0;  // places before `next_` that no event covers yet
};

}  // namespace frt::core
