// SPDX-License-Identifier: Apache-2.0
// backend.hpp - a backend plugin opened through its public tables only: one device, one stream.
#pragma once

#include <frt/backend.h>
#include <frt/draft/kernel_variants.h>
#include <frt/kernels.h>
#include <frt/core/log.hpp>
#include <frt/core/plugin.hpp>
#include <frt/core/services.hpp>
#include <frt/exec.hpp>
#include <frt/weights.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace frt::conformance {

// One option of the plugin's schema, as the user writes it.
struct Option {
  std::string key, text;
};

// The schema's defaults with the given options over them, checked as those of a manifest are.
// `what` names the options in errors: "device", "model".
core::Config config_of(const std::vector<core::OptionSpec>& schema,
                       const std::vector<Option>& options, const std::string& what);

class Backend {
 public:
  // Loads the plugin file as a host does and opens device `ordinal`. Throws frt::Error.  [setup]
  Backend(const std::string& path, uint32_t ordinal, const std::vector<Option>& options);
  ~Backend();
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;

  const frt_backend_v1& table() const { return *backend_; }
  frt_backend_device device() const { return device_; }
  frt_backend_stream stream() const { return stream_; }
  const frt_device_info& info() const { return info_; }
  // The same device a second time, with the same options; the caller closes it.
  frt_backend_device open_again() const;
  const std::string& id() const { return plugin_->loaded().card.id; }
  // NULL: the plugin does not list its kernel variants.
  const frt_kernel_variants_draft* variants() const { return variants_; }

  // The kernel of that name which takes the types, the last one registered; NULL if none does.
  // As kernels_resolve: no types, no weights: any.
  const frt_kernel_desc* kernel(const std::string& name, const KernelTypes& types,
                                const WeightFormats& weights) const;

  // Device memory, freed with the backend or by release().
  void* allocate(uint64_t bytes);
  void release(void* block);
  void write(void* target, const void* source, uint64_t bytes);  // host to device, waits
  void read(void* target, const void* source, uint64_t bytes);   // device to host, waits
  void sync();

 private:
  uint32_t ordinal_;
  core::Log log_;
  core::HostServices services_{log_};
  std::optional<core::OpenPlugin> plugin_;
  core::Config config_;  // of the device
  const frt_backend_v1* backend_ = nullptr;
  const frt_kernel_variants_draft* variants_ = nullptr;
  frt_backend_device device_ = nullptr;
  frt_backend_stream stream_ = nullptr;
  frt_device_info info_{};
  std::vector<frt_kernel_desc> kernels_;
  std::vector<void*> blocks_;
};

}  // namespace frt::conformance
