// SPDX-License-Identifier: Apache-2.0
// Opening and closing contexts, what they tell about themselves, and their kernels.
//
// The backend's table is copied into one of this core's size, with zeros where the plugin's ends:
// so an older plugin's table has NULL for what it does not know, and no later call looks at sizes.
#include <frt/core/context.hpp>

#include <algorithm>
#include <cstring>

#include "exec/functions.hpp"
#include "exec/objects.hpp"

namespace frt::core {
namespace {

// The functions that version 1 requires; all but exec_compose and exec_node_count.
const char* missing_function(const frt_backend_v1& b) {
  const struct {
    bool there;
    const char* name;
  } functions[] = {
      {b.device_open != nullptr, "device_open"},
      {b.device_count != nullptr, "device_count"},
      {b.device_info != nullptr, "device_info"},
      {b.device_close != nullptr, "device_close"},
      {b.device_sync != nullptr, "device_sync"},
      {b.device_memory != nullptr, "device_memory"},
      {b.memory_alloc != nullptr, "memory_alloc"},
      {b.memory_free != nullptr, "memory_free"},
      {b.copy != nullptr, "copy"},
      {b.fill != nullptr, "fill"},
      {b.stream_create != nullptr, "stream_create"},
      {b.stream_wrap != nullptr, "stream_wrap"},
      {b.stream_destroy != nullptr, "stream_destroy"},
      {b.stream_sync != nullptr, "stream_sync"},
      {b.stream_native != nullptr, "stream_native"},
      {b.stream_call != nullptr, "stream_call"},
      {b.event_create != nullptr, "event_create"},
      {b.event_destroy != nullptr, "event_destroy"},
      {b.event_record != nullptr, "event_record"},
      {b.event_wait != nullptr, "event_wait"},
      {b.event_query != nullptr, "event_query"},
      {b.event_sync != nullptr, "event_sync"},
      {b.event_elapsed != nullptr, "event_elapsed"},
      {b.capture_begin != nullptr, "capture_begin"},
      {b.capture_end != nullptr, "capture_end"},
      {b.capture_abort != nullptr, "capture_abort"},
      {b.exec_adopt != nullptr, "exec_adopt"},
      {b.exec_destroy != nullptr, "exec_destroy"},
      {b.exec_launch != nullptr, "exec_launch"},
  };
  for (const auto& function : functions) {
    if (!function.there) return function.name;
  }
  return nullptr;
}

frt_device_info describe_device(const frt_backend_v1& backend, frt_plugin plugin,
                                uint32_t ordinal) {
  uint32_t count = 0;
  frt_error error{};
  check(backend.device_count(plugin, &count, &error), error, "counting devices");
  if (ordinal >= count) {
    std::string text = "device " + std::to_string(ordinal) + " does not exist: the backend has " +
                       std::to_string(count);
    if (count == 0 && error.message[0]) text += std::string(" (") + error.message + ")";
    throw Error(FRT_ERR_OUT_OF_RANGE, text);
  }
  frt_device_info info{};
  info.struct_size = sizeof(info);
  error = {};
  check(backend.device_info(plugin, ordinal, &info, &error), error, "describing the device");
  return info;
}

}  // namespace

frt_context open_context(const frt_backend_v1& backend, frt_plugin plugin, uint32_t ordinal,
                         const frt_config* config, const ContextOptions& options) {
  auto context = std::make_unique<frt_context_s>();
  std::memcpy(static_cast<void*>(&context->backend), &backend,
              std::min<std::size_t>(backend.struct_size, sizeof(frt_backend_v1)));
  if (const char* name = missing_function(context->backend)) {
    throw Error(FRT_ERR_ABI, "backend '" + options.backend_id + "' has no " + name +
                                 " in its " FRT_EXT_BACKEND " table (" +
                                 std::to_string(backend.struct_size) + " bytes); rebuild it");
  }
  context->name = options.name;
  context->backend_id = options.backend_id;
  context->eager = options.eager;
  context->device_info = describe_device(context->backend, plugin, ordinal);
  context->batch.resize(FRT_COPY_BATCH_MAX);
  context->sorted.resize(FRT_COPY_BATCH_MAX);

  const std::string what =
      "opening device " + std::to_string(ordinal) + " of '" + options.backend_id + "'";
  frt_error error{};
  check(context->backend.device_open(plugin, ordinal, config, &context->device, &error), error,
        what);
  if (options.kernels) {
    try {
      context->kernels.add_backend(*options.kernels, context->device);
    } catch (...) {
      context->backend.device_close(context->device);
      throw;
    }
  }
  return context.release();
}

void close_context(frt_context context) {
  if (!context) return;
  std::string left;
  const auto count = [&](uint64_t number, const char* what) {
    if (number == 0) return;
    if (!left.empty()) left += ", ";
    left += std::to_string(number) + " " + what;
  };
  count(context->buffers, "buffer(s)");
  count(context->user_streams, "stream(s)");
  count(context->events, "event(s)");
  count(context->graphs, "graph(s)");
  count(context->plans.size(), "plan(s)");
  count(context->kernel_owners, "kernel owner(s)");
  if (!left.empty()) {
    throw Error(FRT_ERR_BAD_STATE, "context '" + context->name + "' still has " + left +
                                       "; release them before closing it");
  }
  if (!context->lost) context->backend.device_sync(context->device);
  if (context->internal) {
    context->backend.stream_destroy(context->internal->backend);
    delete context->internal;
  }
  context->backend.device_close(context->device);
  for (const auto& call : context->eager_calls) call->held.finish();
  delete context;
}

namespace exec {

frt_status context_info(frt_context context, frt_context_info* info) noexcept {
  if (!context) return FRT_ERR_INVALID_ARGUMENT;
  frt_context_info full{};
  full.eager = context->eager ? 1 : 0;
  full.name = context->name.c_str();
  full.backend_id = context->backend_id.c_str();
  full.native_kind = context->backend.native_kind;
  full.device = &context->device_info;
  // A device that cannot tell leaves what it said when it was opened.
  full.memory_total = context->device_info.memory_total;
  full.memory_free = context->device_info.memory_free;
  context->backend.device_memory(context->device, &full.memory_free, &full.memory_total);
  return copy_out(info, full);
}

frt_status context_counters(frt_context context, frt_counters* counters) noexcept {
  if (!context) return FRT_ERR_INVALID_ARGUMENT;
  constexpr auto kOrder = std::memory_order_relaxed;
  static_assert(FRT_SPACE_COUNT <= sizeof(frt_counters::buffer_bytes) / sizeof(uint64_t));
  frt_counters full{};
  full.captures = context->captures.load(kOrder);
  full.captures_since_ready = context->captures_since_ready.load(kOrder);
  full.replays = context->replays.load(kOrder);
  full.evictions = context->evictions.load(kOrder);
  for (uint32_t space = 0; space < FRT_SPACE_COUNT; ++space) {
    full.buffer_bytes[space] = context->buffer_bytes[space].load(kOrder);
  }
  return copy_out(counters, full);
}

void context_ready(frt_context context) noexcept {
  if (!context) return;
  context->ready = true;
  context->captures_since_ready.store(0, std::memory_order_relaxed);
}

frt_status context_sync(frt_context context) noexcept {
  if (!context) return FRT_ERR_INVALID_ARGUMENT;
  DriverScope scope(*context);
  if (frt_status status = scope.clash(); status != FRT_OK) return status;
  if (context->lost) return backend_failed(*context, FRT_ERR_DEVICE_LOST, "context_sync");
  if (context->capturing) {
    return fail(*context, FRT_ERR_BAD_STATE, "context_sync: waiting inside a record callback");
  }
  if (frt_status status = context->backend.device_sync(context->device); status != FRT_OK) {
    return backend_failed(*context, status, "context_sync");
  }
  for (frt_stream stream : context->streams) stream->busy = false;
  return FRT_OK;
}

void context_last_error(frt_context context, frt_error* error) noexcept {
  if (context && error) *error = context->last_error;
}

frt_status kernels_resolve(frt_context context, frt_kernel_owner owner, const char* const* names,
                           uint64_t count, frt_dtype activation, frt_weight_set weights,
                           frt_kernel* kernels, frt_error* error) noexcept {
  if (!context || (count && (!names || !kernels))) {
    return set_error(error, FRT_ERR_INVALID_ARGUMENT, "kernels_resolve: a null argument");
  }
  return guard(error, [&] {
    if (owner && owner->context != context) {
      throw Error(FRT_ERR_INVALID_ARGUMENT,
                  "kernels_resolve: the owner registered its kernels on context '" +
                      owner->context->name + "', not on '" + context->name + "'");
    }
    const std::span<const KernelEntry> own =
        owner ? std::span<const KernelEntry>(owner->kernels) : std::span<const KernelEntry>();
    const auto found = context->kernels.resolve(own, {names, count}, activation, weights);
    std::copy(found.begin(), found.end(), kernels);
  });
}

frt_status kernels_register(frt_context context, const frt_kernel_desc* kernels, uint64_t count,
                            uint32_t stride, frt_kernel_owner* owner, frt_error* error) noexcept {
  if (!context || !owner || (count && !kernels)) {
    return set_error(error, FRT_ERR_INVALID_ARGUMENT, "kernels_register: a null argument");
  }
  return setup(*context, "kernels_register", error, [&] {
    auto made = std::make_unique<frt_kernel_owner_s>();
    made->context = context;
    made->kernels = read_owned_kernels(kernels, count, stride);
    ++context->kernel_owners;
    *owner = made.release();
  });
}

void kernels_release(frt_kernel_owner owner) noexcept {
  if (!owner) return;
  --owner->context->kernel_owners;
  delete owner;
}

}  // namespace exec
}  // namespace frt::core
