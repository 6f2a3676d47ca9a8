// SPDX-License-Identifier: Apache-2.0
// few_enter.cuh - of the decode kernel for two to eight rows (few_kernel.cu): what lies in
// front of the experts. A thread has four columns of every row of x and of every weight row of its
// block. kRows: rows that registers are kept for; those beyond `rows` repeat the last one, and
// their results are not published.
#pragma once

#include "../common/arch.cuh"
#include "few.cuh"

namespace frt::cuda {

#if FRT_ARCH_CLUSTERS

// As load_four for each row, with the loads of all rows under way at a time.
template <int kRows>
__device__ __forceinline__ void load_rows(const FewArgs& args, int rows,
                                          float (&values)[kRows][4]) {
  const MoeNorm& norm = args.norm;
  const auto at = [&](int m) {
    return min(m, rows - 1) * Few::kInputs + static_cast<int>(threadIdx.x) * 4;
  };
  if (norm.residual && norm.residual_f32) {
#pragma unroll
    for (int m = 0; m < kRows; ++m) {
      const float4 four =
          *reinterpret_cast<const float4*>(static_cast<const float*>(norm.residual) + at(m));
      values[m][0] = four.x;
      values[m][1] = four.y;
      values[m][2] = four.z;
      values[m][3] = four.w;
    }
  } else {
    const bf16* source = norm.residual ? static_cast<const bf16*>(norm.residual) : args.x;
#pragma unroll
    for (int m = 0; m < kRows; ++m) {
      dequantise_four(*reinterpret_cast<const uint2*>(source + at(m)), values[m]);
    }
  }
  if (!norm.residual || !norm.delta) return;
  uint2 deltas[kRows];
#pragma unroll
  for (int m = 0; m < kRows; ++m) {
    deltas[m] = *reinterpret_cast<const uint2*>(static_cast<const bf16*>(norm.delta) + at(m));
  }
#pragma unroll
  for (int m = 0; m < kRows; ++m) {
    float delta[4];
    dequantise_four(deltas[m], delta);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      values[m][i] += delta[i];
      if (!norm.residual_f32) values[m][i] = to_float(from_float<bf16>(values[m][i]));
    }
  }
}

// The rows of x, in shared memory as the experts take them.
template <MoeFormat kFormat, int kRows>
__device__ __forceinline__ void norm_rows(const FewArgs& args, const Lines<kFormat>& lines,
                                          FewMemory<kFormat>& memory, int rows,
                                          uint2 (&packed)[kRows]) {
  using S = Shape<kFormat>;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  float values[kRows][4];
  load_rows(args, rows, values);
  float squares[kRows];
#pragma unroll
  for (int m = 0; m < kRows; ++m) {
    float peak = 0.0f;
    squares[m] = 0.0f;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      squares[m] = fmaf(values[m][i], values[m][i], squares[m]);
      peak = fmaxf(peak, fabsf(values[m][i] * lines.norm[i]));
    }
    if constexpr (S::kFp8) {
      const unsigned most = __reduce_max_sync(~0u, __float_as_uint(peak));
      if (lane == 0) memory.rows.peaks[m][warp] = most;
    }
  }
  tell_warp_sums(squares, memory.rows.squares);
  __syncthreads();
  if (warp < rows) {  // the row's factors, by one warp
    float factor = 1.0f;
    if (args.norm.residual) {
      float sum = 0.0f;
#pragma unroll
      for (int w = 0; w < S::kWarps; ++w) sum += memory.rows.squares[w * kRows + warp];
      factor = rsqrtf(sum / static_cast<float>(S::kInputs) + args.norm.epsilon);
    }
    memory.rows.factors[warp] = factor;
    if constexpr (S::kFp8) {
      const unsigned most = __reduce_max_sync(~0u, memory.rows.peaks[warp][lane % S::kWarps]);
      const unsigned exponent = __float_as_uint(__uint_as_float(most) * factor) >> 23;
      memory.rows.units[warp] = unit_of(exponent);
      memory.x_inverses[warp] = inverse_unit_of(exponent);
    }
  }
  __syncthreads();
#pragma unroll
  for (int m = 0; m < kRows; ++m) {
    const float factor = memory.rows.factors[min(m, rows - 1)];
    float x[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) x[i] = values[m][i] * factor * lines.norm[i];
    packed[m] = pack_four(x);
    uint2 words = packed[m];
    if constexpr (S::kFp8) {
      const float unit = memory.rows.units[min(m, rows - 1)];
      dequantise_four(packed[m], x);
      words = make_uint2(pack_f16(x[0] * unit, x[1] * unit), pack_f16(x[2] * unit, x[3] * unit));
    }
    *reinterpret_cast<uint2*>(memory.rows.x[m] + threadIdx.x * 2) = words;
  }
}

