// SPDX-License-Identifier: Apache-2.0
// The kernels of wgmma.cuh for e4m3 by e4m3.
//
// Floor: 2 rows inputs outputs over about 1500 TFLOP/s (H200), half of what bf16 takes; a tile of
// 256 x 184 eats as many bytes of L2 a cycle as it does in bf16.
#include "wgmma.cuh"

namespace frt::cuda {
namespace {

template <int kBlocks, int kRows, bool kGated>
constexpr WgmmaKernel kernel() {
  return {kBlocks, kRows, kGated, dense_wgmma_kernel<kBlocks, kRows, kGated, true>,
          kWgmmaSharedBytes<kBlocks, kRows, kGated>};
}

const WgmmaKernel kKernels[] = {
    kernel<2, 136, true>(),  kernel<2, 160, true>(),  kernel<2, 184, true>(),
    kernel<1, 64, false>(),  kernel<1, 128, false>(), kernel<1, 136, false>(),
    kernel<1, 176, false>(), kernel<1, 184, false>(), kernel<1, 256, false>(),
    kernel<2, 136, false>(), kernel<2, 200, false>()};

}  // namespace

std::span<const WgmmaKernel> wgmma_fp8_kernels() {
  return kKernels;
}

}  // namespace frt::cuda
