// SPDX-License-Identifier: Apache-2.0
// The group node. Scratch of one run:
//
//   narrow   panels: for every kind in use (rows, panel_row_bytes)
//   wide     x as f32 (rows, columns), if some part needs it
//            per worker: weight tile (kWideTile, columns) if some part is widened; the sums of a
//            block (kWideBlock, tile), twice if gated; oneDNN's scratchpad
//   either   per worker: a normed row in f32, if x is f8_e4m3
//
// A worker finishes its tile: sums live in its cache until they are rounded into y.
#include "group.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "../checks.hpp"
#include "../elementwise.hpp"
#include "../rms.hpp"
#include "../row_norm.hpp"
#include "narrow.hpp"
#include "weight.hpp"
#include "wide.hpp"
#include "widen.hpp"

namespace frt::cpu {
namespace {

constexpr int64_t kTaskBytes = 1024 * 1024;  // of packed weights: far more than a task costs
constexpr int64_t kTasksPerWorker = 4;
constexpr int64_t kLeastRows = 8;

std::size_t aligned(std::size_t bytes) noexcept {
  return (bytes + 63) / 64 * 64;
}

// One part with what was decided about it at prepare.
struct PlannedPart : GroupPart {
  NarrowKernel narrow{};
  int64_t narrow_rows = 0;  // weight rows per task
  int64_t narrow_tasks = 0;

  frt_dtype wide_dtype = FRT_DTYPE_F32;  // of the multiplication
  bool widened = false;                  // the weight goes through the tile buffer
  int64_t wide_tile = 0;
  int64_t wide_tiles = 0;
  std::unique_ptr<WideProduct> wide;

  int64_t outputs() const noexcept { return weight.rows; }
};

class GroupNode final : public Node {
 public:
  GroupNode(Device& device, Group group);
  std::size_t scratch_bytes() const noexcept override { return scratch_bytes_; }
  void run(Pool& pool, std::byte* scratch) noexcept override;

 private:
  void plan_narrow(const Device& device, int workers);
  void plan_wide(const Device& device, int workers);
  void prepare_row(int64_t row, int worker, std::byte* scratch) const noexcept;

  void run_narrow(Pool& pool, int64_t rows, std::byte* scratch) const noexcept;
  void run_narrow_tile(const PlannedPart& part, int64_t first, int64_t count, int64_t rows,
                       const std::byte* panels) const noexcept;
  void run_wide(Pool& pool, int64_t rows, std::byte* scratch) noexcept;
  void run_wide_tile(PlannedPart& part, int64_t tile, int64_t first_row, int64_t last_row,
                     int64_t active, int worker, const float* x_float, std::byte* scratch) noexcept;
  const void* wide_weights(const PlannedPart& part, int64_t first,
                           std::byte* buffer) const noexcept;

  // `count` sums of row `row` from column `first` of the part on, rounded into y.
  void finish(const PlannedPart& part, int64_t row, int64_t first, int64_t count, const float* sums,
              const float* scales) const noexcept;
  void finish_gated(int64_t row, int64_t first, int64_t count, const float* gate,
                    const float* gate_scales, const float* up,
                    const float* up_scales) const noexcept;

  Group group_;
  bool reference_;
  int64_t cols_;
  std::vector<PlannedPart> parts_;
  std::size_t listed_;  // parts that have tasks: all, or the first if gated
  WidenFunction widen_;

  int64_t narrow_limit_ = 0;  // rows up to which the narrow kernels are used
  std::array<bool, kPanelKinds> panel_used_{};
  std::array<std::size_t, kPanelKinds> panel_offset_{};
  std::array<int64_t, kPanelKinds> panel_stride_{};
  int64_t narrow_tasks_ = 0;

  bool float_x_ = false;  // bf16 activations are widened for some wide part
  int64_t wide_tasks_ = 0;
  std::size_t worker_offset_ = 0;
  std::size_t worker_bytes_ = 0;
  std::size_t sums_offset_ = 0;
  std::size_t scratchpad_offset_ = 0;
  std::size_t normed_offset_ = 0;
  std::size_t scratch_bytes_ = 0;

