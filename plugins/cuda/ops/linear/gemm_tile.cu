// SPDX-License-Identifier: Apache-2.0
// Tiled products, y = x W^T.
//
// bf16: tiles of 128 rows by 128 outputs, 32 inputs a step, four steps in flight by cp.async. Eight
// warps, 2 by 4, each with 64 x 32 results in registers; mma.sync m16n8k16 with f32 sums in the
// order of the inputs. A row of a tile has 64 bytes, four chunks of 16; chunk c of row r lies at
// place c ^ (r / 2) % 4, so that the eight rows that ldmatrix reads at once touch all banks. Where
// rows are not aligned to 16 bytes a chunk is gathered value by value.
//
// f32: tiles of 64 by 64, 16 inputs a step, 4 x 4 results per thread, plain f32 arithmetic (never
// TF32), the sum of a result in the order of the inputs.
//
// A few outputs, bf16: a warp per row and a plain dot product each; bound by reading x.
//
// None of them lets the number of rows change the order of a sum: the value of a row is the same
// for any number of rows.
#include "../common/launch.cuh"
#include "../common/mma.cuh"
#include "../common/numbers.cuh"
#include "gemm_tile.cuh"

namespace frt::cuda {
namespace {

// ---- bf16 ---------------------------------------------------------------------------------------

constexpr int kTileRows = 128, kTileOutputs = 128, kTileInputs = 32, kStages = 4;
constexpr int kThreads = 256;
constexpr int kStageBytes = (kTileRows + kTileOutputs) * kTileInputs * 2;

__device__ __forceinline__ int swizzled(int row, int chunk) {
  return row * kTileInputs * 2 + ((chunk ^ ((row >> 1) & 3)) << 4);
}

// Eight inputs of one row into shared memory; zeros beyond the matrix.
__device__ __forceinline__ void load_chunk(uint32_t target, const bf16* matrix, int64_t stride,
                                           int row, int rows, int input, int inputs, bool aligned) {
  const int valid = row < rows ? max(0, min(8, inputs - input)) : 0;
  const bf16* source = valid > 0 ? matrix + row * stride + input : matrix;
  if (aligned) {
    copy_async_part(target, source, valid * 2);
    return;
  }
  uint32_t words[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const uint32_t low = 2 * i < valid ? __bfloat16_as_ushort(source[2 * i]) : 0;
    const uint32_t high = 2 * i + 1 < valid ? __bfloat16_as_ushort(source[2 * i + 1]) : 0;
    words[i] = low | high << 16;
  }
  asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(target), "r"(words[0]),
               "r"(words[1]), "r"(words[2]), "r"(words[3]));
}

// One result; rounded once.
__device__ __forceinline__ void store_result(const TileProduct& product, int row, int output,
                                             float value) {
  if (output >= product.outputs) return;
  const int64_t at = row * product.y_stride + output;
  if (product.y_dtype == FRT_DTYPE_F32) {
    float* y = static_cast<float*>(product.y) + at;
    *y = product.accumulate ? *y + value : value;
  } else {
    bf16* y = static_cast<bf16*>(product.y) + at;
    *y = from_float<bf16>(product.accumulate ? to_float(*y) + value : value);
  }
}

__global__ void __launch_bounds__(kThreads)
    tile_bf16(const __grid_constant__ TileProduct product, bool x_aligned, bool weight_aligned) {
  extern __shared__ __align__(16) unsigned char shared[];
  pdl_trigger();
  pdl_wait();
  const int rows = active_rows(product.rows, product.row_count);
  const int first_row = blockIdx.x * kTileRows, first_output = blockIdx.y * kTileOutputs;
  if (first_row >= rows) return;
  const auto* x = static_cast<const bf16*>(product.x);
  const auto* weight = static_cast<const bf16*>(product.weight);
  const uint32_t base = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  const int steps = (product.inputs + kTileInputs - 1) / kTileInputs;

  const auto load_step = [&](int step) {
    const uint32_t stage = base + step % kStages * kStageBytes;
#pragma unroll
    for (int i = 0; i < kTileRows * 4 / kThreads; ++i) {
      const int place = threadIdx.x + i * kThreads, row = place / 4, chunk = place % 4;
      const int input = step * kTileInputs + chunk * 8;
      load_chunk(stage + swizzled(row, chunk), x, product.x_stride, first_row + row, rows, input,
                 product.inputs, x_aligned);
      load_chunk(stage + kTileRows * kTileInputs * 2 + swizzled(row, chunk), weight,
                 product.weight_stride, first_output + row, product.outputs, input, product.inputs,
                 weight_aligned);
    }
  };

  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int warp_row = warp / 4 * 64, warp_output = warp % 4 * 32;
  float sums[4][4][4] = {};
  for (int step = 0; step < kStages - 1; ++step) {
    if (step < steps) load_step(step);
    copies_commit();
  }
  for (int step = 0; step < steps; ++step) {
    copies_wait<kStages - 2>();
    __syncthreads();  // the step has arrived for all, and all are done with the one before it
    if (step + kStages - 1 < steps) load_step(step + kStages - 1);
    copies_commit();
    const uint32_t stage = base + step % kStages * kStageBytes;
#pragma unroll
    for (int k = 0; k < kTileInputs / 16; ++k) {
      uint32_t a[4][4], b[2][4];
#pragma unroll
      for (int m = 0; m < 4; ++m) {
        load_matrices(a[m], stage + swizzled(warp_row + m * 16 + lane % 16, k * 2 + lane / 16));
      }
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        load_matrices(b[n], stage + kTileRows * kTileInputs * 2 +
                                swizzled(warp_output + n * 16 + lane % 8 + lane / 16 * 8,
                                         k * 2 + lane / 8 % 2));
      }
#pragma unroll
      for (int m = 0; m < 4; ++m) {
#pragma unroll
        for (int n = 0; n < 4; ++n) {
          mma_bf16<Order::kKept>(sums[m][n], a[m], b[n / 2][n % 2 * 2], b[n / 2][n % 2 * 2 + 1]);
        }
      }
    }
  }
#pragma unroll
  for (int m = 0; m < 4; ++m) {
#pragma unroll
    for (int n = 0; n < 4; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int row = first_row + warp_row + m * 16 + lane / 4 + i / 2 * 8;
        const int output = first_output + warp_output + n * 8 + lane % 4 * 2 + i % 2;
        if (row < rows) store_result(product, row, output, sums[m][n][i]);
      }
    }
  }
}

