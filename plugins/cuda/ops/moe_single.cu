// SPDX-License-Identifier: Apache-2.0
// The decode kernel for one row, on the host: what it can do. The kernel: moe_single_kernel.cu.
#include "board.hpp"
#include "launch.cuh"
#include "moe_fused.cuh"
#include "moe_single.cuh"

namespace frt::cuda {
namespace {

bool aligned(const void* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer) % 16 == 0;
}

// bf16, or FP8 with a scale per 128 x 128 values.
bool single_matrix(const MoeMatrix& matrix, MoeFormat format, int rows, int cols) {
  if (matrix.rows != rows || matrix.cols != cols || !aligned(matrix.data) ||
      matrix.data_stride % 16 != 0 || moe_format(matrix.format) != format) {
    return false;
  }
  if (format == MoeFormat::kBf16) return true;
  return matrix.format == FRT_WEIGHT_FP8_BLOCK && matrix.block_rows == 128 &&
         matrix.block_cols == 128;
}

bool fits(const MoeBlock& block) {
  const frt_moe_block_args& args = block.args;
  const MoeFormat format = moe_format(block.gate.format);
  constexpr int kInputs = Single::kInputs, kWidth = Single::kWidth;
  if (block.routed || !block.shared || args.dtype != FRT_DTYPE_BF16 || args.rows != 1 ||
      args.experts > Single::kExperts || args.experts % 2 != 0 || args.chosen != Single::kChosen ||
      (format != MoeFormat::kBf16 && format != MoeFormat::kFp8)) {
    return false;
  }
  return aligned(args.x) && aligned(args.residual) && aligned(args.delta) &&
         aligned(args.norm_weight) &&
         single_matrix(block.router, MoeFormat::kBf16, args.experts, kInputs) &&
         single_matrix(block.gate, format, kWidth, kInputs) &&
         single_matrix(block.up, format, kWidth, kInputs) &&
         single_matrix(block.down, format, kInputs, kWidth) &&
         single_matrix(block.shared_gate, format, kWidth, kInputs) &&
         single_matrix(block.shared_up, format, kWidth, kInputs) &&
         single_matrix(block.shared_down, format, kInputs, kWidth) &&
         single_matrix(block.shared_scale, MoeFormat::kBf16, 1, kInputs) &&
         block.gate.scale_bf16 == block.up.scale_bf16 &&
         block.gate.scale_bf16 == block.down.scale_bf16 &&
         block.shared_gate.scale_bf16 == block.shared_up.scale_bf16 &&
         block.shared_gate.scale_bf16 == block.shared_down.scale_bf16;
}

SingleMatrix matrix_of(const MoeMatrix& matrix) {
  return {matrix.data, matrix.scale, matrix.data_stride, matrix.scale_stride};
}

}  // namespace

bool moe_single(Stream& stream, const MoeBlock& block) {
  const Device& device = stream.device();
  const int blocks = device.properties().multiprocessors;
  if (FRT_CUDA_ARCH < 90 || device.properties().capability < 90 ||
      static_cast<std::size_t>(device.properties().shared_bytes_block) < Single::kSharedBytes ||
      blocks <= Single::kBlocks || blocks > kFusedBlocks || !fits(block)) {
    return false;
  }
  const frt_moe_block_args& args = block.args;
  SingleArgs made{};
  if (args.residual) {
    made.norm = {args.residual, args.delta, args.norm_weight, args.epsilon,
                 args.residual_dtype == FRT_DTYPE_F32};
  }
  made.x = static_cast<bf16*>(args.x);
  made.experts = args.experts;
  made.normalise = args.normalise != 0;
  made.scale_bf16 = block.gate.scale_bf16;
  made.shared_scale_bf16 = block.shared_gate.scale_bf16;
  made.row_count = args.row_count;
  made.router = block.router.data;
  made.shared_scale = block.shared_scale.data;
  made.gate = matrix_of(block.gate);
  made.up = matrix_of(block.up);
  made.down = matrix_of(block.down);
  made.shared_gate = matrix_of(block.shared_gate);
  made.shared_up = matrix_of(block.shared_up);
  made.shared_down = matrix_of(block.shared_down);
  made.logits = args.logits;
  made.ids = args.ids;
  made.weights = args.weights;
  made.y = static_cast<bf16*>(args.y);
  // The board's numbers and cells are those of moe_fused.cu, which counts the same launches.
  auto* memory = static_cast<std::byte*>(board(stream));
  made.numbers = reinterpret_cast<uint32_t*>(memory);
  made.cells = reinterpret_cast<uint64_t*>(memory + kFusedBlocks * 4);
  launch_single(stream, moe_format(block.gate.format) == MoeFormat::kFp8, blocks, made);
  return true;
}

}  // namespace frt::cuda
