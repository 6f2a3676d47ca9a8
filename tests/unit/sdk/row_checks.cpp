// SPDX-License-Identifier: Apache-2.0
// Norms, elementwise operators, embeddings, rows that stay with a slot, checksums.
#include "trial.hpp"

namespace frt::test {
namespace {

template <class Args>
Args norm_sizes() {
  Args args{};
  args.rows = 3;
  args.width = 8;
  return args;
}

frt_binary_args binary() {
  Memory memory;
  auto args = norm_sizes<frt_binary_args>();
  args.dtype = FRT_DTYPE_BF16;
  args.row_count = memory;
  args.a = memory;
  args.b = memory;
  args.y = memory;
  args.a_stride = args.b_stride = args.y_stride = 8;
  return args;
}
void try_binary(const char* name) {
  Trial<frt_binary_args> t(name, check_binary, binary());
  t.type(AT(dtype));
  t.size(AT(rows), 0);
  t.accept(AT(rows), 0);
  t.size(AT(width));
  t.optional(AT(row_count));
  t.memory(AT(a), 2);
  t.memory(AT(b), 2);
  t.memory(AT(y), 2);
  t.stride(AT(a_stride), 8, "a");
  t.stride(AT(b_stride), 8, "b");
  t.stride(AT(y_stride), 8, "y");
}

}  // namespace

void try_silu_mul() {
  try_binary(FRT_OP_SILU_MUL);
}
void try_sigmoid_mul() {
  try_binary(FRT_OP_SIGMOID_MUL);
}
void try_add() {
  try_binary(FRT_OP_ADD);
}
void try_gelu_mul() {
  try_binary(FRT_OP_GELU_MUL);
}

void try_convert() {
  Memory memory;
  auto args = norm_sizes<frt_convert_args>();
  args.x_dtype = FRT_DTYPE_F32;
  args.y_dtype = FRT_DTYPE_F16;
  args.row_count = memory;
  args.x = memory;
  args.y = memory;
  args.x_stride = args.y_stride = 8;
  Trial<frt_convert_args> t(FRT_OP_CONVERT, check_convert, args);
  t.type(AT(x_dtype), "f32, bf16, f16, f8_e4m3");
  t.type(AT(y_dtype), "f32, bf16, f16, f8_e4m3");
  t.size(AT(rows), 0);
  t.size(AT(width));
  t.refuse(AT(factor), INFINITY, "is not finite");
  t.refuse(AT(factor), std::nanf(""), "is not finite");
  t.optional(AT(row_count));
  t.memory(AT(x), 4);
  t.memory(AT(y), 2);
  t.stride(AT(x_stride), 8, "x");
  t.stride(AT(y_stride), 8, "y");
}

void try_fill_uniform() {
  Memory memory;
  frt_fill_uniform_args args{};
  args.dtype = FRT_DTYPE_F32;
  args.count = 7;
  args.y = memory;
  Trial<frt_fill_uniform_args> t(FRT_OP_FILL_UNIFORM, check_fill_uniform, args);
  t.type(AT(dtype), "f32, bf16, f16, f8_e4m3, f4_e2m1");
  t.refuse_as(AT(dtype), FRT_DTYPE_F4_E2M1, "count is odd, but f4_e2m1 has two values per byte");
  t.refuse(AT(count), ~uint64_t{0}, "is 2^63 or more");
  t.refuse_as(AT(count), uint64_t{INT64_MAX}, "y has 2^61 bytes or more");
  t.memory(AT(y), 4);
  t.args().count = 0;
  t.accept(AT(y), nullptr);
}

void try_checksum() {
  Memory memory;
  frt_checksum_args args{};
  args.x = memory;
  args.bytes = 64;
  args.y = memory;
  Trial<frt_checksum_args> t(FRT_OP_CHECKSUM, check_checksum, args);
  t.accept(AT(bytes), 0);
  t.refuse(AT(bytes), 12, "is not a multiple of 8");
  t.refuse_as(AT(bytes), ~uint64_t{7}, "x has 2^61 bytes or more");
  t.memory(AT(x), 8);
  t.memory(AT(y));
}

// ---- norms -------------------------------------------------------------------------------------

void try_rms_norm() {
  Memory memory;
  auto args = norm_sizes<frt_rms_norm_args>();
  args.x_dtype = FRT_DTYPE_F32;
  args.y_dtype = FRT_DTYPE_BF16;
  args.row_count = memory;
  args.x = memory;
  args.weight = memory;
  args.y = memory;
  args.x_stride = args.y_stride = 8;
  Trial<frt_rms_norm_args> t(FRT_OP_RMS_NORM, check_rms_norm, args);
  t.type(AT(x_dtype));
  t.type(AT(y_dtype));
  t.size(AT(rows));
  t.size(AT(width));
  t.optional(AT(row_count));
  t.memory(AT(x), 4);
  t.memory(AT(weight));
  t.memory(AT(y), 2);
  t.stride(AT(x_stride), 8, "x");
  t.stride(AT(y_stride), 8, "y");
}

void try_add_rms_norm() {
  Memory memory;
  auto args = norm_sizes<frt_add_rms_norm_args>();
  args.residual_dtype = FRT_DTYPE_F32;
  args.dtype = FRT_DTYPE_BF16;
  args.row_count = memory;
  args.residual = memory;
  args.delta = memory;
  args.weight = memory;
  args.y = memory;
  Trial<frt_add_rms_norm_args> t(FRT_OP_ADD_RMS_NORM, check_add_rms_norm, args);
  t.type(AT(residual_dtype));
  t.type(AT(dtype));
  t.size(AT(rows));
  t.size(AT(width));
  t.optional(AT(row_count));
  t.memory(AT(residual), 4);
  t.optional(AT(delta), 2);
  t.memory(AT(weight));
  t.optional(AT(y), 2);
  t.args().y = nullptr;
  t.accept(AT(weight), nullptr);
}

void try_gated_rms_norm() {
  Memory memory;
  auto args = norm_sizes<frt_gated_rms_norm_args>();
  args.x_dtype = FRT_DTYPE_F32;
  args.dtype = FRT_DTYPE_BF16;
  args.heads = 2;
  args.row_count = memory;
  args.x = memory;
  args.z = memory;
  args.weight = memory;
  args.y = memory;
  Trial<frt_gated_rms_norm_args> t(FRT_OP_GATED_RMS_NORM, check_gated_rms_norm, args);
  t.type(AT(x_dtype));
  t.type(AT(dtype));
  t.size(AT(rows));
  t.size(AT(heads));
  t.size(AT(width));
  t.optional(AT(row_count));
  t.memory(AT(x), 4);
  t.memory(AT(z), 2);
  t.memory(AT(weight));
  t.memory(AT(y), 2);
  t.args().rows = t.args().heads = INT32_MAX;
  t.refuse_as(AT(width), INT32_MAX, "x has 2^61 bytes or more");
}

void try_row_norm() {
  Memory memory;
  auto args = norm_sizes<frt_row_norm_args>();
  args.x_dtype = FRT_DTYPE_F32;
  args.y_dtype = FRT_DTYPE_BF16;
  args.row_count = memory;
  args.norm.kind = FRT_NORM_RMS;
  args.norm.weight = memory;
  args.x = memory;
  args.y = memory;
  args.x_stride = args.y_stride = 8;
  Trial<frt_row_norm_args> t(FRT_OP_ROW_NORM, check_row_norm, args);
  t.type(AT(x_dtype));
  t.type(AT(y_dtype));
  t.size(AT(rows));
  t.size(AT(width));
  t.optional(AT(row_count));
  t.norm(AT(norm));
  t.memory(AT(x), 4);
  t.memory(AT(y), 2);
  t.stride(AT(x_stride), 8, "x");
  t.stride(AT(y_stride), 8, "y");
  t.refuse_as(AT(y), const_cast<void*>(t.args().x), "y is x, and their types or strides differ");
  t.args().norm.kind = FRT_NORM_ADAPTIVE;
  t.args().norm.modulation = {memory, memory, memory, 2, 0};
  t.modulation(AT(norm.modulation));
}

// ---- embeddings and rows of slots
// ----------------------------------------------------------------

void try_embed() {
  Memory memory;
  frt_embed_args args{};
  args.y_dtype = FRT_DTYPE_BF16;
  args.rows = 3;
  args.row_count = memory;
  args.ids = memory;
  args.table = weight(memory, 10, 8);
  args.y = memory;
  args.y_stride = 8;
  Trial<frt_embed_args> t(FRT_OP_EMBED, with_formats<check_embed>, args);
  t.type(AT(y_dtype));
  t.size(AT(rows));
  t.optional(AT(row_count));
  t.memory(AT(ids));
  t.matrix(AT(table));
  t.memory(AT(y), 2);
  t.stride(AT(y_stride), 8, "y");
}

void try_select_tokens() {
  Memory memory;
  frt_select_tokens_args args{};
  args.sequences = sequences(memory, 2, 3);
  args.ids = memory;
  args.pending = memory;
  args.pending_stride = 4;
  args.ids_out = memory;
  Trial<frt_select_tokens_args> t(FRT_OP_SELECT_TOKENS, check_select_tokens, args);
  t.sequences(AT(sequences));
  t.memory(AT(ids));
  t.memory(AT(pending), 4);
  t.slot_stride(AT(pending_stride), 4, 4);
  t.memory(AT(ids_out));
}

void try_last_rows() {
  Memory memory;
  frt_last_rows_args args{};
  args.dtype = FRT_DTYPE_BF16;
  args.sequences = sequences(memory, 2, 3);
  args.width = 8;
  args.x = memory;
  args.y = memory;
  args.x_stride = args.y_stride = 8;
  Trial<frt_last_rows_args> t(FRT_OP_LAST_ROWS, check_last_rows, args);
  t.type(AT(dtype));
  t.sequences(AT(sequences));
  t.size(AT(width));
  t.memory(AT(x), 2);
  t.memory(AT(y), 2);
  t.stride(AT(x_stride), 8, "x");
  t.stride(AT(y_stride), 8, "y");
}

void try_lag_rows() {
  Memory memory;
  frt_lag_rows_args args{};
  args.dtype = FRT_DTYPE_BF16;
  args.sequences = sequences(memory, 2, 3);
  args.width = 8;
  args.ids = memory;
  args.x = memory;
  args.carry = memory;
  args.slot_stride = 16;
  args.ids_out = memory;
  args.y = memory;
  args.position_out = memory;
  args.length_out = memory;
  Trial<frt_lag_rows_args> t(FRT_OP_LAG_ROWS, check_lag_rows, args);
  t.type(AT(dtype));
  t.sequences(AT(sequences));
  t.size(AT(width));
  t.memory(AT(ids));
  t.memory(AT(x), 2);
  t.memory(AT(carry), 2);
  t.slot_stride(AT(slot_stride), 16, 2);
  t.memory(AT(ids_out));
  t.refuse(AT(ids_out), const_cast<int32_t*>(t.args().ids), "is ids");
  t.memory(AT(y), 2);
  t.refuse(AT(y), const_cast<void*>(t.args().x), "is x");
  t.memory(AT(position_out));
  t.memory(AT(length_out));
  t.args().sequences.rows = 1;
  t.accept(AT(x), nullptr);
}

void try_store_rows() {
  Memory memory;
  frt_store_rows_args args{};
  args.dtype = FRT_DTYPE_F32;
  args.sequences = sequences(memory, 2, 3);
  args.width = 8;
  args.x = memory;
  args.target = memory;
  args.slot_stride = 32;
  Trial<frt_store_rows_args> t(FRT_OP_STORE_ROWS, check_store_rows, args);
  t.type(AT(dtype));
  t.sequences(AT(sequences));
  t.size(AT(width));
  t.memory(AT(x), 4);
  t.memory(AT(target), 4);
  t.slot_stride(AT(slot_stride), 32, 4);
}

}  // namespace frt::test
