// SPDX-License-Identifier: Apache-2.0
// A mixture-of-experts block of 1 to 16 rows, bf16: bound by the bytes of the chosen experts.
//
//   enter   norm (recomputed by every block), router logits, the shared expert's scale and
//           silu(gate x) * (up x). A warp per weight row. All weights are known beforehand and on
//           their way to shared memory before the kernel in front has ended.
//   hidden  every block chooses the experts again from the logits (one warp per row) and computes
//           silu(gate x) * (up x) of its share of the (chosen expert, column) pairs, a warp per
//           pair, weights from memory to registers. It also adds delta to the residual: here nobody
//           reads it any more.
//   down    a warp per output column: the column's weights of every chosen expert pass through a
//           ring in shared memory. The ring is filled while `hidden` still runs: that kernel lets
//           this one start only after it has seen the logits, so they are complete here, too.
//
// An expert chosen by several rows is read once: assignments (row * chosen + j) with the same
// expert form a list, and a weight that has been widened serves up to kMembers of them. The sums of
// a row are formed in the same order whatever the other rows are.
//
// Qwen3.6-35B-A3B (inputs 2048, 256 experts of width 512, 8 chosen, one shared), one row, bf16:
// 5.2 MB + 33.6 MB + 18.9 MB = 57.7 MB, 12.4 us at 4.65 TB/s. To keep that rate a processor needs
// about 35 KB in flight: `hidden` has 64 KB in registers, `down` up to 144 KB in its ring.
#include <algorithm>

#include "launch.cuh"
#include "moe.hpp"
#include "moe_rows.cuh"
#include "numbers.cuh"

namespace frt::cuda {
namespace {

constexpr int kMaxRows = 16;
constexpr int kMaxAssignments = 512;  // one thread of a block each
constexpr int kFusedNormRows = 4;     // more rows: the norm is a kernel of its own
constexpr int kWarps = 16;            // of hidden and down
constexpr int kThreads = kWarps * 32;
constexpr int kMembers = 4;  // assignments of an expert that one pass over its weights serves

__device__ __forceinline__ void copy_async(void* shared, const void* global) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(
                   static_cast<uint32_t>(__cvta_generic_to_shared(shared))),
               "l"(global));
}
__device__ __forceinline__ void commit_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int kLeft>
__device__ __forceinline__ void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kLeft) : "memory");
}

// One warp copies one weight row to shared memory.
__device__ __forceinline__ void copy_row(uint8_t* target, const uint8_t* source, int64_t bytes) {
  for (int i = threadIdx.x % 32 * 16; i < bytes; i += 512) copy_async(target + i, source + i);
}

// f(integral constant of the format).
template <class Function>
__device__ __forceinline__ void with_format(frt_weight_format format, Function&& function) {
  switch (format) {
    case FRT_WEIGHT_F32:
      return function.template operator()<MoeFormat::kF32>();
    case FRT_WEIGHT_BF16:
      return function.template operator()<MoeFormat::kBf16>();
    case FRT_WEIGHT_NVFP4:
      return function.template operator()<MoeFormat::kFp4>();
    default:
      return function.template operator()<MoeFormat::kFp8>();
  }
}

