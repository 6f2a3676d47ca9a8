// SPDX-License-Identifier: Apache-2.0
// Graphs: a bounded table of variants, and bindings.
//
// A capture is a transaction. Everything that may fail (memory for the table, the callback, the
// backend) comes before the table changes; then the variant under the same key, or else the least
// recently used one of a full table, goes, and the new one enters. Nothing waits inside.
//
// An executable must not be destroyed while it runs. drop_variant() syncs the streams the variant
// was used on, if they are still busy: nothing is recorded per replay (see objects.hpp). Fused
// plans hold executables as parts, so they are told first.
#include <algorithm>
#include <cstdio>
#include <frt/flags.hpp>

#include "exec/functions.hpp"
#include "exec/objects.hpp"
#include "exec/plan.hpp"

namespace frt::core {
namespace {

std::string describe(const frt_graph_s& graph, frt_shape_key key) {
  return "graph '" + graph.name + "', key " + key_text(key);
}

frt_graph_s::Binding* find_binding(frt_graph_s& graph, const char* name) {
  const auto at =
      std::find_if(graph.bindings.begin(), graph.bindings.end(),
                   [&](const frt_graph_s::Binding& binding) { return binding.name == name; });
  return at == graph.bindings.end() ? nullptr : &*at;
}

// Destroys what a variant holds. It is not in flight.
void destroy_variant(frt_context_s& context, std::unique_ptr<Variant> variant) noexcept {
  if (variant->exec) {
    end_with_backend(context, "exec_destroy", [&] { context.backend.exec_destroy(variant->exec); });
  }
  for (frt_buffer buffer : variant->buffers) exec::buffer_release(buffer);
  for (const auto& call : variant->calls) call->finish(context);
}

// Puts a finished variant under its key. The caller reserved room.
void keep(frt_graph_s& graph, std::unique_ptr<Variant> variant) noexcept {
  if (Variant* old = graph.variants.find(variant->key)) {
    drop_variant(graph, *old);
  } else if (graph.variants.size() == graph.capacity) {
    drop_variant(graph, *graph.variants.oldest());
    bump(graph.context->evictions);
  }
  graph.variants.insert(std::move(variant));
}

frt_recorder recorder_for(frt_context_s& context, frt_stream_s& stream,
                          uint32_t capturing) noexcept {
  frt_recorder recorder{};
  recorder.struct_size = sizeof(recorder);
  recorder.capturing = capturing;
  recorder.context = &context;
  recorder.stream = &stream;
  recorder.backend_stream = stream.backend;
  return recorder;
}

// Calls the user's callback; whatever it does comes back as a code.
frt_status call_record(frt_record_fn record, void* user, const frt_recorder& recorder,
                       frt_shape_key key, frt_error* error) noexcept {
  frt_status status;
  try {
    status = record(user, &recorder, key, error);
    error->message[FRT_ERROR_CAPACITY - 1] = '\0';
  } catch (const std::exception& e) {
    return set_error(error, FRT_ERR_CALLBACK, e.what());
  } catch (...) {
    return set_error(error, FRT_ERR_CALLBACK, "an exception of unknown type");
  }
  if (is_status(status)) return status;
  char words[FRT_ERROR_CAPACITY];
  std::snprintf(words, sizeof(words), "%.400s%sstatus %d, which this version does not know",
                error->message, error->message[0] ? "; " : "", static_cast<int>(status));
  return set_error(error, FRT_ERR_INTERNAL, words);
}

// What a capture leaves to do, whether it succeeded or not: buffers and host functions noted for a
// variant that did not come to be, and releases that the callback asked for.
struct CaptureEnd {
  explicit CaptureEnd(frt_context_s& owner) noexcept : context(owner) {}
  ~CaptureEnd() {
    std::vector<frt_buffer> uses;
    uses.swap(context.capture_uses);
    for (frt_buffer buffer : uses) exec::buffer_release(buffer);
    HostCalls calls;
    calls.swap(context.capture_calls);
    for (const auto& call : calls) call->finish(context);
    run_deferred(context);
  }
  CaptureEnd(const CaptureEnd&) = delete;
  CaptureEnd& operator=(const CaptureEnd&) = delete;
  frt_context_s& context;
};

// Marks the internal stream as recording for the time of the callback.
class CaptureScope {
 public:
  CaptureScope(frt_context_s& context, frt_stream_s& stream) noexcept : context_(context) {
    stream.capturing = true;
    context.capturing = &stream;
  }
  ~CaptureScope() {
    context_.capturing->capturing = false;
    context_.capturing->busy = false;
    context_.capturing = nullptr;
  }
  CaptureScope(const CaptureScope&) = delete;
  CaptureScope& operator=(const CaptureScope&) = delete;

