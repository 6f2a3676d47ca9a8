// SPDX-License-Identifier: Apache-2.0
// Opening and closing contexts, what they tell about themselves, and their kernels.
//
// The backend's table is copied into one of this core's size, with zeros where the plugin's ends:
// so an older plugin's table has NULL for what it does not know, and no later call looks at sizes.
#include <algorithm>
#include <frt/contracts.hpp>
#include <frt/core/context.hpp>
#include <frt/core/setup_lock.hpp>
#include <frt/text.hpp>

#include "exec/functions.hpp"
#include "exec/objects.hpp"

namespace frt::core {
namespace {

// Throws if there is no device `ordinal`.
void find_device(const frt_backend_v1& backend, frt_plugin plugin, uint32_t ordinal,
                 const std::string& sender) {
  uint32_t count = 0;
  frt_error error{};
  const frt_status status = count_devices(backend, plugin, sender, count, error);
  check(status, error, sender + ": counting devices");
  if (ordinal >= count) {
    std::string text = sender + ": device " + std::to_string(ordinal) +
                       " does not exist: the backend has " + std::to_string(count);
    if (count == 0 && error.message[0]) text += std::string(" (") + error.message + ")";
    throw Error(FRT_ERR_OUT_OF_RANGE, text);
  }
}

}  // namespace

frt_status count_devices(const frt_backend_v1& backend, frt_plugin plugin,
                         const std::string& sender, uint32_t& count, frt_error& error) {
  const auto alone = lock_plugin_setup();
  const frt_status status =
      contain(sender, "device_count", [&] { return backend.device_count(plugin, &count, &error); });
  if (status == FRT_OK && count > kMostDevices) {
    throw Error(FRT_ERR_ABI, sender + ": its device_count says " + std::to_string(count) +
                                 " devices; at most " + std::to_string(kMostDevices) +
                                 " are taken; ask its author for a fix");
  }
  return status;
}

frt_device_info describe_device(const frt_backend_v1& backend, frt_plugin plugin, uint32_t ordinal,
                                const std::string& sender) {
  const auto alone = lock_plugin_setup();
  frt_device_info given{};
  given.struct_size = sizeof(given);
  frt_error error{};
  const frt_status status = contain(
      sender, "device_info", [&] { return backend.device_info(plugin, ordinal, &given, &error); });
  check(status, error, sender + ": describing device " + std::to_string(ordinal));
  const auto info = read_table<frt_device_info>(&given, sender, sizeof(given));
  const auto text = [&](const char* member, const char* name, std::size_t room) {
    checked_text(member, sender + ": the " + name + " of device " + std::to_string(ordinal), room);
  };
  text(info.name, "name", sizeof(info.name));
  text(info.architecture, "architecture", sizeof(info.architecture));
  text(info.driver, "driver", sizeof(info.driver));
  text(info.detail, "detail", sizeof(info.detail));
  text(info.numerics, "numerics", sizeof(info.numerics));
  return info;
}

frt_context open_context(const frt_backend_v1& backend, frt_plugin plugin, uint32_t ordinal,
                         const frt_config* config, const ContextOptions& options) {
  const auto alone = lock_plugin_setup();
  const std::string sender = "backend '" + options.backend_id + "'";
  auto context = std::make_unique<frt_context_s>();
  context->backend = read_table<frt_backend_v1>(&backend, sender);
  checked_text(context->backend.native_kind, sender + ": its native_kind");
  context->name = options.name;
  context->backend_id = options.backend_id;
  context->eager = options.eager;
  const auto entering = [&](const char* call) {
    if (options.entering) options.entering(call);
  };
  entering("device_count");
  find_device(context->backend, plugin, ordinal, sender);
  entering("device_info");
  context->device_info = describe_device(context->backend, plugin, ordinal, sender);
  context->batch.resize(FRT_COPY_BATCH_MAX);
  context->sorted.resize(FRT_COPY_BATCH_MAX);

  const std::string what = sender + ": opening device " + std::to_string(ordinal);
  frt_error error{};
  entering("device_open");
  const frt_status status = contain(sender, "device_open", [&] {
    return context->backend.device_open(plugin, ordinal, config, &context->device, &error);
  });
  check(status, error, what);
  if (!context->device) {
    throw Error(FRT_ERR_INTERNAL, what + " reported success but made no device");
  }
  if (options.kernels) {
    try {
      entering("list");
      context->kernels.add_backend(*options.kernels, context->device, sender);
    } catch (...) {
      end_with_backend(*context, "device_close",
                       [&] { context->backend.device_close(context->device); });
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
  const frt_backend_v1& backend = context->backend;
  const auto end = [&](const char* call, auto&& body) { end_with_backend(*context, call, body); };
  if (!context->lost) end("device_sync", [&] { backend.device_sync(context->device); });
  if (context->internal) {
    end("stream_destroy", [&] { backend.stream_destroy(context->internal->backend); });
    delete context->internal;
  }
  free_copy_resources(*context);
  end("device_close", [&] {
    const auto alone = lock_plugin_setup();
    backend.device_close(context->device);
  });
  for (const auto& call : context->eager_calls) call->finish(*context);
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
  end_with_backend(*context, "device_memory", [&] {
    context->backend.device_memory(context->device, &full.memory_free, &full.memory_total);
  });
  return fill(info, full);
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
  return fill(counters, full);
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
  if (context->lost) return device_lost(*context, "context_sync");
  if (in_callback(*context)) {
    return fail(*context, FRT_ERR_BAD_STATE, "context_sync: not allowed inside a record callback");
  }
  const frt_status status = call_backend(
      *context, "context_sync", [&] { return context->backend.device_sync(context->device); });
  if (status != FRT_OK) return status;
  for (frt_stream stream : context->streams) stream->busy = false;
  return FRT_OK;
}

void context_last_error(frt_context context, frt_error* error) noexcept {
  if (context && error) *error = context->last_error;
}

frt_status kernels_resolve(frt_context context, frt_kernel_owner owner, const char* const* names,
                           uint64_t count, frt_dtype_set inputs, frt_dtype_set outputs,
                           const frt_weight_format* weights, uint32_t weight_count,
                           frt_kernel* kernels, frt_error* error) noexcept {
  if (!context || (count && (!names || !kernels)) || (weight_count && !weights)) {
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
    const auto found =
        context->kernels.resolve(own, {names, count}, {inputs, outputs, {weights, weight_count}});
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
