// SPDX-License-Identifier: Apache-2.0
#include "device.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <frt/error.hpp>
#include <frt/table.hpp>
#include <string>

#include "memory.hpp"
#include "ops/products/gemm.hpp"
#include "ops/registry.hpp"
#include "stream.hpp"
#include "system.hpp"

namespace frt::cpu {
namespace {

using std::chrono::microseconds;

// What DLPack calls memory of the host: kDLCPU.
constexpr uint32_t kDlpackCpu = 1;

DeviceOptions resolved(DeviceOptions options) {
  if (options.threads <= 0) options.threads = default_threads();
  return options;
}

// The level of the x86-64 psABI, e.g. "x86-64-v3".
std::string architecture() {
#if defined(__x86_64__)
  const bool v2 = __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("ssse3") &&
                  __builtin_cpu_supports("popcnt");
  const bool v3 = v2 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                  __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
  const bool v4 = v3 && machine_isa() >= Isa::kAvx512;
  return v4 ? "x86-64-v4" : v3 ? "x86-64-v3" : v2 ? "x86-64-v2" : "x86-64-v1";
#elif defined(__aarch64__)
  return "aarch64";
#else
  return "portable";
#endif
}

std::string vector_units() {
  std::string text;
#if defined(__x86_64__)
  const auto add = [&](bool present, const char* name) {
    if (!present) return;
    if (!text.empty()) text += ' ';
    text += name;
  };
  add(__builtin_cpu_supports("sse4.2"), "sse4.2");
  add(__builtin_cpu_supports("avx2"), "avx2");
  add(__builtin_cpu_supports("fma"), "fma");
  add(machine_isa() >= Isa::kAvx512, "avx512");
  add(__builtin_cpu_supports("avx512vnni"), "avx512_vnni");
  add(__builtin_cpu_supports("avx512bf16"), "avx512_bf16");
#elif defined(__aarch64__)
  text = "neon";
#endif
  return text.empty() ? "no vector units known" : text;
}

std::string detail_line() {
  const CoreCount count = available_cores();
  std::string text = vector_units() + ", " + std::to_string(count.cores) + " cores, " +
                     std::to_string(count.threads) + " threads";
  if (const auto quota = cpu_quota()) {
    text += ", quota of " + std::to_string(*quota).substr(0, 4) + " CPUs";
  }
  return text;
}

// The kernels of this plugin by vector unit, and those of oneDNN, which chooses by itself. No
// kernel's result depends on the number of threads.
std::string numerics_text() {
  return std::string(isa_name(machine_isa())) + ", " + machine_simd_target() + ", " +
         gemm_library();
}

template <std::size_t N>
void put_text(char (&target)[N], const std::string& text) {
  const std::size_t length = std::min(text.size(), N - 1);
  std::memcpy(target, text.data(), length);
  target[length] = '\0';
}

}  // namespace

Device::Device(const DeviceOptions& options)
    : options_(resolved(options)), pool_(options_.threads), kernels_(*this) {
  // A stream's thread is worker 0 and watches like the others. A host that waits is one thread
  // more: it watches long only if there is a core to spare for it.
  const int hardware = available_cores().threads;
  worker_spin_ = options_.threads <= hardware ? microseconds(50) : microseconds(2);
  host_spin_ = options_.threads < hardware ? microseconds(50) : microseconds(2);
  limit_simd_targets(options_.isa);
  register_operators(kernels_);
}

Device::~Device() = default;

Counter& Device::attach(Stream& stream) {
  const std::lock_guard lock(streams_mutex_);
  streams_.reserve(streams_.size() + 1);
  if (idle_counters_.empty()) {
    idle_counters_.reserve(counters_.size() + 1);  // so that detach cannot fail
    idle_counters_.push_back(&counters_.emplace_back());
  }
  streams_.push_back(&stream);
  Counter& counter = *idle_counters_.back();
  idle_counters_.pop_back();
  return counter;
}

void Device::detach(Stream& stream, Counter& progress) noexcept {
  const std::lock_guard lock(streams_mutex_);
  std::erase(streams_, &stream);
  idle_counters_.push_back(&progress);
}

frt_status Device::sync() {
  const std::lock_guard lock(streams_mutex_);
  frt_status first = FRT_OK;
  for (Stream* stream : streams_) {
    const frt_status status = stream->sync();
    if (first == FRT_OK) first = status;
  }
  return first;
}

int default_threads() {
  const int cores = available_cores().cores;
  const auto quota = cpu_quota();
  if (!quota) return cores;
  // Rounded down: running into the quota stops every thread for the rest of the period.
  return std::clamp(static_cast<int>(std::floor(*quota)), 1, cores);
}

void describe_device(uint32_t ordinal, frt_device_info& info) {
  if (ordinal != 0) {
    throw Error(FRT_ERR_OUT_OF_RANGE,
                "device " + std::to_string(ordinal) + ": this backend has one device, ordinal 0");
  }
  frt_device_info known{};
  known.ordinal = 0;
  put_text(known.name, processor_name());
  put_text(known.architecture, architecture());
  put_text(known.detail, detail_line());
  put_text(known.numerics, numerics_text());
  const MemoryState memory = memory_state();
  known.memory_total = memory.total_bytes;
  known.memory_free = memory.free_bytes;
  known.compute_units = static_cast<uint32_t>(available_cores().cores);
  known.dlpack_type = kDlpackCpu;
  known.flags = FRT_DEVICE_PROCESSOR | FRT_DEVICE_SHARED_MEMORY;
  info = known;
}

}  // namespace frt::cpu
