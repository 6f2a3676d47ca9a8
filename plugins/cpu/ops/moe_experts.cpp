// SPDX-License-Identifier: Apache-2.0
// frt.moe_experts/1: the chosen experts of every row.
//
// An assignment is one (row, j): the row goes through its j-th expert. Assignments are sorted by
// expert; a task is one tile of one expert's weights, and serves all of the expert's assignments,
// kGemvRows at a time, while the tile is in cache. So decoding reads the chosen experts once and
// nothing else, and prefilling reads each expert once.
//
//   panels   x -> panels                                            one task per row
//   hidden   silu(gate x) * (up x), rounded to the activations' type -> panels
//                                                 tasks: (expert in use, 128 columns of width)
//   down     -> f32, one row per assignment        tasks: (expert in use, 64 columns of inputs)
//   mix      weighted sum over j in order, one rounding             one task per row
//
// Ids outside 0 .. experts contribute nothing.
#include <algorithm>
#include <array>

#include "../device.hpp"
#include "active.hpp"
#include "elementwise.hpp"
#include "moe.hpp"
#include "numbers.hpp"
#include "products/gemv.hpp"
#include "products/weight.hpp"

namespace frt::cpu {
namespace {

// Hands out aligned pieces of the scratch; the same calls give the sizes and the pointers.
class Layout {
 public:
  std::size_t take(int64_t bytes) noexcept {
    const std::size_t at = size_;
    size_ += (static_cast<std::size_t>(bytes) + 63) / 64 * 64;
    return at;
  }
  std::size_t size() const noexcept { return size_; }

 private:
  std::size_t size_ = 0;
};

class MoeExpertsNode final : public Node {
 public:
  MoeExpertsNode(Device& device, const frt_moe_experts_args& args);
  std::size_t scratch_bytes() const noexcept override { return bytes_; }
  void run(Pool& pool, std::byte* scratch) noexcept override;

 private:
  // What a run keeps in its scratch.
  struct State {
    std::byte* scratch;
    int32_t* first;   // (experts + 1) assignments of expert e: order[first[e] .. first[e + 1])
    int32_t* order;   // assignments (row * experts_per_token + j), by expert
    int32_t* active;  // experts with assignments
    int64_t active_count;
    std::byte* hidden;  // panels of the down product, one row per assignment
    float* results;     // (assignments, inputs)
  };

  State sort(int64_t rows, std::byte* scratch) const noexcept;
  void hidden_tile(const State& state, int32_t expert, int64_t tile) const noexcept;
  void down_tile(const State& state, int32_t expert, int64_t tile) const noexcept;
  const void* x_panel(const State& state, PanelKind kind, int32_t assignment) const noexcept;

