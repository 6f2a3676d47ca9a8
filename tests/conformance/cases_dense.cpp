// SPDX-License-Identifier: Apache-2.0
// Cases of frt/ops/row_norm.h and frt/ops/dense.h.
#include <frt/ops/dense.h>

#include <algorithm>

#include "check.hpp"
#include "refusal.hpp"

namespace frt::conformance {
namespace {

constexpr frt_dtype kTypes[] = {FRT_DTYPE_F32, FRT_DTYPE_BF16};

struct Norm {
  const char* name;
  uint32_t kind;
  bool clean = false;  // some rows take the other modulation
};
const Norm kNorms[] = {{"none", FRT_NORM_NONE},
                       {"rms", FRT_NORM_RMS},
                       {"layer", FRT_NORM_LAYER},
                       {"adaptive", FRT_NORM_ADAPTIVE},
                       {"adaptive with clean rows", FRT_NORM_ADAPTIVE, true}};

// The tensors of a norm, or of a modulation alone.
struct NormTensors {
  Norm norm;
  Tensor *weight, *bias, *rows, *clean, *clean_rows;
  int32_t period;

  NormTensors(Case& c, const Norm& kind, int64_t width, int32_t rows_per_period)
      : norm(kind),
        weight(&c.normal("norm weight", FRT_DTYPE_F32, width, 0.3f, 1.0f)),
        bias(&c.normal("norm bias", FRT_DTYPE_F32, width, 0.3f)),
        rows(&c.normal("modulation", FRT_DTYPE_F32, 3 * width, 0.5f)),
        clean(&c.normal("clean modulation", FRT_DTYPE_F32, 3 * width, 0.5f)),
        clean_rows(&c.integers("clean rows", {2})),
        period(rows_per_period) {}

