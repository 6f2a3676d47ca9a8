// SPDX-License-Identifier: Apache-2.0
#include "mock_backend.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <frt/error.hpp>
#include <frt/weights.hpp>
#include <span>
#include <utility>

namespace {

MockBackend* backend_of(frt_plugin plugin) {
  return reinterpret_cast<MockBackend*>(plugin);
}
MockBackend* backend_of(frt_backend_device device) {
  return reinterpret_cast<MockBackend*>(device);
}
MockStream* stream_of(frt_backend_stream stream) {
  return reinterpret_cast<MockStream*>(stream);
}
MockEvent* event_of(frt_backend_event event) {
  return reinterpret_cast<MockEvent*>(event);
}
MockExec* exec_of(frt_backend_exec exec) {
  return reinterpret_cast<MockExec*>(exec);
}

frt_status reported(frt_status status, const char* call, frt_error* error) {
  return frt::set_error(error, status, std::string(call) + " failed on purpose");
}

#define ENTER(backend, name) \
  if (frt_status status = (backend).entered(name); status != FRT_OK) return status
#define ENTER_REPORTING(backend, name)                               \
  if (frt_status status = (backend).entered(name); status != FRT_OK) \
  return reported(status, name, error)

// ---- devices -------------------------------------------------------------------------------

frt_status device_count(frt_plugin, uint32_t* count, frt_error*) {
  *count = 1;
  return FRT_OK;
}

frt_status device_info(frt_plugin plugin, uint32_t ordinal, frt_device_info* info, frt_error*) {
  info->ordinal = ordinal;
  info->flags = backend_of(plugin)->device_flags;
  std::snprintf(info->name, sizeof(info->name), "mock");
  std::snprintf(info->architecture, sizeof(info->architecture), "none");
  info->memory_total = info->memory_free = 1 << 30;
  info->compute_units = 1;
  info->dlpack_type = 1;
  return FRT_OK;
}

frt_status device_open(frt_plugin plugin, uint32_t, const frt_config*, frt_backend_device* device,
                       frt_error* error) {
  MockBackend& backend = *backend_of(plugin);
  ENTER_REPORTING(backend, "device_open");
  *device = reinterpret_cast<frt_backend_device>(&backend);
  return FRT_OK;
}

void device_close(frt_backend_device device) {
  (void)backend_of(device)->entered("device_close");
}

frt_status device_sync(frt_backend_device device) {
  MockBackend& backend = *backend_of(device);
  ENTER(backend, "device_sync");
  backend.pump();
  return FRT_OK;
}

frt_status device_memory(frt_backend_device, uint64_t* free_bytes, uint64_t* total_bytes) {
  *free_bytes = *total_bytes = 1 << 30;
  return FRT_OK;
}

// ---- memory --------------------------------------------------------------------------------

frt_status memory_alloc(frt_backend_device device, frt_space, uint64_t bytes, void** pointer,
                        frt_error* error) {
  MockBackend& backend = *backend_of(device);
  ENTER_REPORTING(backend, "memory_alloc");
  if (bytes > backend.memory_limit) {
    return frt::set_error(error, FRT_ERR_OUT_OF_MEMORY, "the mock has no such memory");
  }
  const std::size_t rounded = (bytes + 255) / 256 * 256;
  void* block = std::aligned_alloc(256, rounded);
  try {
    backend.blocks[block] = bytes;
  } catch (const std::bad_alloc&) {
    std::free(block);
    return frt::set_error(error, FRT_ERR_OUT_OF_MEMORY, "the mock cannot note its memory");
  }
  std::memset(block, 0xA5, rounded);
  *pointer = block;
  ++backend.live_blocks;
  return FRT_OK;
}

void memory_free(frt_backend_device device, frt_space, void* pointer) {
  MockBackend& backend = *backend_of(device);
  const uintptr_t begin = reinterpret_cast<uintptr_t>(pointer);
  const uint64_t bytes = backend.blocks.at(pointer);
  backend.check_unused("memory_free", [=](const MockBackend::Operation& operation) {
    return std::any_of(operation.ranges.begin(), operation.ranges.end(), [=](const auto& range) {
      return range.first < begin + bytes && begin < range.first + range.second;
    });
  });
  backend.blocks.erase(pointer);
  --backend.live_blocks;
  std::free(pointer);
}

frt_status copy(frt_backend_stream stream, const frt_backend_copy* copies, uint64_t count) {
  MockBackend& backend = *stream_of(stream)->backend;
  ENTER(backend, "copy");
  MockBackend::Operation operation;
  std::vector<frt_backend_copy> list(copies, copies + count);
  for (const frt_backend_copy& one : list) {
    operation.ranges.emplace_back(reinterpret_cast<uintptr_t>(one.target), one.bytes);
    operation.ranges.emplace_back(reinterpret_cast<uintptr_t>(one.source), one.bytes);
  }
  operation.run = [&backend, list = std::move(list)] {
    for (const frt_backend_copy& one : list) {
      std::memcpy(one.target, one.source, one.bytes);
      backend.copied_bytes += one.bytes;
    }
  };
  return backend.submit(*stream_of(stream), std::move(operation));
}

frt_status fill(frt_backend_stream stream, void* pointer, frt_space, uint64_t bytes,
                uint8_t value) {
  MockBackend& backend = *stream_of(stream)->backend;
  ENTER(backend, "fill");
  MockBackend::Operation operation;
  operation.ranges.emplace_back(reinterpret_cast<uintptr_t>(pointer), bytes);
  operation.run = [=] { std::memset(pointer, value, bytes); };
  return backend.submit(*stream_of(stream), std::move(operation));
}

// ---- streams -------------------------------------------------------------------------------

frt_status make_stream(MockBackend& backend, void* native, frt_backend_stream* stream) {
  auto* made = new MockStream{&backend, false, native, {}, {}};
  backend.streams.push_back(made);
  ++backend.live_streams;
  *stream = reinterpret_cast<frt_backend_stream>(made);
  return FRT_OK;
}

frt_status stream_create(frt_backend_device device, int32_t, frt_backend_stream* stream,
                         frt_error* error) {
  MockBackend& backend = *backend_of(device);
  ENTER_REPORTING(backend, "stream_create");
  return make_stream(backend, nullptr, stream);
}

frt_status stream_wrap(frt_backend_device device, void* native, frt_backend_stream* stream,
                       frt_error* error) {
  MockBackend& backend = *backend_of(device);
  ENTER_REPORTING(backend, "stream_wrap");
  if (!backend.native_forms) {
    return frt::set_error(error, FRT_ERR_UNSUPPORTED, "the mock has no native streams");
  }
  return make_stream(backend, native, stream);
}

void stream_destroy(frt_backend_stream stream) {
  MockStream* mock = stream_of(stream);
  if (!mock->queue.empty()) mock->backend->violations.push_back("stream_destroy with work");
  std::erase(mock->backend->streams, mock);
  --mock->backend->live_streams;
  delete mock;
}

frt_status stream_sync(frt_backend_stream stream) {
  MockStream& mock = *stream_of(stream);
  ENTER(*mock.backend, "stream_sync");
  if (mock.capturing) {
    mock.backend->violations.push_back("stream_sync while capturing");
    return FRT_ERR_DEVICE;
  }
  if (!mock.backend->run_until([&] { return mock.queue.empty(); })) return FRT_ERR_DEVICE;
  return std::exchange(mock.backend->late_error, FRT_OK);
}

void* stream_native(frt_backend_stream stream) {
  return stream_of(stream)->native;
}

frt_status stream_call(frt_backend_stream stream, frt_host_function function, void* user) {
  ENTER(*stream_of(stream)->backend, "stream_call");
  MockBackend::Operation operation;
  operation.run = [=, backend = stream_of(stream)->backend] {
    frt_error error{};
    if (function(user, &error) == FRT_OK) return;
    backend->failed_call.note(FRT_ERR_CALLBACK, error.message);
    backend->late_error = FRT_ERR_CALLBACK;
  };
  return stream_of(stream)->backend->submit(*stream_of(stream), std::move(operation));
}

// ---- events --------------------------------------------------------------------------------

frt_status event_create(frt_backend_device device, uint32_t flags, frt_backend_event* event,
                        frt_error* error) {
  MockBackend& backend = *backend_of(device);
  ENTER_REPORTING(backend, "event_create");
  ++backend.live_events;
  *event = reinterpret_cast<frt_backend_event>(
      new MockEvent{&backend, 0, 0, (flags & FRT_EVENT_TIMING) != 0});
  return FRT_OK;
}

void event_destroy(frt_backend_event event) {
  MockEvent* mock = event_of(event);
  mock->backend->check_unused("event_destroy", [=](const MockBackend::Operation& operation) {
    return operation.wait == mock || operation.record == mock;
  });
  --mock->backend->live_events;
  delete mock;
}

frt_status event_record(frt_backend_event event, frt_backend_stream stream) {
  MockEvent& mock = *event_of(event);
  ENTER(*mock.backend, "event_record");
  MockBackend::Operation operation;
  operation.record = &mock;
  operation.sequence = ++mock.recorded;
  return mock.backend->submit(*stream_of(stream), std::move(operation));
}

frt_status event_wait(frt_backend_event event, frt_backend_stream stream) {
  MockEvent& mock = *event_of(event);
  ENTER(*mock.backend, "event_wait");
  MockBackend::Operation operation;
  operation.wait = &mock;
  operation.sequence = mock.recorded;
  return mock.backend->submit(*stream_of(stream), std::move(operation));
}

frt_status event_query(frt_backend_event event) {
  MockEvent& mock = *event_of(event);
  ENTER(*mock.backend, "event_query");
  return mock.done >= mock.recorded ? FRT_OK : FRT_ERR_NOT_READY;
}

frt_status event_sync(frt_backend_event event) {
  MockEvent& mock = *event_of(event);
  ENTER(*mock.backend, "event_sync");
  return mock.backend->run_until([&] { return mock.done >= mock.recorded; }) ? FRT_OK
                                                                             : FRT_ERR_DEVICE;
}

frt_status event_elapsed(frt_backend_event start, frt_backend_event, double* ms) {
  ENTER(*event_of(start)->backend, "event_elapsed");
  *ms = 1.5;
  return FRT_OK;
}

// ---- executables ---------------------------------------------------------------------------

frt_status capture_begin(frt_backend_stream stream, frt_error* error) {
  MockStream& mock = *stream_of(stream);
  ENTER_REPORTING(*mock.backend, "capture_begin");
  if (mock.capturing) mock.backend->violations.push_back("capture_begin while capturing");
  mock.capturing = true;
  mock.recorded.clear();
  return FRT_OK;
}

frt_status capture_end(frt_backend_stream stream, frt_backend_exec* exec, frt_error* error) {
  MockStream& mock = *stream_of(stream);
  mock.capturing = false;
  ENTER_REPORTING(*mock.backend, "capture_end");
  auto made = std::make_unique<MockExec>();
  made->backend = mock.backend;
  made->operations = std::move(mock.recorded);
  ++mock.backend->live_execs;
  *exec = reinterpret_cast<frt_backend_exec>(made.release());
  return FRT_OK;
}

void capture_abort(frt_backend_stream stream) {
  MockStream& mock = *stream_of(stream);
  (void)mock.backend->entered("capture_abort");
  mock.capturing = false;
  mock.recorded.clear();
}

// A native executable of the mock is a std::function<void()>.
frt_status exec_adopt(frt_backend_device device, void* native, uint32_t owned,
                      frt_backend_exec* exec, frt_error* error) {
  MockBackend& backend = *backend_of(device);
  ENTER_REPORTING(backend, "exec_adopt");
  if (!backend.native_forms) {
    return frt::set_error(error, FRT_ERR_UNSUPPORTED, "the mock has no native executables");
  }
  auto made = std::make_unique<MockExec>();
  made->backend = &backend;
  made->adopted = true;
  made->owned = owned != 0;
  MockBackend::Operation operation;
  operation.run = *static_cast<std::function<void()>*>(native);
  made->operations.push_back(std::move(operation));
  ++backend.live_execs;
  *exec = reinterpret_cast<frt_backend_exec>(made.release());
  return FRT_OK;
}

frt_status exec_compose(frt_backend_device device, const frt_backend_node* nodes, uint32_t count,
                        frt_backend_exec* exec, frt_error* error) {
  MockBackend& backend = *backend_of(device);
  ENTER_REPORTING(backend, "exec_compose");
  auto made = std::make_unique<MockExec>();
  made->backend = &backend;
  for (uint32_t i = 0; i < count; ++i) {
    MockExec* part = exec_of(nodes[i].exec);
    part->owners.insert(made.get());
    made->parts.push_back({part, {nodes[i].after, nodes[i].after + nodes[i].after_count}});
  }
  ++backend.live_execs;
  *exec = reinterpret_cast<frt_backend_exec>(made.release());
  return FRT_OK;
}

void exec_destroy(frt_backend_exec exec) {
  MockExec* mock = exec_of(exec);
  MockBackend& backend = *mock->backend;
  if (!mock->owners.empty()) backend.violations.push_back("exec_destroy of a part in use");
  for (const MockExec::Part& part : mock->parts) part.exec->owners.erase(mock);
  backend.check_unused("exec_destroy", [=](const MockBackend::Operation& operation) {
    return operation.exec == mock;
  });
  if (mock->adopted && mock->owned) ++backend.native_destroyed;
  --backend.live_execs;
  delete mock;
}

frt_status exec_launch(frt_backend_exec exec, frt_backend_stream stream) {
  MockExec* mock = exec_of(exec);
  ENTER(*mock->backend, "exec_launch");
  MockBackend::Operation operation;
  operation.exec = mock;
  return mock->backend->submit(*stream_of(stream), std::move(operation));
}

uint64_t exec_node_count(frt_backend_exec exec) {
  return exec_of(exec)->operations.size();
}

// ---- two devices ---------------------------------------------------------------------------

// Two mocks have no event in common: the source is pumped before, the target after.
frt_status copy_peer(frt_backend_stream target_stream, void* target,
                     frt_backend_stream source_stream, const void* source, uint64_t bytes) {
  MockBackend& to = *stream_of(target_stream)->backend;
  ENTER(to, "copy_peer");
  stream_of(source_stream)->backend->pump();
  MockBackend::Operation operation;
  operation.run = [=] { std::memcpy(target, source, bytes); };
  const frt_status status = to.submit(*stream_of(target_stream), std::move(operation));
  to.pump();
  return status;
}

// ---- kernels -------------------------------------------------------------------------------

frt_status launch_append(void* self, frt_backend_stream stream, const void* args,
                         frt_error* error) {
  auto* backend = static_cast<MockBackend*>(self);
  ENTER_REPORTING(*backend, "append");
  const auto& typed = *static_cast<const mock_append_args*>(args);
  if (typed.struct_size < sizeof(mock_append_args)) {
    return frt::set_error(error, FRT_ERR_ABI, "mock.append/1: the argument struct is too small");
  }
  MockBackend::Operation operation;
  operation.run = [backend, value = typed.value] { backend->trace.push_back(value); };
  return backend->submit(*stream_of(stream), std::move(operation));
}

frt_status launch_mix(void* self, frt_backend_stream stream, const void* args, frt_error*) {
  auto* backend = static_cast<MockBackend*>(self);
  const auto& typed = *static_cast<const mock_mix_args*>(args);
  std::vector<const uint64_t*> sources(typed.sources, typed.sources + typed.source_count);
  MockBackend::Operation operation;
  operation.run = [target = typed.target, value = typed.value, sources = std::move(sources)] {
    uint64_t sum = static_cast<uint64_t>(value);
    for (const uint64_t* source : sources) sum += *source;
    *target = 31 * *target + sum;
  };
  return backend->submit(*stream_of(stream), std::move(operation));
}

frt_status last_error(frt_backend_device device, char* text, uint64_t capacity) {
  return backend_of(device)->failed_call.take(text, capacity);
}

// "mock.fails/1" and "frt.mock_refuses/1": operators that refuse their arguments.
frt_status launch_fails(void*, frt_backend_stream, const void*, frt_error* error) {
  return frt::set_error(error, FRT_ERR_INVALID_ARGUMENT, "the argument `value` is wrong");
}

frt_status list_kernels(frt_backend_device device, const frt_kernel_desc** kernels, uint64_t* count,
                        frt_error* error) {
  MockBackend& backend = *backend_of(device);
  ENTER_REPORTING(backend, "list_kernels");
  *kernels = backend.descriptors.data();
  *count = backend.descriptors.size();
  return FRT_OK;
}

}  // namespace