// This lane's part of the products of a weight row in shared memory with `kCount` rows of x.
template <MoeFormat kFormat, int kCount>
__device__ __forceinline__ void shared_dots(const MoeMatrix& matrix, const MoeRow& row,
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

// ---- enter -----------------------------------------------------------------------------------

struct EnterArgs {
  MoeNorm norm;  // residual NULL: x is there already
  bf16* x;
  int32_t rows, inputs, experts, shared_width;
  const int32_t* row_count;
  MoeMatrix router, gate, up, scale;
  float* logits;
  bf16* shared_hidden;
  float* shared_scale;
  int32_t line_bytes;
};

// A line is one weight row: gate and up of the shared expert in turn, the router, the scale.
struct Line {
  const MoeMatrix* matrix;
  int row;
};
__device__ __forceinline__ Line line_of(const EnterArgs& args, int line) {
  if (line < 2 * args.shared_width) return {line % 2 == 0 ? &args.gate : &args.up, line / 2};
  line -= 2 * args.shared_width;
  if (line < args.experts) return {&args.router, line};
  line -= args.experts;
  return {args.shared_width > 0 && line == 0 ? &args.scale : nullptr, 0};
}

// x = norm(residual + delta) of all rows into shared memory; block r writes row r to memory, too.
__device__ __forceinline__ void norm_to_shared(const EnterArgs& args, int rows, bf16* x,
                                               float (*segments)[kNormSegments]) {
  const int warps = blockDim.x / 32;
  for (int task = threadIdx.x / 32; task < rows * kNormSegments; task += warps) {
    const int row = task / kNormSegments, segment = task % kNormSegments;
    const float squares =
        segment_squares(args.norm, static_cast<int64_t>(row) * args.inputs, args.inputs, segment);
    if (threadIdx.x % 32 == 0) segments[row][segment] = squares;
  }
  __syncthreads();
  for (int row = 0; row < rows; ++row) {
    const int64_t first = static_cast<int64_t>(row) * args.inputs;
    const float factor = norm_factor(segments[row], args.inputs, args.norm.epsilon);
    for (int k = threadIdx.x * 8; k < args.inputs; k += blockDim.x * 8) {
      float values[8];
      load_residual(args.norm, first + k, values);
      const uint4 normed = normed_eight(args.norm, k, factor, values);
      *reinterpret_cast<uint4*>(x + first + k) = normed;
      if (blockIdx.x == row) *reinterpret_cast<uint4*>(args.x + first + k) = normed;
    }
  }
}

__global__ void __launch_bounds__(kThreads, 2)
    enter_kernel(const __grid_constant__ EnterArgs args) {
  extern __shared__ uint4 dynamic[];
  __shared__ float segments[kFusedNormRows][kNormSegments];
  __shared__ float results[kWarps][kMaxRows];
  pdl_trigger();
  const int warps = blockDim.x / 32, warp = threadIdx.x / 32;
  auto* lines = reinterpret_cast<uint8_t*>(dynamic);
  auto* x = reinterpret_cast<bf16*>(lines + warps * args.line_bytes);  // with a norm

  const Line line = line_of(args, blockIdx.x * warps + warp);
  MoeRow weights{};
  if (line.matrix) {
    weights = moe_row(*line.matrix, 0, line.row);
    copy_row(lines + warp * args.line_bytes, weights.data, line.matrix->row_bytes);
  }
  commit_copies();
  pdl_wait();
  const int rows = active_rows(args.rows, args.row_count);
  const bf16* source = args.x;
  if (args.norm.residual) {
    norm_to_shared(args, rows, x, segments);
    source = x;
  }
  wait_copies<0>();
  __syncthreads();
  if (line.matrix) {
    const MoeMatrix& matrix = *line.matrix;
    with_format(matrix.format, [&]<MoeFormat kFormat>() {
      for (int row = 0; row < rows; ++row) {
        const bf16* const one[1] = {source + static_cast<int64_t>(row) * args.inputs};
        float sums[1];
        shared_dots<kFormat>(matrix, weights, lines + warp * args.line_bytes, one, 1, sums);
        const float sum = warp_sum(sums[0]) * weights.factor;
        if (threadIdx.x % 32 == 0) results[warp][row] = sum;
      }
    });
  }
  __syncthreads();
  for (int task = threadIdx.x; task < warps * rows; task += blockDim.x) {
    const int index = task % warps, row = task / warps;
    const Line done = line_of(args, blockIdx.x * warps + index);
    const float value = results[index][row];
    if (done.matrix == &args.gate) {
      const int64_t at = static_cast<int64_t>(row) * args.shared_width + done.row;
      args.shared_hidden[at] = from_float<bf16>(gated_bf16(value, results[index + 1][row]));
    } else if (done.matrix == &args.router) {
      args.logits[static_cast<int64_t>(row) * args.experts + done.row] = value;
    } else if (done.matrix == &args.scale) {
      args.shared_scale[row] = value;
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
  int leaders[kMaxAssignments];  // the first assignment of every expert in use
  int counts[kWarps];
  int leader_count;
};

__device__ __forceinline__ void choose(const ChosenArgs& args, int rows, Chosen& chosen) {
  const int assignments = rows * args.chosen;
  if (args.logits) {
    const int row = threadIdx.x / 32;
    if (row < rows) {
      const float* logits = args.logits + static_cast<int64_t>(row) * args.experts;
      choose_experts(logits, args.experts, args.chosen, args.normalise,
                     chosen.ids + row * args.chosen, chosen.weights + row * args.chosen);
    }
  } else if (threadIdx.x < assignments) {
    chosen.ids[threadIdx.x] = args.ids[threadIdx.x];
    chosen.weights[threadIdx.x] = args.weights[threadIdx.x];
  }
}

// Links the assignments of each expert. Between two barriers of the caller's; the second is in it.
__device__ __forceinline__ void link(int assignments, int experts, Chosen& chosen) {
  const int a = threadIdx.x, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int id = a < assignments ? chosen.ids[a] : -1;
  bool leader = id >= 0 && id < experts;
  if (leader) {
    for (int b = 0; b < a && leader; ++b) leader = chosen.ids[b] != id;
    int b = a + 1;
    while (b < assignments && chosen.ids[b] != id) ++b;
    chosen.next[a] = b < assignments ? b : -1;
  }
  const unsigned ballot = __ballot_sync(~0u, leader);
  if (lane == 0) chosen.counts[warp] = __popc(ballot);
  __syncthreads();
  int before = 0, total = 0;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) {
    if (w < warp) before += chosen.counts[w];
    total += chosen.counts[w];
  }
  if (leader) chosen.leaders[before + __popc(ballot & ((1u << lane) - 1u))] = a;
  if (threadIdx.x == 0) chosen.leader_count = total;
  __syncthreads();
}

// ---- hidden ----------------------------------------------------------------------------------

struct HiddenArgs {
  ChosenArgs chosen;
  MoeNorm norm;  // residual != NULL: += delta
  const bf16* x;
  int32_t inputs, width;
  MoeMatrix gate, up;
  bf16* hidden;  // (rows * chosen, width)
};

// What one lane loads of a weight row at a time, and how often before it uses the first.
template <MoeFormat kFormat>
struct Portion;
template <>
struct Portion<MoeFormat::kF32> {
  static constexpr int kValues = 8, kBatch = 2;
  uint4 data[2];
};
template <>
struct Portion<MoeFormat::kBf16> {
  static constexpr int kValues = 8, kBatch = 4;
  uint4 data[1];
};
template <>
struct Portion<MoeFormat::kFp8> {
  static constexpr int kValues = 16, kBatch = 4;
  uint4 data[1];
  float scale;
};
template <>
struct Portion<MoeFormat::kFp4> {
  static constexpr int kValues = 32, kBatch = 2;
  uint4 data[1];
  uint32_t scales;  // two e4m3
};

template <MoeFormat kFormat>
__device__ __forceinline__ void load_portion(const MoeMatrix& matrix, const MoeRow& row, int col,
                                             Portion<kFormat>& portion) {
  constexpr int kBytes = static_cast<int>(sizeof(portion.data));
  const bool inside = col < matrix.cols;
  const uint8_t* source = row.data + static_cast<int64_t>(col / Portion<kFormat>::kValues) * kBytes;
#pragma unroll
  for (int i = 0; i < kBytes / 16; ++i) {
    portion.data[i] = inside ? load_stream(source + i * 16) : make_uint4(0, 0, 0, 0);
  }
  if constexpr (kFormat == MoeFormat::kFp8) {
    portion.scale = matrix.format == FRT_WEIGHT_FP8_BLOCK && inside
                        ? moe_scale(matrix, row.scale, col >> matrix.block_shift)
                        : 1.0f;
  } else if constexpr (kFormat == MoeFormat::kFp4) {
    portion.scales = inside ? *reinterpret_cast<const uint16_t*>(row.scale + col / 16) : 0u;
  }
}

// The i-th eight of the portion.
template <MoeFormat kFormat>
__device__ __forceinline__ void widen_portion(const Portion<kFormat>& portion, int i,
                                              float (&values)[8]) {
  if constexpr (kFormat == MoeFormat::kF32) {
    const uint32_t words[8] = {portion.data[0].x, portion.data[0].y, portion.data[0].z,
                               portion.data[0].w, portion.data[1].x, portion.data[1].y,
                               portion.data[1].z, portion.data[1].w};
#pragma unroll
    for (int w = 0; w < 8; ++w) values[w] = __uint_as_float(words[w]);
  } else if constexpr (kFormat == MoeFormat::kBf16) {
    widen_bf16(portion.data[0], values);
  } else if constexpr (kFormat == MoeFormat::kFp8) {
    widen_fp8(i == 0 ? make_uint2(portion.data[0].x, portion.data[0].y)
                     : make_uint2(portion.data[0].z, portion.data[0].w),
              values);
  } else {
    const uint32_t words[4] = {portion.data[0].x, portion.data[0].y, portion.data[0].z,
                               portion.data[0].w};
    widen_fp4(words[i], values);
  }
}

// The local scale of the i-th pair of eights.
template <MoeFormat kFormat>
__device__ __forceinline__ float portion_scale(const Portion<kFormat>& portion, int i) {
  if constexpr (kFormat == MoeFormat::kFp8) {
    return portion.scale;
  } else if constexpr (kFormat == MoeFormat::kFp4) {
    return e4m3_float(static_cast<uint8_t>(portion.scales >> (8 * i))) * kFp4Unit;
  } else {
    return 1.0f;
  }
}

// Where eight `q` of a row of x lies in shared memory: the eights that the lanes of a warp use
// together are neighbours.
template <MoeFormat kFormat>
__device__ __forceinline__ int placed_eight(int q) {
  constexpr int kEights = Portion<kFormat>::kValues / 8;
  const int within = q % (32 * kEights);
  return q - within + within % kEights * 32 + within / kEights;
}

// Products of one gate row and one up row with the rows of x of `count` assignments.
template <MoeFormat kFormat, int kMembers>
__device__ __forceinline__ void pair_dots(const HiddenArgs& args, const MoeRow& gate,
                                          const MoeRow& up, const uint4* x,
                                          const int (&rows)[kMembers], int count,
                                          float (&sums)[2][kMembers]) {
  using Part = Portion<kFormat>;
  constexpr int kEights = Part::kValues / 8;
  constexpr int kGroup = kEights < 2 ? 1 : 2;  // eights that share a local scale
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int m = 0; m < kMembers; ++m) sums[0][m] = sums[1][m] = 0.0f;
  constexpr int kStep = 32 * Part::kValues;
  for (int first = 0; first < args.inputs; first += Part::kBatch * kStep) {
    Part parts[2][Part::kBatch];
#pragma unroll
    for (int b = 0; b < Part::kBatch; ++b) {
      const int col = first + b * kStep + lane * Part::kValues;
      load_portion<kFormat>(args.gate, gate, col, parts[0][b]);
      load_portion<kFormat>(args.up, up, col, parts[1][b]);
    }
#pragma unroll
    for (int b = 0; b < Part::kBatch; ++b) {
      if (first + b * kStep < args.inputs) {
        const int eights = (first + b * kStep) / 8;
#pragma unroll
        for (int group = 0; group < kEights / kGroup; ++group) {
          float partial[2][kMembers] = {};
#pragma unroll
          for (int i = group * kGroup; i < (group + 1) * kGroup; ++i) {
            float weights[2][8];
            widen_portion(parts[0][b], i, weights[0]);
            widen_portion(parts[1][b], i, weights[1]);
#pragma unroll
            for (int m = 0; m < kMembers; ++m) {
              if (m < count) {
                float values[8];
                widen_bf16(x[rows[m] + eights + i * 32 + lane], values);
#pragma unroll
                for (int v = 0; v < 8; ++v) {
                  partial[0][m] = fmaf(weights[0][v], values[v], partial[0][m]);
                  partial[1][m] = fmaf(weights[1][v], values[v], partial[1][m]);
                }
              }
            }
          }
          const float gate_scale = portion_scale(parts[0][b], group);
          const float up_scale = portion_scale(parts[1][b], group);
#pragma unroll
          for (int m = 0; m < kMembers; ++m) {
            sums[0][m] = fmaf(partial[0][m], gate_scale, sums[0][m]);
            sums[1][m] = fmaf(partial[1][m], up_scale, sums[1][m]);
          }
        }
      }
    }
  }
}

// All assignments of one expert at one column of its width.
template <MoeFormat kFormat, int kMembers>
__device__ __forceinline__ void hidden_column(const HiddenArgs& args, const Chosen& chosen,
                                              const uint4* x, int row_eights, int leader,
                                              int column) {
  const int expert = chosen.ids[leader];
  const MoeRow gate = moe_row(args.gate, expert, column);
  const MoeRow up = moe_row(args.up, expert, column);
  for (int a = leader; a >= 0;) {
    int rows[kMembers];        // where their rows of x begin
    int mine = -1, count = 0;  // lane m stores member m
#pragma unroll
    for (int m = 0; m < kMembers; ++m) {
      rows[m] = (a >= 0 ? a / args.chosen.chosen : 0) * row_eights;
      if (a >= 0) {
        if (threadIdx.x % 32 == m) mine = a;
        ++count;
        a = chosen.next[a];
      }
    }
    float sums[2][kMembers];
    pair_dots<kFormat, kMembers>(args, gate, up, x, rows, count, sums);
#pragma unroll
    for (int m = 0; m < kMembers; ++m) {
      if (m < count) {
        const float g = warp_sum(sums[0][m]) * gate.factor;
        const float u = warp_sum(sums[1][m]) * up.factor;
        if (threadIdx.x % 32 == m) {
          args.hidden[static_cast<int64_t>(mine) * args.width + column] =
              from_float<bf16>(gated_bf16(g, u));
        }
      }
    }
  }
}

template <MoeFormat kFormat, int kMembers>
__global__ void __launch_bounds__(kThreads, kMembers == 1 ? 2 : 1)
    hidden_kernel(const __grid_constant__ HiddenArgs args) {
  extern __shared__ uint4 x[];  // (rows, row_eights)
  __shared__ Chosen chosen;
  pdl_wait();
  pdl_trigger();  // only now: `down` reads the logits before it waits
  const int rows = active_rows(args.chosen.rows, args.chosen.row_count);
  const int assignments = rows * args.chosen.chosen;
  choose(args.chosen, rows, chosen);

  constexpr int kStepEights = 4 * Portion<kFormat>::kValues;
  const int input_eights = args.inputs / 8;
  const int row_eights = (input_eights + kStepEights - 1) / kStepEights * kStepEights;
  for (int i = threadIdx.x; i < rows * row_eights; i += kThreads) {
    const int row = i / row_eights, q = i % row_eights;
    x[row * row_eights + placed_eight<kFormat>(q)] =
        q < input_eights
            ? reinterpret_cast<const uint4*>(args.x)[static_cast<int64_t>(row) * input_eights + q]
            : make_uint4(0, 0, 0, 0);
  }
  if (args.norm.residual && args.norm.delta) {
    const int stride = gridDim.x * kThreads;
    for (int i = blockIdx.x * kThreads + threadIdx.x; i < rows * input_eights; i += stride) {
      float values[8];
      load_residual(args.norm, static_cast<int64_t>(i) * 8, values);
      store_residual(args.norm, static_cast<int64_t>(i) * 8, values);
    }
  }
  __syncthreads();
  if (args.chosen.logits && blockIdx.x == gridDim.x - 1 && threadIdx.x < assignments) {
    args.chosen.ids[threadIdx.x] = chosen.ids[threadIdx.x];
    args.chosen.weights[threadIdx.x] = chosen.weights[threadIdx.x];
  }
  link(assignments, args.chosen.experts, chosen);

  const int64_t pairs = static_cast<int64_t>(chosen.leader_count) * args.width;
  const int64_t end = pairs * (blockIdx.x + 1) / gridDim.x;
  for (int64_t pair = pairs * blockIdx.x / gridDim.x + threadIdx.x / 32; pair < end;
       pair += kWarps) {
    hidden_column<kFormat, kMembers>(args, chosen, x, row_eights, chosen.leaders[pair / args.width],
                                     static_cast<int>(pair % args.width));
  }
}

// ---- down --------------------------------------------------------------------------------------

struct DownArgs {
  ChosenArgs chosen;
  int32_t inputs, width, shared_width;
  MoeMatrix down, shared_down;
  const bf16* hidden;         // (rows * chosen, width)
  const bf16* shared_hidden;  // (rows, shared width)
  const float* shared_scale;  // (rows)
  bf16* y;                    // (rows, inputs)
  int32_t line_bytes;         // of one stage of a warp's ring
  bool copy_hidden;           // the rows of hidden fit into shared memory
};

// Lane sums that wait to be added over the warp, so that four additions overlap.
struct Pending {
  float sums[4];
  float* targets[4];
  int count = 0;

  __device__ __forceinline__ void push(float sum, float* target) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (i == count) {
        sums[i] = sum;
        targets[i] = target;
      }
    }
    if (++count == 4) flush();
  }
  __device__ __forceinline__ void flush() {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (i >= count) sums[i] = 0.0f;
      sums[i] = warp_sum(sums[i]);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (i < count && threadIdx.x % 32 == 0) *targets[i] = sums[i];
    }
    count = 0;
  }
};

