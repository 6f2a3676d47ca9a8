// SPDX-License-Identifier: Apache-2.0
// How acme.leaky_sum/1 is made known to the core and launched.
#pragma once

#include <frt/exec.hpp>

namespace acme {

// The operator's kernel on one context. Lives as long as the graphs that record it.
class LeakySumKernel {
 public:
  // Throws FRT_ERR_UNSUPPORTED for a device that this build has no code for.
  explicit LeakySumKernel(const frt::Context& context);
  LeakySumKernel(const LeakySumKernel&) = delete;  // what is registered points here
  LeakySumKernel& operator=(const LeakySumKernel&) = delete;

  // For KernelSet::resolve.
  frt_kernel_owner owner() const noexcept { return owner_.handle(); }

 private:
  static frt_status launch(void* self, frt_backend_stream stream, const void* args,
                           frt_error* error);

  frt::Context context_;
  bool cuda_;
  frt::KernelOwner owner_;
};

}  // namespace acme
