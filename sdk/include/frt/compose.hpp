// SPDX-License-Identifier: Apache-2.0
// frt/compose.hpp - all operators of frt/ops as functions, fused ones with their default
// composition. Header only; for any model plugin.
//
// A model calls the largest operator that says what it means, e.g. norm_linears. If the backend
// has a kernel of that name it runs; if not, the operator is composed of smaller ones here, with
// the same result (but for rounding in between). So a model is written once and a backend decides
// how much of it is one kernel.
//
//   frt::Operators ops(context, frt::KernelTypes(FRT_DTYPE_BF16), frt::kWeightBf16,
//                      {FRT_OP_EMBED, FRT_OP_NORM_LINEARS, FRT_OP_SAMPLE});
//   ...
//   graph.capture(key, [&](const frt::Recorder& recorder) {
//     frt_embed_args embed{};
//     embed.y_dtype = FRT_DTYPE_BF16;
//     ...
//     ops.embed(recorder, embed);
//   });
//
// Needs are names from frt/ops; a fused name means "the kernel, or all its parts". Everything that
// is missing is reported in one error. struct_size members are filled here, also those inside the
// blocks. Calls throw frt::Error with the operator's name; they are [driver], and [hot] where the
// backend's launch is.
//
// Composed blocks follow the rules of their parts. One difference is visible: rows that are only
// padding (frt/ops/sequences.h) of y and of working memory may be written.
#pragma once

#include <frt/error.hpp>
#include <frt/exec.hpp>
#include <frt/flow_layers.hpp>
#include <frt/gated_delta.hpp>
#include <frt/operator_list.hpp>
#include <frt/ops/checks/flow_layers.hpp>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace frt {

// Whether a backend's fused kernels are used; kCompose is for tests and for finding defects.
enum class Fusion : uint8_t { kUseKernels, kCompose };

class Operators {
 public:
  Operators() = default;

  // Resolves `needs` (names from frt/ops; empty: all of them) for element types and the
  // weight formats of the model. Throws FRT_ERR_NOT_FOUND with every missing name, and
  // FRT_ERR_INVALID_ARGUMENT for a name that is not an operator of this header.  [setup]
  Operators(const Context& context, KernelTypes types, const WeightFormats& weights,
            const std::vector<std::string>& needs = {}, Fusion fusion = Fusion::kUseKernels) {
    resolve(context, types, weights, needs.empty() ? all_names() : needs, fusion);
  }
  Operators(const Context& context, KernelTypes types, const WeightFormats& weights,
            std::initializer_list<std::string> needs, Fusion fusion = Fusion::kUseKernels)
      : Operators(context, types, weights, std::vector<std::string>(needs), fusion) {}

  // Whether the operator `name` runs as one kernel of the backend.  [any]
  bool has_kernel(std::string_view name) const noexcept {
    bool found = false;
    for_each([&](const auto& kernel, std::string_view kernel_name) {
      if (kernel_name == name) found = static_cast<bool>(kernel);
    });
    return found;
  }

  // One function per primitive operator: void embed(recorder, args) and so on.  [driver]
#define FRT_DECLARE(function, Args, name)                           \
  void function(const Recorder& recorder, const Args& args) const { \
    function##_(recorder, args);                                    \
  }
  FRT_PRIMITIVE_OPERATORS(FRT_DECLARE)
#undef FRT_DECLARE

  // The fused operators: the backend's kernel or the composition.  [driver]
  void norm_linears(const Recorder& recorder, const frt_norm_linears_args& args) const;
  void norm_gate_up(const Recorder& recorder, const frt_norm_gate_up_args& args) const;
  void gated_delta_block(const Recorder& recorder, const frt_gated_delta_block_args& args) const;
  void gated_delta_commit(const Recorder& recorder, const frt_gated_delta_commit_args& args) const;
  void attention_block(const Recorder& recorder, const frt_attention_block_args& args) const;
  void moe_block(const Recorder& recorder, const frt_moe_block_args& args) const;
  void norm_dense(const Recorder& recorder, const frt_norm_dense_args& args) const;
  void norm_geglu(const Recorder& recorder, const frt_norm_geglu_args& args) const;
  void norm_qkv(const Recorder& recorder, const frt_norm_qkv_args& args) const;
  void patch_embed(const Recorder& recorder, const frt_patch_embed_args& args) const;
  void flow_step(const Recorder& recorder, const frt_flow_step_args& args) const;
  void flow_layers(const Recorder& recorder, const frt_flow_layers_args& args) const;

