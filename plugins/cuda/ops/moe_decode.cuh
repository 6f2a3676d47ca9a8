// SPDX-License-Identifier: Apache-2.0
// moe_decode.cuh - what the kernels of the decode variant share: asynchronous copies, and the
// choice of experts as every block makes it for itself.
#pragma once

#include "attention_mma.cuh"
#include "launch.cuh"
#include "moe.hpp"
#include "moe_rows.cuh"
#include "numbers.cuh"

namespace frt::cuda {

inline constexpr int kDecodeRows = 16;
inline constexpr int kMaxAssignments = 512;  // one thread of a block each
inline constexpr int kExpertWarps = 16;      // of the kernels of the experts
inline constexpr int kExpertThreads = kExpertWarps * 32;
inline constexpr int kMembers = 8;  // assignments that one pass over an expert's weights serves

// kBytes: 4 or 16; zeros where it is not `inside`.
template <int kBytes>
__device__ __forceinline__ void copy_async(uint32_t shared, const void* global,
                                           bool inside = true) {
  if constexpr (kBytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared), "l"(global),
                 "r"(inside ? 16 : 0)
                 : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared), "l"(global),
                 "r"(inside ? 4 : 0)
                 : "memory");
  }
}
__device__ __forceinline__ void commit_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int kLeft>
__device__ __forceinline__ void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kLeft) : "memory");
}

// f.operator()<format>().
template <class Function>
__device__ __forceinline__ void with_format(WeightForm form, Function&& function) {
  switch (form) {
    case WeightForm::kF32:
      return function.template operator()<MoeFormat::kF32>();
    case WeightForm::kBf16:
      return function.template operator()<MoeFormat::kBf16>();
    case WeightForm::kNvfp4:
      return function.template operator()<MoeFormat::kFp4>();
    default:
      return function.template operator()<MoeFormat::kFp8>();
  }
}

// This lane's part of the products of the weight row at `data` with `count` rows of x.
template <MoeFormat kFormat, int kCount>
__device__ __forceinline__ void row_dots(const MoeMatrix& matrix, const MoeRow& row,
                                         const uint8_t* data, const bf16* const (&x)[kCount],
                                         int count, float (&sums)[kCount]) {
#pragma unroll
  for (int m = 0; m < kCount; ++m) sums[m] = 0.0f;
#pragma unroll 2
  for (int k = threadIdx.x % 32 * 8; k < matrix.cols; k += 256) {
    float weights[8];
    const float scale = widen_shared<kFormat>(matrix, row, data, k, weights);
#pragma unroll
    for (int m = 0; m < kCount; ++m) {
      if (m < count) {
        float values[8];
        widen_bf16(*reinterpret_cast<const uint4*>(x[m] + k), values);
        float even = 0.0f, odd = 0.0f;
#pragma unroll
        for (int i = 0; i < 8; i += 2) {
          even = fmaf(weights[i], values[i], even);
          odd = fmaf(weights[i + 1], values[i + 1], odd);
        }
        sums[m] = fmaf(even + odd, scale, sums[m]);
      }
    }
  }
}

// ---- the chosen experts ------------------------------------------------------------------------

struct ChosenArgs {
  const float* logits;  // NULL: ids and weights are given
  int32_t* ids;         // (rows, chosen)
  float* weights;       // (rows, chosen)
  int32_t rows, experts, chosen;
  bool normalise;
  const int32_t* row_count;
};

// What a block knows of the choice, in shared memory.
struct Chosen {
  int ids[kMaxAssignments];
  float weights[kMaxAssignments];
  int next[kMaxAssignments];     // the next assignment of the same expert, or -1
  int leaders[kMaxAssignments];  // every kMembers-th assignment of an expert, from its first on
  int counts[kExpertWarps];
  int leader_count;
};

__device__ __forceinline__ void choose(const ChosenArgs& args, int rows, Chosen& chosen) {
  if (args.logits) {
    const int row = threadIdx.x / 32;
    if (row < rows) {
      const float* logits = args.logits + static_cast<int64_t>(row) * args.experts;
      choose_experts(logits, args.experts, args.chosen, args.normalise,
                     chosen.ids + row * args.chosen, chosen.weights + row * args.chosen);
    }
  } else if (threadIdx.x < rows * args.chosen) {
    chosen.ids[threadIdx.x] = args.ids[threadIdx.x];
    chosen.weights[threadIdx.x] = args.weights[threadIdx.x];
  }
}

// Links the assignments of each expert. A barrier must lie before it; the last one is in it.
__device__ __forceinline__ void link(int assignments, int experts, Chosen& chosen) {
  const int a = threadIdx.x, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int id = a < assignments ? chosen.ids[a] : -1;
  bool leader = id >= 0 && id < experts;
  if (leader) {
    int before = 0, next = assignments;
    for (int b = 0; b < assignments; ++b) {
      const bool same = chosen.ids[b] == id;
      if (same && b < a) ++before;
      if (same && b > a && next == assignments) next = b;
    }
    leader = before % kMembers == 0;
    chosen.next[a] = next < assignments ? next : -1;
  }
  const unsigned ballot = __ballot_sync(~0u, leader);
  if (lane == 0) chosen.counts[warp] = __popc(ballot);
  __syncthreads();
  int before = 0, total = 0;
#pragma unroll
  for (int w = 0; w < kExpertWarps; ++w) {
    if (w < warp) before += chosen.counts[w];
    total += chosen.counts[w];
  }
  if (leader) chosen.leaders[before + __popc(ballot & ((1u << lane) - 1u))] = a;
  if (threadIdx.x == 0) chosen.leader_count = total;
  __syncthreads();
}

// ---- the kernels of the experts (moe_decode_experts*.cu)
// -----------------------------------------

struct HiddenArgs {
  ChosenArgs chosen;
  MoeNorm norm;  // residual != NULL: += delta
  const bf16* x;
  int32_t inputs, width;
  MoeMatrix gate, up;
  bf16* hidden;  // (rows * chosen, width)
};

struct DownArgs {
  ChosenArgs chosen;
  int32_t inputs, width, shared_width;
  MoeMatrix down, shared_down;
  const bf16* hidden;         // (rows * chosen, width)
  const bf16* shared_hidden;  // (rows, shared width)
  const float* shared_scale;  // (rows)
  bf16* y;                    // (rows, inputs)
  bool copy_hidden;           // the rows of hidden fit into shared memory
  bool stream_shared;         // the shared expert has the experts' format
};

// Whether the matrix can pass through the stream of moe_stream.cuh.
bool streams(const MoeMatrix& matrix);

// Dynamic shared memory of the two kernels.
struct ExpertPlan {
  bool copy_hidden;
  std::size_t hidden_bytes, down_bytes;
};
ExpertPlan plan_experts(const MoeBlock& block);
void launch_experts(Stream& stream, const ExpertPlan& plan, const HiddenArgs& hidden,
                    const DownArgs& down);

// Dynamic shared memory beside the static one: more than 48 KB together need the dynamic part alone
// to say so.
inline std::size_t beside_static(std::size_t bytes) {
  constexpr std::size_t kPlain = 48 * 1024;
  return bytes <= kPlain && bytes + sizeof(Chosen) + 1024 > kPlain ? kPlain + 16 : bytes;
}

}  // namespace frt::cuda
