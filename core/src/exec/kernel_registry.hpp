// SPDX-License-Identifier: Apache-2.0
// kernel_registry.hpp - the operators that can be called on one context: those of the backend, and
// for each owner those that it registered.
//
// A kernel fits a request if it takes the activation type and ALL the weight formats asked for;
// kernels without activations or weights fit any. An owner's kernels come before the backend's; of
// several that fit, the last one wins.
#pragma once

#include <frt/kernels.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace frt::core {

struct KernelEntry {
  std::string name;
  frt_dtype_set activations;
  frt_weight_set weights;
  frt_kernel kernel;
};

// The kernels of one kernels_register, all or none. Throws FRT_ERR_ABI for descriptors that cannot
// be read, FRT_ERR_EXISTS for a name that comes twice for the same types, and
// FRT_ERR_INVALID_ARGUMENT for a reserved name or a missing launch.  [setup]
std::vector<KernelEntry> read_owned_kernels(const frt_kernel_desc* kernels, uint64_t count,
                                            uint32_t stride);

class KernelRegistry {
 public:
  // Takes over the backend's list. Throws FRT_ERR_ABI for descriptors that cannot be read.
  // [setup]
  void add_backend(const frt_kernels_v1& table, frt_backend_device device);

  // Kernels in the order of `names`, of `own` or of the backend, with launch == null for a missing
  // optional one ('?' first). Throws FRT_ERR_NOT_FOUND naming every missing one and why.  [setup]
  std::vector<frt_kernel> resolve(std::span<const KernelEntry> own,
                                  std::span<const char* const> names, frt_dtype activation,
                                  frt_weight_set weights) const;

 private:
  std::vector<KernelEntry> backend_;
};

}  // namespace frt::core