// Two logits of every row, or the shared expert's scale, to the others.
template <MoeFormat kFormat, int kRows>
__device__ __forceinline__ void tell_logits(const FewArgs& args, const Lines<kFormat>& lines,
                                            FewMemory<kFormat>& memory, int rows,
                                            const uint2 (&packed)[kRows], uint32_t number) {
#pragma unroll
  for (int m = 0; m < kRows; ++m) {
    float x[4];
    dequantise_four(packed[m], x);
    float products[2] = {dot_four<MoeFormat::kBf16>(lines.router[0], x),
                         dot_four<MoeFormat::kBf16>(lines.router[1], x)};
    tell_warp_sums(products, memory.rows.router_sums[m]);
  }
  __syncthreads();
  const int row = threadIdx.x / 32;
  if (row >= rows) return;
  const float sum = sum_warps<2>(memory.rows.router_sums[row]);
  if (threadIdx.x % 16 != 0) return;
  const int block = static_cast<int>(blockIdx.x), line = threadIdx.x % 32 / 16;
  if (block * 2 < args.experts) {
    write_cell(args.cells + row * Few::kExperts + block * 2 + line, __float_as_uint(sum), number);
    args.logits[row * args.experts + block * 2 + line] = sum;
  } else if (block == Few::kBlocks && line == 0) {
    write_cell(args.cells + Few::kScaleCells + row, __float_as_uint(sum), number);
  }
}

// Four hidden values of the shared expert of every row: the warps' sums ...
template <MoeFormat kFormat, int kRows>
__device__ __forceinline__ void sum_shared(const Lines<kFormat>& lines, FewMemory<kFormat>& memory,
                                           const uint2 (&packed)[kRows]) {
  using S = Shape<kFormat>;
#pragma unroll
  for (int m = 0; m < kRows; ++m) {
    float x[4], products[8];
    dequantise_four(packed[m], x);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      products[i] = dot_four<kFormat>(lines.shared[i], x);
      if (S::kFp8) products[i] *= lines.scales[i / 4];
    }
    tell_warp_sums(products, memory.rows.shared_sums[m]);
  }
}

// ... and, behind a barrier, the results of one row to the others, by one warp.
template <MoeFormat kFormat>
__device__ __forceinline__ void tell_shared(const FewArgs& args, const FewMemory<kFormat>& memory,
                                            int row, uint32_t number) {
  const float sum = sum_warps<8>(memory.rows.shared_sums[row]);
  const float hidden = gated_bf16(sum, __shfl_down_sync(~0u, sum, 16));
  const float next = __shfl_down_sync(~0u, hidden, 4);
  const int lane = threadIdx.x % 32;
  if (lane != 0 && lane != 8) return;
  const __nv_bfloat162 pair = __floats2bfloat162_rn(hidden, next);
  const int assignment = row * Few::kItemsOfRow + Few::kTopK;
  write_cell(
      args.cells + Few::kHiddenCells + assignment * Few::kItemCells + blockIdx.x * 2 + lane / 8,
      *reinterpret_cast<const uint32_t*>(&pair), number);
}

// ---- the choice --------------------------------------------------------------------------------

// By one warp for one row, when the logits of all blocks are there: what Choice does, with its
// bits.
__device__ __forceinline__ void select_row(const FewArgs& args, FewChoice& choice, int row,
                                           uint32_t number) {
  constexpr int kOwn = Few::kExperts / 32;
  const int lane = threadIdx.x % 32;
  const uint64_t* cells = args.cells + row * Few::kExperts + lane;
  uint64_t found[kOwn] = {};
  const auto outside = [&](int i) { return i * 32 + lane >= args.experts; };
  const auto waits = [&](int i) {
    return !outside(i) && static_cast<uint32_t>(found[i] >> 32) != number;
  };
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    if (!outside(i)) found[i] = read_cell(cells + i * 32);
  }
  float e[kOwn], largest = -INFINITY, sum = 0.0f;
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    while (waits(i)) found[i] = read_cell(cells + i * 32);
    e[i] = outside(i) ? -INFINITY : __uint_as_float(static_cast<uint32_t>(found[i]));
    largest = fmaxf(largest, e[i]);
  }
  __syncwarp();
  largest = warp_max(largest);
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    e[i] = outside(i) ? 0.0f : expf(e[i] - largest);
    sum += e[i];
  }
  sum = warp_sum(sum);
  unsigned keys[kOwn];
