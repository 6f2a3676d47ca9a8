// SPDX-License-Identifier: Apache-2.0
// frt.test.far: the CPU backend with the manners of a distant device, to catch hosts and models
// that only work because device memory happens to be theirs.
//
//   * Device memory is mapped without any right of access, except while the device works. A host
//     that reads or writes it dies at that instruction.
//   * The device works only while somebody waits for it: every stream starts with a gate that is
//     opened by a sync and closed behind it. So whoever looks at a result without waiting finds
//     the old bytes, and whoever changes an input too early changes what the device reads. An event
//     that is polled is "not ready" at least once.
//   * Memory is bounded (option `memory`), and running out is an error with numbers.
//   * It can break (option `lost_after`): from the n-th launch of an executable on every call that
//     would use the device reports it lost.
//   * It has something to report about itself, good and not so good.
//
// Everything else is forwarded. While the device works other threads of the host could touch its
// memory unseen; those of a single-threaded test are inside the sync.
#include <dlfcn.h>
#include <sys/mman.h>

#include <frt/backend.h>
#include <frt/device_status.h>
#include <frt/kernels.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <frt/plugin.hpp>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace frt::test {
namespace {

constexpr uint64_t kPage = 4096;
constexpr uint64_t kAhead = 512;  // submissions that wait behind a gate; the CPU's ring holds more
constexpr uint32_t kDeviceType = 12;  // DLPack's number for devices of others

// The CPU backend's tables.
struct Inner {
  const frt_plugin_desc* descriptor = nullptr;
  const frt_config_schema_v1* schema = nullptr;
};
const frt_backend_v1* cpu = nullptr;  // of the plugin that was opened last; they are all the same

const Inner& inner() {
  static const Inner kInner = [] {
    Inner found;
    void* library = ::dlopen(FRT_FAR_INNER, RTLD_NOW | RTLD_LOCAL);
    if (!library) throw Error(FRT_ERR_NOT_FOUND, ::dlerror());
    found.descriptor = static_cast<const frt_plugin_desc*>(::dlsym(library, "frt_plugin_v1"));
    const auto extension = found.descriptor->extension;
    found.schema =
        static_cast<const frt_config_schema_v1*>(extension(nullptr, FRT_EXT_CONFIG_SCHEMA));
    return found;
  }();
  return kInner;
}

// ---- the device ---------------------------------------------------------------------------

// Holds a stream's thread until the work behind it may run.
class Gate {
 public:
  static frt_status pass(void* self, frt_error*) {
    static_cast<Gate*>(self)->wait();
    return FRT_OK;
  }
  void open() {
    {
      const std::lock_guard lock(mutex_);
      open_ = true;
    }
    changed_.notify_all();
  }

 private:
  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return open_; });
    open_ = false;  // for the next time around
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
};

class Device;

struct Stream {
  Device* device = nullptr;
  frt_backend_stream inner = nullptr;
  Gate gate;
  bool gated = false;
  bool capturing = false;
  uint64_t waiting = 0;  // submissions behind the gate
};

struct Event {
  Device* device = nullptr;
  frt_backend_event inner = nullptr;
  bool asked = false;  // since it was recorded
};

struct Kernel {
  frt_kernel inner{};
};

class Device {
 public:
  Device(frt_backend_device device, uint64_t memory, uint64_t lost_after)
      : device_(device), total_(memory), launches_left_(lost_after) {}
  ~Device() {
    run();
    cpu->device_close(device_);
    for (const auto& [pointer, bytes] : regions_) ::munmap(pointer, bytes);
  }

  frt_backend_device inner() const { return device_; }
  uint64_t total() const { return total_; }
  uint64_t free_bytes() const { return total_ - used_; }