// ---- a few outputs, bf16
// --------------------------------------------------------------------------

constexpr int kThinOutputs = 4;

__global__ void __launch_bounds__(kThreads)
    thin_bf16(const __grid_constant__ TileProduct product, bool in_eights) {
  pdl_trigger();
  pdl_wait();
  const int row = blockIdx.x * (kThreads / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (row >= active_rows(product.rows, product.row_count)) return;
  const bf16* x = static_cast<const bf16*>(product.x) + row * product.x_stride;
  for (int output = 0; output < product.outputs; ++output) {
    const bf16* weight = static_cast<const bf16*>(product.weight) + output * product.weight_stride;
    float sum = 0;
    if (in_eights) {
      using Eight = Vector<__nv_bfloat162, 4>;
      for (int at = lane * 8; at < product.inputs; at += 32 * 8) {
        const auto left = *reinterpret_cast<const Eight*>(x + at);
        const auto right = *reinterpret_cast<const Eight*>(weight + at);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float2 a = __bfloat1622float2(left.values[i]);
          const float2 b = __bfloat1622float2(right.values[i]);
          sum = fmaf(a.x, b.x, fmaf(a.y, b.y, sum));
        }
      }
    } else {
      for (int at = lane; at < product.inputs; at += 32) {
        sum = fmaf(to_float(x[at]), to_float(weight[at]), sum);
      }
    }
    sum = warp_sum(sum);
    if (lane == 0) store_result(product, row, output, sum);
  }
}

// ---- f32 ----------------------------------------------------------------------------------------

constexpr int kPlainTile = 64, kPlainInputs = 16, kPlainThreads = 256;