 private:
  // What a fused operator is composed of; empty for primitives.
  static std::vector<std::string> parts_of(std::string_view name) {
    if (name == FRT_OP_NORM_LINEARS) return {FRT_OP_ADD_RMS_NORM, FRT_OP_LINEAR};
    if (name == FRT_OP_NORM_GATE_UP) return {FRT_OP_NORM_LINEARS, FRT_OP_SILU_MUL};
    if (name == FRT_OP_GATED_DELTA_BLOCK) {
      return {FRT_OP_CAUSAL_CONV, FRT_OP_GATED_DELTA, FRT_OP_GATED_RMS_NORM};
    }
    if (name == FRT_OP_GATED_DELTA_COMMIT) return {FRT_OP_CAUSAL_CONV, FRT_OP_GATED_DELTA};
    if (name == FRT_OP_ATTENTION_BLOCK) return {FRT_OP_ATTENTION_APPEND, FRT_OP_ATTENTION};
    if (name == FRT_OP_MOE_BLOCK) {
      return {FRT_OP_ADD_RMS_NORM, FRT_OP_LINEAR,       FRT_OP_MOE_ROUTE,
              FRT_OP_MOE_EXPERTS,  FRT_OP_NORM_GATE_UP, FRT_OP_MOE_COMBINE};
    }
    if (name == FRT_OP_NORM_DENSE) return {FRT_OP_ROW_NORM, FRT_OP_DENSE};
    if (name == FRT_OP_NORM_GEGLU) return {FRT_OP_NORM_DENSE, FRT_OP_GELU_MUL};
    if (name == FRT_OP_NORM_QKV) return {FRT_OP_NORM_DENSE, FRT_OP_ROPE};
    if (name == FRT_OP_PATCH_EMBED) return {FRT_OP_PATCHES, FRT_OP_DENSE};
    if (name == FRT_OP_FLOW_STEP) {
      return {FRT_OP_FLOW_OUTPUT, FRT_OP_FLOW_UPDATE, FRT_OP_FLOW_INPUT};
    }
    if (name == FRT_OP_FLOW_LAYERS) {
      return {FRT_OP_NORM_QKV, FRT_OP_DENSE_ATTENTION, FRT_OP_DENSE, FRT_OP_NORM_GEGLU};
    }
    return {};
  }

  static std::vector<std::string> all_names() {
#define FRT_NAME(function, Args, name) name,
    return {FRT_PRIMITIVE_OPERATORS(FRT_NAME) FRT_FUSED_OPERATORS(FRT_NAME)};
#undef FRT_NAME
  }

  // Calls visit(kernel, name) for every operator.
  template <class Visit>
  void for_each(Visit&& visit) const {
#define FRT_VISIT(function, Args, name) visit(function##_, std::string_view(name));
    FRT_PRIMITIVE_OPERATORS(FRT_VISIT)
    FRT_FUSED_OPERATORS(FRT_VISIT)
#undef FRT_VISIT
  }

  void resolve(const Context& context, KernelTypes types, const WeightFormats& weights,
               const std::vector<std::string>& needs, Fusion fusion);
  void collect_missing(const std::string& name, const std::string& whole,
                       std::vector<std::string>& missing) const;

#define FRT_MEMBER(function, Args, name) Kernel<Args> function##_;
  FRT_PRIMITIVE_OPERATORS(FRT_MEMBER)
  FRT_FUSED_OPERATORS(FRT_MEMBER)
#undef FRT_MEMBER
};

// ---- resolution ------------------------------------------------------------------------------

