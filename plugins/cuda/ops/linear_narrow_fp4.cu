// SPDX-License-Identifier: Apache-2.0
// Of the streaming kernel: up to eight rows of x and a single NVFP4 part. Decoding is what bounds
// it, so steps between chunks and tiles that other kinds and several parts need cost time.
#include "linear_narrow.hpp"
#include "linear_narrow_stream.cuh"

namespace frt::cuda {
namespace {

template <int kStages>
constexpr NarrowKernel kKernel =
    narrow::narrow_stream<1, kStages, static_cast<int>(NarrowKind::kNvfp4)>;

}  // namespace

NarrowKernel narrow_fp4_kernel(int32_t stages) {
  switch (stages) {
    case kNarrowStages:
      return kKernel<kNarrowStages>;
    case kNarrowSomeStages:
      return kKernel<kNarrowSomeStages>;
    case kNarrowLeastStages:
      return kKernel<kNarrowLeastStages>;
    default:
      return kKernel<kNarrowFewStages>;
  }
}

}  // namespace frt::cuda
