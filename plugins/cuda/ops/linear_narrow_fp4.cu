// SPDX-License-Identifier: Apache-2.0
// Of the streaming kernel: a single NVFP4 part, up to eight rows of x or groups of three warps.
// Decoding is what bounds it, so steps between chunks and tiles that other kinds and several parts
// need cost time.
#include "linear_narrow.hpp"
#include "linear_narrow_stream.cuh"

namespace frt::cuda {
namespace {

constexpr int kOnly = static_cast<int>(NarrowKind::kNvfp4);

template <int kStages>
NarrowKernel kernel_of(const NarrowPlan& plan) {
  if (plan.group == kNarrowGroup) return narrow::narrow_stream<1, kStages, kOnly, kNarrowGroup>;
  return plan.rows > 8 ? narrow::narrow_stream<2, kStages, kOnly, kNarrowTrio>
                       : narrow::narrow_stream<1, kStages, kOnly, kNarrowTrio>;
}

}  // namespace

NarrowKernel narrow_fp4_kernel(const NarrowPlan& plan) {
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

}  // namespace frt::cuda
