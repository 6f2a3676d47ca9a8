// SPDX-License-Identifier: Apache-2.0
// Host memory is compared with what the machine has left before it is asked for: Linux promises
// more than it has and kills the process later, which no caller can catch.
#include "memory.hpp"

#include <algorithm>
#include <cstdlib>
#include <frt/error.hpp>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>

#include "backend_device.hpp"
#include "status.hpp"

namespace frt::cuda {
namespace {

constexpr uint64_t kAlignment = 256;
constexpr uint64_t kCheckFrom = uint64_t{64} << 20;  // below, asking the system costs too much

std::string gib(uint64_t bytes) {
  const uint64_t hundredths = static_cast<uint64_t>(static_cast<double>(bytes) * 100 / (1u << 30));
  const std::string fraction = std::to_string(hundredths % 100);
  return std::to_string(hundredths / 100) + (fraction.size() < 2 ? ".0" : ".") + fraction + " GiB";
}

// The number behind `key` in a file of "key number" lines; nothing if there is none.
std::optional<uint64_t> line_number(const char* path, std::string_view key) {
  std::ifstream file(path);
  std::string word;
  uint64_t number = 0;
  while (file >> word) {
    if (word == key) return file >> number ? std::optional(number) : std::nullopt;
  }
  return std::nullopt;
}

// The number a file consists of; nothing if it is not there or says "max".
std::optional<uint64_t> file_number(const char* path) {
  std::ifstream file(path);
  uint64_t number = 0;
  return file >> number ? std::optional(number) : std::nullopt;
}

// Bytes of host memory that can still be had: the machine's, or the control group's where that is
// less. Cached files count as free: the system drops them. UINT64_MAX where nothing is told.
uint64_t host_available() {
  uint64_t room = UINT64_MAX;
  if (const auto kib = line_number("/proc/meminfo", "MemAvailable:")) room = *kib * 1024;
  const auto limit = file_number("/sys/fs/cgroup/memory.max");
  const auto used = file_number("/sys/fs/cgroup/memory.current");
  if (limit && used) {
    constexpr const char* kStat = "/sys/fs/cgroup/memory.stat";
    const uint64_t cached = line_number(kStat, "inactive_file").value_or(0) +
                            line_number(kStat, "active_file").value_or(0);
    const uint64_t held = *used - std::min(*used, cached);
    room = std::min(room, *limit - std::min(*limit, held));
  }
  return room;
}

[[noreturn]] void throw_no_room(frt_space space, uint64_t bytes, const std::string& have) {
  throw Error(FRT_ERR_OUT_OF_MEMORY,
              std::string(space_name(space)) + " memory: " + std::to_string(bytes) + " bytes (" +
                  gib(bytes) + ") needed, " + have +
                  "; use a smaller model or weight format, fewer slots or a shorter context, or "
                  "free memory");
}

std::string device_room(Device& device) {
  uint64_t free = 0;
  uint64_t total = 0;
  if (behind(device).memory(free, total) != FRT_OK) return "free memory unknown";
  return gib(free) + " of " + gib(total) + " free";
}

void check_host_room(frt_space space, uint64_t bytes) {
  if (bytes < kCheckFrom) return;
  const uint64_t available = host_available();
  if (bytes > available) throw_no_room(space, bytes, gib(available) + " available");
}

}  // namespace

void* allocate_memory(Device& device, frt_space space, uint64_t bytes) {
  if (bytes == 0) throw Error(FRT_ERR_INVALID_ARGUMENT, "memory_alloc: 0 bytes asked for");
  device.enter("memory_alloc");
  void* pointer = nullptr;
  switch (space) {
    case FRT_SPACE_SHARED:
      if (!device.properties().shares_memory) {
        throw Error(FRT_ERR_UNSUPPORTED,
                    "memory_alloc: the device shares no memory with the processor; use device "
                    "memory, and copy");
      }
      [[fallthrough]];
    case FRT_SPACE_DEVICE: {
      const cudaError_t code = space == FRT_SPACE_DEVICE ? cudaMalloc(&pointer, bytes)
                                                         : cudaMallocManaged(&pointer, bytes);
      if (code == cudaErrorMemoryAllocation) {
        device.note(code);
        throw_no_room(space, bytes, device_room(device));
      }
      device.check(code, "memory_alloc");
      return pointer;
    }
    case FRT_SPACE_HOST_PINNED: {
      check_host_room(space, bytes);
      const cudaError_t code = cudaHostAlloc(&pointer, bytes, cudaHostAllocPortable);
      if (code == cudaErrorMemoryAllocation) {
        device.note(code);
        throw_no_room(space, bytes, gib(host_available()) + " available");
      }
      device.check(code, "memory_alloc");
      return pointer;
    }
    case FRT_SPACE_HOST: {
      check_host_room(space, bytes);
      const uint64_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
      pointer = rounded < bytes ? nullptr : std::aligned_alloc(kAlignment, rounded);
      if (!pointer) throw_no_room(space, bytes, gib(host_available()) + " available");
      return pointer;
    }
    default:
      throw Error(FRT_ERR_INVALID_ARGUMENT,
                  "memory_alloc: space " + std::to_string(space) + " does not exist");
  }
}

void free_memory(const Device& device, frt_space space, void* pointer) noexcept {
  if (!pointer) return;
  if (space == FRT_SPACE_HOST) {
    std::free(pointer);
    return;
  }
  device.make_current();
  // On a lost device this fails; its memory goes with the process.
  if (space == FRT_SPACE_DEVICE || space == FRT_SPACE_SHARED) cudaFree(pointer);
  if (space == FRT_SPACE_HOST_PINNED) cudaFreeHost(pointer);
  cudaGetLastError();
}

}  // namespace frt::cuda
