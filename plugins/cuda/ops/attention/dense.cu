// SPDX-License-Identifier: Apache-2.0
// Attention without a mask: frt.rope/1 and frt.dense_attention/1 with the kernel for every type,
// size and alignment; the tensor-core kernels are dense_tiles.cu and, for few queries,
// dense_short.cu, for many on sm_90, sm90/dense_tiles.cu, for encoders there, sm90/dense_whole.cu.
//
// The general kernel has a warp per query and head and walks the keys 32 at a time: each lane the
// score of one, then, with the new maximum, each lane its share of the head's columns. f32 models
// (the reference) run on it; nothing fast does.
#include <frt/ops/checks/dense_attention.hpp>

#include <algorithm>

#include "../common/convert_values.cuh"
#include "../common/launch.cuh"
#include "../registry.hpp"
#include "dense.hpp"

namespace frt::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / 32;
constexpr int kMostThreads = 256;  // of a row to rotate
constexpr int kColumns = 8;  // of the head that a lane of the general kernel keeps: 256 in all

// ---- rope -----------------------------------------------------------------------------------

// A block has a row, of q and of k.
template <class T>
__global__ void __launch_bounds__(kThreads) rope_kernel(const __grid_constant__ frt_rope_args a) {
  pdl_trigger();
  pdl_wait();
  const int64_t row = blockIdx.x;
  const int b = static_cast<int>(row / a.rows);
  const int64_t position =
      (a.base ? static_cast<int64_t>(a.base[b / a.sequences_per_base]) : 0) + row % a.rows;
  if (position < 0 || position >= a.positions) return;
  const int half = a.head_dim / 2;
  const float* angles = a.table + position * a.head_dim;
  const int q_pairs = a.q ? a.heads * half : 0;
  const int pairs = q_pairs + (a.k ? a.kv_heads * half : 0);
  for (int at = static_cast<int>(threadIdx.x); at < pairs; at += kThreads) {
    const bool is_q = at < q_pairs;
    const int pair = is_q ? at : at - q_pairs;
    const int head = pair / half, j = pair % half;
    T* low = static_cast<T*>(is_q ? a.q : a.k) + row * (is_q ? a.q_stride : a.k_stride) +
             static_cast<int64_t>(head) * a.head_dim + j;
    const float x = to_float(low[0]), y = to_float(low[half]);
    const float c = angles[j], s = angles[half + j];
    low[0] = from_float<T>(x * c - y * s);
    low[half] = from_float<T>(y * c + x * s);
  }
}

// The same in bf16, where half a head is whole runs of eight: thread (i, j) has run i of both
// halves of one of the heads of a row, block (row, heads, sequence). Without a base a row's angles
// are known before the kernel ahead has ended.
template <bool kBase>
__global__ void __launch_bounds__(kMostThreads)
    rope_runs_kernel(const __grid_constant__ frt_rope_args a) {
  pdl_trigger();
  const int b = static_cast<int>(blockIdx.z), half = a.head_dim / 2;
  const int first = static_cast<int>(threadIdx.x) * 8;
  const int head = static_cast<int>(blockIdx.y * blockDim.y + threadIdx.y);
  const int q_heads = a.q ? a.heads : 0;
  const int64_t row = static_cast<int64_t>(b) * a.rows + blockIdx.x;
  int position = static_cast<int>(blockIdx.x);
  if constexpr (kBase) {
    pdl_wait();
    position += a.base[b / a.sequences_per_base];
  }
  const bool known = position >= 0 && position < a.positions;
  const float* angles = a.table + (known ? position : 0) * static_cast<int64_t>(a.head_dim) + first;
  float c[8], s[8];
  load_typed(angles, c);
  load_typed(angles + half, s);
  if constexpr (!kBase) pdl_wait();
  if (!known || head >= q_heads + (a.k ? a.kv_heads : 0)) return;
  bf16* low = head < q_heads
                  ? static_cast<bf16*>(a.q) + row * a.q_stride + head * a.head_dim
                  : static_cast<bf16*>(a.k) + row * a.k_stride + (head - q_heads) * a.head_dim;
  low += first;
  float x[8], y[8], turned[8];
  load_typed(low, x);
  load_typed(low + half, y);
#pragma unroll
  for (int i = 0; i < 8; ++i) turned[i] = x[i] * c[i] - y[i] * s[i];
  store_typed(low, turned);
#pragma unroll
  for (int i = 0; i < 8; ++i) turned[i] = y[i] * c[i] + x[i] * s[i];
  store_typed(low + half, turned);
}

