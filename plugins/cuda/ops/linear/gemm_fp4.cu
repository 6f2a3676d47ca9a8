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
#include "../common/async_copy.cuh"
#include "../common/launch.cuh"
#include "../common/mma.cuh"
#include "../common/mma_fp4.cuh"
#include "gemm_fp4.cuh"

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
  const int inputs = weight.cols, thread = static_cast<int>(threadIdx.x);
  const int first_row = static_cast<int>(blockIdx.x) * kFp4TileRows;
  const int first_output = static_cast<int>(blockIdx.y) * kFp4TileOutputs;
  const int steps = (inputs + kFp4StageInputs - 1) / kFp4StageInputs;
  const uint32_t base = shared_address(shared);
  const uint32_t scale_base = base + kFp4Stages * kFp4StageBytes;
  constexpr int kChunks = kFp4SideBytes / 16 / kFp4Threads;  // of a thread and side
  constexpr int kRowChunks = kFp4StageInputs / 32;

  const auto scale_stage = [&](int step) {
    return scale_base + step / 2 % kFp4ScaleStages * kFp4ScaleStageBytes;
  };
  const auto load_weights = [&](int step) {
    const uint32_t side = base + step % kFp4Stages * kFp4StageBytes + kFp4SideBytes;
#pragma unroll
    for (int i = 0; i < kChunks; ++i) {
      const int place = thread + i * kFp4Threads, row = place / kRowChunks,
                chunk = place % kRowChunks;
      const int output = first_output + row, input = step * kFp4StageInputs + chunk * 32;
      const bool inside = output < weight.rows && input < inputs;
      const int64_t at = inside ? (static_cast<int64_t>(output) * inputs + input) / 2 : 0;
      copy_async_or_zero(side + fp4_place(row, chunk),
                         static_cast<const uint8_t*>(weight.data) + at, inside);
    }
    if (step % 2 != 0 || thread < kFp4TileRows) return;
    const int row = thread - kFp4TileRows, output = first_output + row;
    const int input = step * kFp4StageInputs;
    const bool inside = output < weight.rows;
    const uint32_t target = scale_stage(step) + kFp4ScaleSideBytes + row * 16;
    const uint8_t* source =
        static_cast<const uint8_t*>(weight.scale) +
        (inside ? static_cast<int64_t>(output) * (inputs / 16) + input / 16 : 0);
    if (args.whole_scales) {
      copy_async_or_zero(target, source, inside);
      return;
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const bool there = inside && input + 64 * i < inputs;
      copy_async_cached_or_zero<4>(target + 4 * i, source + (there ? 4 * i : 0), there);
    }
  };
  // A step's weights are asked for in the group of its x, or before.
  const auto load_x = [&](int step, int rows) {
    const uint32_t side = base + step % kFp4Stages * kFp4StageBytes;
#pragma unroll
    for (int i = 0; i < kChunks; ++i) {
      const int place = thread + i * kFp4Threads, row = place / kRowChunks,
                chunk = place % kRowChunks;
      const int line = first_row + row, input = step * kFp4StageInputs + chunk * 32;
      const bool inside = line < rows && input < inputs;
      const int64_t at = inside ? (static_cast<int64_t>(line) * inputs + input) / 2 : 0;
      copy_async_or_zero(side + fp4_place(row, chunk), args.x.values + at, inside);
    }
    if (step % 2 != 0 || thread >= kFp4TileRows) return;
    const int line = first_row + thread, first = step * kFp4StageInputs / 16;
    const int valid = line < rows ? min(16, inputs / 16 - first) : 0;
    copy_async_part(scale_stage(step) + thread * 16,
                    args.x.scale + (valid > 0 ? line * args.x.scale_stride() + first : 0), valid);
  };

  pdl_trigger();
  for (int step = 0; step < kFp4Stages - 1 && step < steps; ++step) load_weights(step);
  pdl_wait();
  const int rows = active_rows(args.product.rows, args.product.row_count);
  if (first_row >= rows) {
    copies_wait_all();
    return;
  }
  for (int step = 0; step < kFp4Stages - 1; ++step) {
    if (step < steps) load_x(step, rows);
    copies_commit();
  }

  const int warp = thread / 32, lane = thread % 32;
  const int warp_row = fp4_warp_row(warp), warp_output = fp4_warp_output(warp);
  float sums[4][4][4] = {};
  for (int start = 0; start < steps; start += 2) {
    uint32_t x_scales[2][4], weight_scales[4];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int step = start + half;
      if (step >= steps) break;
      copies_wait<kFp4Stages - 2>();
      __syncthreads();  // the step has arrived for all, and all are done with the one before it
      if (step + kFp4Stages - 1 < steps) {
        load_weights(step + kFp4Stages - 1);
        load_x(step + kFp4Stages - 1, rows);
      }
      copies_commit();
      if (half == 0) {
        const unsigned char* scales = shared + (scale_stage(step) - base);
        const auto read = [&](uint32_t(&words)[4], int row) {
          const auto four = *reinterpret_cast<const uint4*>(scales + row * 16);
          words[0] = four.x;
          words[1] = four.y;
          words[2] = four.z;
          words[3] = four.w;
        };
        read(x_scales[0], fp4_x_scale_row(warp_row, lane));
        read(x_scales[1], fp4_x_scale_row(warp_row + 32, lane));
        read(weight_scales, kFp4TileRows + fp4_weight_scale_row(warp_output, lane));
      }
      const uint32_t stage = base + step % kFp4Stages * kFp4StageBytes;
#pragma unroll
      for (int k = 0; k < kFp4StageInputs / 64; ++k) {
        uint32_t a[4][4], b[2][4];
#pragma unroll
        for (int m = 0; m < 4; ++m) {
          load_matrices(a[m], stage + fp4_x_place(warp_row + m * 16, k, lane));
        }
#pragma unroll
        for (int n = 0; n < 2; ++n) {
          load_matrices(b[n],
                        stage + kFp4SideBytes + fp4_weight_place(warp_output + n * 16, k, lane));
        }
        const int word = half * 2 + k;
#pragma unroll
        for (int m = 0; m < 4; m += 2) {
          const auto multiply = [&]<int kN>() {
            const uint32_t b0 = b[kN / 2][kN % 2 * 2], b1 = b[kN / 2][kN % 2 * 2 + 1];
            mma_fp4<0, kN>(sums[m][kN], a[m], b0, b1, x_scales[m / 2][word], weight_scales[word]);
            mma_fp4<1, kN>(sums[m + 1][kN], a[m + 1], b0, b1, x_scales[m / 2][word],
                           weight_scales[word]);
          };
          multiply.template operator()<0>();
          multiply.template operator()<1>();
          multiply.template operator()<2>();
          multiply.template operator()<3>();
        }
      }
    }
  }
  if (args.product.y_dtype == FRT_DTYPE_F32) {
    store_sums<float>(args, rows, first_row + warp_row, first_output + warp_output, lane, sums);
  } else {
    store_sums<bf16>(args, rows, first_row + warp_row, first_output + warp_output, lane, sums);
  }
}

bool aligned(const void* pointer, uintptr_t bytes) {
  return reinterpret_cast<uintptr_t>(pointer) % bytes == 0;
}

}  // namespace

bool fp4_gemm_supports(const Product& product) {
  const Weight& weight = product.weight;
  const int64_t x_bytes = product.x_stride * dtype_bits(product.x_dtype) / 8;
  return weight.type == WeightType::kNvfp4 && weight.cols % 64 == 0 && aligned(weight.data, 16) &&
         aligned(weight.scale, 4) && aligned(product.x, 16) && x_bytes % 16 == 0;
}

void fp4_gemm(Stream& stream, const Product& product, const Fp4Rows& x) {
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
