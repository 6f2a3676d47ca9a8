// SPDX-License-Identifier: Apache-2.0
#include "capsule/table_ring.hpp"

#include <cstring>
#include <frt/error.hpp>

#include "exec/functions.hpp"
#include "exec/objects.hpp"

namespace frt::core {

TableRing::~TableRing() {
  for (const Place& place : places_) exec::event_release(place.done);
  exec::buffer_release(buffer_);
}

void TableRing::create(frt_context context, uint32_t entries, const std::string& name) {
  place_bytes_ = uint64_t{entries} * sizeof(int32_t);
  frt_error error{};
  check(exec::buffer_alloc(context, FRT_SPACE_HOST_PINNED, kPlaces * place_bytes_, name.c_str(),
                           &buffer_, &error),
        error);
  places_.resize(kPlaces);
  for (Place& place : places_) check(exec::event_create(context, 0, &place.done, &error), error);
}

frt_status TableRing::stage(std::span<const int32_t> entries, frt_copy& source) noexcept {
  if (staged_ == kPlaces) return FRT_ERR_OUT_OF_RANGE;
  Place& place = places_[next_];
  if (place.used) {
    const frt_event done = places_[place.covered_by].done;
    frt_status status = exec::event_query(done);
    if (status == FRT_ERR_NOT_READY) status = exec::event_sync(done);
    if (status != FRT_OK) return status;
  }
  place.used = false;
  source.source = buffer_;
  source.source_offset = next_ * place_bytes_;
  source.bytes = entries.size_bytes();
  std::memcpy(buffer_->pointer + source.source_offset, entries.data(), entries.size_bytes());
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
  return exec::event_record(places_[last].done, stream);
}

}  // namespace frt::core
