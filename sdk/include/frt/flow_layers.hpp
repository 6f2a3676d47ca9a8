// SPDX-License-Identifier: Apache-2.0
// frt/flow_layers.hpp - what everybody needs who runs frt.flow_layers/1 as other operators: a layer
// as the arguments of its parts. Header-only; for backends and models.
#pragma once

#include <frt/ops/flow_layers.h>
#include <frt/error.hpp>

#include <array>
#include <cstddef>
#include <cstdint>

namespace frt {

// The operators of one layer, to be called in the order of the members. All pointers are those of
// the arguments, but for qkv.products.parts: so it stays where it was made.
struct FlowLayerParts {
  FlowLayerParts(const frt_flow_layers_args& args, const frt_flow_layer& layer);
  FlowLayerParts(const FlowLayerParts&) = delete;
  FlowLayerParts& operator=(const FlowLayerParts&) = delete;

  frt_norm_qkv_args qkv{};
  frt_dense_attention_args attention{};
  frt_dense_args output{};
  frt_norm_geglu_args geglu{};
  frt_dense_args down{};

 private:
  // What the rows of the whole operator say of each part.
  static frt_norm norm_of(const frt_flow_layers_args& args, const frt_modulation& modulation) {
    frt_norm norm{};
    norm.kind = FRT_NORM_ADAPTIVE;
    norm.epsilon = args.epsilon;
    norm.modulation = modulation;
    return norm;
  }
  static frt_dense_args onto_x(const frt_flow_layers_args& args, const void* input, float scale,
                               const frt_weight& weight, const frt_modulation& gate);

  std::array<frt_dense_part, 2> products_{};
};

inline FlowLayerParts::FlowLayerParts(const frt_flow_layers_args& args,
                                      const frt_flow_layer& layer) {
  const std::int64_t q_width = std::int64_t{args.heads} * args.head_dim;
  const std::int64_t k_width = std::int64_t{args.kv_heads} * args.head_dim;
  const std::int32_t rows = args.count * args.rows;
  const bool contexts = args.context_rows > 0;
  void* v = static_cast<std::byte*>(args.kv) +
            k_width * static_cast<std::int64_t>(dtype_bits(args.dtype)) / 8;

  products_ = {{{layer.query, nullptr, FRT_ACTIVATION_NONE, 0, args.q, q_width},
                {layer.key_value, nullptr, FRT_ACTIVATION_NONE, 0, args.kv, 2 * k_width}}};
  frt_norm_dense_args& products = qkv.products;
  products.x_dtype = args.x_dtype;
  products.dtype = args.dtype;
  products.rows = rows;
  products.part_count = 2;
  products.normed_scale = layer.qkv_scale;
  products.norm = norm_of(args, layer.attention_norm);
  products.x = args.x;
  products.normed = args.normed;
  products.parts = products_.data();
  frt_rope_args& rope = qkv.rope;
  rope.dtype = args.dtype;
  rope.count = args.count;
  rope.rows = args.rows;
  rope.heads = args.heads;
  rope.kv_heads = args.kv_heads;
  rope.head_dim = args.head_dim;
  rope.sequences_per_base = args.sequences_per_context;
  rope.base = contexts ? args.context_length : nullptr;
  rope.table = args.table;
  rope.positions = args.positions;
  rope.q = args.q;
  rope.q_stride = q_width;
  rope.k = args.kv;
  rope.k_stride = 2 * k_width;

  attention.dtype = args.dtype;
  attention.scale = args.scale;
  attention.count = args.count;
  attention.rows = args.rows;
  attention.heads = args.heads;
  attention.kv_heads = args.kv_heads;
  attention.head_dim = args.head_dim;
  attention.q = args.q;
  attention.q_stride = q_width;
  attention.k = args.kv;
  attention.v = v;
  attention.kv_stride = 2 * k_width;
  attention.context_rows = args.context_rows;
  attention.sequences_per_context = args.sequences_per_context;
  attention.context_length = args.context_length;
  attention.context_k = layer.context_k;
  attention.context_v = layer.context_v;
  attention.context_stride = args.context_stride;
  attention.y = args.y;
  attention.y_stride = q_width;
  attention.y_scale = layer.output_scale;

  output = onto_x(args, args.y, layer.output_scale, layer.output, layer.attention_norm);

  geglu.x_dtype = args.x_dtype;
  geglu.dtype = args.dtype;
  geglu.rows = rows;
  geglu.norm = norm_of(args, layer.hidden_norm);
  geglu.x = args.x;
  geglu.normed = args.normed;
  geglu.gate_weight = layer.gate;
  geglu.up_weight = layer.up;
  geglu.gate = args.gate;
  geglu.h = args.h;
  geglu.normed_scale = layer.hidden_scale;
  geglu.h_scale = layer.down_scale;

  down = onto_x(args, args.h, layer.down_scale, layer.down, layer.hidden_norm);
}

inline frt_dense_args FlowLayerParts::onto_x(const frt_flow_layers_args& args, const void* input,
                                             float scale, const frt_weight& weight,
                                             const frt_modulation& gate) {
  frt_dense_args product{};
  product.x_dtype = scale > 0 ? FRT_DTYPE_F8_E4M3 : args.dtype;
  product.y_dtype = args.x_dtype;
  product.rows = args.count * args.rows;
  product.accumulate = 1;
  product.x = input;
  product.x_stride = weight.cols;
  product.x_scale = scale;
  product.weight = weight;
  product.gate = gate;
  product.y = args.x;
  product.y_stride = args.width;
  return product;
}

}  // namespace frt
