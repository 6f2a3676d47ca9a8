// SPDX-License-Identifier: Apache-2.0
// Products of 17 to some hundred rows with FP8 and NVFP4 weights: y = x W^T.
//
// So few rows are bound by reading the weights, so these are read quantised and once: FP8 of the
// 27B 25 GB, 5.5 ms at 4.65 TB/s; dequantising them first would move five times as much. The second
// bound is near: 64 rows are 128 operations per byte of FP8, 0.6 PFLOP/s at that speed, about what
// mma.sync gives.
//
// Tiles of 256 outputs by 64 (or 32) rows, 64 inputs a step; eight warps with 32 outputs each. The
// weights are the first operand of m16n8k16. The order of inputs inside a step is free as long as
// both operands agree, so a lane's fragments are what lies together in memory: lane 4 g + t has, of
// outputs g, g + 8, g + 16, g + 24 and of rows g, g + 8, ..., the inputs 16 t to 16 t + 15.
// Weights are dequantised in registers: their bits are moved to where bf16 has them and multiplied
// by the power of two that corrects the exponent, which is exact, also for subnormal values.
//   FP8 in blocks      then times the scale, as the sum of two bf16, rounded once
//   FP8 otherwise      the scale is applied to the sums
//   NVFP4              then times the group's scale, exact; the global one is applied to the sums
//
// The steps of all tiles are one list, cut evenly over the blocks (two per SM), so
// that every block has the same work whatever the sizes. A tile's parts go to working memory in f32
// and a second kernel adds them, in the order of inputs: the result depends on the sizes alone.
#include "../common/launch.cuh"
#include "../common/mma.cuh"
#include "../common/numbers.cuh"
#include "gemm_quantised.cuh"

