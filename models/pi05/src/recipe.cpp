// SPDX-License-Identifier: Apache-2.0
// The computation of an engine. A vision layer is six operators, a layer of the prefix five: norm
// and input products (with rotation), attention, output product onto the residual stream, norm and
// GeGLU, output product onto the residual stream. The layers of the expert are one operator in all.
#include "recipe.hpp"

#include <array>
#include <cmath>
#include <limits>
#include <string>

namespace frt::pi05 {

void Engine::observe(const Recorder& recorder, const Variant& variant, const Tap* tap) const {
  pack_views(recorder, variant, m_.length);
  encode_images(recorder, variant, m_.x, tap);
  spread_tokens(recorder, variant, m_.x, 1);
  for (const BranchRange& branches : passes(variant))
    prefix_layers(recorder, variant, branches, tap);
}

void Engine::vision(const Recorder& recorder, const Variant& variant) const {
  const Variant images = {.views = variant.views};
  pack_views(recorder, images, m_.image_length);
  encode_images(recorder, images, m_.tokens, nullptr);
}

void Engine::prefix(const Recorder& recorder, const Variant& variant) const {
  pack_views(recorder, variant, m_.length);
  spread_tokens(recorder, variant, m_.tokens, 0);
  for (const BranchRange& branches : passes(variant))
    prefix_layers(recorder, variant, branches, nullptr);
}

// The product of packed rows onto the residual stream or somewhere else: what all have in common.
void Engine::dense(const Recorder& recorder, const frt_dense_args& args) const {
  frt_dense_args full = args;
  full.x_dtype = args.x_scale > 0 ? FRT_DTYPE_F8_E4M3 : precision_.activation;
  full.x_stride = args.weight.cols;
  full.y_stride = args.weight.rows;
  ops_.dense(recorder, full);
}

void Engine::show_input(const Tap* tap, const Input& input, const void* data, std::int64_t rows,
                        std::int64_t width) const {
  if (!tap || !tap->input || weights_.fp8) return;
  const std::string name =
      std::string(input.tower) + "." + std::to_string(input.layer) + "." + input.product;
  tap->input({name, input.first_branch, data, precision_.activation, rows, width});
}

void Engine::show_normed(const Recorder& recorder, const Tap* tap, const Input& input,
                         const frt_row_norm_args& norm) const {
  if (!tap || !tap->input || weights_.fp8) return;
  ops_.row_norm(recorder, norm);
  show_input(tap, input, norm.y, norm.rows, norm.width);
}

// ---- prefix ----------------------------------------------------------------------------------

// Image tokens as the first prefix rows of branches from `first_branch` on.
void Engine::spread_tokens(const Recorder& recorder, const Variant& variant, const void* tokens,
                           std::int64_t first_branch) const {
  const frt_dtype r = precision_.residual;
  for (std::int64_t branch = first_branch; branch < variant.branches; ++branch) {
    frt_convert_args copy{};
    copy.x_dtype = copy.y_dtype = r;
    copy.rows = i32(variant.views * dims_.cells());
    copy.width = i32(dims_.width);
    copy.row_count = m_.image_rows;
    copy.x = tokens;
    copy.y = rows_of(m_.x, r, branch * capacity(variant), dims_.width);
    copy.x_stride = copy.y_stride = dims_.width;
    ops_.convert(recorder, copy);
  }
}

void Engine::prefix_layers(const Recorder& recorder, const Variant& variant,
                           const BranchRange& branches, const Tap* tap) const {
  const frt_dtype a = precision_.activation;
  const frt_dtype r = precision_.residual;
  const std::int64_t room = capacity(variant);
  const std::int64_t first = branches.first * room;
  const std::int32_t rows = i32(branches.count * room);
  const std::int32_t* row_count = branches.count == 1 ? m_.length + branches.first : nullptr;
  void* x = rows_of(m_.x, r, first, dims_.width);
  void* q = rows_of(m_.q, a, first, dims_.query_width());
  void* y = rows_of(m_.y, a, first, dims_.query_width());
  void* h = rows_of(m_.h, a, first, dims_.mlp);
  const std::int64_t kv_width = 2 * dims_.head_dim;

  frt_embed_rows_args text{};
  text.y_dtype = r;
  text.branches = i32(branches.count);
  text.text_rows = i32(variant.prompt);
  text.y_rows = i32(room);
  text.scale = std::sqrt(static_cast<float>(dims_.width));
  text.first = m_.image_rows;
  text.count = ports_.prompt_length.pointer<std::int32_t>() + branches.first;
  text.ids = ports_.prompt_tokens.pointer<std::int32_t>() + branches.first * setup_.max_prompt;
  text.ids_stride = setup_.max_prompt;
  text.table = weights_.embedding;
  text.y = x;
  text.y_stride = dims_.width;
  ops_.embed_rows(recorder, text);
  show(tap, "prefix_embs", 0, x, r, rows, dims_.width);

  frt_norm_qkv_args qkv{};
  qkv.products.x_dtype = r;
  qkv.products.dtype = a;
  qkv.products.rows = rows;
  qkv.products.row_count = row_count;
  qkv.products.x = x;
  qkv.products.normed = rows_of(m_.normed, a, first, dims_.width);
  qkv.rope.dtype = a;
  qkv.rope.count = i32(branches.count);
  qkv.rope.rows = i32(room);
  qkv.rope.heads = i32(dims_.heads);
  qkv.rope.kv_heads = 1;
  qkv.rope.head_dim = i32(dims_.head_dim);
  qkv.rope.table = m_.rope;
  qkv.rope.positions = i32(positions());
  qkv.rope.q_stride = dims_.query_width();
  qkv.rope.k_stride = kv_width;

  frt_dense_attention_args attention{};
  attention.dtype = a;
  attention.scale = 1.0f / std::sqrt(static_cast<float>(dims_.head_dim));
  attention.count = i32(branches.count);
  attention.rows = i32(room);
  attention.heads = i32(dims_.heads);
  attention.kv_heads = 1;
  attention.head_dim = i32(dims_.head_dim);
  attention.length = m_.length + branches.first;
  attention.q = q;
  attention.q_stride = attention.y_stride = dims_.query_width();
  attention.kv_stride = kv_width;
  attention.y = y;

  frt_norm_geglu_args geglu{};
  geglu.x_dtype = r;
  geglu.dtype = a;
  geglu.rows = rows;
  geglu.row_count = row_count;
  geglu.x = x;
  geglu.normed = qkv.products.normed;
  geglu.gate = rows_of(m_.gate, a, first, dims_.mlp);
  geglu.h = h;

  frt_dense_args out{};
  out.y_dtype = r;
  out.rows = rows;
  out.accumulate = 1;
  out.row_count = row_count;
  out.y = x;

  for (std::int64_t i = 0; i < dims_.layers; ++i) {
    const GemmaLayer& layer = weights_.prefix[static_cast<std::size_t>(i)];
    const bool last = i + 1 == dims_.layers;  // of which only keys and values are read
    void* kv = context_rows(i, variant, branches.first);
    const std::array<frt_dense_part, 2> parts = {
        {{layer.query, nullptr, FRT_ACTIVATION_NONE, 0, q, dims_.query_width()},
         {layer.key_value, nullptr, FRT_ACTIVATION_NONE, 0, kv, kv_width}}};
    qkv.products.norm = rms(layer.input_norm);
    qkv.products.part_count = last ? 1 : 2;
    qkv.products.parts = parts.data() + (last ? 1 : 0);
    qkv.rope.q = last ? nullptr : q;
    qkv.rope.k = kv;
    qkv.products.normed_scale = layer.scales.qkv;
    show_normed(recorder, tap, {"prefix", "qkv", i, branches.first},
                norm_of(qkv.products, dims_.width));
    ops_.norm_qkv(recorder, qkv);
    show(tap, "prefix_kv", i, kv, a, rows, kv_width);
    if (last) break;

    attention.k = kv;
    attention.v = rows_of(kv, a, 1, dims_.head_dim);
    attention.y_scale = layer.scales.output;
    ops_.dense_attention(recorder, attention);
    out.x = y;
    out.x_scale = layer.scales.output;
    out.weight = layer.output;
    show_input(tap, {"prefix", "output", i, branches.first}, y, rows, dims_.query_width());
    dense(recorder, out);
    geglu.norm = rms(layer.post_norm);
    geglu.normed_scale = layer.scales.hidden;
    geglu.gate_weight = layer.gate;
    geglu.up_weight = layer.up;
    geglu.h_scale = layer.scales.down;
    show_normed(recorder, tap, {"prefix", "hidden", i, branches.first},
                norm_of(geglu, dims_.width));
    ops_.norm_geglu(recorder, geglu);
    out.x = h;
    out.x_scale = layer.scales.down;
    out.weight = layer.down;
    show_input(tap, {"prefix", "down", i, branches.first}, h, rows, dims_.mlp);
    dense(recorder, out);
    show(tap, "prefix_x", i, x, r, rows, dims_.width);
  }
}

// ---- actions ---------------------------------------------------------------------------------

void Engine::act(const Recorder& recorder, const Variant& variant, const Tap* tap) const {
  const auto* control = ports_.continuation.pointer<std::byte>();
  frt_flow_start_args start{};
  start.samples = i32(variant.samples);
  start.horizon = i32(setup_.horizon);
  start.dim = i32(dims_.action_dim);
  start.noise = ports_.noise.pointer<float>();
  start.previous = ports_.previous.pointer<float>();
  start.locked =
      reinterpret_cast<const std::int32_t*>(control + offsetof(frt_policy_continuation, locked));
  start.locked_clean = reinterpret_cast<const std::uint32_t*>(
      control + offsetof(frt_policy_continuation, locked_clean));
  start.x = ports_.actions.pointer<float>();
  start.clean_rows = m_.clean_rows;
  ops_.flow_start(recorder, start);
  ops_.flow_input(recorder, flow_input(variant));
  for (std::int64_t step = 0; step < variant.steps; ++step) {
    for (const BranchRange& branches : passes(variant))
      expert(recorder, variant, branches, step, tap);
    flow_step(recorder, variant, step, tap);
  }
}

frt_flow_input_args Engine::flow_input(const Variant& variant) const {
  frt_flow_input_args args{};
  args.h_dtype = precision_.residual;
  args.branches = i32(variant.branches);
  args.rows = i32(variant.samples * setup_.horizon);
  args.dim = i32(dims_.action_dim);
  args.width = i32(dims_.expert_width);
  args.x = ports_.actions.pointer<float>();
  args.weight = weights_.in_weight;
  args.bias = weights_.in_bias;
  args.h = m_.expert_x;
  return args;
}

// The operator of all layers, without the layers.
frt_flow_layers_args Engine::flow_layers(const Variant& variant,
                                         const BranchRange& branches) const {
  const frt_dtype a = precision_.activation;
  const std::int64_t first = branches.first * variant.samples * setup_.horizon;
  const std::int64_t kv_width = 2 * dims_.head_dim;
  frt_flow_layers_args args{};
  args.x_dtype = precision_.residual;
  args.dtype = a;
  args.count = i32(branches.count * variant.samples);
  args.rows = i32(setup_.horizon);
  args.width = i32(dims_.expert_width);
  args.hidden = i32(dims_.expert_mlp);
  args.heads = i32(dims_.heads);
  args.kv_heads = 1;
  args.head_dim = i32(dims_.head_dim);
  args.epsilon = kEpsilon;
  args.scale = 1.0f / std::sqrt(static_cast<float>(dims_.head_dim));
  args.context_rows = i32(capacity(variant));
  args.sequences_per_context = i32(variant.samples);
  args.positions = i32(positions());
  args.context_length = m_.length + branches.first;
  args.context_stride = kv_width;
  args.table = m_.rope;
  args.x = rows_of(m_.expert_x, precision_.residual, first, dims_.expert_width);
  args.normed = rows_of(m_.expert_normed, a, first, dims_.expert_width);
  args.q = rows_of(m_.expert_q, a, first, dims_.query_width());
  args.kv = rows_of(m_.expert_kv, a, first, kv_width);
  args.y = rows_of(m_.expert_y, a, first, dims_.query_width());
  args.gate = rows_of(m_.expert_gate, a, first, dims_.expert_mlp);
  args.h = rows_of(m_.expert_h, a, first, dims_.expert_mlp);
  return args;
}

frt_flow_layer Engine::flow_layer(const Variant& variant, const BranchRange& branches,
                                  std::int64_t step, std::int64_t index) const {
  const GemmaLayer& from = weights_.expert[static_cast<std::size_t>(index)];
  frt_flow_layer layer{};
  layer.query = from.query;
  layer.key_value = from.key_value;
  layer.output = from.output;
  layer.gate = from.gate;
  layer.up = from.up;
  layer.down = from.down;
  layer.attention_norm = modulation(variant, step, 2 * index);
  layer.hidden_norm = modulation(variant, step, 2 * index + 1);
  void* context = context_rows(index, variant, branches.first);
  layer.context_k = context;
  layer.context_v = rows_of(context, precision_.activation, 1, dims_.head_dim);
  layer.qkv_scale = from.scales.qkv;
  layer.output_scale = from.scales.output;
  layer.hidden_scale = from.scales.hidden;
  layer.down_scale = from.scales.down;
  return layer;
}

// All layers at once; one by one where somebody looks.
void Engine::expert(const Recorder& recorder, const Variant& variant, const BranchRange& branches,
                    std::int64_t step, const Tap* tap) const {
  std::vector<frt_flow_layer> layers;
  for (std::int64_t i = 0; i < dims_.layers; ++i) {
    layers.push_back(flow_layer(variant, branches, step, i));
  }
  frt_flow_layers_args args = flow_layers(variant, branches);
  args.layers = layers.data();
  args.layer_count = i32(dims_.layers);
  if (!tap) return ops_.flow_layers(recorder, args);

  args.layer_count = 1;
  for (std::int64_t i = 0; i < dims_.layers; ++i, ++args.layers) {
    if (tap->input) {
      expert_layer(recorder, args, i, branches, tap);
    } else {
      ops_.flow_layers(recorder, args);
    }
    if (step > 0) continue;
    show(tap, "s0_suffix_x", i, args.x, precision_.residual, args.count * args.rows,
         dims_.expert_width);
  }
}

// A layer operator by operator, because what the products multiply is to be seen.
void Engine::expert_layer(const Recorder& recorder, const frt_flow_layers_args& args,
                          std::int64_t index, const BranchRange& branches, const Tap* tap) const {
  const FlowLayerParts parts(args, *args.layers);
  const std::int64_t rows = parts.output.rows;
  show_normed(recorder, tap, {"expert", "qkv", index, branches.first},
              norm_of(parts.qkv.products, args.width));
  ops_.norm_qkv(recorder, parts.qkv);
  ops_.dense_attention(recorder, parts.attention);
  show_input(tap, {"expert", "output", index, branches.first}, args.y, rows, dims_.query_width());
  ops_.dense(recorder, parts.output);
  show_normed(recorder, tap, {"expert", "hidden", index, branches.first},
              norm_of(parts.geglu, args.width));
  ops_.norm_geglu(recorder, parts.geglu);
  show_input(tap, {"expert", "down", index, branches.first}, args.h, rows, dims_.expert_mlp);
  ops_.dense(recorder, parts.down);
}

frt_flow_output_args Engine::flow_output(const Variant& variant, const BranchRange& branches,
                                         std::int64_t step) const {
  const std::int64_t per_branch = variant.samples * setup_.horizon;
  frt_flow_output_args args{};
  args.h_dtype = precision_.residual;
  args.rows = i32(branches.count * per_branch);
  args.dim = i32(dims_.action_dim);
  args.width = i32(dims_.expert_width);
  args.h =
      rows_of(m_.expert_x, precision_.residual, branches.first * per_branch, dims_.expert_width);
  args.norm = adaptive(modulation(variant, step, dims_.modulations() - 1));
  args.weight = weights_.out_weight;
  args.bias = weights_.out_bias;
  args.v = m_.v + branches.first * per_branch * dims_.action_dim;
  return args;
}

void Engine::flow_step(const Recorder& recorder, const Variant& variant, std::int64_t step,
                       const Tap* tap) const {
  const std::int32_t rows = i32(variant.samples * setup_.horizon);
  const double t = 1.0 - static_cast<double>(step) / static_cast<double>(variant.steps);
  const double tau = 1.0 - t;
  const double pull =
      step == 0 ? std::numeric_limits<double>::infinity() : (t * t + tau * tau) / (t * tau);
  const auto* control = ports_.continuation.pointer<std::byte>();

  frt_flow_step_args args{};
  args.output = flow_output(variant, {0, variant.branches}, step);
  frt_flow_update_args& update = args.update;
  update.branches = i32(variant.branches);
  update.samples = i32(variant.samples);
  update.horizon = i32(setup_.horizon);
  update.dim = i32(dims_.action_dim);
  update.time = static_cast<float>(t);
  update.step = static_cast<float>(-1.0 / static_cast<double>(variant.steps));
  update.pull = static_cast<float>(pull);
  update.v = m_.v;
  if (variant.branches > 1) {
    update.beta = ports_.beta.pointer<float>() + step * (setup_.branches - 1);
  }
  update.previous = ports_.previous.pointer<float>();
  update.weights = ports_.previous_weights.pointer<float>();
  update.cap =
      reinterpret_cast<const float*>(control + offsetof(frt_policy_continuation, guidance_cap));
  update.locked =
      reinterpret_cast<const std::int32_t*>(control + offsetof(frt_policy_continuation, locked));
  update.velocity = tap ? m_.velocity : nullptr;
  update.x = ports_.actions.pointer<float>();
  if (step + 1 < variant.steps) args.next = flow_input(variant);
  ops_.flow_step(recorder, args);

  show(tap, "branch_v", step, m_.v, FRT_DTYPE_F32, variant.branches * rows, dims_.action_dim);
  show(tap, "v", step, m_.velocity, FRT_DTYPE_F32, rows, dims_.action_dim);
  show(tap, "x", step + 1, ports_.actions.pointer(), FRT_DTYPE_F32, rows, dims_.action_dim);
}

}  // namespace frt::pi05
