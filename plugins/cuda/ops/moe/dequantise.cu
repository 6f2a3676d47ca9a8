// SPDX-License-Identifier: Apache-2.0
// Matrices of some experts as bf16, for products that read bf16 (sm90/grouped.cu).
//
// Bound by memory: a value is one byte read (FP8; NVFP4 9/16) and two written. The 805 million
// values of a layer of Qwen3.6-35B-A3B in FP8: 2.4 GB, 0.56 ms at 4.3 TB/s. A warp has one row, a
// lane eight values at a time, four loads under way.
#include "../common/launch.cuh"
#include "grouped.cuh"
#include "rows.cuh"

namespace frt::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int kInFlight = 4;

// The grid: (ceil(rows / kWarps), experts of the slice).
template <MoeFormat kFormat>
__global__ void __launch_bounds__(kThreads)
    dequantise_experts_kernel(const __grid_constant__ MoeMatrix matrix, int first, bf16* plain) {
  using Eight = std::conditional_t<kFormat == MoeFormat::kFp4, uint32_t, uint2>;
  pdl_trigger();
  const int row = static_cast<int>(blockIdx.x) * kWarps + static_cast<int>(threadIdx.x) / 32;
  const int lane = threadIdx.x % 32, eights = matrix.cols / 8;
  if (row >= matrix.rows) return;
  const MoeRow source = moe_row(matrix, first + static_cast<int>(blockIdx.y), row);
  const auto* data = reinterpret_cast<const Eight*>(source.data);
  auto* target = reinterpret_cast<uint4*>(
      plain + (static_cast<int64_t>(blockIdx.y) * matrix.rows + row) * matrix.cols);
  const auto local_scale = [&](int col) {
    if constexpr (kFormat == MoeFormat::kFp4) {
      return e4m3_float(source.scale[col / 16]) * kFp4Unit;
    } else {
      return matrix.type == WeightType::kFp8Block
                 ? moe_scale(matrix, source.scale, col >> matrix.block_shift)
                 : 1.0f;
    }
  };
  pdl_wait();  // the kernel before may still be reading the target
  for (int base = lane; base < eights; base += 32 * kInFlight) {
    Eight raw[kInFlight];
    float scale[kInFlight];
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) {
      const int at = base + 32 * i;
      if (at >= eights) break;
      raw[i] = __ldcs(data + at);
      scale[i] = local_scale(at * 8);
    }
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) {
      const int at = base + 32 * i;
      if (at >= eights) break;
      float values[8];
      if constexpr (kFormat == MoeFormat::kFp4) {
        dequantise_fp4(raw[i], values);
      } else {
        dequantise_fp8(raw[i], values);
      }
#pragma unroll
      for (float& value : values) value *= scale[i];
      target[at] = pack_bf16(values);
    }
  }
}

}  // namespace

void launch_dequantise_experts(Stream& stream, const MoeMatrix& matrix, int64_t first,
                               int64_t count, bf16* plain) {
  const Grid grid{
      dim3(static_cast<unsigned>(ceil_div(matrix.rows, kWarps)), static_cast<unsigned>(count)),
      dim3(kThreads)};
  launch(stream, grid,
         moe_format(matrix.type) == MoeFormat::kFp4 ? dequantise_experts_kernel<MoeFormat::kFp4>
                                                    : dequantise_experts_kernel<MoeFormat::kFp8>,
         matrix, static_cast<int>(first), plain);
}

}  // namespace frt::cuda
