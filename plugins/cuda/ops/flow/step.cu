// SPDX-License-Identifier: Apache-2.0
// frt.flow_step/1 for a policy's sizes; flow.cu has the general kernel.
//
// Four blocks of a cluster have two rows of x and all the network's rows that share them. Each has
// a quarter of the outputs of both products and keeps its weights, 64 KB, in registers: they are
// asked for before the kernel ahead has ended, together with the norm's conditions, so that after
// it one trip to memory brings everything that changes. (Copied to shared memory in two pieces,
// they come a microsecond later.) Each block norms the rows for itself; a warp multiplies by the
// weights of one v and tells all blocks, then every block moves x and makes its part of the next
// rows.
//
// Floor: 50 rows of 1024 and weights of 256 KB that 25 clusters read from L2: a launch, two trips
// to memory and a cluster's barrier, about 4 us.
#include "../common/arch.cuh"
#include "step.hpp"

#include <algorithm>

#include "../common/cluster.cuh"
#include "../common/launch.cuh"
#include "../common/numbers.cuh"
#include "../common/pieces.hpp"
#include "../common/row_norm.cuh"

namespace frt::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int kCluster = 4;
constexpr int kRows = 2;  // of x, of a cluster
constexpr int kMaxBranches = 4;
constexpr int kMostDim = kCluster * kWarps;  // a warp has one value of v
constexpr int kMostWidth = 4 * kThreads;     // a thread has four values of a row

#if FRT_ARCH_CLUSTERS

constexpr int kRuns = kMostWidth / (4 * 32);  // of four values, of a lane

struct Room {
  float normed[kRows][kMostWidth];
  float sums[kRows][kWarps];
  float v[kMaxBranches][kRows][kMostDim];
  float x[kRows][kMostDim];
};

__device__ __forceinline__ float dot(const float4& a, const float4& b) {
  return a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w;
}
__device__ __forceinline__ const float4& four(const float* at) {
  return *reinterpret_cast<const float4*>(at);
}

// Of eight lanes with eight values each, lane i gets the sum of all their values i.
__device__ __forceinline__ float sum_of_own(float (&values)[8]) {
  const int lane = static_cast<int>(threadIdx.x);
#pragma unroll
  for (int half = 4; half > 0; half /= 2) {
    const bool upper = (lane & half) != 0;
#pragma unroll
    for (int i = 0; i < half; ++i) {
      const float given = upper ? values[i] : values[half + i];
      values[i] = (upper ? values[half + i] : values[i]) + __shfl_xor_sync(~0u, given, half);
    }
  }
  return values[0];
}

// What moves one value of x.
struct Move {
  float x = 0, previous = 0, pull = 0;
  bool locked = false;

  __device__ __forceinline__ void load(const frt_flow_update_args& a, int row, int d) {
    x = a.x[row * a.dim + d];
    if (!a.previous) return;
    const int i = row % a.horizon;
    previous = a.previous[i * a.dim + d];
    pull = fminf(a.pull, *a.cap) * a.weights[i];
    locked = i < *a.locked;
  }
};

__device__ __forceinline__ void step(const frt_flow_step_args& a, Room& room) {
  const int tid = static_cast<int>(threadIdx.x), warp = tid / 32, lane = tid % 32;
  const int rank = static_cast<int>(blockIdx.x) % kCluster;
  const int first = static_cast<int>(blockIdx.x) / kCluster * kRows;
  const int rows = a.update.samples * a.update.horizon, last_row = rows - 1;
  const int dim = a.output.dim, width = a.output.width, branches = a.update.branches;
  const int d = rank * kWarps + warp;               // of v
  const int own = d * 32 + lane, j = lane % 8 * 4;  // of the next row; four of x
  const frt_modulation& modulation = a.output.norm.modulation;

  // Constants.
  float4 output[kRuns] = {}, input[8] = {};
#pragma unroll
  for (int i = 0; i < kRuns; ++i) {
    const int column = i * 128 + lane * 4;
    if (d < dim && column < width) output[i] = four(a.output.weight + d * width + column);
  }
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const int c = d * 32 + lane / 8 * 8 + i;
    if (a.next.h && c < a.next.width && j < dim) input[i] = four(a.next.weight + c * dim + j);
  }
  const float output_bias = d < dim ? a.output.bias[d] : 0.0f;
  const float input_bias = a.next.h && own < a.next.width ? a.next.bias[own] : 0.0f;
  const bool has = tid * 4 < width;
  const bool two = modulation.clean_rows != nullptr;
  float4 scale = {}, shift = {}, clean_scale = {}, clean_shift = {};
  if (has) {
    scale = four(modulation.rows + tid * 4);
    shift = four(modulation.rows + width + tid * 4);
    if (two) {
      clean_scale = four(modulation.clean + tid * 4);
      clean_shift = four(modulation.clean + width + tid * 4);
    }
  }
  asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory");
  pdl_wait();

  const auto* h = static_cast<const bf16*>(a.output.h) + tid * 4;
  uint2 ahead[kRows] = {};
  const auto load_rows = [&](int branch) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      if (has) {
        ahead[r] = *reinterpret_cast<const uint2*>(
            h + static_cast<int64_t>(branch * rows + min(first + r, last_row)) * width);
      }
    }
  };
  load_rows(0);
  const int clean_rows = two ? *modulation.clean_rows : 0;
  const int moved = min(first + warp, last_row);
  const bool moves = warp < kRows && lane < dim;
  Move move;
  if (moves) move.load(a.update, moved, lane);
  asm volatile("barrier.cluster.wait;" ::: "memory");  // all blocks are there