template <int kStages>
__global__ void __launch_bounds__(kThreads, 2) down_kernel(const __grid_constant__ DownArgs args) {
  extern __shared__ uint4 dynamic[];
  __shared__ Chosen chosen;
  pdl_trigger();
  const int warp = threadIdx.x / 32;
  const int column = blockIdx.x * kWarps + warp;
  const bool busy = column < args.inputs;
  const int rows = active_rows(args.chosen.rows, args.chosen.row_count);
  const int assignments = rows * args.chosen.chosen;
  auto* ring = reinterpret_cast<uint8_t*>(dynamic) + warp * kStages * args.line_bytes;
  // results[assignment][warp]; the shared expert's rows come after the assignments.
  auto* results = reinterpret_cast<float*>(reinterpret_cast<uint8_t*>(dynamic) +
                                           kWarps * kStages * args.line_bytes);
  choose(args.chosen, rows, chosen);
  __syncthreads();
  link(assignments, args.chosen.experts, chosen);

  // Item 0 is the shared expert if there is one; the others are the experts in use.
  const int first = args.shared_width > 0 ? 1 : 0;
  const int items = first + chosen.leader_count;
  const auto item_row = [&](int item) {
    return item < first ? moe_row(args.shared_down, 0, column)
                        : moe_row(args.down, chosen.ids[chosen.leaders[item - first]], column);
  };
  const auto fetch = [&](int item) {
    if (busy && item < items) {
      const int64_t bytes = item < first ? args.shared_down.row_bytes : args.down.row_bytes;
      copy_row(ring + item % kStages * args.line_bytes, item_row(item).data, bytes);
    }
    commit_copies();
  };
  for (int item = 0; item < kStages; ++item) fetch(item);
  pdl_wait();
  const bf16 *hidden = args.hidden, *shared_hidden = args.shared_hidden;
  if (args.copy_hidden) {
    const int count = assignments * args.width / 8, shared = rows * args.shared_width / 8;
    auto* copies = reinterpret_cast<uint4*>(results + (assignments + rows) * kWarps);
    for (int i = threadIdx.x; i < count + shared; i += kThreads) {
      copies[i] = i < count ? reinterpret_cast<const uint4*>(hidden)[i]
                            : reinterpret_cast<const uint4*>(shared_hidden)[i - count];
    }
    __syncthreads();
    hidden = reinterpret_cast<const bf16*>(copies);
    shared_hidden = hidden + count * 8;
  }

  Pending pending;
  for (int item = 0; item < items; ++item) {
    wait_copies<kStages - 1>();
    __syncwarp();
    const uint8_t* line = ring + item % kStages * args.line_bytes;
    if (busy && item < first) {
      const MoeRow weights = item_row(item);
      with_format(args.shared_down.format, [&]<MoeFormat kFormat>() {
        for (int row = 0; row < rows; ++row) {
          const bf16* const x[1] = {shared_hidden + static_cast<int64_t>(row) * args.shared_width};
          float sums[1];
          shared_dots<kFormat>(args.shared_down, weights, line, x, 1, sums);
          pending.push(sums[0] * weights.factor, results + (assignments + row) * kWarps + warp);
        }
      });
    } else if (busy) {
      const MoeRow weights = item_row(item);
      with_format(args.down.format, [&]<MoeFormat kFormat>() {
        for (int a = chosen.leaders[item - first]; a >= 0; a = chosen.next[a]) {
          const bf16* const x[1] = {hidden + static_cast<int64_t>(a) * args.width};
          float sums[1];
          shared_dots<kFormat>(args.down, weights, line, x, 1, sums);
          pending.push(sums[0] * weights.factor, results + a * kWarps + warp);
        }
      });
    }
    __syncwarp();
    fetch(item + kStages);
  }
  pending.flush();
  __syncthreads();

  for (int task = threadIdx.x; task < rows * kWarps; task += kThreads) {
    const int row = task / kWarps, index = task % kWarps;
    const int output = blockIdx.x * kWarps + index;
    if (output >= args.inputs) continue;
    float sum = 0.0f;
    for (int a = row * args.chosen.chosen; a < (row + 1) * args.chosen.chosen; ++a) {
      const bool valid = chosen.ids[a] >= 0 && chosen.ids[a] < args.chosen.experts;
      if (valid) sum = fmaf(chosen.weights[a], results[a * kWarps + index], sum);
    }
    if (first > 0) {
      const float factor = sigmoid(args.shared_scale[row]);
      sum = fmaf(factor, results[(assignments + row) * kWarps + index], sum);
    }
    args.y[static_cast<int64_t>(row) * args.inputs + output] = from_float<bf16>(sum);
  }
}

