// SPDX-License-Identifier: Apache-2.0
// Cases of frt/ops/moe.h.
//
// A block is compared only in rows whose choice is clear: where two of the largest logits are
// nearly equal, backends may choose differently, and both be right. The logits' deviation of about
// four keeps most rows clear.
#include <frt/ops/moe.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "check.hpp"

namespace frt::conformance {
namespace {

constexpr float kLogitDeviation = 4.0f;
constexpr double kClear = 4e-3;

// ---- route -----------------------------------------------------------------------------------

struct RouteShape {
  int32_t rows, experts, chosen;
  bool normalise, ties;
  int32_t row_count;  // -1: none
};

void route_case(Case& c, const RouteShape& shape) {
  const auto experts = static_cast<std::size_t>(shape.experts);
  std::vector<float> values;
  for (int32_t row = 0; row < shape.rows; ++row) {
    std::vector<float> one(experts);
    if (shape.ties) {
      std::uniform_int_distribution<int> few(-3, 3);
      for (float& value : one) value = static_cast<float>(few(c.random()));
    } else {  // at least 0.05 apart
      std::iota(one.begin(), one.end(), static_cast<float>(-row));
      std::shuffle(one.begin(), one.end(), c.random());
      for (float& value : one) value *= 0.05f;
    }
    values.insert(values.end(), one.begin(), one.end());
  }
  const Tensor& logits =
      c.raw("logits", FRT_DTYPE_F32, values.data(), static_cast<int64_t>(values.size()));
  const Tensor& count = c.integers("row_count", {shape.row_count});
  Tensor& ids = c.output("ids", FRT_DTYPE_I32, shape.rows * int64_t{shape.chosen});
  Tensor& weights = c.output("weights", FRT_DTYPE_F32, shape.rows * int64_t{shape.chosen});
  c.run<frt_moe_route_args>(FRT_OP_MOE_ROUTE, KernelTypes(), {},
                            [&](frt_moe_route_args& args, const At& at) {
                              args.rows = shape.rows;
                              args.experts = shape.experts;
                              args.experts_per_token = shape.chosen;
                              args.normalise = shape.normalise ? 1 : 0;
                              if (shape.row_count >= 0)
                                args.row_count = at.operator()<int32_t>(count);
                              args.logits = at.operator()<float>(logits);
                              args.ids = at.operator()<int32_t>(ids);
                              args.weights = at.operator()<float>(weights);
                            });
  c.compare(ids, kExact);
  c.compare(weights, kF32);

  Expected chosen(FRT_DTYPE_I32, ids.count), shares(FRT_DTYPE_F32, weights.count);
  for (int64_t row = 0; row < shape.rows; ++row) {
    const int64_t first = row * shape.chosen;
    if (shape.row_count >= 0 && row >= shape.row_count) {
      chosen.ignore(first, shape.chosen);
      shares.ignore(first, shape.chosen);
      continue;
    }
    const auto logit = [&](int32_t expert) {
      return static_cast<double>(
          values[static_cast<std::size_t>(row) * experts + static_cast<std::size_t>(expert)]);
    };
    std::vector<int32_t> order(experts);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](int32_t a, int32_t b) { return logit(a) > logit(b); });
    double all = 0, best = 0;
    for (std::size_t i = 0; i < experts; ++i) {
      const double weight = std::exp(logit(order[i]) - logit(order[0]));
      all += weight;
      if (static_cast<int32_t>(i) < shape.chosen) best += weight;
    }
    for (int32_t i = 0; i < shape.chosen; ++i) {
      const int32_t expert = order[static_cast<std::size_t>(i)];
      const double share =
          std::exp(logit(expert) - logit(order[0])) / (shape.normalise ? best : all);
      chosen.value(first + i, expert);
      shares.value(first + i, share, 1e-5 * share);  // sums of hundreds of exponentials in f32
    }
  }
  c.require(ids, chosen);
  c.require(weights, shares);
}

// ---- combine ---------------------------------------------------------------------------------