MockBackend::MockBackend(uint32_t seed) : random(seed) {
  table = {sizeof(frt_backend_v1),
           0,
           "mock",
           device_count,
           device_info,
           device_open,
           device_close,
           device_sync,
           device_memory,
           memory_alloc,
           memory_free,
           copy,
           fill,
           stream_create,
           stream_wrap,
           stream_destroy,
           stream_sync,
           stream_native,
           stream_call,
           event_create,
           event_destroy,
           event_record,
           event_wait,
           event_query,
           event_sync,
           event_elapsed,
           capture_begin,
           capture_end,
           capture_abort,
           exec_adopt,
           exec_compose,
           exec_destroy,
           exec_launch,
           exec_node_count,
           nullptr,
           last_error};
  const auto describe = [this](const char* name, auto launch, uint32_t args_size,
                               frt_dtype_set activations,
                               std::span<const frt_weight_format> weights) {
    descriptors.push_back({sizeof(frt_kernel_desc),
                           args_size,
                           name,
                           activations,
                           activations,
                           weights.data(),
                           static_cast<uint32_t>(weights.size()),
                           0,
                           {this, launch, nullptr}});
  };
  const frt_dtype_set bf16 = FRT_DTYPE_BIT(FRT_DTYPE_BF16);
  describe("mock.append/1", launch_append, sizeof(mock_append_args), 0, {});
  describe("mock.mix/1", launch_mix, sizeof(mock_mix_args), 0, {});
  describe("mock.fails/1", launch_fails, 4, 0, {});
  describe("frt.mock_refuses/1", launch_fails, 4, 0, {});
  describe("mock.half/1", launch_append, sizeof(mock_append_args), bf16, {});
  describe("mock.weights/1", launch_append, sizeof(mock_append_args), bf16, {&frt::kWeightBf16, 1});
  kernels = {sizeof(frt_kernels_v1), sizeof(frt_kernel_desc), list_kernels};
}