  alignas(64) std::array<float, kNarrowTile> x_scales_{};  // x_scale, for every column
};

GroupNode::GroupNode(Device& device, Group group)
    : group_(std::move(group)),
      reference_(device.reference_numerics()),
      cols_(group_.parts.front().weight.cols),
      listed_(group_.gated ? 1 : group_.parts.size()),
      widen_(widen_function()) {
  for (const GroupPart& part : group_.parts) {
    PlannedPart planned;
    static_cast<GroupPart&>(planned) = part;
    parts_.push_back(std::move(planned));
  }
  const int workers = device.options().threads;
  const bool wide = !reference_ && device.isa() >= Isa::kAvx2 && group_.rows > kNarrowRows;
  narrow_limit_ = wide ? kNarrowRows : group_.rows;
  plan_narrow(device, workers);
  if (wide) plan_wide(device, workers);
  x_scales_.fill(group_.x_scale);
  normed_offset_ = aligned(scratch_bytes_);
  if (group_.x_scale > 0 && group_.norm_source) {
    scratch_bytes_ = normed_offset_ + static_cast<std::size_t>(workers * cols_) * sizeof(float);
  }
}

void GroupNode::plan_narrow(const Device& device, int workers) {
  int64_t bytes = 0;
  for (const PlannedPart& part : parts_) {
    bytes += packed_bytes(part.weight, cols_) * part.outputs();
  }
  const int64_t share = std::clamp(bytes / (kTasksPerWorker * workers), int64_t{1}, kTaskBytes);
  std::size_t offset = 0;
  for (PlannedPart& part : parts_) {
    part.narrow = narrow_kernel(device, part.weight, group_.x_dtype);
    const int64_t rows = share / std::max<int64_t>(1, packed_bytes(part.weight, cols_));
    part.narrow_rows = rows >= kNarrowTile ? rows / kNarrowTile * kNarrowTile
                                           : std::max(rows / kLeastRows, int64_t{1}) * kLeastRows;
    const auto kind = static_cast<std::size_t>(part.narrow.panel);
    if (panel_used_[kind]) continue;
    panel_used_[kind] = true;
    panel_stride_[kind] = panel_row_bytes(part.narrow.panel, cols_);
    panel_offset_[kind] = offset;
    offset += static_cast<std::size_t>(panel_stride_[kind] * narrow_limit_);
  }
  for (std::size_t i = 0; i < listed_; ++i) {
    PlannedPart& part = parts_[i];
    part.narrow_tasks = (part.outputs() + part.narrow_rows - 1) / part.narrow_rows;
    narrow_tasks_ += part.narrow_tasks;
  }
  scratch_bytes_ = std::max(scratch_bytes_, offset);
}

void GroupNode::plan_wide(const Device& device, int workers) {
  const bool bf16 = group_.x_dtype == FRT_DTYPE_BF16 && device.isa() >= Isa::kAvx512Bf16;
  bool widened = false;
  std::size_t scratchpad = 0;
  int64_t tile = 0;
  std::size_t tile_bytes = 0;
  for (PlannedPart& part : parts_) {
    part.wide_dtype = bf16 && part.weight.form != WeightForm::kF32 ? FRT_DTYPE_BF16 : FRT_DTYPE_F32;
    part.widened = part.weight.form !=
                   (part.wide_dtype == FRT_DTYPE_BF16 ? WeightForm::kBf16 : WeightForm::kF32);
    part.wide_tile = std::min<int64_t>(kWideTile, part.outputs());
    part.wide_tiles = (part.outputs() + part.wide_tile - 1) / part.wide_tile;
    const bool float_x = part.wide_dtype != group_.x_dtype;
    float_x_ |= float_x;
    part.wide =
        std::make_unique<WideProduct>(part.wide_dtype, group_.rows, cols_,
                                      float_x ? cols_ : group_.x_stride, part.wide_tile, workers);
    widened |= part.widened;
    scratchpad = std::max(scratchpad, part.wide->scratchpad_bytes());
    tile = std::max(tile, part.wide_tile);
    tile_bytes = std::max(tile_bytes, static_cast<std::size_t>(part.wide_tile * cols_ *
                                                               element_bytes(part.wide_dtype)));
  }
  for (std::size_t i = 0; i < listed_; ++i) wide_tasks_ += parts_[i].wide_tiles;

  const std::size_t tiles = group_.gated ? 2 : 1;
  worker_offset_ = float_x_ ? aligned(static_cast<std::size_t>(group_.rows * cols_ * 4)) : 0;
  sums_offset_ = widened ? aligned(tile_bytes) * tiles : 0;
  scratchpad_offset_ =
      sums_offset_ + aligned(static_cast<std::size_t>(kWideBlock * tile) * sizeof(float)) * tiles;
  worker_bytes_ = scratchpad_offset_ + aligned(scratchpad);
  scratch_bytes_ =
      std::max(scratch_bytes_, worker_offset_ + worker_bytes_ * static_cast<std::size_t>(workers));
}

// The norm of one row.
void GroupNode::prepare_row(int64_t row, int worker, std::byte* scratch) const noexcept {
  const int64_t first = row * cols_;
  if (group_.norm_source && group_.x_scale > 0) {
    float* normed = reinterpret_cast<float*>(scratch + normed_offset_) + worker * cols_;
    norm_row(reference_, group_.norm, row, cols_, group_.norm_dtype,
             element(group_.norm_dtype, group_.norm_source, first), FRT_DTYPE_F32, normed);
    store_scaled(cols_, normed, group_.x_scale,
                 const_cast<void*>(element(group_.x_dtype, group_.x, first)));
  } else if (group_.norm_source) {
    norm_row(reference_, group_.norm, row, cols_, group_.norm_dtype,
             element(group_.norm_dtype, group_.norm_source, first), group_.x_dtype,
             const_cast<void*>(element(group_.x_dtype, group_.x, first)));
  }
  if (!group_.residual) return;
  add_rms_norm_row(reference_, static_cast<int32_t>(cols_), group_.epsilon, group_.residual_dtype,
                   element(group_.residual_dtype, group_.residual, first), group_.x_dtype,
                   group_.delta ? element(group_.x_dtype, group_.delta, first) : nullptr,
                   group_.norm_weight, const_cast<void*>(element(group_.x_dtype, group_.x, first)));
}

void GroupNode::run(Pool& pool, std::byte* scratch) noexcept {
  const int64_t rows = active_rows(group_.rows, group_.row_count);
  if (rows == 0) return;
  if (rows <= narrow_limit_) {
    run_narrow(pool, rows, scratch);
  } else {
    run_wide(pool, rows, scratch);
  }
}

// ---- narrow ----------------------------------------------------------------------------------

void GroupNode::run_narrow(Pool& pool, int64_t rows, std::byte* scratch) const noexcept {
  pool.run(rows, [&](int64_t row, int worker) {
    prepare_row(row, worker, scratch);
    const void* x = element(group_.x_dtype, group_.x, row * group_.x_stride);
    for (std::size_t kind = 0; kind < panel_used_.size(); ++kind) {
      if (!panel_used_[kind]) continue;
      fill_panel_row(static_cast<PanelKind>(kind), group_.x_dtype, x, cols_,
                     scratch + panel_offset_[kind] + row * panel_stride_[kind]);
    }
  });
  pool.run(narrow_tasks_, [&](int64_t task, int) {
    for (std::size_t i = 0; i < listed_; ++i) {
      const PlannedPart& part = parts_[i];
      if (task >= part.narrow_tasks) {
        task -= part.narrow_tasks;
        continue;
      }
      const int64_t end = std::min(part.outputs(), (task + 1) * part.narrow_rows);
      for (int64_t first = task * part.narrow_rows; first < end; first += kNarrowTile) {
        run_narrow_tile(part, first, std::min(kNarrowTile, end - first), rows, scratch);
      }
      return;
    }
  });
}

void GroupNode::run_narrow_tile(const PlannedPart& part, int64_t first, int64_t count, int64_t rows,
                                const std::byte* panels) const noexcept {
  alignas(64) float sums[2][kNarrowRows * kNarrowTile];
  const auto multiply = [&](const PlannedPart& one, int64_t row, int64_t block, float* out) {
    const auto kind = static_cast<std::size_t>(one.narrow.panel);
    const void* x[kNarrowRows];
    for (int64_t m = 0; m < block; ++m) {
      x[m] = panels + panel_offset_[kind] + (row + m) * panel_stride_[kind];
    }
    one.narrow.function(one.weight, first, count, x, block, out, kNarrowTile);
  };
  const float* scales = group_.x_scale > 0 ? x_scales_.data() : nullptr;
  for (int64_t row = 0; row < rows; row += kNarrowRows) {
    const int64_t block = std::min(kNarrowRows, rows - row);
    multiply(part, row, block, sums[0]);
    if (group_.gated) multiply(parts_[1], row, block, sums[1]);
    for (int64_t m = 0; m < block; ++m) {
      const float* values = sums[0] + m * kNarrowTile;
      if (group_.gated) {
        finish_gated(row + m, first, count, values, scales, sums[1] + m * kNarrowTile, scales);
      } else {
        finish(part, row + m, first, count, values, scales);
      }
    }
  }
}

// ---- wide ------------------------------------------------------------------------------------

void GroupNode::run_wide(Pool& pool, int64_t rows, std::byte* scratch) noexcept {
  auto* x_float = reinterpret_cast<float*>(scratch);
  if (group_.residual || group_.norm_source || float_x_) {
    pool.run(rows, [&](int64_t row, int worker) {
      prepare_row(row, worker, scratch);
      if (!float_x_) return;
      const void* x = element(group_.x_dtype, group_.x, row * group_.x_stride);
      for (int64_t k = 0; k < cols_; ++k) {
        x_float[row * cols_ + k] = load_float(group_.x_dtype, x, k);
      }
    });
  }
  // Few tiles for many workers: cut the rows, too.
  const int64_t wanted = 2 * pool.workers();
  const int64_t cuts = std::clamp((wanted + wide_tasks_ - 1) / wide_tasks_, int64_t{1},
                                  (rows + kWideTile - 1) / kWideTile);
  const int64_t cut = ((rows + cuts - 1) / cuts + kWideRows - 1) / kWideRows * kWideRows;
  pool.run(wide_tasks_ * cuts, [&](int64_t task, int worker) {
    const int64_t first_row = task % cuts * cut;
    const int64_t last_row = std::min(rows, first_row + cut);
    int64_t tile = task / cuts;
    for (std::size_t i = 0; i < listed_; ++i) {
      if (tile < parts_[i].wide_tiles) {
        return run_wide_tile(parts_[i], tile, first_row, last_row, rows, worker, x_float, scratch);
      }
      tile -= parts_[i].wide_tiles;
    }
  });
}

void GroupNode::run_wide_tile(PlannedPart& part, int64_t tile, int64_t first_row, int64_t last_row,
                              int64_t active, int worker, const float* x_float,
                              std::byte* scratch) noexcept {
  std::byte* own = scratch + worker_offset_ + worker_bytes_ * static_cast<std::size_t>(worker);
  auto* sums = reinterpret_cast<float*>(own + sums_offset_);
  // The last tile begins early, so that all have the same size; its first columns are skipped.
  const int64_t wanted = tile * part.wide_tile;
  const int64_t first = std::min(wanted, part.outputs() - part.wide_tile);
  const int64_t skipped = wanted - first;
  const int64_t count = part.wide_tile - skipped;

  const std::size_t count_of_parts = group_.gated ? 2 : 1;
  PlannedPart* const shared[2] = {&part, group_.gated ? &parts_[1] : nullptr};
  const void* weights[2] = {};
  alignas(64) float scales[2][kWideTile];
  for (std::size_t i = 0; i < count_of_parts; ++i) {
    std::byte* buffer = own + i * (sums_offset_ / count_of_parts);
    weights[i] = wide_weights(*shared[i], first, buffer);
    for (int64_t n = 0; n < part.wide_tile; ++n) {
      scales[i][n] = row_scale(shared[i]->weight, first + n);
      if (group_.x_scale > 0) scales[i][n] *= group_.x_scale;
    }
  }
  for (int64_t row = first_row; row < last_row;) {
    const WideProduct::Block block = part.wide->block(row, std::min(active, last_row), group_.rows);
    const int64_t end = std::min(last_row, block.end());
    float* outs[2] = {sums, sums + kWideBlock * part.wide_tile};
    for (std::size_t i = 0; i < count_of_parts; ++i) {
      const void* x = shared[i]->wide_dtype == group_.x_dtype
                          ? element(group_.x_dtype, group_.x, block.first * group_.x_stride)
                          : static_cast<const void*>(x_float + block.first * cols_);
      shared[i]->wide->run(worker, block.rows, x, weights[i], outs[i], own + scratchpad_offset_);
    }
    for (; row < end; ++row) {
      const int64_t at = (row - block.first) * part.wide_tile + skipped;
      if (group_.gated) {
        finish_gated(row, wanted, count, outs[0] + at, scales[0] + skipped, outs[1] + at,
                     scales[1] + skipped);
      } else {
        finish(part, row, wanted, count, outs[0] + at, scales[0] + skipped);
      }
    }
  }
}

// The tile's weights in the type of the multiplication: in place, or widened into `buffer`.
const void* GroupNode::wide_weights(const PlannedPart& part, int64_t first,
                                    std::byte* buffer) const noexcept {
  if (!part.widened) return weight_row(part.weight, first);
  widen_(part.weight, first, part.wide_tile, part.wide_dtype, buffer);
  return buffer;
}

// ---- results ---------------------------------------------------------------------------------

void GroupNode::finish(const PlannedPart& part, int64_t row, int64_t first, int64_t count,
                       const float* sums, const float* scales) const noexcept {
  const PartFinish& after = part.finish;
  RowFinish finish;
  finish.activation = after.activation;
  finish.accumulate = part.accumulate;
  if (after.bias) finish.bias = after.bias + first;
  if (after.gate.rows) {
    finish.gate = modulation_of(after.gate, row) + 2 * part.outputs() + first;
  }
  if (after.addend) {
    finish.addend = after.addend + row % after.addend_rows * part.outputs() + first;
  }
  void* y = element(part.y_dtype, part.y, row * part.y_stride + first);
  if (part.y_scale > 0) {
    alignas(64) float wide[kNarrowTile];
    finish_row(reference_, count, sums, scales, finish, FRT_DTYPE_F32, wide);
    store_scaled(count, wide, part.y_scale, y);
  } else {
    finish_row(reference_, count, sums, scales, finish, part.y_dtype, y);
  }
}

void GroupNode::finish_gated(int64_t row, int64_t first, int64_t count, const float* gate,
                             const float* gate_scales, const float* up,
                             const float* up_scales) const noexcept {
  static_assert(kNarrowTile >= kWideTile);
  const PlannedPart& part = parts_[0];
  const frt_dtype dtype = part.y_scale > 0 ? FRT_DTYPE_F32 : part.y_dtype;
  alignas(64) float rounded[2][kNarrowTile];  // as dtype
  store_row(reference_, count, gate, gate_scales, dtype, false, rounded[0]);
  store_row(reference_, count, up, up_scales, dtype, false, rounded[1]);
  void* y = element(part.y_dtype, part.y, row * part.y_stride + first);
  if (part.y_scale > 0) {
    binary_row(reference_, group_.gate, count, dtype, rounded[0], rounded[1], rounded[0]);
    store_scaled(count, rounded[0], part.y_scale, y);
  } else {
    binary_row(reference_, group_.gate, count, dtype, rounded[0], rounded[1], y);
  }
}

}  // namespace

std::unique_ptr<Node> make_group_node(Device& device, Group group) {
  return std::make_unique<GroupNode>(device, std::move(group));
}

}  // namespace frt::cpu
