// SPDX-License-Identifier: Apache-2.0
// Streams and events.
//
// A stream of the user may outlive his handle while a plan holds it; it leaves the context's list,
// and frees its mask bit, when the count is zero.
#include <algorithm>
#include <frt/flags.hpp>

#include "exec/functions.hpp"
#include "exec/objects.hpp"

namespace frt::core {
namespace {

// A bit that no stream has yet, or the shared one.
uint64_t free_bit(const frt_context_s& context) {
  uint64_t taken = 0;
  for (const frt_stream stream : context.streams) taken |= stream->bit;
  for (uint32_t i = 0; i < kSharedStreamBit; ++i) {
    if (!(taken >> i & 1)) return uint64_t{1} << i;
  }
  return uint64_t{1} << kSharedStreamBit;
}

// Lists a stream that `open` makes on the backend.
template <class Open>
frt_stream_s& add_stream(frt_context_s& context, const char* name, const char* call, Open&& open) {
  auto made = std::make_unique<frt_stream_s>();
  made->context = &context;
  made->name = name ? name : "";
  made->bit = free_bit(context);
  context.streams.reserve(context.streams.size() + 1);
  const std::string what = "stream '" + made->name + "'";
  setup_backend(context, call, what,
                [&](frt_error* reason) { return open(&made->backend, reason); });
  require_made(context, made->backend, call, what);
  context.streams.push_back(made.get());
  return *made.release();
}

frt_status refuse_in_callback(frt_context_s& context, const char* call) noexcept {
  return fail(context, FRT_ERR_BAD_STATE, "%s: not allowed inside a record callback", call);
}

// A [driver] call that waits.
template <class Wait>
frt_status wait(frt_context_s& context, const char* call, Wait&& body) noexcept {
  DriverScope scope(context);
  if (frt_status status = scope.clash(); status != FRT_OK) return status;
  if (context.lost) return device_lost(context, call);
  if (in_callback(context)) return refuse_in_callback(context, call);
  return call_backend(context, call, body);
}

// A [hot] call that connects an event with a stream.
template <class Submit>
frt_status connect(frt_event event, frt_stream stream, const char* call, Submit&& body) noexcept {
  if (!event || !stream) return FRT_ERR_INVALID_ARGUMENT;
  frt_context_s& context = *event->context;
  DriverScope scope(context);
  if (frt_status status = scope.clash(); status != FRT_OK) return status;
  if (frt_status status = check_submission(context, stream, call); status != FRT_OK) return status;
  if (in_callback(context)) return refuse_in_callback(context, call);
  event->stream_mask |= stream->bit;
  stream->busy = true;
  return call_backend(context, call, [&] { return body(context.backend); });
}

void release_stream(void* handle) noexcept {
  auto* stream = static_cast<frt_stream>(handle);
  frt_context_s& context = *stream->context;
  stream->busy = true;  // whatever was submitted past this table counts too
  wait_for_streams(context, stream->bit);
  --context.user_streams;
  drop_stream(stream);
}

void release_event(void* handle) noexcept {
  auto* event = static_cast<frt_event>(handle);
  frt_context_s& context = *event->context;
  wait_for_streams(context, event->stream_mask);
  end_with_backend(context, "event_destroy",
                   [&] { context.backend.event_destroy(event->backend); });
  --context.events;
  delete event;
}

}  // namespace

void retain(frt_stream_s& stream) noexcept {
  stream.references.fetch_add(1, std::memory_order_relaxed);
}

void drop_stream(frt_stream stream) noexcept {
  if (stream->references.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  frt_context_s& context = *stream->context;
  wait_for_streams(context, stream->bit);
  end_with_backend(context, "stream_destroy",
                   [&] { context.backend.stream_destroy(stream->backend); });
  std::erase(context.streams, stream);
  delete stream;
}

frt_stream_s& internal_stream(frt_context_s& context) {
  if (!context.internal) {
    context.internal = &add_stream(
        context, "internal", "stream_create", [&](frt_backend_stream* backend, frt_error* reason) {
          return context.backend.stream_create(context.device, 0, backend, reason);
        });
    context.internal->internal = true;
  }
  return *context.internal;
}

namespace exec {

frt_status stream_create(frt_context context, int32_t priority, const char* name,
                         frt_stream* stream, frt_error* error) noexcept {
  if (!context || !stream) {
    return set_error(error, FRT_ERR_INVALID_ARGUMENT, "stream_create: a null argument");
  }
  return setup(*context, "stream_create", error, [&] {
    *stream = &add_stream(
        *context, name, "stream_create", [&](frt_backend_stream* backend, frt_error* reason) {
          return context->backend.stream_create(context->device, priority, backend, reason);
        });
    ++context->user_streams;
  });
}

frt_status stream_wrap(frt_context context, void* native, const char* name, frt_stream* stream,
                       frt_error* error) noexcept {
  if (!context || !stream) {
    return set_error(error, FRT_ERR_INVALID_ARGUMENT, "stream_wrap: a null argument");
  }
  return setup(*context, "stream_wrap", error, [&] {
    *stream = &add_stream(
        *context, name, "stream_wrap", [&](frt_backend_stream* backend, frt_error* reason) {
          return context->backend.stream_wrap(context->device, native, backend, reason);
        });
    (*stream)->exposed.store(true, std::memory_order_relaxed);
    ++context->user_streams;
  });
}

void stream_release(frt_stream stream) noexcept {
  if (!stream) return;
  if (stream->internal) {
    fail(*stream->context, FRT_ERR_INVALID_ARGUMENT,
         "stream_release: the recorder's stream belongs to the context");
    return;
  }
  if (!deferred(*stream->context, release_stream, stream)) release_stream(stream);
}

frt_status stream_sync(frt_stream stream) noexcept {
  if (!stream) return FRT_ERR_INVALID_ARGUMENT;
  return wait(*stream->context, "stream_sync", [&] {
    const frt_status status = stream->context->backend.stream_sync(stream->backend);
    stream->busy = false;
    return status;
  });
}

frt_status stream_wait(frt_stream stream, frt_event event) noexcept {
  return connect(event, stream, "stream_wait", [&](const frt_backend_v1& backend) {
    return backend.event_wait(event->backend, stream->backend);
  });
}

void* stream_native(frt_stream stream) noexcept {
  if (!stream) return nullptr;
  stream->exposed.store(true, std::memory_order_relaxed);
  void* native = nullptr;
  end_with_backend(*stream->context, "stream_native",
                   [&] { native = stream->context->backend.stream_native(stream->backend); });
  return native;
}

frt_backend_stream stream_backend(frt_stream stream) noexcept {
  if (!stream) return nullptr;
  stream->exposed.store(true, std::memory_order_relaxed);
  return stream->backend;
}

frt_status event_create(frt_context context, uint32_t flags, frt_event* event,
                        frt_error* error) noexcept {
  if (!context || !event) {
    return set_error(error, FRT_ERR_INVALID_ARGUMENT, "event_create: a null argument");
  }
  return setup(*context, "event_create", error, [&] {
    require_flags(flags, FRT_EVENT_TIMING, "event_create");
    auto made = std::make_unique<frt_event_s>();
    made->context = context;
    made->flags = flags;
    setup_backend(*context, "event_create", "event_create", [&](frt_error* reason) {
      return context->backend.event_create(context->device, flags, &made->backend, reason);
    });
    require_made(*context, made->backend, "event_create", "an event");
    ++context->events;
    *event = made.release();
  });
}

void event_release(frt_event event) noexcept {
  if (!event) return;
  if (!deferred(*event->context, release_event, event)) release_event(event);
}

frt_status event_record(frt_event event, frt_stream stream) noexcept {
  return connect(event, stream, "event_record", [&](const frt_backend_v1& backend) {
    event->recorded = true;
    return backend.event_record(event->backend, stream->backend);
  });
}

frt_status event_query(frt_event event) noexcept {
  if (!event) return FRT_ERR_INVALID_ARGUMENT;
  frt_context_s& context = *event->context;
  DriverScope scope(context);
  if (frt_status status = scope.clash(); status != FRT_OK) return status;
  if (context.lost) return device_lost(context, "event_query");
  bool ready = true;
  const frt_status status = call_backend(context, "event_query", [&] {
    const frt_status answer = context.backend.event_query(event->backend);
    ready = answer != FRT_ERR_NOT_READY;
    return ready ? answer : FRT_OK;
  });
  return ready ? status : FRT_ERR_NOT_READY;
}

frt_status event_sync(frt_event event) noexcept {
  if (!event) return FRT_ERR_INVALID_ARGUMENT;
  return wait(*event->context, "event_sync",
              [&] { return event->context->backend.event_sync(event->backend); });
}

frt_status event_elapsed(frt_event start, frt_event end, double* ms) noexcept {
  if (!start || !end || !ms || start->context != end->context) return FRT_ERR_INVALID_ARGUMENT;
  frt_context_s& context = *start->context;
  if (!(start->flags & end->flags & FRT_EVENT_TIMING)) {
    return fail(context, FRT_ERR_INVALID_ARGUMENT,
                "event_elapsed: both events must be made with FRT_EVENT_TIMING");
  }
  if (!start->recorded || !end->recorded) {
    return fail(context, FRT_ERR_BAD_STATE, "event_elapsed: an event was never recorded");
  }
  return wait(context, "event_elapsed", [&] {
    double elapsed = 0;
    const frt_status status = context.backend.event_elapsed(start->backend, end->backend, &elapsed);
    if (status == FRT_OK) *ms = elapsed;
    return status;
  });
}

}  // namespace exec
}  // namespace frt::core
