// SPDX-License-Identifier: Apache-2.0
// The streaming kernel: any parts and rows, and which of its kernels is taken.
#include "linear_narrow_forms.cuh"

namespace frt::cuda {
namespace {

NarrowKernel any_kernel(const NarrowPlan& plan) {
  using narrow::AnyParts;
  if (plan.rows > 8) {
    return plan.group == kNarrowGroup ? narrow::kernel_of<2, AnyParts, kNarrowGroup>(plan.stages)
                                      : narrow::kernel_of<2, AnyParts, kNarrowTrio>(plan.stages);
  }
  return plan.group == kNarrowGroup ? narrow::kernel_of<1, AnyParts, kNarrowGroup>(plan.stages)
                                    : narrow::kernel_of<1, AnyParts, kNarrowTrio>(plan.stages);
}

NarrowKernel kernel_of(const NarrowPlan& plan, const NarrowArgs& args) {
  if (plan.rows > 8) return any_kernel(plan);
  int kinds = 0;
  for (int32_t i = 0; i < args.part_count; ++i) kinds |= narrow::kind_bit(args.parts[i].kind);
  const bool several = args.part_count > 1;
  switch (kinds | narrow::kind_bit(NarrowKind::kBf16)) {
    case narrow::kind_bit(NarrowKind::kBf16):
      return narrow_bf16_kernel(plan, several);
    case narrow::kind_bit(NarrowKind::kBf16) | narrow::kind_bit(NarrowKind::kFp8Block):
      return narrow_fp8_kernel(plan, several);
    case narrow::kind_bit(NarrowKind::kBf16) | narrow::kind_bit(NarrowKind::kNvfp4):
      return narrow_fp4_kernel(plan, several);
    default:
      return any_kernel(plan);
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
