// SPDX-License-Identifier: Apache-2.0
// linear_narrow_forms.cuh - of the streaming kernel: the kernels of a plan.
#pragma once

#include "linear_narrow.hpp"
#include "linear_narrow_stream.cuh"

namespace frt::cuda::narrow {

template <int kHalves, class Known, int kGroup>
NarrowKernel kernel_of(int32_t stages) {
  switch (stages) {
    case kNarrowStages:
      return narrow_stream<kHalves, kNarrowStages, Known, kGroup>;
    case kNarrowSomeStages:
      return narrow_stream<kHalves, kNarrowSomeStages, Known, kGroup>;
    case kNarrowLeastStages:
      return narrow_stream<kHalves, kNarrowLeastStages, Known, kGroup>;
    default:
      return narrow_stream<kHalves, kNarrowFewStages, Known, kGroup>;
  }
}

// Up to eight rows: `kKind` alone, or several parts of it and of BF16. Groups of three have one
// part (choose_group()).
template <NarrowKind kKind>
NarrowKernel kernel_of_kind(const NarrowPlan& plan, bool several) {
  using One = Parts<kind_bit(kKind), false>;
  using Several = Parts<kind_bit(kKind) | kind_bit(NarrowKind::kBf16), true>;
  if (several) return kernel_of<1, Several, kNarrowGroup>(plan.stages);
  if constexpr (kKind != NarrowKind::kBf16) {
    if (plan.group == kNarrowTrio) return kernel_of<1, One, kNarrowTrio>(plan.stages);
  }
  return kernel_of<1, One, kNarrowGroup>(plan.stages);
}

}  // namespace frt::cuda::narrow
