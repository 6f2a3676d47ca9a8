// SPDX-License-Identifier: Apache-2.0
#include "leaky_sum.hpp"

#include <cuda_runtime.h>

namespace acme {
namespace {

// One thread for one value of the state; grid (ceil(width / block), count).
__global__ void leaky_sum(LeakySumArgs args) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  const int b = blockIdx.y;
  const int length = args.sequences.length[b];
  if (i >= args.width || length <= 0) return;
  float* state = reinterpret_cast<float*>(static_cast<char*>(args.state) +
                                          args.sequences.slot[b] * args.slot_stride) +
                 i;
  const float decay = args.decay[i];
  float sum = *state;
  for (int q = 0; q < length; ++q) {
    const long long at = (static_cast<long long>(b) * args.sequences.rows + q) * args.width + i;
    sum = __fadd_rn(__fmul_rn(decay, sum), args.x[at]);
    args.y[at] = sum;
  }
  *state = sum;
}

}  // namespace

const char* leaky_sum_cuda(const LeakySumArgs& args, void* stream) noexcept {
  constexpr int kBlock = 128;
  const dim3 grid(static_cast<unsigned>((args.width + kBlock - 1) / kBlock),
                  static_cast<unsigned>(args.sequences.count));
  leaky_sum<<<grid, kBlock, 0, static_cast<cudaStream_t>(stream)>>>(args);
  const cudaError_t status = cudaGetLastError();
  return status == cudaSuccess ? nullptr : cudaGetErrorString(status);
}

}  // namespace acme
