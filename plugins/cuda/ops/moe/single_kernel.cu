// SPDX-License-Identifier: Apache-2.0
// A mixture-of-experts block of one row in one launch (sm_90), for one shape (single.cuh): one
// block per SM, all of them there at once, so that they can wait for each other.
//
//   enter   norm, computed by every block for itself; two router logits and four hidden values of
//           the shared expert per block, from weights that were in registers before the kernel in
//           front had ended. Then eight warps of every block select the experts from all logits
//   hidden  silu(gate x) * (up x) of eight columns of one selected expert by four warps, which read
//           gate and up straight into registers
//   down    a warp has some columns of all experts' rows for the block's sixteen results. These
//           weights are requested behind those of gate and up, into shared memory, and arrive while
//           hidden values are exchanged
//
// Eight lanes have 128 bytes of a row, as memory likes it, which mma.sync takes for two rows
// (own_half). Results that other blocks need go through cells (fused_ring.cuh), twice.
//
// Floor: Qwen3.6-35B-A3B: 57.7 MB in bf16, 12.4 us at 4.65 TB/s; 29.4 MB in FP8, 6.3 us; and some
// 4 us of norm, choice and two exchanges, during which only what needs no choice arrives.
#include "../common/arch.cuh"
#include "../common/async_copy.cuh"
#include "../common/launch.cuh"
#include "single_enter.cuh"

namespace frt::cuda {
namespace {

#if FRT_ARCH_CLUSTERS

// ---- the experts -------------------------------------------------------------------------------

template <MoeFormat kFormat>
__device__ __forceinline__ void run_experts(const SingleArgs& args, Memory<kFormat>& memory,
                                            const uint8_t* down, float x_inverse, uint32_t number) {
  using S = Shape<kFormat>;
  const int block = static_cast<int>(blockIdx.x), warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int quad = warp / S::kParts, part = warp % S::kParts;
  const int item = block / S::kBlocksOfExpert;
  const int column = (block % S::kBlocksOfExpert * (S::kWarps / S::kParts) + quad) * 8;
  const int own = warp / S::kPieces;  // items own, own + kSharers ...

  // Requests, in the order of their use.
  const int expert = memory.choice.ids[item];
  const int offset =
      ((column + lane / 8) * S::kInputs + part * (S::kInputs / S::kParts)) * S::kBytes +
      lane % 8 * 16;
  const uint8_t* gate = args.gate.data + expert * args.gate.stride + offset;
  const uint8_t* up = args.up.data + expert * args.up.stride + offset;
  uint4 gates[S::kWindow][2], ups[S::kWindow][2];  // rows 0 to 3, 4 to 7
  const auto load = [&](int step) {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const int at = step * 128 + j * 4 * S::kInputs * S::kBytes;
      gates[step % S::kWindow][j] = load_stream(gate + at);
      ups[step % S::kWindow][j] = load_stream(up + at);
    }
  };
#pragma unroll
  for (int i = 0; i < S::kWindow; ++i) load(i);
  // Lane i has the scale of step i of gate and of up, and of item i of `down`.
  float gate_scale = 1.0f, up_scale = 1.0f, down_scale = 1.0f;
  if constexpr (S::kFp8) {
    if (lane < S::kSteps) {
      const int at = column / 128 * (S::kInputs / 128) + part * S::kSteps + lane;
      gate_scale =
          load_scale(args.gate.scale + expert * args.gate.scale_stride, args.scale_bf16, at);
      up_scale = load_scale(args.up.scale + expert * args.up.scale_stride, args.scale_bf16, at);
    }
    const int index = lane * S::kSharers + own;
    const int at = block / 8 * (S::kWidth / 128) + warp % S::kPieces;
    if (index < S::kTopK) {
      down_scale = load_scale(args.down.scale + memory.choice.ids[index] * args.down.scale_stride,
                              args.scale_bf16, at);
    } else if (index == S::kTopK) {
      down_scale = load_scale(args.shared_down.scale, args.shared_scale_bf16, at);
    }
  }

  if (warp == S::kWarps - 1) tell_shared(args, memory, number);