 private:
  frt_context_s& context_;
};

// Marks the time of a callback that an eager context calls at a replay.
class RecipeScope {
 public:
  explicit RecipeScope(frt_context_s& context) noexcept : context_(context) {
    context.in_recipe = true;
  }
  ~RecipeScope() { context_.in_recipe = false; }
  RecipeScope(const RecipeScope&) = delete;
  RecipeScope& operator=(const RecipeScope&) = delete;

 private:
  frt_context_s& context_;
};

// Records the callback into an executable. Throws; the stream is usable then.
void record_exec(frt_graph_s& graph, Variant& variant, frt_record_fn record, void* user) {
  frt_context_s& context = *graph.context;
  const frt_backend_v1& backend = context.backend;
  frt_stream_s& stream = internal_stream(context);
  const std::string what = describe(graph, variant.key);
  frt_error reason{};
  setup_backend(context, "capture_begin", what, [&](frt_error* begin_error) {
    return backend.capture_begin(stream.backend, begin_error);
  });
  {
    const frt_recorder recorder = recorder_for(context, stream, 1);
    CaptureScope scope(context, stream);
    const frt_status status = call_record(record, user, recorder, variant.key, &reason);
    if (status != FRT_OK) {
      end_with_backend(context, "capture_abort", [&] { backend.capture_abort(stream.backend); });
      if (status == FRT_ERR_DEVICE_LOST) remember_loss(context, reason.message);
      check(status, reason, what + ": the record callback");
    }
    setup_backend(context, "capture_end", what, [&](frt_error* end_error) {
      return backend.capture_end(stream.backend, &variant.exec, end_error);
    });
    require_made(context, variant.exec, "capture_end", what);
  }
  variant.buffers.swap(context.capture_uses);
  variant.calls.swap(context.capture_calls);
}

void release_graph(void* handle) noexcept {
  auto* graph = static_cast<frt_graph>(handle);
  frt_context_s& context = *graph->context;
  while (Variant* variant = graph->variants.oldest()) drop_variant(*graph, *variant);
  for (frt_graph_s::Binding& binding : graph->bindings) {
    if (binding.buffer) exec::buffer_release(binding.buffer);
  }
  graph->bindings.clear();
  --context.graphs;
  drop_graph(graph);
}

}  // namespace

void drop_graph(frt_graph graph) noexcept {
  if (--graph->references == 0) delete graph;
}

void drop_variant(frt_graph_s& graph, Variant& variant) noexcept {
  frt_context_s& context = *graph.context;
  for (frt_plan plan : context.plans) plan_lost_variant(*plan, graph, variant);
  wait_for_streams(context, variant.stream_mask);
  destroy_variant(context, graph.variants.remove(variant));
}

frt_status run_variant(frt_graph_s& graph, Variant& variant, frt_stream_s& stream) noexcept {
  frt_context_s& context = *graph.context;
  use_variant(graph, variant, stream);
  if (variant.exec) {
    const frt_status status = call_backend(context, "exec_launch", [&] {
      return context.backend.exec_launch(variant.exec, stream.backend);
    });
    if (status != FRT_OK) return status;
  } else {
    const RecipeScope scope(context);
    const frt_recorder recorder = recorder_for(context, stream, 0);
    frt_error reason;
    reason.message[0] = '\0';
    const frt_status status =
        call_record(variant.record, variant.user, recorder, variant.key, &reason);
    if (status != FRT_OK) {
      if (status == FRT_ERR_DEVICE_LOST) remember_loss(context, reason.message);
      return fail(context, status, "graph '%.200s', key 0x%016llx: %s", graph.name.c_str(),
                  static_cast<unsigned long long>(variant.key),
                  reason.message[0] ? reason.message : status_name(status));
    }
  }
  bump(context.replays);
  return FRT_OK;
}

namespace exec {

frt_status graph_create(frt_context context, const char* name, uint32_t capacity, frt_graph* graph,
                        frt_error* error) noexcept {
  if (!context || !graph) {
    return set_error(error, FRT_ERR_INVALID_ARGUMENT, "graph_create: a null argument");
  }
  return setup(*context, "graph_create", error, [&] {
    if (capacity == 0) {
      throw Error(FRT_ERR_INVALID_ARGUMENT, "graph_create '" + std::string(name ? name : "") +
                                                "': capacity 0; at least 1 is needed");
    }
    auto made = std::make_unique<frt_graph_s>();
    made->context = context;
    made->name = name ? name : "";
    made->capacity = capacity;
    ++context->graphs;
    *graph = made.release();
  });
}

void graph_release(frt_graph graph) noexcept {
  if (!graph) return;
  if (!deferred(*graph->context, release_graph, graph)) release_graph(graph);
}

frt_status graph_declare(frt_graph graph, const char* binding, uint32_t flags,
                         frt_error* error) noexcept {
  if (!graph || !binding || !*binding) {
    return set_error(error, FRT_ERR_INVALID_ARGUMENT,
                     "graph_declare: a null graph or an empty name");
  }
  return setup(*graph->context, "graph_declare", error, [&] {
    const std::string what = "graph '" + graph->name + "', binding '" + binding + "'";
    require_flags(flags, FRT_BINDING_REQUIRED, what);
    if (graph->captured) {
      throw Error(FRT_ERR_BAD_STATE, what + ": declare bindings before the first capture");
    }
    if (find_binding(*graph, binding)) throw Error(FRT_ERR_EXISTS, what + ": declared already");
    graph->bindings.push_back({binding, flags == FRT_BINDING_REQUIRED, nullptr});
    if (flags == FRT_BINDING_REQUIRED) ++graph->unbound_required;
  });
}

frt_status graph_bind(frt_graph graph, const char* binding, frt_buffer buffer,
                      frt_error* error) noexcept {
  if (!graph || !binding || !buffer) {
    return set_error(error, FRT_ERR_INVALID_ARGUMENT, "graph_bind: a null argument");
  }
  return setup(*graph->context, "graph_bind", error, [&] {
    const std::string what = "graph '" + graph->name + "', binding '" + binding + "': ";
    frt_graph_s::Binding* found = find_binding(*graph, binding);
    if (!found)
      throw Error(FRT_ERR_NOT_FOUND, what + "not declared; declare it with `declare` first");
    if (buffer->context != graph->context) {
      throw Error(FRT_ERR_INVALID_ARGUMENT,
                  what + "buffer '" + buffer->name + "' is of another context");
    }
    if (found->buffer == buffer) return;
    if (found->buffer && graph->variants.size() > 0) {
      throw Error(FRT_ERR_BAD_STATE, what + "bound to buffer '" + found->buffer->name + "' while " +
                                         std::to_string(graph->variants.size()) +
                                         " variant(s) hold its address; evict them first");
    }
    retain(*buffer);
    if (found->buffer) {
      buffer_release(found->buffer);
    } else if (found->required) {
      --graph->unbound_required;
    }
    found->buffer = buffer;
  });
}

frt_status graph_bound(frt_graph graph, const char* binding, frt_buffer* buffer) noexcept {
  if (!graph || !binding || !buffer) return FRT_ERR_INVALID_ARGUMENT;
  const frt_graph_s::Binding* found = find_binding(*graph, binding);
  if (!found) {
    return fail(*graph->context, FRT_ERR_NOT_FOUND, "graph '%s' has no binding '%.200s'",
                graph->name.c_str(), binding);
  }
  if (!found->buffer) {
    return fail(*graph->context, FRT_ERR_UNBOUND, "graph '%s', binding '%.200s': no buffer",
                graph->name.c_str(), binding);
  }
  *buffer = found->buffer;
  return FRT_OK;
}

frt_status graph_capture(frt_graph graph, frt_shape_key key, frt_record_fn record, void* user,
                         frt_error* error) noexcept {
  if (!graph || !record) {
    return set_error(error, FRT_ERR_INVALID_ARGUMENT, "graph_capture: a null argument");
  }
  frt_context_s& context = *graph->context;
  return setup(context, "graph_capture", error, [&] {
    const CaptureEnd end(context);
    graph->variants.reserve_one();
    auto variant = std::make_unique<Variant>();
    variant->key = key;
    if (context.eager) {
      variant->record = record;
      variant->user = user;
    } else {
      record_exec(*graph, *variant, record, user);
    }
    keep(*graph, std::move(variant));
    graph->captured = true;
    bump(context.captures);
    if (context.ready) bump(context.captures_since_ready);
  });
}

frt_status graph_adopt(frt_graph graph, frt_shape_key key, void* native, uint32_t owned,
                       frt_error* error) noexcept {
  if (!graph || !native) {
    return set_error(error, FRT_ERR_INVALID_ARGUMENT, "graph_adopt: a null argument");
  }
  frt_context_s& context = *graph->context;
  return setup(context, "graph_adopt", error, [&] {
    graph->variants.reserve_one();
    auto variant = std::make_unique<Variant>();
    variant->key = key;
    const std::string what = describe(*graph, key);
    setup_backend(context, "exec_adopt", what, [&](frt_error* reason) {
      return context.backend.exec_adopt(context.device, native, owned ? 1 : 0, &variant->exec,
                                        reason);
    });
    require_made(context, variant->exec, "exec_adopt", what);
    keep(*graph, std::move(variant));
    graph->captured = true;
  });
}

frt_status graph_replay(frt_graph graph, frt_shape_key key, frt_stream stream) noexcept {
  if (!graph) return FRT_ERR_INVALID_ARGUMENT;
  frt_context_s& context = *graph->context;
  DriverScope scope(context);
  if (frt_status status = scope.clash(); status != FRT_OK) return status;
  if (frt_status status = check_submission(context, stream, "graph_replay"); status != FRT_OK) {
    return status;
  }
  Variant* variant = graph->variants.find(key);
  if (!variant) {
    return fail(context, FRT_ERR_NO_VARIANT,
                "graph '%s' has no variant 0x%016llx; capture it while loading",
                graph->name.c_str(), static_cast<unsigned long long>(key));
  }
  if (graph->unbound_required) {
    return fail(context, FRT_ERR_UNBOUND, "graph '%s': %u required binding(s) have no buffer",
                graph->name.c_str(), graph->unbound_required);
  }
  // On whatever stream: a capture would run it once, and no replay would run it again.
  if (in_callback(context)) {
    return fail(context, FRT_ERR_BAD_STATE,
                "graph '%s': replay inside a record callback; use a plan", graph->name.c_str());
  }
  const frt_status status = run_variant(*graph, *variant, *stream);
  end_replay(context);
  return status;
}

uint32_t graph_has_variant(frt_graph graph, frt_shape_key key) noexcept {
  return graph && graph->variants.find(key) ? 1 : 0;
}

frt_status graph_evict(frt_graph graph, frt_shape_key key) noexcept {
  if (!graph) return FRT_ERR_INVALID_ARGUMENT;
  frt_context_s& context = *graph->context;
  DriverScope scope(context);
  if (frt_status status = scope.clash(); status != FRT_OK) return status;
  if (in_callback(context)) {
    return fail(context, FRT_ERR_BAD_STATE, "graph_evict: not allowed inside a record callback");
  }
  Variant* variant = graph->variants.find(key);
  if (!variant) {
    return fail(context, FRT_ERR_NO_VARIANT, "graph '%s' has no variant 0x%016llx to evict",
                graph->name.c_str(), static_cast<unsigned long long>(key));
  }
  drop_variant(*graph, *variant);
  bump(context.evictions);
  return FRT_OK;
}

uint32_t graph_variant_count(frt_graph graph) noexcept {
  return graph ? graph->variants.size() : 0;
}

uint32_t graph_keys(frt_graph graph, frt_shape_key* keys, uint32_t capacity) noexcept {
  if (!graph || !keys) return 0;
  uint32_t count = 0;
  for (const Variant* variant = graph->variants.newest(); variant && count < capacity;
       variant = variant->older) {
    keys[count++] = variant->key;
  }
  return count;
}

}  // namespace exec
}  // namespace frt::core
