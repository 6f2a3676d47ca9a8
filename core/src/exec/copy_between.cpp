// SPDX-License-Identifier: Apache-2.0
// Copies between two contexts. The first way that fits:
//
//   peer    device memory of one backend, which offers copy_peer: one submission
//   direct  the host addresses one side: the other side's backend takes it for host memory
//   staged  through a pinned block of two halves; one is filled while the other is emptied:
//
//     source  | fill 0 | fill 1  | fill 0  | ...
//     target           | empty 0 | empty 1 | ...
//
// Backends of different vendors share no event, so direct and staged copies wait on this thread:
// for both streams before the first byte, and for the last byte at the end.
#include <algorithm>

#include "exec/functions.hpp"
#include "exec/objects.hpp"

namespace frt::core {
namespace {

constexpr const char* kCall = "buffer_copy_between";
constexpr uint64_t kHalf = uint64_t{4} << 20;

struct Side {
  frt_buffer buffer;
  uint64_t offset;
  frt_stream stream;

  frt_context_s& context() const noexcept { return *buffer->context; }
  std::byte* pointer() const noexcept { return buffer->pointer + offset; }
  bool in_reach_of_host() const noexcept { return buffer->space != FRT_SPACE_DEVICE; }
};

void check_side(const Side& side, uint64_t bytes, const char* which) {
  frt_context_s& context = side.context();
  check(check_submission(context, side.stream, kCall), context.last_error);
  if (in_callback(context)) {
    throw Error(FRT_ERR_BAD_STATE,
                std::string(kCall) + " is not allowed inside a record callback; do it before");
  }
  check(check_range(context, *side.buffer, side.offset, bytes, kCall, which), context.last_error);
}

// Addresses of two devices may be equal and mean different memory.
bool one_address_range(const Side& a, const Side& b) noexcept {
  if (a.in_reach_of_host() && b.in_reach_of_host()) return true;
  const bool one_backend = a.context().backend.copy == b.context().backend.copy;
  return one_backend && a.context().device_info.ordinal == b.context().device_info.ordinal;
}

template <class Body>
void check_call(const Side& side, Body&& body) {
  check(call_backend(side.context(), kCall, body), side.context().last_error);
}

void wait(const Side& side) {
  check_call(side, [&] { return side.context().backend.stream_sync(side.stream->backend); });
  side.stream->busy = false;
}

void submit(const Side& side, const frt_backend_copy& copy) {
  side.stream->busy = true;
  check_call(side, [&] { return side.context().backend.copy(side.stream->backend, &copy, 1); });
}

// ---- one context ---------------------------------------------------------------------------

// Later work of `later` waits for what `earlier` holds.
void put_behind(const Side& later, const Side& earlier) {
  frt_context_s& context = later.context();
  if (!context.copy_order) {
    const std::string what = std::string(kCall) + ": an event to order two streams by";
    setup_backend(context, "event_create", what, [&](frt_error* reason) {
      return context.backend.event_create(context.device, 0, &context.copy_order, reason);
    });
    require_made(context, context.copy_order, "event_create", what);
  }
  earlier.stream->busy = later.stream->busy = true;
  check_call(earlier, [&] {
    return context.backend.event_record(context.copy_order, earlier.stream->backend);
  });
  check_call(later,
             [&] { return context.backend.event_wait(context.copy_order, later.stream->backend); });
}

void copy_in_context(const Side& target, const Side& source, uint64_t bytes) {
  const bool two_streams = target.stream != source.stream;
  if (two_streams) put_behind(target, source);
  check(exec::buffer_copy(target.buffer, target.offset, source.buffer, source.offset, bytes,
                          target.stream),
        target.context().last_error);
  if (two_streams) put_behind(source, target);
}

// ---- two contexts --------------------------------------------------------------------------

// A lost device is remembered by the context that it belongs to; the backend's code does not say
// which of the two it was.
bool is_lost(const Side& side) {
  const frt_context_s& context = side.context();
  return contain("backend '" + context.backend_id + "'", "stream_sync", [&] {
           return context.backend.stream_sync(side.stream->backend);
         }) == FRT_ERR_DEVICE_LOST;
}

[[noreturn]] void peer_failed(const Side& target, const Side& source, frt_status status) {
  const bool source_lost = status == FRT_ERR_DEVICE_LOST && is_lost(source);
  const bool target_lost = status == FRT_ERR_DEVICE_LOST && is_lost(target);
  if (source_lost && target_lost) backend_failed(target.context(), status, kCall);
  const Side& told = source_lost ? source : target;
  const Side& other = source_lost ? target : source;
  check(backend_failed(told.context(), status, kCall, &other.context()), told.context().last_error);
  throw Error(FRT_ERR_INTERNAL, kCall);  // check() has thrown
}

// False: the backend has no way between these two devices.
bool copy_peer(const Side& target, const Side& source, uint64_t bytes) {
  const auto peer = target.context().backend.copy_peer;
  if (!peer || peer != source.context().backend.copy_peer) return false;
  if (target.in_reach_of_host() || source.in_reach_of_host()) return false;
  target.stream->busy = source.stream->busy = true;
  const std::string sender = "backend '" + target.context().backend_id + "'";
  const frt_status status = contain(sender, "copy_peer", [&] {
    return peer(target.stream->backend, target.pointer(), source.stream->backend, source.pointer(),
                bytes);
  });
  if (status != FRT_OK && status != FRT_ERR_UNSUPPORTED) peer_failed(target, source, status);
  return status == FRT_OK;
}

// `mover`'s backend copies to or from the other side's memory, which the host addresses.
void copy_direct(const Side& target, const Side& source, const Side& mover, uint64_t bytes) {
  const auto space = [&](const Side& side) {
    return &side == &mover ? side.buffer->space : FRT_SPACE_HOST;
  };
  wait(target);
  wait(source);
  submit(mover, {target.pointer(), source.pointer(), bytes, space(target), space(source)});
  wait(mover);
}

// Two halves of pinned memory, of the device that gains by it.
frt_context_s& staging_owner(const Side& target, const Side& source) {
  const bool processor = (source.context().device_info.flags & FRT_DEVICE_PROCESSOR) != 0;
  frt_context_s& owner = processor ? target.context() : source.context();
  if (owner.staging) return owner;
  const std::string what = std::string(kCall) + ": " + std::to_string(2 * kHalf) +
                           " bytes of host-pinned memory of context '" + owner.name +
                           "' to copy through";
  void* pointer = nullptr;
  setup_backend(owner, "memory_alloc", what, [&](frt_error* reason) {
    return owner.backend.memory_alloc(owner.device, FRT_SPACE_HOST_PINNED, 2 * kHalf, &pointer,
                                      reason);
  });
  require_made(owner, pointer, "memory_alloc", what);
  owner.staging = static_cast<std::byte*>(pointer);
  bump(owner.buffer_bytes[FRT_SPACE_HOST_PINNED], 2 * kHalf);
  return owner;
}

void copy_staged(const Side& target, const Side& source, uint64_t bytes) {
  const frt_context_s& owner = staging_owner(target, source);
  const auto space = [&](const Side& side) {
    return &side.context() == &owner ? FRT_SPACE_HOST_PINNED : FRT_SPACE_HOST;
  };
  wait(target);
  for (uint64_t done = 0, half = 0; done < bytes; half ^= 1) {
    const uint64_t part = std::min(bytes - done, kHalf);
    std::byte* stage = owner.staging + half * kHalf;
    submit(source, {stage, source.pointer() + done, part, space(source), source.buffer->space});
    wait(source);
    wait(target);  // the other half is empty
    submit(target, {target.pointer() + done, stage, part, target.buffer->space, space(target)});
    done += part;
  }
  wait(target);
}

}  // namespace

void free_copy_resources(frt_context_s& context) noexcept {
  if (context.copy_order) {
    end_with_backend(context, "event_destroy",
                     [&] { context.backend.event_destroy(context.copy_order); });
  }
  if (!context.staging) return;
  end_with_backend(context, "memory_free", [&] {
    context.backend.memory_free(context.device, FRT_SPACE_HOST_PINNED, context.staging);
  });
}

namespace exec {

frt_status buffer_copy_between(frt_buffer target, uint64_t target_offset, frt_stream target_stream,
                               frt_buffer source, uint64_t source_offset, frt_stream source_stream,
                               uint64_t bytes, frt_error* error) noexcept {
  if (!target || !target_stream || !source || !source_stream) {
    return set_error(error, FRT_ERR_INVALID_ARGUMENT, "buffer_copy_between: a null argument");
  }
  const Side to{target, target_offset, target_stream}, from{source, source_offset, source_stream};
  const DriverScope target_scope(to.context()), source_scope(from.context());
  if (target_scope.clash() != FRT_OK || source_scope.clash() != FRT_OK) {
    return set_error(error, FRT_ERR_BAD_STATE,
                     "buffer_copy_between: another thread is inside one of the contexts; one at a "
                     "time may drive them");
  }
  return guard(error, [&] {
    check_side(to, bytes, "target");
    check_side(from, bytes, "source");
    if (bytes == 0) return;
    if (&to.context() == &from.context()) return copy_in_context(to, from, bytes);
    if (one_address_range(to, from) && overlap(to.pointer(), bytes, from.pointer(), bytes)) {
      throw Error(FRT_ERR_INVALID_ARGUMENT, std::string(kCall) + ": target '" + target->name +
                                                "' and source '" + source->name +
                                                "' overlap; copy through a third buffer");
    }
    if (copy_peer(to, from, bytes)) return;
    if (from.in_reach_of_host()) return copy_direct(to, from, to, bytes);
    if (to.in_reach_of_host()) return copy_direct(to, from, from, bytes);
    copy_staged(to, from, bytes);
  });
}

}  // namespace exec
}  // namespace frt::core