MockBackend::~MockBackend() = default;

void MockBackend::offer_peer_copies() {
  table.copy_peer = copy_peer;
}

frt_status MockBackend::entered(const char* function) {
  ++calls_[function];
  const auto at = failures_.find(function);
  if (at == failures_.end() || at->second.empty()) return FRT_OK;
  const frt_status status = at->second.front();
  at->second.pop_front();
  if (!words.empty()) failed_call.note(status, words);
  return status;
}

void MockBackend::fail(const std::string& function, frt_status status, int times) {
  for (int i = 0; i < times; ++i) failures_[function].push_back(status);
}

int MockBackend::calls(const std::string& function) const {
  const auto at = calls_.find(function);
  return at == calls_.end() ? 0 : at->second;
}

frt_status MockBackend::submit(MockStream& stream, Operation operation) {
  if (stream.capturing) {
    stream.recorded.push_back(std::move(operation));
  } else {
    stream.queue.push_back(std::move(operation));
  }
  return FRT_OK;
}

std::size_t MockBackend::pending() const {
  std::size_t total = 0;
  for (const MockStream* stream : streams) total += stream->queue.size();
  return total;
}

bool MockBackend::step() {
  std::vector<MockStream*> runnable;
  for (MockStream* stream : streams) {
    if (stream->queue.empty()) continue;
    const Operation& front = stream->queue.front();
    if (!front.wait || front.wait->done >= front.sequence) runnable.push_back(stream);
  }
  if (runnable.empty()) return false;
  MockStream& stream = *runnable[random() % runnable.size()];
  const Operation operation = std::move(stream.queue.front());
  stream.queue.pop_front();
  // An event that two streams recorded is done with the later record, whichever runs last.
  if (MockEvent* event = operation.record) event->done = std::max(event->done, operation.sequence);
  if (operation.exec) operation.exec->run();
  if (operation.run) operation.run();
  return true;
}