  void* allocate(uint64_t bytes) {
    const uint64_t rounded = (bytes + kPage - 1) / kPage * kPage;
    if (bytes == 0 || rounded < bytes) throw Error(FRT_ERR_INVALID_ARGUMENT, "memory_alloc: size");
    if (rounded > free_bytes()) {
      throw Error(FRT_ERR_OUT_OF_MEMORY, "the device has " + std::to_string(free_bytes()) +
                                             " bytes free, asked for " + std::to_string(bytes));
    }
    void* pointer =
        ::mmap(nullptr, rounded, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (pointer == MAP_FAILED) throw Error(FRT_ERR_OUT_OF_MEMORY, "mmap failed");
    regions_[pointer] = rounded;
    used_ += rounded;
    return pointer;
  }
  void release(void* pointer) {
    const auto found = regions_.find(pointer);
    if (found == regions_.end()) return;
    run();
    ::munmap(pointer, found->second);
    used_ -= found->second;
    regions_.erase(found);
  }

  void add(Stream& stream) {
    streams_.push_back(&stream);
    close_gate(stream);
  }
  void remove(Stream& stream) {
    run();
    std::erase(streams_, &stream);
    if (stream.gated) stream.gate.open();
  }

  bool lost() const { return launches_left_ == 0; }
  void count_launch() {
    if (launches_left_ > 0) --launches_left_;
  }

  // Lets everything that was submitted run to its end.
  frt_status run() {
    protect(PROT_READ | PROT_WRITE);
    for (Stream* stream : streams_) {
      if (std::exchange(stream->gated, false)) stream->gate.open();
    }
    frt_status status = FRT_OK;
    for (Stream* stream : streams_) {
      if (stream->capturing) continue;
      const frt_status late = cpu->stream_sync(stream->inner);
      if (status == FRT_OK) status = late;
      stream->waiting = 0;
    }
    protect(PROT_NONE);
    for (Stream* stream : streams_) close_gate(*stream);
    return lost() ? FRT_ERR_DEVICE_LOST : status;
  }

  // Before `count` more submissions to the stream.
  void note(Stream& stream, uint64_t count = 1) {
    if (stream.capturing) return;
    stream.waiting += count;
    if (stream.waiting <= kAhead) return;
    run();
    stream.waiting = count;
  }

  void close_gate(Stream& stream) {
    if (stream.gated || stream.capturing) return;
    cpu->stream_call(stream.inner, &Gate::pass, &stream.gate);
    stream.gated = true;
  }

  std::vector<Kernel> kernels;                // [of the CPU's list]
  std::vector<frt_kernel_desc> descriptions;  // the same, with our launch

 private:
  void protect(int rights) {
    for (const auto& [pointer, bytes] : regions_) ::mprotect(pointer, bytes, rights);
  }

  frt_backend_device device_;
  uint64_t total_;
  uint64_t used_ = 0;
  uint64_t launches_left_;
  std::map<void*, uint64_t> regions_;
  std::vector<Stream*> streams_;
};

// ---- the plugin ---------------------------------------------------------------------------

class FarPlugin {
 public:
  FarPlugin(const Host& host, const ConfigView&) {
    const frt_plugin_desc& plugin = *frt::test::inner().descriptor;
    frt_config none{};
    none.struct_size = sizeof(none);
    frt_error error{};
    check(plugin.open(host.raw(), &none, &inner_, &error), error);
    cpu = static_cast<const frt_backend_v1*>(plugin.extension(inner_, FRT_EXT_BACKEND));
    kernels_ = static_cast<const frt_kernels_v1*>(plugin.extension(inner_, FRT_EXT_KERNELS));
  }
  ~FarPlugin() { frt::test::inner().descriptor->close(inner_); }
  FarPlugin(const FarPlugin&) = delete;
  FarPlugin& operator=(const FarPlugin&) = delete;

  frt_plugin inner() const { return inner_; }
  const frt_kernels_v1& kernels() const { return *kernels_; }

  const void* extension(std::string_view id) noexcept;
  static const void* static_extension(std::string_view id) noexcept;

