// SPDX-License-Identifier: Apache-2.0
// Cases of frt/ops/patch_embed.h and frt/ops/flow.h.
#include <frt/ops/flow.h>
#include <frt/ops/patch_embed.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "check.hpp"
#include "refusal.hpp"

namespace frt::conformance {
namespace {

constexpr frt_dtype kTypes[] = {FRT_DTYPE_F32, FRT_DTYPE_BF16};

Packing plain(frt_dtype dtype) {
  return dtype == FRT_DTYPE_F32 ? Packing{"f32", kWeightF32} : Packing{"bf16", kWeightBf16};
}

// ---- images and text -------------------------------------------------------------------------

void pack_views(Case& c, const std::vector<int32_t>& mask, int32_t slots,
                const std::vector<int32_t>& text) {
  const auto views = static_cast<int32_t>(mask.size());
  const auto branches = static_cast<int32_t>(text.size());
  Tensor& mask_tensor = c.integers("mask", mask);
  Tensor& text_tensor = c.integers("text length", text);
  Tensor& view = c.output("view", FRT_DTYPE_I32, slots);
  Tensor& view_rows = c.output("view rows", FRT_DTYPE_I32, slots);
  Tensor& image_rows = c.output("image rows", FRT_DTYPE_I32, 1);
  Tensor& length = c.output("length", FRT_DTYPE_I32, branches);
  c.run<frt_pack_views_args>(FRT_OP_PACK_VIEWS, KernelTypes(), {},
                             [&](frt_pack_views_args& args, const At& at) {
                               args.views = views;
                               args.slots = slots;
                               args.rows_per_view = 16;
                               args.branches = branches;
                               args.text_rows = 40;
                               args.mask = at.operator()<int32_t>(mask_tensor);
                               args.text_length = at.operator()<int32_t>(text_tensor);
                               args.view = at.operator()<int32_t>(view);
                               args.view_rows = at.operator()<int32_t>(view_rows);
                               args.image_rows = at.operator()<int32_t>(image_rows);
                               args.length = at.operator()<int32_t>(length);
                             });
  for (const Tensor* tensor : {&view, &view_rows, &image_rows, &length}) c.compare(*tensor, kExact);

  std::vector<int32_t> valid;
  for (int32_t v = 0; v < views; ++v) {
    if (mask[static_cast<std::size_t>(v)] != 0 && static_cast<int32_t>(valid.size()) < slots) {
      valid.push_back(v);
    }
  }
  Expected indices(FRT_DTYPE_I32, slots), rows(FRT_DTYPE_I32, slots);
  Expected all(FRT_DTYPE_I32, 1), lengths(FRT_DTYPE_I32, branches);
  const auto count = static_cast<int32_t>(valid.size());
  for (int32_t i = 0; i < slots; ++i) {
    indices.value(i, i < count ? valid[static_cast<std::size_t>(i)] : -1);
    rows.value(i, i < count ? 16 : 0);
  }
  all.value(0, 16 * count);
  for (int32_t w = 0; w < branches; ++w) {
    lengths.value(w, 16 * count + std::clamp(text[static_cast<std::size_t>(w)], 0, 40));
  }
  c.require(view, indices);
  c.require(view_rows, rows);
  c.require(image_rows, all);
  c.require(length, lengths);
}

struct Image {
  frt_dtype pixel;
  int32_t views, side, patch;
  std::vector<int32_t> view;  // per slot; -1: unused, last
};

struct ImageTensors {
  Image image;
  int32_t slots, cells, used;
  int64_t columns;
  Tensor *pixels, *view;

