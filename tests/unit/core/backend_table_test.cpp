// SPDX-License-Identifier: Apache-2.0
// frt/backend.hpp: what the tables made of C++ classes do with exceptions, with NULL, and with
// what a backend does not have.
#include <doctest/doctest.h>

#include <frt/backend.hpp>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using frt::Error;

bool broken = false;  // everything throws
int alive = 0;

void fail_if_broken() {
  if (broken) throw Error(FRT_ERR_DEVICE, "broken");
}

struct Counted {
  Counted() { ++alive; }
  ~Counted() { --alive; }
  Counted(const Counted&) = delete;
};

struct Device : Counted {
  struct List {
    std::vector<frt_kernel_desc> made = std::vector<frt_kernel_desc>(3);
    const std::vector<frt_kernel_desc>& descriptors() const {
      fail_if_broken();
      return made;
    }
  };
  frt_status sync() {
    fail_if_broken();
    return FRT_OK;
  }
  const List& kernels() const { return list; }
  List list;
};
struct Event : Counted {
  Event(Device&, uint32_t made_with) : flags(made_with) { fail_if_broken(); }
  frt_status query() {
    fail_if_broken();
    return FRT_ERR_NOT_READY;
  }
  frt_status sync() { return query(); }
  static frt_status elapsed(Event& start, Event& end, double& ms) {
    fail_if_broken();
    ms = start.flags + end.flags;
    return FRT_OK;
  }
  uint32_t flags;
};
struct Exec : Counted {
  uint64_t node_count() const noexcept { return 7; }
  static std::unique_ptr<Exec> compose(Device&, const frt_backend_node*, uint32_t) {
    fail_if_broken();
    return std::make_unique<Exec>();
  }
};
struct Stream : Counted {
  Stream(Device&, int32_t) { fail_if_broken(); }
  frt_status submit() {
    if (broken) throw std::runtime_error("anything");
    return FRT_OK;
  }
  frt_status copy(const frt_backend_copy*, uint64_t) { return submit(); }
  frt_status fill(void*, frt_space, uint64_t, uint8_t) { return submit(); }
  frt_status call(frt_host_function, void*) { return submit(); }
  frt_status record(Event&) { return submit(); }
  frt_status wait(Event&) { return submit(); }
  frt_status launch(Exec&) { return submit(); }
  frt_status sync() { return submit(); }
  void capture_begin() { fail_if_broken(); }
  std::unique_ptr<Exec> capture_end() {
    fail_if_broken();
    return std::make_unique<Exec>();
  }
  void capture_abort() { fail_if_broken(); }
};

// Without native streams and executables.
struct Plain {
  using Device = ::Device;
  using Stream = ::Stream;
  using Event = ::Event;
  using Exec = ::Exec;
  static constexpr const char* kNativeKind = "plain";
  static uint32_t count(std::string& why_none) {
    if (broken) why_none = "it is broken";
    return broken ? 0 : 2;
  }
  static void describe(uint32_t ordinal, frt_device_info& info) {
    fail_if_broken();
    info.compute_units = ordinal;
  }
  static std::unique_ptr<Device> open(frt_plugin, uint32_t, const frt_config*) {
    fail_if_broken();
    return std::make_unique<Device>();
  }
  static frt_status memory(Device&, uint64_t& free_bytes, uint64_t& total_bytes) {
    fail_if_broken();
    free_bytes = 1;
    total_bytes = 2;
    return FRT_OK;
  }
  static void* allocate(Device&, frt_space, uint64_t) {
    fail_if_broken();
    return &alive;
  }
  static void release(Device*, frt_space, void*) noexcept {}
};
struct Native : Plain {
  static std::unique_ptr<Stream> wrap(Device& device, void*) {
    return std::make_unique<Stream>(device, 0);
  }
  static void* native(Stream& stream) noexcept { return &stream; }
  static std::unique_ptr<Exec> adopt(Device&, void*, bool) { return std::make_unique<Exec>(); }
};

// Whose errors have words.
struct TalkingDevice : Device {
  frt::FailedCall failed_call;
};
struct TalkingStream : Stream {
  TalkingStream(TalkingDevice& device, int32_t priority) : Stream(device, priority), on(device) {}
  TalkingDevice& device() const noexcept { return on; }
  TalkingDevice& on;
};
struct TalkingEvent : Event {
  TalkingEvent(TalkingDevice& device, uint32_t made) : Event(device, made), on(device) {}
  TalkingDevice& device() const noexcept { return on; }
  TalkingDevice& on;
};
struct Talking : Plain {
  using Device = TalkingDevice;
  using Stream = TalkingStream;
  using Event = TalkingEvent;
  static std::unique_ptr<Device> open(frt_plugin, uint32_t, const frt_config*) {
    return std::make_unique<Device>();
  }
  static frt::FailedCall& failed_call(Device& device) noexcept { return device.failed_call; }
};