namespace frt::cuda {
namespace {

constexpr int kOutputs = 256, kMostRows = 64, kInputs = 64;
constexpr int kThreads = 256;
constexpr int kBlocksPerSm = 2;

struct Quantised {
  Product product;
  int32_t scale_cols;  // of FP8_BLOCK
  int32_t steps;       // of a tile
  int32_t tiles;
  float* parts;  // (row tiles, blocks + tiles, kMostRows, kOutputs)
};

// Bytes of one stage.
template <bool kFp4>
constexpr int kWeightBytes = kOutputs* kInputs / (kFp4 ? 2 : 1);
template <bool kFp4>
constexpr int kScaleBytes = kFp4 ? kOutputs* kInputs / 16 : 0;
template <bool kFp4, int kRows>
constexpr int kStageBytes = kWeightBytes<kFp4> + kScaleBytes<kFp4> + kRows* kInputs * 2;
// As many as two blocks per SM of 100 KB or more can have.
template <bool kFp4, int kRows>
constexpr int kStages = 98304 / kStageBytes<kFp4, kRows>;

// The list of steps: block `b` of `blocks` has those from here on.
__device__ __forceinline__ int first_step(int b, int blocks, int64_t total) {
  return static_cast<int>(b * total / blocks);
}

// The bits of two bf16 numbers.
__device__ __forceinline__ __nv_bfloat162 as_pair(uint32_t bits) {
  return *reinterpret_cast<__nv_bfloat162*>(&bits);
}
__device__ __forceinline__ uint32_t as_bits(__nv_bfloat162 pair) {
  return *reinterpret_cast<uint32_t*>(&pair);
}
__device__ __forceinline__ __nv_bfloat162 twice(float value) {
  return __bfloat162bfloat162(__float2bfloat16_rn(value));
}

// A scale as the sum of two bf16 numbers.
struct Scale {
  __nv_bfloat162 high, low;
};
__device__ __forceinline__ Scale split_scale(float scale) {
  const __nv_bfloat16 high = __float2bfloat16_rn(scale);
  return {__bfloat162bfloat162(high), twice(scale - __bfloat162float(high))};
}

// Two e4m3 (bytes 0 and 1, or 2 and 3, of a word) to bf16: four bits of exponent and three of
// mantissa to bits 10 to 4 of each half, exact but for the factor 2^-120.
template <int kHalf>
__device__ __forceinline__ __nv_bfloat162 dequantise_fp8(uint32_t word) {
  const uint32_t spread = __byte_perm(word, 0, kHalf == 0 ? 0x1404 : 0x3424);
  const uint32_t bits = (spread & 0x80008000u) | ((spread >> 4) & 0x07F007F0u);
  return __hmul2(as_pair(bits), twice(0x1p120f));
}

// Two e2m1, those of byte `kByte` of a word, the even one low: two bits of exponent and one of
// mantissa to bits 8 to 6, exact but for the factor 2^-126.
template <int kByte>
__device__ __forceinline__ __nv_bfloat162 dequantise_fp4(uint32_t word) {
  const uint32_t spread = __byte_perm(word, 0, kByte << 12 | 4 << 8 | kByte << 4 | 4);
  const uint32_t bits = (spread & 0x80000000u) | ((spread >> 6) & 0x01C00000u) |
                        ((spread << 4) & 0x00008000u) | ((spread >> 2) & 0x000001C0u);
  return __hmul2(as_pair(bits), twice(0x1p126f));
}

// Half of a lane's inputs of one output: eight, as pairs in order.
struct Values {
  uint32_t pairs[4];
};

__device__ __forceinline__ Values dequantise_fp8_values(const uint2& packed, bool scaled,
                                                        Scale scale) {
  const __nv_bfloat162 pairs[4] = {dequantise_fp8<0>(packed.x), dequantise_fp8<1>(packed.x),
                                   dequantise_fp8<0>(packed.y), dequantise_fp8<1>(packed.y)};
  Values values;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    values.pairs[i] =
        as_bits(scaled ? __hfma2(pairs[i], scale.high, __hmul2(pairs[i], scale.low)) : pairs[i]);
  }
  return values;
}

__device__ __forceinline__ Values dequantise_fp4_values(uint32_t packed, __nv_bfloat162 scale) {
  return {{as_bits(__hmul2(dequantise_fp4<0>(packed), scale)),
           as_bits(__hmul2(dequantise_fp4<1>(packed), scale)),
           as_bits(__hmul2(dequantise_fp4<2>(packed), scale)),
           as_bits(__hmul2(dequantise_fp4<3>(packed), scale))}};
}

template <bool kFp4, int kRows>
__global__ void __launch_bounds__(kThreads, kBlocksPerSm)
    quantised_parts(const __grid_constant__ Quantised args) {
  constexpr int kStage = kStageBytes<kFp4, kRows>, kDepth = kStages<kFp4, kRows>;
  extern __shared__ __align__(128) unsigned char shared[];
  const Weight& weight = args.product.weight;
  const int64_t total = static_cast<int64_t>(args.tiles) * args.steps;
  const int begin = first_step(blockIdx.x, gridDim.x, total);
  const int end = first_step(blockIdx.x + 1, gridDim.x, total);
  const int first_row = blockIdx.y * kMostRows;
  const uint32_t base = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  const int64_t row_bytes = kFp4 ? weight.cols / 2 : weight.cols;

  const auto load_weights = [&](int step) {
    const uint32_t stage = base + (step - begin) % kDepth * kStage;
    const int output = step / args.steps * kOutputs, input = step % args.steps * kInputs;
    constexpr int kChunks = kFp4 ? 2 : 4;  // of 16 bytes, per output
#pragma unroll
    for (int i = 0; i < kOutputs * kChunks / kThreads; ++i) {
      const int place = threadIdx.x + i * kThreads;
      const int line = output + place / kChunks;
      const bool inside = line < weight.rows;
      copy_async_or_zero(stage + place * 16,
                         static_cast<const uint8_t*>(weight.data) +
                             (inside ? line : 0) * row_bytes + (kFp4 ? input / 2 : input) +
                             place % kChunks * 16,
                         inside);
    }
    if constexpr (kFp4) {
      const int line = output + threadIdx.x;
      const bool inside = line < weight.rows;
      copy_async_cached_or_zero<4>(
          stage + kWeightBytes<kFp4> + threadIdx.x * 4,
          static_cast<const uint8_t*>(weight.scale) +
              static_cast<int64_t>(inside ? line : 0) * (weight.cols / 16) + input / 16,
          inside);
    }
  };
  // Chunk c of a row lies at c ^ row % 2: the lanes that read together touch all banks.
  const auto load_x = [&](int step) {
    const uint32_t stage =
        base + (step - begin) % kDepth * kStage + kWeightBytes<kFp4> + kScaleBytes<kFp4>;
    const int input = step % args.steps * kInputs;
#pragma unroll
    for (int i = 0; i < kRows * 8 / kThreads; ++i) {
      const int place = threadIdx.x + i * kThreads, row = place / 8, chunk = place % 8;
      const bool inside = first_row + row < args.product.rows;
      copy_async_or_zero(stage + row * 128 + ((chunk ^ (row & 1)) << 4),
                         static_cast<const bf16*>(args.product.x) +
                             (inside ? first_row + row : 0) * args.product.x_stride + input +
                             chunk * 8,
                         inside);
    }
  };

  pdl_trigger();
  for (int i = 0; i < kDepth - 1; ++i) {
    if (begin + i < end) load_weights(begin + i);
  }
  pdl_wait();
  for (int i = 0; i < kDepth - 1; ++i) {
    if (begin + i < end) load_x(begin + i);
    copies_commit();
  }

  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const bool scaled = weight.type == WeightType::kFp8Block;
  Scale scales[4];
  int scale_rows[4];
  int known_tile = -1, known_block = -1;
  float sums[2][kRows / 8][4] = {};
  for (int step = begin; step < end; ++step) {
    copies_wait<kDepth - 2>();
    __syncthreads();  // the step has arrived for all, and all are done with the one before it
    if (step + kDepth - 1 < end) {
      load_weights(step + kDepth - 1);
      load_x(step + kDepth - 1);
    }
    copies_commit();
    const unsigned char* stage = shared + (step - begin) % kDepth * kStage;
    const int tile = step / args.steps;
    if (scaled) {
      if (tile != known_tile) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int line = min(tile * kOutputs + warp * 32 + g + 8 * i, weight.rows - 1);
          scale_rows[i] = line / weight.block_rows * args.scale_cols;
        }
      }
      const int block = step % args.steps * kInputs / weight.block_cols;
      if (tile != known_tile || block != known_block) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int at = scale_rows[i] + block;
          scales[i] = split_scale(weight.scale_dtype == FRT_DTYPE_F32
                                      ? static_cast<const float*>(weight.scale)[at]
                                      : to_float(static_cast<const bf16*>(weight.scale)[at]));
        }
      }
      known_tile = tile;
      known_block = block;
    }
    const unsigned char* x = stage + kWeightBytes<kFp4> + kScaleBytes<kFp4>;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      Values a[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int line = warp * 32 + g + 8 * i;
        if constexpr (kFp4) {
          const auto packed =
              *reinterpret_cast<const uint32_t*>(stage + line * 32 + t * 8 + half * 4);
          const auto scale =
              *reinterpret_cast<const f8e4m3*>(stage + kWeightBytes<kFp4> + line * 4 + t);
          a[i] = dequantise_fp4_values(packed, twice(to_float(scale)));
        } else {
          const auto packed =
              *reinterpret_cast<const uint2*>(stage + line * 64 + t * 16 + half * 8);
          a[i] = dequantise_fp8_values(packed, scaled, scales[i]);
        }
      }