 private:
  frt_plugin inner_ = nullptr;
  const frt_kernels_v1* kernels_ = nullptr;
};

Device& device_of(frt_backend_device device) {
  return *object<Device>(device);
}
Stream& stream_of(frt_backend_stream stream) {
  return *object<Stream>(stream);
}
Event& event_of(frt_backend_event event) {
  return *object<Event>(event);
}

// ---- devices ----

frt_status device_count(frt_plugin, uint32_t* count, frt_error*) {
  *count = 1;
  return FRT_OK;
}

frt_status device_info(frt_plugin plugin, uint32_t ordinal, frt_device_info* info,
                       frt_error* error) {
  const frt_status status =
      cpu->device_info(object<FarPlugin>(plugin)->inner(), ordinal, info, error);
  std::strcpy(info->name, "far device");
  std::strcpy(info->architecture, "far_1");
  info->dlpack_type = kDeviceType;
  info->flags = 0;
  return status;
}

frt_status launch(void* self, frt_backend_stream stream, const void* args, frt_error* error) {
  const frt_kernel& kernel = static_cast<const Kernel*>(self)->inner;
  Stream& target = stream_of(stream);
  target.device->note(target);
  return kernel.launch(kernel.self, target.inner, args, error);
}

void wrap_kernels(const FarPlugin& plugin, Device& device) {
  const frt_kernel_desc* list = nullptr;
  uint64_t count = 0;
  frt_error error{};
  check(plugin.kernels().list(device.inner(), &list, &count, &error), error);
  device.kernels.resize(count);
  const auto* at = reinterpret_cast<const std::byte*>(list);
  for (uint64_t i = 0; i < count; ++i, at += plugin.kernels().stride) {
    frt_kernel_desc description = *reinterpret_cast<const frt_kernel_desc*>(at);
    device.kernels[i].inner = description.kernel;
    description.kernel = {&device.kernels[i], launch, nullptr};
    device.descriptions.push_back(description);
  }
}

frt_status device_open(frt_plugin plugin, uint32_t ordinal, const frt_config* config,
                       frt_backend_device* device, frt_error* error) {
  return guard(error, [&] {
    const auto& self = *object<FarPlugin>(plugin);
    const ConfigView view(config);
    const uint64_t memory = view.has("memory") ? view.get_size("memory") : 0;
    const auto lost_after = static_cast<uint64_t>(
        view.has("lost_after") ? view.get_int("lost_after") : std::numeric_limits<int64_t>::max());
    // Ours are the first options, the rest is the CPU's.
    frt_config rest = config ? *config : frt_config{};
    if (view.has("memory")) {
      rest.values += 2;
      rest.count -= 2;
    }
    frt_backend_device opened = nullptr;
    frt_error reason{};
    check(cpu->device_open(self.inner(), ordinal, &rest, &opened, &reason), reason);
    uint64_t free_bytes = 0, total = 0;
    cpu->device_memory(opened, &free_bytes, &total);
    auto made = std::make_unique<Device>(opened, memory ? memory : total, lost_after);
    wrap_kernels(self, *made);
    *device = handle<frt_backend_device>(made.release());
  });
}

void device_close(frt_backend_device device) {
  delete object<Device>(device);
}
frt_status device_sync(frt_backend_device device) {
  return device_of(device).run();
}
frt_status device_memory(frt_backend_device device, uint64_t* free_bytes, uint64_t* total) {
  *free_bytes = device_of(device).free_bytes();
  *total = device_of(device).total();
  return FRT_OK;
}

// ---- memory ----

frt_status memory_alloc(frt_backend_device device, frt_space space, uint64_t bytes, void** pointer,
                        frt_error* error) {
  Device& self = device_of(device);
  if (space == FRT_SPACE_SHARED) {
    return set_error(error, FRT_ERR_UNSUPPORTED,
                     "memory_alloc: the device shares no memory; use device memory, and copy");
  }
  if (space != FRT_SPACE_DEVICE) {
    return cpu->memory_alloc(self.inner(), space, bytes, pointer, error);
  }
  if (self.lost()) return set_error(error, FRT_ERR_DEVICE_LOST, "memory_alloc: the device is lost");
  return guard(error, [&] { *pointer = self.allocate(bytes); });
}
void memory_free(frt_backend_device device, frt_space space, void* pointer) {
  Device& self = device_of(device);
  if (space == FRT_SPACE_DEVICE) return self.release(pointer);
  cpu->memory_free(self.inner(), space, pointer);
}
frt_status copy(frt_backend_stream stream, const frt_backend_copy* copies, uint64_t count) {
  Stream& self = stream_of(stream);
  if (self.capturing) return cpu->copy(self.inner, copies, count);
  if (self.device->lost()) return FRT_ERR_DEVICE_LOST;
  frt_status status = FRT_OK;
  for (uint64_t at = 0; at < count && status == FRT_OK; at += kAhead) {
    const uint64_t part = std::min(count - at, kAhead);
    self.device->note(self, part);
    status = cpu->copy(self.inner, copies + at, part);
  }
  return status;
}
frt_status fill(frt_backend_stream stream, void* pointer, frt_space space, uint64_t bytes,
                uint8_t value) {
  Stream& self = stream_of(stream);
  self.device->note(self);
  return cpu->fill(self.inner, pointer, space, bytes, value);
}

// ---- streams ----

frt_status stream_create(frt_backend_device device, int32_t priority, frt_backend_stream* stream,
                         frt_error* error) {
  return guard(error, [&] {
    Device& self = device_of(device);
    auto made = std::make_unique<Stream>();
    made->device = &self;
    frt_error reason{};
    check(cpu->stream_create(self.inner(), priority, &made->inner, &reason), reason);
    self.add(*made);
    *stream = handle<frt_backend_stream>(made.release());
  });
}
frt_status stream_wrap(frt_backend_device, void*, frt_backend_stream*, frt_error* error) {
  return set_error(error, FRT_ERR_UNSUPPORTED, "stream_wrap: there are no native streams");
}
void stream_destroy(frt_backend_stream stream) {
  Stream& self = stream_of(stream);
  self.device->remove(self);
  cpu->stream_destroy(self.inner);
  delete &self;
}
frt_status stream_sync(frt_backend_stream stream) {
  Stream& self = stream_of(stream);
  if (self.capturing) return cpu->stream_sync(self.inner);
  return self.device->run();
}
void* stream_native(frt_backend_stream) {
  return nullptr;
}
frt_status stream_call(frt_backend_stream stream, frt_host_function function, void* user) {
  Stream& self = stream_of(stream);
  self.device->note(self);
  return cpu->stream_call(self.inner, function, user);
}

// ---- events ----

frt_status event_create(frt_backend_device device, uint32_t flags, frt_backend_event* event,
                        frt_error* error) {
  return guard(error, [&] {
    Device& self = device_of(device);
    auto made = std::make_unique<Event>();
    made->device = &self;
    frt_error reason{};
    check(cpu->event_create(self.inner(), flags, &made->inner, &reason), reason);
    *event = handle<frt_backend_event>(made.release());
  });
}
void event_destroy(frt_backend_event event) {
  Event& self = event_of(event);
  self.device->run();
  cpu->event_destroy(self.inner);
  delete &self;
}
frt_status event_record(frt_backend_event event, frt_backend_stream stream) {
  Stream& target = stream_of(stream);
  target.device->note(target);
  event_of(event).asked = false;
  return cpu->event_record(event_of(event).inner, target.inner);
}
frt_status event_wait(frt_backend_event event, frt_backend_stream stream) {
  Stream& target = stream_of(stream);
  target.device->note(target);
  return cpu->event_wait(event_of(event).inner, target.inner);
}
frt_status event_query(frt_backend_event event) {
  Event& self = event_of(event);
  if (std::exchange(self.asked, true)) self.device->run();
  return cpu->event_query(self.inner);
}
frt_status event_sync(frt_backend_event event) {
  Event& self = event_of(event);
  const frt_status status = self.device->run();
  return status == FRT_OK ? cpu->event_sync(self.inner) : status;
}
frt_status event_elapsed(frt_backend_event start, frt_backend_event end, double* ms) {
  Event& self = event_of(start);
  return cpu->event_elapsed(self.inner, event_of(end).inner, ms);
}

// ---- executables ----

frt_status capture_begin(frt_backend_stream stream, frt_error* error) {
  Stream& self = stream_of(stream);
  const frt_status status = cpu->capture_begin(self.inner, error);
  if (status == FRT_OK) self.capturing = true;
  return status;
}
frt_status capture_end(frt_backend_stream stream, frt_backend_exec* exec, frt_error* error) {
  Stream& self = stream_of(stream);
  self.capturing = false;
  return cpu->capture_end(self.inner, exec, error);
}
void capture_abort(frt_backend_stream stream) {
  Stream& self = stream_of(stream);
  self.capturing = false;
  cpu->capture_abort(self.inner);
}
frt_status exec_adopt(frt_backend_device, void*, uint32_t, frt_backend_exec*, frt_error* error) {
  return set_error(error, FRT_ERR_UNSUPPORTED, "exec_adopt: there are no native executables");
}
// The CPU's executables are handed out as they are.
frt_status exec_compose(frt_backend_device device, const frt_backend_node* nodes, uint32_t count,
                        frt_backend_exec* exec, frt_error* error) {
  return cpu->exec_compose(device_of(device).inner(), nodes, count, exec, error);
}
void exec_destroy(frt_backend_exec exec) {
  cpu->exec_destroy(exec);
}
frt_status exec_launch(frt_backend_exec exec, frt_backend_stream stream) {
  Stream& self = stream_of(stream);
  self.device->count_launch();
  // A broken device touches no memory any more, so its owner may free it without waiting.
  if (self.device->lost()) return self.device->run();
  self.device->note(self);
  return cpu->exec_launch(exec, self.inner);
}
uint64_t exec_node_count(frt_backend_exec exec) {
  return cpu->exec_node_count(exec);
}

// ---- tables ----

frt_status list_kernels(frt_backend_device device, const frt_kernel_desc** kernels, uint64_t* count,
                        frt_error*) {
  *kernels = device_of(device).descriptions.data();
  *count = device_of(device).descriptions.size();
  return FRT_OK;
}

frt_status last_error(frt_backend_device device, char* text, uint64_t capacity) {
  return cpu->last_error(device_of(device).inner(), text, capacity);
}

constexpr frt_backend_v1 kBackend = {sizeof(frt_backend_v1),
                                     0,
                                     "far",
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

constexpr frt_kernels_v1 kKernels = {sizeof(frt_kernels_v1), sizeof(frt_kernel_desc), list_kernels};

// "memory" and the CPU's own options.
const frt_config_schema_v1& schema() {
  static const std::vector<frt_config_option> kOptions = [] {
    std::vector<frt_config_option> options = {
        {"memory", FRT_CONFIG_SIZE, 0, "0", nullptr, 0, 0, "device memory in bytes; 0: no limit"},
        {"lost_after", FRT_CONFIG_INT, 0, "9223372036854775807", nullptr, 0, 0,
         "the launch of an executable at which the device breaks"}};
    const frt_config_schema_v1& inner = *frt::test::inner().schema;
    options.insert(options.end(), inner.options, inner.options + inner.option_count);
    return options;
  }();
  static const frt_config_schema_v1 kSchema = {
      sizeof(frt_config_schema_v1), 0, nullptr, 0, kOptions.data(), kOptions.size()};
  return kSchema;
}

frt_status read_status(frt_plugin, uint32_t, frt_device_status*, frt_error* error) {
  set_error(error, FRT_ERR_UNSUPPORTED, "the far device has no clock");
  return FRT_ERR_UNSUPPORTED;
}

frt_status report(frt_plugin, uint32_t, void* self,
                  void (*found)(void* self, const char* subject, const char* fact,
                                const char* advice),
                  frt_error*) {
  found(self, "distance", "384400 km", "");
  for (int i = 0; i < 20; ++i) {
    found(self, ("crater " + std::to_string(i)).c_str(), "dusty", "");
  }
  found(self, "signal", "weak", "turn the dish");
  return FRT_OK;
}

constexpr frt_device_status_v1 kDeviceStatus = {
    .struct_size = sizeof(frt_device_status_v1),
    .reserved = 0,
    .read = read_status,
    .report = report,
};

const void* FarPlugin::extension(std::string_view id) noexcept {
  if (id == FRT_EXT_BACKEND) return &kBackend;
  if (id == FRT_EXT_KERNELS) return &kKernels;
  if (id == FRT_EXT_DEVICE_STATUS) return &kDeviceStatus;
  return nullptr;
}
const void* FarPlugin::static_extension(std::string_view id) noexcept {
  return id == FRT_EXT_CONFIG_SCHEMA ? &schema() : nullptr;
}

}  // namespace
}  // namespace frt::test

FRT_PLUGIN(frt::test::FarPlugin, backend, "frt.test.far", "1.0.0", R"(
targets = ["far_1"]
summary = "For tests: the CPU with device memory that the host cannot touch"
)");