  frt_moe_experts_args args_;
  ExpertWeights gates_, ups_, downs_;
  bool reference_;
  int64_t inputs_;
  int64_t width_;
  GemvKernel gate_, up_, down_;
  std::array<bool, kPanelKinds> panel_used_{};
  std::array<std::size_t, kPanelKinds> panel_offset_{};
  std::array<int64_t, kPanelKinds> panel_stride_{};
  int64_t hidden_stride_;
  std::size_t first_offset_ = 0, order_offset_ = 0, active_offset_ = 0;
  std::size_t hidden_offset_ = 0, results_offset_ = 0;
  std::size_t bytes_ = 0;
};

MoeExpertsNode::MoeExpertsNode(Device& device, const frt_moe_experts_args& args)
    : args_(args),
      gates_(args.gate),
      ups_(args.up),
      downs_(args.down),
      reference_(device.reference_numerics()),
      inputs_(args.gate.expert.cols),
      width_(args.gate.expert.rows),
      gate_(gemv_kernel(device, gates_.expert, args.dtype)),
      up_(gemv_kernel(device, ups_.expert, args.dtype)),
      down_(gemv_kernel(device, downs_.expert, args.dtype)),
      hidden_stride_(panel_row_bytes(down_.panel, width_)) {
  const int64_t assignments = static_cast<int64_t>(args.rows) * args.experts_per_token;
  Layout layout;
  first_offset_ = layout.take((args.experts + 1) * int64_t{4});
  order_offset_ = layout.take(assignments * 4);
  active_offset_ = layout.take(args.experts * int64_t{4});
  for (const PanelKind used : {gate_.panel, up_.panel}) {
    const auto kind = static_cast<std::size_t>(used);
    if (panel_used_[kind]) continue;
    panel_used_[kind] = true;
    panel_stride_[kind] = panel_row_bytes(used, inputs_);
    panel_offset_[kind] = layout.take(panel_stride_[kind] * args.rows);
  }
  hidden_offset_ = layout.take(hidden_stride_ * assignments);
  results_offset_ = layout.take(assignments * inputs_ * 4);
  bytes_ = layout.size();
}

// A counting sort: assignments of one expert stay in rising order.
MoeExpertsNode::State MoeExpertsNode::sort(int64_t rows, std::byte* scratch) const noexcept {
  State state{scratch,
              reinterpret_cast<int32_t*>(scratch + first_offset_),
              reinterpret_cast<int32_t*>(scratch + order_offset_),
              reinterpret_cast<int32_t*>(scratch + active_offset_),
              0,
              scratch + hidden_offset_,
              reinterpret_cast<float*>(scratch + results_offset_)};
  const auto assignments = static_cast<int32_t>(rows * args_.experts_per_token);
  const auto valid = [&](int32_t id) { return id >= 0 && id < args_.experts; };
  std::fill_n(state.first, args_.experts + 1, 0);
  for (int32_t i = 0; i < assignments; ++i) {
    if (valid(args_.ids[i])) {
      ++state.first[args_.ids[i]];
    } else {
      std::fill_n(state.results + i * inputs_, inputs_, 0.0f);
    }
  }
  int32_t sum = 0;
  for (int32_t e = 0; e < args_.experts; ++e) {
    if (state.first[e] > 0) state.active[state.active_count++] = e;
    sum += state.first[e];
    state.first[e] = sum;  // one past the expert's last; moves down to its first below
  }
  state.first[args_.experts] = sum;
  for (int32_t i = assignments; i-- > 0;) {
    if (valid(args_.ids[i])) state.order[--state.first[args_.ids[i]]] = i;
  }
  return state;
}

const void* MoeExpertsNode::x_panel(const State& state, PanelKind kind,
                                    int32_t assignment) const noexcept {
  const auto index = static_cast<std::size_t>(kind);
  return state.scratch + panel_offset_[index] +
         assignment / args_.experts_per_token * panel_stride_[index];
}

// A tile is one block of the down product's panel, so the panel's order can be made here.
void MoeExpertsNode::hidden_tile(const State& state, int32_t expert, int64_t tile) const noexcept {
  const Weight gate = gates_.of(expert);
  const Weight up = ups_.of(expert);
  const int64_t column = tile * kPanelBlock;
  const int64_t end = std::min(width_, column + kPanelBlock);
  for (int32_t i = state.first[expert]; i < state.first[expert + 1]; i += kGemvRows) {
    const int64_t block = std::min<int64_t>(kGemvRows, state.first[expert + 1] - i);
    const void* gate_x[kGemvRows];
    const void* up_x[kGemvRows];
    for (int64_t m = 0; m < block; ++m) {
      gate_x[m] = x_panel(state, gate_.panel, state.order[i + m]);
      up_x[m] = x_panel(state, up_.panel, state.order[i + m]);
    }
    alignas(64) float hidden[kGemvRows][kPanelBlock];  // as dtype
    for (int64_t first = column; first < end; first += kGemvTile) {
      const int64_t count = std::min(kGemvTile, end - first);
      alignas(64) float sums[2][kGemvRows * kGemvTile];
      gate_.function(gate, first, count, gate_x, block, sums[0], kGemvTile);
      up_.function(up, first, count, up_x, block, sums[1], kGemvTile);
      for (int64_t m = 0; m < block; ++m) {
        alignas(64) float rounded[2][kGemvTile];  // as dtype
        for (int64_t part = 0; part < 2; ++part) {
          store_row(reference_, count, sums[part] + m * kGemvTile, nullptr, args_.dtype, false,
                    rounded[part]);
        }
        binary_row(reference_, Binary::kSiluMul, count, args_.dtype, rounded[0], rounded[1],
                   element(args_.dtype, hidden[m], first - column));
      }
    }
    for (int64_t m = 0; m < block; ++m) {
      std::byte* row = state.hidden + state.order[i + m] * hidden_stride_;
      fill_panel_row(down_.panel, args_.dtype, hidden[m], end - column,
                     row + panel_row_bytes(down_.panel, column));
    }
  }
}

void MoeExpertsNode::down_tile(const State& state, int32_t expert, int64_t tile) const noexcept {
  const Weight down = downs_.of(expert);
  const int64_t column = tile * kGemvTile;
  const int64_t count = std::min(kGemvTile, inputs_ - column);
  for (int32_t i = state.first[expert]; i < state.first[expert + 1]; i += kGemvRows) {
    const int64_t block = std::min<int64_t>(kGemvRows, state.first[expert + 1] - i);
    const void* x[kGemvRows];
    for (int64_t m = 0; m < block; ++m) x[m] = state.hidden + state.order[i + m] * hidden_stride_;
    alignas(64) float sums[kGemvRows * kGemvTile];
    down_.function(down, column, count, x, block, sums, kGemvTile);
    for (int64_t m = 0; m < block; ++m) {
      std::copy_n(sums + m * kGemvTile, count,
                  state.results + state.order[i + m] * inputs_ + column);
    }
  }
}

void MoeExpertsNode::run(Pool& pool, std::byte* scratch) noexcept {
  const int64_t rows = active_rows(args_.rows, args_.row_count);
  if (rows == 0) return;
  const State state = sort(rows, scratch);
  pool.run(rows, [&](int64_t row, int) {
    const void* x = element(args_.dtype, args_.x, row * inputs_);
    for (std::size_t kind = 0; kind < panel_used_.size(); ++kind) {
      if (!panel_used_[kind]) continue;
      fill_panel_row(static_cast<PanelKind>(kind), args_.dtype, x, inputs_,
                     scratch + panel_offset_[kind] + row * panel_stride_[kind]);
    }
  });
  const int64_t hidden_tiles = (width_ + kPanelBlock - 1) / kPanelBlock;
  pool.run(state.active_count * hidden_tiles, [&](int64_t task, int) {
    hidden_tile(state, state.active[task / hidden_tiles], task % hidden_tiles);
  });
  const int64_t down_tiles = (inputs_ + kGemvTile - 1) / kGemvTile;
  pool.run(state.active_count * down_tiles, [&](int64_t task, int) {
    down_tile(state, state.active[task / down_tiles], task % down_tiles);
  });
  pool.run(rows, [&](int64_t row, int) {
    mix_row(reference_, inputs_, args_.experts_per_token,
            args_.weights + row * args_.experts_per_token,
            state.results + row * args_.experts_per_token * inputs_, args_.dtype,
            element(args_.dtype, args_.y, row * inputs_));
  });
}

}  // namespace

std::unique_ptr<Node> make_moe_experts(Device& device, const frt_moe_experts_args& args) {
  return std::make_unique<MoeExpertsNode>(device, args);
}

}  // namespace frt::cpu
