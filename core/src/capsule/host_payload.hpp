// SPDX-License-Identifier: Apache-2.0
// host_payload.hpp - the payload of a capsule that the host addresses, as one sequence of bytes: to
// be read, saved and loaded where it lies. In host memory it is in the capsule's slabs. In shared
// memory it may be in pages of the arena, held by reference.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "capsule/capsule.hpp"

namespace frt::core {

class HostPayload {
 public:
  // The places of a capsule that has its memory. Throws FRT_ERR_UNSUPPORTED for device memory. The
  // capsule stays.  [any]
  explicit HostPayload(const frt_capsule_s& capsule);

  // Calls visit(std::byte* data, uint64_t bytes, uint64_t position) for the contiguous parts of
  // [offset, offset + bytes), which is inside the payload.  [any]
  template <class Visit>
  void for_each_part(uint64_t offset, uint64_t bytes, Visit&& visit) const {
    auto part = std::upper_bound(ends_.begin(), ends_.end(), offset) - ends_.begin();
    for (; bytes > 0; ++part) {
      const auto at = static_cast<std::size_t>(part);
      const uint64_t inside = offset - (ends_[at] - parts_[at].size());
      const uint64_t count = std::min<uint64_t>(bytes, parts_[at].size() - inside);
      visit(parts_[at].data() + inside, count, offset);
      offset += count;
      bytes -= count;
    }
  }

  std::span<const std::span<std::byte>> parts() const noexcept { return parts_; }

 private:
  void add(std::byte* data, uint64_t bytes);
  void add_slabs(const frt_capsule_s& capsule, uint64_t bytes);

  std::vector<std::span<std::byte>> parts_;  // none is empty
  std::vector<uint64_t> ends_;               // of each part, in the payload
};

// Throws FRT_ERR_NOT_READY unless the host may read the capsule.  [any]
void require_complete(const frt_capsule_s& capsule);

}  // namespace frt::core