void MockBackend::pump() {
  while (step()) {
  }
}

bool MockBackend::run_until(const std::function<bool()>& done) {
  while (!done()) {
    if (!step()) {
      violations.push_back("deadlock: streams wait for each other");
      return false;
    }
  }
  return true;
}

void MockBackend::check_unused(const char* what,
                               const std::function<bool(const Operation&)>& uses) {
  const std::function<bool(const Operation&)> touches = [&](const Operation& operation) {
    if (uses(operation)) return true;
    if (!operation.exec) return false;
    const auto& inner = operation.exec->operations;
    const auto& parts = operation.exec->parts;
    return std::any_of(inner.begin(), inner.end(), touches) ||
           std::any_of(parts.begin(), parts.end(), [&](const MockExec::Part& part) {
             Operation launch;
             launch.exec = part.exec;
             return touches(launch);
           });
  };
  for (const MockStream* stream : streams) {
    if (std::any_of(stream->queue.begin(), stream->queue.end(), touches)) {
      violations.push_back(std::string(what) + " while in flight");
    }
  }
}

void MockExec::run() {
  for (const MockBackend::Operation& operation : operations) operation.run();
  // Any order that respects the dependencies, a different one each time.
  std::vector<bool> done(parts.size());
  for (std::size_t left = parts.size(); left > 0; --left) {
    std::vector<std::size_t> ready;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const auto& after = parts[i].after;
      if (!done[i] &&
          std::all_of(after.begin(), after.end(), [&](uint32_t at) { return done[at]; })) {
        ready.push_back(i);
      }
    }
    const std::size_t next = ready[backend->random() % ready.size()];
    parts[next].exec->run();
    done[next] = true;
  }
}
