// SPDX-License-Identifier: Apache-2.0
// frt/backend.hpp - writing a backend in C++: classes for devices, streams, events and executables,
// and the C tables made of them, so that the translation (handles to objects, exceptions to codes,
// NULL to FRT_ERR_INVALID_ARGUMENT) is written once.
//
//     struct Acme {
//       using Device = acme::Device;  using Stream = acme::Stream;  // ...
//       static constexpr const char* kNativeKind = "acme";
//       static uint32_t count(std::string& why_none);
//       ...
//     };
//     constexpr frt_backend_v1 kBackend = frt::backend_table<Acme>();
//     constexpr frt_kernels_v1 kKernels = frt::kernels_table<Acme>();
//
// What the struct has, [setup] unless stated. Anything may throw frt::Error unless it is noexcept:
//
//   Device, Stream, Event, Exec    the classes
//   kNativeKind                    frt_backend_v1::native_kind
//   uint32_t count(std::string& why_none)
//       the devices there are; where there are none, why_none becomes the reason
//   void describe(uint32_t ordinal, frt_device_info& info)
//       fills the members that info.struct_size covers
//   std::unique_ptr<Device> open(frt_plugin, uint32_t ordinal, const frt_config*)
//   frt_status memory(Device&, uint64_t& free, uint64_t& total)             [any]
//   void* allocate(Device&, frt_space, uint64_t bytes)
//   void release(Device*, frt_space, void* pointer) noexcept
//
// and, where the device has native streams and executables:
//
//   std::unique_ptr<Stream> wrap(Device&, void* native)
//   void* native(Stream&) noexcept                                          [any]
//   std::unique_ptr<Exec> adopt(Device&, void* native, bool owned)
//
// and, where errors have words (frt_backend_v1::last_error):
//
//   FailedCall& failed_call(Device&) noexcept                               [any]
//       frt/failed_call.hpp, a member of the device. What a [hot] or [driver] call throws is noted
//       there; one that returns a code notes its words itself. Stream and Event have device().
//
// All are static. The template `backend` is a whole backend of this kind.
//
// What the classes have; tags as in frt/backend.h:
//   Device   frt_status sync();  kernels().descriptors(): a vector of frt_kernel_desc that stays
//   Stream   Stream(Device&, int32_t priority);  copy, fill, call, record(Event&), wait(Event&),
//            launch(Exec&), sync: frt_status;  capture_begin, capture_abort;
//            std::unique_ptr<Exec> capture_end()
//            and, where devices reach each other: frt_status copy_peer(void* target, Stream& from,
//            const void* source, uint64_t bytes)
//   Event    Event(Device&, uint32_t flags);  query, sync: frt_status;
//            static frt_status elapsed(Event& start, Event& end, double& ms)
//   Exec     uint64_t node_count() noexcept;
//            static std::unique_ptr<Exec> compose(Device&, const frt_backend_node*, uint32_t count)
//            (frt::object<Exec>(node.exec) is a part; FRT_ERR_UNSUPPORTED where it cannot)
#pragma once

#include <frt/backend.h>
#include <frt/kernels.h>

#include <cstdint>
#include <frt/error.hpp>
#include <frt/failed_call.hpp>
#include <frt/flags.hpp>
#include <frt/plugin.hpp>
#include <frt/table.hpp>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

namespace frt {
namespace detail {

// The object behind a handle of a setup call.
template <class Object, class Handle>
Object& checked(Handle handle, const char* function) {
  if (!handle) {
    throw Error(FRT_ERR_INVALID_ARGUMENT, std::string(function) + ": a handle is NULL");
  }
  return *object<Object>(handle);
}

inline void check_out(const void* out, const char* function) {
  if (!out) throw Error(FRT_ERR_INVALID_ARGUMENT, std::string(function) + ": no place to write to");
}

template <class Backend>
struct BackendFunctions {
  using Device = typename Backend::Device;
  using Stream = typename Backend::Stream;
  using Event = typename Backend::Event;
  using Exec = typename Backend::Exec;

  // ---- errors ----

  static constexpr bool kHasWords = requires(Device & device) { Backend::failed_call(device); };