void combine_case(Case& c, frt_dtype dtype, int32_t rows, int32_t width, bool in_place,
                  int32_t row_count) {
  Tensor& routed = c.normal("routed", dtype, rows * int64_t{width});
  Tensor& shared = c.normal("shared", dtype, rows * int64_t{width});
  Tensor& gate = c.normal("gate", FRT_DTYPE_F32, rows, 2.0f);
  Tensor& count = c.integers("row_count", {row_count});
  Tensor& y = c.output("y", dtype, rows * int64_t{width});
  c.run<frt_moe_combine_args>(FRT_OP_MOE_COMBINE, KernelTypes(dtype), {},
                              [&](frt_moe_combine_args& args, const At& at) {
                                args.dtype = dtype;
                                args.rows = rows;
                                args.width = width;
                                if (row_count >= 0) args.row_count = at.operator()<int32_t>(count);
                                args.routed = at(routed);
                                args.shared = at(shared);
                                args.gate = at.operator()<float>(gate);
                                args.y = in_place ? at(routed) : at(y);
                              });
  c.compare(in_place ? routed : y, tolerance_of(dtype));

  Expected expected(dtype, y.count);
  const std::vector<double> part = Case::values(routed), other = Case::values(shared),
                            open = Case::values(gate);
  for (int64_t i = 0; i < y.count; ++i) {
    if (row_count >= 0 && i / width >= row_count) {
      expected.ignore(i, 1);
      continue;
    }
    const auto at = static_cast<std::size_t>(i);
    const double sigmoid = 1 / (1 + std::exp(-open[static_cast<std::size_t>(i / width)]));
    const double value = part[at] + sigmoid * other[at];
    const double away = 1e-6 * (std::fabs(part[at]) + std::fabs(other[at]));
    expected.value(i, value, away + half_step(dtype, std::fabs(value) + away));
  }
  c.require(in_place ? routed : y, expected);
}

// ---- experts ---------------------------------------------------------------------------------

struct Shape {
  int32_t rows, experts, chosen, inputs, width;
  int32_t row_count = -1;  // -1: none

  std::string text() const {
    return std::to_string(rows) + " rows " + std::to_string(chosen) + "/" +
           std::to_string(experts) + " experts " + std::to_string(inputs) + "x" +
           std::to_string(width) +
           (row_count >= 0 ? " row_count " + std::to_string(row_count) : std::string());
  }
  int64_t x() const { return rows * int64_t{inputs}; }
  int64_t assignments() const { return rows * int64_t{chosen}; }
};

struct Matrices {
  Matrices(Case& c, const Packing& packing, const Shape& shape)
      : gate(c.experts("gate", packing, shape.experts, shape.width, shape.inputs)),
        up(c.experts("up", packing, shape.experts, shape.width, shape.inputs)),
        down(c.experts("down", packing, shape.experts, shape.inputs, shape.width)) {}
  ExpertWeight gate, up, down;
};

void experts_case(Case& c, const Shape& shape, const Packing& packing, frt_dtype dtype) {
  const Matrices matrices(c, packing, shape);
  std::vector<int32_t> chosen;
  std::vector<int32_t> all(static_cast<std::size_t>(shape.experts));
  std::iota(all.begin(), all.end(), 0);
  for (int32_t row = 0; row < shape.rows; ++row) {
    std::shuffle(all.begin(), all.end(), c.random());
    chosen.insert(chosen.end(), all.begin(), all.begin() + shape.chosen);
  }
  Tensor& x = c.normal("x", dtype, shape.x());
  Tensor& ids = c.integers("ids", chosen);
  Tensor& weights = c.uniform("weights", FRT_DTYPE_F32, shape.assignments(), 0.05f, 0.5f);
  Tensor& count = c.integers("row_count", {shape.row_count});
  Tensor& y = c.output("y", dtype, shape.x());
  c.run<frt_moe_experts_args>(FRT_OP_MOE_EXPERTS, KernelTypes(dtype), packing.format,
                              [&](frt_moe_experts_args& args, const At& at) {
                                args.dtype = dtype;
                                args.rows = shape.rows;
                                args.experts = shape.experts;
                                args.experts_per_token = shape.chosen;
                                if (shape.row_count >= 0)
                                  args.row_count = at.operator()<int32_t>(count);
                                args.x = at(x);
                                args.ids = at.operator()<int32_t>(ids);
                                args.weights = at.operator()<float>(weights);
                                args.gate = Case::at(matrices.gate, at);
                                args.up = Case::at(matrices.up, at);
                                args.down = Case::at(matrices.down, at);
                                args.y = at(y);
                              });
  c.compare_rounded(y, shape.inputs, tolerance_of(dtype), c.may_round(x, matrices.gate.experts),
                    kFp4Gated);
}

