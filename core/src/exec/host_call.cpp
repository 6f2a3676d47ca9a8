// SPDX-License-Identifier: Apache-2.0
// What a launch submits besides kernels: host functions, and its native stream.
#include "exec/host_call.hpp"

#include <algorithm>

#include "exec/functions.hpp"
#include "exec/objects.hpp"

namespace frt::core {
namespace {

// Releases what finished calls held, oldest first, as far as they are finished.
void release_finished(frt_context_s& context) noexcept {
  HostCalls& calls = context.eager_calls;
  while (!calls.empty() && calls.front()->done.load(std::memory_order_acquire)) {
    calls.front()->finish(context);
    calls.pop_front();
  }
}

}  // namespace

frt_status HostCall::run(void* raw, frt_error* error) noexcept {
  auto& call = *static_cast<HostCall*>(raw);
  frt_status status = FRT_ERR_CALLBACK;
  try {
    status = call.function(call.user, error);
  } catch (const std::exception& thrown) {
    set_error(error, status, thrown.what());
  } catch (...) {
    set_error(error, status, "an exception of unknown type");
  }
  call.done.store(true, std::memory_order_release);
  return status;
}

void HostCall::finish(frt_context_s& context) const noexcept {
  if (!release) return;
  const auto threw = [&](const char* what) {
    fail(context, FRT_ERR_CALLBACK,
         "the release function of a host call in context '%.100s' threw: %.400s; ask the author of "
         "the plugin that called stream_call for a fix",
         context.name.c_str(), what);
    ErrorSink::send(context.last_error.message);
  };
  try {
    release(user);
  } catch (const std::exception& error) {
    threw(error.what());
  } catch (...) {
    threw("an exception of unknown type");
  }
}

namespace exec {

frt_status stream_call(frt_context context, frt_backend_stream stream, frt_host_function function,
                       void* user, void (*release)(void* user), frt_error* error) noexcept {
  if (!context || !stream || !function) {
    return set_error(error, FRT_ERR_INVALID_ARGUMENT, "stream_call: a null argument");
  }
  DriverScope scope(*context);
  if (frt_status status = scope.clash(); status != FRT_OK) {
    return set_error(error, status,
                     "another thread is inside this context; one at a time may drive it");
  }
  return guard(error, [&] {
    if (context->lost) throw Error(FRT_ERR_DEVICE_LOST, lost_text(*context, "stream_call"));
    const auto is_stream = [&](const frt_stream known) { return known->backend == stream; };
    if (std::none_of(context->streams.begin(), context->streams.end(), is_stream)) {
      throw Error(FRT_ERR_INVALID_ARGUMENT, "stream_call: the stream is of another context than '" +
                                                context->name + "', or was released");
    }
    release_finished(*context);
    const bool capturing = context->capturing && context->capturing->backend == stream;
    HostCalls& calls = capturing ? context->capture_calls : context->eager_calls;
    calls.push_back(std::make_unique<HostCall>(function, user));
    const frt_status status = call_backend(*context, "stream_call", [&] {
      return context->backend.stream_call(stream, HostCall::run, calls.back().get());
    });
    // Of a capture it stays: the backend may have recorded it, and aborts the recording later.
    if (status != FRT_OK && !capturing) calls.pop_back();
    check(status, context->last_error);
    calls.back()->release = release;  // `user` is ours from here on
  });
}

void* backend_stream_native(frt_context context, frt_backend_stream stream) noexcept {
  void* native = nullptr;
  if (!context || !stream) return native;
  end_with_backend(*context, "stream_native",
                   [&] { native = context->backend.stream_native(stream); });
  return native;
}

}  // namespace exec
}  // namespace frt::core
