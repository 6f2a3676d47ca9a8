// SPDX-License-Identifier: Apache-2.0
// The last part of the gated delta net as a pass of its own: y = rms_norm(o) * weight * silu(z),
// per row and head. A few rows have it in the kernel that computes o (step.cuh).
#include "gated_delta.cuh"

namespace frt::cuda {
namespace {

// A warp per row and head.
template <class T>
__global__ void __launch_bounds__(256) gated_norm_kernel(const frt_gated_delta_block_args args) {
  pdl_trigger();
  pdl_wait();
  const frt_gated_delta_args& delta = args.delta;
  const int values = delta.value_dim;
  const int lane = threadIdx.x % 32;
  const int64_t at = static_cast<int64_t>(blockIdx.x) * 8 + threadIdx.x / 32;
  const int row = static_cast<int>(at / delta.value_heads);
  if (row >= active_length(delta.sequences, blockIdx.y)) return;
  const int64_t first =
      (static_cast<int64_t>(blockIdx.y) * delta.sequences.rows * delta.value_heads + at) * values;
  const T* o = static_cast<const T*>(delta.o) + first;
  const T* z = static_cast<const T*>(args.z) + first;
  T* y = static_cast<T*>(args.y) + first;
  float squares = 0;
  for (int i = lane; i < values; i += 32) {
    const float value = to_float(o[i]);
    squares = fmaf(value, value, squares);
  }
  const float factor = rsqrtf(warp_sum(squares) / static_cast<float>(values) + args.epsilon);
  for (int i = lane; i < values; i += 32) {
    y[i] = from_float<T>(to_float(o[i]) * factor * args.norm_weight[i] * silu(to_float(z[i])));
  }
}

// Heads of 128 in bf16: half a warp per row and head, 16 bytes per lane, four of them asked for
// together. Floor: 48 heads of 8192 rows are 302 MB, 65 us at 4.65 TB/s.
constexpr int kVectors = 4;

__global__ void __launch_bounds__(256)
    gated_norm_128_kernel(const __grid_constant__ frt_gated_delta_block_args args) {
  pdl_trigger();
  const frt_gated_delta_args& delta = args.delta;
  const int lane = threadIdx.x % 16;
  float weight[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) weight[i] = args.norm_weight[lane * 8 + i];
  pdl_wait();
  const int64_t active =
      static_cast<int64_t>(active_length(delta.sequences, blockIdx.y)) * delta.value_heads;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * 16 * kVectors + threadIdx.x / 16;
  if (static_cast<int64_t>(blockIdx.x) * 16 * kVectors >= active) return;
  const int64_t base =
      static_cast<int64_t>(blockIdx.y) * delta.sequences.rows * delta.value_heads * 128 + lane * 8;
  const bf16* o = static_cast<const bf16*>(delta.o) + base;
  const bf16* z = static_cast<const bf16*>(args.z) + base;
  bf16* y = static_cast<bf16*>(args.y) + base;
  Vector<bf16, 8> o_values[kVectors], z_values[kVectors];
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    const int64_t at = first + v * 16;
    if (at >= active) continue;
    o_values[v] = *reinterpret_cast<const Vector<bf16, 8>*>(o + at * 128);
    z_values[v] = *reinterpret_cast<const Vector<bf16, 8>*>(z + at * 128);
  }
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    const int64_t at = first + v * 16;
    float values[8];
    float squares = 0;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      values[i] = to_float(o_values[v].values[i]);
      squares = fmaf(values[i], values[i], squares);
    }
#pragma unroll
    for (int offset = 8; offset > 0; offset /= 2) {
      squares += __shfl_xor_sync(~0u, squares, offset);
    }
    const float factor = rsqrtf(squares / 128.0f + args.epsilon);
    Vector<bf16, 8> made;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      made.values[i] = from_float<bf16>(values[i] * factor * weight[i] *
                                        silu_fast(to_float(z_values[v].values[i])));
    }
    if (at < active) *reinterpret_cast<Vector<bf16, 8>*>(y + at * 128) = made;
  }
}

}  // namespace

void launch_gated_norm(Stream& stream, const frt_gated_delta_block_args& args) {
  const frt_gated_delta_args& delta = args.delta;
  const int64_t vectors = static_cast<int64_t>(delta.sequences.rows) * delta.value_heads;
  const Grid grid{dim3(static_cast<unsigned>(ceil_div(vectors, 8)),
                       static_cast<unsigned>(delta.sequences.count)),
                  dim3(256)};
  if (delta.dtype == FRT_DTYPE_BF16 && delta.value_dim == 128 && aligned(delta.o, 0, 16) &&
      aligned(args.z, 0, 16) && aligned(args.y, 0, 16)) {
    Grid wide = grid;
    wide.blocks.x = static_cast<unsigned>(ceil_div(vectors, 16 * kVectors));
    launch(stream, wide, gated_norm_128_kernel, args);
  } else if (delta.dtype == FRT_DTYPE_F32) {
    launch(stream, grid, gated_norm_kernel<float>, args);
  } else {
    launch(stream, grid, gated_norm_kernel<bf16>, args);
  }
}

}  // namespace frt::cuda