template <class X, class W>
__global__ void __launch_bounds__(kPlainThreads)
    tile_f32(const __grid_constant__ TileProduct product) {
  // Inputs are the outer index; the padding keeps the transposing stores off each other's banks.
  __shared__ float x_tile[kPlainInputs][kPlainTile + 4], weight_tile[kPlainInputs][kPlainTile + 4];
  pdl_trigger();
  pdl_wait();
  const int rows = active_rows(product.rows, product.row_count);
  const int first_row = blockIdx.x * kPlainTile, first_output = blockIdx.y * kPlainTile;
  if (first_row >= rows) return;
  const auto* x = static_cast<const X*>(product.x);
  const auto* weight = static_cast<const W*>(product.weight);
  const int row_of_thread = threadIdx.x / 16 * 4, output_of_thread = threadIdx.x % 16 * 4;
  float sums[4][4] = {};
  for (int start = 0; start < product.inputs; start += kPlainInputs) {
#pragma unroll
    for (int i = 0; i < kPlainTile * kPlainInputs / kPlainThreads; ++i) {
      const int place = threadIdx.x + i * kPlainThreads;
      const int line = place / kPlainInputs, input = place % kPlainInputs;
      const bool inside = start + input < product.inputs;
      const int row = first_row + line, output = first_output + line;
      x_tile[input][line] =
          inside && row < rows ? to_float(x[row * product.x_stride + start + input]) : 0.0f;
      weight_tile[input][line] =
          inside && output < product.outputs
              ? to_float(weight[output * product.weight_stride + start + input])
              : 0.0f;
    }
    __syncthreads();
#pragma unroll
    for (int input = 0; input < kPlainInputs; ++input) {
      const auto a = *reinterpret_cast<const float4*>(&x_tile[input][row_of_thread]);
      const auto b = *reinterpret_cast<const float4*>(&weight_tile[input][output_of_thread]);
      const float left[4] = {a.x, a.y, a.z, a.w}, right[4] = {b.x, b.y, b.z, b.w};
#pragma unroll
      for (int m = 0; m < 4; ++m) {
#pragma unroll
        for (int n = 0; n < 4; ++n) sums[m][n] = fmaf(left[m], right[n], sums[m][n]);
      }
    }
    __syncthreads();
  }
#pragma unroll
  for (int m = 0; m < 4; ++m) {
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      const int row = first_row + row_of_thread + m;
      if (row < rows) store_result(product, row, first_output + output_of_thread + n, sums[m][n]);
    }
  }
}

bool aligned(const void* pointer, int64_t stride) {
  return reinterpret_cast<uintptr_t>(pointer) % 16 == 0 && stride % 8 == 0;
}

}  // namespace

void tile_product(Stream& stream, const TileProduct& product) {
  if (product.rows <= 0 || product.outputs <= 0) return;
  const bool x_bf16 = product.x_dtype == FRT_DTYPE_BF16;
  const bool weight_bf16 = product.weight_dtype == FRT_DTYPE_BF16;
  const auto blocks = [&](int tile_rows, int tile_outputs) {
    return dim3(static_cast<unsigned>(ceil_div(product.rows, tile_rows)),
                static_cast<unsigned>(ceil_div(product.outputs, tile_outputs)));
  };
  if (x_bf16 && weight_bf16 && product.outputs <= kThinOutputs) {
    const bool in_eights = product.inputs % 8 == 0 && aligned(product.x, product.x_stride) &&
                           aligned(product.weight, product.weight_stride);
    launch(stream,
           {dim3(static_cast<unsigned>(ceil_div(product.rows, kThreads / 32))), dim3(kThreads)},
           thin_bf16, product, in_eights);
    return;
  }
  if (x_bf16 && weight_bf16) {
    launch(stream, {blocks(kTileRows, kTileOutputs), dim3(kThreads), kStages * kStageBytes},
           tile_bf16, product, aligned(product.x, product.x_stride),
           aligned(product.weight, product.weight_stride));
    return;
  }
  const Grid grid{blocks(kPlainTile, kPlainTile), dim3(kPlainThreads)};
  if (x_bf16) {
    launch(stream, grid, tile_f32<bf16, float>, product);
  } else if (weight_bf16) {
    launch(stream, grid, tile_f32<float, bf16>, product);
  } else {
    launch(stream, grid, tile_f32<float, float>, product);
  }
}

}  // namespace frt::cuda