  // A call without an frt_error on `object`, a device or what was made on one: what `body` throws
  // becomes a code, and its text the words of that code.
  template <class Object, class Body>
  static frt_status call(Object& object, Body&& body) noexcept {
    if constexpr (kHasWords) {
      frt_error error;
      error.message[0] = '\0';
      const frt_status status = guard(&error, std::forward<Body>(body));
      if (status == FRT_OK || error.message[0] == '\0') return status;
      if constexpr (std::is_same_v<Object, Device>) {
        Backend::failed_call(object).note(status, error.message);
      } else {
        Backend::failed_call(object.device()).note(status, error.message);
      }
      return status;
    } else {
      return guard(nullptr, std::forward<Body>(body));
    }
  }

  // frt_backend_v1::last_error, or NULL where errors have no words.
  static constexpr decltype(frt_backend_v1::last_error) last_error() {
    if constexpr (kHasWords) {
      return [](frt_backend_device device, char* text, uint64_t capacity) -> frt_status {
        if (!device) return FRT_ERR_INVALID_ARGUMENT;
        return Backend::failed_call(*object<Device>(device)).take(text, capacity);
      };
    } else {
      return nullptr;
    }
  }

  // ---- devices ----

  static frt_status device_count(frt_plugin, uint32_t* count, frt_error* why_none) {
    return guard(why_none, [&] {
      check_out(count, "device_count");
      std::string why;
      *count = Backend::count(why);
      if (*count == 0) set_error(why_none, FRT_ERR_NOT_FOUND, why);
    });
  }
  static frt_status device_info(frt_plugin, uint32_t ordinal, frt_device_info* info,
                                frt_error* error) {
    return guard(error, [&] {
      check_out(info, "device_info");
      frt_device_info known{};
      Backend::describe(ordinal, known);
      frt::check(frt::fill(info, known), "device_info");
    });
  }
  static frt_status device_open(frt_plugin plugin, uint32_t ordinal, const frt_config* config,
                                frt_backend_device* device, frt_error* error) {
    return guard(error, [&] {
      check_out(device, "device_open");
      *device = handle<frt_backend_device>(Backend::open(plugin, ordinal, config).release());
    });
  }
  static void device_close(frt_backend_device device) { delete object<Device>(device); }
  static frt_status device_sync(frt_backend_device device) {
    if (!device) return FRT_ERR_INVALID_ARGUMENT;
    Device& self = *object<Device>(device);
    return call(self, [&] { return self.sync(); });
  }
  static frt_status device_memory(frt_backend_device device, uint64_t* free_bytes,
                                  uint64_t* total_bytes) {
    if (!device || !free_bytes || !total_bytes) return FRT_ERR_INVALID_ARGUMENT;
    return guard(nullptr, [&] {
      return Backend::memory(*object<Device>(device), *free_bytes, *total_bytes);
    });
  }

  // ---- memory ----

  static frt_status memory_alloc(frt_backend_device device, frt_space space, uint64_t bytes,
                                 void** pointer, frt_error* error) {
    return guard(error, [&] {
      auto& owner = checked<Device>(device, "memory_alloc");
      check_out(pointer, "memory_alloc");
      *pointer = Backend::allocate(owner, space, bytes);
    });
  }
  static void memory_free(frt_backend_device device, frt_space space, void* pointer) {
    if (device) Backend::release(object<Device>(device), space, pointer);
  }
  static frt_status copy(frt_backend_stream stream, const frt_backend_copy* copies,
                         uint64_t count) {
    if (!stream) return FRT_ERR_INVALID_ARGUMENT;
    Stream& self = *object<Stream>(stream);
    return call(self, [&] { return self.copy(copies, count); });
  }
  static frt_status fill(frt_backend_stream stream, void* pointer, frt_space space, uint64_t bytes,
                         uint8_t value) {
    if (!stream) return FRT_ERR_INVALID_ARGUMENT;
    Stream& self = *object<Stream>(stream);
    return call(self, [&] { return self.fill(pointer, space, bytes, value); });
  }

  // ---- streams ----