// ---- host --------------------------------------------------------------------------------------

bool aligned(const void* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer) % 16 == 0;
}

bool matrices_fit(const MoeBlock& block) {
  if (block.gate.format != block.up.format) return false;
  bool fit = true;
  for (const MoeMatrix* matrix : {&block.gate, &block.up, &block.down}) {
    fit &= reads_in_portions(*matrix);
  }
  if (!block.routed) fit &= reads_in_portions(block.router);
  if (!block.shared) return fit;
  for (const MoeMatrix* matrix :
       {&block.shared_gate, &block.shared_up, &block.shared_down, &block.shared_scale}) {
    fit &= reads_in_portions(*matrix);
  }
  return fit;
}

bool pointers_fit(const frt_moe_block_args& args) {
  return aligned(args.x) && aligned(args.residual) && aligned(args.delta) &&
         aligned(args.norm_weight) && aligned(args.shared_hidden);
}

int values_per_step(MoeFormat format) {
  return format == MoeFormat::kFp4 ? 1024 : format == MoeFormat::kFp8 ? 512 : 256;
}

// Shared memory of the three kernels.
struct Plan {
  int enter_warps, enter_blocks, enter_line, down_line, stages;
  bool copy_hidden;
  std::size_t enter_bytes, hidden_bytes, down_bytes;
};

