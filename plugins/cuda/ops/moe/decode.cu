// SPDX-License-Identifier: Apache-2.0
// A mixture-of-experts block of 1 to 16 rows, bf16: bound by the bytes of the selected experts.
//
//   enter   norm (recomputed by every block), router logits, the shared expert's scale and
//           silu(gate x) * (up x). A warp per weight row. All weights are known beforehand and on
//           their way to shared memory before the kernel in front has ended.
//   hidden  every block selects the experts again from the logits (one warp per row) and computes
//           silu(gate x) * (up x) of its share of the selected experts' columns.
//   down    the selected experts' and the shared expert's outputs, summed.
//
// The last two are in decode_experts.cu. An expert selected by several rows is read once:
// assignments (row * top_k + j) with the same expert form a list, and one pass over the weights
// serves eight of them. The sums of a row are formed in the same order whatever the other rows are.
//
// Qwen3.6-35B-A3B (inputs 2048, 256 experts of width 512, 8 selected, one shared), one row, bf16:
// 5.2 MB + 33.6 MB + 18.9 MB = 57.7 MB, 12.4 us at 4.65 TB/s. To keep that rate an SM needs
// about 35 KB in flight: `hidden` has 64 KB under way, `down` 96 KB.
#include <algorithm>

#include "../common/async_copy.cuh"
#include "../common/pieces.hpp"
#include "decode.cuh"

