// SPDX-License-Identifier: Apache-2.0
// The plugin frt.cuda.*: its card, its options and the C tables of its extensions. Every
// function here only translates: handles to objects, exceptions to codes. Compiled once per
// architecture: the card says what the plugin has code for.
#include <frt/backend.h>
#include <frt/device_status.h>
#include <frt/kernels.h>

#include <frt/plugin.hpp>
#include <string>

#include "blas_report.hpp"
#include "device.hpp"
#include "driver.hpp"
#include "event.hpp"
#include "graph.hpp"
#include "memory.hpp"
#include "stream.hpp"

namespace frt::cuda {
namespace {

const Host& host_of(frt_plugin plugin);

constexpr PluginCode kCode = {"frt.cuda.sm" FRT_CUDA_ARCH_TEXT, FRT_CUDA_ARCH,
                              FRT_CUDA_TARGET_TEXT};

// ---- options ------------------------------------------------------------------------------

constexpr frt_config_option kDeviceOptions[] = {
    {"fp8_activations", FRT_CONFIG_ENUM, 0, "off", "off|on", 0, 0,
     "on: products of many rows with FP8 weights round their activations to FP8, too: faster "
     "prefill, less exact"},
};
constexpr frt_config_schema_v1 kSchema = config_schema(kNoOptions, kDeviceOptions);

DeviceOptions read_options(const frt_config* raw) {
  const ConfigView config(raw);
  DeviceOptions options;
  if (config.has("fp8_activations")) {
    const std::string word = config.get_string("fp8_activations");
    if (word != "off" && word != "on") {
      throw Error(FRT_ERR_INVALID_ARGUMENT,
                  "fp8_activations = \"" + word + "\" is not known; use off or on");
    }
    options.fp8_activations = word == "on";
  }
  return options;
}

// ---- from handles to objects --------------------------------------------------------------

// The object behind a handle of a setup call.
template <class Object, class Handle>
Object& checked(Handle handle, const char* function) {
  if (!handle) {
    throw Error(FRT_ERR_INVALID_ARGUMENT, std::string(function) + ": a handle is NULL");
  }
  return *object<Object>(handle);
}

void check_out(const void* out, const char* function) {
  if (!out) throw Error(FRT_ERR_INVALID_ARGUMENT, std::string(function) + ": no place to write to");
}

// ---- devices ------------------------------------------------------------------------------

frt_status device_count(frt_plugin, uint32_t* count, frt_error* why_none) {
  return guard(why_none, [&] {
    check_out(count, "device_count");
    const DriverState state = ask_driver();
    *count = static_cast<uint32_t>(state.devices);
    if (state.devices == 0) set_error(why_none, FRT_ERR_NOT_FOUND, why_no_device(state));
  });
}

frt_status device_info(frt_plugin, uint32_t ordinal, frt_device_info* info, frt_error* error) {
  return guard(error, [&] {
    check_out(info, "device_info");
    describe_device(kCode, ordinal, *info);
  });
}

frt_status device_open(frt_plugin plugin, uint32_t ordinal, const frt_config* config,
                       frt_backend_device* device, frt_error* error) {
  return guard(error, [&] {
    check_out(device, "device_open");
    const int index = static_cast<int>(ordinal);
    if (const std::string refusal = why_not_runnable(kCode, device_capability(index));
        !refusal.empty()) {
      throw Error(FRT_ERR_UNSUPPORTED,
                  "device_open: device " + std::to_string(ordinal) + ": " + refusal);
    }
    *device = handle<frt_backend_device>(new Device(index, read_options(config), host_of(plugin)));
  });
}

void device_close(frt_backend_device device) {
  delete object<Device>(device);
}

frt_status device_sync(frt_backend_device device) {
  if (!device) return FRT_ERR_INVALID_ARGUMENT;
  return object<Device>(device)->sync();
}

frt_status device_memory(frt_backend_device device, uint64_t* free_bytes, uint64_t* total_bytes) {
  if (!device || !free_bytes || !total_bytes) return FRT_ERR_INVALID_ARGUMENT;
  return object<Device>(device)->memory(*free_bytes, *total_bytes);
}

// ---- memory -------------------------------------------------------------------------------

frt_status memory_alloc(frt_backend_device device, frt_space space, uint64_t bytes, void** pointer,
                        frt_error* error) {
  return guard(error, [&] {
    auto& owner = checked<Device>(device, "memory_alloc");
    check_out(pointer, "memory_alloc");
    *pointer = allocate_memory(owner, space, bytes);
  });
}

void memory_free(frt_backend_device device, frt_space space, void* pointer) {
  if (device) free_memory(*object<Device>(device), space, pointer);
}

frt_status copy(frt_backend_stream stream, const frt_backend_copy* copies, uint64_t count) {
  if (!stream) return FRT_ERR_INVALID_ARGUMENT;
  return guard(nullptr, [&] { return object<Stream>(stream)->copy(copies, count); });
}

frt_status fill(frt_backend_stream stream, void* pointer, frt_space space, uint64_t bytes,
                uint8_t value) {
  if (!stream) return FRT_ERR_INVALID_ARGUMENT;
  return guard(nullptr, [&] { return object<Stream>(stream)->fill(pointer, space, bytes, value); });
}

// ---- streams ------------------------------------------------------------------------------

frt_status stream_create(frt_backend_device device, int32_t priority, frt_backend_stream* stream,
                         frt_error* error) {
  return guard(error, [&] {
    check_out(stream, "stream_create");
    auto& owner = checked<Device>(device, "stream_create");
    *stream = handle<frt_backend_stream>(new Stream(owner, priority));
  });
}

frt_status stream_wrap(frt_backend_device device, void* native, frt_backend_stream* stream,
                       frt_error* error) {
  return guard(error, [&] {
    check_out(stream, "stream_wrap");
    auto& owner = checked<Device>(device, "stream_wrap");
    *stream = handle<frt_backend_stream>(new Stream(owner, static_cast<cudaStream_t>(native)));
  });
}

void stream_destroy(frt_backend_stream stream) {
  delete object<Stream>(stream);
}

frt_status stream_sync(frt_backend_stream stream) {
  return stream ? object<Stream>(stream)->sync() : FRT_ERR_INVALID_ARGUMENT;
}

void* stream_native(frt_backend_stream stream) {
  return stream ? object<Stream>(stream)->native() : nullptr;
}

frt_status stream_call(frt_backend_stream stream, void (*function)(void* user), void* user) {
  if (!stream) return FRT_ERR_INVALID_ARGUMENT;
  return guard(nullptr, [&] { return object<Stream>(stream)->call(function, user); });
}

// ---- events -------------------------------------------------------------------------------

frt_status event_create(frt_backend_device device, uint32_t flags, frt_backend_event* event,
                        frt_error* error) {
  return guard(error, [&] {
    check_out(event, "event_create");
    if ((flags & ~FRT_EVENT_TIMING) != 0) {
      throw Error(FRT_ERR_INVALID_ARGUMENT,
                  "event_create: flags " + std::to_string(flags) + " are not known");
    }
    auto& owner = checked<Device>(device, "event_create");
    *event = handle<frt_backend_event>(new Event(owner, flags));
  });
}

void event_destroy(frt_backend_event event) {
  delete object<Event>(event);
}

frt_status event_record(frt_backend_event event, frt_backend_stream stream) {
  if (!event || !stream) return FRT_ERR_INVALID_ARGUMENT;
  return object<Stream>(stream)->record(*object<Event>(event));
}

frt_status event_wait(frt_backend_event event, frt_backend_stream stream) {
  if (!event || !stream) return FRT_ERR_INVALID_ARGUMENT;
  return object<Stream>(stream)->wait(*object<Event>(event));
}

frt_status event_query(frt_backend_event event) {
  return event ? object<Event>(event)->query() : FRT_ERR_INVALID_ARGUMENT;
}

frt_status event_sync(frt_backend_event event) {
  return event ? object<Event>(event)->sync() : FRT_ERR_INVALID_ARGUMENT;
}

frt_status event_elapsed(frt_backend_event start, frt_backend_event end, double* ms) {
  if (!start || !end || !ms) return FRT_ERR_INVALID_ARGUMENT;
  return Event::elapsed(*object<Event>(start), *object<Event>(end), *ms);
}

// ---- executables --------------------------------------------------------------------------

frt_status capture_begin(frt_backend_stream stream, frt_error* error) {
  return guard(error, [&] { checked<Stream>(stream, "capture_begin").capture_begin(); });
}

frt_status capture_end(frt_backend_stream stream, frt_backend_exec* exec, frt_error* error) {
  return guard(error, [&] {
    auto& target = checked<Stream>(stream, "capture_end");
    auto made = target.capture_end();
    check_out(exec, "capture_end");
    *exec = handle<frt_backend_exec>(made.release());
  });
}

void capture_abort(frt_backend_stream stream) {
  if (stream) object<Stream>(stream)->capture_abort();
}

frt_status exec_adopt(frt_backend_device device, void* native, uint32_t owned,
                      frt_backend_exec* exec, frt_error* error) {
  return guard(error, [&] {
    check_out(exec, "exec_adopt");
    auto& owner = checked<Device>(device, "exec_adopt");
    check_out(native, "exec_adopt");
    *exec =
        handle<frt_backend_exec>(new Exec(owner, static_cast<cudaGraphExec_t>(native), owned != 0));
  });
}

frt_status exec_compose(frt_backend_device device, const frt_backend_node* nodes, uint32_t count,
                        frt_backend_exec* exec, frt_error* error) {
  return guard(error, [&] {
    check_out(exec, "exec_compose");
    auto& owner = checked<Device>(device, "exec_compose");
    *exec = handle<frt_backend_exec>(Exec::compose(owner, nodes, count).release());
  });
}

void exec_destroy(frt_backend_exec exec) {
  delete object<Exec>(exec);
}

frt_status exec_launch(frt_backend_exec exec, frt_backend_stream stream) {
  if (!exec || !stream) return FRT_ERR_INVALID_ARGUMENT;
  return object<Stream>(stream)->launch(*object<Exec>(exec));
}

uint64_t exec_node_count(frt_backend_exec exec) {
  return exec ? object<Exec>(exec)->node_count() : 0;
}

// ---- kernels ------------------------------------------------------------------------------

frt_status list_kernels(frt_backend_device device, const frt_kernel_desc** kernels, uint64_t* count,
                        frt_error* error) {
  return guard(error, [&] {
    check_out(kernels, "kernels list");
    check_out(count, "kernels list");
    const auto& list = checked<Device>(device, "kernels list").kernels().descriptors();
    *kernels = list.data();
    *count = list.size();
  });
}

// ---- device status ------------------------------------------------------------------------

frt_status read_status(frt_plugin, uint32_t ordinal, frt_device_status* status, frt_error* error) {
  return guard(error, [&] {
    check_out(status, "device status");
    read_device_status(ordinal, *status);
  });
}

frt_status report(frt_plugin, uint32_t ordinal, void* self,
                  void (*found)(void* self, const char* subject, const char* fact,
                                const char* advice),
                  frt_error* error) {
  return guard(error, [&] {
    if (!found) throw Error(FRT_ERR_INVALID_ARGUMENT, "device report: no function to call");
    frt_device_info info{};
    info.struct_size = sizeof(info);
    describe_device(kCode, ordinal, info);
    for (const Finding& one : report_blas(info.name)) {
      found(self, one.subject.c_str(), one.fact.c_str(), one.advice.c_str());
    }
  });
}

// ---- tables -------------------------------------------------------------------------------

constexpr frt_backend_v1 kBackend = {
    .struct_size = sizeof(frt_backend_v1),
    .reserved = 0,
    .native_kind = "cuda",
    .device_count = device_count,
    .device_info = device_info,
    .device_open = device_open,
    .device_close = device_close,
    .device_sync = device_sync,
    .device_memory = device_memory,
    .memory_alloc = memory_alloc,
    .memory_free = memory_free,
    .copy = copy,
    .fill = fill,
    .stream_create = stream_create,
    .stream_wrap = stream_wrap,
    .stream_destroy = stream_destroy,
    .stream_sync = stream_sync,
    .stream_native = stream_native,
    .stream_call = stream_call,
    .event_create = event_create,
    .event_destroy = event_destroy,
    .event_record = event_record,
    .event_wait = event_wait,
    .event_query = event_query,
    .event_sync = event_sync,
    .event_elapsed = event_elapsed,
    .capture_begin = capture_begin,
    .capture_end = capture_end,
    .capture_abort = capture_abort,
    .exec_adopt = exec_adopt,
    .exec_compose = exec_compose,
    .exec_destroy = exec_destroy,
    .exec_launch = exec_launch,
    .exec_node_count = exec_node_count,
};

constexpr frt_kernels_v1 kKernels = {
    .struct_size = sizeof(frt_kernels_v1),
    .stride = sizeof(frt_kernel_desc),
    .list = list_kernels,
};

constexpr frt_device_status_v1 kDeviceStatus = {
    .struct_size = sizeof(frt_device_status_v1),
    .reserved = 0,
    .read = read_status,
    .report = report,
};

}  // namespace

// One opened plugin. All state belongs to devices, so there is none here but the way to the log.
class CudaPlugin {
 public:
  CudaPlugin(const Host& host, const ConfigView&) : host_(host) {}

