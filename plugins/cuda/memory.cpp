// SPDX-License-Identifier: Apache-2.0
// Host memory is compared with what the machine has left before it is asked for: Linux promises
// more than it has and kills the process later, which no caller can catch.
#include "memory.hpp"

#include <cstdlib>
#include <frt/error.hpp>
#include <fstream>
#include <string>

#include "device.hpp"
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

// MemAvailable of the machine; UINT64_MAX where it is not told.
uint64_t host_available() {
  std::ifstream file("/proc/meminfo");
  std::string word;
  while (file >> word) {
    uint64_t kib = 0;
    if (word == "MemAvailable:" && file >> kib) return kib * 1024;
  }
  return UINT64_MAX;
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
  if (device.memory(free, total) != FRT_OK) return "free memory unknown";
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
    case FRT_SPACE_DEVICE: {
      const cudaError_t code = cudaMalloc(&pointer, bytes);
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
  if (space == FRT_SPACE_DEVICE) cudaFree(pointer);
  if (space == FRT_SPACE_HOST_PINNED) cudaFreeHost(pointer);
  cudaGetLastError();
}

}  // namespace frt::cuda
