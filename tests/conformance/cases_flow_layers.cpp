// SPDX-License-Identifier: Apache-2.0
// Cases of frt/ops/flow_layers.h. Weights, modulations and scores are such that values stay of
// order one and every part of a layer moves x: attention is sharp enough to be more than a mean.
#include <frt/ops/flow_layers.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "check.hpp"
#include "refusal.hpp"

namespace frt::conformance {
namespace {

const Packing kF32Weights{"f32", kWeightF32};
const Packing kBf16Weights{"bf16", kWeightBf16};

// What is FP8 of the inputs of products: none, the normed rows, or all.
enum class Fp8 { kNone, kNormed, kAll };

struct Types {
  frt_dtype x, dtype;
  Packing packing;
  Fp8 fp8 = Fp8::kNone;
};
std::string text(const Types& t) {
  const char* forms[] = {"", " fp8 normed", " fp8"};
  return std::string(dtype_name(t.dtype)) + " x " + dtype_name(t.x) + " weights " + t.packing.name +
         forms[static_cast<int>(t.fp8)];
}

struct Shape {
  int32_t layers, count, rows, width, hidden, heads, kv_heads, head_dim;
  int32_t context_rows = 0, sequences_per_context = 1;
  std::vector<int32_t> context_length = {};
  int32_t clean = -1;  // rows of a sequence that take the other condition; none
};
std::string text(const Shape& s) {
  std::string name = std::to_string(s.layers) + " of " + std::to_string(s.width) + " " +
                     std::to_string(s.heads) + "/" + std::to_string(s.kv_heads) + "x" +
                     std::to_string(s.head_dim) + " " + std::to_string(s.hidden) + ": " +
                     std::to_string(s.count) + "x" + std::to_string(s.rows);
  if (s.context_rows > 0) name += " context";
  for (const int32_t length : s.context_length) name += " " + std::to_string(length);
  return name + (s.clean >= 0 ? " clean " + std::to_string(s.clean) : "");
}

struct Layer {
  Weight query, key_value, output, gate, up, down;
  Tensor *attention_norm, *attention_clean, *hidden_norm, *hidden_clean, *context;
};

// Everything a call needs, on both sides.
class Expert {
 public:
  Expert(Case& c, const Types& types, const Shape& shape) : types_(types), s_(shape) {
    const int64_t rows = int64_t{s_.count} * s_.rows;
    const int32_t q_width = s_.heads * s_.head_dim;
    const int32_t kv_width = 2 * s_.kv_heads * s_.head_dim;
    const int64_t contexts = s_.context_rows > 0 ? s_.count / s_.sequences_per_context : 0;
    const auto vectors = [&](const char* name) {
      return &c.normal(name, FRT_DTYPE_F32, int64_t{3} * s_.width, 0.5f);
    };
    for (int32_t i = 0; i < s_.layers; ++i) {
      Layer& layer = layers_.emplace_back();
      layer.query = c.weight("query", types.packing, q_width, s_.width);
      layer.key_value = c.weight("key and value", types.packing, kv_width, s_.width);
      layer.output = c.weight("output", types.packing, s_.width, q_width);
      layer.gate = c.weight("gate", types.packing, s_.hidden, s_.width);
      layer.up = c.weight("up", types.packing, s_.hidden, s_.width);
      layer.down = c.weight("down", types.packing, s_.width, s_.hidden);
      layer.attention_norm = vectors("modulation");
      layer.attention_clean = vectors("clean modulation");
      layer.hidden_norm = vectors("hidden modulation");
      layer.hidden_clean = vectors("clean hidden modulation");
      layer.context = &c.normal("context", types.dtype,
                                std::max<int64_t>(1, contexts * s_.context_rows * kv_width));
    }
    table_ = &c.uniform("table", FRT_DTYPE_F32, int64_t{positions()} * s_.head_dim, -1.0f, 1.0f);
    context_length_ = &c.integers(
        "context length", s_.context_length.empty() ? std::vector<int32_t>{0} : s_.context_length);
    clean_rows_ = &c.integers("clean rows", {s_.clean});
    x_ = &c.normal("x", types.x, rows * s_.width);
    normed_ = &c.output("normed", types.dtype, rows * s_.width);
    q_ = &c.output("q", types.dtype, rows * q_width);
    kv_ = &c.output("kv", types.dtype, rows * kv_width);
    y_ = &c.output("y", types.dtype, rows * q_width);
    gate_ = &c.output("gate rows", types.dtype, rows * s_.hidden);
    h_ = &c.output("h", types.dtype, rows * s_.hidden);
  }

