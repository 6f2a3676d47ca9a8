// SPDX-License-Identifier: Apache-2.0
// gemv_stream_kernels.cuh - of the streaming kernel: the kernels of a plan.
#pragma once

#include "gemv.hpp"
#include "gemv_stream.cuh"

namespace frt::cuda::gemv {

template <int kHalves, class Known, int kGroup>
GemvKernel kernel_of(int32_t stages) {
  switch (stages) {
    case kGemvStages:
      return gemv_stream<kHalves, kGemvStages, Known, kGroup>;
    case kGemvSomeStages:
      return gemv_stream<kHalves, kGemvSomeStages, Known, kGroup>;
    case kGemvLeastStages:
      return gemv_stream<kHalves, kGemvLeastStages, Known, kGroup>;
    default:
      return gemv_stream<kHalves, kGemvFewStages, Known, kGroup>;
  }
}

// Up to eight rows: `kKind` alone, or several parts of it and of BF16. Groups of three have one
// part (choose_group()).
template <GemvKind kKind>
GemvKernel kernel_of_kind(const GemvPlan& plan, bool several) {
  using One = Parts<kind_bit(kKind), false>;
  using Several = Parts<kind_bit(kKind) | kind_bit(GemvKind::kBf16), true>;
  if (several) return kernel_of<1, Several, kGemvGroup>(plan.stages);
  if constexpr (kKind != GemvKind::kBf16) {
    if (plan.group == kGemvSmallGroup) return kernel_of<1, One, kGemvSmallGroup>(plan.stages);
  }
  return kernel_of<1, One, kGemvGroup>(plan.stages);
}

}  // namespace frt::cuda::gemv