  // hidden
  const int chunk = (lane % 4 + lane / 4 % 2 * 4) * (16 / S::kBytes);
  const uint4* x =
      reinterpret_cast<const uint4*>(memory.x) + (part * (S::kInputs / S::kParts) + chunk) / 8;
  float gate_sums[2] = {}, up_sums[2] = {}, c[2][4] = {};
#pragma unroll
  for (int i = 0; i < S::kSteps; ++i) {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      multiply_sixteen<kFormat>(c[j], gates[i % S::kWindow][j], ups[i % S::kWindow][j],
                                x + i * S::kPiece / 8);
    }
    const int next = i + S::kWindow - S::kSteps;
    if (next < 0) {
      load(i + S::kWindow);
    } else if (next * S::kSharers < S::kTopK) {
      const int index = memory.choice.ids[next * S::kSharers + own];
      fetch_down(memory, next,
                 args.down.data + index * args.down.stride + (down - args.shared_down.data));
    }
    if (S::kFp8 || i + 1 == S::kSteps) {
      const float gate_factor = S::kFp8 ? __shfl_sync(~0u, gate_scale, i) : 1.0f;
      const float up_factor = S::kFp8 ? __shfl_sync(~0u, up_scale, i) : 1.0f;
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        gate_sums[j] = fmaf(own_half(c[j][0], c[j][1]), gate_factor, gate_sums[j]);
        up_sums[j] = fmaf(own_half(c[j][2], c[j][3]), up_factor, up_sums[j]);
        c[j][0] = c[j][1] = c[j][2] = c[j][3] = 0.0f;
      }
    }
  }
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    const float gate_sum = add_halves(gate_sums[j]), up_sum = add_halves(up_sums[j]);
    if (lane % 8 != 0) continue;
    memory.parts[quad][part][j * 4 + lane / 8] = gate_sum;
    memory.parts[quad][part][8 + j * 4 + lane / 8] = up_sum;
  }
  __syncthreads();
  if (part == 0) {
    float sum = 0.0f;
#pragma unroll
    for (int p = 0; p < S::kParts; ++p) sum += memory.parts[quad][p][lane % 16];
    if (S::kFp8) sum *= x_inverse;
    const float hidden = gated_bf16(sum, __shfl_down_sync(~0u, sum, 8));
    const float next = __shfl_down_sync(~0u, hidden, 1);
    if (lane < 8 && lane % 2 == 0) {
      const __nv_bfloat162 pair = __floats2bfloat162_rn(hidden, next);
      write_cell(args.cells + S::kHiddenCells + item * S::kItemCells + (column + lane) / 2,
                 *reinterpret_cast<const uint32_t*>(&pair), number);
    }
  }

  const float weight = memory.choice.weight(args.normalise);
  if (lane < S::kTopK) memory.weights[warp][lane] = weight;

  // This warp's columns of everybody's hidden values. A round: 32 pairs of cells.
  constexpr int kPairs = S::kPiece / 4, kRounds = (S::kItems * kPairs + 31) / 32;
  const uint64_t* cells =
      args.cells + S::kHiddenCells + warp % S::kPieces * (S::kPiece / 2) + lane % kPairs * 2;
  uint64_t pairs[kRounds][2], scale[2];
  const auto at = [&](int round) {
    return cells + ((round * (32 / kPairs) + lane / kPairs) * S::kSharers + own) * S::kItemCells;
  };
  const auto inside = [&](int round) {
    const int i = round * (32 / kPairs) + lane / kPairs;
    return i < S::kItems && i * S::kSharers + own <= S::kTopK;
  };
#pragma unroll
  for (int r = 0; r < kRounds; ++r) {
    pairs[r][0] = pairs[r][1] = static_cast<uint64_t>(number) << 32;
    if (inside(r)) read_cells(at(r), pairs[r]);
  }
  // The scale's cell is the first of a pair whose other half nobody writes.
  read_cells(args.cells + S::kScaleCell, scale);
#pragma unroll
  for (int r = 0; r < kRounds; ++r) {
    while (late(pairs[r], number)) read_cells(at(r), pairs[r]);
  }
  while (static_cast<uint32_t>(scale[0] >> 32) != number) {
    read_cells(args.cells + S::kScaleCell, scale);
  }
  float inverse = 1.0f;
  uint2* hidden = reinterpret_cast<uint2*>(memory.hidden[warp]);
  if constexpr (S::kFp8) {
    unsigned most = 0u;
#pragma unroll
    for (int r = 0; r < kRounds; ++r) {
      most = __vmaxu2(most, static_cast<uint32_t>(pairs[r][0]) & 0x7FFF7FFFu);
      most = __vmaxu2(most, static_cast<uint32_t>(pairs[r][1]) & 0x7FFF7FFFu);
    }
    const unsigned exponent = __reduce_max_sync(~0u, max(most & 0xFFFFu, most >> 16)) >> 7;
    const float unit = unit_of(exponent);
    inverse = inverse_unit_of(exponent);
#pragma unroll
    for (int r = 0; r < kRounds; ++r) {
      const float2 a = float2_of_bf16x2(static_cast<uint32_t>(pairs[r][0]));
      const float2 b = float2_of_bf16x2(static_cast<uint32_t>(pairs[r][1]));
      if (inside(r)) {
        hidden[r * 32 + lane] =
            make_uint2(pack_f16(a.x * unit, a.y * unit), pack_f16(b.x * unit, b.y * unit));
      }
    }
  } else {
#pragma unroll
    for (int r = 0; r < kRounds; ++r) {
      if (!inside(r)) continue;
      hidden[r * 32 + lane] =
          make_uint2(static_cast<uint32_t>(pairs[r][0]), static_cast<uint32_t>(pairs[r][1]));
    }
  }
  copies_wait_all();
  __syncwarp();

  // down
  const float shared_weight = sigmoid(__uint_as_float(static_cast<uint32_t>(scale[0])));
  float sums[4] = {};
