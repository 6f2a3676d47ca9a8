// SPDX-License-Identifier: Apache-2.0
#include "linear_narrow_stream.cuh"

#include "linear_narrow.hpp"

namespace frt::cuda {
namespace {

template <int kHalves, int kStages>
NarrowKernel kernel_of(int32_t group) {
  return group == kNarrowGroup
             ? narrow::narrow_stream<kHalves, kStages, narrow::kAnyKind, kNarrowGroup>
             : narrow::narrow_stream<kHalves, kStages, narrow::kAnyKind, kNarrowTrio>;
}
template <int kStages>
NarrowKernel kernel_of(const NarrowPlan& plan) {
  return plan.rows > 8 ? kernel_of<2, kStages>(plan.group) : kernel_of<1, kStages>(plan.group);
}

NarrowKernel kernel_of(const NarrowPlan& plan, const NarrowArgs& args) {
  if (args.part_count == 1 && args.parts[0].kind == NarrowKind::kNvfp4 &&
      (plan.rows <= 8 || plan.group != kNarrowGroup)) {
    return narrow_fp4_kernel(plan);
  }
  switch (plan.stages) {
    case kNarrowStages:
      return kernel_of<kNarrowStages>(plan);
    case kNarrowSomeStages:
      return kernel_of<kNarrowSomeStages>(plan);
    case kNarrowLeastStages:
      return kernel_of<kNarrowLeastStages>(plan);
    default:
      return kernel_of<kNarrowFewStages>(plan);
  }
}

}  // namespace

void launch_narrow_stream(Stream& stream, const NarrowPlan& plan, const NarrowArgs& args) {
  Device& device = stream.device();
  const NarrowKernel kernel = kernel_of(plan, args);
  device.check(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                                    cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    static_cast<int>(plan.shared_bytes)),
               "narrow product: shared memory");
  cudaLaunchAttribute attributes[2]{};
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim.x = static_cast<unsigned>(args.split);
  attributes[1].val.clusterDim.y = 1;
  attributes[1].val.clusterDim.z = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(plan.blocks));
  config.blockDim = dim3(static_cast<unsigned>(plan.warps * 32));
  config.dynamicSmemBytes = plan.shared_bytes;
  config.stream = stream.native();
  config.attrs = attributes;
  config.numAttrs = FRT_CUDA_ARCH < 90 ? 0 : args.split > 1 ? 2 : 1;
  device.check(cudaLaunchKernelEx(&config, kernel, args), "narrow product");
  stream.settle();  // it triggers after its wait
}

}  // namespace frt::cuda
