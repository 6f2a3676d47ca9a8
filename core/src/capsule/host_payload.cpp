// SPDX-License-Identifier: Apache-2.0
#include "capsule/host_payload.hpp"

#include "capsule/payload.hpp"

namespace frt::core {

HostPayload::HostPayload(const frt_capsule_s& capsule) {
  const frt_state_s& state = *capsule.state;
  if (capsule.space == FRT_SPACE_DEVICE) {
    throw Error(FRT_ERR_UNSUPPORTED,
                "the capsule of state '" + state.name +
                    "' is in device memory; copy it to a host space and use that one");
  }
  const std::vector<int32_t>& pages = capsule.held.pages;
  if (pages.empty()) {
    add_slabs(capsule, capsule.bytes);
    return;
  }
  for_each_run(state, capsule.boundary, [&](const Run& run) {
    if (run.page == Run::kFixed) return add_slabs(capsule, run.bytes);
    const uint64_t at = page_offset(state, pages[run.page]) + run.offset;
    add(state.buffer.pointer<std::byte>() + at, run.bytes);
  });
}

void HostPayload::add(std::byte* data, uint64_t bytes) {
  parts_.emplace_back(data, bytes);
  ends_.push_back((ends_.empty() ? 0 : ends_.back()) + bytes);
}

void HostPayload::add_slabs(const frt_capsule_s& capsule, uint64_t bytes) {
  const uint64_t slab_bytes = capsule.state->store->slab_bytes(capsule.space);
  for (const Slab& slab : capsule.held.slabs) {
    const uint64_t part = std::min(bytes, slab_bytes);
    if (part) add(slab.pointer, part);
    bytes -= part;
  }
}

void require_complete(const frt_capsule_s& capsule) {
  const Filled filled = capsule.filled.load(std::memory_order_acquire);
  if (filled == Filled::kComplete) return;
  throw Error(FRT_ERR_NOT_READY,
              "the capsule of state '" + capsule.state->name +
                  (filled == Filled::kSubmitted ? "' is still being filled; wait for it"
                                                : "' was not loaded to its end"));
}

}  // namespace frt::core