inline void Operators::resolve(const Context& context, KernelTypes types,
                               const WeightFormats& weights, const std::vector<std::string>& needs,
                               Fusion fusion) {
  // Everything wanted, fused operators before their parts.
  std::vector<std::string> wanted;
  const std::vector<std::string> known = all_names();
  const auto contains = [](const std::vector<std::string>& names, std::string_view name) {
    for (const std::string& other : names) {
      if (other == name) return true;
    }
    return false;
  };
  for (const std::string& name : needs) {
    if (!contains(known, name)) {
      throw Error(FRT_ERR_INVALID_ARGUMENT,
                  "operators: '" + name + "' is not one of frt/ops; resolve it as a frt::Kernel");
    }
    if (!contains(wanted, name)) wanted.push_back(name);
  }
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    for (const std::string& part : parts_of(wanted[i])) {
      if (!contains(wanted, part)) wanted.push_back(part);
    }
  }

  // All optional: which of them are required depends on which fused ones are there.
  KernelSet others;
  const auto add = [&](auto& kernel, std::string_view name) {
    if (!contains(wanted, name)) return;
    if (fusion == Fusion::kCompose && !parts_of(name).empty()) return;
    const std::string optional = "?" + std::string(name);
    if (name != FRT_OP_EMBED && name != FRT_OP_EMBED_ROWS) {
      others.add(kernel, optional);
      return;
    }
    // Which of the model's formats its table has is not known here: one kernel for all of those
    // that any kernel of the operator takes.
    WeightFormats taken;
    for (const frt_weight_format& format : weights) {
      KernelSet().add(kernel, optional).resolve(context, types, format);
      if (kernel) taken.add(format);
    }
    KernelSet().add(kernel, optional).resolve(context, types, taken);
  };
#define FRT_ADD(function, Args, name) add(function##_, name);
  FRT_PRIMITIVE_OPERATORS(FRT_ADD)
  FRT_FUSED_OPERATORS(FRT_ADD)
#undef FRT_ADD
  others.resolve(context, types, weights);

  std::vector<std::string> missing;
  for (const std::string& name : needs) collect_missing(name, "", missing);
  if (missing.empty()) return;
  std::string text = "the device's backend lacks operators for " +
                     dtype_names(types.inputs | types.outputs) + " activations and weights in " +
                     weight_texts({weights.data(), weights.size()}) + ":";
  for (std::size_t i = 0; i < missing.size(); ++i) text += (i ? ", " : " ") + missing[i];
  throw Error(FRT_ERR_NOT_FOUND, text + "; use another backend or a newer one");
}

inline void Operators::collect_missing(const std::string& name, const std::string& whole,
                                       std::vector<std::string>& missing) const {
  if (has_kernel(name)) return;
  const std::vector<std::string> parts = parts_of(name);
  for (const std::string& part : parts) collect_missing(part, name, missing);
  if (!parts.empty()) return;
  for (const std::string& other : missing) {
    if (other.compare(0, name.size(), name) == 0) return;
  }
  missing.push_back(whole.empty() ? name : name + " (or " + whole + ")");
}

// ---- compositions ----------------------------------------------------------------------------

inline void Operators::norm_linears(const Recorder& recorder,
                                    const frt_norm_linears_args& args) const {
  if (norm_linears_) return norm_linears_(recorder, args);
  if (!args.parts || args.part_count < 1 || args.part_count > FRT_LINEAR_GROUP_MAX) {
    throw Error(FRT_ERR_INVALID_ARGUMENT, FRT_OP_NORM_LINEARS ": part_count " +
                                              std::to_string(args.part_count) + ", expected 1 to " +
                                              std::to_string(FRT_LINEAR_GROUP_MAX) + " parts");
  }
  const int32_t inputs = args.parts[0].weight.cols;
  if (args.residual) {
    frt_add_rms_norm_args norm{};
    norm.residual_dtype = args.residual_dtype;
    norm.dtype = args.dtype;
    norm.rows = args.rows;
    norm.width = inputs;
    norm.epsilon = args.epsilon;
    norm.row_count = args.row_count;
    norm.residual = args.residual;
    norm.delta = args.delta;
    norm.weight = args.norm_weight;
    norm.y = args.x;
    add_rms_norm_(recorder, norm);
  }
  for (int32_t i = 0; i < args.part_count; ++i) {
    const frt_linear_part& part = args.parts[i];
    frt_linear_args product{};
    product.x_dtype = args.dtype;
    product.y_dtype = args.dtype;
    product.rows = args.rows;
    product.row_count = args.row_count;
    product.x = args.x;
    product.x_stride = inputs;
    product.weight = part.weight;
    product.y = part.y;
    product.y_stride = part.y_stride;
    linear_(recorder, product);
  }
}

