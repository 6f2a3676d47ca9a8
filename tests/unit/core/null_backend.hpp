// SPDX-License-Identifier: Apache-2.0
// null_backend.hpp - a backend whose work takes no time: every submission returns at once. What a
// call through core costs beyond it is core's own.
#pragma once

#include <frt/backend.h>

#include <cstdlib>
#include <cstring>

namespace null_backend {

inline char anything;  // every handle points here

template <class Handle>
Handle handle() {
  return reinterpret_cast<Handle>(&anything);
}

// Counts launches, so that neither side can be optimised away.
inline uint64_t launches = 0;
inline frt_status exec_launch(frt_backend_exec, frt_backend_stream) {
  ++launches;
  return FRT_OK;
}

inline frt_backend_v1 table() {
  frt_backend_v1 t{};
  t.struct_size = sizeof(t);
  t.native_kind = "null";
  t.device_count = [](frt_plugin, uint32_t* count, frt_error*) -> frt_status {
    *count = 1;
    return FRT_OK;
  };
  t.device_info = [](frt_plugin, uint32_t, frt_device_info* info, frt_error*) -> frt_status {
    std::strcpy(info->name, "null");
    return FRT_OK;
  };
  t.device_open = [](frt_plugin, uint32_t, const frt_config*, frt_backend_device* device,
                     frt_error*) -> frt_status {
    *device = handle<frt_backend_device>();
    return FRT_OK;
  };
  t.device_close = [](frt_backend_device) {};
  t.device_sync = [](frt_backend_device) -> frt_status { return FRT_OK; };
  t.device_memory = [](frt_backend_device, uint64_t*, uint64_t*) -> frt_status { return FRT_OK; };
  t.memory_alloc = [](frt_backend_device, frt_space, uint64_t bytes, void** pointer,
                      frt_error*) -> frt_status {
    *pointer = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
    return FRT_OK;
  };
  t.memory_free = [](frt_backend_device, frt_space, void* pointer) { std::free(pointer); };
  t.copy = [](frt_backend_stream, const frt_backend_copy*, uint64_t) -> frt_status {
    return FRT_OK;
  };
  t.fill = [](frt_backend_stream, void*, frt_space, uint64_t, uint8_t) -> frt_status {
    return FRT_OK;
  };
  t.stream_create = [](frt_backend_device, int32_t, frt_backend_stream* stream,
                       frt_error*) -> frt_status {
    *stream = handle<frt_backend_stream>();
    return FRT_OK;
  };
  t.stream_wrap = [](frt_backend_device, void*, frt_backend_stream* stream,
                     frt_error*) -> frt_status {
    *stream = handle<frt_backend_stream>();
    return FRT_OK;
  };
  t.stream_destroy = [](frt_backend_stream) {};
  t.stream_sync = [](frt_backend_stream) -> frt_status { return FRT_OK; };
  t.stream_native = [](frt_backend_stream) -> void* { return nullptr; };
  t.stream_call = [](frt_backend_stream, frt_host_function, void*) -> frt_status { return FRT_OK; };
  t.event_create = [](frt_backend_device, uint32_t, frt_backend_event* event,
                      frt_error*) -> frt_status {
    *event = handle<frt_backend_event>();
    return FRT_OK;
  };
  t.event_destroy = [](frt_backend_event) {};
  t.event_record = [](frt_backend_event, frt_backend_stream) -> frt_status { return FRT_OK; };
  t.event_wait = [](frt_backend_event, frt_backend_stream) -> frt_status { return FRT_OK; };
  t.event_query = [](frt_backend_event) -> frt_status { return FRT_OK; };
  t.event_sync = [](frt_backend_event) -> frt_status { return FRT_OK; };
  t.event_elapsed = [](frt_backend_event, frt_backend_event, double*) -> frt_status {
    return FRT_OK;
  };
  t.capture_begin = [](frt_backend_stream, frt_error*) -> frt_status { return FRT_OK; };
  t.capture_end = [](frt_backend_stream, frt_backend_exec* exec, frt_error*) -> frt_status {
    *exec = handle<frt_backend_exec>();
    return FRT_OK;
  };
  t.capture_abort = [](frt_backend_stream) {};
  t.exec_adopt = [](frt_backend_device, void*, uint32_t, frt_backend_exec* exec,
                    frt_error*) -> frt_status {
    *exec = handle<frt_backend_exec>();
    return FRT_OK;
  };
  t.exec_compose = [](frt_backend_device, const frt_backend_node*, uint32_t, frt_backend_exec* exec,
                      frt_error*) -> frt_status {
    *exec = handle<frt_backend_exec>();
    return FRT_OK;
  };
  t.exec_destroy = [](frt_backend_exec) {};
  t.exec_launch = exec_launch;
  t.exec_node_count = [](frt_backend_exec) -> uint64_t { return 1; };
  return t;
}

}  // namespace null_backend