  void fill(frt_flow_layers_args& args, const At& at) {
    const int32_t kv_width = 2 * s_.kv_heads * s_.head_dim;
    std::vector<frt_flow_layer>& list = lists_[static_cast<std::size_t>(at.side())];
    list.clear();
    for (const Layer& layer : layers_) list.push_back(describe(layer, at));
    args.x_dtype = types_.x;
    args.dtype = types_.dtype;
    args.layer_count = s_.layers;
    args.count = s_.count;
    args.rows = s_.rows;
    args.width = s_.width;
    args.hidden = s_.hidden;
    args.heads = s_.heads;
    args.kv_heads = s_.kv_heads;
    args.head_dim = s_.head_dim;
    args.epsilon = 1e-6f;
    args.scale = 2.0f / std::sqrt(static_cast<float>(s_.head_dim));
    args.context_rows = s_.context_rows;
    if (s_.context_rows > 0) {
      args.sequences_per_context = s_.sequences_per_context;
      args.context_length = at.operator()<int32_t>(*context_length_);
      args.context_stride = kv_width;
    }
    args.positions = positions();
    args.table = at.operator()<float>(*table_);
    args.layers = list.data();
    args.x = at(*x_);
    args.normed = at(*normed_);
    args.q = at(*q_);
    args.kv = at(*kv_);
    args.y = at(*y_);
    args.gate = at(*gate_);
    args.h = at(*h_);
  }

  // The layers of a side, to be spoiled.
  frt_flow_layer* layers(int side) { return lists_[static_cast<std::size_t>(side)].data(); }
  const Tensor& x() const { return *x_; }
  KernelTypes kernel_types() const {
    return KernelTypes(types_.fp8 == Fp8::kNone ? types_.dtype : FRT_DTYPE_F8_E4M3);
  }

 private:
  int32_t positions() const { return s_.context_rows + s_.rows; }

  frt_flow_layer describe(const Layer& from, const At& at) const {
    const auto modulation = [&](const Tensor& rows, const Tensor& clean) {
      frt_modulation made{};
      made.rows = at.operator()<float>(rows);
      if (s_.clean < 0) return made;
      made.clean = at.operator()<float>(clean);
      made.clean_rows = at.operator()<int32_t>(*clean_rows_);
      made.period = s_.rows;
      return made;
    };
    frt_flow_layer layer{};
    layer.query = Case::at(from.query, at);
    layer.key_value = Case::at(from.key_value, at);
    layer.output = Case::at(from.output, at);
    layer.gate = Case::at(from.gate, at);
    layer.up = Case::at(from.up, at);
    layer.down = Case::at(from.down, at);
    layer.attention_norm = modulation(*from.attention_norm, *from.attention_clean);
    layer.hidden_norm = modulation(*from.hidden_norm, *from.hidden_clean);
    if (s_.context_rows > 0) {
      layer.context_k = at(*from.context);
      layer.context_v = at(*from.context, int64_t{s_.kv_heads} * s_.head_dim);
    }
    if (types_.fp8 == Fp8::kNone) return layer;
    layer.qkv_scale = 6.0f / 448;
    layer.hidden_scale = 5.0f / 448;
    if (types_.fp8 == Fp8::kNormed) return layer;
    layer.output_scale = 3.0f / 448;
    layer.down_scale = 8.0f / 448;
    return layer;
  }