inline void Operators::norm_gate_up(const Recorder& recorder,
                                    const frt_norm_gate_up_args& args) const {
  if (norm_gate_up_) return norm_gate_up_(recorder, args);
  const int32_t width = args.gate_weight.rows;
  const frt_linear_part parts[2] = {{args.gate_weight, args.gate, width},
                                    {args.up_weight, args.h, width}};
  frt_norm_linears_args products{};
  products.residual_dtype = args.residual_dtype;
  products.dtype = args.dtype;
  products.rows = args.rows;
  products.part_count = 2;
  products.epsilon = args.epsilon;
  products.row_count = args.row_count;
  products.residual = args.residual;
  products.delta = args.delta;
  products.norm_weight = args.norm_weight;
  products.x = args.x;
  products.parts = parts;
  norm_linears(recorder, products);

  frt_binary_args product{};
  product.dtype = args.dtype;
  product.rows = args.rows;
  product.width = width;
  product.row_count = args.row_count;
  product.a = args.gate;
  product.a_stride = width;
  product.b = args.h;
  product.b_stride = width;
  product.y = args.h;
  product.y_stride = width;
  silu_mul_(recorder, product);
}

inline void Operators::gated_delta_block(const Recorder& recorder,
                                         const frt_gated_delta_block_args& args) const {
  if (gated_delta_block_) {
    frt_gated_delta_block_args block = args;
    block.conv.struct_size = sizeof(block.conv);
    block.delta.struct_size = sizeof(block.delta);
    return gated_delta_block_(recorder, block);
  }
  causal_conv_(recorder, args.conv);
  gated_delta_(recorder, args.delta);
  const frt_sequences& sequences = args.delta.sequences;
  frt_gated_rms_norm_args norm{};
  norm.x_dtype = args.delta.dtype;
  norm.dtype = args.delta.dtype;
  norm.rows = sequences.count * sequences.rows;
  norm.heads = args.delta.value_heads;
  norm.width = args.delta.value_dim;
  norm.epsilon = args.epsilon;
  norm.row_count = sequences.count == 1 ? sequences.length : nullptr;
  norm.x = args.delta.o;
  norm.z = args.z;
  norm.weight = args.norm_weight;
  norm.y = args.y;
  gated_rms_norm_(recorder, norm);
}

inline void Operators::gated_delta_commit(const Recorder& recorder,
                                          const frt_gated_delta_commit_args& args) const {
  if (gated_delta_commit_) {
    frt_gated_delta_commit_args commit = args;
    commit.conv.struct_size = sizeof(commit.conv);
    commit.delta.struct_size = sizeof(commit.delta);
    return gated_delta_commit_(recorder, commit);
  }
  for (int32_t layer = 0; layer < args.layer_count; ++layer) {
    causal_conv_(recorder, commit_conv(args, layer));
    gated_delta_(recorder, commit_delta(args, layer));
  }
}

inline void Operators::attention_block(const Recorder& recorder,
                                       const frt_attention_block_args& args) const {
  if (attention_block_) {
    frt_attention_block_args block = args;
    block.append.struct_size = sizeof(block.append);
    block.attention.struct_size = sizeof(block.attention);
    return attention_block_(recorder, block);
  }
  attention_append_(recorder, args.append);
  attention_(recorder, args.attention);
}

