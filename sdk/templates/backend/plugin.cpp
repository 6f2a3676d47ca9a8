// SPDX-License-Identifier: Apache-2.0
// acme.simple: a backend as somebody writes it who has the SDK and nothing else. One device,
// the processor; one thread per stream; few operators, so that every fused one is composed.
#include "stream.hpp"

#include <frt/backend.hpp>

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <utility>

namespace simple {

Kernels::Kernels() {
  add_row_operators(*this);
  add_dense_operators(*this);
  add_gated_delta_operators(*this);
  add_attention_operators(*this);
  add_sampling_operators(*this);
}

void submit(frt_backend_stream stream, std::function<void()> task) {
  frt::object<Stream>(stream)->submit(std::move(task));
}

namespace {

struct Simple {
  using Device = simple::Device;
  using Stream = simple::Stream;
  using Event = simple::Event;
  using Exec = simple::Exec;
  static constexpr const char* kNativeKind = "cpu";
  static constexpr uint32_t kFlags = FRT_DEVICE_PROCESSOR | FRT_DEVICE_SHARED_MEMORY;

  static frt::FailedCall& failed_call(Device& device) noexcept { return device.failed_call(); }

  static uint32_t count(std::string&) { return 1; }

  static void describe(uint32_t ordinal, frt_device_info& info) {
    only_device(ordinal);
    info.ordinal = ordinal;
    std::snprintf(info.name, sizeof(info.name), "plain loops");
    std::snprintf(info.architecture, sizeof(info.architecture), "any");
    std::snprintf(info.driver, sizeof(info.driver), "%s", "");
    std::snprintf(info.detail, sizeof(info.detail), "one thread per stream");
    info.memory_total = pages(_SC_PHYS_PAGES);
    info.memory_free = pages(_SC_AVPHYS_PAGES);
    info.compute_units = 1;
    info.dlpack_type = 1;  // kDLCPU
    info.flags = kFlags;
  }

  static std::unique_ptr<Device> open(frt_plugin, uint32_t ordinal, const frt_config*) {
    only_device(ordinal);
    return std::make_unique<Device>();
  }

  static frt_status memory(Device&, uint64_t& free, uint64_t& total) {
    free = pages(_SC_AVPHYS_PAGES);
    total = pages(_SC_PHYS_PAGES);
    return FRT_OK;
  }

  static void* allocate(Device&, frt_space space, uint64_t bytes) {
    constexpr uint64_t kAlignment = 256;
    if (space >= FRT_SPACE_COUNT || bytes == 0) {
      throw frt::Error(FRT_ERR_INVALID_ARGUMENT, "memory_alloc: no such space, or 0 bytes");
    }
    if (bytes > pages(_SC_PHYS_PAGES)) {
      throw frt::Error(FRT_ERR_OUT_OF_MEMORY, "memory_alloc: " + std::to_string(bytes) +
                                                  " bytes are more than the machine has");
    }
    void* pointer =
        std::aligned_alloc(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment);
    if (!pointer) throw std::bad_alloc();
    return pointer;
  }

  static void release(Device*, frt_space, void* pointer) noexcept { std::free(pointer); }

 private:
  static void only_device(uint32_t ordinal) {
    if (ordinal == 0) return;
    throw frt::Error(FRT_ERR_NOT_FOUND,
                     "device " + std::to_string(ordinal) + ": acme.simple has device 0 alone");
  }
  static uint64_t pages(int what) {
    return static_cast<uint64_t>(sysconf(what)) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  }
};

constexpr frt_backend_v1 kBackend = frt::backend_table<Simple>();
constexpr frt_kernels_v1 kKernels = frt::kernels_table<Simple>();

class Plugin {
 public:
  Plugin(const frt::Host&, const frt::ConfigView&) {}

  static const void* static_extension(std::string_view) noexcept { return nullptr; }
  const void* extension(std::string_view id) noexcept {
    if (id == FRT_EXT_BACKEND) return &kBackend;
    if (id == FRT_EXT_KERNELS) return &kKernels;
    return nullptr;
  }
};

}  // namespace
}  // namespace simple

FRT_PLUGIN(simple::Plugin, backend, "acme.simple", "0.1.0",
           "summary = \"plain loops on the processor\"\n");