  const Host& host() const noexcept { return host_; }

  const void* extension(std::string_view id) noexcept {
    if (id == FRT_EXT_BACKEND) return &kBackend;
    if (id == FRT_EXT_KERNELS) return &kKernels;
    if (id == FRT_EXT_DEVICE_STATUS) return &kDeviceStatus;
    return nullptr;
  }
  static const void* static_extension(std::string_view id) noexcept {
    return id == FRT_EXT_CONFIG_SCHEMA ? &kSchema : nullptr;
  }

 private:
  const Host host_;
};

namespace {

const Host& host_of(frt_plugin plugin) {
  if (!plugin) throw Error(FRT_ERR_INVALID_ARGUMENT, "device_open: the plugin is NULL");
  return object<CudaPlugin>(plugin)->host();
}

}  // namespace

}  // namespace frt::cuda

FRT_PLUGIN(frt::cuda::CudaPlugin, backend, "frt.cuda.sm" FRT_CUDA_ARCH_TEXT, "1.0.0",
           "targets = [\"" FRT_CUDA_TARGET_TEXT
           "\"]\n"
           "ptx = [\"compute_" FRT_CUDA_ARCH_TEXT
           "\"]\n"
           "requires = [\"NVIDIA driver >= 580 (CUDA 13)\"]\n"
           "summary = \"NVIDIA GPUs of architecture " FRT_CUDA_TARGET_TEXT
           ", and newer ones through PTX\"\n");
