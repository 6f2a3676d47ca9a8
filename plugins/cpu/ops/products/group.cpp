// SPDX-License-Identifier: Apache-2.0
// The group node. Scratch of one run:
//
//   GEMV     panels: for every kind in use (rows, panel_row_bytes)
//   GEMM     x as f32 (rows, columns), if some part needs it
//            per worker: weight tile (kGemmTile, columns) if some part is dequantised; the sums of
//            a block (kGemmBlock, tile), twice if gated; oneDNN's scratchpad
//   either   per worker: a normed row in f32, if x is f8_e4m3
//
// A worker finishes its tile: sums live in its cache until they are rounded into y.
#include "group.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "../active.hpp"
#include "../elementwise.hpp"
#include "../rms.hpp"
#include "../row_norm.hpp"
#include "dequantise.hpp"
#include "gemm.hpp"
#include "gemv.hpp"
#include "weight.hpp"

namespace frt::cpu {
namespace {

constexpr int64_t kTaskBytes = 1024 * 1024;  // of stored weights: far more than a task costs
constexpr int64_t kTasksPerWorker = 4;
constexpr int64_t kLeastRows = 8;

std::size_t aligned(std::size_t bytes) noexcept {
  return (bytes + 63) / 64 * 64;
}

// One part with what was decided about it at prepare.
struct PlannedPart : GroupPart {
  GemvKernel gemv{};
  int64_t gemv_rows = 0;  // weight rows per task
  int64_t gemv_tasks = 0;

  frt_dtype gemm_dtype = FRT_DTYPE_F32;  // of the multiplication
  bool dequantised = false;              // the weight goes through the tile buffer
  int64_t gemm_tile = 0;
  int64_t gemm_tiles = 0;
  std::unique_ptr<Gemm> gemm;

  int64_t outputs() const noexcept { return weight.rows; }
};

class GroupNode final : public Node {
 public:
  GroupNode(Device& device, Group group);
  std::size_t scratch_bytes() const noexcept override { return scratch_bytes_; }
  void run(Pool& pool, std::byte* scratch) noexcept override;

 private:
  void plan_gemv(const Device& device, int workers);
  void plan_gemm(const Device& device, int workers);
  void prepare_row(int64_t row, int worker, std::byte* scratch) const noexcept;