  ImageTensors(Case& c, const Image& shape)
      : image(shape),
        slots(static_cast<int32_t>(shape.view.size())),
        cells((shape.side / shape.patch) * (shape.side / shape.patch)),
        used(0),
        columns((static_cast<int64_t>(3) * shape.patch * shape.patch + 15) / 16 * 16),
        view(&c.integers("view", shape.view)) {
    for (const int32_t v : shape.view) used += v >= 0 ? 1 : 0;
    const int64_t count = static_cast<int64_t>(shape.views) * shape.side * shape.side * 3;
    if (shape.pixel == FRT_DTYPE_U8) {
      std::vector<uint8_t> bytes(static_cast<std::size_t>(count));
      for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(c.random()());
      pixels = &c.raw("pixels", FRT_DTYPE_U8, bytes.data(), count);
    } else {
      pixels = &c.uniform("pixels", FRT_DTYPE_F32, count, -1, 1);
    }
  }
  void fill(frt_patches_args& args, const At& at, frt_dtype dtype, const Tensor& x) const {
    args.pixel_dtype = image.pixel;
    args.dtype = dtype;
    args.slots = slots;
    args.views = image.views;
    args.height = args.width = image.side;
    args.channels = 3;
    args.patch = image.patch;
    args.scale = image.pixel == FRT_DTYPE_U8 ? 2.0f / 255.0f : 1.0f;
    args.offset = image.pixel == FRT_DTYPE_U8 ? -1.0f : 0.0f;
    args.view = at.operator()<int32_t>(*view);
    args.pixels = at(*pixels);
    args.x = at(x);
    args.x_stride = columns;
  }
};

// The rows of x by the header, (used * cells, columns), before their rounding.
std::vector<double> patch_rows(const ImageTensors& tensors) {
  const Image& image = tensors.image;
  const std::vector<double> pixels = Case::values(*tensors.pixels);
  const int64_t side = image.side, patch = image.patch, grid = side / patch;
  const bool bytes = image.pixel == FRT_DTYPE_U8;
  std::vector<double> rows;
  for (int64_t row = 0; row < int64_t{tensors.used} * tensors.cells; ++row) {
    const int64_t slot = row / tensors.cells, gy = row % tensors.cells / grid, gx = row % grid;
    const int64_t view = image.view[static_cast<std::size_t>(slot)];
    for (int64_t column = 0; column < tensors.columns; ++column) {
      const int64_t channel = column / (patch * patch);
      const int64_t ky = column / patch % patch, kx = column % patch;
      if (channel >= 3) {
        rows.push_back(0);
        continue;
      }
      const int64_t at = ((view * side + gy * patch + ky) * side + gx * patch + kx) * 3 + channel;
      const double pixel = pixels[static_cast<std::size_t>(at)];
      rows.push_back(bytes ? static_cast<double>(2.0f / 255.0f) * pixel - 1 : pixel);
    }
  }
  return rows;
}

void patches(Case& c, frt_dtype dtype, const Image& image) {
  const ImageTensors tensors(c, image);
  Tensor& x = c.output("x", dtype, tensors.slots * tensors.cells * tensors.columns);
  c.run<frt_patches_args>(
      FRT_OP_PATCHES, types_of(FRT_DTYPE_NONE, dtype), {},
      [&](frt_patches_args& args, const At& at) { tensors.fill(args, at, dtype, x); });
  c.compare_range(x, 0, tensors.used * tensors.cells * tensors.columns, tolerance_of(dtype));

  const std::vector<double> rows = patch_rows(tensors);
  Expected expected(dtype, x.count);
  expected.ignore(0, x.count);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    // Two roundings of values up to 2 in f32, then one.
    const double away = 0x1p-23;
    expected.value(static_cast<int64_t>(i), rows[i],
                   rows[i] == 0 ? 0 : away + half_step(dtype, std::fabs(rows[i]) + away));
  }
  c.require(x, expected);
}

void patch_embed(Case& c, frt_dtype dtype, const Image& image, int32_t width) {
  const ImageTensors tensors(c, image);
  const int32_t rows = tensors.slots * tensors.cells;
  Tensor& x = c.output("x", dtype, rows * tensors.columns);
  const Weight weight =
      c.weight("weight", plain(dtype), width, static_cast<int32_t>(tensors.columns));
  Tensor& addend = c.normal("addend", FRT_DTYPE_F32, static_cast<int64_t>(tensors.cells) * width);
  Tensor& count = c.integers("row count", {tensors.used * tensors.cells});
  Tensor& y = c.output("y", dtype, static_cast<int64_t>(rows) * width);
  c.run<frt_patch_embed_args>(FRT_OP_PATCH_EMBED, KernelTypes(dtype), plain(dtype).format,
                              [&](frt_patch_embed_args& args, const At& at) {
                                args.patches.struct_size = sizeof(args.patches);
                                tensors.fill(args.patches, at, dtype, x);
                                frt_dense_args& product = args.product;
                                product.struct_size = sizeof(product);
                                product.x_dtype = product.y_dtype = dtype;
                                product.rows = rows;
                                product.row_count = at.operator()<int32_t>(count);
                                product.x = at(x);
                                product.x_stride = tensors.columns;
                                product.weight = Case::at(weight, at);
                                product.addend = at.operator()<float>(addend);
                                product.addend_rows = tensors.cells;
                                product.y = at(y);
                                product.y_stride = width;
                              });
  c.compare_range(y, 0, static_cast<int64_t>(tensors.used) * tensors.cells * width,
                  tolerance_of(dtype));

  const std::vector<double> made = patch_rows(tensors), add = Case::values(addend);
  const std::vector<double> weights = Case::values(weight, 0, width);
  const auto columns = static_cast<std::size_t>(tensors.columns);
  Expected expected(dtype, y.count);
  expected.ignore(0, y.count);
  std::vector<double> row(columns);
  for (std::size_t r = 0; r < made.size() / columns; ++r) {
    // Pixels near a halfway point may round to either side of it, as f32 made them: to f32 that is
    // within the bound of a sum, to bf16 it is as if weights had been rounded.
    for (std::size_t i = 0; i < columns; ++i) row[i] = rounded(dtype, made[r * columns + i]);
    for (int32_t o = 0; o < width; ++o) {
      const auto w = std::span(weights).subspan(static_cast<std::size_t>(o) * columns, columns);
      const std::size_t cell = r % static_cast<std::size_t>(tensors.cells);
      const Product one = rounded_product(
          product(row, w, dtype == FRT_DTYPE_BF16),
          add[cell * static_cast<std::size_t>(width) + static_cast<std::size_t>(o)], dtype);
      expected.value(static_cast<int64_t>(r) * width + o, one.sum, one.bound);
    }
  }
  c.require(y, expected);
}

void embed_rows(Case& c, frt_dtype dtype, frt_dtype table_dtype, int32_t branches, int32_t width) {
  constexpr int32_t kVocabulary = 50, kTextRows = 12, kRows = 30, kStride = 16;
  std::vector<int32_t> ids(static_cast<std::size_t>(branches * kStride));
  for (int32_t& id : ids) id = static_cast<int32_t>(c.random()() % (kVocabulary + 2)) - 1;
  std::vector<int32_t> counts;
  for (int32_t w = 0; w < branches; ++w) counts.push_back(w % 2 ? 5 : kTextRows);
  Tensor& id_tensor = c.integers("ids", ids);
  Tensor& count = c.integers("count", counts);
  Tensor& first = c.integers("first", {17});
  const Weight table = c.weight("table", plain(table_dtype), kVocabulary, width);
  Tensor& y = c.output("y", dtype, static_cast<int64_t>(branches) * kRows * width);
  c.run<frt_embed_rows_args>(FRT_OP_EMBED_ROWS, types_of(FRT_DTYPE_NONE, dtype),
                             plain(table_dtype).format,
                             [&](frt_embed_rows_args& args, const At& at) {
                               args.y_dtype = dtype;
                               args.branches = branches;
                               args.text_rows = kTextRows;
                               args.y_rows = kRows;
                               args.scale = 45.25f;
                               args.first = at.operator()<int32_t>(first);
                               args.count = at.operator()<int32_t>(count);
                               args.ids = at.operator()<int32_t>(id_tensor);
                               args.ids_stride = kStride;
                               args.table = Case::at(table, at);
                               args.y = at(y);
                               args.y_stride = width;
                             });
  c.compare(y, tolerance_of(dtype));

  Expected expected(dtype, y.count);
  const std::vector<double> values = Case::values(table, 0, kVocabulary);
  for (int32_t w = 0; w < branches; ++w) {
    for (int32_t i = 0; i < std::min(counts[static_cast<std::size_t>(w)], kTextRows); ++i) {
      const int32_t row = 17 + i;
      if (row >= kRows) break;
      const int32_t id = ids[static_cast<std::size_t>(w * kStride + i)];
      for (int32_t k = 0; k < width; ++k) {
        const bool inside = id >= 0 && id < kVocabulary;
        const double value =
            inside ? 45.25 * values[static_cast<std::size_t>(id * width + k)] : 0.0;
        expected.code((int64_t{w} * kRows + row) * width + k, rounded(FRT_DTYPE_F32, value));
      }
    }
  }
  c.require(y, expected);
}

// ---- flow ------------------------------------------------------------------------------------

struct Flow {
  int32_t branches, samples, horizon, dim, width;
  bool continued = false;
  int32_t locked = 0;
  uint32_t clean = 0;
  float pull = 1.5f;
};
std::string text(const Flow& f) {
  return std::to_string(f.branches) + " branches " + std::to_string(f.samples) + "x" +
         std::to_string(f.horizon) + "x" + std::to_string(f.dim) + " width " +
         std::to_string(f.width) +
         (f.continued ? " continued, locked " + std::to_string(f.locked) : "");
}

struct FlowTensors {
  Flow flow;
  int64_t chunk, rows;  // values of x; rows of the network
  Tensor *previous, *weights, *cap, *locked, *clean, *beta;