// ---- block -----------------------------------------------------------------------------------

struct BlockKind {
  frt_dtype dtype, residual_dtype;
  int32_t shared_width;  // 0: no shared expert
  bool norm, delta, normalise;
  Packing router{};  // without a name: plain

  std::string text() const {
    return std::string(dtype_name(dtype)) + (norm ? " norm " : " ") +
           (norm ? dtype_name(residual_dtype) : "no norm") + (delta ? " delta" : "") +
           (shared_width > 0 ? " shared " + std::to_string(shared_width) : std::string()) +
           (normalise ? " normalised" : "") + (router.name.empty() ? "" : " router " + router.name);
  }
};

struct BlockData {
  BlockData(Case& c, const Shape& shape, const BlockKind& kind, const Packing& packing,
            const Packing& shared_packing)
      : shape_(shape),
        kind_(kind),
        matrices(c, packing, shape),
        residual(c.normal("residual", kind.residual_dtype, shape.x())),
        delta(c.normal("delta", kind.dtype, shape.x(), 0.5f)),
        norm_weight(c.normal("norm_weight", FRT_DTYPE_F32, shape.inputs, 0.5f, kLogitDeviation)),
        count(c.integers("row_count", {shape.row_count})),
        x(kind.norm ? c.output("x", kind.dtype, shape.x())
                    : c.normal("x", kind.dtype, shape.x(), kLogitDeviation)),
        router(c.weight("router",
                        !kind.router.name.empty()     ? kind.router
                        : kind.dtype == FRT_DTYPE_F32 ? Packing{"", kWeightF32}
                                                      : Packing{"", kWeightBf16},
                        shape.experts, shape.inputs)),
        logits(c.output("logits", FRT_DTYPE_F32, shape.rows * int64_t{shape.experts})),
        ids(c.output("ids", FRT_DTYPE_I32, shape.assignments())),
        weights(c.output("weights", FRT_DTYPE_F32, shape.assignments())),
        y(c.output("y", kind.dtype, shape.x())) {
    if (kind.shared_width == 0) return;
    shared_gate = c.weight("shared_gate", shared_packing, kind.shared_width, shape.inputs);
    shared_up = c.weight("shared_up", shared_packing, kind.shared_width, shape.inputs);
    shared_down = c.weight("shared_down", shared_packing, shape.inputs, kind.shared_width);
    shared_expert_gate = c.weight("shared_expert_gate", {"", kWeightBf16}, 1, shape.inputs);
    shared_hidden = &c.output("shared_hidden", kind.dtype, shape.rows * 2 * kind.shared_width);
    shared_y = &c.output("shared_y", kind.dtype, shape.x());
    shared_scale = &c.output("shared_scale", FRT_DTYPE_F32, shape.rows);
  }