  frt_modulation modulation(const At& at) const {
    frt_modulation m{};
    m.rows = at.operator()<float>(*rows);
    if (!norm.clean) return m;
    m.clean = at.operator()<float>(*clean);
    m.clean_rows = at.operator()<int32_t>(*clean_rows);
    m.period = period;
    return m;
  }
  frt_norm at(const At& at) const {
    frt_norm n{};
    n.kind = norm.kind;
    n.epsilon = 1e-6f;
    n.weight = at.operator()<float>(*weight);
    n.bias = at.operator()<float>(*bias);
    if (norm.kind == FRT_NORM_ADAPTIVE) n.modulation = modulation(at);
    return n;
  }
};

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
Packing plain(frt_dtype dtype) {
  return dtype == FRT_DTYPE_F32 ? Packing{"f32", kWeightF32} : Packing{"bf16", kWeightBf16};
}

// ---- row_norm --------------------------------------------------------------------------------

void row_norm(Case& c, frt_dtype x_dtype, frt_dtype y_dtype, const Norm& kind, const Shape& shape,
              float mean) {
  const int64_t stride = shape.inputs + shape.gap;
  Tensor& x = c.normal("x", x_dtype, shape.rows * stride, 2.0f, mean);
  const NormTensors norm(c, kind, shape.inputs, 5);
  Tensor& y = c.output("y", y_dtype, shape.rows * stride);
  Tensor& count = c.integers("row_count", {shape.row_count});
  c.run<frt_row_norm_args>(FRT_OP_ROW_NORM, types_of(x_dtype, y_dtype), {},
                           [&](frt_row_norm_args& args, const At& at) {
                             args.x_dtype = x_dtype;
                             args.y_dtype = y_dtype;
                             args.rows = shape.rows;
                             args.width = shape.inputs;
                             if (shape.row_count >= 0)
                               args.row_count = at.operator()<int32_t>(count);
                             args.norm = norm.at(at);
                             args.x = at(x);
                             args.x_stride = stride;
                             args.y = at(y);
                             args.y_stride = stride;
                           });
  c.compare(y, tolerance_of(y_dtype), shape.row_count < 0 ? Untouched::kLeave : Untouched::kIgnore);
}

// ---- dense -----------------------------------------------------------------------------------

struct Around {
  const char* name;
  bool bias = false;
  uint32_t activation = FRT_ACTIVATION_NONE;
  bool gate = false, clean = false, addend = false, accumulate = false;
};
const Around kAround[] = {{"product"},
                          {"bias", true},
                          {"bias gelu", true, FRT_ACTIVATION_GELU},
                          {"bias silu", true, FRT_ACTIVATION_SILU},
                          {"residual", false, FRT_ACTIVATION_NONE, false, false, false, true},
                          {"bias residual", true, FRT_ACTIVATION_NONE, false, false, false, true},
                          {"gate residual", false, FRT_ACTIVATION_NONE, true, false, false, true},
                          {"clean residual", false, FRT_ACTIVATION_NONE, true, true, false, true},
                          {"addend", false, FRT_ACTIVATION_NONE, false, false, true},
                          {"all", true, FRT_ACTIVATION_GELU, true, true, true, true}};

void dense(Case& c, frt_dtype x_dtype, frt_dtype y_dtype, const Packing& packing,
           const Around& around, const Shape& shape) {
  constexpr int32_t kAddendRows = 3;
  const int64_t x_stride = shape.inputs + shape.gap;
  const int64_t y_stride = shape.outputs + 2 * shape.gap;
  Tensor& x = c.normal("x", x_dtype, shape.rows * x_stride);
  const Weight weight = c.weight("weight", packing, shape.outputs, shape.inputs);
  Tensor& bias = c.normal("bias", FRT_DTYPE_F32, shape.outputs, 0.5f);
  const NormTensors gate(c, {"", FRT_NORM_NONE, around.clean}, shape.outputs, 4);
  Tensor& addend = c.normal("addend", FRT_DTYPE_F32, kAddendRows * shape.outputs);
  Tensor& y = around.accumulate ? c.normal("y", y_dtype, shape.rows * y_stride, 2.0f)
                                : c.output("y", y_dtype, shape.rows * y_stride);
  Tensor& count = c.integers("row_count", {shape.row_count});
  c.run<frt_dense_args>(FRT_OP_DENSE, types_of(x_dtype, y_dtype), packing.format,
                        [&](frt_dense_args& args, const At& at) {
                          args.x_dtype = x_dtype;
                          args.y_dtype = y_dtype;
                          args.rows = shape.rows;
                          args.activation = around.activation;
                          args.accumulate = around.accumulate ? 1 : 0;
                          if (shape.row_count >= 0) args.row_count = at.operator()<int32_t>(count);
                          args.x = at(x);
                          args.x_stride = x_stride;
                          args.weight = Case::at(weight, at);
                          if (around.bias) args.bias = at.operator()<float>(bias);
                          if (around.gate) args.gate = gate.modulation(at);
                          if (around.addend) args.addend = at.operator()<float>(addend);
                          args.addend_rows = kAddendRows;
                          args.y = at(y);
                          args.y_stride = y_stride;
                        });
  const Case::Range computed{0, active(shape) * y_stride};
  c.compare_rounded(y, {&computed, 1}, y_stride, tolerance_of(y_dtype), c.may_round(x, weight),
                    kFp4);
}

void norm_dense(Case& c, frt_dtype x_dtype, frt_dtype dtype, const Norm& kind, const Shape& shape,
                int32_t part_count, const Packing& packing) {
  Tensor& x = c.normal("x", x_dtype, static_cast<int64_t>(shape.rows) * shape.inputs, 2.0f);
  const NormTensors norm(c, kind, shape.inputs, 5);
  Tensor& normed = c.output("normed", dtype, static_cast<int64_t>(shape.rows) * shape.inputs);
  Tensor& count = c.integers("row_count", {shape.row_count});
  struct Part {
    Weight weight;
    Tensor *bias, *y;
    int64_t stride;
  };
  std::vector<Part> parts;
  for (int32_t i = 0; i < part_count; ++i) {
    const int32_t outputs = shape.outputs + 8 * i;
    const int64_t stride = outputs + 4 * i;
    const std::string name = "part " + std::to_string(i);
    parts.push_back({c.weight(name, packing, outputs, shape.inputs),
                     &c.normal(name + " bias", FRT_DTYPE_F32, outputs, 0.5f),
                     &c.output(name + " y", dtype, shape.rows * stride), stride});
  }
  std::vector<frt_dense_part> list[2];
  c.run<frt_norm_dense_args>(
      FRT_OP_NORM_DENSE, types_of(dtype, dtype), packing.format,
      [&](frt_norm_dense_args& args, const At& at) {
        args.x_dtype = x_dtype;
        args.dtype = dtype;
        args.rows = shape.rows;
        args.part_count = part_count;
        if (shape.row_count >= 0) args.row_count = at.operator()<int32_t>(count);
        args.norm = norm.at(at);
        args.x = at(x);
        args.normed = at(normed);
        auto& own = list[at.side()];
        own.clear();
        for (const Part& part : parts) {
          const bool first = own.empty();
          own.push_back({Case::at(part.weight, at),
                         first ? at.operator()<float>(*part.bias) : nullptr,
                         first && part_count > 1 ? FRT_ACTIVATION_GELU : FRT_ACTIVATION_NONE, 0,
                         at(*part.y), part.stride});
        }
        args.parts = own.data();
      });
  for (const Part& part : parts) {
    const Case::Range computed{0, active(shape) * part.stride};
    c.compare_rounded(*part.y, {&computed, 1}, part.stride, tolerance_of(dtype),
                      c.may_round(normed, part.weight), kFp4Gated);
  }
}

void norm_geglu(Case& c, frt_dtype x_dtype, frt_dtype dtype, const Norm& kind, const Shape& shape) {
  const int64_t values = static_cast<int64_t>(shape.rows) * shape.outputs;
  Tensor& x = c.normal("x", x_dtype, static_cast<int64_t>(shape.rows) * shape.inputs, 2.0f);
  const NormTensors norm(c, kind, shape.inputs, 5);
  Tensor& normed = c.output("normed", dtype, static_cast<int64_t>(shape.rows) * shape.inputs);
  const Weight gate = c.weight("gate", plain(dtype), shape.outputs, shape.inputs);
  const Weight up = c.weight("up", plain(dtype), shape.outputs, shape.inputs);
  Tensor& work = c.output("gate y", dtype, values);
  Tensor& h = c.output("h", dtype, values);
  Tensor& count = c.integers("row_count", {shape.row_count});
  c.run<frt_norm_geglu_args>(FRT_OP_NORM_GEGLU, KernelTypes(dtype), plain(dtype).format,
                             [&](frt_norm_geglu_args& args, const At& at) {
                               args.x_dtype = x_dtype;
                               args.dtype = dtype;
                               args.rows = shape.rows;
                               if (shape.row_count >= 0)
                                 args.row_count = at.operator()<int32_t>(count);
                               args.norm = norm.at(at);
                               args.x = at(x);
                               args.normed = at(normed);
                               args.gate_weight = Case::at(gate, at);
                               args.up_weight = Case::at(up, at);
                               args.gate = at(work);
                               args.h = at(h);
                             });
  c.compare_range(h, 0, active(shape) * shape.outputs, tolerance_of(dtype));
}

void dense_refusals(Case& c) {
  Tensor& x = c.normal("x", FRT_DTYPE_F32, 256);
  const Weight weight = c.weight("weight", plain(FRT_DTYPE_F32), 8, 8);
  const auto refuse = [&](auto spoil) {
    refused<frt_dense_args>(
        c, FRT_OP_DENSE, KernelTypes(FRT_DTYPE_F32), kWeightF32,
        [&](frt_dense_args& args, const At& at) {
          args.x_dtype = args.y_dtype = FRT_DTYPE_F32;
          args.rows = 2;
          args.x = at(x);
          args.y = at(x, 64);
          args.x_stride = args.y_stride = 8;
          args.weight = Case::at(weight, at);
        },
        spoil);
  };
  refuse([](frt_dense_args& args) { args.x_dtype = FRT_DTYPE_F16; });
  refuse([](frt_dense_args& args) { args.rows = -1; });
  refuse([](frt_dense_args& args) { args.activation = 3; });
  refuse([](frt_dense_args& args) { args.accumulate = 2; });
  refuse([](frt_dense_args& args) { args.x = nullptr; });
  refuse([](frt_dense_args& args) { args.y = nullptr; });
  refuse([](frt_dense_args& args) { args.weight.data = nullptr; });
  refuse([](frt_dense_args& args) { args.x_stride = 7; });
  refuse([](frt_dense_args& args) { args.y_stride = 7; });
}

// Odd ones, then those of a policy of full size: vision, prefix, expert.
const Shape kShapes[] = {{1, 16, 8},     {3, 48, 20},      {7, 96, 33},        {10, 64, 128},
                         {16, 72, 40},   {17, 128, 64},    {50, 1024, 96},     {100, 256, 132},
                         {33, 144, 144}, {40, 64, 64, 11}, {300, 80, 48, 256}, {5, 32, 24, -1, 8},
                         {20, 32, 24, 0}};
const Shape kLargeShapes[] = {{10, 1024, 2560}, {50, 2048, 1024}, {256, 592, 1152},
                              {512, 1152, 432}, {562, 256, 2048}, {200, 4304, 136, 177}};

void row_norm_refusals(Case& c) {
  Tensor& x = c.normal("x", FRT_DTYPE_F32, 32);
  refused<frt_row_norm_args>(
      c, FRT_OP_ROW_NORM, KernelTypes(FRT_DTYPE_F32), {},
      [&](frt_row_norm_args& args, const At& at) {
        args.x_dtype = args.y_dtype = FRT_DTYPE_F32;
        args.rows = 2;
        args.width = 16;
        args.x = args.y = at(x);
        args.x_stride = args.y_stride = 16;
      },
      [](frt_row_norm_args& args) { args.rows = 0; });
}

}  // namespace

void add_dense_cases(Suite& suite) {
  suite.add(FRT_OP_ROW_NORM " refusals", row_norm_refusals);
  for (const frt_dtype x : kTypes) {
    for (const frt_dtype y : kTypes) {
      const std::string types = std::string(" ") + dtype_name(x) + " " + dtype_name(y) + " ";
      for (const Norm& norm : kNorms) {
        for (const Shape& s : {Shape{1, 1, 0},
                               {4, 33, 0},
                               {7, 48, 0},
                               {10, 1024, 0},
                               {3, 1152, 0},
                               {20, 2048, 0},
                               {6, 100, 0, -1, 4},
                               {9, 64, 0, 4},
                               {2, 5000, 0}}) {
          suite.add(FRT_OP_ROW_NORM + types + norm.name + " " + text(s),
                    [=](Case& c) { row_norm(c, x, y, norm, s, 0.0f); });
        }
        suite.add(FRT_OP_ROW_NORM + types + norm.name + " far from zero", [=](Case& c) {
          row_norm(c, x, y, norm, {4, 576, 0}, 50.0f);
        });
      }
      if (x == FRT_DTYPE_F32 && y == FRT_DTYPE_BF16) continue;
      for (const Around& around : kAround) {
        for (const Shape& s : kShapes) {
          suite.add(FRT_OP_DENSE + types + around.name + " " + text(s),
                    [=](Case& c) { dense(c, x, y, plain(x), around, s); });
        }
      }
      for (const Shape& s : kLargeShapes) {
        for (const std::size_t i : {2u, 6u}) {
          const Around& around = kAround[i];
          suite.add(FRT_OP_DENSE + types + around.name + " " + text(s),
                    [=](Case& c) { dense(c, x, y, plain(x), around, s); });
        }
      }
    }
    // Many inputs for many outputs, which a device may divide among blocks and groups of them.
    for (const std::size_t i : {5u, 6u}) {
      const Shape s = {129, 16384, 1928};
      if (x == FRT_DTYPE_F32) break;
      suite.add(FRT_OP_DENSE + std::string(" bf16 bf16 ") + kAround[i].name + " " + text(s),
                [=](Case& c) { dense(c, x, x, plain(x), kAround[i], s); });
    }
    // The residual stream may be wider than what is multiplied.
    for (const frt_dtype residual : kTypes) {
      if (x == FRT_DTYPE_F32 && residual == FRT_DTYPE_BF16) continue;
      const std::string types = std::string(" ") + dtype_name(residual) + " " + dtype_name(x) + " ";
      for (const Norm& norm : kNorms) {
        if (norm.kind == FRT_NORM_NONE && residual != x) continue;
        for (const Shape& s : {Shape{1, 16, 24},
                               {10, 64, 40},
                               {17, 144, 136},
                               {50, 1024, 64},
                               {40, 96, 48, 23},
                               {256, 1152, 72},
                               {300, 200, 264, 271}}) {
          for (const int32_t parts : {1, 2}) {
            suite.add(FRT_OP_NORM_DENSE + types + norm.name + " " + text(s) + " parts " +
                          std::to_string(parts),
                      [=](Case& c) { norm_dense(c, residual, x, norm, s, parts, plain(x)); });
          }
          suite.add(FRT_OP_NORM_GEGLU + types + norm.name + " " + text(s),
                    [=](Case& c) { norm_geglu(c, residual, x, norm, s); });
        }
      }
    }
  }
  // GEMMs of quantised weights, whose sums are finished by a kernel of their own.
  const Packing nvfp4 = {"nvfp4", kWeightNvfp4};
  for (const std::size_t i : {0u, 5u, 6u}) {
    for (const Shape& s : {Shape{130, 256, 136}, {300, 192, 131, 270}}) {
      suite.add(
          FRT_OP_DENSE + std::string(" gemm bf16 bf16 nvfp4 ") + kAround[i].name + " " + text(s),
          [=](Case& c) { dense(c, FRT_DTYPE_BF16, FRT_DTYPE_BF16, nvfp4, kAround[i], s); });
    }
  }
  suite.add(FRT_OP_NORM_DENSE " gemm bf16 bf16 nvfp4", [=](Case& c) {
    norm_dense(c, FRT_DTYPE_BF16, FRT_DTYPE_BF16, kNorms[2], {130, 256, 136}, 2, nvfp4);
  });
  suite.add(FRT_OP_DENSE " refusals", dense_refusals);
}

}  // namespace frt::conformance
