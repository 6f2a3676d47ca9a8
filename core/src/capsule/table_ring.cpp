// SPDX-License-Identifier: Apache-2.0
#include "capsule/table_ring.hpp"

#include <cstring>

namespace frt::core {

void TableRing::create(const Context& context, uint32_t entries, const std::string& name) {
  place_bytes_ = uint64_t{entries} * sizeof(int32_t);
  buffer_ = context.alloc(FRT_SPACE_HOST_PINNED, kPlaces * place_bytes_, name);
  places_.resize(kPlaces);
  for (Place& place : places_) place.done = context.create_event();
}

frt_status TableRing::stage(std::span<const int32_t> entries, frt_copy& source) noexcept {
  if (staged_ == kPlaces) return FRT_ERR_OUT_OF_RANGE;
  Place& place = places_[next_];
  if (place.used) {
    const frt_exec_v1& exec = buffer_.table();
    const Event& done = places_[place.covered_by].done;
    frt_status status = exec.event_query(done);
    if (status == FRT_ERR_NOT_READY) status = exec.event_sync(done);
    if (status != FRT_OK) return status;
  }
  place.used = false;
  source.source = buffer_;
  source.source_offset = next_ * place_bytes_;
  source.bytes = entries.size_bytes();
  std::memcpy(buffer_.pointer<std::byte>() + source.source_offset, entries.data(),
              entries.size_bytes());
  next_ = (next_ + 1) % kPlaces;
  ++staged_;
  return FRT_OK;
}

frt_status TableRing::submitted(frt_stream stream) noexcept {
  if (staged_ == 0) return FRT_OK;
  const uint32_t last = (next_ + kPlaces - 1) % kPlaces;
  for (; staged_ > 0; --staged_) {
    Place& place = places_[(next_ + kPlaces - staged_) % kPlaces];
    place.covered_by = last;
    place.used = true;
  }
  return buffer_.table().event_record(places_[last].done, stream);
}

}  // namespace frt::core
