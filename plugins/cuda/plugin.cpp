// SPDX-License-Identifier: Apache-2.0
// The plugin frt.cuda.*: its card, its options, and what the C tables of its extensions are made
// of. Compiled once per architecture: the card says what the plugin has code for.
#include <frt/device_status.h>
#include <frt/draft/kernel_variants.h>

#include <frt/backend.hpp>
#include <frt/draft/kernel_variants.hpp>
#include <frt/plugin.hpp>
#include <memory>
#include <string>

#include "backend_device.hpp"
#include "backend_stream.hpp"
#include "blas_report.hpp"
#include "driver.hpp"
#include "event.hpp"
#include "graph.hpp"
#include "memory.hpp"

namespace frt::cuda {
namespace {

const Host& host_of(frt_plugin plugin);

constexpr PluginCode kCode = {"frt.cuda.sm" FRT_CUDA_ARCH_TEXT, FRT_CUDA_ARCH,
                              FRT_CUDA_TARGET_TEXT};

// ---- options ------------------------------------------------------------------------------

constexpr frt_config_option kDeviceOptions[] = {
    {"activations", FRT_CONFIG_ENUM, FRT_OPTION_NUMERICS, "exact", "exact|fp8|fp4", 0, 0,
     "fp8, fp4: products of many rows with FP8 (NVFP4) weights round their activations to FP8 "
     "(NVFP4), too, but for those in plugins/cuda/README.md: faster prefill, less exact"},
};
constexpr frt_config_schema_v1 kSchema = config_schema(kNoOptions, kDeviceOptions);

DeviceOptions read_options(const frt_config* raw) {
  const ConfigView config(raw);
  DeviceOptions options;
  if (config.has("activations")) {
    const std::string word = config.get_string("activations");
    if (word != "exact" && word != "fp8" && word != "fp4") {
      throw Error(FRT_ERR_INVALID_ARGUMENT,
                  "activations = \"" + word + "\" is not known; use exact, fp8 or fp4");
    }
    options.activations = word == "fp8"   ? ActivationRounding::kFp8
                          : word == "fp4" ? ActivationRounding::kFp4
                                          : ActivationRounding::kExact;
  }
  return options;
}

// An option without a kernel is an error, not a promise that nothing keeps.
void require_activations(BackendDevice& device) {
  const ActivationRounding activations = device.options().activations;
  const std::string ordinal = "device_open: device " + std::to_string(device.ordinal()) + ": ";
  if (const std::string refusal =
          why_no_activations(activations, device.properties().capability, device.features());
      !refusal.empty()) {
    throw Error(FRT_ERR_UNSUPPORTED, ordinal + refusal);
  }
  if (activations != ActivationRounding::kFp8) return;
  device.enter("activations");
  try {
    device.blas();
  } catch (const Error& error) {
    throw Error(error.status(), ordinal + "activations = \"fp8\" needs cuBLASLt: " + error.what());
  }
}

// ---- backend ------------------------------------------------------------------------------

struct CudaBackend {
  using Device = BackendDevice;
  using Stream = BackendStream;
  using Event = cuda::Event;
  using Exec = cuda::Exec;
  static constexpr const char* kNativeKind = "cuda";

  static uint32_t count(std::string& why_none) {
    const DriverState state = ask_driver();
    if (state.devices == 0) why_none = why_no_device(state);
    return static_cast<uint32_t>(state.devices);
  }
  static void describe(uint32_t ordinal, frt_device_info& info) {
    describe_device(kCode, ordinal, info);
  }
  static std::unique_ptr<Device> open(frt_plugin plugin, uint32_t ordinal,
                                      const frt_config* config) {
    const int index = static_cast<int>(ordinal);
    if (const std::string refusal = why_not_runnable(kCode, device_capability(index));
        !refusal.empty()) {
      throw Error(FRT_ERR_UNSUPPORTED,
                  "device_open: device " + std::to_string(ordinal) + ": " + refusal);
    }
    const DeviceOptions options = read_options(config);
    auto opened = std::make_unique<Device>(index, options, kCode, host_of(plugin));
    require_activations(*opened);
    return opened;
  }
  static frt_status memory(Device& device, uint64_t& free_bytes, uint64_t& total_bytes) {
    return device.memory(free_bytes, total_bytes);
  }
  static void* allocate(Device& device, frt_space space, uint64_t bytes) {
    return allocate_memory(device, space, bytes);
  }
  static void release(Device* device, frt_space space, void* pointer) noexcept {
    free_memory(*device, space, pointer);
  }
  static std::unique_ptr<Stream> wrap(Device& device, void* native) {
    return std::make_unique<Stream>(device, static_cast<cudaStream_t>(native));
  }
  static void* native(Stream& stream) noexcept {
    stream.device().make_current();
    return stream.share();
  }
  static std::unique_ptr<Exec> adopt(Device& device, void* native, bool owned) {
    return std::make_unique<Exec>(device, static_cast<cudaGraphExec_t>(native), owned);
  }
  static FailedCall& failed_call(cuda::Device& device) noexcept {
    return behind(device).failed_call();
  }
};

constexpr frt_backend_v1 kBackend = backend_table<CudaBackend>();
constexpr frt_kernels_v1 kKernels = kernels_table<CudaBackend>();
constexpr frt_kernel_variants_draft kVariants = kernel_variants_table<CudaBackend>();

// ---- device status ------------------------------------------------------------------------

frt_status read_status(frt_plugin, uint32_t ordinal, frt_device_status* status, frt_error* error) {
  return guard(error, [&] {
    if (!status) throw Error(FRT_ERR_INVALID_ARGUMENT, "device status: no place to write to");
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
    if (id == FRT_EXT_KERNEL_VARIANTS) return &kVariants;
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

// What a quick build leaves out its card does not promise.
#ifdef FRT_CUDA_NO_PTX
#define FRT_CUDA_PORTABLE ""
#define FRT_CUDA_NEWER ""
#else
#define FRT_CUDA_PORTABLE "\"sm_" FRT_CUDA_ARCH_TEXT "\""
#define FRT_CUDA_NEWER ", and newer ones through PTX"
#endif

FRT_PLUGIN(frt::cuda::CudaPlugin, backend, "frt.cuda.sm" FRT_CUDA_ARCH_TEXT, "1.0.0",
           "targets = [\"sm_" FRT_CUDA_ARCH_TEXT
           "\"]\n"
           "portable = [" FRT_CUDA_PORTABLE
           "]\n"
           "requires = [\"NVIDIA driver >= 580 (CUDA 13)\"]\n"
           "summary = \"NVIDIA GPUs of architecture " FRT_CUDA_TARGET_TEXT FRT_CUDA_NEWER "\"\n");
