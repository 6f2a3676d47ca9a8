// SPDX-License-Identifier: Apache-2.0
// The life of a capsule: made with its memory, filled once, read by any number of verbs, released.
//
// One event per capsule stands for all verbs with it: a verb first makes its stream wait for the
// event and then records it again, so that the last record is behind all of them.
#include "capsule/capsule.hpp"

#include "capsule/host_payload.hpp"
#include "capsule/payload.hpp"

namespace frt::core {

frt_space capsule_space(const frt_state_s& state, frt_space space, const char* call) {
  if (space >= FRT_SPACE_COUNT) {
    throw Error(FRT_ERR_UNSUPPORTED,
                std::string(call) + ": unknown space " + std::to_string(space));
  }
  if (space == FRT_SPACE_DEVICE) return state.space();
  if (space == FRT_SPACE_SHARED && state.space() != FRT_SPACE_SHARED) {
    throw Error(FRT_ERR_UNSUPPORTED, std::string(call) + ": state '" + state.name +
                                         "' is in device memory, which the processor does not "
                                         "share; use a host space");
  }
  return space;
}

bool holds_pages(const frt_state_s& state, frt_space space) noexcept {
  return state.pages && space == state.space();
}

void take_pages(frt_capsule_s& capsule, frt_stream stream) {
  frt_state_s& state = *capsule.state;
  std::vector<int32_t>& pages = capsule.held.pages;
  pages.resize(state.pages->count(capsule.boundary));
  const frt_status status = take_pages(state, pages, stream);
  if (status != FRT_OK) pages.clear();
  state.check(status);
}

CapsuleOwner make_capsule(frt_state_s& state, uint64_t boundary, frt_space space,
                          frt_stream stream) {
  CapsuleStore& store = *state.store;
  auto made = std::make_unique<frt_capsule_s>();
  made->space = space;
  made->boundary = boundary;
  made->bytes = payload_bytes(state, boundary);
  const bool by_reference = holds_pages(state, space);
  std::vector<int32_t> pages;
  if (by_reference) pages.reserve(state.pages->count(boundary));
  try {
    made->held = store.take(
        space, store.slabs_for(space, by_reference ? state.fixed_bytes : made->bytes), stream);
  } catch (const Error& error) {
    if (error.status() != FRT_ERR_OUT_OF_MEMORY) throw;
    throw Error(FRT_ERR_OUT_OF_MEMORY, "a capsule of " + std::to_string(made->bytes) +
                                           " bytes of state '" + state.name + "' in " +
                                           space_name(space) + " memory: " + error.what() +
                                           "; release capsules, or keep some in another space");
  }
  made->held.pages = std::move(pages);
  made->state = &state;
  ++state.references;
  return CapsuleOwner(made.release());
}

void destroy_capsule(frt_capsule capsule) noexcept {
  frt_state state = capsule->state;
  state->store->give_back(capsule->space, std::move(capsule->held));
  delete capsule;
  drop_state(state);
}

namespace capsules {

frt_status info(frt_capsule capsule, frt_capsule_info* info) noexcept {
  if (!capsule) return FRT_ERR_INVALID_ARGUMENT;
  frt_capsule_info full{};
  full.space = capsule->space;
  full.state = capsule->state;
  full.boundary = capsule->boundary;
  full.bytes = capsule->bytes;
  full.held_bytes = capsule->held.slabs.size() * capsule->state->store->slab_bytes(capsule->space);
  full.shared_bytes = capsule->held.pages.size() * capsule->state->page_stride;
  full.other_build = capsule->origin ? capsule->origin->difference.c_str() : nullptr;
  return fill(info, full);
}

frt_status query(frt_capsule capsule) noexcept {
  if (!capsule) return FRT_ERR_INVALID_ARGUMENT;
  if (capsule->last_stream) {
    const frt_status status = capsule->state->exec().event_query(capsule->held.event);
    if (status != FRT_OK) return status;
  }
  switch (capsule->filled.load(std::memory_order_acquire)) {
    case Filled::kSubmitted:
      capsule->filled.store(Filled::kComplete, std::memory_order_release);
      return FRT_OK;
    case Filled::kComplete:
      return FRT_OK;
    case Filled::kReading:
      return FRT_ERR_NOT_READY;
    case Filled::kBroken:
      break;
  }
  return call_failed(capsule->state->context, FRT_ERR_BAD_STATE,
                     "a capsule whose load failed can only be released");
}

frt_status sync(frt_capsule capsule) noexcept {
  if (!capsule) return FRT_ERR_INVALID_ARGUMENT;
  if (capsule->last_stream) {
    const frt_status status = capsule->state->exec().event_sync(capsule->held.event);
    if (status != FRT_OK) return status;
  }
  return query(capsule);
}

void release(frt_capsule capsule) noexcept {
  if (capsule) destroy_capsule(capsule);
}

frt_status read(frt_capsule capsule, frt_sink sink, void* user, frt_error* error) noexcept {
  if (!capsule || !sink) {
    return set_error(error, FRT_ERR_INVALID_ARGUMENT, "capsule read: a null argument");
  }
  return guard(error, [&] {
    const HostPayload payload(*capsule);
    require_complete(*capsule);
    for (const auto span : payload.parts()) {
      check(sink(user, span.data(), span.size()), "the receiver of a capsule's bytes");
    }
  });
}

}  // namespace capsules
}  // namespace frt::core
