// SPDX-License-Identifier: Apache-2.0
// kernel_registry.hpp - the operators that can be called on one context: those of the backend, and
// for each owner those that it registered.
//
// A kernel fits a request if it takes ALL the types and weight formats asked for; kernels without
// inputs, outputs or weights fit any. An owner's kernels come before the backend's; of
// several that fit, the last one wins.
#pragma once

#include <frt/kernels.h>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace frt::core {

struct KernelEntry {
  std::string name;
  frt_dtype_set inputs, outputs;
  std::vector<frt_weight_format> weights;  // patterns
  frt_kernel kernel;
};

// The kernels of one kernels_register, all or none. Throws FRT_ERR_ABI for descriptors that cannot
// be read, FRT_ERR_EXISTS for a name that comes twice for the same types, and
// FRT_ERR_INVALID_ARGUMENT for a reserved name or a missing launch.  [setup]
std::vector<KernelEntry> read_owned_kernels(const frt_kernel_desc* kernels, uint64_t count,
                                            uint32_t stride);

// What one kernels_resolve asks of every kernel.
struct KernelRequest {
  frt_dtype_set inputs, outputs;
  std::span<const frt_weight_format> weights;
};

class KernelRegistry {
 public:
  // Takes over the backend's list. Throws FRT_ERR_ABI for descriptors that cannot be read, with
  // `sender` ("backend 'acme'") before the text.  [setup]
  void add_backend(const frt_kernels_v1& table, frt_backend_device device,
                   const std::string& sender);

  // Kernels in the order of `names`, of `own` or of the backend, with launch == null for a missing
  // optional one ('?' first). Throws FRT_ERR_NOT_FOUND naming every missing one and why.  [setup]
  std::vector<frt_kernel> resolve(std::span<const KernelEntry> own,
                                  std::span<const char* const> names,
                                  const KernelRequest& request) const;

 private:
  std::vector<KernelEntry> backend_;
};

}  // namespace frt::core
