// SPDX-License-Identifier: Apache-2.0
// Cases of frt/ops/norm.h. The sum residual + delta is one addition and one rounding, so residuals
// are compared bit for bit.
#include <frt/ops/norm.h>

#include <algorithm>

#include "check.hpp"
#include "refusal.hpp"

namespace frt::conformance {
namespace {

constexpr frt_dtype kTypes[] = {FRT_DTYPE_F32, FRT_DTYPE_BF16};

struct Shape {
  int32_t rows, width;
  int64_t gap = 0;         // elements between rows
  int32_t row_count = -1;  // none
};

std::string text(const Shape& shape) {
  return std::to_string(shape.rows) + "x" + std::to_string(shape.width) +
         (shape.gap ? " gap " + std::to_string(shape.gap) : "") +
         (shape.row_count >= 0 ? " row count " + std::to_string(shape.row_count) : "");
}

Untouched untouched(const Shape& shape) {
  return shape.row_count < 0 ? Untouched::kLeave : Untouched::kIgnore;
}

int64_t active(const Shape& shape) {
  return shape.row_count < 0 ? shape.rows : std::min(shape.rows, shape.row_count);
}

void rms_norm(Case& c, frt_dtype x_dtype, frt_dtype y_dtype, const Shape& shape, bool in_place,
              float deviation) {
  const int64_t x_stride = shape.width + shape.gap;
  const int64_t y_stride = in_place ? x_stride : shape.width + 2 * shape.gap;
  Tensor& x = c.normal("x", x_dtype, shape.rows * x_stride, deviation);
  Tensor& weight = c.normal("weight", FRT_DTYPE_F32, shape.width, 0.3f, 1.0f);
  Tensor& y = in_place ? x : c.output("y", y_dtype, shape.rows * y_stride);
  Tensor& count = c.integers("row_count", {shape.row_count});
  c.run<frt_rms_norm_args>(FRT_OP_RMS_NORM, types_of(x_dtype, y_dtype), {},
                           [&](frt_rms_norm_args& args, const At& at) {
                             args.x_dtype = x_dtype;
                             args.y_dtype = y_dtype;
                             args.rows = shape.rows;
                             args.width = shape.width;
                             args.epsilon = 1e-6f;
                             if (shape.row_count >= 0)
                               args.row_count = at.operator()<int32_t>(count);
                             args.x = at(x);
                             args.x_stride = x_stride;
                             args.weight = at.operator()<float>(weight);
                             args.y = at(y);
                             args.y_stride = y_stride;
                           });
  if (in_place) {
    c.compare_range(y, 0, active(shape) * y_stride, tolerance_of(y_dtype));
  } else {
    c.compare(y, tolerance_of(y_dtype), untouched(shape));
  }
}

struct Parts {
  bool delta, y;
};

void add_rms_norm(Case& c, frt_dtype residual_dtype, frt_dtype dtype, const Shape& shape,
                  const Parts& parts) {
  const int64_t values = static_cast<int64_t>(shape.rows) * shape.width;
  Tensor& residual = c.normal("residual", residual_dtype, values, 3.0f);
  Tensor& delta = c.normal("delta", dtype, values);
  Tensor& weight = c.normal("weight", FRT_DTYPE_F32, shape.width, 0.3f, 1.0f);
  Tensor& y = c.output("y", dtype, values);
  Tensor& count = c.integers("row_count", {shape.row_count});
  c.run<frt_add_rms_norm_args>(FRT_OP_ADD_RMS_NORM, KernelTypes(dtype), {},
                               [&](frt_add_rms_norm_args& args, const At& at) {
                                 args.residual_dtype = residual_dtype;
                                 args.dtype = dtype;
                                 args.rows = shape.rows;
                                 args.width = shape.width;
                                 args.epsilon = 1e-6f;
                                 if (shape.row_count >= 0)
                                   args.row_count = at.operator()<int32_t>(count);
                                 args.residual = at(residual);
                                 if (parts.delta) args.delta = at(delta);
                                 if (parts.y) args.weight = at.operator()<float>(weight);
                                 if (parts.y) args.y = at(y);
                               });
  c.compare_range(residual, 0, active(shape) * shape.width, kExact);
  c.compare(y, tolerance_of(dtype), untouched(shape));
}

void gated_rms_norm(Case& c, frt_dtype x_dtype, frt_dtype dtype, const Shape& shape, int32_t heads,
                    bool in_place) {
  const int64_t values = static_cast<int64_t>(shape.rows) * heads * shape.width;
  Tensor& x = c.normal("x", x_dtype, values, 0.2f);
  Tensor& z = c.normal("z", dtype, values, 2.0f);
  Tensor& weight = c.normal("weight", FRT_DTYPE_F32, shape.width, 0.3f, 1.0f);
  Tensor& y = in_place ? x : c.output("y", dtype, values);
  Tensor& count = c.integers("row_count", {shape.row_count});
  c.run<frt_gated_rms_norm_args>(FRT_OP_GATED_RMS_NORM, KernelTypes(dtype), {},
                                 [&](frt_gated_rms_norm_args& args, const At& at) {
                                   args.x_dtype = x_dtype;
                                   args.dtype = dtype;
                                   args.rows = shape.rows;
                                   args.heads = heads;
                                   args.width = shape.width;
                                   args.epsilon = 1e-6f;
                                   if (shape.row_count >= 0)
                                     args.row_count = at.operator()<int32_t>(count);
                                   args.x = at(x);
                                   args.z = at(z);
                                   args.weight = at.operator()<float>(weight);
                                   args.y = at(y);
                                 });
  if (in_place) {
    c.compare_range(y, 0, active(shape) * heads * shape.width, tolerance_of(dtype));
  } else {
    c.compare(y, tolerance_of(dtype), untouched(shape));
  }
}

void rms_refusals(Case& c) {
  Tensor& x = c.normal("x", FRT_DTYPE_F32, 64);
  const auto refuse = [&](auto spoil) {
    refused<frt_rms_norm_args>(
        c, FRT_OP_RMS_NORM, KernelTypes(FRT_DTYPE_F32), {},
        [&](frt_rms_norm_args& args, const At& at) {
          args.x_dtype = args.y_dtype = FRT_DTYPE_F32;
          args.rows = 2;
          args.width = 16;
          args.x = args.y = at(x);
          args.weight = at.operator()<float>(x, 32);
          args.x_stride = args.y_stride = 16;
        },
        spoil);
  };
  refuse([](frt_rms_norm_args& args) { args.x_dtype = FRT_DTYPE_F8_E4M3; });
  refuse([](frt_rms_norm_args& args) { args.y_dtype = FRT_DTYPE_F16; });
  refuse([](frt_rms_norm_args& args) { args.rows = 0; });
  refuse([](frt_rms_norm_args& args) { args.width = -1; });
  refuse([](frt_rms_norm_args& args) { args.x = nullptr; });
  refuse([](frt_rms_norm_args& args) { args.weight = nullptr; });
  refuse([](frt_rms_norm_args& args) { args.y = nullptr; });
  refuse([](frt_rms_norm_args& args) { args.x_stride = 15; });
  refuse([](frt_rms_norm_args& args) { args.y_stride = 0; });
}

void add_rms_refusals(Case& c) {
  Tensor& x = c.normal("x", FRT_DTYPE_F32, 64);
  const auto refuse = [&](auto spoil) {
    refused<frt_add_rms_norm_args>(
        c, FRT_OP_ADD_RMS_NORM, KernelTypes(FRT_DTYPE_F32), {},
        [&](frt_add_rms_norm_args& args, const At& at) {
          args.residual_dtype = args.dtype = FRT_DTYPE_F32;
          args.rows = 1;
          args.width = 16;
          args.residual = at(x);
          args.delta = at(x, 16);
          args.weight = at.operator()<float>(x, 32);
          args.y = at(x, 48);
        },
        spoil);
  };
  refuse([](frt_add_rms_norm_args& args) { args.residual_dtype = FRT_DTYPE_F16; });
  refuse([](frt_add_rms_norm_args& args) { args.dtype = FRT_DTYPE_NONE; });
  refuse([](frt_add_rms_norm_args& args) { args.rows = 0; });
  refuse([](frt_add_rms_norm_args& args) { args.width = 0; });
  refuse([](frt_add_rms_norm_args& args) { args.residual = nullptr; });
  refuse([](frt_add_rms_norm_args& args) { args.weight = nullptr; });
}

void gated_rms_refusals(Case& c) {
  Tensor& x = c.normal("x", FRT_DTYPE_F32, 64);
  const auto refuse = [&](auto spoil) {
    refused<frt_gated_rms_norm_args>(
        c, FRT_OP_GATED_RMS_NORM, KernelTypes(FRT_DTYPE_F32), {},
        [&](frt_gated_rms_norm_args& args, const At& at) {
          args.x_dtype = args.dtype = FRT_DTYPE_F32;
          args.rows = 1;
          args.heads = 2;
          args.width = 8;
          args.x = at(x);
          args.z = at(x, 16);
          args.weight = at.operator()<float>(x, 32);
          args.y = at(x, 48);
        },
        spoil);
  };
  refuse([](frt_gated_rms_norm_args& args) { args.x_dtype = FRT_DTYPE_U8; });
  refuse([](frt_gated_rms_norm_args& args) { args.dtype = FRT_DTYPE_F16; });
  refuse([](frt_gated_rms_norm_args& args) { args.rows = 0; });
  refuse([](frt_gated_rms_norm_args& args) { args.heads = 0; });
  refuse([](frt_gated_rms_norm_args& args) { args.width = 0; });
  refuse([](frt_gated_rms_norm_args& args) { args.x = nullptr; });
  refuse([](frt_gated_rms_norm_args& args) { args.z = nullptr; });
  refuse([](frt_gated_rms_norm_args& args) { args.weight = nullptr; });
  refuse([](frt_gated_rms_norm_args& args) { args.y = nullptr; });
}

const Shape kShapes[] = {{1, 1},         {2, 3},       {7, 33},        {3, 64},      {5, 128},
                         {4, 132},       {9, 256},     {3, 264},       {1, 2048},    {1, 5120},
                         {33, 5120},     {2, 8192},    {2, 8200},      {1, 16384},   {2, 17000},
                         {1, 40'001},    {600, 96},    {6, 5120, 8},   {6, 100, 4},  {6, 1000, 1},
                         {9, 512, 0, 4}, {5, 7, 0, 2}, {70, 40, 0, 0}, {3, 24, 0, 8}};

}  // namespace

void add_norm_cases(Suite& suite) {
  for (const frt_dtype x : kTypes) {
    for (const frt_dtype y : kTypes) {
      const std::string types = std::string(" ") + dtype_name(x) + " " + dtype_name(y) + " ";
      for (const Shape& shape : kShapes) {
        suite.add(FRT_OP_RMS_NORM + types + text(shape),
                  [=](Case& c) { rms_norm(c, x, y, shape, false, 1.0f); });
        if (shape.gap) continue;
        for (const Parts& parts : {Parts{true, true}, {false, true}, {true, false}}) {
          suite.add(FRT_OP_ADD_RMS_NORM + types + text(shape) + (parts.delta ? "" : " no delta") +
                        (parts.y ? "" : " no y"),
                    [=](Case& c) { add_rms_norm(c, x, y, shape, parts); });
        }
      }
      for (const float deviation : {1e-4f, 1e4f}) {
        suite.add(FRT_OP_RMS_NORM + types + "deviation " + std::to_string(deviation), [=](Case& c) {
          rms_norm(c, x, y, {3, 640}, false, deviation);
        });
      }
      suite.add(FRT_OP_RMS_NORM + types + "zeros", [=](Case& c) {
        rms_norm(c, x, y, {3, 640}, false, 0.0f);
      });
      for (const auto& [shape, heads] : {std::pair{Shape{1, 128}, 48},
                                         {Shape{19, 128}, 3},
                                         {Shape{3, 64}, 5},
                                         {Shape{2, 256}, 7},
                                         {Shape{3, 127}, 2},
                                         {Shape{2, 260}, 3},
                                         {Shape{2, 1}, 1},
                                         {Shape{9, 128, 0, 4}, 6},
                                         {Shape{9, 31, 0, 4}, 6},
                                         {Shape{4, 128, 0, 0}, 2}}) {
        suite.add(FRT_OP_GATED_RMS_NORM + types + std::to_string(heads) + " heads " + text(shape),
                  [=, shape = shape, heads = heads](Case& c) {
                    gated_rms_norm(c, x, y, shape, heads, false);
                  });
      }
    }
    const std::string type = std::string(" ") + dtype_name(x) + " in place ";
    for (const Shape& shape : {Shape{5, 128}, {4, 33}, {3, 5120}, {2, 640, 8}, {4, 512, 0, 2}}) {
      suite.add(FRT_OP_RMS_NORM + type + text(shape),
                [=](Case& c) { rms_norm(c, x, x, shape, true, 1.0f); });
    }
    suite.add(FRT_OP_GATED_RMS_NORM + type, [=](Case& c) {
      gated_rms_norm(c, x, x, {5, 128}, 4, true);
    });
  }
  suite.add(FRT_OP_RMS_NORM " refusals", rms_refusals);
  suite.add(FRT_OP_ADD_RMS_NORM " refusals", add_rms_refusals);
  suite.add(FRT_OP_GATED_RMS_NORM " refusals", gated_rms_refusals);
}

}  // namespace frt::conformance
