// SPDX-License-Identifier: Apache-2.0
// kernel_registry.hpp - the operators that can be called on one context: those of the backend, in
// its order, then those that were registered.
//
// A kernel fits a request if it takes the activation type and ALL the weight formats asked for;
// kernels without activations or weights fit any. Of several that fit, the last one wins.
#pragma once

#include <frt/kernels.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace frt::core {

class KernelRegistry {
 public:
  // Takes over the backend's list. Throws FRT_ERR_ABI for descriptors that cannot be read.
  // [setup]
  void add_backend(const frt_kernels_v1& table, frt_backend_device device);

  // All or none. Throws FRT_ERR_EXISTS if a name is taken for the same types.  [setup]
  void add(const frt_kernel_desc* kernels, uint64_t count);

  // Kernels in the order of `names`, with launch == null for a missing optional one ('?' first).
  // Throws FRT_ERR_NOT_FOUND naming every missing one and why.  [setup]
  std::vector<frt_kernel> resolve(std::span<const char* const> names, frt_dtype activation,
                                  frt_weight_set weights) const;

 private:
  struct Entry {
    std::string name;
    frt_dtype_set activations;
    frt_weight_set weights;
    frt_kernel kernel;
  };

  static Entry read(const frt_kernel_desc& kernel);
  std::vector<Entry> entries_;
};

}  // namespace frt::core