  FlowTensors(Case& c, const Flow& shape)
      : flow(shape),
        chunk(static_cast<int64_t>(shape.samples) * shape.horizon * shape.dim),
        rows(static_cast<int64_t>(shape.branches) * shape.samples * shape.horizon),
        previous(
            &c.normal("previous", FRT_DTYPE_F32, static_cast<int64_t>(shape.horizon) * shape.dim)),
        weights(&c.uniform("weights", FRT_DTYPE_F32, shape.horizon, 0, 1)),
        cap(&c.uniform("cap", FRT_DTYPE_F32, 1, 2, 3)),
        locked(&c.integers("locked", {shape.locked})),
        clean(&c.integers("clean", {static_cast<int32_t>(shape.clean)})),
        beta(&c.uniform("beta", FRT_DTYPE_F32, std::max(1, shape.branches - 1), 1, 2.5f)) {}

  void fill(frt_flow_update_args& args, const At& at) const {
    args.branches = flow.branches;
    args.samples = flow.samples;
    args.horizon = flow.horizon;
    args.dim = flow.dim;
    args.time = 0.7f;
    args.step = -0.1f;
    args.pull = flow.pull;
    if (flow.branches > 1) args.beta = at.operator()<float>(*beta);
    if (!flow.continued) return;
    args.previous = at.operator()<float>(*previous);
    args.weights = at.operator()<float>(*weights);
    args.cap = at.operator()<float>(*cap);
    args.locked = at.operator()<int32_t>(*locked);
  }
};

void flow_start(Case& c, const Flow& flow) {
  const FlowTensors tensors(c, flow);
  Tensor& noise = c.normal("noise", FRT_DTYPE_F32, tensors.chunk);
  Tensor& x = c.output("x", FRT_DTYPE_F32, tensors.chunk);
  Tensor& clean_rows = c.output("clean rows", FRT_DTYPE_I32, 1);
  c.run<frt_flow_start_args>(FRT_OP_FLOW_START, KernelTypes(), {},
                             [&](frt_flow_start_args& args, const At& at) {
                               args.samples = flow.samples;
                               args.horizon = flow.horizon;
                               args.dim = flow.dim;
                               args.noise = at.operator()<float>(noise);
                               if (flow.continued) {
                                 args.previous = at.operator()<float>(*tensors.previous);
                                 args.locked = at.operator()<int32_t>(*tensors.locked);
                                 args.locked_clean = at.operator()<uint32_t>(*tensors.clean);
                               }
                               args.x = at.operator()<float>(x);
                               args.clean_rows = at.operator()<int32_t>(clean_rows);
                             });
  c.compare(x, kExact);
  c.compare(clean_rows, kExact);
}

void flow_update(Case& c, const Flow& flow, bool velocity) {
  const FlowTensors tensors(c, flow);
  Tensor& v = c.normal("v", FRT_DTYPE_F32, tensors.rows * flow.dim);
  Tensor& x = c.normal("x", FRT_DTYPE_F32, tensors.chunk);
  Tensor& used = c.output("velocity", FRT_DTYPE_F32, tensors.chunk);
  c.run<frt_flow_update_args>(FRT_OP_FLOW_UPDATE, KernelTypes(), {},
                              [&](frt_flow_update_args& args, const At& at) {
                                tensors.fill(args, at);
                                args.v = at.operator()<float>(v);
                                args.x = at.operator()<float>(x);
                                if (velocity) args.velocity = at.operator()<float>(used);
                              });
  constexpr Tolerance kAlmostExact = {1e-6, 1e-5};  // one may contract a multiply and an add
  c.compare(x, kAlmostExact);
  c.compare(used, kAlmostExact);
}

void flow_input(Case& c, frt_dtype dtype, const Flow& flow) {
  const FlowTensors tensors(c, flow);
  Tensor& x = c.normal("x", FRT_DTYPE_F32, tensors.chunk);
  Tensor& weight = c.normal("weight", FRT_DTYPE_F32, static_cast<int64_t>(flow.width) * flow.dim);
  Tensor& bias = c.normal("bias", FRT_DTYPE_F32, flow.width);
  Tensor& h = c.output("h", dtype, tensors.rows * flow.width);
  c.run<frt_flow_input_args>(FRT_OP_FLOW_INPUT, KernelTypes(dtype), {},
                             [&](frt_flow_input_args& args, const At& at) {
                               args.h_dtype = dtype;
                               args.branches = flow.branches;
                               args.rows = flow.samples * flow.horizon;
                               args.dim = flow.dim;
                               args.width = flow.width;
                               args.x = at.operator()<float>(x);
                               args.weight = at.operator()<float>(weight);
                               args.bias = at.operator()<float>(bias);
                               args.h = at(h);
                             });
  c.compare(h, tolerance_of(dtype));
}

// The whole step; with `step` false only its first operator.
void flow_step(Case& c, frt_dtype dtype, const Flow& flow, bool step, bool next) {
  const FlowTensors tensors(c, flow);
  const int64_t projection = static_cast<int64_t>(flow.width) * flow.dim;
  Tensor& h = c.normal("h", dtype, tensors.rows * flow.width, 2.0f);
  Tensor& modulation = c.normal("modulation", FRT_DTYPE_F32, 3 * flow.width, 0.5f);
  Tensor& clean = c.normal("clean modulation", FRT_DTYPE_F32, 3 * flow.width, 0.5f);
  Tensor& out_weight = c.normal("out weight", FRT_DTYPE_F32, projection, 0.1f);
  Tensor& out_bias = c.normal("out bias", FRT_DTYPE_F32, flow.dim);
  Tensor& in_weight = c.normal("in weight", FRT_DTYPE_F32, projection, 0.3f);
  Tensor& in_bias = c.normal("in bias", FRT_DTYPE_F32, flow.width);
  Tensor& v = c.output("v", FRT_DTYPE_F32, tensors.rows * flow.dim);
  Tensor& x = c.normal("x", FRT_DTYPE_F32, tensors.chunk);
  const auto fill_output = [&](frt_flow_output_args& args, const At& at) {
    args.h_dtype = dtype;
    args.rows = static_cast<int32_t>(tensors.rows);
    args.dim = flow.dim;
    args.width = flow.width;
    args.h = at(h);
    args.norm.kind = FRT_NORM_ADAPTIVE;
    args.norm.epsilon = 1e-6f;
    args.norm.modulation.rows = at.operator()<float>(modulation);
    if (flow.clean) {
      args.norm.modulation.clean = at.operator()<float>(clean);
      args.norm.modulation.clean_rows = at.operator()<int32_t>(*tensors.locked);
      args.norm.modulation.period = flow.horizon;
    }
    args.weight = at.operator()<float>(out_weight);
    args.bias = at.operator()<float>(out_bias);
    args.v = at.operator()<float>(v);
  };
  if (!step) {
    c.run<frt_flow_output_args>(FRT_OP_FLOW_OUTPUT, KernelTypes(dtype), {}, fill_output);
    c.compare(v, kF32);
    return;
  }
  c.run<frt_flow_step_args>(FRT_OP_FLOW_STEP, KernelTypes(dtype), {},
                            [&](frt_flow_step_args& args, const At& at) {
                              args.output.struct_size = sizeof(args.output);
                              fill_output(args.output, at);
                              args.update.struct_size = sizeof(args.update);
                              tensors.fill(args.update, at);
                              args.update.v = at.operator()<float>(v);
                              args.update.x = at.operator()<float>(x);
                              args.next.struct_size = sizeof(args.next);
                              if (!next) return;
                              args.next.h_dtype = dtype;
                              args.next.branches = flow.branches;
                              args.next.rows = flow.samples * flow.horizon;
                              args.next.dim = flow.dim;
                              args.next.width = flow.width;
                              args.next.x = at.operator()<float>(x);
                              args.next.weight = at.operator()<float>(in_weight);
                              args.next.bias = at.operator()<float>(in_bias);
                              args.next.h = at(h);
                            });
  c.compare(x, kF32);
  if (next) c.compare(h, tolerance_of(dtype));
}

// ---- refusals --------------------------------------------------------------------------------

// No rows of `Args`: `spoil` takes them away from the smallest call there is.
template <class Args, class Fill, class Spoil>
void no_rows(Case& c, const char* name, const WeightFormats& weights, const Fill& fill,
             const Spoil& spoil) {
  Tensor& values = c.normal("values", FRT_DTYPE_F32, 64);
  Tensor& numbers = c.integers("numbers", {0, 1, 0, 0, 0, 0, 0, 0});
  refused<Args>(
      c, name, KernelTypes(FRT_DTYPE_F32), weights,
      [&](Args& args, const At& at) {
        fill(args, at.operator()<float>(values), at.operator()<int32_t>(numbers));
      },
      spoil);
}

void embed_rows_refusals(Case& c) {
  no_rows<frt_embed_rows_args>(
      c, FRT_OP_EMBED_ROWS, kWeightF32,
      [](frt_embed_rows_args& args, float* values, int32_t* numbers) {
        args.y_dtype = FRT_DTYPE_F32;
        args.branches = args.text_rows = args.y_rows = 1;
        args.scale = 1;
        args.first = numbers;
        args.count = numbers + 1;
        args.ids = numbers + 2;
        args.ids_stride = 1;
        args.table.format = kWeightF32;
        args.table.rows = 1;
        args.table.cols = 8;
        args.table.data = values;
        args.y = values + 32;
        args.y_stride = 8;
      },
      [](frt_embed_rows_args& args) { args.text_rows = 0; });
}

void flow_start_refusals(Case& c) {
  no_rows<frt_flow_start_args>(
      c, FRT_OP_FLOW_START, {},
      [](frt_flow_start_args& args, float* values, int32_t* numbers) {
        args.samples = args.horizon = args.dim = 1;
        args.noise = values;
        args.x = values + 8;
        args.clean_rows = numbers;
      },
      [](frt_flow_start_args& args) { args.samples = 0; });
}

void flow_update_refusals(Case& c) {
  no_rows<frt_flow_update_args>(
      c, FRT_OP_FLOW_UPDATE, {},
      [](frt_flow_update_args& args, float* values, int32_t*) {
        args.branches = args.samples = args.horizon = args.dim = 1;
        args.v = values;
        args.x = values + 8;
      },
      [](frt_flow_update_args& args) { args.samples = 0; });
}

void flow_input_refusals(Case& c) {
  no_rows<frt_flow_input_args>(
      c, FRT_OP_FLOW_INPUT, {},
      [](frt_flow_input_args& args, float* values, int32_t*) {
        args.h_dtype = FRT_DTYPE_F32;
        args.branches = args.rows = args.dim = 1;
        args.width = 8;
        args.x = values;
        args.weight = values + 8;
        args.bias = values + 16;
        args.h = values + 24;
      },
      [](frt_flow_input_args& args) { args.rows = 0; });
}

void flow_output_refusals(Case& c) {
  no_rows<frt_flow_output_args>(
      c, FRT_OP_FLOW_OUTPUT, {},
      [](frt_flow_output_args& args, float* values, int32_t*) {
        args.h_dtype = FRT_DTYPE_F32;
        args.rows = args.dim = 1;
        args.width = 8;
        args.h = values;
        args.weight = values + 8;
        args.bias = values + 16;
        args.v = values + 24;
      },
      [](frt_flow_output_args& args) { args.rows = 0; });
}

}  // namespace

