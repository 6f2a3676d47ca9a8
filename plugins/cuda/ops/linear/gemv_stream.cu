// SPDX-License-Identifier: Apache-2.0
// The streaming kernel: any parts and rows, and which of its kernels is taken.
#include "gemv_stream_kernels.cuh"

namespace frt::cuda {
namespace {

GemvKernel any_kernel(const GemvPlan& plan) {
  using gemv::AnyParts;
  if (plan.rows > 8) {
    return plan.group == kGemvGroup ? gemv::kernel_of<2, AnyParts, kGemvGroup>(plan.stages)
                                    : gemv::kernel_of<2, AnyParts, kGemvSmallGroup>(plan.stages);
  }
  return plan.group == kGemvGroup ? gemv::kernel_of<1, AnyParts, kGemvGroup>(plan.stages)
                                  : gemv::kernel_of<1, AnyParts, kGemvSmallGroup>(plan.stages);
}

GemvKernel kernel_of(const GemvPlan& plan, const GemvArgs& args) {
  if (plan.rows > 8) return any_kernel(plan);
  int kinds = 0;
  for (int32_t i = 0; i < args.part_count; ++i) kinds |= gemv::kind_bit(args.parts[i].kind);
  const bool several = args.part_count > 1;
  switch (kinds | gemv::kind_bit(GemvKind::kBf16)) {
    case gemv::kind_bit(GemvKind::kBf16):
      return gemv_bf16_kernel(plan, several);
    case gemv::kind_bit(GemvKind::kBf16) | gemv::kind_bit(GemvKind::kFp8Block):
      return gemv_fp8_kernel(plan, several);
    case gemv::kind_bit(GemvKind::kBf16) | gemv::kind_bit(GemvKind::kNvfp4):
      return gemv_fp4_kernel(plan, several);
    default:
      return any_kernel(plan);
  }
}

}  // namespace

void launch_gemv_stream(Stream& stream, const GemvPlan& plan, const GemvArgs& args) {
  Device& device = stream.device();
  const GemvKernel kernel = kernel_of(plan, args);
  device.check(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                                    cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    static_cast<int>(plan.shared_bytes)),
               "GEMV: shared memory");
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
  config.numAttrs = !device.has(feature::kPdl) ? 0 : args.split > 1 ? 2 : 1;
  device.check(cudaLaunchKernelEx(&config, kernel, args), "GEMV");
  stream.allow_early_reads();  // it triggers after its wait
}

}  // namespace frt::cuda