#pragma unroll 1  // the code, too, comes from memory
  for (int i = 0; i < S::kItems; ++i) {
    const int index = i * S::kSharers + own;
    if (index > S::kTopK) break;
    const uint4* data = reinterpret_cast<const uint4*>(memory.down[warp][i]) + lane;
    const uint4* values =
        reinterpret_cast<const uint4*>(memory.hidden[warp]) + (i * S::kPiece + chunk) / 8;
    float factor = index < S::kTopK ? memory.weights[warp][index] : shared_weight;
    if (S::kFp8) factor *= __shfl_sync(~0u, down_scale, i) * inverse;
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      float products[4] = {};
      multiply_sixteen<kFormat>(products, data[j * 64], data[j * 64 + 32], values);
      sums[2 * j] = fmaf(own_half(products[0], products[1]), factor, sums[2 * j]);
      sums[2 * j + 1] = fmaf(own_half(products[2], products[3]), factor, sums[2 * j + 1]);
    }
  }
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const float sum = add_halves(sums[j]);
    if (lane % 8 == 0) memory.results[warp][j * 4 + lane / 8] = sum;
  }
  __syncthreads();
  if (threadIdx.x >= S::kColumns * S::kWarps) return;
  const int result = threadIdx.x / S::kWarps;
  float sum = memory.results[threadIdx.x % S::kWarps][result];
#pragma unroll
  for (int step = S::kWarps / 2; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
  if (threadIdx.x % S::kWarps == 0) {
    args.y[block * S::kColumns + result] = from_float<bf16>(sum);
  }
}

#endif

template <MoeFormat kFormat>
__global__ void __launch_bounds__(Single::kThreads, 1)
    single_kernel(const __grid_constant__ SingleArgs args) {
#if FRT_ARCH_CLUSTERS
  using S = Shape<kFormat>;
  extern __shared__ uint4 dynamic[];
  auto& memory = *reinterpret_cast<Memory<kFormat>*>(dynamic);
  const int block = static_cast<int>(blockIdx.x), warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  // The next kernel starts when all blocks of this one have come here: none can be kept out by it.
  pdl_trigger();
  if (block > S::kBlocks) {
    pdl_wait();
    if (threadIdx.x == 0) ++args.numbers[block];
    return;
  }
  const Lines<kFormat> lines(args);
  const uint8_t* down =
      args.shared_down.data +
      ((block * S::kColumns + lane / 8) * S::kWidth + warp % S::kPieces * S::kPiece) * S::kBytes +
      lane % 8 * 16;
  if (block < S::kBlocks && warp / S::kPieces == S::kTopK % S::kSharers) {
    fetch_down(memory, S::kItems - 1, down);
  }
  pdl_wait();
  const uint32_t number = args.numbers[block] + 1;
  const int rows = active_rows(1, args.row_count);
  float values[4], x[4];
  load_four(args, threadIdx.x * 4, values);
  if (rows > 0) {
    uint2 packed;
    const float inverse = norm_row(args, lines, memory, values, x, packed);
    tell_logits(args, lines, memory, x, number);
    if (block < S::kBlocks) sum_shared(lines, memory, x);
    select(args, memory.choice, number);
    __syncthreads();
    if (block < S::kBlocks) {
      run_experts(args, memory, down, inverse, number);
    } else {
      leave_row(args, values, packed, number);
      const float weight = memory.choice.weight(args.normalise);
      if (threadIdx.x < S::kTopK) {
        args.ids[threadIdx.x] = memory.choice.ids[threadIdx.x];
        args.weights[threadIdx.x] = weight;
      }
    }
  }
  copies_wait_all();
  if (threadIdx.x == 0) args.numbers[block] = number;
#endif
}

}  // namespace

void launch_single(Stream& stream, bool fp8, int blocks, const SingleArgs& args) {
  auto* kernel = fp8 ? single_kernel<MoeFormat::kFp8> : single_kernel<MoeFormat::kBf16>;
  const std::size_t bytes =
      fp8 ? sizeof(Memory<MoeFormat::kFp8>) : sizeof(Memory<MoeFormat::kBf16>);
  // Gate and up come through L1. Left alone, the SM stays divided as the kernel in front had
  // it, which may have wanted nearly all for its shared memory.
  Device& device = stream.device();
  const int64_t percent =
      ceil_div(static_cast<int64_t>(bytes + 1024) * 100, device.properties().shared_bytes_sm);
  device.check(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                                    cudaFuncAttributePreferredSharedMemoryCarveout,
                                    static_cast<int>(percent)),
               "experts of one row: shared memory");
  const CoResidentLaunch co_resident(&stream);
  launch(stream, {dim3(static_cast<unsigned>(blocks)), dim3(Single::kThreads), bytes}, kernel,
         args);
}

}  // namespace frt::cuda
