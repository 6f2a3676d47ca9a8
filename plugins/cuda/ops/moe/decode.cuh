// SPDX-License-Identifier: Apache-2.0
// decode.cuh - what the kernels of the decode variant share: asynchronous copies, and the
// choice of experts as every block makes it for itself.
#pragma once

#include "../common/launch.cuh"
#include "../common/mma.cuh"
#include "../common/numbers.cuh"
#include "moe.hpp"
#include "rows.cuh"

namespace frt::cuda {

inline constexpr int kDecodeRows = 16;
inline constexpr int kMaxAssignments = 512;  // one thread of a block each
inline constexpr int kExpertWarps = 16;      // of the kernels of the experts
inline constexpr int kExpertThreads = kExpertWarps * 32;
inline constexpr int kMembers = 8;  // assignments that one pass over an expert's weights serves

// f.operator()<format>().
template <class Function>
__device__ __forceinline__ void with_format(WeightType type, Function&& function) {
  switch (type) {
    case WeightType::kF32:
      return function.template operator()<MoeFormat::kF32>();
    case WeightType::kBf16:
      return function.template operator()<MoeFormat::kBf16>();
    case WeightType::kNvfp4:
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
    const float scale = dequantise_shared<kFormat>(matrix, row, data, k, weights);
#pragma unroll
    for (int m = 0; m < kCount; ++m) {
      if (m < count) {
        float values[8];
        floats_of_bf16(*reinterpret_cast<const uint4*>(x[m] + k), values);
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

// ---- the selected experts
// ------------------------------------------------------------------------

struct TopKArgs {
  const float* logits;  // NULL: ids and weights are given
  int32_t* ids;         // (rows, top_k)
  float* weights;       // (rows, top_k)
  int32_t rows, experts, top_k;
  bool normalise;
  const int32_t* row_count;
};

// What a block knows of the selection, in shared memory.
struct TopK {
  int ids[kMaxAssignments];
  float weights[kMaxAssignments];
  int next[kMaxAssignments];     // the next assignment of the same expert, or -1
  int leaders[kMaxAssignments];  // every kMembers-th assignment of an expert, from its first on
  int counts[kExpertWarps];
  int leader_count;
};

__device__ __forceinline__ void select(const TopKArgs& args, int rows, TopK& selected) {
  if (args.logits) {
    const int row = threadIdx.x / 32;
    if (row < rows) {
      const float* logits = args.logits + static_cast<int64_t>(row) * args.experts;
      select_experts(logits, args.experts, args.top_k, args.normalise,
                     selected.ids + row * args.top_k, selected.weights + row * args.top_k);
    }
  } else if (threadIdx.x < rows * args.top_k) {
    selected.ids[threadIdx.x] = args.ids[threadIdx.x];
    selected.weights[threadIdx.x] = args.weights[threadIdx.x];
  }
}

// Links the assignments of each expert. A barrier must lie before it; the last one is in it.
__device__ __forceinline__ void link(int assignments, int experts, TopK& selected) {
  const int a = threadIdx.x, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int id = a < assignments ? selected.ids[a] : -1;
  bool leader = id >= 0 && id < experts;
  if (leader) {
    int before = 0, next = assignments;
    for (int b = 0; b < assignments; ++b) {
      const bool same = selected.ids[b] == id;
      if (same && b < a) ++before;
      if (same && b > a && next == assignments) next = b;
    }
    leader = before % kMembers == 0;
    selected.next[a] = next < assignments ? next : -1;
  }
  const unsigned ballot = __ballot_sync(~0u, leader);
  if (lane == 0) selected.counts[warp] = __popc(ballot);
  __syncthreads();
  int before = 0, total = 0;
#pragma unroll
  for (int w = 0; w < kExpertWarps; ++w) {
    if (w < warp) before += selected.counts[w];
    total += selected.counts[w];
  }
  if (leader) selected.leaders[before + __popc(ballot & ((1u << lane) - 1u))] = a;
  if (threadIdx.x == 0) selected.leader_count = total;
  __syncthreads();
}

// ---- the kernels of the experts (decode_experts*.cu)
// -----------------------------------------

struct HiddenArgs {
  TopKArgs selected;
  MoeNorm norm;  // residual != NULL: += delta
  const bf16* x;
  int32_t inputs, width;
  MoeMatrix gate, up;
  bf16* hidden;  // (rows * top_k, width)
};

struct DownArgs {
  TopKArgs selected;
  int32_t inputs, width, shared_width;
  MoeMatrix down, shared_down;
  const bf16* hidden;         // (rows * top_k, width)
  const bf16* shared_hidden;  // (rows, shared width)
  const float* shared_scale;  // (rows)
  bf16* y;                    // (rows, inputs)
  bool copy_hidden;           // the rows of hidden fit into shared memory
  bool stream_shared;         // the shared expert has the experts' format
};

// Whether the matrix can pass through the stream of stream.cuh.
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
  return bytes <= kPlain && bytes + sizeof(TopK) + 1024 > kPlain ? kPlain + 16 : bytes;
}

}  // namespace frt::cuda