#pragma unroll
      for (int n = 0; n < kRows / 8; ++n) {
        const int row = n * 8 + g;
        const auto b =
            *reinterpret_cast<const uint4*>(x + row * 128 + (((2 * t + half) ^ (row & 1)) << 4));
#pragma unroll
        for (int m = 0; m < 2; ++m) {
          const Values &upper = a[2 * m], &lower = a[2 * m + 1];
          mma_bf16<Order::kKept>(sums[m][n],
                                 {upper.pairs[0], lower.pairs[0], upper.pairs[1], lower.pairs[1]},
                                 b.x, b.y);
          mma_bf16<Order::kKept>(sums[m][n],
                                 {upper.pairs[2], lower.pairs[2], upper.pairs[3], lower.pairs[3]},
                                 b.z, b.w);
        }
      }
    }
    if (step + 1 == end || (step + 1) % args.steps == 0) {
      // Parts follow one another: each one starts where a block or a tile starts.
      float* part = args.parts + (static_cast<int64_t>(blockIdx.y) * (gridDim.x + args.tiles) +
                                  blockIdx.x + tile) *
                                     (kMostRows * kOutputs);
#pragma unroll
      for (int m = 0; m < 2; ++m) {
#pragma unroll
        for (int n = 0; n < kRows / 8; ++n) {
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const int row = n * 8 + t * 2 + i % 2;
            part[row * kOutputs + warp * 32 + m * 16 + g + i / 2 * 8] = sums[m][n][i];
            sums[m][n][i] = 0;
          }
        }
      }
    }
  }
}

// Adds the parts of tile x, rows 4 y to 4 y + 3 of row tile z.
constexpr int kSumRows = 4;