// Hidden rows are copied to shared memory up to so many bytes.
constexpr int64_t kCopiedHidden = 40 * 1024;

// Dynamic shared memory beside the static one: more than 48 KB together need the dynamic part alone
// to say so.
std::size_t beside_static(std::size_t bytes) {
  constexpr std::size_t kPlain = 48 * 1024;
  return bytes <= kPlain && bytes + sizeof(Chosen) + 1024 > kPlain ? kPlain + 16 : bytes;
}

std::size_t down_shared(const Plan& plan, const MoeBlock& block, int stages) {
  const auto results = static_cast<std::size_t>(block.args.rows) *
                       static_cast<std::size_t>(block.args.chosen + 1) * kWarps * sizeof(float);
  const int64_t copies = block.args.rows * (static_cast<int64_t>(block.args.chosen) * block.width +
                                            block.shared_width);
  return static_cast<std::size_t>(kWarps * stages * plan.down_line) + results +
         (plan.copy_hidden ? static_cast<std::size_t>(copies * 2) : 0);
}

Plan make_plan(const Device& device, const MoeBlock& block, bool fused_norm) {
  const DeviceProperties& properties = device.properties();
  Plan plan{};
  const auto line = [](int64_t bytes) { return static_cast<int>(ceil_div(bytes, 16) * 16); };
  if (!block.routed) {
    const int lines = block.args.experts + (block.shared ? 2 * block.shared_width + 1 : 0);
    const auto share = static_cast<int>(ceil_div(lines, properties.multiprocessors));
    plan.enter_warps = std::clamp(share + share % 2, kNormSegments, kWarps);
    plan.enter_blocks = static_cast<int>(
        std::max<int64_t>(ceil_div(lines, plan.enter_warps), fused_norm ? block.args.rows : 1));
    plan.enter_line = line(std::max({block.router.row_bytes, block.shared_gate.row_bytes,
                                     block.shared_up.row_bytes, block.shared_scale.row_bytes}));
    const int64_t x = fused_norm ? static_cast<int64_t>(block.args.rows) * block.inputs * 2 : 0;
    plan.enter_bytes =
        static_cast<std::size_t>(static_cast<int64_t>(plan.enter_warps) * plan.enter_line + x);
  }
  const int step = values_per_step(moe_format(block.gate.format));
  plan.hidden_bytes =
      static_cast<std::size_t>(block.args.rows * ceil_div(block.inputs, step) * step * 2);
  plan.down_line = line(std::max(block.down.row_bytes, block.shared_down.row_bytes));
  plan.copy_hidden =
      block.args.rows *
          (static_cast<int64_t>(block.args.chosen) * block.width + block.shared_width) * 2 <=
      kCopiedHidden;
  plan.stages = 9;
  const auto limit = static_cast<std::size_t>(properties.shared_bytes_block);
  if (down_shared(plan, block, plan.stages) + sizeof(Chosen) > limit) plan.stages = 4;
  plan.down_bytes = beside_static(down_shared(plan, block, plan.stages));
  plan.enter_bytes = beside_static(plan.enter_bytes);
  plan.hidden_bytes = beside_static(plan.hidden_bytes);
  return plan;
}