  Types types_;
  Shape s_;
  std::vector<Layer> layers_;
  std::array<std::vector<frt_flow_layer>, 2> lists_;
  Tensor *table_, *context_length_, *clean_rows_, *x_;
  Tensor *normed_, *q_, *kv_, *y_, *gate_, *h_;
};

void layers(Case& c, const Types& types, const Shape& shape) {
  Expert expert(c, types, shape);
  c.run<frt_flow_layers_args>(
      FRT_OP_FLOW_LAYERS, expert.kernel_types(), types.packing.format,
      [&](frt_flow_layers_args& args, const At& at) { expert.fill(args, at); });
  const bool wide = types.x == FRT_DTYPE_F32 && types.dtype == FRT_DTYPE_F32;
  c.compare(expert.x(), types.fp8 != Fp8::kNone ? kFp8 : wide ? kF32 : kBf16);
}

void refusals(Case& c) {
  Expert expert(c, {FRT_DTYPE_F32, FRT_DTYPE_F32, kF32Weights},
                {2, 2, 3, 16, 24, 4, 2, 4, 6, 1, {5, 0}, 1});
  int side = 0;
  const auto refuse = [&](auto spoil) {
    refused<frt_flow_layers_args>(
        c, FRT_OP_FLOW_LAYERS, KernelTypes(FRT_DTYPE_F32), kWeightF32,
        [&](frt_flow_layers_args& args, const At& at) {
          expert.fill(args, at);
          side = at.side();
        },
        spoil);
  };
  refuse([](frt_flow_layers_args& args) { args.x_dtype = FRT_DTYPE_F16; });
  refuse([](frt_flow_layers_args& args) { args.dtype = FRT_DTYPE_F8_E4M3; });
  for (int32_t frt_flow_layers_args::*const size :
       {&frt_flow_layers_args::layer_count, &frt_flow_layers_args::count,
        &frt_flow_layers_args::rows, &frt_flow_layers_args::width, &frt_flow_layers_args::hidden,
        &frt_flow_layers_args::heads, &frt_flow_layers_args::kv_heads,
        &frt_flow_layers_args::head_dim, &frt_flow_layers_args::positions,
        &frt_flow_layers_args::sequences_per_context}) {
    refuse([=](frt_flow_layers_args& args) { args.*size = 0; });
  }
  refuse([](frt_flow_layers_args& args) { args.kv_heads = 3; });
  refuse([](frt_flow_layers_args& args) { args.head_dim = 3; });
  refuse([](frt_flow_layers_args& args) { args.width = 17; });
  refuse([](frt_flow_layers_args& args) { args.hidden = 23; });
  refuse([](frt_flow_layers_args& args) { args.context_rows = -1; });
  refuse([](frt_flow_layers_args& args) { args.sequences_per_context = 3; });
  refuse([](frt_flow_layers_args& args) { args.context_stride = 7; });
  refuse([](frt_flow_layers_args& args) { args.context_length = nullptr; });
  refuse([](frt_flow_layers_args& args) { args.table = nullptr; });
  refuse([](frt_flow_layers_args& args) { args.layers = nullptr; });
  for (void* frt_flow_layers_args::*const memory :
       {&frt_flow_layers_args::x, &frt_flow_layers_args::normed, &frt_flow_layers_args::q,
        &frt_flow_layers_args::kv, &frt_flow_layers_args::y, &frt_flow_layers_args::gate,
        &frt_flow_layers_args::h}) {
    refuse([=](frt_flow_layers_args& args) { args.*memory = nullptr; });
  }

  // Of the last layer, so that nothing of the first may have run.
  const auto refuse_layer = [&](auto spoil) {
    refuse([&](frt_flow_layers_args&) { spoil(expert.layers(side)[1]); });
  };
  for (frt_weight frt_flow_layer::*const matrix :
       {&frt_flow_layer::query, &frt_flow_layer::key_value, &frt_flow_layer::output,
        &frt_flow_layer::gate, &frt_flow_layer::up, &frt_flow_layer::down}) {
    refuse_layer([=](frt_flow_layer& layer) { (layer.*matrix).data = nullptr; });
    refuse_layer([=](frt_flow_layer& layer) { (layer.*matrix).rows -= 1; });
    refuse_layer([=](frt_flow_layer& layer) { (layer.*matrix).cols += 1; });
    refuse_layer([=](frt_flow_layer& layer) { (layer.*matrix).format.data = FRT_DTYPE_COUNT; });
  }
  for (frt_modulation frt_flow_layer::*const norm :
       {&frt_flow_layer::attention_norm, &frt_flow_layer::hidden_norm}) {
    refuse_layer([=](frt_flow_layer& layer) { (layer.*norm).rows = nullptr; });
    refuse_layer([=](frt_flow_layer& layer) { (layer.*norm).clean = nullptr; });
    refuse_layer([=](frt_flow_layer& layer) { (layer.*norm).period = 0; });
  }
  refuse_layer([](frt_flow_layer& layer) { layer.context_k = nullptr; });
  refuse_layer([](frt_flow_layer& layer) { layer.context_v = nullptr; });
  // Scales without weights that go with them, and what is no scale.
  for (float frt_flow_layer::*const scale :
       {&frt_flow_layer::qkv_scale, &frt_flow_layer::output_scale, &frt_flow_layer::hidden_scale,
        &frt_flow_layer::down_scale}) {
    refuse_layer([=](frt_flow_layer& layer) { layer.*scale = 0.01f; });
    refuse_layer([=](frt_flow_layer& layer) { layer.*scale = -1; });
  }
}

void fp8_refusals(Case& c) {
  const Packing packing{"tensor", kWeightFp8Tensor};
  Expert expert(c, {FRT_DTYPE_F32, FRT_DTYPE_F32, packing, Fp8::kAll}, {1, 1, 2, 16, 32, 1, 1, 16});
  int side = 0;
  refused<frt_flow_layers_args>(
      c, FRT_OP_FLOW_LAYERS, KernelTypes(FRT_DTYPE_F8_E4M3), packing.format,
      [&](frt_flow_layers_args& args, const At& at) {
        expert.fill(args, at);
        side = at.side();
      },
      [&](frt_flow_layers_args&) { expert.layers(side)->hidden_scale = 0; });
}

}  // namespace

void add_flow_layers_cases(Suite& suite) {
  const Shape odd[] = {
      {1, 1, 1, 1, 1, 1, 1, 2},
      {2, 1, 3, 33, 47, 3, 1, 6},
      {3, 2, 5, 24, 40, 4, 2, 10, 7, 1, {0, 7}, 2},
      {2, 6, 4, 40, 72, 2, 1, 24, 33, 3, {29, 12}, 4},
      {2, 1, 120, 64, 96, 2, 1, 32, 40, 1, {37}},
      {2, 1, 1, 64, 128, 8, 1, 16, 20, 1, {13}},
  };
  // What a fast kernel may take, narrow enough for every processor.
  const Shape narrow[] = {
      {2, 1, 10, 256, 1024, 4, 1, 256, 64, 1, {49}},
      {2, 1, 50, 256, 1024, 4, 1, 256, 300, 1, {283}, 7},
      {1, 2, 50, 256, 1024, 4, 1, 256, 300, 1, {290, 283}},
      {1, 2, 50, 512, 1024, 4, 1, 256, 90, 2, {0}, 50},
      {1, 1, 22, 256, 2048, 8, 2, 256, 33, 1, {32}, 3},
      {1, 1, 23, 256, 1024, 4, 4, 256, 64, 1, {64}, 1},
      {1, 6, 9, 512, 1024, 4, 1, 256, 70, 3, {68, 5}, 2},
      {1, 1, 55, 256, 1024, 4, 1, 256, 40, 1, {1}, 54},
      {2, 1, 64, 256, 1024, 4, 1, 256},
      {1, 1, 102, 256, 1024, 4, 1, 256, 120, 1, {119}, 0},
      {1, 1, 104, 256, 1024, 4, 1, 256, 120, 1, {97}, 2},
      {1, 2, 16, 512, 1024, 8, 1, 128, 64, 1, {64, 1}, 1},
      // More keys than the blocks of a cluster look at together.
      {1, 1, 50, 256, 1024, 4, 1, 256, 1500, 1, {1483}},
      {1, 2, 50, 256, 1024, 4, 1, 256, 1500, 1, {1290, 7}},
  };
  const Types types[] = {{FRT_DTYPE_F32, FRT_DTYPE_F32, kF32Weights},
                         {FRT_DTYPE_BF16, FRT_DTYPE_BF16, kBf16Weights},
                         {FRT_DTYPE_F32, FRT_DTYPE_BF16, kBf16Weights},
                         {FRT_DTYPE_BF16, FRT_DTYPE_F32, kBf16Weights}};
  const auto add = [&](const Types& t, const Shape& s) {
    suite.add(FRT_OP_FLOW_LAYERS " " + text(t) + " " + text(s), [=](Case& c) { layers(c, t, s); });
  };
  for (const Types& t : types) {
    for (const Shape& s : odd) add(t, s);
    if (t.dtype == FRT_DTYPE_F32) continue;
    for (const Shape& s : narrow) add(t, s);
  }
  for (const Packing& packing : all_packings()) {
    add({FRT_DTYPE_BF16, FRT_DTYPE_BF16, packing}, {2, 1, 10, 64, 96, 2, 1, 32, 20, 1, {13}, 3});
  }

  const Packing tensor{"fp8 tensor", kWeightFp8Tensor};
  const Packing channel{"fp8 channel", FRT_WEIGHT_FP8_CHANNEL(FRT_DTYPE_F32)};
  for (const Packing& packing : {tensor, channel}) {
    for (const frt_dtype dtype : {FRT_DTYPE_F32, FRT_DTYPE_BF16}) {
      for (const Fp8 fp8 : {Fp8::kNormed, Fp8::kAll}) {
        add({dtype, dtype, packing, fp8}, {1, 1, 10, 64, 96, 2, 1, 32, 20, 1, {13}, 3});
        if (dtype == FRT_DTYPE_F32) continue;
        add({dtype, dtype, packing, fp8}, {1, 2, 50, 256, 2048, 8, 1, 256, 90, 1, {77, 0}});
        add({dtype, dtype, packing, fp8}, {1, 1, 50, 256, 2048, 8, 1, 256, 300, 1, {283}, 7});
        add({dtype, dtype, packing, fp8}, {1, 1, 9, 512, 2048, 8, 2, 256, 40, 1, {37}, 1});
      }
    }
  }

  // The expert of a policy of full size; several layers where there are few rows. In FP8 one:
  // values that both sides round differently are more of them in the next layer.
  const Types real{FRT_DTYPE_BF16, FRT_DTYPE_BF16, kBf16Weights};
  add(real, {2, 1, 1, 1024, 4096, 8, 1, 256, 600, 1, {562}});
  add(real, {2, 1, 10, 1024, 4096, 8, 1, 256, 600, 1, {562}});
  add(real, {1, 1, 50, 1024, 4096, 8, 1, 256, 600, 1, {562}, 5});
  add(real, {1, 2, 50, 1024, 4096, 8, 1, 256, 300, 1, {290, 17}});
  add({FRT_DTYPE_F32, FRT_DTYPE_BF16, kBf16Weights},
      {1, 1, 15, 1024, 4096, 8, 1, 256, 600, 1, {0}});
  const Types real_fp8{FRT_DTYPE_BF16, FRT_DTYPE_BF16, tensor, Fp8::kAll};
  add(real_fp8, {1, 1, 50, 1024, 4096, 8, 1, 256, 600, 1, {562}, 5});
  add(real_fp8, {1, 2, 50, 1024, 4096, 8, 1, 256, 300, 1, {290, 283}});
  suite.add(FRT_OP_FLOW_LAYERS " refusals", refusals);
  suite.add(FRT_OP_FLOW_LAYERS " refusals fp8", fp8_refusals);
}

}  // namespace frt::conformance