constexpr frt_backend_v1 kTalking = frt::backend_table<Talking>();
constexpr frt_backend_v1 kPlain = frt::backend_table<Plain>();
constexpr frt_backend_v1 kNative = frt::backend_table<Native>();
constexpr frt_kernels_v1 kKernels = frt::kernels_table<Plain>();

// One of everything.
struct Made {
  Made() {
    CHECK(kPlain.device_open(nullptr, 0, nullptr, &device, &error) == FRT_OK);
    CHECK(kPlain.stream_create(device, 0, &stream, &error) == FRT_OK);
    CHECK(kPlain.event_create(device, FRT_EVENT_TIMING, &event, &error) == FRT_OK);
    CHECK(kPlain.capture_begin(stream, &error) == FRT_OK);
    CHECK(kPlain.capture_end(stream, &exec, &error) == FRT_OK);
  }
  ~Made() {
    broken = false;
    kPlain.exec_destroy(exec);
    kPlain.event_destroy(event);
    kPlain.stream_destroy(stream);
    kPlain.device_close(device);
  }
  frt_backend_device device = nullptr;
  frt_backend_stream stream = nullptr;
  frt_backend_event event = nullptr;
  frt_backend_exec exec = nullptr;
  frt_error error{};
};

}  // namespace

TEST_CASE("tables of classes: handles reach their objects, and objects die with them") {
  CHECK(std::string(kPlain.native_kind) == "plain");
  {
    Made made;
    CHECK(alive == 4);
    uint32_t count = 0;
    CHECK(kPlain.device_count(nullptr, &count, &made.error) == FRT_OK);
    CHECK(count == 2);
    frt_device_info info{};
    CHECK(kPlain.device_info(nullptr, 1, &info, &made.error) == FRT_ERR_ABI);
    info.struct_size = offsetof(frt_device_info, flags);
    info.flags = 77;  // behind what this caller knows
    CHECK(kPlain.device_info(nullptr, 1, &info, &made.error) == FRT_OK);
    CHECK(info.struct_size == offsetof(frt_device_info, flags));
    CHECK(info.flags == 77);
    CHECK(info.compute_units == 1);
    uint64_t free_bytes = 0, total_bytes = 0;
    CHECK(kPlain.device_memory(made.device, &free_bytes, &total_bytes) == FRT_OK);
    CHECK(total_bytes == 2);
    double ms = 0;
    CHECK(kPlain.event_elapsed(made.event, made.event, &ms) == FRT_OK);
    CHECK(ms == 2 * FRT_EVENT_TIMING);
    CHECK(kPlain.event_query(made.event) == FRT_ERR_NOT_READY);
    CHECK(kPlain.exec_launch(made.exec, made.stream) == FRT_OK);
    CHECK(kPlain.exec_node_count(made.exec) == 7);
    const frt_kernel_desc* kernels = nullptr;
    uint64_t kernel_count = 0;
    CHECK(kKernels.list(made.device, &kernels, &kernel_count, &made.error) == FRT_OK);
    CHECK(kernel_count == 3);
  }
  CHECK(alive == 0);
}

