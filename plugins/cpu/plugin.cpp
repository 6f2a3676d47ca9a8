// SPDX-License-Identifier: Apache-2.0
// The plugin frt.cpu: its card, its options, and what the C tables of its extensions are made of.
#include <frt/backend.hpp>
#include <frt/draft/kernel_variants.hpp>
#include <frt/plugin.hpp>
#include <memory>
#include <string>

#include "device.hpp"
#include "event.hpp"
#include "graph.hpp"
#include "memory.hpp"
#include "stream.hpp"

namespace frt::cpu {
namespace {

// ---- options ------------------------------------------------------------------------------

constexpr frt_config_option kDeviceOptions[] = {
    {"threads", FRT_CONFIG_INT, 0, "0", nullptr, 0, 4096,
     "worker threads, the stream's own included; 0: one per physical core the process may use"},
    {"numerics", FRT_CONFIG_ENUM, FRT_OPTION_NUMERICS, "fast", "fast|reference", 0, 0,
     "fast: the machine's vector units and bf16 products; reference: f32, fixed reduction order"},
    {"isa", FRT_CONFIG_ENUM, FRT_OPTION_NUMERICS, "auto", "auto|portable|avx2|avx512|avx512-bf16",
     0, 0, "the most advanced vector instructions to use; auto: what the machine has"},
};
constexpr frt_config_schema_v1 kSchema = config_schema(kNoOptions, kDeviceOptions);

DeviceOptions read_options(const frt_config* raw) {
  const ConfigView config(raw);
  DeviceOptions options;
  if (config.has("threads")) options.threads = static_cast<int>(config.get_int("threads"));
  if (config.has("isa")) options.isa = isa_from_option(config.get_string("isa"));
  if (config.has("numerics")) {
    const std::string word = config.get_string("numerics");
    if (word != "fast" && word != "reference") {
      throw Error(FRT_ERR_INVALID_ARGUMENT,
                  "numerics = \"" + word + "\" is not known; use fast or reference");
    }
    options.numerics = word == "reference" ? Numerics::kReference : Numerics::kFast;
  }
  if (options.threads < 0 || options.threads > 4096) {
    throw Error(FRT_ERR_INVALID_ARGUMENT,
                "threads = " + std::to_string(options.threads) + " is out of range; use 0 to 4096");
  }
  return options;
}

// ---- tables -------------------------------------------------------------------------------

struct CpuBackend {
  using Device = cpu::Device;
  using Stream = cpu::Stream;
  using Event = cpu::Event;
  using Exec = cpu::Exec;
  static constexpr const char* kNativeKind = "cpu";

  static uint32_t count(std::string&) { return 1; }
  static void describe(uint32_t ordinal, frt_device_info& info) { describe_device(ordinal, info); }
  static std::unique_ptr<Device> open(frt_plugin, uint32_t ordinal, const frt_config* config) {
    if (ordinal != 0) {
      throw Error(FRT_ERR_OUT_OF_RANGE, "device_open: ordinal " + std::to_string(ordinal) +
                                            "; this backend has one device, ordinal 0");
    }
    return std::make_unique<Device>(read_options(config));
  }
  static frt_status memory(Device&, uint64_t& free_bytes, uint64_t& total_bytes) {
    const MemoryState state = memory_state();
    free_bytes = state.free_bytes;
    total_bytes = state.total_bytes;
    return FRT_OK;
  }
  static void* allocate(Device&, frt_space space, uint64_t bytes) {
    return allocate_memory(space, bytes);
  }
  static void release(Device*, frt_space, void* pointer) noexcept { free_memory(pointer); }
  static FailedCall& failed_call(Device& device) noexcept { return device.failed_call(); }
};

constexpr frt_backend_v1 kBackend = backend_table<CpuBackend>();
constexpr frt_kernels_v1 kKernels = kernels_table<CpuBackend>();
constexpr frt_kernel_variants_draft kVariants = kernel_variants_table<CpuBackend>();

}  // namespace

// One opened plugin. All state belongs to devices, so there is none here.
class CpuPlugin {
 public:
  CpuPlugin(const Host&, const ConfigView&) {}

  const void* extension(std::string_view id) noexcept {
    if (id == FRT_EXT_BACKEND) return &kBackend;
    if (id == FRT_EXT_KERNELS) return &kKernels;
    if (id == FRT_EXT_KERNEL_VARIANTS) return &kVariants;
    return nullptr;
  }
  static const void* static_extension(std::string_view id) noexcept {
    return id == FRT_EXT_CONFIG_SCHEMA ? &kSchema : nullptr;
  }
};

}  // namespace frt::cpu

FRT_PLUGIN(frt::cpu::CpuPlugin, backend, "frt.cpu", "1.0.0", R"(
summary = "The machine's own processor: every operator, all weight formats, no driver needed"
)");
