// SPDX-License-Identifier: Apache-2.0
// Products, with what is around them, and mixtures of experts.
#include "trial.hpp"

namespace frt::test {
namespace {

// The rows and the norm before the products of frt/ops/linear.h and frt/ops/moe.h.
template <class Args>
void set_normed_rows(Args& args, Memory& memory) {
  args.residual_dtype = FRT_DTYPE_F32;
  args.dtype = FRT_DTYPE_BF16;
  args.rows = 3;
  args.row_count = memory;
  args.residual = memory;
  args.delta = memory;
  args.norm_weight = memory;
  args.x = memory;
}
template <class Args>
void try_normed_rows(Trial<Args>& t) {
  t.type(AT(dtype));
  t.size(AT(rows), 0);
  t.accept(AT(rows), 0);
  t.optional(AT(row_count));
  t.memory(AT(x), 2);
  t.type(AT(residual_dtype));
  t.refuse_as(AT(residual), nullptr, "delta is given without residual");
  t.optional(AT(delta), 2);
  t.memory(AT(norm_weight));
  const Args old = t.args();
  t.args().delta = nullptr;
  t.args().norm_weight = nullptr;
  t.optional(AT(residual), 4);
  t.args() = old;
}

frt_expert_weight expert_weight(Memory& memory, int32_t rows, int32_t cols) {
  frt_expert_weight all{};
  all.expert = weight(memory, rows, cols);
  all.data_stride = int64_t{rows} * cols * 4;
  all.global_scales = memory;
  return all;
}
template <class Args, class Member>
void try_expert_stride(Trial<Args>& t, Member member, const char* path, int64_t least) {
  t.slot_stride(member, path, least, 4);
  t.refuse(member, path, INT64_MAX - 3, "times experts is 2^61 bytes or more");
}
// (8, 16) matrices of four experts.
template <class Args>
void try_experts(Trial<Args>& t) {
  t.size(AT(rows), 0);
  t.size(AT(experts));
  t.range(AT(experts_per_token), 1, 4);
  t.memory(AT(ids));
  t.memory(AT(weights));
  t.refuse(AT(rows), INT32_MAX, "times experts_per_token is 2^31 or more");
  t.matrix(AT(gate.expert));
  t.matrix(AT(up.expert));
  t.matrix(AT(down.expert));
  try_expert_stride(t, AT(gate.data_stride), 8 * 16 * 4);
  try_expert_stride(t, AT(up.data_stride), 8 * 16 * 4);
  try_expert_stride(t, AT(down.data_stride), 8 * 16 * 4);
  t.optional(AT(gate.global_scales));
  t.refuse(AT(up.expert.rows), 4, "is 4, expected 8");
  t.refuse(AT(up.expert.cols), 8, "is 8, expected 16");
  t.refuse(AT(down.expert.rows), 8, "is 8, expected 16");
  t.refuse(AT(down.expert.cols), 4, "is 4, expected 8");
  t.memory(AT(y), 2);
  // Scales and zero points have strides of their own.
  frt_expert_weight packed = t.args().up;
  packed.expert.format = kU4;
  packed.expert.scale = packed.expert.zero = packed.expert.data;
  packed.data_stride = 8 * 8;
  const auto broken = [&](int64_t frt_expert_weight::*stride, int64_t value,
                          const std::string& words) {
    frt_expert_weight wrong = packed;
    wrong.*stride = value;
    t.refuse_as(AT(up), wrong, "up." + words);
  };
  packed.scale_stride = 8 * 2;
  packed.zero_stride = 8;
  t.accept(AT(up), packed);
  broken(&frt_expert_weight::scale_stride, 14, "scale_stride is 14, expected at least 16");
  broken(&frt_expert_weight::scale_stride, 17, "scale_stride is 17, expected a multiple of 2");
  broken(&frt_expert_weight::zero_stride, 7, "zero_stride is 7, expected at least 8");
}

}  // namespace

void try_linear() {
  Memory memory;
  frt_linear_args args{};
  args.x_dtype = FRT_DTYPE_F32;
  args.y_dtype = FRT_DTYPE_BF16;
  args.rows = 3;
  args.row_count = memory;
  args.x = memory;
  args.x_stride = 16;
  args.weight = weight(memory, 8, 16);
  args.y = memory;
  args.y_stride = 8;
  Trial<frt_linear_args> t(FRT_OP_LINEAR, with_formats<check_linear>, args);
  t.type(AT(x_dtype));
  t.type(AT(y_dtype));
  t.size(AT(rows), 0);
  t.flag(AT(accumulate));
  t.optional(AT(row_count));
  t.matrix(AT(weight));
  t.memory(AT(x), 4);
  t.memory(AT(y), 2);
  t.stride(AT(x_stride), 16, "x");
  t.stride(AT(y_stride), 8, "y");
}

void try_norm_linears() {
  Memory memory;
  frt_linear_part parts[FRT_LINEAR_GROUP_MAX];
  for (frt_linear_part& part : parts) part = {weight(memory, 8, 16), memory, 8};
  frt_norm_linears_args args{};
  set_normed_rows(args, memory);
  args.part_count = 2;
  args.parts = parts;
  Trial<frt_norm_linears_args> t(FRT_OP_NORM_LINEARS, with_formats<check_norm_linears>, args,
                                 {offsetof(frt_norm_linears_args, parts)});
  t.hostile(parts, sizeof(parts), {});
  t.range(AT(part_count), 1, FRT_LINEAR_GROUP_MAX);
  t.memory(AT(parts));
  try_normed_rows(t);
  t.matrix(AT(parts[1].weight));
  t.equal(AT(parts[1].weight.cols), 16);
  t.memory(AT(parts[1].y), 2);
  t.stride(AT(parts[1].y_stride), 8, "parts[1].y");
}

void try_norm_gate_up() {
  Memory memory;
  frt_norm_gate_up_args args{};
  set_normed_rows(args, memory);
  args.gate_weight = weight(memory, 8, 16);
  args.up_weight = weight(memory, 8, 16);
  args.gate = memory;
  args.h = memory;
  Trial<frt_norm_gate_up_args> t(FRT_OP_NORM_GATE_UP, with_formats<check_norm_gate_up>, args);
  try_normed_rows(t);
  t.matrix(AT(gate_weight));
  t.matrix(AT(up_weight));
  t.equal(AT(up_weight.rows), 8);
  t.equal(AT(up_weight.cols), 16);
  t.memory(AT(gate), 2);
  t.memory(AT(h), 2);
}

// ---- dense -------------------------------------------------------------------------------------

void try_dense() {
  Memory memory;
  frt_dense_args args{};
  args.x_dtype = FRT_DTYPE_F32;
  args.y_dtype = FRT_DTYPE_BF16;
  args.rows = 3;
  args.row_count = memory;
  args.x = memory;
  args.x_stride = 16;
  args.weight = weight(memory, 8, 16);
  args.bias = memory;
  args.gate = {memory, memory, memory, 2, 0};
  args.addend = memory;
  args.addend_rows = 2;
  args.y = memory;
  args.y_stride = 8;
  Trial<frt_dense_args> t(FRT_OP_DENSE, with_formats<check_dense>, args);
  t.type(AT(x_dtype));
  t.type(AT(y_dtype));
  t.size(AT(rows), 0);
  t.flag(AT(activation), FRT_ACTIVATION_SILU);
  t.flag(AT(accumulate));
  t.optional(AT(row_count));
  t.matrix(AT(weight));
  t.memory(AT(x), 4);
  t.stride(AT(x_stride), 16, "x");
  t.optional(AT(bias));
  t.modulation(AT(gate));
  t.accept(AT(gate.rows), nullptr);
  t.optional(AT(addend));
  t.size(AT(addend_rows));
  t.memory(AT(y), 2);
  t.stride(AT(y_stride), 8, "y");
  t.refuse(AT(x_scale), -1, "is neither 0 nor a positive number with a reciprocal");
  t.refuse_as(AT(x_scale), 1, "weight.format is not FP8_TENSOR or FP8_CHANNEL, as x_scale needs");
  t.args().weight.format = FRT_WEIGHT_FP8_TENSOR;
  t.refuse_as(AT(x_scale), 1, "x_dtype is f32, expected f8_e4m3");
  t.args().x_dtype = FRT_DTYPE_F8_E4M3;
  t.accept(AT(x_scale), 1);
  t.refuse_as(AT(x_scale), 0, "x_dtype is f8_e4m3, expected f32, bf16");
}

namespace {

template <class Args>
void set_normed(Args& args, Memory& memory) {
  args.x_dtype = FRT_DTYPE_F32;
  args.dtype = FRT_DTYPE_BF16;
  args.rows = 3;
  args.row_count = memory;
  args.norm.kind = FRT_NORM_RMS;
  args.norm.weight = memory;
  args.x = memory;
  args.normed = memory;
}
template <class Args>
void try_normed(Trial<Args>& t) {
  t.type(AT(x_dtype));
  t.type(AT(dtype));
  t.size(AT(rows), 0);
  t.optional(AT(row_count));
  t.norm(AT(norm));
  t.memory(AT(x), 4);
  t.memory(AT(normed), 2);
  t.refuse(AT(normed_scale), std::nanf(""), "is neither 0 nor a positive number with a reciprocal");
  const Args old = t.args();
  t.args().norm.kind = FRT_NORM_NONE;
  t.refuse(AT(x_dtype), FRT_DTYPE_F32, "differs from dtype, and there is no norm");
  t.args().x_dtype = FRT_DTYPE_BF16;
  t.accept(AT(normed), nullptr);
  t.args() = old;
}

}  // namespace

void try_norm_dense() {
  Memory memory;
  frt_dense_part parts[FRT_DENSE_PARTS_MAX];
  for (frt_dense_part& part : parts) part = {weight(memory, 8, 16), memory, 0, 0, memory, 8};
  frt_norm_dense_args args{};
  set_normed(args, memory);
  args.part_count = 2;
  args.parts = parts;
  Trial<frt_norm_dense_args> t(FRT_OP_NORM_DENSE, with_formats<check_norm_dense>, args,
                               {offsetof(frt_norm_dense_args, parts)});
  t.hostile(parts, sizeof(parts), {});
  t.range(AT(part_count), 1, FRT_DENSE_PARTS_MAX);
  t.memory(AT(parts));
  try_normed(t);
  t.matrix(AT(parts[1].weight));
  t.equal(AT(parts[1].weight.cols), 16);
  t.optional(AT(parts[1].bias));
  t.flag(AT(parts[1].activation), FRT_ACTIVATION_SILU);
  t.memory(AT(parts[1].y), 2);
  t.stride(AT(parts[1].y_stride), 8, "parts[1].y");
  t.refuse(AT(parts[1].y_scale), 1, "is given, and normed_scale is not");
  t.refuse_as(AT(normed_scale), 1,
              "parts[0].weight.format is not FP8_TENSOR or FP8_CHANNEL, as normed_scale needs");
  for (frt_dense_part& part : parts) part.weight.format = FRT_WEIGHT_FP8_TENSOR;
  t.accept(AT(normed_scale), 1);
  t.args().normed_scale = 1;
  t.accept(AT(parts[1].y_scale), 1);
  t.refuse_as(AT(norm.kind), FRT_NORM_NONE, "x_dtype differs from dtype, and there is no norm");
  t.args().x_dtype = FRT_DTYPE_BF16;
  t.refuse_as(AT(norm.kind), FRT_NORM_NONE, "normed_scale is given, and there is no norm");
}

void try_norm_geglu() {
  Memory memory;
  frt_norm_geglu_args args{};
  set_normed(args, memory);
  args.gate_weight = weight(memory, 8, 16);
  args.up_weight = weight(memory, 8, 16);
  args.gate = memory;
  args.h = memory;
  Trial<frt_norm_geglu_args> t(FRT_OP_NORM_GEGLU, with_formats<check_norm_geglu>, args);
  try_normed(t);
  t.matrix(AT(gate_weight));
  t.matrix(AT(up_weight));
  t.equal(AT(up_weight.rows), 8);
  t.equal(AT(up_weight.cols), 16);
  t.memory(AT(gate), 2);
  t.memory(AT(h), 2);
  t.refuse(AT(h_scale), 1, "is given, and normed_scale is not");
  t.args().gate_weight.format = FRT_WEIGHT_FP8_TENSOR;
  t.refuse_as(AT(normed_scale), 1,
              "up_weight.format is not FP8_TENSOR or FP8_CHANNEL, as normed_scale needs");
}

// ---- mixtures of experts
// -------------------------------------------------------------------------

void try_moe_route() {
  Memory memory;
  frt_moe_route_args args{};
  args.rows = 3;
  args.experts = 4;
  args.experts_per_token = 2;
  args.row_count = memory;
  args.logits = memory;
  args.ids = memory;
  args.weights = memory;
  Trial<frt_moe_route_args> t(FRT_OP_MOE_ROUTE, check_moe_route, args);
  t.size(AT(rows), 0);
  t.size(AT(experts));
  t.range(AT(experts_per_token), 1, 4);
  t.refuse(AT(rows), INT32_MAX, "times experts_per_token is 2^31 or more");
  t.optional(AT(row_count));
  t.memory(AT(logits));
  t.memory(AT(ids));
  t.memory(AT(weights));
}

void try_moe_experts() {
  Memory memory;
  frt_moe_experts_args args{};
  args.dtype = FRT_DTYPE_BF16;
  args.rows = 3;
  args.experts = 4;
  args.experts_per_token = 2;
  args.row_count = memory;
  args.x = memory;
  args.ids = memory;
  args.weights = memory;
  args.gate = expert_weight(memory, 8, 16);
  args.up = expert_weight(memory, 8, 16);
  args.down = expert_weight(memory, 16, 8);
  args.y = memory;
  Trial<frt_moe_experts_args> t(FRT_OP_MOE_EXPERTS, with_formats<check_moe_experts>, args);
  t.type(AT(dtype));
  t.optional(AT(row_count));
  t.memory(AT(x), 2);
  try_experts(t);
}

void try_moe_combine() {
  Memory memory;
  frt_moe_combine_args args{};
  args.dtype = FRT_DTYPE_BF16;
  args.rows = 3;
  args.width = 8;
  args.row_count = memory;
  args.routed = memory;
  args.shared = memory;
  args.gate = memory;
  args.y = memory;
  Trial<frt_moe_combine_args> t(FRT_OP_MOE_COMBINE, check_moe_combine, args);
  t.type(AT(dtype));
  t.size(AT(rows), 0);
  t.size(AT(width));
  t.optional(AT(row_count));
  t.memory(AT(routed), 2);
  t.memory(AT(shared), 2);
  t.memory(AT(gate));
  t.memory(AT(y), 2);
}

void try_moe_block() {
  Memory memory;
  frt_moe_block_args args{};
  set_normed_rows(args, memory);
  args.experts = 4;
  args.experts_per_token = 2;
  args.router = weight(memory, 4, 16);
  args.gate = expert_weight(memory, 8, 16);
  args.up = expert_weight(memory, 8, 16);
  args.down = expert_weight(memory, 16, 8);
  args.shared_gate_weight = weight(memory, 12, 16);
  args.shared_up_weight = weight(memory, 12, 16);
  args.shared_down_weight = weight(memory, 16, 12);
  args.shared_expert_gate = weight(memory, 1, 16);
  args.logits = memory;
  args.ids = memory;
  args.weights = memory;
  args.shared_hidden = memory;
  args.shared_y = memory;
  args.shared_scale = memory;
  args.y = memory;
  Trial<frt_moe_block_args> t(FRT_OP_MOE_BLOCK, with_formats<check_moe_block>, args);
  try_normed_rows(t);
  try_experts(t);
  t.matrix(AT(router));
  t.equal(AT(router.rows), 4);
  t.memory(AT(logits));
  t.matrix(AT(shared_up_weight));
  t.matrix(AT(shared_down_weight));
  t.matrix(AT(shared_expert_gate));
  t.refuse(AT(shared_gate_weight.rows), -1, "is -1, expected at least 0");
  t.equal(AT(shared_gate_weight.cols), 16);
  t.equal(AT(shared_up_weight.rows), 12);
  t.equal(AT(shared_up_weight.cols), 16);
  t.equal(AT(shared_down_weight.rows), 16);
  t.equal(AT(shared_down_weight.cols), 12);
  t.equal(AT(shared_expert_gate.rows), 1);
  t.equal(AT(shared_expert_gate.cols), 16);
  t.memory(AT(shared_hidden), 2);
  t.memory(AT(shared_y), 2);
  t.memory(AT(shared_scale));
  t.refuse(AT(gate.expert.cols), 8, "is 8, expected 16");
  // No shared expert: nothing of it is looked at.
  t.args() = args;
  t.args().shared_gate_weight.rows = 0;
  t.accept(AT(shared_hidden), nullptr);
  t.accept(AT(shared_up_weight.data), nullptr);
}

}  // namespace frt::test