  static frt_status stream_create(frt_backend_device device, int32_t priority,
                                  frt_backend_stream* stream, frt_error* error) {
    return guard(error, [&] {
      check_out(stream, "stream_create");
      auto& owner = checked<Device>(device, "stream_create");
      *stream = handle<frt_backend_stream>(new Stream(owner, priority));
    });
  }
  static frt_status stream_wrap(frt_backend_device device, void* native, frt_backend_stream* stream,
                                frt_error* error) {
    if constexpr (requires(Device & owner) { Backend::wrap(owner, native); }) {
      return guard(error, [&] {
        check_out(stream, "stream_wrap");
        auto& owner = checked<Device>(device, "stream_wrap");
        *stream = handle<frt_backend_stream>(Backend::wrap(owner, native).release());
      });
    } else {
      return set_error(error, FRT_ERR_UNSUPPORTED,
                       "stream_wrap: this backend has no native streams; use stream_create");
    }
  }
  static void stream_destroy(frt_backend_stream stream) { delete object<Stream>(stream); }
  static frt_status stream_sync(frt_backend_stream stream) {
    if (!stream) return FRT_ERR_INVALID_ARGUMENT;
    Stream& self = *object<Stream>(stream);
    return call(self, [&] { return self.sync(); });
  }
  static void* stream_native(frt_backend_stream stream) {
    if constexpr (requires(Stream & one) { Backend::native(one); }) {
      return stream ? Backend::native(*object<Stream>(stream)) : nullptr;
    } else {
      return nullptr;
    }
  }
  static frt_status stream_call(frt_backend_stream stream, frt_host_function function, void* user) {
    if (!stream) return FRT_ERR_INVALID_ARGUMENT;
    Stream& self = *object<Stream>(stream);
    return call(self, [&] { return self.call(function, user); });
  }

  // ---- events ----

  static frt_status event_create(frt_backend_device device, uint32_t flags,
                                 frt_backend_event* event, frt_error* error) {
    return guard(error, [&] {
      check_out(event, "event_create");
      require_flags(flags, FRT_EVENT_TIMING, "event_create");
      auto& owner = checked<Device>(device, "event_create");
      *event = handle<frt_backend_event>(new Event(owner, flags));
    });
  }
  static void event_destroy(frt_backend_event event) { delete object<Event>(event); }
  static frt_status event_record(frt_backend_event event, frt_backend_stream stream) {
    if (!event || !stream) return FRT_ERR_INVALID_ARGUMENT;
    Stream& self = *object<Stream>(stream);
    return call(self, [&] { return self.record(*object<Event>(event)); });
  }
  static frt_status event_wait(frt_backend_event event, frt_backend_stream stream) {
    if (!event || !stream) return FRT_ERR_INVALID_ARGUMENT;
    Stream& self = *object<Stream>(stream);
    return call(self, [&] { return self.wait(*object<Event>(event)); });
  }
  static frt_status event_query(frt_backend_event event) {
    if (!event) return FRT_ERR_INVALID_ARGUMENT;
    Event& self = *object<Event>(event);
    return call(self, [&] { return self.query(); });
  }
  static frt_status event_sync(frt_backend_event event) {
    if (!event) return FRT_ERR_INVALID_ARGUMENT;
    Event& self = *object<Event>(event);
    return call(self, [&] { return self.sync(); });
  }
  static frt_status event_elapsed(frt_backend_event start, frt_backend_event end, double* ms) {
    if (!start || !end || !ms) return FRT_ERR_INVALID_ARGUMENT;
    Event& self = *object<Event>(start);
    return call(self, [&] { return Event::elapsed(self, *object<Event>(end), *ms); });
  }

  // ---- executables ----

  static frt_status capture_begin(frt_backend_stream stream, frt_error* error) {
    return guard(error, [&] { checked<Stream>(stream, "capture_begin").capture_begin(); });
  }
  static frt_status capture_end(frt_backend_stream stream, frt_backend_exec* exec,
                                frt_error* error) {
    return guard(error, [&] {
      std::unique_ptr<Exec> made = checked<Stream>(stream, "capture_end").capture_end();
      check_out(exec, "capture_end");  // only now: recording has ended in any case
      *exec = handle<frt_backend_exec>(made.release());
    });
  }
  static void capture_abort(frt_backend_stream stream) {
    if (stream) guard(nullptr, [&] { object<Stream>(stream)->capture_abort(); });
  }
  static frt_status exec_adopt(frt_backend_device device, void* native, uint32_t owned,
                               frt_backend_exec* exec, frt_error* error) {
    if constexpr (requires(Device & owner) { Backend::adopt(owner, native, true); }) {
      return guard(error, [&] {
        check_out(exec, "exec_adopt");
        auto& owner = checked<Device>(device, "exec_adopt");
        check_out(native, "exec_adopt");
        *exec = handle<frt_backend_exec>(Backend::adopt(owner, native, owned != 0).release());
      });
    } else {
      return set_error(error, FRT_ERR_UNSUPPORTED,
                       "exec_adopt: this backend has no native executables; record one with "
                       "capture_begin");
    }
  }
  static frt_status exec_compose(frt_backend_device device, const frt_backend_node* nodes,
                                 uint32_t count, frt_backend_exec* exec, frt_error* error) {
    return guard(error, [&] {
      check_out(exec, "exec_compose");
      auto& owner = checked<Device>(device, "exec_compose");
      *exec = handle<frt_backend_exec>(Exec::compose(owner, nodes, count).release());
    });
  }
  static void exec_destroy(frt_backend_exec exec) { delete object<Exec>(exec); }
  static frt_status exec_launch(frt_backend_exec exec, frt_backend_stream stream) {
    if (!exec || !stream) return FRT_ERR_INVALID_ARGUMENT;
    Stream& self = *object<Stream>(stream);
    return call(self, [&] { return self.launch(*object<Exec>(exec)); });
  }
  static uint64_t exec_node_count(frt_backend_exec exec) {
    return exec ? object<Exec>(exec)->node_count() : 0;
  }

