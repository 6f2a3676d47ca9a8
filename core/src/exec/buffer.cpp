// SPDX-License-Identifier: Apache-2.0
// Buffers: memory with a name, a space and a count. Views hold their parent, so that memory goes
// after its last view. Kernels submitted to backend streams use addresses core never sees; so
// freeing waits for all streams that have work, not only for those that copied this buffer.
#include "exec/functions.hpp"
#include "exec/objects.hpp"

namespace frt::core {
namespace {

void check_new(const frt_context_s& context, frt_space space, uint64_t bytes, const char* name,
               frt_buffer* buffer, const char* call) {
  const std::string what = std::string(call) + " '" + (name ? name : "") + "': ";
  if (!buffer) throw Error(FRT_ERR_INVALID_ARGUMENT, what + "no place for the handle");
  if (space >= FRT_SPACE_COUNT) {
    throw Error(FRT_ERR_UNSUPPORTED, what + "unknown space " + std::to_string(space));
  }
  if (space == FRT_SPACE_SHARED && !shares_memory(context)) {
    throw Error(FRT_ERR_UNSUPPORTED, what + "device '" + context.name +
                                         "' has no memory that it shares with the processor; use "
                                         "device memory, and copy");
  }
  if (bytes == 0) throw Error(FRT_ERR_INVALID_ARGUMENT, what + "0 bytes; at least 1 is needed");
}

std::unique_ptr<frt_buffer_s> make_buffer(frt_context_s& context, frt_space space, uint64_t bytes,
                                          const char* name) {
  auto buffer = std::make_unique<frt_buffer_s>();
  buffer->context = &context;
  buffer->space = space;
  buffer->bytes = bytes;
  buffer->name = name ? name : "";
  return buffer;
}

void destroy_buffer(frt_buffer buffer) noexcept {
  frt_context_s& context = *buffer->context;
  if (buffer->parent) {
    exec::buffer_release(buffer->parent);
  } else {
    wait_for_all(context);
    if (buffer->owned) {
      end_with_backend(context, "memory_free", [&] {
        context.backend.memory_free(context.device, buffer->space, buffer->pointer);
      });
      bump(context.buffer_bytes[buffer->space], uint64_t{0} - buffer->bytes);
    } else if (buffer->done) {
      try {
        buffer->done(buffer->user);
      } catch (...) {
        fail(context, FRT_ERR_CALLBACK, "the release callback of buffer '%s' threw",
             buffer->name.c_str());
      }
    }
  }
  --context.buffers;
  delete buffer;
}

}  // namespace

void retain(frt_buffer_s& buffer) noexcept {
  buffer.references.fetch_add(1, std::memory_order_relaxed);
}

namespace exec {

frt_status buffer_alloc(frt_context context, frt_space space, uint64_t bytes, const char* name,
                        frt_buffer* buffer, frt_error* error) noexcept {
  if (!context) return set_error(error, FRT_ERR_INVALID_ARGUMENT, "buffer_alloc: a null context");
  return setup(*context, "buffer_alloc", error, [&] {
    check_new(*context, space, bytes, name, buffer, "buffer_alloc");
    auto made = make_buffer(*context, space, bytes, name);
    const std::string what = "buffer '" + made->name + "', " + std::to_string(bytes) +
                             " bytes in " + space_name(space) + " memory";
    void* pointer = nullptr;  // from here on nothing may throw once there is one
    setup_backend(*context, "memory_alloc", what, [&](frt_error* reason) {
      return context->backend.memory_alloc(context->device, space, bytes, &pointer, reason);
    });
    require_made(*context, pointer, "memory_alloc", what);
    made->pointer = static_cast<std::byte*>(pointer);
    made->owned = true;
    bump(context->buffer_bytes[space], bytes);
    ++context->buffers;
    *buffer = made.release();
  });
}

frt_status buffer_wrap(frt_context context, frt_space space, void* pointer, uint64_t bytes,
                       const char* name, void (*done)(void* user), void* user, frt_buffer* buffer,
                       frt_error* error) noexcept {
  if (!context) return set_error(error, FRT_ERR_INVALID_ARGUMENT, "buffer_wrap: a null context");
  return setup(*context, "buffer_wrap", error, [&] {
    check_new(*context, space, bytes, name, buffer, "buffer_wrap");
    if (!pointer || UINTPTR_MAX - reinterpret_cast<uintptr_t>(pointer) < bytes) {
      throw Error(FRT_ERR_INVALID_ARGUMENT, std::string("buffer_wrap '") + (name ? name : "") +
                                                "': a null pointer, or a range that wraps around");
    }
    auto made = make_buffer(*context, space, bytes, name);
    made->pointer = static_cast<std::byte*>(pointer);
    made->done = done;
    made->user = user;
    ++context->buffers;
    *buffer = made.release();
  });
}

frt_status buffer_view(frt_buffer parent, uint64_t offset, uint64_t bytes, const char* name,
                       frt_buffer* buffer, frt_error* error) noexcept {
  if (!parent) return set_error(error, FRT_ERR_INVALID_ARGUMENT, "buffer_view: a null parent");
  frt_context_s& context = *parent->context;
  return setup(context, "buffer_view", error, [&] {
    check_new(context, parent->space, bytes, name, buffer, "buffer_view");
    if (bytes > parent->bytes || offset > parent->bytes - bytes) {
      throw Error(FRT_ERR_OUT_OF_RANGE, "buffer_view '" + std::string(name ? name : "") +
                                            "': " + std::to_string(bytes) + " bytes at " +
                                            std::to_string(offset) + " of buffer '" + parent->name +
                                            "', which has " + std::to_string(parent->bytes));
    }
    auto made = make_buffer(context, parent->space, bytes, name);
    made->pointer = parent->pointer + offset;
    made->parent = parent;
    retain(*parent);
    ++context.buffers;
    *buffer = made.release();
  });
}

void buffer_retain(frt_buffer buffer) noexcept {
  if (buffer) retain(*buffer);
}

void buffer_release(frt_buffer buffer) noexcept {
  if (!buffer || buffer->references.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  const auto destroy = [](void* handle) { destroy_buffer(static_cast<frt_buffer>(handle)); };
  if (!deferred(*buffer->context, destroy, buffer)) destroy_buffer(buffer);
}

frt_status buffer_info(frt_buffer buffer, frt_buffer_info* info) noexcept {
  if (!buffer) return FRT_ERR_INVALID_ARGUMENT;
  frt_buffer_info full{};
  full.space = buffer->space;
  full.name = buffer->name.c_str();
  full.pointer = buffer->pointer;
  full.bytes = buffer->bytes;
  return fill(info, full);
}

}  // namespace exec
}  // namespace frt::core
