// SPDX-License-Identifier: Apache-2.0
#include "nvml.hpp"

#include <dlfcn.h>

#include <cstring>

namespace frt::cuda {
namespace {

using Device = void*;

// Numbers of NVML's interface.
constexpr int kClockSm = 1;
constexpr int kClockMemory = 2;
constexpr int kTemperatureGpu = 0;

struct Memory {
  unsigned long long total, free, used;
};

}  // namespace

Nvml::Nvml() : library_(dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL)) {
  const auto init = find<int (*)()>("nvmlInit_v2");
  running_ = init && init() == 0;
}

Nvml::~Nvml() {
  const auto shutdown = find<int (*)()>("nvmlShutdown");
  if (running_ && shutdown) shutdown();
  if (library_) dlclose(library_);
}

template <class Function>
Function Nvml::find(const char* name) const {
  return library_ ? reinterpret_cast<Function>(dlsym(library_, name)) : nullptr;
}

void* Nvml::device(const char* bus_id) const {
  Device found = nullptr;
  const auto ask = find<int (*)(const char*, Device*)>("nvmlDeviceGetHandleByPciBusId_v2");
  return running_ && ask && ask(bus_id, &found) == 0 ? found : nullptr;
}

std::string Nvml::driver_version() const {
  char text[80] = "";
  const auto ask = find<int (*)(char*, unsigned)>("nvmlSystemGetDriverVersion");
  return running_ && ask && ask(text, sizeof text) == 0 ? text : "";
}

bool Nvml::free_memory(const char* bus_id, uint64_t& bytes) const {
  Memory memory{};
  const Device found = device(bus_id);
  const auto ask = find<int (*)(Device, Memory*)>("nvmlDeviceGetMemoryInfo");
  if (!found || !ask || ask(found, &memory) != 0) return false;
  bytes = memory.free;
  return true;
}

bool Nvml::read_status(const char* bus_id, frt_device_status& status) const {
  const Device found = device(bus_id);
  if (!found) return false;
  const auto number = [&](const char* name) -> uint32_t {
    unsigned value = 0;
    const auto ask = find<int (*)(Device, unsigned*)>(name);
    return ask && ask(found, &value) == 0 ? value : 0;
  };
  const auto number_of = [&](const char* name, int which) -> uint32_t {
    unsigned value = 0;
    const auto ask = find<int (*)(Device, int, unsigned*)>(name);
    return ask && ask(found, which, &value) == 0 ? value : 0;
  };
  status.clock_mhz = number_of("nvmlDeviceGetClockInfo", kClockSm);
  status.clock_limit_mhz = number_of("nvmlDeviceGetMaxClockInfo", kClockSm);
  status.memory_clock_mhz = number_of("nvmlDeviceGetClockInfo", kClockMemory);
  status.temperature_c = number_of("nvmlDeviceGetTemperature", kTemperatureGpu);
  status.power_mw = number("nvmlDeviceGetPowerUsage");
  status.power_limit_mw = number("nvmlDeviceGetEnforcedPowerLimit");
  unsigned long long reasons = 0;
  const auto ask =
      find<int (*)(Device, unsigned long long*)>("nvmlDeviceGetCurrentClocksEventReasons");
  if (ask && ask(found, &reasons) == 0) {
    std::strncpy(status.limited_by, clock_limits(reasons).c_str(), sizeof status.limited_by - 1);
  }
  return true;
}

std::string clock_limits(uint64_t reasons) {
  constexpr struct {
    uint64_t bits;
    const char* word;
  } kReasons[] = {{0x01, "idle"},         {0x02, "chosen clocks"},
                  {0x04 | 0x80, "power"}, {0x20 | 0x40, "temperature"},
                  {0x08, "hardware"},     {0x10, "sync boost"},
                  {0x100, "display"}};
  std::string text;
  for (const auto& reason : kReasons) {
    if (!(reasons & reason.bits)) continue;
    text += (text.empty() ? "" : ", ") + std::string(reason.word);
  }
  return text;
}

}  // namespace frt::cuda
