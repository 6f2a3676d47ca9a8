// SPDX-License-Identifier: Apache-2.0
// frt/flow_layers.hpp - what everybody needs who runs frt.flow_layers/1 as other operators: a layer
// as the arguments of its parts, and the checks of all that they share. Header-only; for backends
// and models.
#pragma once

#include <frt/ops/flow_layers.h>
#include <frt/checks.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

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

// ---- checks ----------------------------------------------------------------------------------

// Throws for what the operator does not take, before anything of it is submitted. check_weight is
// the backend's check of one matrix: check_weight(check, argument, weight).  [setup]
template <class CheckWeight>
void check_flow_layers(const Checks& check, const frt_flow_layers_args& args,
                       const CheckWeight& check_weight) {
  check.dtype("x_dtype", args.x_dtype);
  check.dtype("dtype", args.dtype);
  check.positive("layer_count", args.layer_count);
  check.positive("count", args.count);
  check.positive("rows", args.rows);
  check.require(std::int64_t{args.count} * args.rows <= INT32_MAX, "count",
                "* rows is 2^31 or more");
  check.positive("width", args.width);
  check.positive("hidden", args.hidden);
  check.positive("heads", args.heads);
  check.positive("kv_heads", args.kv_heads);
  check.require(args.heads % args.kv_heads == 0, "heads", "is not a multiple of kv_heads");
  check.positive("head_dim", args.head_dim);
  check.require(args.head_dim % 2 == 0, "head_dim", "is odd");
  check.positive("positions", args.positions);
  check.pointer("table", args.table);
  check.pointer("layers", args.layers);
  check.pointer("x", args.x);
  check.pointer("normed", args.normed);
  check.pointer("q", args.q);
  check.pointer("kv", args.kv);
  check.pointer("y", args.y);
  check.pointer("gate", args.gate);
  check.pointer("h", args.h);
  const std::int64_t q_width = std::int64_t{args.heads} * args.head_dim;
  const std::int64_t k_width = std::int64_t{args.kv_heads} * args.head_dim;
  check.at_least("context_rows", args.context_rows, 0);
  if (args.context_rows > 0) {
    check.positive("sequences_per_context", args.sequences_per_context);
    check.require(args.count % args.sequences_per_context == 0, "count",
                  "is not a multiple of sequences_per_context");
    check.pointer("context_length", args.context_length);
    check.at_least("context_stride", args.context_stride, k_width);
  }
  for (std::int32_t i = 0; i < args.layer_count; ++i) {
    const frt_flow_layer& layer = args.layers[i];
    const std::string prefix = "layers[" + std::to_string(i) + "].";
    const auto name = [&](const char* member) { return prefix + member; };
    const auto matrix = [&](const char* member, const frt_weight& weight, std::int64_t outputs,
                            std::int64_t inputs, const char* scale_member, float scale) {
      const std::string matrix_name = name(member);
      check_weight(check, matrix_name.c_str(), weight);
      check.range((matrix_name + ".rows").c_str(), weight.rows, outputs, outputs);
      check.range((matrix_name + ".cols").c_str(), weight.cols, inputs, inputs);
      check.scale(name(scale_member).c_str(), scale, (matrix_name + ".format").c_str(), weight);
    };
    matrix("query", layer.query, q_width, args.width, "qkv_scale", layer.qkv_scale);
    matrix("key_value", layer.key_value, 2 * k_width, args.width, "qkv_scale", layer.qkv_scale);
    matrix("output", layer.output, args.width, q_width, "output_scale", layer.output_scale);
    matrix("gate", layer.gate, args.hidden, args.width, "hidden_scale", layer.hidden_scale);
    matrix("up", layer.up, args.hidden, args.width, "hidden_scale", layer.hidden_scale);
    matrix("down", layer.down, args.width, args.hidden, "down_scale", layer.down_scale);
    check.require(layer.down_scale == 0 || layer.hidden_scale > 0, name("down_scale").c_str(),
                  "is given, and hidden_scale is not");
    const auto modulation = [&](const char* member, const frt_modulation& value) {
      check.pointer((name(member) + ".rows").c_str(), value.rows);
      if (!value.clean_rows) return;
      check.pointer((name(member) + ".clean").c_str(), value.clean);
      check.positive((name(member) + ".period").c_str(), value.period);
    };
    modulation("attention_norm", layer.attention_norm);
    modulation("hidden_norm", layer.hidden_norm);
    if (args.context_rows == 0) continue;
    check.pointer(name("context_k").c_str(), layer.context_k);
    check.pointer(name("context_v").c_str(), layer.context_v);
  }
}

}  // namespace frt
