// SPDX-License-Identifier: Apache-2.0
// Cases of frt/ops/dense_attention.h.
#include <frt/ops/dense_attention.h>

#include "check.hpp"
#include "refusal.hpp"

namespace frt::conformance {
namespace {

constexpr frt_dtype kTypes[] = {FRT_DTYPE_F32, FRT_DTYPE_BF16};

struct Rope {
  int32_t count, rows, heads, kv_heads, head_dim, sequences_per_base;
  std::vector<int32_t> base = {};  // empty: none
  int32_t positions;
  bool queries = true;
};

// What a rope case needs, in a merged row [q heads | k heads].
struct RopeTensors {
  Rope rope;
  Tensor *table, *base;

  RopeTensors(Case& c, const Rope& shape)
      : rope(shape),
        table(&c.uniform("table", FRT_DTYPE_F32,
                         static_cast<int64_t>(shape.positions) * shape.head_dim, -1, 1)),
        base(&c.integers("base", shape.base.empty() ? std::vector<int32_t>{0} : shape.base)) {}

  void fill(frt_rope_args& args, const At& at, frt_dtype dtype) const {
    args.dtype = dtype;
    args.count = rope.count;
    args.rows = rope.rows;
    args.heads = rope.heads;
    args.kv_heads = rope.kv_heads;
    args.head_dim = rope.head_dim;
    args.sequences_per_base = rope.sequences_per_base;
    if (!rope.base.empty()) args.base = at.operator()<int32_t>(*base);
    args.table = at.operator()<float>(*table);
    args.positions = rope.positions;
  }
};

void rope(Case& c, frt_dtype dtype, const Rope& shape) {
  const int64_t stride = static_cast<int64_t>(shape.heads + shape.kv_heads) * shape.head_dim + 8;
  const RopeTensors tensors(c, shape);
  Tensor& qk = c.normal("q and k", dtype, shape.count * shape.rows * stride);
  c.run<frt_rope_args>(FRT_OP_ROPE, KernelTypes(dtype), {}, [&](frt_rope_args& args, const At& at) {
    tensors.fill(args, at, dtype);
    if (shape.queries) args.q = at(qk);
    args.q_stride = args.k_stride = stride;
    args.k = at(qk, static_cast<int64_t>(shape.heads) * shape.head_dim);
  });
  c.compare(qk, tolerance_of(dtype));
}

// Adaptive: of a sequence's rows the first two take the other condition.
void norm_qkv(Case& c, frt_dtype x_dtype, frt_dtype dtype, const Rope& shape, int32_t inputs,
              bool adaptive) {
  const int32_t rows = shape.count * shape.rows;
  const int32_t q_width = shape.heads * shape.head_dim;
  const int32_t kv_width = 2 * shape.kv_heads * shape.head_dim;
  const Packing packing =
      dtype == FRT_DTYPE_F32 ? Packing{"f32", kWeightF32} : Packing{"bf16", kWeightBf16};
  const RopeTensors tensors(c, shape);
  Tensor& x = c.normal("x", x_dtype, static_cast<int64_t>(rows) * inputs, 2.0f);
  Tensor& norm = c.normal("norm", FRT_DTYPE_F32, inputs, 0.3f, 1.0f);
  Tensor& modulation = c.normal("modulation", FRT_DTYPE_F32, int64_t{3} * inputs, 0.5f);
  Tensor& clean = c.normal("clean modulation", FRT_DTYPE_F32, int64_t{3} * inputs, 0.5f);
  Tensor& clean_rows = c.integers("clean rows", {2});
  Tensor& normed = c.output("normed", dtype, static_cast<int64_t>(rows) * inputs);
  const Weight q_weight = c.weight("q weight", packing, q_width, inputs);
  const Weight kv_weight = c.weight("kv weight", packing, kv_width, inputs);
  Tensor& q = c.output("q", dtype, static_cast<int64_t>(rows) * q_width);
  Tensor& kv = c.output("kv", dtype, static_cast<int64_t>(rows) * kv_width);
  frt_dense_part parts[2][2];
  c.run<frt_norm_qkv_args>(FRT_OP_NORM_QKV, KernelTypes(dtype), packing.format,
                           [&](frt_norm_qkv_args& args, const At& at) {
                             auto& list = parts[at.side()];
                             list[0] = {Case::at(q_weight, at), nullptr, 0, 0, at(q), q_width};
                             list[1] = {Case::at(kv_weight, at), nullptr, 0, 0, at(kv), kv_width};
                             args.products.struct_size = sizeof(args.products);
                             args.products.x_dtype = x_dtype;
                             args.products.dtype = dtype;
                             args.products.rows = rows;
                             args.products.part_count = shape.queries ? 2 : 1;
                             args.products.norm.kind = FRT_NORM_RMS;
                             args.products.norm.epsilon = 1e-6f;
                             args.products.norm.weight = at.operator()<float>(norm);
                             if (adaptive) {
                               args.products.norm.kind = FRT_NORM_ADAPTIVE;
                               frt_modulation& m = args.products.norm.modulation;
                               m.rows = at.operator()<float>(modulation);
                               m.clean = at.operator()<float>(clean);
                               m.clean_rows = at.operator()<int32_t>(clean_rows);
                               m.period = shape.rows;
                             }
                             args.products.x = at(x);
                             args.products.normed = at(normed);
                             args.products.parts = shape.queries ? list : list + 1;
                             args.rope.struct_size = sizeof(args.rope);
                             tensors.fill(args.rope, at, dtype);
                             if (shape.queries) args.rope.q = at(q);
                             args.rope.q_stride = q_width;
                             args.rope.k = at(kv);
                             args.rope.k_stride = kv_width;
                           });
  if (shape.queries) c.compare(q, tolerance_of(dtype));
  c.compare(kv, tolerance_of(dtype));
}

struct Shape {
  int32_t count, rows, heads, kv_heads, head_dim;
  std::vector<int32_t> length = {};  // empty: NULL
  int32_t context_rows = 0, sequences_per_context = 1;
  std::vector<int32_t> context_length = {};
};
std::string text(const Shape& s) {
  std::string lengths;
  for (const int32_t length : s.length) lengths += " " + std::to_string(length);
  std::string contexts;
  for (const int32_t length : s.context_length) contexts += " " + std::to_string(length);
  return std::to_string(s.count) + "x" + std::to_string(s.rows) + " heads " +
         std::to_string(s.heads) + "/" + std::to_string(s.kv_heads) + "x" +
         std::to_string(s.head_dim) + (lengths.empty() ? "" : " length" + lengths) +
         (contexts.empty() ? "" : " context" + contexts + " of " + std::to_string(s.context_rows));
}

// q, k and v as parts of merged rows, so that every stride is larger than its width.
void attention(Case& c, frt_dtype dtype, const Shape& s, float deviation) {
  const int64_t rows = static_cast<int64_t>(s.count) * s.rows;
  const int64_t q_width = static_cast<int64_t>(s.heads) * s.head_dim;
  const int64_t kv_width = static_cast<int64_t>(s.kv_heads) * s.head_dim;
  const int64_t stride = q_width + 2 * kv_width;
  const int64_t contexts = s.context_rows ? s.count / s.sequences_per_context : 0;
  Tensor& qkv = c.normal("qkv", dtype, rows * stride, deviation);
  Tensor& context =
      c.normal("context", dtype, std::max<int64_t>(1, contexts * s.context_rows * 2 * kv_width));
  Tensor& length = c.integers("length", s.length.empty() ? std::vector<int32_t>{0} : s.length);
  Tensor& context_length = c.integers(
      "context length", s.context_length.empty() ? std::vector<int32_t>{0} : s.context_length);
  Tensor& y = c.output("y", dtype, rows * q_width);
  c.run<frt_dense_attention_args>(FRT_OP_DENSE_ATTENTION, KernelTypes(dtype), {},
                                  [&](frt_dense_attention_args& args, const At& at) {
                                    args.dtype = dtype;
                                    args.scale = 0.7f / static_cast<float>(s.head_dim);
                                    args.count = s.count;
                                    args.rows = s.rows;
                                    args.heads = s.heads;
                                    args.kv_heads = s.kv_heads;
                                    args.head_dim = s.head_dim;
                                    if (!s.length.empty())
                                      args.length = at.operator()<int32_t>(length);
                                    args.q = at(qkv);
                                    args.q_stride = args.kv_stride = stride;
                                    args.k = at(qkv, q_width);
                                    args.v = at(qkv, q_width + kv_width);
                                    args.context_rows = s.context_rows;
                                    args.sequences_per_context = s.sequences_per_context;
                                    if (s.context_rows) {
                                      args.context_length = at.operator()<int32_t>(context_length);
                                      args.context_k = at(context);
                                      args.context_v = at(context, kv_width);
                                      args.context_stride = 2 * kv_width;
                                    }
                                    args.y = at(y);
                                    args.y_stride = q_width;
                                  });
  for (int32_t b = 0; b < s.count; ++b) {
    const int64_t valid = s.length.empty() ? s.rows : s.length[static_cast<std::size_t>(b)];
    c.compare_range(y, b * s.rows * q_width, valid * q_width, tolerance_of(dtype));
  }
}

void refusals(Case& c) {
  Tensor& x = c.normal("x", FRT_DTYPE_F32, 1024);
  Tensor& length = c.integers("length", {1, 1});
  const auto refuse = [&](auto spoil) {
    refused<frt_dense_attention_args>(
        c, FRT_OP_DENSE_ATTENTION, KernelTypes(FRT_DTYPE_F32), {},
        [&](frt_dense_attention_args& args, const At& at) {
          args.dtype = FRT_DTYPE_F32;
          args.scale = 1;
          args.count = 2;
          args.rows = 2;
          args.heads = 4;
          args.kv_heads = 2;
          args.head_dim = 8;
          args.q = args.k = args.v = at(x);
          args.q_stride = args.y_stride = 32;
          args.kv_stride = args.context_stride = 16;
          args.context_rows = 2;
          args.sequences_per_context = 1;
          args.context_length = at.operator()<int32_t>(length);
          args.context_k = args.context_v = at(x);
          args.y = at(x, 512);
        },
        spoil);
  };
  refuse([](frt_dense_attention_args& args) { args.dtype = FRT_DTYPE_F16; });
  refuse([](frt_dense_attention_args& args) { args.count = 0; });
  refuse([](frt_dense_attention_args& args) { args.rows = 0; });
  refuse([](frt_dense_attention_args& args) { args.kv_heads = 3; });
  refuse([](frt_dense_attention_args& args) { args.head_dim = 0; });
  refuse([](frt_dense_attention_args& args) { args.q = nullptr; });
  refuse([](frt_dense_attention_args& args) { args.k = nullptr; });
  refuse([](frt_dense_attention_args& args) { args.v = nullptr; });
  refuse([](frt_dense_attention_args& args) { args.y = nullptr; });
  refuse([](frt_dense_attention_args& args) { args.q_stride = 31; });
  refuse([](frt_dense_attention_args& args) { args.kv_stride = 15; });
  refuse([](frt_dense_attention_args& args) { args.context_stride = 15; });
  refuse([](frt_dense_attention_args& args) { args.context_length = nullptr; });
  refuse([](frt_dense_attention_args& args) { args.context_k = nullptr; });
  refuse([](frt_dense_attention_args& args) { args.sequences_per_context = 0; });
  refuse([](frt_dense_attention_args& args) { args.sequences_per_context = 3; });
}

}  // namespace

void add_dense_attention_cases(Suite& suite) {
  const Shape shapes[] = {
      {1, 1, 1, 1, 2},
      {1, 16, 4, 4, 12},
      {2, 16, 4, 4, 12, {16, 0}},
      {3, 256, 2, 2, 72, {256, 256, 0}},
      {2, 256, 16, 16, 72},
      {3, 200, 3, 3, 80, {200, 131, 64}},
      {1, 129, 2, 2, 72},
      {1, 67, 8, 1, 16, {49}},
      {2, 67, 8, 1, 16, {49, 67}},
      {1, 200, 8, 1, 256, {170}},
      {1, 544, 8, 1, 256, {542}},
      {2, 300, 4, 1, 256, {300, 129}, 40, 2, {33}},
      {2, 140, 16, 2, 256, {140, 97}, 100, 2, {70}},
      {7, 130, 8, 1, 256, {130, 129, 64, 63, 1, 100, 0}},
      {8, 70, 32, 2, 256, {70, 9, 64, 70, 1, 33, 70, 50}, 40, 2, {33, 0, 40, 7}},
      {1, 10, 8, 1, 16, {}, 64, 1, {49}},
      {1, 10, 8, 1, 256, {}, 700, 1, {554}},
      {1, 50, 8, 1, 256, {}, 600, 1, {562}},
      {2, 10, 8, 1, 256, {}, 300, 1, {290, 283}},
      {6, 10, 8, 1, 64, {}, 130, 3, {128, 65}},
      {2, 5, 6, 2, 40, {5, 3}, 33, 2, {0}},
      {1, 130, 4, 2, 33, {129}, 20, 1, {7}},
      {1, 15, 8, 1, 128, {}, 64, 1, {64}},
  };
  for (const frt_dtype dtype : kTypes) {
    const std::string type = std::string(" ") + dtype_name(dtype) + " ";
    for (const Shape& s : shapes) {
      suite.add(FRT_OP_DENSE_ATTENTION + type + text(s),
                [=](Case& c) { attention(c, dtype, s, 1.0f); });
    }
    suite.add(FRT_OP_DENSE_ATTENTION + type + "large scores", [=](Case& c) {
      attention(c, dtype, {1, 50, 8, 1, 64, {}, 64, 1, {60}}, 12.0f);
    });
    const Rope ropes[] = {{1, 1, 1, 1, 2, 1, {}, 4},
                          {2, 9, 8, 1, 16, 1, {}, 32},
                          {2, 10, 8, 1, 256, 1, {31, 17}, 64},
                          {6, 5, 3, 2, 40, 3, {7, 2}, 11},
                          {1, 40, 4, 1, 64, 1, {}, 40, false}};
    for (std::size_t i = 0; i < std::size(ropes); ++i) {
      const Rope& shape = ropes[i];
      const std::string name = type + "shape " + std::to_string(i);
      suite.add(FRT_OP_ROPE + name, [=](Case& c) { rope(c, dtype, shape); });
      if (shape.queries) {
        suite.add(FRT_OP_NORM_QKV + name,
                  [=](Case& c) { norm_qkv(c, dtype, dtype, shape, 64, false); });
        suite.add(FRT_OP_NORM_QKV + name + " adaptive",
                  [=](Case& c) { norm_qkv(c, FRT_DTYPE_F32, dtype, shape, 72, true); });
      }
    }
    const Rope prefixes[] = {{1, 200, 3, 1, 256, 1, {}, 200},
                             {1, 150, 3, 1, 256, 1, {}, 200, false},
                             {2, 300, 2, 1, 256, 1, {}, 320},
                             {3, 70, 2, 2, 128, 1, {}, 70}};
    for (std::size_t i = 0; i < std::size(prefixes); ++i) {
      suite.add(
          FRT_OP_NORM_QKV + type + "prefix " + std::to_string(i),
          [=, shape = prefixes[i]](Case& c) { norm_qkv(c, dtype, dtype, shape, 136, false); });
    }
    const Rope expert{1, 50, 8, 1, 256, 1, {562}, 700};
    for (const bool adaptive : {false, true}) {
      suite.add(FRT_OP_NORM_QKV + type + "expert" + (adaptive ? " adaptive" : ""),
                [=](Case& c) { norm_qkv(c, dtype, dtype, expert, 1024, adaptive); });
    }
  }
  suite.add(FRT_OP_DENSE_ATTENTION " refusals", refusals);
}

}  // namespace frt::conformance