void launch_enter(Stream& stream, const MoeBlock& block, const Plan& plan, const MoeNorm& norm) {
  EnterArgs enter{};
  enter.norm = norm;
  enter.x = static_cast<bf16*>(block.args.x);
  enter.rows = block.args.rows;
  enter.inputs = block.inputs;
  enter.experts = block.args.experts;
  enter.shared_width = block.shared_width;
  enter.row_count = block.args.row_count;
  enter.router = block.router;
  enter.gate = block.shared_gate;
  enter.up = block.shared_up;
  enter.scale = block.shared_scale;
  enter.logits = block.args.logits;
  enter.shared_hidden = static_cast<bf16*>(block.args.shared_hidden);
  enter.shared_scale = block.args.shared_scale;
  enter.line_bytes = plan.enter_line;
  launch(stream,
         {dim3(static_cast<unsigned>(plan.enter_blocks)),
          dim3(static_cast<unsigned>(plan.enter_warps * 32)), plan.enter_bytes},
         enter_kernel, enter);
}

template <int kMembers>
void launch_hidden(Stream& stream, const HiddenArgs& args, std::size_t bytes) {
  const auto blocks = static_cast<unsigned>(stream.device().properties().multiprocessors);
  const Grid grid{dim3(blocks), dim3(kThreads), bytes};
  switch (moe_format(args.gate.format)) {
    case MoeFormat::kF32:
      return launch(stream, grid, hidden_kernel<MoeFormat::kF32, kMembers>, args);
    case MoeFormat::kBf16:
      return launch(stream, grid, hidden_kernel<MoeFormat::kBf16, kMembers>, args);
    case MoeFormat::kFp8:
      return launch(stream, grid, hidden_kernel<MoeFormat::kFp8, kMembers>, args);
    case MoeFormat::kFp4:
      return launch(stream, grid, hidden_kernel<MoeFormat::kFp4, kMembers>, args);
  }
}

}  // namespace