#pragma unroll
  for (int i = 0; i < kOwn; ++i) keys[i] = outside(i) ? 0u : order_key(e[i], sum);
  unsigned own_key = 2u;  // 0.0f
  int own_id = 0;
#pragma unroll 1
  for (int j = 0; j < Few::kTopK; ++j) {
    unsigned best = 0u;
#pragma unroll
    for (int i = 0; i < kOwn; ++i) best = max(best, keys[i]);
    const unsigned most = __reduce_max_sync(~0u, best);
    int at = INT_MAX;
#pragma unroll
    for (int i = kOwn - 1; i >= 0; --i) at = keys[i] == most ? i * 32 + lane : at;
    const int id = __reduce_min_sync(~0u, at);
#pragma unroll
    for (int i = 0; i < kOwn; ++i) keys[i] = i * 32 + lane == id ? 0u : keys[i];
    if (lane == j) {
      own_key = most;
      own_id = id;
    }
  }
  const bool has = lane < Few::kTopK;
  float weight = has ? probability_of(own_key, sum) : 0.0f;
  if (args.normalise) weight /= warp_sum(weight);
  if (!has) return;
  choice.ids[row][lane] = own_id;
  choice.weights[row * Few::kItemsOfRow + lane] = weight;
  choice.place_of[own_id][row] = static_cast<uint8_t>(lane);
  atomicOr(choice.rows_of + own_id, 1u << row);
}

// Lists the experts. A barrier must lie before it; the last one is in it.
__device__ __forceinline__ void list_experts(FewChoice& choice, int rows) {
  constexpr int kWarps = Few::kExperts / 32;
  const int expert = static_cast<int>(threadIdx.x), warp = expert / 32, lane = expert % 32;
  const unsigned chose = expert < Few::kExperts ? choice.rows_of[expert] : 0u;
  const unsigned in_warp = __ballot_sync(~0u, chose != 0u);
  if (warp < kWarps && lane == 0) choice.in_warp[warp] = __popc(in_warp);
  __syncthreads();
  int before = 0, count = 0;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) {
    const int own = choice.in_warp[w];
    before += w < warp ? own : 0;
    count += own;
  }
  const auto list = [&](int at, unsigned of_rows, auto place) {
    int m = 0;
    for (unsigned left = of_rows; left != 0u; left &= left - 1u) {
      const int row = __ffs(static_cast<int>(left)) - 1;
      choice.members[at][m++] = static_cast<uint8_t>(row * Few::kItemsOfRow + place(row));
    }
    for (; m < Few::kRows; ++m) choice.members[at][m] = Few::kNobody;
  };
  if (chose != 0u) {
    const int at = before + __popc(in_warp & ((1u << lane) - 1u));
    choice.experts[at] = expert;
    list(at, chose, [&](int row) { return static_cast<int>(choice.place_of[expert][row]); });
  }
  if (threadIdx.x == Few::kThreads - 1) {
    choice.count = count;
    list(count, (1u << rows) - 1u, [](int) { return Few::kTopK; });
  }
  __syncthreads();
}

// ---- what is left ------------------------------------------------------------------------------

// x and the residual, by the last block when all others have published that they read their own.
template <int kRows>
__device__ __forceinline__ void leave_rows(const FewArgs& args, int rows,
                                           const uint2 (&packed)[kRows], uint32_t number) {
  if (!args.norm.residual) return;
  const int own = static_cast<int>(threadIdx.x);
  if (own < Few::kItemCells / 2) {
    const uint64_t* cells = args.cells + Few::kHiddenCells + Few::kTopK * Few::kItemCells + own * 2;
    uint64_t pair[2];
    do {
      read_cells(cells, pair);
    } while (late(pair, number));
  }
  __syncthreads();
#pragma unroll
  for (int m = 0; m < kRows; ++m) {
    if (m >= rows) break;
    const int at = m * Few::kInputs + own * 4;
    *reinterpret_cast<uint2*>(args.x + at) = packed[m];
    if (!args.norm.delta) continue;
    float values[4];
    load_four(args, at, values);
    store_residual_four(args.norm, at, values);
  }
}

#endif

}  // namespace frt::cuda