using RopeCall = const frt_rope_args;

int64_t rope_rows(RopeCall& args) {
  return static_cast<int64_t>(args.count) * args.rows;
}

bool rope_runs_supports(Device&, RopeCall& args) {
  return args.dtype == FRT_DTYPE_BF16 && args.head_dim % 16 == 0 &&
         args.head_dim <= 16 * kMostThreads && args.count <= 65535 && (args.q || args.k) &&
         (!args.q || vector_rows(args.q, args.q_stride)) &&
         (!args.k || vector_rows(args.k, args.k_stride)) &&
         reinterpret_cast<uintptr_t>(args.table) % 16 == 0;
}
void launch_rope_runs(Stream& stream, RopeCall& args) {
  const int runs = args.head_dim / 16;
  const int heads = (args.q ? args.heads : 0) + (args.k ? args.kv_heads : 0);
  const int together = std::min(heads, kMostThreads / runs);
  const Grid grid{
      dim3(static_cast<unsigned>(args.rows), static_cast<unsigned>(ceil_div(heads, together)),
           static_cast<unsigned>(args.count)),
      dim3(static_cast<unsigned>(runs), static_cast<unsigned>(together))};
  launch(stream, grid, args.base ? rope_runs_kernel<true> : rope_runs_kernel<false>, args);
}
void launch_rope(Stream& stream, RopeCall& args) {
  const Grid grid{dim3(static_cast<unsigned>(rope_rows(args))), dim3(kThreads)};
  launch(stream, grid, args.dtype == FRT_DTYPE_F32 ? rope_kernel<float> : rope_kernel<bf16>, args);
}

constexpr Variant<RopeCall> kRopeVariants[] = {
    {"runs-of-eight", {}, rope_runs_supports, launch_rope_runs},
    {"general", {}, nullptr, launch_rope},
};
constexpr Variants<RopeCall> kRopeTable{FRT_OP_ROPE, kRopeVariants};

void rope(Stream& stream, const frt_rope_args& args) {
  check_rope(Checks(FRT_OP_ROPE), args);
  run_variant(stream, kRopeTable, args);
}

// ---- the general kernel ---------------------------------------------------------------------

// Key (and value) `key` of sequence b: context first.
struct Keys {
  int context, own;  // rows of each
  int64_t context_row, own_row;
};