void add_flow_cases(Suite& suite) {
  suite.add(FRT_OP_EMBED_ROWS " refusals", embed_rows_refusals);
  suite.add(FRT_OP_FLOW_START " refusals", flow_start_refusals);
  suite.add(FRT_OP_FLOW_UPDATE " refusals", flow_update_refusals);
  suite.add(FRT_OP_FLOW_INPUT " refusals", flow_input_refusals);
  suite.add(FRT_OP_FLOW_OUTPUT " refusals", flow_output_refusals);
  const std::vector<int32_t> masks[] = {{1}, {1, 1, 0}, {1, 0, 1}, {0, 1, 1}, {1, 1, 1}};
  for (const auto& mask : masks) {
    std::string name;
    for (const int32_t bit : mask) name += std::to_string(bit);
    for (const int32_t slots : {1, static_cast<int32_t>(mask.size())}) {
      suite.add(FRT_OP_PACK_VIEWS " " + name + " slots " + std::to_string(slots), [=](Case& c) {
        pack_views(c, mask, slots, {17, 0, 99, -1});
      });
    }
  }
  const Image images[] = {{FRT_DTYPE_U8, 3, 56, 14, {0, 2, -1}},
                          {FRT_DTYPE_U8, 3, 224, 14, {2, 0}},
                          {FRT_DTYPE_F32, 2, 56, 14, {1, 0}},
                          {FRT_DTYPE_F32, 2, 12, 4, {1, -1}},
                          {FRT_DTYPE_U8, 1, 10, 5, {0}}};
  const Flow flows[] = {{1, 1, 1, 1, 8},
                        {1, 1, 10, 32, 32},
                        {1, 3, 10, 32, 48},
                        {2, 1, 10, 32, 1024},
                        {2, 2, 15, 7, 100},
                        {3, 1, 50, 32, 64},
                        {1, 1, 10, 32, 64, true, 0, 0},
                        {1, 2, 10, 32, 64, true, 3, 0},
                        {2, 1, 10, 32, 64, true, 3, 1, std::numeric_limits<float>::infinity()},
                        {1, 1, 50, 32, 1024, true, 4, 1}};
  for (const Flow& flow : flows) {
    suite.add(FRT_OP_FLOW_START " " + text(flow), [=](Case& c) { flow_start(c, flow); });
    for (const bool velocity : {false, true}) {
      suite.add(FRT_OP_FLOW_UPDATE " " + text(flow) + (velocity ? " velocity" : ""),
                [=](Case& c) { flow_update(c, flow, velocity); });
    }
  }
  for (const frt_dtype dtype : kTypes) {
    const std::string type = std::string(" ") + dtype_name(dtype) + " ";
    for (std::size_t i = 0; i < std::size(images); ++i) {
      const Image& image = images[i];
      const std::string name = type + "image " + std::to_string(i);
      suite.add(FRT_OP_PATCHES + name, [=](Case& c) { patches(c, dtype, image); });
      suite.add(FRT_OP_PATCH_EMBED + name, [=](Case& c) { patch_embed(c, dtype, image, 144); });
    }
    for (const frt_dtype table : kTypes) {
      for (const int32_t branches : {1, 3}) {
        suite.add(
            FRT_OP_EMBED_ROWS + type + dtype_name(table) + " branches " + std::to_string(branches),
            [=](Case& c) { embed_rows(c, dtype, table, branches, 72); });
      }
    }
    for (const Flow& flow : flows) {
      suite.add(FRT_OP_FLOW_INPUT + type + text(flow),
                [=](Case& c) { flow_input(c, dtype, flow); });
      suite.add(FRT_OP_FLOW_OUTPUT + type + text(flow),
                [=](Case& c) { flow_step(c, dtype, flow, false, false); });
      for (const bool next : {false, true}) {
        suite.add(FRT_OP_FLOW_STEP + type + text(flow) + (next ? " next" : ""),
                  [=](Case& c) { flow_step(c, dtype, flow, true, next); });
      }
    }
  }
}

}  // namespace frt::conformance
