// SPDX-License-Identifier: Apache-2.0
// Cases of FP8 activations: frt/ops/dense.h, frt/ops/dense_attention.h, and the factor of
// frt.convert/1, which makes the weights.
#include <frt/ops/dense.h>
#include <frt/ops/dense_attention.h>
#include <frt/ops/elementwise.h>

#include <array>
#include <cmath>

#include "check.hpp"
#include "refusal.hpp"

namespace frt::conformance {
namespace {

constexpr frt_dtype kTypes[] = {FRT_DTYPE_F32, FRT_DTYPE_BF16};
constexpr float kScale = 4.0f / 448;  // covers four deviations
const Packing kPackings[] = {{"tensor", kWeightFp8Tensor},
                             {"channel", FRT_WEIGHT_FP8_CHANNEL(FRT_DTYPE_F32)}};

struct Shape {
  int32_t rows, inputs, outputs;
  int32_t row_count = -1;  // none
  int64_t gap = 0;         // elements between rows
};
std::string text(const Shape& s) {
  return std::to_string(s.rows) + "x" + std::to_string(s.inputs) + "x" + std::to_string(s.outputs) +
         (s.row_count >= 0 ? " row count " + std::to_string(s.row_count) : "") +
         (s.gap ? " gap " + std::to_string(s.gap) : "");
}
int64_t active(const Shape& s) {
  return s.row_count < 0 ? s.rows : std::min(s.rows, s.row_count);
}

// Values of deviation 1 as they are stored with kScale.
Tensor& quantised(Case& c, const std::string& name, int64_t count) {
  return c.normal(name, FRT_DTYPE_F8_E4M3, count, 1.0f / kScale);
}

// ---- products --------------------------------------------------------------------------------

struct Around {
  const char* name;
  bool bias = false;
  uint32_t activation = FRT_ACTIVATION_NONE;
  bool gate = false, addend = false, accumulate = false;
};
const Around kAround[] = {{"product"},
                          {"bias gelu", true, FRT_ACTIVATION_GELU},
                          {"bias residual", true, FRT_ACTIVATION_NONE, false, false, true},
                          {"residual", false, FRT_ACTIVATION_NONE, false, false, true},
                          {"gate residual", false, FRT_ACTIVATION_NONE, true, false, true},
                          {"all", true, FRT_ACTIVATION_SILU, true, true, true}};

void dense(Case& c, frt_dtype y_dtype, const Packing& packing, const Around& around,
           const Shape& shape) {
  constexpr int32_t kAddendRows = 3;
  const int64_t x_stride = shape.inputs + shape.gap;
  const int64_t y_stride = shape.outputs + 2 * shape.gap;
  Tensor& x = quantised(c, "x", shape.rows * x_stride);
  const Weight weight = c.weight("weight", packing, shape.outputs, shape.inputs);
  Tensor& bias = c.normal("bias", FRT_DTYPE_F32, shape.outputs, 0.5f);
  Tensor& gate = c.normal("gate", FRT_DTYPE_F32, 3 * static_cast<int64_t>(shape.outputs), 0.5f);
  Tensor& addend = c.normal("addend", FRT_DTYPE_F32, kAddendRows * shape.outputs);
  Tensor& y = around.accumulate ? c.normal("y", y_dtype, shape.rows * y_stride, 2.0f)
                                : c.output("y", y_dtype, shape.rows * y_stride);
  Tensor& count = c.integers("row_count", {shape.row_count});
  c.run<frt_dense_args>(FRT_OP_DENSE, types_of(FRT_DTYPE_F8_E4M3, y_dtype), packing.format,
                        [&](frt_dense_args& args, const At& at) {
                          args.x_dtype = FRT_DTYPE_F8_E4M3;
                          args.x_scale = kScale;
                          args.y_dtype = y_dtype;
                          args.rows = shape.rows;
                          args.activation = around.activation;
                          args.accumulate = around.accumulate ? 1 : 0;
                          if (shape.row_count >= 0) args.row_count = at.operator()<int32_t>(count);
                          args.x = at(x);
                          args.x_stride = x_stride;
                          args.weight = Case::at(weight, at);
                          if (around.bias) args.bias = at.operator()<float>(bias);
                          if (around.gate) args.gate.rows = at.operator()<float>(gate);
                          if (around.addend) args.addend = at.operator()<float>(addend);
                          args.addend_rows = kAddendRows;
                          args.y = at(y);
                          args.y_stride = y_stride;
                        });
  c.compare_range(y, 0, active(shape) * y_stride, tolerance_of(y_dtype));
}

// What of the fused operators is FP8: the normed rows, or the results, too.
struct Fp8 {
  const char* name;
  bool normed, results;
};
const Fp8 kFp8Forms[] = {{"normed", true, false}, {"both", true, true}};

struct NormTensors {
  Tensor *x, *weight, *bias, *rows, *normed, *count;

