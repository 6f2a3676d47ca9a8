// SPDX-License-Identifier: Apache-2.0
// core_context.hpp - the CUDA runtime as core uses it: a context of the exec contract, with the
// operators of test_kernels.hpp.
#pragma once

#include <frt/core/context.hpp>
#include <frt/core/exec_table.hpp>
#include <frt/exec.hpp>

#include "cuda_device.hpp"

namespace frt::cuda_test {

class CoreContext {
 public:
  explicit CoreContext(bool eager = false)
      : handle_(open(plugin_, eager)), context_(core::exec_table(), handle_) {
    KernelSet kernels;
    kernels.add(step, kStep).add(through_scratch, kThroughScratch).add(fault, kFault);
    kernels.resolve(context_, frt::KernelTypes(FRT_DTYPE_F32));
  }
  ~CoreContext() { core::close_context(handle_); }
  CoreContext(const CoreContext&) = delete;
  CoreContext& operator=(const CoreContext&) = delete;

  const Context& operator*() const { return context_; }
  const Context* operator->() const { return &context_; }

  Kernel<StepArgs> step;
  Kernel<ThroughScratchArgs> through_scratch;
  Kernel<FaultArgs> fault;

 private:
  static frt_context open(const Plugin& plugin, bool eager) {
    core::ContextOptions options;
    options.name = "gpu0";
    options.backend_id = "frt.cuda.test";
    options.eager = eager;
    options.kernels = &plugin.table<frt_kernels_v1>(FRT_EXT_KERNELS);
    return core::open_context(plugin.backend(), plugin.handle(), 0, nullptr, options);
  }

  Plugin plugin_;
  frt_context handle_;
  Context context_;
};

}  // namespace frt::cuda_test