  frt_moe_block_args args(const At& at) const {
    frt_moe_block_args args{};
    args.struct_size = sizeof(args);
    args.residual_dtype = kind_.residual_dtype;
    args.dtype = kind_.dtype;
    args.rows = shape_.rows;
    args.experts = shape_.experts;
    args.experts_per_token = shape_.chosen;
    args.normalise = kind_.normalise ? 1 : 0;
    args.epsilon = 1e-6f;
    if (shape_.row_count >= 0) args.row_count = at.operator()<int32_t>(count);
    if (kind_.norm) {
      args.residual = at(residual);
      if (kind_.delta) args.delta = at(delta);
      args.norm_weight = at.operator()<float>(norm_weight);
    }
    args.x = at(x);
    args.router = Case::at(router, at);
    args.gate = Case::at(matrices.gate, at);
    args.up = Case::at(matrices.up, at);
    args.down = Case::at(matrices.down, at);
    args.logits = at.operator()<float>(logits);
    args.ids = at.operator()<int32_t>(ids);
    args.weights = at.operator()<float>(weights);
    args.y = at(y);
    if (kind_.shared_width == 0) return args;
    args.shared_gate_weight = Case::at(shared_gate, at);
    args.shared_up_weight = Case::at(shared_up, at);
    args.shared_down_weight = Case::at(shared_down, at);
    args.shared_expert_gate = Case::at(shared_expert_gate, at);
    args.shared_hidden = at(*shared_hidden);
    args.shared_y = at(*shared_y);
    args.shared_scale = at.operator()<float>(*shared_scale);
    return args;
  }

  // Whether the reference's largest logits of the row are apart.
  bool clear(int32_t row) const {
    std::vector<double> sorted;
    for (int32_t e = 0; e < shape_.experts; ++e) {
      sorted.push_back(Case::value(logits, 1, row * int64_t{shape_.experts} + e));
    }
    std::sort(sorted.begin(), sorted.end(), std::greater<>());
    const int32_t last = std::min(shape_.chosen, shape_.experts - 1);
    for (int32_t i = 0; i < last; ++i) {
      const auto at = static_cast<std::size_t>(i);
      if (sorted[at] - sorted[at + 1] < kClear) return false;
    }
    return true;
  }

  void compare(Case& c) const {
    const Tolerance tolerance = tolerance_of(kind_.dtype);
    c.compare(residual, tolerance);
    c.compare(x, tolerance);
    c.compare(logits, tolerance);
    const int32_t active = shape_.row_count < 0 ? shape_.rows : shape_.row_count;
    std::vector<Case::Range> runs;
    int32_t compared = 0;
    for (int32_t row = 0; row < shape_.rows;) {
      int32_t end = row;  // of a run of rows to compare
      while (end < shape_.rows && (end >= active || clear(end))) compared += end++ < active ? 1 : 0;
      const int64_t run = end - row;
      c.compare_range(ids, row * int64_t{shape_.chosen}, run * shape_.chosen, kExact);
      c.compare_range(weights, row * int64_t{shape_.chosen}, run * shape_.chosen, tolerance);
      runs.push_back({row * int64_t{shape_.inputs}, run * shape_.inputs});
      row = end + 1;
    }
    const Rounding of_experts = c.may_round(x, matrices.gate.experts);
    const Rounding rounding =
        of_experts != Rounding::kNone || !shared_y ? of_experts : c.may_round(x, shared_gate);
    c.compare_rounded(y, runs, shape_.inputs, tolerance, rounding, kFp4Gated);
    if (2 * compared < active) Case::fail("the choice is clear in too few rows");
  }

 private:
  Shape shape_;
  BlockKind kind_;

 public:
  Matrices matrices;
  Tensor &residual, &delta, &norm_weight, &count, &x;
  Weight router;
  Tensor &logits, &ids, &weights, &y;
  Weight shared_gate, shared_up, shared_down, shared_expert_gate;
  Tensor *shared_hidden = nullptr, *shared_y = nullptr, *shared_scale = nullptr;
};

void block_case(Case& c, const Shape& shape, const BlockKind& kind, const Packing& packing,
                const Packing& shared_packing) {
  const BlockData data(c, shape, kind, packing, shared_packing);
  c.run<frt_moe_block_args>(FRT_OP_MOE_BLOCK, KernelTypes(kind.dtype), packing.format,
                            [&](frt_moe_block_args& args, const At& at) { args = data.args(at); });
  data.compare(c);
}