  NormTensors(Case& c, frt_dtype x_dtype, frt_dtype dtype, const Shape& s, const Fp8& form)
      : x(&c.normal("x", x_dtype, static_cast<int64_t>(s.rows) * s.inputs, 2.0f)),
        weight(&c.normal("norm weight", FRT_DTYPE_F32, s.inputs, 0.3f, 1.0f)),
        bias(&c.normal("norm bias", FRT_DTYPE_F32, s.inputs, 0.3f)),
        rows(&c.normal("modulation", FRT_DTYPE_F32, 3 * static_cast<int64_t>(s.inputs), 0.5f)),
        normed(&c.output("normed", form.normed ? FRT_DTYPE_F8_E4M3 : dtype,
                         static_cast<int64_t>(s.rows) * s.inputs)),
        count(&c.integers("row_count", {s.row_count})) {}

  template <class Args>
  void fill(Args& args, const At& at, frt_dtype x_dtype, frt_dtype dtype, uint32_t kind,
            const Shape& s, const Fp8& form) const {
    args.x_dtype = x_dtype;
    args.dtype = dtype;
    args.rows = s.rows;
    if (s.row_count >= 0) args.row_count = at.operator()<int32_t>(*count);
    args.norm.kind = kind;
    args.norm.epsilon = 1e-6f;
    args.norm.weight = at.operator()<float>(*weight);
    args.norm.bias = at.operator()<float>(*bias);
    if (kind == FRT_NORM_ADAPTIVE) args.norm.modulation.rows = at.operator()<float>(*rows);
    args.x = at(*x);
    args.normed = at(*normed);
    args.normed_scale = form.normed ? kScale : 0;
  }
};

// A result that comes of normed rows which both sides round to e4m3 by themselves.
Tolerance result_tolerance(frt_dtype dtype, const Fp8& form) {
  if (form.results) return kFp8;
  return form.normed ? kBf16 : tolerance_of(dtype);
}

void norm_dense(Case& c, frt_dtype x_dtype, frt_dtype dtype, uint32_t kind, const Packing& packing,
                const Fp8& form, const Shape& shape) {
  const NormTensors tensors(c, x_dtype, dtype, shape, form);
  const Weight weight = c.weight("weight", packing, shape.outputs, shape.inputs);
  const Weight other = c.weight("other weight", packing, shape.outputs + 16, shape.inputs);
  Tensor& bias = c.normal("bias", FRT_DTYPE_F32, shape.outputs, 0.5f);
  const frt_dtype y_dtype = form.results ? FRT_DTYPE_F8_E4M3 : dtype;
  const int64_t stride = shape.outputs + 16;
  Tensor& y = c.output("y", y_dtype, shape.rows * stride);
  Tensor& z = c.output("other y", dtype, shape.rows * stride);
  std::array<frt_dense_part, 2> parts[2];
  c.run<frt_norm_dense_args>(
      FRT_OP_NORM_DENSE, types_of(FRT_DTYPE_F8_E4M3, y_dtype), packing.format,
      [&](frt_norm_dense_args& args, const At& at) {
        tensors.fill(args, at, x_dtype, dtype, kind, shape, form);
        auto& own = parts[at.side()];
        own[0] = {Case::at(weight, at),
                  at.operator()<float>(bias),
                  FRT_ACTIVATION_GELU,
                  form.results ? kScale : 0.0f,
                  at(y),
                  stride};
        own[1] = {Case::at(other, at), nullptr, FRT_ACTIVATION_NONE, 0, at(z), stride};
        args.part_count = 2;
        args.parts = own.data();
      });
  c.compare_range(y, 0, active(shape) * stride, result_tolerance(dtype, form));
  c.compare_range(z, 0, active(shape) * stride, form.normed ? kBf16 : tolerance_of(dtype));
}

void norm_geglu(Case& c, frt_dtype x_dtype, frt_dtype dtype, uint32_t kind, const Packing& packing,
                const Fp8& form, const Shape& shape) {
  const int64_t values = static_cast<int64_t>(shape.rows) * shape.outputs;
  const NormTensors tensors(c, x_dtype, dtype, shape, form);
  const Weight gate = c.weight("gate", packing, shape.outputs, shape.inputs);
  const Weight up = c.weight("up", packing, shape.outputs, shape.inputs);
  Tensor& work = c.output("gate y", dtype, values);
  Tensor& h = c.output("h", form.results ? FRT_DTYPE_F8_E4M3 : dtype, values);
  c.run<frt_norm_geglu_args>(FRT_OP_NORM_GEGLU, types_of(FRT_DTYPE_F8_E4M3, h.dtype),
                             packing.format, [&](frt_norm_geglu_args& args, const At& at) {
                               tensors.fill(args, at, x_dtype, dtype, kind, shape, form);
                               args.gate_weight = Case::at(gate, at);
                               args.up_weight = Case::at(up, at);
                               args.gate = at(work);
                               args.h = at(h);
                               args.h_scale = form.results ? kScale : 0;
                             });
  c.compare_range(h, 0, active(shape) * shape.outputs, result_tolerance(dtype, form));
}

void norm_qkv(Case& c, frt_dtype dtype, const Packing& packing, int32_t rows, int32_t inputs,
              int32_t heads, int32_t head_dim) {
  const int32_t q_width = heads * head_dim, kv_width = 2 * head_dim;
  const Fp8& form = kFp8Forms[0];
  const NormTensors tensors(c, dtype, dtype, {rows, inputs, 0}, form);
  Tensor& table =
      c.uniform("table", FRT_DTYPE_F32, static_cast<int64_t>(rows) * head_dim, -1.0f, 1.0f);
  const Weight q_weight = c.weight("q weight", packing, q_width, inputs);
  const Weight kv_weight = c.weight("kv weight", packing, kv_width, inputs);
  Tensor& q = c.output("q", dtype, static_cast<int64_t>(rows) * q_width);
  Tensor& kv = c.output("kv", dtype, static_cast<int64_t>(rows) * kv_width);
  std::array<frt_dense_part, 2> parts[2];
  c.run<frt_norm_qkv_args>(
      FRT_OP_NORM_QKV, types_of(FRT_DTYPE_F8_E4M3, dtype), packing.format,
      [&](frt_norm_qkv_args& args, const At& at) {
        auto& own = parts[at.side()];
        own[0] = {Case::at(q_weight, at), nullptr, 0, 0, at(q), q_width};
        own[1] = {Case::at(kv_weight, at), nullptr, 0, 0, at(kv), kv_width};
        args.products.struct_size = sizeof(args.products);
        tensors.fill(args.products, at, dtype, dtype, FRT_NORM_RMS, {rows, inputs, 0}, form);
        args.products.part_count = 2;
        args.products.parts = own.data();
        args.rope.struct_size = sizeof(args.rope);
        args.rope.dtype = dtype;
        args.rope.count = 1;
        args.rope.rows = args.rope.positions = rows;
        args.rope.heads = heads;
        args.rope.kv_heads = 1;
        args.rope.head_dim = head_dim;
        args.rope.table = at.operator()<float>(table);
        args.rope.q = at(q);
        args.rope.q_stride = q_width;
        args.rope.k = at(kv);
        args.rope.k_stride = kv_width;
      });
  c.compare(q, kBf16);
  c.compare(kv, kBf16);
}

void dense_refusals(Case& c) {
  Tensor& x = quantised(c, "x", 256);
  Tensor& y = c.output("y", FRT_DTYPE_F32, 64);
  const Weight weight = c.weight("weight", kPackings[0], 8, 16);
  const auto refuse = [&](auto spoil) {
    refused<frt_dense_args>(
        c, FRT_OP_DENSE, types_of(FRT_DTYPE_F8_E4M3, FRT_DTYPE_F32), kWeightFp8Tensor,
        [&](frt_dense_args& args, const At& at) {
          args.x_dtype = FRT_DTYPE_F8_E4M3;
          args.x_scale = kScale;
          args.y_dtype = FRT_DTYPE_F32;
          args.rows = 2;
          args.x = at(x);
          args.y = at(y);
          args.x_stride = 16;
          args.y_stride = 8;
          args.weight = Case::at(weight, at);
        },
        spoil);
  };
  refuse([](frt_dense_args& args) { args.x_dtype = FRT_DTYPE_BF16; });
  refuse([](frt_dense_args& args) { args.x_scale = 0; });
  refuse([](frt_dense_args& args) { args.x_scale = -1; });
  refuse([](frt_dense_args& args) { args.x_scale = std::nanf(""); });
  refuse([](frt_dense_args& args) { args.x_scale = INFINITY; });
  refuse([](frt_dense_args& args) { args.x_scale = 1e-45f; });
  refuse([](frt_dense_args& args) { args.weight.format = kWeightBf16; });
}

// ---- attention, conversion -------------------------------------------------------------------

void attention(Case& c, frt_dtype dtype, int32_t rows, int32_t heads, int32_t kv_heads,
               int32_t head_dim, int32_t context) {
  const int64_t q_width = static_cast<int64_t>(heads) * head_dim;
  const int64_t kv_width = static_cast<int64_t>(kv_heads) * head_dim;
  Tensor& q = c.normal("q", dtype, rows * q_width);
  Tensor& kv = c.normal("kv", dtype, rows * 2 * kv_width);
  Tensor& context_kv = c.normal("context", dtype, std::max<int64_t>(1, context * 2 * kv_width));
  Tensor& length = c.integers("context length", {context - 1});
  Tensor& y = c.output("y", FRT_DTYPE_F8_E4M3, rows * q_width);
  c.run<frt_dense_attention_args>(FRT_OP_DENSE_ATTENTION, types_of(dtype, FRT_DTYPE_F8_E4M3), {},
                                  [&](frt_dense_attention_args& args, const At& at) {
                                    args.dtype = dtype;
                                    args.scale = 0.7f / static_cast<float>(head_dim);
                                    args.count = 1;
                                    args.rows = rows;
                                    args.heads = heads;
                                    args.kv_heads = kv_heads;
                                    args.head_dim = head_dim;
                                    args.q = at(q);
                                    args.q_stride = args.y_stride = q_width;
                                    args.k = at(kv);
                                    args.v = at(kv, kv_width);
                                    args.kv_stride = args.context_stride = 2 * kv_width;
                                    args.context_rows = context;
                                    args.sequences_per_context = 1;
                                    if (context > 0) {
                                      args.context_length = at.operator()<int32_t>(length);
                                      args.context_k = at(context_kv);
                                      args.context_v = at(context_kv, kv_width);
                                    }
                                    args.y = at(y);
                                    args.y_scale = kScale / 8;
                                  });
  c.compare(y, kFp8);
}

void convert(Case& c, frt_dtype from, frt_dtype to, float factor, int32_t rows, int32_t width) {
  Tensor& x = c.normal("x", from, static_cast<int64_t>(rows) * width, 3.0f);
  Tensor& y = c.output("y", to, static_cast<int64_t>(rows) * width);
  c.run<frt_convert_args>(FRT_OP_CONVERT, types_of(from, to), {},
                          [&](frt_convert_args& args, const At& at) {
                            args.x_dtype = from;
                            args.y_dtype = to;
                            args.rows = rows;
                            args.width = width;
                            args.factor = factor;
                            args.x = at(x);
                            args.y = at(y);
                            args.x_stride = args.y_stride = width;
                          });
  c.compare(y, kExact);
}

}  // namespace

void add_dense_fp8_cases(Suite& suite) {
  // Odd ones, then those of a policy of full size: vision, prefix, expert.
  const Shape shapes[] = {{1, 16, 8},      {3, 48, 20},      {7, 96, 33},
                          {16, 72, 40},    {17, 128, 64},    {50, 1024, 96},
                          {100, 256, 132}, {40, 64, 64, 11}, {5, 32, 24, -1, 8},
                          {20, 32, 24, 0}, {33, 144, 144},   {64, 128, 48, -1, 16}};
  const Shape large[] = {{10, 1024, 512}, {50, 2048, 256}, {50, 4096, 64},   {512, 1152, 80, 256},
                         {256, 4304, 32}, {542, 2048, 64}, {512, 256, 1152}, {562, 256, 512}};
  for (const frt_dtype dtype : kTypes) {
    const std::string type = std::string(" ") + dtype_name(dtype) + " fp8 ";
    for (const Packing& packing : kPackings) {
      const std::string name = type + packing.name + " ";
      for (const Around& around : kAround) {
        for (const Shape& s : shapes) {
          suite.add(FRT_OP_DENSE + name + around.name + " " + text(s),
                    [=](Case& c) { dense(c, dtype, packing, around, s); });
        }
      }
      for (const Shape& s : large) {
        if (dtype == FRT_DTYPE_F32) break;
        for (const std::size_t i : {0u, 2u, 4u}) {
          const Around& around = kAround[i];
          suite.add(FRT_OP_DENSE + name + around.name + " " + text(s),
                    [=](Case& c) { dense(c, dtype, packing, around, s); });
        }
      }
      // Many inputs for many outputs, which a device may divide among blocks and groups of them.
      if (dtype == FRT_DTYPE_BF16 && packing.format == kWeightFp8Tensor) {
        const Shape s = {129, 8704, 1928};
        suite.add(FRT_OP_DENSE + name + kAround[2].name + " " + text(s),
                  [=](Case& c) { dense(c, dtype, packing, kAround[2], s); });
      }
      for (const uint32_t kind : {FRT_NORM_RMS, FRT_NORM_LAYER, FRT_NORM_ADAPTIVE}) {
        for (const Shape& s : {Shape{1, 16, 24},
                               {10, 64, 40},
                               {17, 144, 136},
                               {50, 1024, 64},
                               {40, 96, 48, 23},
                               {130, 1152, 80}}) {
          for (const Fp8& form : kFp8Forms) {
            const std::string shape =
                "norm " + std::to_string(kind) + " " + form.name + " " + text(s);
            suite.add(FRT_OP_NORM_DENSE + name + shape,
                      [=](Case& c) { norm_dense(c, dtype, dtype, kind, packing, form, s); });
            suite.add(FRT_OP_NORM_GEGLU + name + shape,
                      [=](Case& c) { norm_geglu(c, dtype, dtype, kind, packing, form, s); });
          }
        }
      }
      suite.add(FRT_OP_NORM_GEGLU + name + "f32 residual", [=](Case& c) {
        norm_geglu(c, FRT_DTYPE_F32, dtype, FRT_NORM_RMS, packing, kFp8Forms[1], {130, 256, 384});
      });
      suite.add(FRT_OP_NORM_QKV + name + "10x64",
                [=](Case& c) { norm_qkv(c, dtype, packing, 10, 64, 8, 16); });
      suite.add(FRT_OP_NORM_QKV + name + "50x1024",
                [=](Case& c) { norm_qkv(c, dtype, packing, 50, 1024, 8, 256); });
      suite.add(FRT_OP_NORM_QKV + name + "130x512",
                [=](Case& c) { norm_qkv(c, dtype, packing, 130, 512, 2, 64); });
      suite.add(FRT_OP_NORM_QKV + name + "270x256",
                [=](Case& c) { norm_qkv(c, dtype, packing, 270, 256, 3, 256); });
    }
    suite.add(FRT_OP_DENSE_ATTENTION + type + "16x4x12",
              [=](Case& c) { attention(c, dtype, 16, 4, 4, 12, 0); });
    suite.add(FRT_OP_DENSE_ATTENTION + type + "256x16x72",
              [=](Case& c) { attention(c, dtype, 256, 16, 16, 72, 0); });
    suite.add(FRT_OP_DENSE_ATTENTION + type + "67x8x16",
              [=](Case& c) { attention(c, dtype, 67, 8, 1, 16, 0); });
    suite.add(FRT_OP_DENSE_ATTENTION + type + "200x8x256",
              [=](Case& c) { attention(c, dtype, 200, 8, 1, 256, 0); });
    suite.add(FRT_OP_DENSE_ATTENTION + type + "542x8x256",
              [=](Case& c) { attention(c, dtype, 542, 8, 1, 256, 0); });
    suite.add(FRT_OP_DENSE_ATTENTION + type + "50x8x256 context",
              [=](Case& c) { attention(c, dtype, 50, 8, 1, 256, 562); });
    suite.add(FRT_OP_DENSE_ATTENTION + type + "5x6x40 context",
              [=](Case& c) { attention(c, dtype, 5, 6, 2, 40, 33); });
    for (const float factor : {3.7f, 0.0123f, -1.0f}) {
      suite.add(FRT_OP_CONVERT + type + "factor " + std::to_string(factor),
                [=](Case& c) { convert(c, dtype, FRT_DTYPE_F8_E4M3, factor, 5, 72); });
    }
    suite.add(FRT_OP_CONVERT + type + "factor and the same type",
              [=](Case& c) { convert(c, dtype, dtype, 0.3f, 3, 33); });
  }
  suite.add(FRT_OP_DENSE " fp8 refusals", dense_refusals);
}

}  // namespace frt::conformance
