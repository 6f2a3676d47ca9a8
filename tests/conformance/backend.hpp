// SPDX-License-Identifier: Apache-2.0
// backend.hpp - a backend plugin opened through its public tables only: one device, one stream.
#pragma once

#include <frt/backend.h>
#include <frt/draft/kernel_variants.h>
#include <frt/kernels.h>
#include <frt/plugin.h>
#include <frt/exec.hpp>
#include <frt/weights.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace frt::conformance {

// One option of the plugin's device schema; text for ENUM, number for INT.
struct Option {
  std::string key, text;
};

class Backend {
 public:
  // Loads the plugin file and opens device `ordinal`. Throws frt::Error.  [setup]
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
  std::string id() const { return descriptor_->id; }
  // NULL: the plugin does not list its kernel variants.
  const frt_kernel_variants_draft* variants() const { return variants_; }

  // The kernel of that name which takes the types, the last one registered; NULL if none does.
  // As kernels_resolve: no types, no weights: any.
  const frt_kernel_desc* kernel(const std::string& name, const KernelTypes& types,
                                const WeightFormats& weights) const;
  const std::vector<const frt_kernel_desc*>& kernels() const { return kernels_; }

  // Device memory, freed with the backend or by release().
  void* allocate(uint64_t bytes);
  void release(void* block);
  void write(void* target, const void* source, uint64_t bytes);  // host to device, waits
  void read(void* target, const void* source, uint64_t bytes);   // device to host, waits
  void sync();

 private:
  uint32_t ordinal_;
  std::vector<Option> options_;
  void* library_ = nullptr;
  const frt_plugin_desc* descriptor_ = nullptr;
  frt_plugin plugin_ = nullptr;
  const frt_backend_v1* backend_ = nullptr;
  const frt_kernel_variants_draft* variants_ = nullptr;
  frt_backend_device device_ = nullptr;
  frt_backend_stream stream_ = nullptr;
  frt_device_info info_{};
  std::vector<const frt_kernel_desc*> kernels_;
  std::vector<void*> blocks_;
};

}  // namespace frt::conformance