// The block's arguments for some of its rows.
frt_moe_block_args rows_from(frt_moe_block_args args, int32_t first, int32_t rows,
                             const BlockKind& kind, const Shape& shape) {
  const auto skip = [&](void* pointer, frt_dtype dtype, int64_t width) -> void* {
    return pointer ? static_cast<std::byte*>(pointer) + first * width * (dtype_bits(dtype) / 8)
                   : nullptr;
  };
  args.rows = rows;
  args.residual = skip(args.residual, kind.residual_dtype, shape.inputs);
  args.delta = skip(const_cast<void*>(args.delta), kind.dtype, shape.inputs);
  args.x = skip(args.x, kind.dtype, shape.inputs);
  args.logits += int64_t{first} * shape.experts;
  args.ids += int64_t{first} * shape.chosen;
  args.weights += int64_t{first} * shape.chosen;
  args.shared_hidden = skip(args.shared_hidden, kind.dtype, 2 * int64_t{kind.shared_width});
  args.shared_y = skip(args.shared_y, kind.dtype, shape.inputs);
  if (args.shared_scale) args.shared_scale += first;
  args.y = skip(args.y, kind.dtype, shape.inputs);
  return args;
}

void alike_case(Case& c, const Shape& shape, const BlockKind& kind, const Packing& packing) {
  const BlockData data(c, shape, kind, packing, packing);
  const std::vector<const Tensor*> outputs = {&data.x, &data.logits, &data.weights, &data.y};
  const auto run = [&](int32_t first, int32_t rows) {
    c.run<frt_moe_block_args>(FRT_OP_MOE_BLOCK, KernelTypes(kind.dtype), packing.format,
                              [&](frt_moe_block_args& args, const At& at) {
                                args = rows_from(data.args(at), first, rows, kind, shape);
                              });
    std::vector<std::vector<std::byte>> results;
    for (const Tensor* tensor : outputs) results.push_back(tensor->result[0]);
    return results;
  };
  const auto together = run(0, shape.rows);
  data.compare(c);
  // Where backends change from one kernel to another.
  for (const int32_t rows : {1, 2, 4, 8, 9, 15}) {
    const int32_t first = 5 * rows % (shape.rows - rows + 1);  // somewhere among the others
    const auto apart = run(first, rows);
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      const auto bytes = static_cast<std::ptrdiff_t>(together[i].size()) / shape.rows;
      if (std::equal(apart[i].begin() + first * bytes, apart[i].begin() + (first + rows) * bytes,
                     together[i].begin() + first * bytes)) {
        continue;
      }
      Case::fail(outputs[i]->name + ": rows " + std::to_string(first) + " to " +
                 std::to_string(first + rows - 1) + " differ from the same rows among " +
                 std::to_string(shape.rows));
    }
  }
}

// ---- refusals --------------------------------------------------------------------------------

const Packing kBf16Packing = {"bf16", kWeightBf16};

// The reference gets good arguments, the backend under test the changed ones.
void refusal(Case& c, const char* argument, void (*change)(frt_moe_block_args&)) {
  const BlockData data(c, {2, 4, 2, 32, 16}, {FRT_DTYPE_BF16, FRT_DTYPE_BF16, 16, true, true, true},
                       kBf16Packing, kBf16Packing);
  try {
    c.run<frt_moe_block_args>(FRT_OP_MOE_BLOCK, KernelTypes(FRT_DTYPE_BF16), kWeightBf16,
                              [&](frt_moe_block_args& args, const At& at) {
                                args = data.args(at);
                                if (at.side() == 0) change(args);
                              });
  } catch (const Error& error) {
    const std::string text = error.what();
    if (error.status() == FRT_ERR_INVALID_ARGUMENT && text.find(argument) != std::string::npos) {
      return;
    }
    Case::fail(std::string(argument) + ": refused with " + frt::status_name(error.status()) + " " +
               text);
  }
  Case::fail(std::string(argument) + " is wrong and was not refused");
}