  void run_gemv(Pool& pool, int64_t rows, std::byte* scratch) const noexcept;
  void run_gemv_tile(const PlannedPart& part, int64_t first, int64_t count, int64_t rows,
                     const std::byte* panels) const noexcept;
  void run_gemm(Pool& pool, int64_t rows, std::byte* scratch) noexcept;
  void run_gemm_tile(PlannedPart& part, int64_t tile, int64_t first_row, int64_t last_row,
                     int64_t active, int worker, const float* x_float, std::byte* scratch) noexcept;
  const void* gemm_weights(const PlannedPart& part, int64_t first,
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
  DequantiseFunction dequantise_;

  int64_t gemv_limit_ = 0;  // rows up to which the GEMV kernels are used
  std::array<bool, kPanelKinds> panel_used_{};
  std::array<std::size_t, kPanelKinds> panel_offset_{};
  std::array<int64_t, kPanelKinds> panel_stride_{};
  int64_t gemv_tasks_ = 0;

  bool float_x_ = false;  // bf16 activations are converted for some GEMM
  int64_t gemm_tasks_ = 0;
  std::size_t worker_offset_ = 0;
  std::size_t worker_bytes_ = 0;
  std::size_t sums_offset_ = 0;
  std::size_t scratchpad_offset_ = 0;
  std::size_t normed_offset_ = 0;
  std::size_t scratch_bytes_ = 0;

  alignas(64) std::array<float, kGemvTile> x_scales_{};  // x_scale, for every column
};

GroupNode::GroupNode(Device& device, Group group)
    : group_(std::move(group)),
      reference_(device.reference_numerics()),
      cols_(group_.parts.front().weight.cols),
      listed_(group_.gated ? 1 : group_.parts.size()),
      dequantise_(dequantise_function()) {
  for (const GroupPart& part : group_.parts) {
    PlannedPart planned;
    static_cast<GroupPart&>(planned) = part;
    parts_.push_back(std::move(planned));
  }
  const int workers = device.options().threads;
  const bool gemm = !reference_ && device.isa() >= Isa::kAvx2 && group_.rows > kGemvRows;
  gemv_limit_ = gemm ? kGemvRows : group_.rows;
  plan_gemv(device, workers);
  if (gemm) plan_gemm(device, workers);
  x_scales_.fill(group_.x_scale);
  normed_offset_ = aligned(scratch_bytes_);
  if (group_.x_scale > 0 && group_.norm_source) {
    scratch_bytes_ = normed_offset_ + static_cast<std::size_t>(workers * cols_) * sizeof(float);
  }
}

void GroupNode::plan_gemv(const Device& device, int workers) {
  int64_t bytes = 0;
  for (const PlannedPart& part : parts_) {
    bytes += packed_bytes(part.weight, cols_) * part.outputs();
  }
  const int64_t share = std::clamp(bytes / (kTasksPerWorker * workers), int64_t{1}, kTaskBytes);
  std::size_t offset = 0;
  for (PlannedPart& part : parts_) {
    part.gemv = gemv_kernel(device, part.weight, group_.x_dtype);
    const int64_t rows = share / std::max<int64_t>(1, packed_bytes(part.weight, cols_));
    part.gemv_rows = rows >= kGemvTile ? rows / kGemvTile * kGemvTile
                                       : std::max(rows / kLeastRows, int64_t{1}) * kLeastRows;
    const auto kind = static_cast<std::size_t>(part.gemv.panel);
    if (panel_used_[kind]) continue;
    panel_used_[kind] = true;
    panel_stride_[kind] = panel_row_bytes(part.gemv.panel, cols_);
    panel_offset_[kind] = offset;
    offset += static_cast<std::size_t>(panel_stride_[kind] * gemv_limit_);
  }
  for (std::size_t i = 0; i < listed_; ++i) {
    PlannedPart& part = parts_[i];
    part.gemv_tasks = (part.outputs() + part.gemv_rows - 1) / part.gemv_rows;
    gemv_tasks_ += part.gemv_tasks;
  }
  scratch_bytes_ = std::max(scratch_bytes_, offset);
}

void GroupNode::plan_gemm(const Device& device, int workers) {
  const bool bf16 = group_.x_dtype == FRT_DTYPE_BF16 && device.isa() >= Isa::kAvx512Bf16;
  bool dequantised = false;
  std::size_t scratchpad = 0;
  int64_t tile = 0;
  std::size_t tile_bytes = 0;
  for (PlannedPart& part : parts_) {
    part.gemm_dtype = bf16 && part.weight.type != WeightType::kF32 ? FRT_DTYPE_BF16 : FRT_DTYPE_F32;
    part.dequantised = part.weight.type !=
                       (part.gemm_dtype == FRT_DTYPE_BF16 ? WeightType::kBf16 : WeightType::kF32);
    part.gemm_tile = std::min<int64_t>(kGemmTile, part.outputs());
    part.gemm_tiles = (part.outputs() + part.gemm_tile - 1) / part.gemm_tile;
    const bool float_x = part.gemm_dtype != group_.x_dtype;
    float_x_ |= float_x;
    part.gemm = std::make_unique<Gemm>(part.gemm_dtype, group_.rows, cols_,
                                       float_x ? cols_ : group_.x_stride, part.gemm_tile, workers);
    dequantised |= part.dequantised;
    scratchpad = std::max(scratchpad, part.gemm->scratchpad_bytes());
    tile = std::max(tile, part.gemm_tile);
    tile_bytes = std::max(tile_bytes, static_cast<std::size_t>(part.gemm_tile * cols_ *
                                                               element_bytes(part.gemm_dtype)));
  }
  for (std::size_t i = 0; i < listed_; ++i) gemm_tasks_ += parts_[i].gemm_tiles;

  const std::size_t tiles = group_.gated ? 2 : 1;
  worker_offset_ = float_x_ ? aligned(static_cast<std::size_t>(group_.rows * cols_ * 4)) : 0;
  sums_offset_ = dequantised ? aligned(tile_bytes) * tiles : 0;
  scratchpad_offset_ =
      sums_offset_ + aligned(static_cast<std::size_t>(kGemmBlock * tile) * sizeof(float)) * tiles;
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
  if (rows <= gemv_limit_) {
    run_gemv(pool, rows, scratch);
  } else {
    run_gemm(pool, rows, scratch);
  }
}

// ---- GEMV ------------------------------------------------------------------------------------

void GroupNode::run_gemv(Pool& pool, int64_t rows, std::byte* scratch) const noexcept {
  pool.run(rows, [&](int64_t row, int worker) {
    prepare_row(row, worker, scratch);
    const void* x = element(group_.x_dtype, group_.x, row * group_.x_stride);
    for (std::size_t kind = 0; kind < panel_used_.size(); ++kind) {
      if (!panel_used_[kind]) continue;
      fill_panel_row(static_cast<PanelKind>(kind), group_.x_dtype, x, cols_,
                     scratch + panel_offset_[kind] + row * panel_stride_[kind]);
    }
  });
  pool.run(gemv_tasks_, [&](int64_t task, int) {
    for (std::size_t i = 0; i < listed_; ++i) {
      const PlannedPart& part = parts_[i];
      if (task >= part.gemv_tasks) {
        task -= part.gemv_tasks;
        continue;
      }
      const int64_t end = std::min(part.outputs(), (task + 1) * part.gemv_rows);
      for (int64_t first = task * part.gemv_rows; first < end; first += kGemvTile) {
        run_gemv_tile(part, first, std::min(kGemvTile, end - first), rows, scratch);
      }
      return;
    }
  });
}

void GroupNode::run_gemv_tile(const PlannedPart& part, int64_t first, int64_t count, int64_t rows,
                              const std::byte* panels) const noexcept {
  alignas(64) float sums[2][kGemvRows * kGemvTile];
  const auto multiply = [&](const PlannedPart& one, int64_t row, int64_t block, float* out) {
    const auto kind = static_cast<std::size_t>(one.gemv.panel);
    const void* x[kGemvRows];
    for (int64_t m = 0; m < block; ++m) {
      x[m] = panels + panel_offset_[kind] + (row + m) * panel_stride_[kind];
    }
    one.gemv.function(one.weight, first, count, x, block, out, kGemvTile);
  };
  const float* scales = group_.x_scale > 0 ? x_scales_.data() : nullptr;
  for (int64_t row = 0; row < rows; row += kGemvRows) {
    const int64_t block = std::min(kGemvRows, rows - row);
    multiply(part, row, block, sums[0]);
    if (group_.gated) multiply(parts_[1], row, block, sums[1]);
    for (int64_t m = 0; m < block; ++m) {
      const float* values = sums[0] + m * kGemvTile;
      if (group_.gated) {
        finish_gated(row + m, first, count, values, scales, sums[1] + m * kGemvTile, scales);
      } else {
        finish(part, row + m, first, count, values, scales);
      }
    }
  }
}

// ---- GEMM ------------------------------------------------------------------------------------

void GroupNode::run_gemm(Pool& pool, int64_t rows, std::byte* scratch) noexcept {
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
  const int64_t cuts = std::clamp((wanted + gemm_tasks_ - 1) / gemm_tasks_, int64_t{1},
                                  (rows + kGemmTile - 1) / kGemmTile);
  const int64_t cut = ((rows + cuts - 1) / cuts + kGemmRows - 1) / kGemmRows * kGemmRows;
  pool.run(gemm_tasks_ * cuts, [&](int64_t task, int worker) {
    const int64_t first_row = task % cuts * cut;
    const int64_t last_row = std::min(rows, first_row + cut);
    int64_t tile = task / cuts;
    for (std::size_t i = 0; i < listed_; ++i) {
      if (tile < parts_[i].gemm_tiles) {
        return run_gemm_tile(parts_[i], tile, first_row, last_row, rows, worker, x_float, scratch);
      }
      tile -= parts_[i].gemm_tiles;
    }
  });
}

void GroupNode::run_gemm_tile(PlannedPart& part, int64_t tile, int64_t first_row, int64_t last_row,
                              int64_t active, int worker, const float* x_float,
                              std::byte* scratch) noexcept {
  std::byte* own = scratch + worker_offset_ + worker_bytes_ * static_cast<std::size_t>(worker);
  auto* sums = reinterpret_cast<float*>(own + sums_offset_);
  // The last tile begins early, so that all have the same size; its first columns are skipped.
  const int64_t wanted = tile * part.gemm_tile;
  const int64_t first = std::min(wanted, part.outputs() - part.gemm_tile);
  const int64_t skipped = wanted - first;
  const int64_t count = part.gemm_tile - skipped;

  const std::size_t count_of_parts = group_.gated ? 2 : 1;
  PlannedPart* const shared[2] = {&part, group_.gated ? &parts_[1] : nullptr};
  const void* weights[2] = {};
  alignas(64) float scales[2][kGemmTile];
  for (std::size_t i = 0; i < count_of_parts; ++i) {
    std::byte* buffer = own + i * (sums_offset_ / count_of_parts);
    weights[i] = gemm_weights(*shared[i], first, buffer);
    for (int64_t n = 0; n < part.gemm_tile; ++n) {
      scales[i][n] = row_scale(shared[i]->weight, first + n);
      if (group_.x_scale > 0) scales[i][n] *= group_.x_scale;
    }
  }
  for (int64_t row = first_row; row < last_row;) {
    const Gemm::Block block = part.gemm->block(row, std::min(active, last_row), group_.rows);
    const int64_t end = std::min(last_row, block.end());
    float* outs[2] = {sums, sums + kGemmBlock * part.gemm_tile};
    for (std::size_t i = 0; i < count_of_parts; ++i) {
      const void* x = shared[i]->gemm_dtype == group_.x_dtype
                          ? element(group_.x_dtype, group_.x, block.first * group_.x_stride)
                          : static_cast<const void*>(x_float + block.first * cols_);
      shared[i]->gemm->run(worker, block.rows, x, weights[i], outs[i], own + scratchpad_offset_);
    }
    for (; row < end; ++row) {
      const int64_t at = (row - block.first) * part.gemm_tile + skipped;
      if (group_.gated) {
        finish_gated(row, wanted, count, outs[0] + at, scales[0] + skipped, outs[1] + at,
                     scales[1] + skipped);
      } else {
        finish(part, row, wanted, count, outs[0] + at, scales[0] + skipped);
      }
    }
  }
}

// The tile's weights in the type of the multiplication: in place, or dequantised into `buffer`.
const void* GroupNode::gemm_weights(const PlannedPart& part, int64_t first,
                                    std::byte* buffer) const noexcept {
  if (!part.dequantised) return weight_row(part.weight, first);
  dequantise_(part.weight, first, part.gemm_tile, part.gemm_dtype, buffer);
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
    alignas(64) float values[kGemvTile];
    finish_row(reference_, count, sums, scales, finish, FRT_DTYPE_F32, values);
    store_scaled(count, values, part.y_scale, y);
  } else {
    finish_row(reference_, count, sums, scales, finish, part.y_dtype, y);
  }
}

void GroupNode::finish_gated(int64_t row, int64_t first, int64_t count, const float* gate,
                             const float* gate_scales, const float* up,
                             const float* up_scales) const noexcept {
  static_assert(kGemvTile >= kGemmTile);
  const PlannedPart& part = parts_[0];
  const frt_dtype dtype = part.y_scale > 0 ? FRT_DTYPE_F32 : part.y_dtype;
  alignas(64) float rounded[2][kGemvTile];  // as dtype
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