inline void Operators::moe_block(const Recorder& recorder, const frt_moe_block_args& args) const {
  if (moe_block_) return moe_block_(recorder, args);
  const int32_t inputs = args.router.cols;
  if (args.residual) {
    frt_add_rms_norm_args norm{};
    norm.residual_dtype = args.residual_dtype;
    norm.dtype = args.dtype;
    norm.rows = args.rows;
    norm.width = inputs;
    norm.epsilon = args.epsilon;
    norm.row_count = args.row_count;
    norm.residual = args.residual;
    norm.delta = args.delta;
    norm.weight = args.norm_weight;
    norm.y = args.x;
    add_rms_norm_(recorder, norm);
  }
  // A product of x that stays dense: y has the type and the width given.
  const auto product = [&](const void* x, const frt_weight& weight, frt_dtype y_dtype, void* y) {
    frt_linear_args linear_args{};
    linear_args.x_dtype = args.dtype;
    linear_args.y_dtype = y_dtype;
    linear_args.rows = args.rows;
    linear_args.row_count = args.row_count;
    linear_args.x = x;
    linear_args.x_stride = weight.cols;
    linear_args.weight = weight;
    linear_args.y = y;
    linear_args.y_stride = weight.rows;
    linear_(recorder, linear_args);
  };

  product(args.x, args.router, FRT_DTYPE_F32, args.logits);
  frt_moe_route_args route{};
  route.rows = args.rows;
  route.experts = args.experts;
  route.experts_per_token = args.experts_per_token;
  route.normalise = args.normalise;
  route.row_count = args.row_count;
  route.logits = args.logits;
  route.ids = args.ids;
  route.weights = args.weights;
  moe_route_(recorder, route);

  frt_moe_experts_args routed{};
  routed.dtype = args.dtype;
  routed.rows = args.rows;
  routed.experts = args.experts;
  routed.experts_per_token = args.experts_per_token;
  routed.row_count = args.row_count;
  routed.x = args.x;
  routed.ids = args.ids;
  routed.weights = args.weights;
  routed.gate = args.gate;
  routed.up = args.up;
  routed.down = args.down;
  routed.y = args.y;
  moe_experts_(recorder, routed);
  if (args.shared_gate_weight.rows == 0) return;

  // shared_hidden holds the gate's half first, then h.
  const int32_t width = args.shared_gate_weight.rows;
  const std::size_t half = static_cast<std::size_t>(args.rows) * static_cast<std::size_t>(width) *
                           dtype_bits(args.dtype) / 8;
  frt_norm_gate_up_args gate_up{};
  gate_up.residual_dtype = args.residual_dtype;
  gate_up.dtype = args.dtype;
  gate_up.rows = args.rows;
  gate_up.row_count = args.row_count;
  gate_up.x = args.x;
  gate_up.gate_weight = args.shared_gate_weight;
  gate_up.up_weight = args.shared_up_weight;
  gate_up.gate = args.shared_hidden;
  gate_up.h = static_cast<std::byte*>(args.shared_hidden) + half;
  norm_gate_up(recorder, gate_up);
  product(gate_up.h, args.shared_down_weight, args.dtype, args.shared_y);
  product(args.x, args.shared_expert_gate, FRT_DTYPE_F32, args.shared_scale);

  frt_moe_combine_args combine{};
  combine.dtype = args.dtype;
  combine.rows = args.rows;
  combine.width = inputs;
  combine.row_count = args.row_count;
  combine.routed = args.y;
  combine.shared = args.shared_y;
  combine.gate = args.shared_scale;
  combine.y = args.y;
  moe_combine_(recorder, combine);
}

// ---- compositions of encoders and flow experts -----------------------------------------------

inline void Operators::norm_dense(const Recorder& recorder, const frt_norm_dense_args& args) const {
  if (norm_dense_) return norm_dense_(recorder, args);
  if (args.normed_scale != 0) {
    throw Error(FRT_ERR_UNSUPPORTED, FRT_OP_NORM_DENSE
                ": FP8 activations need a kernel of the backend; there is no composition");
  }
  if (!args.parts || args.part_count < 1 || args.part_count > FRT_DENSE_PARTS_MAX) {
    throw Error(FRT_ERR_INVALID_ARGUMENT, FRT_OP_NORM_DENSE ": part_count " +
                                              std::to_string(args.part_count) + ", expected 1 to " +
                                              std::to_string(FRT_DENSE_PARTS_MAX) + " parts");
  }
  const int32_t inputs = args.parts[0].weight.cols;
  const bool normed = args.norm.kind != FRT_NORM_NONE;
  if (normed) {
    frt_row_norm_args norm{};
    norm.x_dtype = args.x_dtype;
    norm.y_dtype = args.dtype;
    norm.rows = args.rows;
    norm.width = inputs;
    norm.row_count = args.row_count;
    norm.norm = args.norm;
    norm.x = args.x;
    norm.x_stride = inputs;
    norm.y = args.normed;
    norm.y_stride = inputs;
    row_norm_(recorder, norm);
  }
  for (int32_t i = 0; i < args.part_count; ++i) {
    const frt_dense_part& part = args.parts[i];
    frt_dense_args product{};
    product.x_dtype = args.dtype;
    product.y_dtype = args.dtype;
    product.rows = args.rows;
    product.row_count = args.row_count;
    product.x = normed ? args.normed : args.x;
    product.x_stride = inputs;
    product.weight = part.weight;
    product.activation = part.activation;
    product.bias = part.bias;
    product.y = part.y;
    product.y_stride = part.y_stride;
    dense_(recorder, product);
  }
}