void add_refusals(Suite& suite) {
  const auto add = [&](const char* argument, void (*change)(frt_moe_block_args&)) {
    suite.add(std::string(FRT_OP_MOE_BLOCK) + " refuses " + argument,
              [=](Case& c) { refusal(c, argument, change); });
  };
  add("dtype", [](frt_moe_block_args& a) { a.dtype = FRT_DTYPE_F16; });
  add("residual_dtype", [](frt_moe_block_args& a) { a.residual_dtype = FRT_DTYPE_I32; });
  add("rows", [](frt_moe_block_args& a) { a.rows = -1; });
  add("experts_per_token", [](frt_moe_block_args& a) { a.experts_per_token = 5; });
  add("delta", [](frt_moe_block_args& a) { a.residual = nullptr; });
  add("norm_weight", [](frt_moe_block_args& a) { a.norm_weight = nullptr; });
  add("router.rows", [](frt_moe_block_args& a) { a.router.rows = 3; });
  add("gate.expert.cols", [](frt_moe_block_args& a) { a.gate.expert.cols = 16; });
  add("up.expert.rows", [](frt_moe_block_args& a) { a.up.expert.rows = 8; });
  add("down.expert.format", [](frt_moe_block_args& a) { a.down.expert.format.data = 99; });
  add("gate.data_stride", [](frt_moe_block_args& a) { a.gate.data_stride -= 2; });
  add("shared_down_weight.cols", [](frt_moe_block_args& a) { a.shared_down_weight.cols = 8; });
  add("shared_expert_gate.rows", [](frt_moe_block_args& a) { a.shared_expert_gate.rows = 2; });
  add("logits", [](frt_moe_block_args& a) { a.logits = nullptr; });
  add("shared_scale", [](frt_moe_block_args& a) { a.shared_scale = nullptr; });
  add("y", [](frt_moe_block_args& a) { a.y = nullptr; });
}

}  // namespace

