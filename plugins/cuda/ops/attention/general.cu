// SPDX-License-Identifier: Apache-2.0
// Attention of any types and any head size: a block per row and query head, f32 throughout.
//
// Each warp takes every kWarps-th group of four positions with its own running maximum, sum and
// weighted sum of values (in shared memory); the warps' results are merged in their order. Nothing
// is shared between the heads of a group, so keys are read once per query head: meant for f32
// activations (tests, goldens) and head sizes without a fast variant, not for speed.
#include <algorithm>
#include <frt/error.hpp>
#include <string>

#include "attention.hpp"
#include "rows.cuh"

namespace frt::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kPositions = 4;  // taken together by a warp, from a multiple on
static_assert(FRT_PAGE_ROWS_LEAST % kPositions == 0);

template <class T, class KV>
__global__ void __launch_bounds__(kWarps * 32)
    general_kernel(const __grid_constant__ frt_attention_args args) {
  pdl_trigger();
  pdl_wait();
  extern __shared__ float shared[];
  __shared__ float largests[kWarps], sums[kWarps];
  const int warps = blockDim.x / 32, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int64_t row = blockIdx.x;
  const int head = blockIdx.y;
  const int b = static_cast<int>(row / args.sequences.rows);
  const int row_q = static_cast<int>(row % args.sequences.rows);
  if (row_q >= active_length(args.sequences, b)) return;
  const int dim = args.head_dim;
  const int seen = seen_positions(args.sequences.position[b], row_q, args.max_rows);
  const int64_t stride = static_cast<int64_t>(args.kv_heads) * dim;
  const SlotRows rows(args.pages, args.sequences.slot[b]);
  const int64_t kv_head = head / (args.heads / args.kv_heads);
  const float k_scale = sizeof(KV) == 1 ? args.k_scale : 1.0f;
  const float v_scale = sizeof(KV) == 1 ? args.v_scale : 1.0f;

  float* q = shared;
  float* o = shared + (1 + warp) * dim;
  const T* from = static_cast<const T*>(args.q) + (row * args.heads + head) * dim;
  for (int i = threadIdx.x; i < dim; i += blockDim.x) q[i] = to_float(from[i]);
  for (int i = lane; i < dim; i += 32) o[i] = 0;
  __syncthreads();

  float largest = -INFINITY, sum = 0;
  for (int first = warp * kPositions; first < seen; first += warps * kPositions) {
    const int64_t base = rows.base(rows.page(first), first, stride * sizeof(KV));
    const auto from_base = [&](const void* tensor) {
      return reinterpret_cast<const KV*>(static_cast<const std::byte*>(tensor) + base) +
             kv_head * dim;
    };
    const KV *keys = from_base(args.keys), *values = from_base(args.values);
    float score[kPositions] = {};
    const KV* row_of[kPositions];
#pragma unroll
    for (int p = 0; p < kPositions; ++p) row_of[p] = keys + min(first + p, seen - 1) * stride;
    for (int i = lane; i < dim; i += 32) {
#pragma unroll
      for (int p = 0; p < kPositions; ++p) score[p] += q[i] * to_float(row_of[p][i]);
    }
    float now = largest;
#pragma unroll
    for (int p = 0; p < kPositions; ++p) {
      score[p] = first + p < seen ? warp_sum(score[p]) * k_scale * args.scale : -INFINITY;
      now = fmaxf(now, score[p]);
    }
    const float shrink = expf(largest - now);
    largest = now;
    sum *= shrink;
#pragma unroll
    for (int p = 0; p < kPositions; ++p) {
      score[p] = expf(score[p] - now);
      sum += score[p];
      row_of[p] = values + min(first + p, seen - 1) * stride;
    }
    for (int i = lane; i < dim; i += 32) {
      float value = o[i] * shrink;
#pragma unroll
      for (int p = 0; p < kPositions; ++p) value += score[p] * to_float(row_of[p][i]);
      o[i] = value;
    }
  }
  if (lane == 0) {
    largests[warp] = largest;
    sums[warp] = sum;
  }
  __syncthreads();

  // A warp without positions has the weight exp(-inf) = 0.
  float most = largests[0];
  for (int w = 1; w < warps; ++w) most = fmaxf(most, largests[w]);
  float total = 0;
  for (int w = 0; w < warps; ++w) total += sums[w] * expf(largests[w] - most);
  const T* gate = args.gate ? static_cast<const T*>(args.gate) + row * args.gate_row_stride +
                                  head * args.gate_head_stride
                            : nullptr;
  T* y = static_cast<T*>(args.y) + (row * args.heads + head) * dim;
  for (int i = threadIdx.x; i < dim; i += blockDim.x) {
    float value = 0;
    for (int w = 0; w < warps; ++w) {
      value += shared[(1 + w) * dim + i] * expf(largests[w] - most);
    }
    value *= v_scale / total;
    if (gate) value *= 1.0f / (1.0f + expf(-to_float(gate[i])));
    y[i] = from_float<T>(value);
  }
}

template <class T>
void launch_typed(Stream& stream, const frt_attention_args& args) {
  const std::size_t one = static_cast<std::size_t>(args.head_dim) * sizeof(float);
  const auto room =
      static_cast<std::size_t>(stream.device().properties().shared_bytes_block) - 1024;
  if (2 * one > room) {
    throw Error(FRT_ERR_UNSUPPORTED, std::string(FRT_OP_ATTENTION) + ": head_dim " +
                                         std::to_string(args.head_dim) + " is more than " +
                                         std::to_string(room / (2 * sizeof(float))) +
                                         ", what shared memory holds");
  }
  const std::size_t warps = std::min<std::size_t>(kWarps, room / one - 1);
  Grid grid;
  grid.blocks =
      dim3(static_cast<unsigned>(static_cast<int64_t>(args.sequences.count) * args.sequences.rows),
           static_cast<unsigned>(args.heads));
  grid.threads = dim3(static_cast<unsigned>(32 * warps));
  grid.shared_bytes = one * (1 + warps);
  if (args.kv_dtype == FRT_DTYPE_F32) {
    launch(stream, grid, general_kernel<T, float>, args);
  } else if (args.kv_dtype == FRT_DTYPE_BF16) {
    launch(stream, grid, general_kernel<T, bf16>, args);
  } else {
    launch(stream, grid, general_kernel<T, f8e4m3>, args);
  }
}

}  // namespace

void launch_general(Stream& stream, AttentionCall& args) {
  if (args.dtype == FRT_DTYPE_F32) {
    launch_typed<float>(stream, args);
  } else {
    launch_typed<bf16>(stream, args);
  }
}

}  // namespace frt::cuda