template <class T>
__global__ void __launch_bounds__(kThreads)
    general_kernel(const __grid_constant__ frt_dense_attention_args a) {
  pdl_trigger();
  pdl_wait();
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t unit = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  const int64_t rows = static_cast<int64_t>(a.count) * a.rows;
  if (unit >= rows * a.heads) return;
  const int64_t row = unit / a.heads;
  const int head = static_cast<int>(unit % a.heads), b = static_cast<int>(row / a.rows);
  const int length = a.length ? max(0, min(a.length[b], a.rows)) : a.rows;
  const int64_t place_y = row * a.y_stride + static_cast<int64_t>(head) * a.head_dim;
  if (row % a.rows >= length) return;
  Keys keys{};
  keys.own = length;
  keys.own_row = static_cast<int64_t>(b) * a.rows;
  if (a.context_rows > 0) {
    const int c = b / a.sequences_per_context;
    keys.context = max(0, min(a.context_length[c], a.context_rows));
    keys.context_row = static_cast<int64_t>(c) * a.context_rows;
  }
  const int64_t kv_head = static_cast<int64_t>(head / (a.heads / a.kv_heads)) * a.head_dim;
  const auto place = [&](const void* own, const void* context, int key) {
    return key < keys.context ? static_cast<const T*>(context) +
                                    (keys.context_row + key) * a.context_stride + kv_head
                              : static_cast<const T*>(own) +
                                    (keys.own_row + key - keys.context) * a.kv_stride + kv_head;
  };
  const T* q =
      static_cast<const T*>(a.q) + row * a.q_stride + static_cast<int64_t>(head) * a.head_dim;
  const int all = keys.context + keys.own;
  // Heads wider than 32 * kColumns take several rounds, each of which makes the scores anew.
  for (int first = 0; first < a.head_dim; first += 32 * kColumns) {
    float largest = -INFINITY, sum = 0, o[kColumns] = {};
    for (int at = 0; at < all; at += 32) {
      float score = -INFINITY;
      if (at + lane < all) {
        const T* k = place(a.k, a.context_k, at + lane);
        score = 0;
        for (int d = 0; d < a.head_dim; ++d) score += to_float(q[d]) * to_float(k[d]);
        score *= a.scale;
      }
      const float now = fmaxf(largest, warp_max(score));
      const float shrink = expf(largest - now), weight = expf(score - now);
      largest = now;
      sum = sum * shrink + warp_sum(weight);
#pragma unroll
      for (int i = 0; i < kColumns; ++i) o[i] *= shrink;
      for (int n = 0; n < min(32, all - at); ++n) {
        const float share = __shfl_sync(~0u, weight, n);
        const T* v = place(a.v, a.context_v, at + n);
#pragma unroll
        for (int i = 0; i < kColumns; ++i) {
          const int d = first + i * 32 + lane;
          if (d < a.head_dim) o[i] += share * to_float(v[d]);
        }
      }
    }
#pragma unroll
    for (int i = 0; i < kColumns; ++i) {
      const int d = first + i * 32 + lane;
      if (d >= a.head_dim) continue;
      if (a.y_scale > 0) {
        static_cast<uint8_t*>(a.y)[place_y + d] = e4m3_bits(o[i] / sum * (1.0f / a.y_scale));
      } else {
        static_cast<T*>(a.y)[place_y + d] = from_float<T>(o[i] / sum);
      }
    }
  }
}

void launch_dense_general(Stream& stream, DenseAttentionCall& args) {
  const int64_t warps = static_cast<int64_t>(args.count) * args.rows * args.heads;
  const Grid grid{dim3(static_cast<unsigned>(ceil_div(warps, kWarps))), dim3(kThreads)};
  launch(stream, grid, args.dtype == FRT_DTYPE_F32 ? general_kernel<float> : general_kernel<bf16>,
         args);
}

constexpr FeatureSet kWgmmaAndCopies = feature::kWgmma | feature::kClusters | feature::kBulkCopies;
constexpr Variant<DenseAttentionCall> kAttentionVariants[] = {
    {"short",
     {feature::kClusters | feature::kBulkCopies},
     dense_short_supports,
     launch_dense_short},
    {"whole-wgmma",
     {kWgmmaAndCopies, kDenseWholeSharedBytes},
     dense_whole_supports,
     launch_dense_whole},
    {"tiles-wgmma",
     {kWgmmaAndCopies, kDenseWgmmaSharedBytes},
     dense_wgmma_supports,
     launch_dense_wgmma},
    {"tiles", {}, dense_tiles_support, launch_dense_tiles},
    {"general", {}, nullptr, launch_dense_general},
};
constexpr Variants<DenseAttentionCall> kAttentionTable{FRT_OP_DENSE_ATTENTION, kAttentionVariants};

void dense_attention(Stream& stream, const frt_dense_attention_args& args) {
  check_dense_attention(Checks(FRT_OP_DENSE_ATTENTION), args);
  run_variant(stream, kAttentionTable, args);
}

}  // namespace

void register_dense_attention(KernelList& list) {
  list.add<frt_rope_args>(FRT_OP_ROPE, kFloatTypes, {}, rope);
  list.add<frt_dense_attention_args>(
      FRT_OP_DENSE_ATTENTION, kFloatTypes | FRT_DTYPE_BIT(FRT_DTYPE_F8_E4M3), {}, dense_attention);
  list.add_variants(kRopeTable);
  list.add_variants(kAttentionTable);
}

}  // namespace frt::cuda