inline void Operators::norm_geglu(const Recorder& recorder, const frt_norm_geglu_args& args) const {
  if (norm_geglu_) return norm_geglu_(recorder, args);
  if (args.normed_scale != 0 || args.h_scale != 0) {
    throw Error(FRT_ERR_UNSUPPORTED, FRT_OP_NORM_GEGLU
                ": FP8 activations need a kernel of the backend; there is no composition");
  }
  const int32_t width = args.gate_weight.rows;
  const frt_dense_part parts[2] = {
      {args.gate_weight, nullptr, FRT_ACTIVATION_NONE, 0, args.gate, width},
      {args.up_weight, nullptr, FRT_ACTIVATION_NONE, 0, args.h, width}};
  frt_norm_dense_args products{};
  products.x_dtype = args.x_dtype;
  products.dtype = args.dtype;
  products.rows = args.rows;
  products.part_count = 2;
  products.row_count = args.row_count;
  products.norm = args.norm;
  products.x = args.x;
  products.normed = args.normed;
  products.parts = parts;
  norm_dense(recorder, products);

  frt_binary_args product{};
  product.dtype = args.dtype;
  product.rows = args.rows;
  product.width = width;
  product.row_count = args.row_count;
  product.a = args.gate;
  product.a_stride = width;
  product.b = args.h;
  product.b_stride = width;
  product.y = args.h;
  product.y_stride = width;
  gelu_mul_(recorder, product);
}

inline void Operators::norm_qkv(const Recorder& recorder, const frt_norm_qkv_args& args) const {
  if (norm_qkv_) {
    frt_norm_qkv_args block = args;
    block.products.struct_size = sizeof(block.products);
    block.rope.struct_size = sizeof(block.rope);
    return norm_qkv_(recorder, block);
  }
  norm_dense(recorder, args.products);
  rope_(recorder, args.rope);
}

inline void Operators::patch_embed(const Recorder& recorder,
                                   const frt_patch_embed_args& args) const {
  if (patch_embed_) {
    frt_patch_embed_args block = args;
    block.patches.struct_size = sizeof(block.patches);
    block.product.struct_size = sizeof(block.product);
    return patch_embed_(recorder, block);
  }
  patches_(recorder, args.patches);
  dense_(recorder, args.product);
}

inline void Operators::flow_step(const Recorder& recorder, const frt_flow_step_args& args) const {
  if (flow_step_) {
    frt_flow_step_args block = args;
    block.output.struct_size = sizeof(block.output);
    block.update.struct_size = sizeof(block.update);
    block.next.struct_size = sizeof(block.next);
    return flow_step_(recorder, block);
  }
  flow_output_(recorder, args.output);
  flow_update_(recorder, args.update);
  if (args.next.h) flow_input_(recorder, args.next);
}

inline void Operators::flow_layers(const Recorder& recorder,
                                   const frt_flow_layers_args& args) const {
  if (flow_layers_) return flow_layers_(recorder, args);
  check_flow_layers(Checks(FRT_OP_FLOW_LAYERS), args, {});
  for (int32_t i = 0; i < args.layer_count; ++i) {
    const FlowLayerParts parts(args, args.layers[i]);
    norm_qkv(recorder, parts.qkv);
    dense_attention_(recorder, parts.attention);
    dense_(recorder, parts.output);
    norm_geglu(recorder, parts.geglu);
    dense_(recorder, parts.down);
  }
}

}  // namespace frt