TEST_CASE("tables of classes: whatever is thrown becomes a code and a text") {
  Made made;
  broken = true;
  frt_error error{};
  uint32_t count = 9;
  CHECK(kPlain.device_count(nullptr, &count, &error) == FRT_OK);
  CHECK(count == 0);
  CHECK(std::string(error.message) == "it is broken");
  frt_device_info info{};
  CHECK(kPlain.device_info(nullptr, 0, &info, &error) == FRT_ERR_DEVICE);
  CHECK(std::string(error.message) == "broken");
  frt_backend_device device = nullptr;
  CHECK(kPlain.device_open(nullptr, 0, nullptr, &device, &error) == FRT_ERR_DEVICE);
  CHECK(kPlain.device_sync(made.device) == FRT_ERR_DEVICE);
  uint64_t bytes = 0;
  CHECK(kPlain.device_memory(made.device, &bytes, &bytes) == FRT_ERR_DEVICE);
  void* pointer = nullptr;
  CHECK(kPlain.memory_alloc(made.device, FRT_SPACE_DEVICE, 1, &pointer, &error) == FRT_ERR_DEVICE);
  frt_backend_stream stream = nullptr;
  CHECK(kPlain.stream_create(made.device, 0, &stream, &error) == FRT_ERR_DEVICE);
  frt_backend_event event = nullptr;
  CHECK(kPlain.event_create(made.device, 0, &event, &error) == FRT_ERR_DEVICE);
  frt_backend_exec exec = nullptr;
  CHECK(kPlain.capture_begin(made.stream, &error) == FRT_ERR_DEVICE);
  CHECK(kPlain.capture_end(made.stream, &exec, &error) == FRT_ERR_DEVICE);
  kPlain.capture_abort(made.stream);
  CHECK(kPlain.exec_compose(made.device, nullptr, 0, &exec, &error) == FRT_ERR_DEVICE);
  CHECK(kPlain.copy(made.stream, nullptr, 0) == FRT_ERR_INTERNAL);
  CHECK(kPlain.fill(made.stream, nullptr, FRT_SPACE_DEVICE, 0, 0) == FRT_ERR_INTERNAL);
  CHECK(kPlain.stream_call(made.stream, nullptr, nullptr) == FRT_ERR_INTERNAL);
  CHECK(kPlain.stream_sync(made.stream) == FRT_ERR_INTERNAL);
  CHECK(kPlain.event_record(made.event, made.stream) == FRT_ERR_INTERNAL);
  CHECK(kPlain.event_wait(made.event, made.stream) == FRT_ERR_INTERNAL);
  CHECK(kPlain.exec_launch(made.exec, made.stream) == FRT_ERR_INTERNAL);
  CHECK(kPlain.event_query(made.event) == FRT_ERR_DEVICE);
  CHECK(kPlain.event_sync(made.event) == FRT_ERR_DEVICE);
  double ms = 0;
  CHECK(kPlain.event_elapsed(made.event, made.event, &ms) == FRT_ERR_DEVICE);
  const frt_kernel_desc* kernels = nullptr;
  CHECK(kKernels.list(made.device, &kernels, &bytes, &error) == FRT_ERR_DEVICE);
  CHECK(alive == 4);
}

TEST_CASE("tables of classes: NULL is refused everywhere, and destroyed in peace") {
  Made made;
  frt_error error{};
  const frt_status invalid = FRT_ERR_INVALID_ARGUMENT;
  uint64_t bytes = 0;
  double ms = 0;
  void* pointer = nullptr;
  frt_backend_stream stream = nullptr;
  frt_backend_event event = nullptr;
  frt_backend_exec exec = nullptr;
  const frt_kernel_desc* kernels = nullptr;
  CHECK(kPlain.device_count(nullptr, nullptr, &error) == invalid);
  CHECK(kPlain.device_info(nullptr, 0, nullptr, &error) == invalid);
  CHECK(kPlain.device_open(nullptr, 0, nullptr, nullptr, &error) == invalid);
  CHECK(kPlain.device_sync(nullptr) == invalid);
  CHECK(kPlain.device_memory(nullptr, &bytes, &bytes) == invalid);
  CHECK(kPlain.device_memory(made.device, nullptr, &bytes) == invalid);
  CHECK(kPlain.memory_alloc(nullptr, FRT_SPACE_DEVICE, 1, &pointer, &error) == invalid);
  CHECK(kPlain.memory_alloc(made.device, FRT_SPACE_DEVICE, 1, nullptr, &error) == invalid);
  CHECK(kPlain.copy(nullptr, nullptr, 0) == invalid);
  CHECK(kPlain.fill(nullptr, nullptr, FRT_SPACE_DEVICE, 0, 0) == invalid);
  CHECK(kPlain.stream_create(nullptr, 0, &stream, &error) == invalid);
  CHECK(kPlain.stream_create(made.device, 0, nullptr, &error) == invalid);
  CHECK(kPlain.stream_sync(nullptr) == invalid);
  CHECK(kPlain.stream_native(nullptr) == nullptr);
  CHECK(kPlain.stream_call(nullptr, nullptr, nullptr) == invalid);
  CHECK(kPlain.event_create(nullptr, 0, &event, &error) == invalid);
  CHECK(kPlain.event_create(made.device, 0, nullptr, &error) == invalid);
  CHECK(kPlain.event_create(made.device, 2, &event, &error) == FRT_ERR_UNSUPPORTED);
  CHECK(kPlain.event_record(nullptr, made.stream) == invalid);
  CHECK(kPlain.event_record(made.event, nullptr) == invalid);
  CHECK(kPlain.event_wait(made.event, nullptr) == invalid);
  CHECK(kPlain.event_query(nullptr) == invalid);
  CHECK(kPlain.event_sync(nullptr) == invalid);
  CHECK(kPlain.event_elapsed(made.event, made.event, nullptr) == invalid);
  CHECK(kPlain.event_elapsed(nullptr, made.event, &ms) == invalid);
  CHECK(kPlain.capture_begin(nullptr, &error) == invalid);
  CHECK(kPlain.capture_end(nullptr, &exec, &error) == invalid);
  CHECK(kPlain.capture_end(made.stream, nullptr, &error) == invalid);
  CHECK(kPlain.exec_compose(nullptr, nullptr, 0, &exec, &error) == invalid);
  CHECK(kPlain.exec_launch(made.exec, nullptr) == invalid);
  CHECK(kPlain.exec_node_count(nullptr) == 0);
  CHECK(kKernels.list(nullptr, &kernels, &bytes, &error) == invalid);
  CHECK(kKernels.list(made.device, nullptr, &bytes, &error) == invalid);
  CHECK(alive == 4);  // also what was recorded into nowhere
  kPlain.capture_abort(nullptr);
  kPlain.exec_destroy(nullptr);
  kPlain.event_destroy(nullptr);
  kPlain.stream_destroy(nullptr);
  kPlain.memory_free(nullptr, FRT_SPACE_DEVICE, nullptr);
  kPlain.device_close(nullptr);
}

