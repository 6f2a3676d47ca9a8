// SPDX-License-Identifier: Apache-2.0
// The gated delta rule for any dimensions, row by row.
//
// A block has 32 columns of one head's state in shared memory; columns are independent, but for q
// and k, which every block normalises for itself. Both products with the old state are taken in one
// pass over it, since S_new^T q = exp(g) S^T q + (k . q) delta: two barriers per row.
#include "gated_delta.cuh"

#include <frt/error.hpp>

#include <string>

namespace frt::cuda {
namespace {

constexpr int kColumns = 32;
constexpr int kGroups = 8;  // warps; warp w has the keys w, w + 8, ...
constexpr int kThreads = kColumns * kGroups;

struct RowSums {
  float q_squares[kGroups], k_squares[kGroups], products[kGroups];
};

template <class T>
__global__ void __launch_bounds__(kThreads) recurrent_kernel(const frt_gated_delta_args args) {
  extern __shared__ float shared[];
  __shared__ float with_k[kGroups][kColumns], with_q[kGroups][kColumns];
  __shared__ RowSums row_sums[2];
  pdl_trigger();
  pdl_wait();
  const int sequence = blockIdx.z;
  const int head = blockIdx.y;
  const int length = active_length(args.sequences, sequence);
  if (length == 0) return;
  const int keys = args.key_dim, values = args.value_dim;
  const int lane = threadIdx.x % kColumns, group = threadIdx.x / kColumns;
  const int column = blockIdx.x * kColumns + lane;
  const bool inside = column < values;
  const int key_head = head / (args.value_heads / args.key_heads);
  const int64_t channels = delta_channels(args);
  const int64_t row0 = static_cast<int64_t>(sequence) * args.sequences.rows;

  float* state = shared;                   // (keys, 32)
  float* rows = shared + keys * kColumns;  // two of q and k
  float* saved = delta_state(args, sequence, head) + column;
  for (int j = group; j < keys; j += kGroups) {
    state[j * kColumns + lane] = inside ? saved[static_cast<int64_t>(j) * values] : 0.0f;
  }
  const float q_scale = rsqrtf(static_cast<float>(keys));
  const T* c = static_cast<const T*>(args.c) + row0 * channels;
  for (int t = 0; t < length; ++t, c += channels) {
    // Two sets in turn: slow warps may still read the set of the row before.
    float* q = rows + t % 2 * 2 * keys;
    float* k = q + keys;
    RowSums& sums = row_sums[t % 2];
    float q_squares = 0, k_squares = 0, product = 0;
    for (int j = threadIdx.x; j < keys; j += kThreads) {
      q[j] = to_float(c[key_head * keys + j]);
      k[j] = to_float(c[(args.key_heads + key_head) * keys + j]);
      q_squares += q[j] * q[j];
      k_squares += k[j] * k[j];
      product += q[j] * k[j];
    }
    q_squares = warp_sum(q_squares);
    k_squares = warp_sum(k_squares);
    product = warp_sum(product);
    if (lane == 0) {
      sums.q_squares[group] = q_squares;
      sums.k_squares[group] = k_squares;
      sums.products[group] = product;
    }
    const int64_t scalar = (row0 + t) * args.value_heads + head;
    const float g = delta_log_decay(to_float(static_cast<const T*>(args.a)[scalar]),
                                    args.dt_bias[head], args.decay[head]);
    const float decay = expf(g);
    const float beta = sigmoid(to_float(static_cast<const T*>(args.b)[scalar]));
    const float v =
        inside ? to_float(
                     c[2LL * args.key_heads * keys + static_cast<int64_t>(head) * values + column])
               : 0.0f;
    __syncthreads();

    q_squares = k_squares = product = 0;
    for (int i = 0; i < kGroups; ++i) {
      q_squares += sums.q_squares[i];
      k_squares += sums.k_squares[i];
      product += sums.products[i];
    }
    const float q_factor = q_scale / sqrtf(q_squares + 1e-6f);
    const float k_factor = 1.0f / sqrtf(k_squares + 1e-6f);
    float sum_k = 0, sum_q = 0;
    for (int j = group; j < keys; j += kGroups) {
      const float s = state[j * kColumns + lane];
      sum_k = fmaf(s, k[j], sum_k);
      sum_q = fmaf(s, q[j], sum_q);
    }
    with_k[group][lane] = sum_k;
    with_q[group][lane] = sum_q;
    __syncthreads();

    sum_k = sum_q = 0;
    for (int i = 0; i < kGroups; ++i) {
      sum_k += with_k[i][lane];
      sum_q += with_q[i][lane];
    }
    const float delta = beta * (v - decay * k_factor * sum_k);
    const float step = k_factor * delta;
    for (int j = group; j < keys; j += kGroups) {
      float& s = state[j * kColumns + lane];
      s = fmaf(k[j], step, s * decay);
    }
    if (group == 0 && inside) {
      const float o = decay * q_factor * sum_q + q_factor * k_factor * product * delta;
      static_cast<T*>(args.o)[((row0 + t) * args.value_heads + head) * values + column] =
          from_float<T>(o);
    }
  }
  if (!inside || args.keep_state != 0) return;
  for (int j = group; j < keys; j += kGroups) {
    saved[static_cast<int64_t>(j) * values] = state[j * kColumns + lane];
  }
}

}  // namespace

void launch_delta_recurrent(Stream& stream, const frt_gated_delta_args& args) {
  const auto blocks = static_cast<unsigned>(ceil_div(args.value_dim, kColumns));
  Grid grid{dim3(blocks, static_cast<unsigned>(args.value_heads),
                 static_cast<unsigned>(args.sequences.count)),
            dim3(kThreads)};
  const int64_t bytes = static_cast<int64_t>(args.key_dim) * (kColumns + 4) * 4;
  const int limit = stream.device().properties().shared_bytes_block - 4096;
  if (bytes > limit) {
    throw Error(FRT_ERR_UNSUPPORTED,
                "frt.gated_delta/1: key_dim " + std::to_string(args.key_dim) +
                    " needs more shared memory than this device has; at most " +
                    std::to_string(limit / ((kColumns + 4) * 4)));
  }
  grid.shared_bytes = static_cast<std::size_t>(bytes);
  if (args.dtype == FRT_DTYPE_F32) {
    launch(stream, grid, recurrent_kernel<float>, args);
  } else {
    launch(stream, grid, recurrent_kernel<bf16>, args);
  }
}

}  // namespace frt::cuda