namespace frt::cuda {
namespace {

constexpr int kFusedNormRows = 4;  // more rows: the norm is a kernel of its own
constexpr int kEnterWarps = 16;    // at most
constexpr int kEnterRows = 4;      // of x that a pass over a weight row serves

// One warp copies one weight row to shared memory.
__device__ __forceinline__ void copy_row(uint8_t* target, const uint8_t* source, int64_t bytes) {
  for (int i = threadIdx.x % 32 * 16; i < bytes; i += 512) {
    copy_async(shared_address(target + i), source + i);
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

__global__ void __launch_bounds__(kEnterWarps * 32, 2)
    enter_kernel(const __grid_constant__ EnterArgs args) {
  extern __shared__ uint4 dynamic[];
  __shared__ float segments[kFusedNormRows][kNormSegments];
  __shared__ float results[kEnterWarps][kDecodeRows];
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
  copies_commit();
  pdl_wait();
  const int rows = active_rows(args.rows, args.row_count);
  const bf16* source = args.x;
  if (args.norm.residual) {
    norm_to_shared(args, rows, x, segments);
    source = x;
  }
  copies_wait<0>();
  __syncthreads();
  if (line.matrix) {
    const MoeMatrix& matrix = *line.matrix;
    with_format(matrix.type, [&]<MoeFormat kFormat>() {
      for (int row = 0; row < rows; row += kEnterRows) {
        const bf16* some[kEnterRows];
#pragma unroll
        for (int m = 0; m < kEnterRows; ++m) {
          some[m] = source + static_cast<int64_t>(min(row + m, rows - 1)) * args.inputs;
        }
        const int count = min(kEnterRows, rows - row);
        float sums[kEnterRows];
        row_dots<kFormat>(matrix, weights, lines + warp * args.line_bytes, some, count, sums);
#pragma unroll
        for (int m = 0; m < kEnterRows; ++m) {
          const float sum = warp_sum(sums[m]) * weights.factor;
          if (threadIdx.x % 32 == 0 && m < count) results[warp][row + m] = sum;
        }
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

// ---- host --------------------------------------------------------------------------------------

bool fits(const MoeBlock& block) {
  const frt_moe_block_args& args = block.args;
  if (args.dtype != FRT_DTYPE_BF16 || args.rows > kDecodeRows ||
      args.rows * static_cast<int64_t>(args.experts_per_token) > kMaxAssignments) {
    return false;
  }
  bool good = streams(block.gate) && streams(block.up) && streams(block.down) &&
              moe_format(block.gate.type) == moe_format(block.up.type);
  if (!block.routed) good &= reads_in_portions(block.router);
  if (block.shared) {
    for (const MoeMatrix* matrix :
         {&block.shared_gate, &block.shared_up, &block.shared_down, &block.shared_scale}) {
      good &= reads_in_portions(*matrix);
    }
  }
  return good && aligned(args.x) && aligned(args.residual) && aligned(args.delta) &&
         aligned(args.norm_weight) && aligned(args.shared_hidden);
}

bool fuses_norm(const MoeBlock& block) {
  return block.args.residual && block.args.rows <= kFusedNormRows;
}

struct EnterPlan {
  int warps = 0, blocks = 0, line = 0;
  std::size_t bytes = 0;
};

EnterPlan plan_enter(const Device& device, const MoeBlock& block, bool fused_norm) {
  EnterPlan plan{};
  if (block.routed) return plan;
  const int lines = block.args.experts + (block.shared ? 2 * block.shared_width + 1 : 0);
  const auto share = static_cast<int>(ceil_div(lines, device.properties().multiprocessors));
  plan.warps = std::clamp(share + share % 2, kNormSegments, kEnterWarps);
  plan.blocks = static_cast<int>(
      std::max<int64_t>(ceil_div(lines, plan.warps), fused_norm ? block.args.rows : 1));
  const int64_t bytes = std::max({block.router.row_bytes, block.shared_gate.row_bytes,
                                  block.shared_up.row_bytes, block.shared_scale.row_bytes});
  plan.line = static_cast<int>(ceil_div(bytes, 16) * 16);
  const int64_t x = fused_norm ? static_cast<int64_t>(block.args.rows) * block.inputs * 2 : 0;
  plan.bytes =
      beside_static(static_cast<std::size_t>(static_cast<int64_t>(plan.warps) * plan.line + x));
  return plan;
}

void launch_enter(Stream& stream, const MoeBlock& block, const EnterPlan& plan,
                  const MoeNorm& norm) {
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
  enter.line_bytes = plan.line;
  launch(stream,
         {dim3(static_cast<unsigned>(plan.blocks)), dim3(static_cast<unsigned>(plan.warps * 32)),
          plan.bytes},
         enter_kernel, enter);
}

}  // namespace

bool supports_moe_decode(Device& device, MoeBlock& block) {
  if (!fits(block)) return false;
  const EnterPlan enter = plan_enter(device, block, fuses_norm(block));
  const ExpertPlan experts = plan_experts(block);
  return std::max({enter.bytes, experts.hidden_bytes, experts.down_bytes}) + sizeof(TopK) <=
         static_cast<std::size_t>(device.properties().shared_bytes_block);
}

void launch_moe_decode(Stream& stream, MoeBlock& block) {
  const frt_moe_block_args& args = block.args;
  const bool fused_norm = fuses_norm(block);
  const EnterPlan enter = plan_enter(stream.device(), block, fused_norm);
  const ExpertPlan experts = plan_experts(block);
  auto* hidden_rows = static_cast<bf16*>(stream.scratch(static_cast<std::size_t>(
      static_cast<int64_t>(args.rows) * args.experts_per_token * block.width * 2)));
  const MoeNorm no_norm{};
  const MoeNorm norm{args.residual, args.delta, args.norm_weight, args.epsilon,
                     args.residual_dtype == FRT_DTYPE_F32};
  if (args.residual && !fused_norm) launch_moe_norm(stream, block, false);
  if (!block.routed) launch_enter(stream, block, enter, fused_norm ? norm : no_norm);

  HiddenArgs hidden{};
  hidden.selected = {args.logits,         args.ids,      args.weights,
                     args.rows,           args.experts,  args.experts_per_token,
                     args.normalise != 0, args.row_count};
  hidden.norm = fused_norm ? norm : no_norm;
  hidden.x = static_cast<const bf16*>(args.x);
  hidden.inputs = block.inputs;
  hidden.width = block.width;
  hidden.gate = block.gate;
  hidden.up = block.up;
  hidden.hidden = hidden_rows;
  DownArgs down{};
  down.selected = hidden.selected;
  down.inputs = block.inputs;
  down.width = block.width;
  down.shared_width = block.shared_width;
  down.down = block.down;
  down.shared_down = block.shared_down;
  down.hidden = hidden_rows;
  down.shared_hidden = static_cast<const bf16*>(args.shared_hidden);
  down.shared_scale = args.shared_scale;
  down.y = static_cast<bf16*>(args.y);
  down.copy_hidden = experts.copy_hidden;
  down.stream_shared = block.shared && streams(block.shared_down) &&
                       moe_format(block.shared_down.type) == moe_format(block.down.type);
  launch_experts(stream, experts, hidden, down);
}

}  // namespace frt::cuda