void add_moe_cases(Suite& suite) {
  for (const RouteShape& shape : {RouteShape{1, 4, 1, true, false, -1},
                                  {3, 4, 2, false, true, -1},
                                  {7, 60, 8, true, false, 4},
                                  {16, 128, 8, true, true, -1},
                                  {5, 256, 8, true, false, -1},
                                  {33, 256, 8, false, true, 0},
                                  {9, 512, 10, true, false, -1},
                                  {2, 700, 40, true, true, -1},
                                  {2, 5, 5, true, false, -1}}) {
    suite.add(std::string(FRT_OP_MOE_ROUTE) + " " + std::to_string(shape.rows) + " rows " +
                  std::to_string(shape.chosen) + "/" + std::to_string(shape.experts) +
                  (shape.normalise ? " normalised" : "") + (shape.ties ? " ties" : ""),
              [=](Case& c) { route_case(c, shape); });
  }
  for (const frt_dtype dtype : {FRT_DTYPE_F32, FRT_DTYPE_BF16}) {
    for (const auto& [rows, width, in_place, row_count] :
         {std::tuple{1, 1, false, -1}, {5, 2048, true, -1}, {33, 99, false, 20}}) {
      suite.add(
          std::string(FRT_OP_MOE_COMBINE) + " " + dtype_name(dtype) + " " + std::to_string(rows) +
              "x" + std::to_string(width) + (in_place ? " in place" : ""),
          [=, rows = rows, width = width, in_place = in_place, row_count = row_count](Case& c) {
            combine_case(c, dtype, rows, width, in_place, row_count);
          });
    }
  }

  const auto experts = [&](const Shape& shape, const Packing& packing, frt_dtype dtype) {
    suite.add(std::string(FRT_OP_MOE_EXPERTS) + " " + dtype_name(dtype) + " " + packing.name + " " +
                  shape.text(),
              [=](Case& c) { experts_case(c, shape, packing, dtype); });
  };
  for (const Packing& packing : all_packings()) {
    experts({1, 8, 2, 512, 64}, packing, FRT_DTYPE_BF16);
    experts({3, 6, 2, 48, 16}, packing, FRT_DTYPE_F32);
    experts({7, 8, 3, 96, 160}, packing, FRT_DTYPE_BF16);
    experts({40, 5, 2, 160, 96}, packing, FRT_DTYPE_BF16);
    if (packing.format != kWeightNvfp4) {
      experts({2, 4, 2, 100, 24}, packing, FRT_DTYPE_BF16);
      experts({20, 4, 2, 100, 24}, packing, FRT_DTYPE_BF16);
    }
  }
  // So many rows of each expert that its matrices may be dequantised first, some experts at a time.
  for (const Packing& packing : all_packings()) {
    experts({200, 4, 2, 160, 96}, packing, FRT_DTYPE_BF16);
    experts({200, 6, 4, 256, 144, 151}, packing, FRT_DTYPE_BF16);
    experts({200, 7, 4, 160, 96}, packing, FRT_DTYPE_BF16);  // the last ones are fewer
  }
  experts({16, 4, 4, 64, 32}, kBf16Packing, FRT_DTYPE_BF16);  // every expert by every row
  experts({16, 60, 8, 256, 64, 9}, kBf16Packing, FRT_DTYPE_BF16);
  experts({17, 512, 8, 64, 32}, kBf16Packing, FRT_DTYPE_BF16);
  experts({64, 16, 4, 192, 80, 51}, kBf16Packing, FRT_DTYPE_BF16);
  experts({200, 3, 2, 128, 64}, kBf16Packing, FRT_DTYPE_BF16);
  experts({200, 1, 1, 72, 136, 0}, kBf16Packing, FRT_DTYPE_BF16);

  const Packing fp8 = {"fp8 128x128", FRT_WEIGHT_FP8_BLOCK(FRT_DTYPE_F32, 128, 128)};
  const Packing nvfp4 = {"nvfp4", kWeightNvfp4};
  const auto block = [&](const Shape& shape, const BlockKind& kind, const Packing& packing,
                         const Packing& shared) {
    suite.add(
        std::string(FRT_OP_MOE_BLOCK) + " " + kind.text() + " " + packing.name + " " + shape.text(),
        [=](Case& c) { block_case(c, shape, kind, packing, shared); });
  };
  const BlockKind usual = {FRT_DTYPE_BF16, FRT_DTYPE_F32, 64, true, true, true};
  const BlockKind tiny = {FRT_DTYPE_BF16, FRT_DTYPE_F32, 48, true, true, true};
  const BlockKind narrow = {FRT_DTYPE_BF16, FRT_DTYPE_BF16, 32, true, true, true};
  const BlockKind first = {FRT_DTYPE_BF16, FRT_DTYPE_F32, 32, true, false, true};
  const BlockKind bare = {FRT_DTYPE_BF16, FRT_DTYPE_BF16, 0, false, false, false};
  const BlockKind f32 = {FRT_DTYPE_F32, FRT_DTYPE_F32, 24, true, true, true};
  for (const int32_t rows : {1, 2, 7, 16, 17, 64, 200}) {
    block({rows, 16, 4, 256, 64}, usual, kBf16Packing, kBf16Packing);
    block({rows, 60, 8, 128, 32}, narrow, fp8, kBf16Packing);
    block({rows, 8, 2, 64, 32}, first, nvfp4, fp8);
    block({rows, 16, 2, 96, 48}, bare, kBf16Packing, kBf16Packing);
    block({rows, 8, 2, 48, 24}, f32, kBf16Packing, kBf16Packing);
  }
  for (const int32_t rows : {3, 30}) {
    block({rows, 8, 2, 100, 24}, usual, kBf16Packing, kBf16Packing);
    block({rows, 8, 2, 128, 64, 2}, usual, kBf16Packing, nvfp4);
    block({rows, 8, 2, 128, 64, 0}, usual, fp8, fp8);
  }
  // Fewer active rows than given, where rows are cut into several launches.
  for (const int32_t active : {13, 10, 4, 0}) {
    block({14, 16, 4, 64, 32, active}, tiny, kBf16Packing, kBf16Packing);
    block({14, 16, 4, 128, 64, active}, narrow, fp8, fp8);
  }
  // The shapes of a real layer, with fewer experts.
  const BlockKind real = {FRT_DTYPE_BF16, FRT_DTYPE_F32, 512, true, true, true};
  block({1, 10, 8, 2048, 512}, real, kBf16Packing, kBf16Packing);
  block({1, 10, 8, 2048, 512}, {FRT_DTYPE_BF16, FRT_DTYPE_BF16, 512, true, false, true}, fp8, fp8);
  block({1, 8, 8, 2048, 512}, {FRT_DTYPE_BF16, FRT_DTYPE_BF16, 512, false, false, false},
        {"fp8 128x128 bf16", FRT_WEIGHT_FP8_BLOCK(FRT_DTYPE_BF16, 128, 128)},
        {"fp8 128x128 bf16", FRT_WEIGHT_FP8_BLOCK(FRT_DTYPE_BF16, 128, 128)});
  block({1, 8, 8, 2048, 512, 0}, real, fp8, fp8);
  block({1, 8, 8, 2048, 512}, {FRT_DTYPE_BF16, FRT_DTYPE_BF16, 512, true, true, true}, nvfp4, fp8);
  block({2, 4, 2, 2048, 512}, {FRT_DTYPE_BF16, FRT_DTYPE_F32, 512, true, true, true}, kBf16Packing,
        kBf16Packing);
  block({8, 10, 8, 2048, 512}, {FRT_DTYPE_BF16, FRT_DTYPE_BF16, 512, false, false, false},
        {"fp8 128x128 bf16", FRT_WEIGHT_FP8_BLOCK(FRT_DTYPE_BF16, 128, 128)},
        {"fp8 128x128 bf16", FRT_WEIGHT_FP8_BLOCK(FRT_DTYPE_BF16, 128, 128)});
  block({11, 10, 8, 2048, 512, 5}, real, kBf16Packing, kBf16Packing);
  const auto alike = [&](const Shape& shape, const BlockKind& kind, const Packing& packing) {
    suite.add(std::string(FRT_OP_MOE_BLOCK) + " " + kind.text() + " " + packing.name + " " +
                  shape.text() + " a row has the same bits among 1 to 16",
              [=](Case& c) { alike_case(c, shape, kind, packing); });
  };
  for (const Packing& packing : {kBf16Packing, fp8}) {
    alike({16, 10, 8, 2048, 512}, real, packing);
    alike({16, 9, 8, 2048, 512}, real, packing);
    alike({16, 16, 4, 64, 32}, tiny, packing);
    alike({16, 16, 4, 64, 32}, bare, packing);
    alike({16, 24, 16, 64, 32}, tiny, packing);  // more rows choose more than one kernel may take
  }
  alike({16, 16, 4, 64, 32}, narrow, nvfp4);
  alike({16, 8, 2, 48, 24}, f32, kBf16Packing);
  block({150, 32, 8, 512, 128}, {FRT_DTYPE_BF16, FRT_DTYPE_F32, 128, true, true, true}, fp8, fp8);
  // Tiles of 128 rows of an expert, ones that end within them, and inputs that do.
  experts({200, 3, 2, 256, 128}, nvfp4, FRT_DTYPE_BF16);
  experts({300, 8, 2, 576, 192, 290}, nvfp4, FRT_DTYPE_BF16);
  experts({300, 2, 2, 256, 128}, nvfp4, FRT_DTYPE_BF16);
  block({130, 8, 2, 128, 64}, usual, nvfp4, nvfp4);
  block({150, 6, 3, 512, 320, 140}, {FRT_DTYPE_BF16, FRT_DTYPE_F32, 256, true, true, true}, nvfp4,
        nvfp4);
  // The logits of a quantised router are exact, whatever the products of experts round.
  for (const Packing& router :
       {nvfp4, Packing{"fp8 channel", FRT_WEIGHT_FP8_CHANNEL(FRT_DTYPE_F32)}}) {
    BlockKind kind = usual;
    kind.router = router;
    block({130, 8, 2, 128, 64}, kind, nvfp4, nvfp4);
  }
  add_refusals(suite);
}

}  // namespace frt::conformance
