// SPDX-License-Identifier: Apache-2.0
// Products of NVFP4 by NVFP4, y = x W^T: tiles as fp4_tile.hpp says, four stages of 128 inputs
// under way by cp.async, 72 KB of shared memory, sums in f32 in the order of the inputs. Weights
// and scales are read as the format stores them: 16 codes and a scale are what an instruction
// takes, and rows of both are long enough that what is brought is used but for half of each 32
// bytes of scales.
//
// Blocks of one output tile and all rows follow one another, so weights come from memory once and x
// stays in L2: 24 MB of 8192 rows of 5120.
//
// The first stages of weights are on their way before the kernel that made x has ended.
//
// Floor, 8192 rows of 34816 x 5120 on an RTX 5090: 2.9 TFLOP at 1676 TFLOP/s, 1.74 ms; bringing the
// tiles to the SMs is 12.8 GB in that time. Compiled and emulated; not measured on a device.
//
// The value of a row does not depend on the number of rows.
#include "../common/launch.cuh"
#include "../common/numbers.cuh"
#include "fp4_loop.cuh"
#include "gemm_w4a4.cuh"

namespace frt::cuda {
namespace {

struct Fp4Product {
  Product product;
  Fp4Rows x;
  bool whole_scales;  // those of 256 inputs are 16 aligned bytes
  bool paired;        // two outputs of y can be stored at once
};

// Two neighbouring outputs of a row, rounded once.
template <class T>
__device__ __forceinline__ void store_pair(const Fp4Product& args, int row, int output, float first,
                                           float second) {
  const Product& product = args.product;
  if (output >= product.weight.rows) return;
  const bool both = output + 1 < product.weight.rows;
  T* y = static_cast<T*>(product.y) + row * product.y_stride + output;
  if (product.accumulate) {
    first += to_float(y[0]);
    if (both) second += to_float(y[1]);
  }
  if (both && args.paired) {
    *reinterpret_cast<Vector<T, 2>*>(y) = {{from_float<T>(first), from_float<T>(second)}};
    return;
  }
  y[0] = from_float<T>(first);
  if (both) y[1] = from_float<T>(second);
}

// The sums of a warp. Of 16 rows by eight outputs a lane has four.
template <class T>
__device__ __forceinline__ void store_sums(const Fp4Product& args, int rows, int first_row,
                                           int first_output, int lane,
                                           const float (&sums)[4][4][4]) {
#pragma unroll
  for (int m = 0; m < 4; ++m) {
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
      const int row = fp4_sum_row(first_row + m * 16, lane, i);
      if (row >= rows) continue;
      const float scale = args.x.row_scale[row] * args.product.weight.global_scale;
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        store_pair<T>(args, row, fp4_sum_output(first_output + n * 8, lane, i),
                      sums[m][n][i] * scale, sums[m][n][i + 1] * scale);
      }
    }
  }
}

__global__ void __launch_bounds__(kFp4Threads, 1)
    tile_fp4(const __grid_constant__ Fp4Product args) {
  extern __shared__ __align__(128) unsigned char shared[];
  const Weight& weight = args.product.weight;
  const int64_t row_bytes = weight.cols / 2;
  const int first_row = static_cast<int>(blockIdx.x) * kFp4TileRows;
  const int first_output = static_cast<int>(blockIdx.y) * kFp4TileOutputs;
  const auto row_of = [](const void* matrix, int64_t bytes, int row, int rows) {
    const bool there = row < rows;
    return Fp4Row{static_cast<const uint8_t*>(matrix) + (there ? row * bytes : 0), there};
  };
  Fp4Lines weights, x;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    weights.values[i] =
        row_of(weight.data, row_bytes, first_output + Fp4Loop::value_row(i), weight.rows);
  }
  weights.scales =
      row_of(weight.scale, weight.cols / 16, first_output + Fp4Loop::scale_row(), weight.rows);
  const Fp4Loop loop(shared, weight.cols, args.whole_scales);
  pdl_trigger();
  loop.start_weights(weights);
  pdl_wait();
  const int rows = active_rows(args.product.rows, args.product.row_count);
  if (first_row >= rows) {
    copies_wait_all();
    return;
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    x.values[i] = row_of(args.x.values, row_bytes, first_row + Fp4Loop::value_row(i), rows);
  }
  x.scales = row_of(args.x.scale, args.x.scale_stride(), first_row + Fp4Loop::scale_row(), rows);
  float sums[4][4][4] = {};
  loop.run(x, weights, 4, sums);
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int row = first_row + fp4_warp_row(warp), output = first_output + fp4_warp_output(warp);
  if (args.product.y_dtype == FRT_DTYPE_F32) {
    store_sums<float>(args, rows, row, output, lane, sums);
  } else {
    store_sums<bf16>(args, rows, row, output, lane, sums);
  }
}

}  // namespace

bool w4a4_gemm_supports(const Product& product) {
  const Weight& weight = product.weight;
  const int64_t x_bytes = product.x_stride * dtype_bits(product.x_dtype) / 8;
  return weight.type == WeightType::kNvfp4 && weight.cols % 64 == 0 && aligned(weight.data) &&
         aligned(weight.scale, 4) && aligned(product.x) && x_bytes % 16 == 0;
}

void w4a4_gemm(Stream& stream, const Product& product, const Fp4Rows& x) {
  const uintptr_t pair_bytes = product.y_dtype == FRT_DTYPE_F32 ? 8 : 4;
  const Fp4Product args{
      product, x, product.weight.cols % kFp4ScaleInputs == 0 && aligned(product.weight.scale, 16),
      product.y_stride % 2 == 0 && aligned(product.y, pair_bytes)};
  launch(stream,
         {dim3(static_cast<unsigned>(ceil_div(product.rows, kFp4TileRows)),
               static_cast<unsigned>(ceil_div(product.weight.rows, kFp4TileOutputs))),
          dim3(kFp4Threads), kFp4SharedBytes},
         tile_fp4, args);
}

}  // namespace frt::cuda
