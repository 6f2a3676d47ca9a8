// SPDX-License-Identifier: Apache-2.0
// frt.attention_append/1: a warp per vector (a head of q, of k or of v) of a row.
//
// The vector lies in shared memory in f32 between norm, rotation and store, so any head size and
// any rotary part will do; aligned vectors are read and written 16 bytes at a time. Floor: bytes of
// q, k, v read and of q_out, keys, values written (27B, bf16: 29 KB a row, 51 us for 8192 rows at
// 4.65 TB/s); at decode it is one latency, hidden in the fused form (attention_split.cu).
#include <algorithm>

#include "attention.hpp"
#include "attention_rows.cuh"

namespace frt::cuda {
namespace {

constexpr int kWarps = 4;

template <class T, int N>
__global__ void __launch_bounds__(kWarps * 32)
    append_kernel(const __grid_constant__ frt_attention_append_args args) {
  pdl_trigger();
  pdl_wait();
  extern __shared__ float shared[];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  float* x = shared + warp * args.head_dim;
  const int vector = blockIdx.y * (blockDim.x / 32) + warp;
  const int64_t row = blockIdx.x;
  const int b = static_cast<int>(row / args.sequences.rows);
  const int q = static_cast<int>(row % args.sequences.rows);
  if (vector >= args.heads + 2 * args.kv_heads) return;
  if (q >= active_length(args.sequences, b)) return;
  const int position = args.sequences.position[b] + q;
  if (vector < args.heads) {
    rotate_vector<N>(
        args, static_cast<const T*>(args.q) + row * args.q_row_stride + vector * args.q_head_stride,
        args.q_norm, position, x);
    T* to = static_cast<T*>(args.q_out) + (row * args.heads + vector) * args.head_dim;
    for (int i = lane * N; i < args.head_dim; i += 32 * N) store_floats<N>(to + i, x + i, 1.0f);
    return;
  }
  if (position < 0 || position >= args.max_rows) return;
  const int slot = args.sequences.slot[b];
  const int head = vector - args.heads;
  if (head < args.kv_heads) {
    store_key<N, T>(args, row, slot, position, head, x);
  } else {
    store_value<N, T>(args, row, slot, position, head - args.kv_heads);
  }
}

// Whether every vector, and every row of the cache, starts at a multiple of 16 bytes of T.
template <class T>
bool whole_vectors(const frt_attention_append_args& args) {
  constexpr int64_t kElements = 16 / sizeof(T);
  const auto pointers =
      reinterpret_cast<uintptr_t>(args.q) | reinterpret_cast<uintptr_t>(args.k) |
      reinterpret_cast<uintptr_t>(args.v) | reinterpret_cast<uintptr_t>(args.q_out) |
      reinterpret_cast<uintptr_t>(args.keys) | reinterpret_cast<uintptr_t>(args.values);
  return pointers % 16 == 0 && args.slot_stride % 16 == 0 && args.head_dim % kElements == 0 &&
         args.q_row_stride % kElements == 0 && args.q_head_stride % kElements == 0;
}

template <class T>
void launch_typed(Stream& stream, const frt_attention_append_args& args) {
  const std::size_t one = static_cast<std::size_t>(args.head_dim) * sizeof(float);
  const auto room = static_cast<std::size_t>(stream.device().properties().shared_bytes_block);
  if (one > room) {
    throw Error(FRT_ERR_UNSUPPORTED, std::string(FRT_OP_ATTENTION_APPEND) + ": head_dim " +
                                         std::to_string(args.head_dim) + " is more than " +
                                         std::to_string(room / sizeof(float)) +
                                         ", what shared memory holds");
  }
  const unsigned warps = static_cast<unsigned>(std::min<std::size_t>(kWarps, room / one));
  const int64_t vectors = static_cast<int64_t>(args.heads) + 2 * args.kv_heads;
  Grid grid;
  grid.blocks =
      dim3(static_cast<unsigned>(static_cast<int64_t>(args.sequences.count) * args.sequences.rows),
           static_cast<unsigned>(ceil_div(vectors, warps)));
  grid.threads = dim3(32 * warps);
  grid.shared_bytes = one * warps;
  if (whole_vectors<T>(args)) {
    launch(stream, grid, append_kernel<T, static_cast<int>(16 / sizeof(T))>, args);
  } else {
    launch(stream, grid, append_kernel<T, 1>, args);
  }
}

}  // namespace

void launch_append(Stream& stream, const frt_attention_append_args& args) {
  if (args.dtype == FRT_DTYPE_F32) {
    launch_typed<float>(stream, args);
  } else {
    launch_typed<bf16>(stream, args);
  }
}

}  // namespace frt::cuda
