// SPDX-License-Identifier: Apache-2.0
#include "capsule/host_payload.hpp"

#include "capsule/payload.hpp"
#include "exec/objects.hpp"

namespace frt::core {

HostPayload::HostPayload(const frt_capsule_s& capsule) {
  const frt_state_s& state = *capsule.state;
  if (capsule.space == FRT_SPACE_DEVICE) {
    throw Error(FRT_ERR_UNSUPPORTED,
                "the capsule of state '" + state.name +
                    "' is in device memory; copy it to a host space and use that one");
  }
  const std::vector<int32_t>& blocks = capsule.held.blocks;
  if (blocks.empty()) {
    add_pieces(capsule, capsule.bytes);
    return;
  }
  for_each_run(state, capsule.boundary, [&](const Run& run) {
    if (run.block == Run::kFixed) return add_pieces(capsule, run.bytes);
    const uint64_t block = static_cast<uint64_t>(blocks[run.block]) * state.block_stride;
    add(state.buffer->pointer + state.pool_offset + block + run.offset, run.bytes);
  });
}

void HostPayload::add(std::byte* data, uint64_t bytes) {
  parts_.emplace_back(data, bytes);
  ends_.push_back((ends_.empty() ? 0 : ends_.back()) + bytes);
}

void HostPayload::add_pieces(const frt_capsule_s& capsule, uint64_t bytes) {
  for (frt_buffer piece : capsule.held.pieces) {
    const uint64_t part = std::min(bytes, piece->bytes);
    if (part) add(piece->pointer, part);
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
