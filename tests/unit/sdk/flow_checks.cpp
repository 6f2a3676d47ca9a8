// SPDX-License-Identifier: Apache-2.0
// What policies need: images to rows, flow matching, the layers of an expert.
#include "trial.hpp"

namespace frt::test {

void try_pack_views() {
  Memory memory;
  frt_pack_views_args args{};
  args.views = 3;
  args.slots = 2;
  args.rows_per_view = 4;
  args.branches = 2;
  args.text_rows = 5;
  args.mask = memory;
  args.text_length = memory;
  args.view = memory;
  args.view_rows = memory;
  args.image_rows = memory;
  args.length = memory;
  Trial<frt_pack_views_args> t(FRT_OP_PACK_VIEWS, check_pack_views, args);
  t.size(AT(views));
  t.range(AT(slots), 1, 3);
  t.size(AT(rows_per_view));
  t.size(AT(branches));
  t.size(AT(text_rows), 0);
  t.refuse(AT(text_rows), INT32_MAX, "with slots * rows_per_view is 2^31 or more");
  t.memory(AT(mask));
  t.memory(AT(text_length));
  t.memory(AT(view));
  t.memory(AT(view_rows));
  t.memory(AT(image_rows));
  t.memory(AT(length));
}

namespace {

frt_patches_args patches(Memory& memory) {
  frt_patches_args args{};
  args.pixel_dtype = FRT_DTYPE_F32;
  args.dtype = FRT_DTYPE_BF16;
  args.slots = 2;
  args.views = 3;
  args.height = 8;
  args.width = 12;
  args.channels = 3;
  args.patch = 4;
  args.view = memory;
  args.pixels = memory;
  args.x = memory;
  args.x_stride = 64;
  return args;
}

}  // namespace

void try_patches() {
  Memory memory;
  Trial<frt_patches_args> t(FRT_OP_PATCHES, check_patches, patches(memory));
  t.type(AT(pixel_dtype), "u8, f32");
  t.type(AT(dtype));
  t.size(AT(slots));
  t.size(AT(views));
  t.size(AT(height));
  t.size(AT(width));
  t.size(AT(channels));
  t.size(AT(patch));
  t.refuse(AT(height), 10, "is 10, expected a multiple of patch, 4");
  t.refuse(AT(width), 10, "is 10, expected a multiple of patch, 4");
  t.refuse(AT(slots), INT32_MAX, "has 2^31 rows or more");
  t.memory(AT(view));
  t.memory(AT(pixels), 4);
  t.memory(AT(x), 2);
  t.stride(AT(x_stride), 48, "x");
}

void try_patch_embed() {
  Memory memory;
  frt_patch_embed_args args{};
  args.patches = patches(memory);
  args.product.x_dtype = args.product.y_dtype = FRT_DTYPE_BF16;
  args.product.rows = 2 * 2 * 3;
  args.product.x = args.patches.x;
  args.product.x_stride = 64;
  args.product.weight = weight(memory, 8, 64);
  args.product.y = memory;
  args.product.y_stride = 8;
  Trial<frt_patch_embed_args> t(FRT_OP_PATCH_EMBED, with_formats<check_patch_embed>, args);
  t.size(AT(patches.channels));
  t.matrix(AT(product.weight));
  t.equal(AT(product.rows), 12);
  t.refuse(AT(product.weight.cols), 48, "is 48, expected 64");
  t.refuse(AT(product.x), writable(t.args().product.y), "is not patches.x");
  t.refuse(AT(product.x_dtype), FRT_DTYPE_F32, "is not patches.dtype");
}

void try_embed_rows() {
  Memory memory;
  frt_embed_rows_args args{};
  args.y_dtype = FRT_DTYPE_BF16;
  args.branches = 2;
  args.text_rows = 5;
  args.y_rows = 9;
  args.first = memory;
  args.count = memory;
  args.ids = memory;
  args.ids_stride = 6;
  args.table = weight(memory, 10, 8);
  args.y = memory;
  args.y_stride = 8;
  Trial<frt_embed_rows_args> t(FRT_OP_EMBED_ROWS, with_formats<check_embed_rows>, args);
  t.type(AT(y_dtype));
  t.size(AT(branches));
  t.size(AT(text_rows));
  t.size(AT(y_rows));
  t.memory(AT(first));
  t.memory(AT(count));
  t.memory(AT(ids));
  t.stride(AT(ids_stride), 5, "ids");
  t.matrix(AT(table));
  t.memory(AT(y), 2);
  t.stride(AT(y_stride), 8, "y");
}

// ---- flow matching
// -------------------------------------------------------------------------------

void try_flow_start() {
  Memory memory;
  frt_flow_start_args args{};
  args.samples = 2;
  args.horizon = 3;
  args.dim = 4;
  args.noise = memory;
  args.previous = memory;
  args.locked = memory;
  args.locked_clean = memory;
  args.x = memory;
  args.clean_rows = memory;
  Trial<frt_flow_start_args> t(FRT_OP_FLOW_START, check_flow_start, args);
  t.size(AT(samples));
  t.size(AT(horizon));
  t.size(AT(dim));
  t.memory(AT(noise));
  t.optional(AT(locked));
  t.memory(AT(previous));
  t.memory(AT(locked_clean));
  t.memory(AT(x));
  t.memory(AT(clean_rows));
  t.args().locked = nullptr;
  t.accept(AT(previous), nullptr);
  t.accept(AT(locked_clean), nullptr);
  t.args().samples = t.args().horizon = INT32_MAX;
  t.refuse_as(AT(dim), INT32_MAX, "noise has 2^61 bytes or more");
}

namespace {

frt_flow_output_args output(Memory& memory) {
  frt_flow_output_args args{};
  args.h_dtype = FRT_DTYPE_BF16;
  args.rows = 12;
  args.dim = 4;
  args.width = 8;
  args.h = memory;
  args.norm.kind = FRT_NORM_RMS;
  args.norm.weight = memory;
  args.weight = memory;
  args.bias = memory;
  args.v = memory;
  return args;
}
frt_flow_update_args update(Memory& memory) {
  frt_flow_update_args args{};
  args.branches = 2;
  args.samples = 2;
  args.horizon = 3;
  args.dim = 4;
  args.v = memory;
  args.beta = memory;
  args.previous = memory;
  args.weights = memory;
  args.cap = memory;
  args.locked = memory;
  args.velocity = memory;
  args.x = memory;
  return args;
}
frt_flow_input_args input(Memory& memory) {
  frt_flow_input_args args{};
  args.h_dtype = FRT_DTYPE_BF16;
  args.branches = 2;
  args.rows = 6;
  args.dim = 4;
  args.width = 8;
  args.x = memory;
  args.weight = memory;
  args.bias = memory;
  args.h = memory;
  return args;
}

}  // namespace

void try_flow_input() {
  Memory memory;
  Trial<frt_flow_input_args> t(FRT_OP_FLOW_INPUT, check_flow_input, input(memory));
  t.type(AT(h_dtype));
  t.size(AT(branches));
  t.size(AT(rows));
  t.size(AT(dim));
  t.size(AT(width));
  t.memory(AT(x));
  t.memory(AT(weight));
  t.memory(AT(bias));
  t.memory(AT(h), 2);
}

void try_flow_output() {
  Memory memory;
  Trial<frt_flow_output_args> t(FRT_OP_FLOW_OUTPUT, check_flow_output, output(memory));
  t.type(AT(h_dtype));
  t.size(AT(rows));
  t.size(AT(dim));
  t.size(AT(width));
  t.memory(AT(h), 2);
  t.norm(AT(norm));
  t.memory(AT(weight));
  t.memory(AT(bias));
  t.memory(AT(v));
}

void try_flow_update() {
  Memory memory;
  Trial<frt_flow_update_args> t(FRT_OP_FLOW_UPDATE, check_flow_update, update(memory));
  t.size(AT(branches));
  t.size(AT(samples));
  t.size(AT(horizon));
  t.size(AT(dim));
  t.memory(AT(v));
  t.memory(AT(beta));
  t.optional(AT(previous));
  t.memory(AT(weights));
  t.memory(AT(cap));
  t.memory(AT(locked));
  t.optional(AT(velocity));
  t.memory(AT(x));
  t.args().branches = 1;
  t.accept(AT(beta), nullptr);
  t.args().previous = nullptr;
  t.accept(AT(weights), nullptr);
  t.accept(AT(cap), nullptr);
  t.accept(AT(locked), nullptr);
}

void try_flow_step() {
  Memory memory;
  frt_flow_step_args args{};
  args.output = output(memory);
  args.update = update(memory);
  args.next = input(memory);
  args.update.v = args.output.v;
  args.next.x = args.update.x;
  Trial<frt_flow_step_args> t(FRT_OP_FLOW_STEP, check_flow_step, args);
  t.memory(AT(output.h), 2);
  t.memory(AT(update.x));
  t.memory(AT(next.bias));
  t.equal(AT(output.rows), 12);
  t.equal(AT(update.dim), 4);
  t.equal(AT(next.rows), 6);
  t.equal(AT(next.dim), 4);
  const float* const other = memory;
  t.refuse(AT(update.v), other, "is not output.v");
  t.refuse(AT(next.x), other, "is not update.x");
  t.args().next = {};
  t.accept(AT(next.h), nullptr);
}

// ---- the layers of an expert
// ---------------------------------------------------------------------

void try_flow_layers() {
  Memory memory;
  frt_flow_layer layers[2]{};
  for (frt_flow_layer& layer : layers) {
    layer.query = weight(memory, 32, 16);
    layer.key_value = weight(memory, 32, 16);
    layer.output = weight(memory, 16, 32);
    layer.gate = weight(memory, 24, 16);
    layer.up = weight(memory, 24, 16);
    layer.down = weight(memory, 16, 24);
    layer.attention_norm = {memory, memory, memory, 3, 0};
    layer.hidden_norm = {memory, memory, memory, 3, 0};
    layer.context_k = memory;
    layer.context_v = memory;
  }
  frt_flow_layers_args args{};
  args.x_dtype = FRT_DTYPE_F32;
  args.dtype = FRT_DTYPE_BF16;
  args.layer_count = 2;
  args.count = 4;
  args.rows = 3;
  args.width = 16;
  args.hidden = 24;
  args.heads = 4;
  args.kv_heads = 2;
  args.head_dim = 8;
  args.context_rows = 5;
  args.sequences_per_context = 2;
  args.positions = 10;
  args.context_length = memory;
  args.context_stride = 16;
  args.table = memory;
  args.layers = layers;
  args.x = memory;
  args.normed = memory;
  args.q = memory;
  args.kv = memory;
  args.y = memory;
  args.gate = memory;
  args.h = memory;
  Trial<frt_flow_layers_args> t(
      FRT_OP_FLOW_LAYERS, with_formats<check_flow_layers>, args,
      {offsetof(frt_flow_layers_args, layer_count), offsetof(frt_flow_layers_args, layers)});
  t.hostile(layers, sizeof(layers), {});
  t.type(AT(x_dtype));
  t.type(AT(dtype));
  t.size(AT(layer_count));
  t.size(AT(count));
  t.size(AT(rows));
  t.refuse_as(AT(rows), INT32_MAX, "count has 2^31 rows or more");
  t.size(AT(width));
  t.size(AT(hidden));
  t.size(AT(heads));
  t.size(AT(kv_heads));
  t.refuse(AT(heads), 3, "is 3, expected a multiple of kv_heads, 2");
  t.size(AT(head_dim));
  t.refuse(AT(head_dim), 7, "is odd");
  t.size(AT(context_rows), 0);
  t.size(AT(sequences_per_context));
  t.refuse_as(AT(sequences_per_context), 3,
              "count is 4, expected a multiple of sequences_per_context, 3");
  t.size(AT(positions));
  t.memory(AT(context_length));
  t.stride(AT(context_stride), 16, "layers[0].context_k");
  t.memory(AT(table));
  t.memory(AT(layers));
  t.memory(AT(x), 4);
  t.memory(AT(normed), 2);
  t.memory(AT(q), 2);
  t.memory(AT(kv), 2);
  t.memory(AT(y), 2);
  t.memory(AT(gate), 2);
  t.memory(AT(h), 2);
  t.matrix(AT(layers[1].query));
  t.matrix(AT(layers[1].key_value));
  t.matrix(AT(layers[1].output));
  t.matrix(AT(layers[1].gate));
  t.matrix(AT(layers[1].up));
  t.matrix(AT(layers[1].down));
  t.equal(AT(layers[1].query.rows), 32);
  t.equal(AT(layers[1].key_value.cols), 16);
  t.equal(AT(layers[1].output.cols), 32);
  t.equal(AT(layers[1].gate.rows), 24);
  t.equal(AT(layers[1].up.rows), 24);
  t.equal(AT(layers[1].down.cols), 24);
  t.modulation(AT(layers[1].attention_norm));
  t.modulation(AT(layers[1].hidden_norm));
  t.memory(AT(layers[1].context_k), 2);
  t.memory(AT(layers[1].context_v), 2);
  t.refuse(AT(layers[1].qkv_scale), -1, "is neither 0 nor a positive number with a reciprocal");
  t.refuse_as(AT(layers[1].output_scale), 1,
              "layers[1].output.format is not FP8_TENSOR or FP8_CHANNEL, as output_scale needs");
  layers[1].down.format = FRT_WEIGHT_FP8_TENSOR;
  t.refuse(AT(layers[1].down_scale), 1, "is given, and hidden_scale is not");
  t.args().context_rows = 0;
  t.accept(AT(sequences_per_context), 0);
  t.accept(AT(layers[1].context_k), nullptr);
}

}  // namespace frt::test
