// SPDX-License-Identifier: Apache-2.0
// functions.hpp - the functions of frt_exec_v1, one declaration per member in its order. What they
// do is said in frt/exec.h.
#pragma once

#include <frt/draft/graph.h>
#include <frt/draft/plan.h>
#include <frt/exec.h>

namespace frt::core::exec {

// context.cpp
frt_status context_info(frt_context context, frt_context_info* info) noexcept;
frt_status context_counters(frt_context context, frt_counters* counters) noexcept;
void context_ready(frt_context context) noexcept;
frt_status context_sync(frt_context context) noexcept;
void context_last_error(frt_context context, frt_error* error) noexcept;

// buffer.cpp
frt_status buffer_alloc(frt_context context, frt_space space, uint64_t bytes, const char* name,
                        frt_buffer* buffer, frt_error* error) noexcept;
frt_status buffer_wrap(frt_context context, frt_space space, void* pointer, uint64_t bytes,
                       const char* name, void (*done)(void* user), void* user, frt_buffer* buffer,
                       frt_error* error) noexcept;
frt_status buffer_view(frt_buffer parent, uint64_t offset, uint64_t bytes, const char* name,
                       frt_buffer* buffer, frt_error* error) noexcept;
void buffer_retain(frt_buffer buffer) noexcept;
void buffer_release(frt_buffer buffer) noexcept;
frt_status buffer_info(frt_buffer buffer, frt_buffer_info* info) noexcept;

// copy.cpp
frt_status buffer_copy(frt_buffer target, uint64_t target_offset, frt_buffer source,
                       uint64_t source_offset, uint64_t bytes, frt_stream stream) noexcept;
frt_status buffer_copy_batch(const frt_copy* copies, uint64_t count, frt_stream stream) noexcept;
frt_status buffer_fill(frt_buffer buffer, uint64_t offset, uint64_t bytes, uint8_t value,
                       frt_stream stream) noexcept;

// stream.cpp
frt_status stream_create(frt_context context, int32_t priority, const char* name,
                         frt_stream* stream, frt_error* error) noexcept;
frt_status stream_wrap(frt_context context, void* native, const char* name, frt_stream* stream,
                       frt_error* error) noexcept;
void stream_release(frt_stream stream) noexcept;
frt_status stream_sync(frt_stream stream) noexcept;
frt_status stream_wait(frt_stream stream, frt_event event) noexcept;
void* stream_native(frt_stream stream) noexcept;
frt_backend_stream stream_backend(frt_stream stream) noexcept;
frt_status event_create(frt_context context, uint32_t flags, frt_event* event,
                        frt_error* error) noexcept;
void event_release(frt_event event) noexcept;
frt_status event_record(frt_event event, frt_stream stream) noexcept;
frt_status event_query(frt_event event) noexcept;
frt_status event_sync(frt_event event) noexcept;
frt_status event_elapsed(frt_event start, frt_event end, double* ms) noexcept;

// graph.cpp
frt_status graph_create(frt_context context, const char* name, uint32_t capacity, frt_graph* graph,
                        frt_error* error) noexcept;
void graph_release(frt_graph graph) noexcept;
frt_status graph_declare(frt_graph graph, const char* binding, uint32_t flags,
                         frt_error* error) noexcept;
frt_status graph_bind(frt_graph graph, const char* binding, frt_buffer buffer,
                      frt_error* error) noexcept;
frt_status graph_bound(frt_graph graph, const char* binding, frt_buffer* buffer) noexcept;
frt_status graph_capture(frt_graph graph, frt_shape_key key, frt_record_fn record, void* user,
                         frt_error* error) noexcept;
frt_status graph_adopt(frt_graph graph, frt_shape_key key, void* native, uint32_t owned,
                       frt_error* error) noexcept;
frt_status graph_replay(frt_graph graph, frt_shape_key key, frt_stream stream) noexcept;
uint32_t graph_has_variant(frt_graph graph, frt_shape_key key) noexcept;
frt_status graph_evict(frt_graph graph, frt_shape_key key) noexcept;
uint32_t graph_variant_count(frt_graph graph) noexcept;
uint32_t graph_keys(frt_graph graph, frt_shape_key* keys, uint32_t capacity) noexcept;

// plan.cpp
frt_status plan_create(frt_context context, const char* name, frt_plan* plan,
                       frt_error* error) noexcept;
void plan_release(frt_plan plan) noexcept;
frt_status plan_add(frt_plan plan, frt_graph graph, frt_shape_key key, frt_stream stream,
                    uint32_t* node, frt_error* error) noexcept;
frt_status plan_after(frt_plan plan, uint32_t node, uint32_t dependency, frt_error* error) noexcept;
frt_status plan_compile(frt_plan plan, uint32_t flags, frt_error* error) noexcept;
uint32_t plan_fused(frt_plan plan) noexcept;
frt_status plan_execute(frt_plan plan, frt_stream stream) noexcept;

// context.cpp
frt_status kernels_resolve(frt_context context, frt_kernel_owner owner, const char* const* names,
                           uint64_t count, frt_dtype_set inputs, frt_dtype_set outputs,
                           const frt_weight_format* weights, uint32_t weight_count,
                           frt_kernel* kernels, frt_error* error) noexcept;
frt_status kernels_register(frt_context context, const frt_kernel_desc* kernels, uint64_t count,
                            uint32_t stride, frt_kernel_owner* owner, frt_error* error) noexcept;
void kernels_release(frt_kernel_owner owner) noexcept;

// host_call.cpp
frt_status stream_call(frt_context context, frt_backend_stream stream, frt_host_function function,
                       void* user, void (*release)(void* user), frt_error* error) noexcept;
void* backend_stream_native(frt_context context, frt_backend_stream stream) noexcept;

// copy_between.cpp
frt_status buffer_copy_between(frt_buffer target, uint64_t target_offset, frt_stream target_stream,
                               frt_buffer source, uint64_t source_offset, frt_stream source_stream,
                               uint64_t bytes, frt_error* error) noexcept;

}  // namespace frt::core::exec
