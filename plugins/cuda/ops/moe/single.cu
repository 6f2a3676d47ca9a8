// SPDX-License-Identifier: Apache-2.0
// The decode kernels for one row and for a few, on the host: what they can do. The kernels:
// single_kernel.cu, few_kernel.cu.
#include <algorithm>

#include "../common/exchange.hpp"
#include "../common/launch.cuh"
#include "../common/pieces.hpp"
#include "few.cuh"
#include "fused.cuh"

namespace frt::cuda {
namespace {

// bf16, or FP8 with a scale per 128 x 128 values that four bytes can be read of.
bool single_matrix(const MoeMatrix& matrix, MoeFormat format, int rows, int cols) {
  if (matrix.rows != rows || matrix.cols != cols || !aligned(matrix.data) ||
      matrix.data_stride % 16 != 0 || moe_format(matrix.type) != format) {
    return false;
  }
  if (format == MoeFormat::kBf16) return true;
  return matrix.type == WeightType::kFp8Block && matrix.block_rows == 128 &&
         matrix.block_cols == 128 && matrix.scale_stride % 4 == 0 &&
         reinterpret_cast<std::uintptr_t>(matrix.scale) % 4 == 0;
}

bool fits(const MoeBlock& block) {
  const frt_moe_block_args& args = block.args;
  const MoeFormat format = moe_format(block.gate.type);
  constexpr int kInputs = Single::kInputs, kWidth = Single::kWidth;
  if (block.routed || !block.shared || args.dtype != FRT_DTYPE_BF16 ||
      args.experts > Single::kExperts || args.experts % 2 != 0 ||
      args.experts_per_token != Single::kTopK ||
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

// Whether a kernel with `shared_bytes` runs on all of the device's SMs and fits the block.
bool fits(const Device& device, const MoeBlock& block, std::size_t shared_bytes) {
  const DeviceProperties& properties = device.properties();
  return static_cast<std::size_t>(properties.shared_bytes_block) >= shared_bytes &&
         properties.multiprocessors > Single::kBlocks &&
         properties.multiprocessors <= kFusedBlocks && fits(block);
}

void set_args(Stream& stream, const MoeBlock& block, SingleArgs& made) {
  const frt_moe_block_args& args = block.args;
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
  // The exchange memory's numbers and cells are those of fused.cu, which counts the same launches.
  auto* memory = static_cast<std::byte*>(exchange_memory(stream));
  made.numbers = reinterpret_cast<uint32_t*>(memory);
  made.cells = reinterpret_cast<uint64_t*>(memory + kFusedBlocks * 4);
}

bool is_fp8(const MoeBlock& block) {
  return moe_format(block.gate.type) == MoeFormat::kFp8;
}

// The rows from `first` on.
void skip_rows(FewArgs& args, const MoeBlock& block, int32_t first, int32_t rows) {
  const auto skip = [&](auto*& pointer, int64_t elements) { pointer += first * elements; };
  if (args.norm.residual) {
    const int64_t bytes = int64_t{Few::kInputs} * (args.norm.residual_f32 ? 4 : 2);
    args.norm.residual = static_cast<std::byte*>(args.norm.residual) + first * bytes;
  }
  if (args.norm.delta) {
    args.norm.delta = static_cast<const bf16*>(args.norm.delta) + first * int64_t{Few::kInputs};
  }
  skip(args.x, Few::kInputs);
  skip(args.logits, block.args.experts);
  skip(args.ids, Few::kTopK);
  skip(args.weights, Few::kTopK);
  skip(args.y, Few::kInputs);
  args.first = first;
  args.rows = rows;
}

}  // namespace

bool supports_moe_single(Device& device, MoeBlock& block) {
  return block.args.rows == 1 && fits(device, block, Single::kSharedBytes);
}

void launch_moe_single(Stream& stream, MoeBlock& block) {
  SingleArgs args{};
  set_args(stream, block, args);
  launch_single(stream, is_fp8(block), stream.device().properties().multiprocessors, args);
}

bool supports_moe_few(Device& device, MoeBlock& block) {
  return block.args.rows <= (is_fp8(block) ? kFewRowsFp8 : kFewRows) &&
         fits(device, block, few_shared_bytes(is_fp8(block)));
}

void launch_moe_few(Stream& stream, MoeBlock& block) {
  static_assert(kFusedBlocks * 4 + Few::kCells * 8 <= kExchangeBytes);
  const int32_t rows = block.args.rows;
  const auto launches = static_cast<int32_t>(ceil_div(rows, Few::kRows));
  const auto share = static_cast<int32_t>(ceil_div(rows, launches));
  for (int32_t first = 0; first < rows; first += share) {
    FewArgs args{};
    set_args(stream, block, args);
    skip_rows(args, block, first, std::min(share, rows - first));
    launch_few(stream, is_fp8(block), stream.device().properties().multiprocessors, args);
  }
}

}  // namespace frt::cuda