__global__ void __launch_bounds__(kThreads)
    quantised_sums(const __grid_constant__ Quantised args, int blocks) {
  pdl_trigger();
  const Product& product = args.product;
  const int tile = blockIdx.x, output = tile * kOutputs + threadIdx.x;
  const int64_t total = static_cast<int64_t>(args.tiles) * args.steps;
  const int begin = tile * args.steps, end = begin + args.steps;
  // The block that has the tile's first step.
  int b = static_cast<int>(static_cast<int64_t>(begin) * blocks / total);
  while (first_step(b + 1, blocks, total) <= begin) ++b;
  while (first_step(b, blocks, total) > begin) --b;
  pdl_wait();
  float sums[kSumRows] = {};
  for (; b < blocks && first_step(b, blocks, total) < end; ++b) {
    if (first_step(b + 1, blocks, total) == first_step(b, blocks, total)) continue;
    const float* part = args.parts +
                        (static_cast<int64_t>(blockIdx.z) * (blocks + args.tiles) + b + tile) *
                            (kMostRows * kOutputs) +
                        blockIdx.y * kSumRows * kOutputs + threadIdx.x;
#pragma unroll
    for (int i = 0; i < kSumRows; ++i) sums[i] += part[i * kOutputs];
  }
  if (output >= product.weight.rows) return;
  float scale = 1.0f;
  if (product.weight.type == WeightType::kFp8Channel) {
    scale = product.weight.scale_dtype == FRT_DTYPE_F32
                ? static_cast<const float*>(product.weight.scale)[output]
                : to_float(static_cast<const bf16*>(product.weight.scale)[output]);
  } else if (product.weight.type != WeightType::kFp8Block) {
    scale = product.weight.global_scale;
  }
#pragma unroll
  for (int i = 0; i < kSumRows; ++i) {
    const int row = blockIdx.z * kMostRows + blockIdx.y * kSumRows + i;
    if (row >= product.rows) return;
    const int64_t at = row * product.y_stride + output;
    const float value = sums[i] * scale;
    if (product.y_dtype == FRT_DTYPE_F32) {
      float* y = static_cast<float*>(product.y) + at;
      *y = product.accumulate ? *y + value : value;
    } else {
      bf16* y = static_cast<bf16*>(product.y) + at;
      *y = from_float<bf16>(product.accumulate ? to_float(*y) + value : value);
    }
  }
}

int32_t tiles_of(const Product& product) {
  return static_cast<int32_t>(ceil_div(product.weight.rows, kOutputs));
}
int32_t row_tiles_of(const Product& product) {
  return static_cast<int32_t>(ceil_div(product.rows, kMostRows));
}
int blocks_of(const Product& product, int multiprocessors) {
  const int64_t steps = static_cast<int64_t>(tiles_of(product)) * (product.weight.cols / kInputs);
  const int64_t most = static_cast<int64_t>(multiprocessors) * kBlocksPerSm;
  return static_cast<int>(steps < most ? steps : most);
}

template <bool kFp4, int kRows>
void launch_parts(Stream& stream, const Quantised& args, int blocks) {
  launch(stream,
         {dim3(static_cast<unsigned>(blocks), static_cast<unsigned>(row_tiles_of(args.product))),
          dim3(kThreads), kStages<kFp4, kRows> * kStageBytes<kFp4, kRows>},
         quantised_parts<kFp4, kRows>, args);
}

}  // namespace

bool quantised_gemm_supports(const Product& product) {
  const Weight& weight = product.weight;
  if (product.x_dtype != FRT_DTYPE_BF16 || weight.cols % kInputs != 0 ||
      reinterpret_cast<uintptr_t>(product.x) % 16 != 0 || product.x_stride % 8 != 0 ||
      reinterpret_cast<uintptr_t>(weight.data) % 16 != 0) {
    return false;
  }
  switch (weight.type) {
    case WeightType::kFp8Block:
      return weight.block_cols % kInputs == 0;
    case WeightType::kFp8Tensor:
    case WeightType::kFp8Channel:
      return true;
    case WeightType::kNvfp4:
      return reinterpret_cast<uintptr_t>(weight.scale) % 4 == 0;
    default:
      return false;
  }
}

std::size_t quantised_gemm_bytes(const Product& product, int multiprocessors) {
  return static_cast<std::size_t>(row_tiles_of(product)) *
         static_cast<std::size_t>(blocks_of(product, multiprocessors) + tiles_of(product)) *
         (kMostRows * kOutputs * sizeof(float));
}

void quantised_gemm(Stream& stream, const Product& product, void* room) {
  const int blocks = blocks_of(product, stream.device().properties().multiprocessors);
  Quantised args{product, 0, product.weight.cols / kInputs, tiles_of(product),
                 static_cast<float*>(room)};
  if (product.weight.type == WeightType::kFp8Block) {
    args.scale_cols =
        static_cast<int32_t>(ceil_div(product.weight.cols, product.weight.block_cols));
  }
  const bool few = product.rows <= 32;
  if (product.weight.type == WeightType::kNvfp4) {
    few ? launch_parts<true, 32>(stream, args, blocks)
        : launch_parts<true, 64>(stream, args, blocks);
  } else {
    few ? launch_parts<false, 32>(stream, args, blocks)
        : launch_parts<false, 64>(stream, args, blocks);
  }
  launch(stream,
         {dim3(static_cast<unsigned>(args.tiles),
               static_cast<unsigned>(
                   ceil_div(product.rows < kMostRows ? product.rows : kMostRows, kSumRows)),
               static_cast<unsigned>(row_tiles_of(product))),
          dim3(kThreads)},
         quantised_sums, args, blocks);
}

}  // namespace frt::cuda
