// SPDX-License-Identifier: Apache-2.0
// Attention over a cache, dense attention, gated delta nets.
#include "trial.hpp"

namespace frt::test {
namespace {

// Heads of 8, keys and values of 2 heads in pages of 64 rows: 64 * 2 * 8 bytes each.
template <class Args>
void set_kv(Args& args, Memory& memory) {
  args.dtype = FRT_DTYPE_BF16;
  args.kv_dtype = FRT_DTYPE_BF16;
  args.sequences = sequences(memory, 2, 3);
  args.heads = 4;
  args.kv_heads = 2;
  args.head_dim = 8;
  args.k_scale = args.v_scale = 1;
  args.max_rows = 100;
  args.q = memory;
  args.keys = memory;
  args.values = memory;
  args.pages = {memory, 64 * 2 * 8 * 2, 2, 64};
}
template <class Args>
void try_kv(Trial<Args>& t) {
  t.type(AT(dtype));
  t.type(AT(kv_dtype), "f32, bf16, f8_e4m3");
  t.sequences(AT(sequences));
  t.size(AT(heads));
  t.size(AT(kv_heads));
  t.refuse(AT(heads), 3, "is 3, expected a multiple of kv_heads, 2");
  t.size(AT(head_dim));
  t.size(AT(max_rows));
  t.memory(AT(q), 2);
  t.memory(AT(keys), 2);
  t.memory(AT(values), 2);
  const Args old = t.args();
  t.args().kv_dtype = FRT_DTYPE_F8_E4M3;
  t.refuse(AT(k_scale), 0, "is not more than 0");
  t.refuse(AT(v_scale), std::nanf(""), "is not more than 0");
  t.args() = old;
  t.refuse(AT(pages.table), reinterpret_cast<const int32_t*>(6), "is not aligned to 4 bytes");
  t.refuse(AT(pages.rows), 32, "is 32, expected at least 64");
  t.refuse(AT(pages.rows), 96, "is not a power of two");
  t.size(AT(pages.slot_pages));
  t.refuse(AT(pages.slot_pages), 1, "is 1: too few pages of 64 rows for max_rows 100");
  t.slot_stride(AT(pages.stride), 64 * 2 * 8 * 2, 2);
  t.accept(AT(slot_stride), 0);
  t.args().pages = {};
  t.args().slot_stride = 100 * 2 * 8 * 2;
  t.slot_stride(AT(slot_stride), 100 * 2 * 8 * 2, 2);
  t.args() = old;
}

frt_attention_append_args append(Memory& memory) {
  frt_attention_append_args args{};
  set_kv(args, memory);
  args.rotary_dim = 4;
  args.q_row_stride = 64;
  args.q_head_stride = 16;
  args.k = memory;
  args.v = memory;
  args.q_norm = memory;
  args.k_norm = memory;
  args.inv_freq = memory;
  args.q_out = memory;
  return args;
}
frt_attention_args attention(Memory& memory) {
  frt_attention_args args{};
  set_kv(args, memory);
  args.gate = memory;
  args.gate_row_stride = 64;
  args.gate_head_stride = 16;
  args.y = memory;
  return args;
}

}  // namespace

void try_attention_append() {
  Memory memory;
  Trial<frt_attention_append_args> t(FRT_OP_ATTENTION_APPEND, check_attention_append,
                                     append(memory));
  try_kv(t);
  t.range(AT(rotary_dim), 0, 8);
  t.refuse(AT(rotary_dim), 3, "is odd");
  t.stride(AT(q_row_stride), 8, "q");
  t.stride(AT(q_head_stride), 8, "q");
  t.memory(AT(k), 2);
  t.memory(AT(v), 2);
  t.optional(AT(q_norm));
  t.optional(AT(k_norm));
  t.memory(AT(inv_freq));
  t.memory(AT(q_out), 2);
  t.args().rotary_dim = 0;
  t.accept(AT(inv_freq), nullptr);
}

void try_attention() {
  Memory memory;
  Trial<frt_attention_args> t(FRT_OP_ATTENTION, check_attention, attention(memory));
  try_kv(t);
  t.optional(AT(gate), 2);
  t.stride(AT(gate_row_stride), 8, "gate");
  t.stride(AT(gate_head_stride), 8, "gate");
  t.memory(AT(y), 2);
  t.args().gate = nullptr;
  t.accept(AT(gate_row_stride), 0);
}

void try_attention_block() {
  Memory memory;
  frt_attention_block_args args{};
  args.append = append(memory);
  args.attention = attention(memory);
  args.attention.q = args.append.q_out;
  Trial<frt_attention_block_args> t(FRT_OP_ATTENTION_BLOCK, check_attention_block, args);
  t.memory(AT(append.k), 2);
  t.size(AT(append.heads));
  t.sequences(AT(attention.sequences));
  t.refuse(AT(attention.q), writable(t.args().append.q), "is not append.q_out");
  t.memory(AT(attention.y), 2);
}

// ---- dense attention
// -----------------------------------------------------------------------------

namespace {

frt_rope_args rope(Memory& memory) {
  frt_rope_args args{};
  args.dtype = FRT_DTYPE_BF16;
  args.count = 4;
  args.rows = 3;
  args.heads = 4;
  args.kv_heads = 2;
  args.head_dim = 8;
  args.sequences_per_base = 2;
  args.base = memory;
  args.table = memory;
  args.positions = 10;
  args.q = memory;
  args.q_stride = 32;
  args.k = memory;
  args.k_stride = 16;
  return args;
}
template <class Args>
void try_rows_of_sequences(Trial<Args>& t) {
  t.size(AT(count));
  t.size(AT(rows));
  const Args old = t.args();
  t.args().count = 1 << 16;
  t.refuse_as(AT(rows), 1 << 16, "count has 2^31 rows or more");
  t.args() = old;
}

}  // namespace

void try_rope() {
  Memory memory;
  Trial<frt_rope_args> t(FRT_OP_ROPE, check_rope, rope(memory));
  t.type(AT(dtype));
  try_rows_of_sequences(t);
  t.size(AT(heads));
  t.size(AT(kv_heads));
  t.size(AT(head_dim));
  t.refuse(AT(head_dim), 7, "is odd");
  t.size(AT(sequences_per_base));
  t.refuse_as(AT(sequences_per_base), 3,
              "count is 4, expected a multiple of sequences_per_base, 3");
  t.optional(AT(base));
  t.memory(AT(table));
  t.size(AT(positions));
  t.optional(AT(q), 2);
  t.stride(AT(q_stride), 32, "q");
  t.memory(AT(k), 2);
  t.stride(AT(k_stride), 16, "k");
  t.args().q = nullptr;
  t.accept(AT(heads), 0);
  t.args().base = nullptr;
  t.accept(AT(sequences_per_base), 0);
}

void try_norm_qkv() {
  Memory memory;
  frt_dense_part parts[FRT_DENSE_PARTS_MAX];
  for (frt_dense_part& part : parts) part = {weight(memory, 8, 16), memory, 0, 0, memory, 8};
  frt_norm_qkv_args args{};
  args.products.x_dtype = args.products.dtype = FRT_DTYPE_BF16;
  args.products.rows = 12;
  args.products.part_count = 2;
  args.products.x = memory;
  args.products.parts = parts;
  args.rope = rope(memory);
  Trial<frt_norm_qkv_args> t(FRT_OP_NORM_QKV, with_formats<check_norm_qkv>, args,
                             {offsetof(frt_norm_qkv_args, products.parts)});
  t.memory(AT(products.x), 2);
  t.matrix(AT(products.parts[1].weight));
  t.equal(AT(products.rows), 12);
  t.memory(AT(rope.k), 2);
  t.size(AT(rope.positions));
}

void try_dense_attention() {
  Memory memory;
  frt_dense_attention_args args{};
  args.dtype = FRT_DTYPE_BF16;
  args.count = 4;
  args.rows = 3;
  args.heads = 4;
  args.kv_heads = 2;
  args.head_dim = 8;
  args.length = memory;
  args.q = memory;
  args.q_stride = 32;
  args.k = memory;
  args.v = memory;
  args.kv_stride = 16;
  args.context_rows = 5;
  args.sequences_per_context = 2;
  args.context_length = memory;
  args.context_k = memory;
  args.context_v = memory;
  args.context_stride = 16;
  args.y = memory;
  args.y_stride = 32;
  Trial<frt_dense_attention_args> t(FRT_OP_DENSE_ATTENTION, check_dense_attention, args);
  t.type(AT(dtype));
  try_rows_of_sequences(t);
  t.size(AT(heads));
  t.size(AT(kv_heads));
  t.refuse(AT(heads), 3, "is 3, expected a multiple of kv_heads, 2");
  t.size(AT(head_dim));
  t.optional(AT(length));
  t.memory(AT(q), 2);
  t.stride(AT(q_stride), 32, "q");
  t.memory(AT(k), 2);
  t.memory(AT(v), 2);
  t.stride(AT(kv_stride), 16, "k");
  t.size(AT(context_rows), 0);
  t.size(AT(sequences_per_context));
  t.refuse_as(AT(sequences_per_context), 3,
              "count is 4, expected a multiple of sequences_per_context, 3");
  t.memory(AT(context_length));
  t.memory(AT(context_k), 2);
  t.memory(AT(context_v), 2);
  t.stride(AT(context_stride), 16, "context_k");
  t.memory(AT(y), 2);
  t.stride(AT(y_stride), 32, "y");
  t.refuse(AT(y_scale), -1, "is neither 0 nor a positive number with a reciprocal");
  t.args().context_rows = 0;
  t.args().context_length = nullptr;
  t.accept(AT(context_stride), 0);
  t.args().y_scale = 1;
  t.accept(AT(y), reinterpret_cast<void*>(4097));  // e4m3 has one byte
}

// ---- gated delta nets
// ----------------------------------------------------------------------------

namespace {

constexpr int32_t kChannels = 2 * 2 * 8 + 4 * 4;

frt_causal_conv_args conv(Memory& memory) {
  frt_causal_conv_args args{};
  args.dtype = FRT_DTYPE_BF16;
  args.sequences = sequences(memory, 2, 3);
  args.channels = kChannels;
  args.width = 4;
  args.u = memory;
  args.conv_weight = memory;
  args.window = memory;
  args.slot_stride = 3 * kChannels * 2;
  args.c = memory;
  return args;
}
frt_gated_delta_args delta(Memory& memory) {
  frt_gated_delta_args args{};
  args.dtype = FRT_DTYPE_BF16;
  args.sequences = sequences(memory, 2, 3);
  args.key_heads = 2;
  args.value_heads = 4;
  args.key_dim = 8;
  args.value_dim = 4;
  args.chunk = 64;
  args.c = memory;
  args.a = memory;
  args.b = memory;
  args.decay = memory;
  args.dt_bias = memory;
  args.state = memory;
  args.slot_stride = 4 * 8 * 4 * 4;
  args.o = memory;
  return args;
}
template <class Args>
void try_conv_and_delta(Trial<Args>& t) {
  t.refuse_as(AT(delta.dtype), FRT_DTYPE_F32, "conv.dtype is not delta.dtype");
  t.equal(AT(delta.sequences.count), 2);
  t.equal(AT(delta.sequences.rows), 3);
  t.equal(AT(conv.channels), kChannels);
  t.refuse(AT(delta.c), writable(t.args().delta.o), "is not conv.c");
}

}  // namespace

void try_causal_conv() {
  Memory memory;
  Trial<frt_causal_conv_args> t(FRT_OP_CAUSAL_CONV, check_causal_conv, conv(memory));
  t.type(AT(dtype));
  t.sequences(AT(sequences));
  t.size(AT(channels));
  t.range(AT(width), 2, 8);
  t.memory(AT(u), 2);
  t.refuse(AT(u), writable(t.args().c), "is c; the convolution cannot work in place");
  t.memory(AT(conv_weight));
  t.memory(AT(window), 2);
  t.slot_stride(AT(slot_stride), 3 * kChannels * 2, 2);
  t.memory(AT(c), 2);
  t.flag(AT(keep_window));
  t.args().sequences.rows = FRT_DELTA_KEEP_ROWS + 1;
  t.refuse_as(AT(keep_window), 1, "sequences.rows is more than the 16 that a kept window allows");
}

void try_gated_delta() {
  Memory memory;
  Trial<frt_gated_delta_args> t(FRT_OP_GATED_DELTA, check_gated_delta, delta(memory));
  t.type(AT(dtype));
  t.sequences(AT(sequences));
  t.size(AT(key_heads));
  t.size(AT(value_heads));
  t.refuse(AT(value_heads), 3, "is 3, expected a multiple of key_heads, 2");
  t.size(AT(key_dim));
  t.size(AT(value_dim));
  t.size(AT(chunk));
  t.memory(AT(c), 2);
  t.memory(AT(a), 2);
  t.memory(AT(b), 2);
  t.memory(AT(decay));
  t.memory(AT(dt_bias));
  t.memory(AT(state), 4);
  t.slot_stride(AT(slot_stride), 4 * 8 * 4 * 4, 4);
  t.memory(AT(o), 2);
  t.flag(AT(keep_state));
  t.args().sequences.rows = FRT_DELTA_KEEP_ROWS + 1;
  t.refuse_as(AT(keep_state), 1, "sequences.rows is more than the 16 that a kept state allows");
}

void try_gated_delta_block() {
  Memory memory;
  frt_gated_delta_block_args args{};
  args.conv = conv(memory);
  args.delta = delta(memory);
  args.delta.c = args.conv.c;
  args.z = memory;
  args.norm_weight = memory;
  args.y = memory;
  Trial<frt_gated_delta_block_args> t(FRT_OP_GATED_DELTA_BLOCK, check_gated_delta_block, args);
  try_conv_and_delta(t);
  t.memory(AT(conv.window), 2);
  t.memory(AT(delta.state), 4);
  t.memory(AT(z), 2);
  t.memory(AT(norm_weight));
  t.memory(AT(y), 2);
}

void try_gated_delta_commit() {
  Memory memory;
  frt_gated_delta_layer layers[2];
  for (frt_gated_delta_layer& layer : layers) {
    layer = {memory, memory, memory, memory, memory, memory, memory, memory};
  }
  frt_gated_delta_commit_args args{};
  args.layer_count = 2;
  args.conv = conv(memory);
  args.delta = delta(memory);
  args.delta.c = args.conv.c;
  args.layers = layers;
  Trial<frt_gated_delta_commit_args> t(FRT_OP_GATED_DELTA_COMMIT, check_gated_delta_commit, args,
                                       {offsetof(frt_gated_delta_commit_args, layer_count),
                                        offsetof(frt_gated_delta_commit_args, layers)});
  t.hostile(layers, sizeof(layers), {});
  t.size(AT(layer_count));
  t.memory(AT(layers));
  try_conv_and_delta(t);
  t.slot_stride(AT(conv.slot_stride), 3 * kChannels * 2, 2);
  t.slot_stride(AT(delta.slot_stride), 4 * 8 * 4 * 4, 4);
  // Members that each layer has of its own are ignored here.
  t.accept(AT(conv.u), nullptr);
  t.accept(AT(delta.state), nullptr);
  t.memory(AT(layers[1].u), 2);
  t.memory(AT(layers[1].a), 2);
  t.memory(AT(layers[1].b), 2);
  t.memory(AT(layers[1].conv_weight));
  t.memory(AT(layers[1].decay));
  t.memory(AT(layers[1].dt_bias));
  t.memory(AT(layers[1].window), 2);
  t.memory(AT(layers[1].state), 4);
  t.args().conv.sequences.rows = FRT_DELTA_KEEP_ROWS + 1;
  t.refuse_as(AT(delta.sequences.rows), FRT_DELTA_KEEP_ROWS + 1,
              "conv.sequences.rows is more than the 16 that a commit takes");
}

}  // namespace frt::test