  // ---- two devices ----

  // frt_backend_v1::copy_peer, or NULL where streams have none.
  static constexpr decltype(frt_backend_v1::copy_peer) peer_copy() {
    if constexpr (requires(Stream & one) { one.copy_peer(nullptr, one, nullptr, uint64_t{1}); }) {
      return [](frt_backend_stream target_stream, void* target, frt_backend_stream source_stream,
                const void* source, uint64_t bytes) -> frt_status {
        if (!target_stream || !target || !source_stream || !source) return FRT_ERR_INVALID_ARGUMENT;
        Stream& self = *object<Stream>(target_stream);
        return call(self, [&] {
          return self.copy_peer(target, *object<Stream>(source_stream), source, bytes);
        });
      };
    } else {
      return nullptr;
    }
  }

  // ---- kernels ----

  static frt_status list_kernels(frt_backend_device device, const frt_kernel_desc** kernels,
                                 uint64_t* count, frt_error* error) {
    return guard(error, [&] {
      check_out(kernels, "kernels list");
      check_out(count, "kernels list");
      const auto& list = checked<Device>(device, "kernels list").kernels().descriptors();
      *kernels = list.data();
      *count = list.size();
    });
  }
};

}  // namespace detail

template <class Backend>
constexpr frt_backend_v1 backend_table() {
  using Functions = detail::BackendFunctions<Backend>;
  return {
      .struct_size = sizeof(frt_backend_v1),
      .reserved = 0,
      .native_kind = Backend::kNativeKind,
      .device_count = Functions::device_count,
      .device_info = Functions::device_info,
      .device_open = Functions::device_open,
      .device_close = Functions::device_close,
      .device_sync = Functions::device_sync,
      .device_memory = Functions::device_memory,
      .memory_alloc = Functions::memory_alloc,
      .memory_free = Functions::memory_free,
      .copy = Functions::copy,
      .fill = Functions::fill,
      .stream_create = Functions::stream_create,
      .stream_wrap = Functions::stream_wrap,
      .stream_destroy = Functions::stream_destroy,
      .stream_sync = Functions::stream_sync,
      .stream_native = Functions::stream_native,
      .stream_call = Functions::stream_call,
      .event_create = Functions::event_create,
      .event_destroy = Functions::event_destroy,
      .event_record = Functions::event_record,
      .event_wait = Functions::event_wait,
      .event_query = Functions::event_query,
      .event_sync = Functions::event_sync,
      .event_elapsed = Functions::event_elapsed,
      .capture_begin = Functions::capture_begin,
      .capture_end = Functions::capture_end,
      .capture_abort = Functions::capture_abort,
      .exec_adopt = Functions::exec_adopt,
      .exec_compose = Functions::exec_compose,
      .exec_destroy = Functions::exec_destroy,
      .exec_launch = Functions::exec_launch,
      .exec_node_count = Functions::exec_node_count,
      .copy_peer = Functions::peer_copy(),
      .last_error = Functions::last_error(),
  };
}

template <class Backend>
constexpr frt_kernels_v1 kernels_table() {
  return {
      .struct_size = sizeof(frt_kernels_v1),
      .stride = sizeof(frt_kernel_desc),
      .list = detail::BackendFunctions<Backend>::list_kernels,
  };
}

}  // namespace frt
