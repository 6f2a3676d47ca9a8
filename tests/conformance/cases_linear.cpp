// SPDX-License-Identifier: Apache-2.0
// Cases of frt/ops/linear.h with few rows: every weight format, sizes around those of tiles and
// chunks, rows that are not aligned, groups of mixed formats, norms, gates, and that a row's bits
// do not depend on how many rows are computed together. Many rows: cases_linear_gemm.cpp.
#include <frt/ops/linear.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "check.hpp"
#include "refusal.hpp"

namespace frt::conformance {
namespace {

constexpr int32_t kMostAlike = 16;  // rows up to which a row's bits are its own

// Columns are rounded up to 16 for NVFP4.
int32_t columns(const Packing& packing, int32_t inputs) {
  return packing.format == kWeightNvfp4 ? (inputs + 15) / 16 * 16 : inputs;
}

struct Shape {
  int32_t rows, outputs, inputs;
  int32_t x_gap = 0, y_gap = 0;  // elements between rows
  bool accumulate = false;
  int32_t row_count = -1;  // none
};

struct Types {
  frt_dtype x, y;
};
constexpr Types kTypes[] = {{FRT_DTYPE_BF16, FRT_DTYPE_BF16},
                            {FRT_DTYPE_BF16, FRT_DTYPE_F32},
                            {FRT_DTYPE_F32, FRT_DTYPE_F32},
                            {FRT_DTYPE_F32, FRT_DTYPE_BF16}};

std::string text(const Packing& packing, const Types& types, const Shape& shape) {
  std::string name = " " + packing.name + " " + dtype_name(types.x) + " to " + dtype_name(types.y) +
                     " " + std::to_string(shape.rows) + "x" + std::to_string(shape.outputs) + "x" +
                     std::to_string(columns(packing, shape.inputs));
  if (shape.x_gap || shape.y_gap) {
    name += " gaps " + std::to_string(shape.x_gap) + ", " + std::to_string(shape.y_gap);
  }
  if (shape.accumulate) name += " added";
  if (shape.row_count >= 0) name += " row_count " + std::to_string(shape.row_count);
  return name;
}

// bf16 activations: the weights are as exact as bf16 in the fast paths of some backends.
Tolerance tolerance(const Types& types) {
  return types.x == FRT_DTYPE_F32 ? tolerance_of(types.y) : kBf16;
}

void linear(Case& c, const Packing& packing, const Types& types, const Shape& shape) {
  const int32_t inputs = columns(packing, shape.inputs);
  const int64_t x_stride = inputs + shape.x_gap, y_stride = shape.outputs + shape.y_gap;
  Tensor& x = c.normal("x", types.x, shape.rows * x_stride);
  Tensor& y = shape.accumulate ? c.normal("y", types.y, shape.rows * y_stride)
                               : c.output("y", types.y, shape.rows * y_stride);
  const Tensor* count = shape.row_count < 0 ? nullptr : &c.integers("count", {shape.row_count});
  const Weight weight = c.weight("weight", packing, shape.outputs, inputs);
  c.run<frt_linear_args>(FRT_OP_LINEAR, types_of(types.x, types.y), packing.format,
                         [&](frt_linear_args& args, const At& at) {
                           args.x_dtype = types.x;
                           args.y_dtype = types.y;
                           args.rows = shape.rows;
                           args.accumulate = shape.accumulate ? 1 : 0;
                           args.row_count = count ? at.operator()<int32_t>(*count) : nullptr;
                           args.x = at(x);
                           args.x_stride = x_stride;
                           args.weight = Case::at(weight, at);
                           args.y = at(y);
                           args.y_stride = y_stride;
                         });
  c.compare(y, tolerance(types), count ? Untouched::kIgnore : Untouched::kLeave);
  const int32_t active = count ? std::min(shape.rows, shape.row_count) : shape.rows;
  c.require_product(x, weight, y, {active, shape.rows, x_stride, y_stride, shape.accumulate});
}

// `run` of some rows alone and of all kMostAlike: the same bits in `y`.
template <class Run>
void same_bits(const Tensor& y, int32_t outputs, const Run& run) {
  run(0, kMostAlike);
  const std::vector<std::byte> together = y.result[0];
  const auto bytes = static_cast<std::size_t>(dtype_bits(y.dtype) / 8);
  for (const auto& [first, rows] : {std::pair{0, 1}, {5, 1}, {15, 1}, {3, 2}, {8, 4}, {2, 9}}) {
    run(first, rows);
    std::string where;
    int32_t different = 0;
    for (int32_t i = first * outputs; i < (first + rows) * outputs; ++i) {
      const std::size_t at = static_cast<std::size_t>(i) * bytes;
      if (std::memcmp(y.result[0].data() + at, together.data() + at, bytes) == 0) continue;
      if (++different == 1) {
        where = "row " + std::to_string(i / outputs) + ", output " + std::to_string(i % outputs);
      }
    }
    if (different > 0) {
      Case::fail("rows " + std::to_string(first) + " to " + std::to_string(first + rows - 1) +
                 " differ from the same rows among " + std::to_string(kMostAlike) + " in " +
                 std::to_string(different) + " values, first in " + where);
    }
  }
}

// x in a row of its own, and among others.
void alike(Case& c, const Packing& packing, const Types& types, int32_t outputs, int32_t inputs) {
  Tensor& x = c.normal("x", types.x, int64_t{kMostAlike} * inputs);
  Tensor& y = c.output("y", types.y, int64_t{kMostAlike} * outputs);
  const Weight weight = c.weight("weight", packing, outputs, inputs);
  same_bits(y, outputs, [&](int32_t first, int32_t rows) {
    c.run<frt_linear_args>(FRT_OP_LINEAR, types_of(types.x, types.y), packing.format,
                           [&](frt_linear_args& args, const At& at) {
                             args.x_dtype = types.x;
                             args.y_dtype = types.y;
                             args.rows = rows;
                             args.x = at(x, int64_t{first} * inputs);
                             args.x_stride = inputs;
                             args.weight = Case::at(weight, at);
                             args.y = at(y, int64_t{first} * outputs);
                             args.y_stride = outputs;
                           });
    c.compare(y, tolerance(types));
  });
}

// ---- groups -------------------------------------------------------------------------------------

struct Norm {
  frt_dtype residual = FRT_DTYPE_NONE;  // none: x is an input
  bool delta = false;
};

std::string text(const Norm& norm) {
  if (norm.residual == FRT_DTYPE_NONE) return " without norm";
  return std::string(" residual ") + dtype_name(norm.residual) + (norm.delta ? " delta" : "");
}

// The tensors before the products.
struct Before {
  Tensor *residual = nullptr, *delta = nullptr, *factor = nullptr, *x = nullptr;
};

Before before(Case& c, const Norm& norm, frt_dtype dtype, int64_t rows, int32_t inputs) {
  Before made;
  if (norm.residual == FRT_DTYPE_NONE) {
    made.x = &c.normal("x", dtype, rows * inputs);
    return made;
  }
  made.residual = &c.normal("residual", norm.residual, rows * inputs, 3.0f);
  if (norm.delta) made.delta = &c.normal("delta", dtype, rows * inputs);
  made.factor = &c.normal("norm_weight", FRT_DTYPE_F32, inputs, 0.1f, 1.0f);
  made.x = &c.output("x", dtype, rows * inputs);
  return made;
}

template <class Args>
void fill_before(Args& args, const At& at, const Norm& norm, const Before& tensors, frt_dtype dtype,
                 int32_t rows) {
  args.residual_dtype = norm.residual;
  args.dtype = dtype;
  args.rows = rows;
  args.epsilon = 1e-6f;
  args.x = at(*tensors.x);
  if (!tensors.residual) return;
  args.residual = at(*tensors.residual);
  args.delta = tensors.delta ? at(*tensors.delta) : nullptr;
  args.norm_weight = at.operator()<float>(*tensors.factor);
}

void compare_before(Case& c, const Before& tensors, frt_dtype dtype, Untouched untouched) {
  if (!tensors.residual) return;
  c.compare(*tensors.residual, tolerance_of(dtype), untouched);
  c.compare(*tensors.x, tolerance_of(dtype), untouched);
}

struct GroupPart {
  Packing packing;
  int32_t outputs;
  int32_t gap = 0;
};

void norm_linears(Case& c, frt_dtype dtype, const Norm& norm, int32_t rows, int32_t inputs,
                  const std::vector<GroupPart>& parts, int32_t row_count = -1) {
  const Before tensors = before(c, norm, dtype, rows, inputs);
  const Tensor* count = row_count < 0 ? nullptr : &c.integers("count", {row_count});
  std::vector<Weight> weights;
  std::vector<const Tensor*> outputs;
  WeightFormats formats;
  for (const GroupPart& part : parts) {
    const std::string number = std::to_string(weights.size());
    weights.push_back(c.weight("weight " + number, part.packing, part.outputs, inputs));
    outputs.push_back(&c.output("y " + number, dtype, int64_t{rows} * (part.outputs + part.gap)));
    formats.add(part.packing.format);
  }
  std::vector<frt_linear_part> described(parts.size());
  c.run<frt_norm_linears_args>(FRT_OP_NORM_LINEARS, KernelTypes(dtype), formats,
                               [&](frt_norm_linears_args& args, const At& at) {
                                 for (std::size_t i = 0; i < parts.size(); ++i) {
                                   described[i].weight = Case::at(weights[i], at);
                                   described[i].y = at(*outputs[i]);
                                   described[i].y_stride = parts[i].outputs + parts[i].gap;
                                 }
                                 fill_before(args, at, norm, tensors, dtype, rows);
                                 args.part_count = static_cast<int32_t>(parts.size());
                                 args.row_count = count ? at.operator()<int32_t>(*count) : nullptr;
                                 args.parts = described.data();
                               });
  const Untouched untouched = count ? Untouched::kIgnore : Untouched::kLeave;
  compare_before(c, tensors, dtype, untouched);
  for (const Tensor* y : outputs) c.compare(*y, tolerance_of(dtype), untouched);
}

// As alike(), with a norm before and several products of bf16 activations: also what is left of the
// row, and what becomes of the residual.
void norm_alike(Case& c, const Norm& norm, int32_t inputs, const std::vector<GroupPart>& parts) {
  constexpr int32_t kRows = 4;
  const Before tensors = before(c, norm, FRT_DTYPE_BF16, kRows, inputs);
  std::vector<Weight> weights;
  std::vector<Tensor*> outputs = {tensors.residual, tensors.x};
  std::vector<int64_t> row_bytes = {inputs * (norm.residual == FRT_DTYPE_F32 ? 4 : 2), inputs * 2};
  WeightFormats formats;
  for (const GroupPart& part : parts) {
    const std::string number = std::to_string(weights.size());
    weights.push_back(c.weight("weight " + number, part.packing, part.outputs, inputs));
    outputs.push_back(&c.output("y " + number, FRT_DTYPE_BF16, int64_t{kRows} * part.outputs));
    row_bytes.push_back(part.outputs * 2);
    formats.add(part.packing.format);
  }
  std::vector<frt_linear_part> described(parts.size());
  const auto run = [&](int32_t first, int32_t rows) {
    const auto place = [&](const Tensor& tensor, const At& at) {
      return at(tensor, int64_t{first} * inputs);
    };
    c.run<frt_norm_linears_args>(FRT_OP_NORM_LINEARS, KernelTypes(FRT_DTYPE_BF16), formats,
                                 [&](frt_norm_linears_args& args, const At& at) {
                                   for (std::size_t i = 0; i < parts.size(); ++i) {
                                     described[i].weight = Case::at(weights[i], at);
                                     described[i].y =
                                         at(*outputs[i + 2], int64_t{first} * parts[i].outputs);
                                     described[i].y_stride = parts[i].outputs;
                                   }
                                   fill_before(args, at, norm, tensors, FRT_DTYPE_BF16, rows);
                                   args.residual = place(*tensors.residual, at);
                                   if (tensors.delta) args.delta = place(*tensors.delta, at);
                                   args.x = place(*tensors.x, at);
                                   args.part_count = static_cast<int32_t>(parts.size());
                                   args.parts = described.data();
                                 });
    std::vector<std::vector<std::byte>> results;
    for (const Tensor* tensor : outputs) results.push_back(tensor->result[0]);
    return results;
  };
  const auto together = run(0, kRows);
  for (int32_t row = 0; row < kRows; ++row) {
    const auto alone = run(row, 1);
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      const auto begin = static_cast<std::ptrdiff_t>(row * row_bytes[i]);
      const auto end = begin + static_cast<std::ptrdiff_t>(row_bytes[i]);
      if (!std::equal(alone[i].begin() + begin, alone[i].begin() + end,
                      together[i].begin() + begin)) {
        Case::fail(outputs[i]->name + ": row " + std::to_string(row) +
                   " by itself differs from the same row among " + std::to_string(kRows));
      }
    }
  }
}

void norm_gate_up(Case& c, frt_dtype dtype, const Norm& norm, int32_t rows, int32_t inputs,
                  int32_t width, const Packing& gate, const Packing& up) {
  const Before tensors = before(c, norm, dtype, rows, inputs);
  Tensor& working = c.output("gate", dtype, int64_t{rows} * width);
  Tensor& h = c.output("h", dtype, int64_t{rows} * width);
  const Weight gate_weight = c.weight("gate_weight", gate, width, inputs);
  const Weight up_weight = c.weight("up_weight", up, width, inputs);
  c.run<frt_norm_gate_up_args>(FRT_OP_NORM_GATE_UP, KernelTypes(dtype), {gate.format, up.format},
                               [&](frt_norm_gate_up_args& args, const At& at) {
                                 fill_before(args, at, norm, tensors, dtype, rows);
                                 args.gate_weight = Case::at(gate_weight, at);
                                 args.up_weight = Case::at(up_weight, at);
                                 args.gate = at(working);
                                 args.h = at(h);
                               });
  compare_before(c, tensors, dtype, Untouched::kLeave);
  c.compare(h, tolerance_of(dtype));
}

// Parts of equal size, three of them, and gate and up, with no norm before them.
void groups_alike(Case& c, const Packing& packing, int32_t outputs, int32_t inputs) {
  Tensor& x = c.normal("x", FRT_DTYPE_BF16, int64_t{kMostAlike} * inputs);
  Tensor& working = c.output("gate", FRT_DTYPE_BF16, int64_t{kMostAlike} * outputs);
  std::vector<Weight> weights;
  std::vector<const Tensor*> made;
  for (const char* name : {"0", "1", "2"}) {
    weights.push_back(c.weight(std::string("weight ") + name, packing, outputs, inputs));
    made.push_back(
        &c.output(std::string("y ") + name, FRT_DTYPE_BF16, int64_t{kMostAlike} * outputs));
  }
  const auto rows_of = [&](auto& args, const At& at, int32_t first, int32_t rows) {
    args.dtype = FRT_DTYPE_BF16;
    args.rows = rows;
    args.x = at(x, int64_t{first} * inputs);
  };
  same_bits(*made[1], outputs, [&](int32_t first, int32_t rows) {
    std::array<frt_linear_part, 3> parts{};
    c.run<frt_norm_linears_args>(
        FRT_OP_NORM_LINEARS, KernelTypes(FRT_DTYPE_BF16), packing.format,
        [&](frt_norm_linears_args& args, const At& at) {
          rows_of(args, at, first, rows);
          for (std::size_t i = 0; i < parts.size(); ++i) {
            parts[i] = {Case::at(weights[i], at), at(*made[i], int64_t{first} * outputs), outputs};
          }
          args.part_count = 3;
          args.parts = parts.data();
        });
    for (const Tensor* y : made) c.compare(*y, kBf16);
  });
  same_bits(*made[0], outputs, [&](int32_t first, int32_t rows) {
    c.run<frt_norm_gate_up_args>(FRT_OP_NORM_GATE_UP, KernelTypes(FRT_DTYPE_BF16), packing.format,
                                 [&](frt_norm_gate_up_args& args, const At& at) {
                                   rows_of(args, at, first, rows);
                                   args.gate_weight = Case::at(weights[0], at);
                                   args.up_weight = Case::at(weights[1], at);
                                   args.gate = at(working, int64_t{first} * outputs);
                                   args.h = at(*made[0], int64_t{first} * outputs);
                                 });
    c.compare(*made[0], kBf16);
  });
}

// ---- refusals -----------------------------------------------------------------------------------

void linear_refusals(Case& c) {
  Tensor& x = c.normal("x", FRT_DTYPE_F32, 64);
  Tensor& y = c.output("y", FRT_DTYPE_F32, 64);
  const Weight weight = c.weight("weight", all_packings().front(), 16, 16);
  const auto fill = [&](frt_linear_args& args, const At& at) {
    args.x_dtype = args.y_dtype = FRT_DTYPE_F32;
    args.rows = 2;
    args.x = at(x);
    args.x_stride = 16;
    args.weight = Case::at(weight, at);
    args.y = at(y);
    args.y_stride = 16;
  };
  const auto refuse = [&](auto spoil) {
    refused<frt_linear_args>(c, FRT_OP_LINEAR, KernelTypes(FRT_DTYPE_F32), kWeightBf16, fill,
                             spoil);
  };
  using Args = frt_linear_args;
  refuse([](Args& args) { args.x_dtype = FRT_DTYPE_F16; });
  refuse([](Args& args) { args.y_dtype = FRT_DTYPE_I32; });
  refuse([](Args& args) { args.rows = -1; });
  refuse([](Args& args) { args.accumulate = 2; });
  refuse([](Args& args) { args.x = nullptr; });
  refuse([](Args& args) { args.y = nullptr; });
  refuse([](Args& args) { args.x_stride = 15; });
  refuse([](Args& args) { args.y_stride = 15; });
  refuse([](Args& args) { args.weight.format.data = FRT_DTYPE_COUNT; });
  refuse([](Args& args) { args.weight.rows = 0; });
  refuse([](Args& args) { args.weight.cols = -3; });
  refuse([](Args& args) { args.weight.data = nullptr; });
  refuse([](Args& args) {
    args.weight.data = static_cast<const std::byte*>(args.weight.data) + 2;
    args.weight.rows = 15;
  });
  refuse([](Args& args) { args.weight.format.layout = 1; });
  refuse([](Args& args) { args.weight.format.flags = 1u << 31; });
  refuse([](Args& args) { args.weight.format = FRT_WEIGHT_FP8_CHANNEL(FRT_DTYPE_F32); });
  refuse([](Args& args) {
    args.weight.format = FRT_WEIGHT_FP8_CHANNEL(FRT_DTYPE_I32);
    args.weight.scale = args.x;
  });
  refuse([](Args& args) {
    args.weight.format = FRT_WEIGHT_FP8_CHANNEL(FRT_DTYPE_F32);
    args.weight.scale = static_cast<const std::byte*>(args.x) + 2;
  });
  refuse([](Args& args) {
    args.weight.format = kWeightNvfp4;
    args.weight.format.scale = FRT_DTYPE_F32;
    args.weight.scale = args.x;
  });
  refuse([](Args& args) {
    args.weight.format = kWeightNvfp4;
    args.weight.scale = args.x;
    args.weight.cols = 8;
  });
}

void norm_linears_refusals(Case& c) {
  Tensor& x = c.normal("x", FRT_DTYPE_F32, 64);
  Tensor& y = c.output("y", FRT_DTYPE_F32, 64);
  const Weight weight = c.weight("weight", all_packings().front(), 16, 16);
  std::array<frt_linear_part, 2> parts{};
  const auto fill = [&](frt_norm_linears_args& args, const At& at) {
    for (frt_linear_part& part : parts) part = {Case::at(weight, at), at(y), 16};
    args.dtype = FRT_DTYPE_F32;
    args.rows = 2;
    args.part_count = 2;
    args.x = at(x);
    args.parts = parts.data();
  };
  const auto refuse = [&](auto spoil) {
    refused<frt_norm_linears_args>(c, FRT_OP_NORM_LINEARS, KernelTypes(FRT_DTYPE_F32), kWeightBf16,
                                   fill, spoil);
  };
  using Args = frt_norm_linears_args;
  refuse([](Args& args) { args.dtype = FRT_DTYPE_F16; });
  refuse([](Args& args) { args.rows = -1; });
  refuse([](Args& args) { args.part_count = 0; });
  refuse([](Args& args) { args.part_count = FRT_LINEAR_GROUP_MAX + 1; });
  refuse([](Args& args) { args.parts = nullptr; });
  refuse([](Args& args) { args.x = nullptr; });
  refuse([](Args& args) { args.delta = args.x; });
  refuse([](Args& args) {
    args.residual = args.x;  // without a norm weight
    args.residual_dtype = FRT_DTYPE_F32;
  });
  refuse([&](Args&) { parts[1].weight.cols = 8; });
  refuse([&](Args&) { parts[1].y = nullptr; });
  refuse([&](Args&) { parts[1].y_stride = 15; });
  refuse([&](Args&) { parts[0].weight.format.layout = 7; });
}

void norm_gate_up_refusals(Case& c) {
  Tensor& x = c.normal("x", FRT_DTYPE_F32, 64);
  Tensor& gate = c.output("gate", FRT_DTYPE_F32, 64);
  Tensor& h = c.output("h", FRT_DTYPE_F32, 64);
  const Weight weight = c.weight("weight", all_packings().front(), 16, 16);
  const auto fill = [&](frt_norm_gate_up_args& args, const At& at) {
    args.dtype = FRT_DTYPE_F32;
    args.rows = 2;
    args.x = at(x);
    args.gate_weight = args.up_weight = Case::at(weight, at);
    args.gate = at(gate);
    args.h = at(h);
  };
  const auto refuse = [&](auto spoil) {
    refused<frt_norm_gate_up_args>(c, FRT_OP_NORM_GATE_UP, KernelTypes(FRT_DTYPE_F32), kWeightBf16,
                                   fill, spoil);
  };
  using Args = frt_norm_gate_up_args;
  refuse([](Args& args) { args.dtype = FRT_DTYPE_I32; });
  refuse([](Args& args) { args.rows = -1; });
  refuse([](Args& args) { args.x = nullptr; });
  refuse([](Args& args) { args.gate = nullptr; });
  refuse([](Args& args) { args.h = nullptr; });
  refuse([](Args& args) { args.delta = args.x; });
  refuse([](Args& args) { args.up_weight.rows = 8; });
  refuse([](Args& args) { args.up_weight.cols = 8; });
  refuse([](Args& args) { args.gate_weight.data = nullptr; });
}

// ---- lists --------------------------------------------------------------------------------------

void add_linears(Suite& suite) {
  const auto add = [&](const Packing& packing, const Types& types, const Shape& shape) {
    suite.add(FRT_OP_LINEAR + text(packing, types, shape),
              [=](Case& c) { linear(c, packing, types, shape); });
  };
  for (const Packing& packing : all_packings()) {
    for (const int32_t rows : {1, 2, 3, 4, 5, 8, 9, 16, 17, 33}) {
      add(packing, kTypes[0], {rows, 100, 1280, 0, 3});
      add(packing, kTypes[0], {rows, 3, 1000, 8});
      add(packing, kTypes[0], {rows, 19, 100, 1, 1});
    }
    for (const int32_t rows : {1, 4, 16}) {
      add(packing, kTypes[0], {rows, 257, 5120});
      add(packing, kTypes[0], {rows, 1, 48});
      add(packing, kTypes[0], {rows, 33, 512, 0, 0, true});
      for (std::size_t i = 1; i < std::size(kTypes); ++i) {
        add(packing, kTypes[i], {rows, 50, 640});
        add(packing, kTypes[i], {rows, 37, 77, 3, 5});
        add(packing, kTypes[i], {rows, 18, 256, 0, 2, true});
      }
    }
    add(packing, kTypes[0], {1, 40, 17408});
    add(packing, kTypes[0], {16, 40, 17408});  // x does not fit into shared memory at once
    for (const int32_t row_count : {0, 1, 5, 99}) {
      add(packing, kTypes[0], {6, 70, 384, 0, 0, false, row_count});
    }
    for (const Types& types : {kTypes[0], kTypes[1], kTypes[2]}) {
      for (const auto& [outputs, inputs] :
           {std::pair{48, 2048}, {130, 4096}, {7, 80}, {2500, 1104}}) {
        if (outputs > 130 && packing.format != kWeightBf16) continue;
        suite.add(std::string(FRT_OP_LINEAR) + " alike " + packing.name + " " +
                      dtype_name(types.x) + " to " + dtype_name(types.y) + " " +
                      std::to_string(outputs) + "x" + std::to_string(inputs),
                  [=, outputs = outputs, inputs = inputs](Case& c) {
                    alike(c, packing, types, outputs, inputs);
                  });
      }
    }
  }
  // So many outputs that every processor has some, and more rows than half of the tensor cores'
  // columns.
  for (const Types& types : {kTypes[0], kTypes[1]}) {
    const Packing& bf16 = all_packings().front();
    add(bf16, types, {9, 2113, 264, 0, 3});
    add(bf16, types, {13, 2200, 1096, 8, 0, true});
    add(bf16, types, {16, 2500, 640, 0, 0, false, 11});
    add(bf16, types, {16, 8471, 136});
  }
  // So many tiles that two processors of a large device share five: one more than they have groups
  // of four warps.
  for (const auto& [index, inputs] :
       {std::pair{2, 1536}, {6, 1552}, {7, 2064}, {9, 1280}, {9, 2816}}) {
    const Packing& packing = all_packings()[static_cast<std::size_t>(index)];
    suite.add(std::string(FRT_OP_LINEAR) + " alike " + packing.name + " bf16 to f32 4500x" +
                  std::to_string(inputs),
              [=, inputs = inputs](Case& c) { alike(c, packing, kTypes[1], 4500, inputs); });
    add(packing, kTypes[0], {7, 4411, inputs, 16, 2, true, 5});
  }
  // So many that the last of them are handed out to the processors that get there first.
  add(all_packings()[0], kTypes[1], {3, 28517, 1280, 0, 0, true});
  add(all_packings()[2], kTypes[0], {1, 28517, 2560});
  add(all_packings()[2], kTypes[0], {12, 28517, 2560, 0, 3, false, 11});
  // Large and small values of x: nothing of it may be lost in a narrower type.
  for (const Packing& packing : all_packings()) {
    for (const auto& [size, scale] :
         {std::pair{"1e-30", 1e-30f}, {"1e-6", 1e-6f}, {"1e5", 1e5f}, {"1e30", 1e30f}}) {
      suite.add(std::string(FRT_OP_LINEAR) + " " + packing.name + " x of the size " + size,
                [=, scale = scale](Case& c) {
                  Tensor& x = c.normal("x", FRT_DTYPE_BF16, 3 * 512, scale);
                  Tensor& y = c.output("y", FRT_DTYPE_F32, 3 * 40);
                  const Weight weight = c.weight("weight", packing, 40, 512);
                  c.run<frt_linear_args>(FRT_OP_LINEAR, types_of(FRT_DTYPE_BF16, FRT_DTYPE_F32),
                                         packing.format, [&](frt_linear_args& args, const At& at) {
                                           args.x_dtype = FRT_DTYPE_BF16;
                                           args.y_dtype = FRT_DTYPE_F32;
                                           args.rows = 3;
                                           args.x = at(x);
                                           args.x_stride = 512;
                                           args.weight = Case::at(weight, at);
                                           args.y = at(y);
                                           args.y_stride = 40;
                                         });
                  c.compare(y, kBf16);
                  c.require_product(x, weight, y, {3, 3, 512, 40});
                });
    }
  }
  suite.add(std::string(FRT_OP_LINEAR) + " refuses", linear_refusals);
}

void add_groups(Suite& suite) {
  const std::vector<Packing>& all = all_packings();
  const Norm norms[] = {{},
                        {FRT_DTYPE_F32, false},
                        {FRT_DTYPE_F32, true},
                        {FRT_DTYPE_BF16, false},
                        {FRT_DTYPE_BF16, true}};
  const auto add = [&](const std::string& name, frt_dtype dtype, const Norm& norm, int32_t rows,
                       int32_t inputs, const std::vector<GroupPart>& parts, int32_t count = -1) {
    suite.add(std::string(FRT_OP_NORM_LINEARS) + " " + name + " " + dtype_name(dtype) + text(norm) +
                  " " + std::to_string(rows) + " rows" +
                  (count < 0 ? "" : " row_count " + std::to_string(count)),
              [=](Case& c) { norm_linears(c, dtype, norm, rows, inputs, parts, count); });
  };
  const std::vector<GroupPart> mixed = {{all[2], 130, 6}, {all[0], 48}, {all[9], 64},
                                        {all[6], 20, 1},  {all[1], 5},  {all[8], 33}};
  const std::vector<GroupPart> odd = {{all[0], 30}, {all[5], 17, 2}, {all[7], 9}};
  const std::vector<GroupPart> eight(FRT_LINEAR_GROUP_MAX, {all[0], 24});
  for (const frt_dtype dtype : {FRT_DTYPE_BF16, FRT_DTYPE_F32}) {
    for (const Norm& norm : norms) {
      for (const int32_t rows : {1, 4, 16, 20}) {
        add("mixed", dtype, norm, rows, 768, mixed);
        add("odd", dtype, norm, rows, 203, odd);
      }
      add("eight", dtype, norm, 2, 256, eight);
      add("mixed", dtype, norm, 5, 256, mixed, 2);
    }
  }
  for (const Packing& packing : all) {
    add("q k v " + packing.name, FRT_DTYPE_BF16, norms[2], 3, 5120,
        {{packing, 96}, {packing, 16}, {packing, 16}});
  }
  // So many tiles that a packed one is fetched while one of another kind is multiplied.
  const std::vector<GroupPart> behind = {{all[0], 4400}, {all[9], 64}, {all[6], 40}, {all[9], 64}};
  add("packed behind others", FRT_DTYPE_BF16, norms[0], 1, 3072, behind);
  // Some tiles for each processor of a large device, by themselves and with other kinds.
  const std::vector<GroupPart> several[] = {{{all[2], 4096}, {all[2], 512}, {all[0], 40}},
                                            {{all[3], 3000}, {all[6], 2100}, {all[8], 1000}},
                                            {{all[0], 2500}, {all[7], 600}},
                                            {{all[9], 2100}, {all[9], 1020}, {all[0], 48}}};
  for (const auto& parts : several) {
    for (const Norm& norm : {norms[1], norms[2], norms[4]}) {
      suite.add(
          std::string(FRT_OP_NORM_LINEARS) + " alike " + parts.front().packing.name + text(norm),
          [=](Case& c) { norm_alike(c, norm, 512, parts); });
    }
  }
  for (const Norm& norm : {norms[1], norms[2], norms[4]}) {
    add("several", FRT_DTYPE_BF16, norm, 1, 1280, several[0]);
    add("several", FRT_DTYPE_BF16, norm, 1, 512, several[1]);
    add("several", FRT_DTYPE_BF16, norm, 1, 256, several[2], 0);
    add("several", FRT_DTYPE_BF16, norm, 2, 768, several[3]);
  }
  suite.add(std::string(FRT_OP_NORM_LINEARS) + " refuses", norm_linears_refusals);

  const auto add_gate = [&](frt_dtype dtype, const Norm& norm, int32_t rows, int32_t inputs,
                            int32_t width, const Packing& gate, const Packing& up) {
    suite.add(std::string(FRT_OP_NORM_GATE_UP) + " " + gate.name + ", " + up.name + " " +
                  dtype_name(dtype) + text(norm) + " " + std::to_string(rows) + "x" +
                  std::to_string(width) + "x" + std::to_string(inputs),
              [=](Case& c) { norm_gate_up(c, dtype, norm, rows, inputs, width, gate, up); });
  };
  for (const Packing& packing : all) {
    for (const frt_dtype dtype : {FRT_DTYPE_BF16, FRT_DTYPE_F32}) {
      for (const int32_t rows : {1, 3, 9, 16, 17}) {
        add_gate(dtype, norms[2], rows, 384, 100, packing, packing);
      }
      add_gate(dtype, norms[0], 4, 80, 13, packing, packing);
    }
    add_gate(FRT_DTYPE_BF16, norms[4], 2, 5120, 272, packing, packing);
  }
  for (const Packing& packing : all) {
    for (const auto& [outputs, inputs] : {std::pair{96, 1280}, {1000, 512}, {2200, 1040}}) {
      if (outputs > 96 && packing.format != kWeightBf16) continue;
      suite.add(std::string(FRT_OP_NORM_LINEARS) + ", " + FRT_OP_NORM_GATE_UP + " alike " +
                    packing.name + " " + std::to_string(outputs) + "x" + std::to_string(inputs),
                [=, outputs = outputs, inputs = inputs](Case& c) {
                  groups_alike(c, packing, outputs, inputs);
                });
    }
  }
  // Handed out, as above.
  add_gate(FRT_DTYPE_BF16, norms[0], 2, 1280, 14259, all[0], all[0]);
  add_gate(FRT_DTYPE_BF16, norms[0], 1, 2560, 14259, all[2], all[2]);
  add_gate(FRT_DTYPE_BF16, norms[2], 4, 256, 48, all[0], all[9]);
  add_gate(FRT_DTYPE_BF16, norms[1], 1, 256, 48, all[2], all[3]);
  suite.add(std::string(FRT_OP_NORM_GATE_UP) + " refuses", norm_gate_up_refusals);
}

}  // namespace

void add_linear_cases(Suite& suite) {
  add_linears(suite);
  add_groups(suite);
}

}  // namespace frt::conformance