TEST_CASE("tables of classes: native handles are there where the backend has them") {
  Made made;
  frt_error error{};
  frt_backend_stream stream = nullptr;
  frt_backend_exec exec = nullptr;
  int native = 0;
  CHECK(kPlain.stream_wrap(made.device, &native, &stream, &error) == FRT_ERR_UNSUPPORTED);
  CHECK(std::string(error.message).find("no native streams") != std::string::npos);
  CHECK(kPlain.exec_adopt(made.device, &native, 0, &exec, &error) == FRT_ERR_UNSUPPORTED);
  CHECK(std::string(error.message).find("no native executables") != std::string::npos);
  CHECK(kPlain.stream_native(made.stream) == nullptr);

  CHECK(kNative.stream_wrap(made.device, nullptr, &stream, &error) == FRT_OK);
  CHECK(kNative.stream_native(stream) == stream);
  kNative.stream_destroy(stream);
  CHECK(kNative.exec_adopt(made.device, nullptr, 0, &exec, &error) == FRT_ERR_INVALID_ARGUMENT);
  CHECK(kNative.exec_adopt(made.device, &native, 0, &exec, &error) == FRT_OK);
  kNative.exec_destroy(exec);
  CHECK(alive == 4);
}

TEST_CASE("tables of classes: what a call without an error record throws is in last_error, once") {
  CHECK((kPlain.last_error == nullptr));
  frt_error error{};
  frt_backend_device device = nullptr;
  frt_backend_stream stream = nullptr;
  frt_backend_event event = nullptr;
  REQUIRE(kTalking.device_open(nullptr, 0, nullptr, &device, &error) == FRT_OK);
  REQUIRE(kTalking.stream_create(device, 0, &stream, &error) == FRT_OK);
  REQUIRE(kTalking.event_create(device, 0, &event, &error) == FRT_OK);
  char text[64];
  CHECK(kTalking.last_error(device, text, sizeof(text)) == FRT_OK);
  CHECK(kTalking.event_query(event) == FRT_ERR_NOT_READY);
  CHECK(kTalking.last_error(device, text, sizeof(text)) == FRT_OK);
  broken = true;
  CHECK(kTalking.fill(stream, nullptr, FRT_SPACE_DEVICE, 0, 0) == FRT_ERR_INTERNAL);
  CHECK(kTalking.last_error(device, text, sizeof(text)) == FRT_ERR_INTERNAL);
  CHECK(std::string(text) == "anything");
  CHECK(kTalking.event_sync(event) == FRT_ERR_DEVICE);
  CHECK(kTalking.last_error(device, text, sizeof(text)) == FRT_ERR_DEVICE);
  CHECK(std::string(text) == "broken");
  CHECK(kTalking.device_sync(device) == FRT_ERR_DEVICE);
  CHECK(kTalking.last_error(device, text, sizeof(text)) == FRT_ERR_DEVICE);
  CHECK(kTalking.last_error(device, text, sizeof(text)) == FRT_OK);
  CHECK(std::string(text).empty());
  // A setup call tells in its record.
  CHECK(kTalking.capture_begin(stream, &error) == FRT_ERR_DEVICE);
  CHECK(kTalking.last_error(device, text, sizeof(text)) == FRT_OK);
  CHECK(kTalking.last_error(nullptr, text, sizeof(text)) == FRT_ERR_INVALID_ARGUMENT);
  broken = false;
  kTalking.event_destroy(event);
  kTalking.stream_destroy(stream);
  kTalking.device_close(device);
  CHECK(alive == 0);
}