#pragma unroll 1
  for (int branch = 0; branch < branches; ++branch) {
    float values[kRows][4];
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      values[r][0] = __uint_as_float(ahead[r].x << 16);
      values[r][1] = __uint_as_float(ahead[r].x & 0xFFFF0000u);
      values[r][2] = __uint_as_float(ahead[r].y << 16);
      values[r][3] = __uint_as_float(ahead[r].y & 0xFFFF0000u);
      float squares = 0;
#pragma unroll
      for (int i = 0; i < 4; ++i) squares += values[r][i] * values[r][i];
      squares = warp_sum(squares);
      if (lane == 0) room.sums[r][warp] = squares;
    }
    if (branch + 1 < branches) load_rows(branch + 1);
    __syncthreads();
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      float4 sums = four(room.sums[r]);
      const float4 upper = four(room.sums[r] + 4);
      const float sum =
          ((sums.x + sums.y) + (sums.z + sums.w)) + ((upper.x + upper.y) + (upper.z + upper.w));
      const float factor =
          rsqrtf(__fdividef(sum, static_cast<float>(width)) + a.output.norm.epsilon);
      float4 by = scale, plus = shift;
      if (two && (branch * rows + first + r) % modulation.period < clean_rows) {
        by = clean_scale;
        plus = clean_shift;
      }
      *reinterpret_cast<float4*>(&room.normed[r][tid * 4]) =
          make_float4(values[r][0] * factor * (1.0f + by.x) + plus.x,
                      values[r][1] * factor * (1.0f + by.y) + plus.y,
                      values[r][2] * factor * (1.0f + by.z) + plus.z,
                      values[r][3] * factor * (1.0f + by.w) + plus.w);
    }
    __syncthreads();
    float sums[kRows] = {};
#pragma unroll
    for (int i = 0; i < kRuns; ++i) {
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        sums[r] += dot(four(&room.normed[r][i * 128 + lane * 4]), output[i]);
      }
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const float v = warp_sum(sums[r]) + output_bias;
      if (lane < kCluster) {
        asm volatile(
            "st.shared::cluster.f32 [%0], %1;" ::"r"(rank_address(&room.v[branch][r][d], lane)),
            "f"(v)
            : "memory");
      }
      if (lane == 0 && d < dim && first + r < rows) {
        a.output.v[(branch * rows + first + r) * dim + d] = v;
      }
    }
  }
  // All blocks have read what they need of h and of x, and have all of v.
  cluster_barrier();

  if (warp < kRows) {
    const frt_flow_update_args& u = a.update;
    const float last = room.v[branches - 1][warp][lane];
    float velocity = last;
#pragma unroll 1
    for (int w = 0; w + 1 < branches; ++w) velocity += u.beta[w] * (room.v[w][warp][lane] - last);
    if (u.previous) velocity -= move.pull * (move.previous - (move.x - u.time * velocity));
    float x = move.x + u.step * velocity;
    if (move.locked) x = move.previous;
    room.x[warp][lane] = moves ? x : 0.0f;
    if (rank == 0 && moves && first + warp < rows) {
      if (u.velocity) u.velocity[moved * dim + lane] = velocity;
      u.x[moved * dim + lane] = x;
    }
  }
  if (!a.next.h) return;
  __syncthreads();
  // Eight lanes have eight values of the next rows together and keep one each.
  float next[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const float4 x = four(&room.x[r][j]);
    float parts[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) parts[i] = dot(x, input[i]);
    next[r] = sum_of_own(parts);
  }
  if (own >= a.next.width) return;
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    if (first + r >= rows) return;
    auto* to = static_cast<bf16*>(a.next.h) + static_cast<int64_t>(first + r) * a.next.width + own;
    const bf16 value = from_float<bf16>(next[r] + input_bias);
#pragma unroll 1
    for (int branch = 0; branch < a.next.branches; ++branch) {
      to[static_cast<int64_t>(branch * rows) * a.next.width] = value;
    }
  }
}

#endif

// Grid: clusters of kCluster blocks, each for kRows rows of x.
__global__ void __launch_bounds__(kThreads, 1)
    flow_step_kernel(const __grid_constant__ frt_flow_step_args a) {
#if FRT_ARCH_CLUSTERS
  __shared__ __align__(16) Room room;
  pdl_trigger();
  step(a, room);
#endif
}

}  // namespace

bool flow_step_supports(Device&, FlowStepCall& args) {
  const frt_flow_output_args& output = args.output;
  const frt_flow_input_args& next = args.next;
  const frt_modulation& modulation = output.norm.modulation;
  return output.h_dtype == FRT_DTYPE_BF16 && output.norm.kind == FRT_NORM_ADAPTIVE &&
         output.width % 4 == 0 && output.width <= kMostWidth && output.dim % 4 == 0 &&
         output.dim <= kMostDim && args.update.branches <= kMaxBranches &&
         int64_t{output.rows} * output.dim <= INT32_MAX && aligned(output.h) &&
         aligned(output.weight) && aligned(modulation.rows) && aligned(modulation.clean) &&
         (!next.h ||
          (next.h_dtype == FRT_DTYPE_BF16 && next.width <= kMostWidth && aligned(next.weight)));
}

void launch_flow_step(Stream& stream, FlowStepCall& args) {
  const int64_t rows = int64_t{args.update.samples} * args.update.horizon;
  const Grid grid{dim3(static_cast<unsigned>(ceil_div(rows, kRows) * kCluster)), dim3(kThreads), 0,
                  kCluster};
  launch(stream, grid, flow_step_kernel, args);
}

}  // namespace frt::cuda