bool moe_decode(Stream& stream, const MoeBlock& block) {
  const frt_moe_block_args& args = block.args;
  if (args.dtype != FRT_DTYPE_BF16 || args.rows > kMaxRows) return false;
  if (args.rows * static_cast<int64_t>(args.chosen) > kMaxAssignments) return false;
  if (!matrices_fit(block) || !pointers_fit(args)) return false;
  const bool fused_norm = args.residual && args.rows <= kFusedNormRows;
  const Plan plan = make_plan(stream.device(), block, fused_norm);
  const auto limit = static_cast<std::size_t>(stream.device().properties().shared_bytes_block);
  if (std::max({plan.enter_bytes, plan.hidden_bytes, plan.down_bytes}) + sizeof(Chosen) > limit) {
    return false;
  }
  auto* hidden = static_cast<bf16*>(stream.scratch(
      static_cast<std::size_t>(static_cast<int64_t>(args.rows) * args.chosen * block.width * 2)));
  const MoeNorm no_norm{};
  const MoeNorm norm{args.residual, args.delta, args.norm_weight, args.epsilon,
                     args.residual_dtype == FRT_DTYPE_F32};
  if (args.residual && !fused_norm) launch_moe_norm(stream, block, false);
  if (!block.routed) launch_enter(stream, block, plan, fused_norm ? norm : no_norm);

  const ChosenArgs chosen{args.logits,  args.ids,    args.weights,        args.rows,
                          args.experts, args.chosen, args.normalise != 0, args.row_count};
  HiddenArgs first{chosen,
                   fused_norm ? norm : no_norm,
                   static_cast<const bf16*>(args.x),
                   block.inputs,
                   block.width,
                   block.gate,
                   block.up,
                   hidden};
  if (args.rows == 1) {
    launch_hidden<1>(stream, first, plan.hidden_bytes);
  } else {
    launch_hidden<kMembers>(stream, first, plan.hidden_bytes);
  }
  const DownArgs second{chosen,
                        block.inputs,
                        block.width,
                        block.shared_width,
                        block.down,
                        block.shared_down,
                        hidden,
                        static_cast<const bf16*>(args.shared_hidden),
                        args.shared_scale,
                        static_cast<bf16*>(args.y),
                        plan.down_line,
                        plan.copy_hidden};
  const Grid grid{dim3(static_cast<unsigned>(ceil_div(block.inputs, kWarps))), dim3(kThreads),
                  plan.down_bytes};
  if (plan.stages == 9) {
    launch(stream, grid, down_kernel<9>, second);
  } else {
    launch(stream, grid, down_kernel<4>, second);
  }
  return true;
}

}  // namespace frt::cuda
