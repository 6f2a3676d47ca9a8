// SPDX-License-Identifier: Apache-2.0
// A backend that claims to be a device: memory is the host's, and nothing can be run on it. The
// compile definitions say who it is: FAKE_ID, FAKE_CARD, FAKE_ARCHITECTURE, FAKE_FLAGS,
// FAKE_COUNT.
#include <frt/backend.h>

#include <frt/plugin.hpp>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

namespace {

constexpr frt_config_option kOptions[] = {
    {"lanes", FRT_CONFIG_INT, FRT_OPTION_NUMERICS, "1", nullptr, 1, 8, "parallel lanes"}};
constexpr frt_config_schema_v1 kSchema = frt::config_schema(frt::kNoOptions, kOptions);

frt_status unsupported(frt_error* error) {
  return frt::set_error(error, FRT_ERR_UNSUPPORTED, "a device for tests cannot do this");
}

constexpr uint32_t kCount = FAKE_COUNT;

int dummy;
template <class Handle>
Handle some() {
  return reinterpret_cast<Handle>(&dummy);
}

// Of the calls for which there is no context yet the host makes one at a time.
std::atomic<int> calls = 0;
class Alone {
 public:
  Alone() : first_(calls.fetch_add(1) == 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  ~Alone() { calls.fetch_sub(1); }
  Alone(const Alone&) = delete;
  Alone& operator=(const Alone&) = delete;
  void check() const {
    if (!first_) throw frt::Error(FRT_ERR_BAD_STATE, "two threads at once");
  }

 private:
  bool first_;
};

frt_status device_count(frt_plugin, uint32_t* count, frt_error* why) {
  const Alone alone;
  const frt_status status = frt::guard(why, [&] { alone.check(); });
  if (status != FRT_OK) return status;
  *count = kCount;
  if (kCount == 0) frt::set_error(why, FRT_ERR_NOT_FOUND, "no driver");
  return FRT_OK;
}

frt_status device_info(frt_plugin, uint32_t ordinal, frt_device_info* info, frt_error*) {
  info->ordinal = ordinal;
  std::snprintf(info->name, sizeof(info->name), "fake %u", ordinal);
  std::snprintf(info->architecture, sizeof(info->architecture), "%s", FAKE_ARCHITECTURE);
  info->flags = FAKE_FLAGS;
  // Device 0 says nothing, as one of an architecture without differences does.
  if (ordinal > 0) std::snprintf(info->numerics, sizeof(info->numerics), "%u units", 40 + ordinal);
  return FRT_OK;
}

const frt_backend_v1 kBackend = {
    sizeof(frt_backend_v1),
    0,
    "fake",
    device_count,
    device_info,
    [](frt_plugin, uint32_t ordinal, const frt_config* config, frt_backend_device* device,
       frt_error* error) -> frt_status {
      return frt::guard(error, [&] {
        const Alone alone;
        alone.check();
        if (ordinal + 1 > kCount) throw frt::Error(FRT_ERR_OUT_OF_RANGE, "no such device");
        if (frt::ConfigView(config).get_int("lanes") == 8) {
          throw frt::Error(FRT_ERR_DEVICE, "eight lanes are too many; use fewer");
        }
        *device = some<frt_backend_device>();
      });
    },
    [](frt_backend_device) {},
    [](frt_backend_device) -> frt_status { return FRT_OK; },
    [](frt_backend_device, uint64_t* free_bytes, uint64_t* total) -> frt_status {
      *free_bytes = *total = 1 << 20;
      return FRT_OK;
    },
    [](frt_backend_device, frt_space, uint64_t bytes, void** pointer,
       frt_error* error) -> frt_status {
      *pointer = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
      return *pointer ? FRT_OK : frt::set_error(error, FRT_ERR_OUT_OF_MEMORY, "no memory");
    },
    [](frt_backend_device, frt_space, void* pointer) { std::free(pointer); },
    [](frt_backend_stream, const frt_backend_copy* copies, uint64_t count) -> frt_status {
      for (uint64_t i = 0; i < count; ++i) {
        std::memcpy(copies[i].target, copies[i].source, copies[i].bytes);
      }
      return FRT_OK;
    },
    [](frt_backend_stream, void* pointer, frt_space, uint64_t bytes, uint8_t value) -> frt_status {
      std::memset(pointer, value, bytes);
      return FRT_OK;
    },
    [](frt_backend_device, int32_t, frt_backend_stream* stream, frt_error*) -> frt_status {
      *stream = some<frt_backend_stream>();
      return FRT_OK;
    },
    [](frt_backend_device, void*, frt_backend_stream*, frt_error* error) -> frt_status {
      return unsupported(error);
    },
    [](frt_backend_stream) {},
    [](frt_backend_stream) -> frt_status { return FRT_OK; },
    [](frt_backend_stream) -> void* { return nullptr; },
    [](frt_backend_stream, frt_host_function function, void* user) -> frt_status {
      frt_error error{};
      return function(user, &error);
    },
    [](frt_backend_device, uint32_t, frt_backend_event* event, frt_error*) -> frt_status {
      *event = some<frt_backend_event>();
      return FRT_OK;
    },
    [](frt_backend_event) {},
    [](frt_backend_event, frt_backend_stream) -> frt_status { return FRT_OK; },
    [](frt_backend_event, frt_backend_stream) -> frt_status { return FRT_OK; },
    [](frt_backend_event) -> frt_status { return FRT_OK; },
    [](frt_backend_event) -> frt_status { return FRT_OK; },
    [](frt_backend_event, frt_backend_event, double* ms) -> frt_status {
      *ms = 0;
      return FRT_OK;
    },
    [](frt_backend_stream, frt_error* error) -> frt_status { return unsupported(error); },
    [](frt_backend_stream, frt_backend_exec*, frt_error* error) -> frt_status {
      return unsupported(error);
    },
    [](frt_backend_stream) {},
    [](frt_backend_device, void*, uint32_t, frt_backend_exec*, frt_error* error) -> frt_status {
      return unsupported(error);
    },
    nullptr,
    [](frt_backend_exec) {},
    [](frt_backend_exec, frt_backend_stream) -> frt_status { return FRT_ERR_UNSUPPORTED; },
    [](frt_backend_exec) -> uint64_t { return 0; },
    nullptr,
    nullptr};

class FakeDevice {
 public:
  FakeDevice(const frt::Host&, const frt::ConfigView&) {}
  const void* extension(std::string_view id) noexcept {
    return id == FRT_EXT_BACKEND ? &kBackend : nullptr;
  }
  static const void* static_extension(std::string_view id) noexcept {
    return id == FRT_EXT_CONFIG_SCHEMA ? &kSchema : nullptr;
  }
};

}  // namespace

FRT_PLUGIN(FakeDevice, backend, FAKE_ID, "1", FAKE_CARD);
