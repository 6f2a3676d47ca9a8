// SPDX-License-Identifier: Apache-2.0
// Working memory of an engine. Nothing is shared between parts: rows beyond a length keep what they
// had, and stay finite only if nobody else ever wrote there with another type.
#include "engine.hpp"

#include <algorithm>
#include <frt/error.hpp>
#include <string>

namespace frt::pi05 {
namespace {

class Cursor {
 public:
  explicit Cursor(std::byte* base) : base_(base) {}
  void* take(frt_dtype dtype, std::int64_t elements) {
    const std::uint64_t at = offset_;
    offset_ += (bytes_of(dtype, elements) + 255) / 256 * 256;
    return base_ ? base_ + at : nullptr;
  }
  template <class Element>
  Element* take(frt_dtype dtype, std::int64_t elements) {
    return static_cast<Element*>(take(dtype, elements));
  }
  std::uint64_t bytes() const { return offset_; }

 private:
  std::byte* base_;
  std::uint64_t offset_ = 0;
};

std::vector<std::string> needed_operators() {
  return {FRT_OP_PACK_VIEWS,  FRT_OP_PATCH_EMBED,     FRT_OP_NORM_DENSE, FRT_OP_NORM_GEGLU,
          FRT_OP_NORM_QKV,    FRT_OP_DENSE_ATTENTION, FRT_OP_DENSE,      FRT_OP_ROW_NORM,
          FRT_OP_EMBED_ROWS,  FRT_OP_CONVERT,         FRT_OP_FLOW_START, FRT_OP_FLOW_INPUT,
          FRT_OP_FLOW_OUTPUT, FRT_OP_FLOW_UPDATE,     FRT_OP_FLOW_STEP,  FRT_OP_FLOW_LAYERS};
}

// Those that must take FP8 activations.
std::vector<std::string> fp8_operators() {
  return {FRT_OP_NORM_DENSE, FRT_OP_NORM_GEGLU, FRT_OP_DENSE_ATTENTION, FRT_OP_DENSE};
}

}  // namespace

std::int64_t Setup::max_steps() const {
  return *std::max_element(steps.begin(), steps.end());
}

std::uint64_t Engine::lay_out(Memory& m, std::byte* base, const Config& config,
                              const Precision& precision, const Setup& s) {
  const Dims& d = config.dims;
  Cursor cursor(base);
  const frt_dtype a = precision.activation;
  const frt_dtype r = precision.residual;
  const std::int64_t image = s.views * d.cells();
  const std::int64_t rows = s.branches * (image + s.max_prompt);
  const std::int64_t expert = s.branches * s.samples * s.horizon;

  m.patches = cursor.take(a, image * d.patch_columns());
  m.vision_x = cursor.take(r, image * d.vision_width);
  m.vision_normed = cursor.take(a, image * d.vision_width);
  m.vision_last = cursor.take(a, image * d.vision_width);
  m.vision_qkv = cursor.take(a, image * 3 * d.vision_width);
  m.vision_y = cursor.take(a, image * d.vision_width);
  m.vision_h = cursor.take(a, image * d.vision_mlp);

  m.x = cursor.take(r, rows * d.width);
  m.normed = cursor.take(a, rows * d.width);
  m.q = cursor.take(a, rows * d.query_width());
  m.y = cursor.take(a, rows * d.query_width());
  m.gate = cursor.take(a, rows * d.mlp);
  m.h = cursor.take(a, rows * d.mlp);

  m.expert_x = cursor.take(r, expert * d.expert_width);
  m.expert_normed = cursor.take(a, expert * d.expert_width);
  m.expert_q = cursor.take(a, expert * d.query_width());
  m.expert_kv = cursor.take(a, expert * 2 * d.head_dim);
  m.expert_y = cursor.take(a, expert * d.query_width());
  m.expert_gate = cursor.take(a, expert * d.expert_mlp);
  m.expert_h = cursor.take(a, expert * d.expert_mlp);
  m.v = cursor.take<float>(FRT_DTYPE_F32, expert * d.action_dim);
  m.velocity = cursor.take<float>(FRT_DTYPE_F32, s.samples * s.horizon * d.action_dim);

  m.view = cursor.take<std::int32_t>(FRT_DTYPE_I32, s.views);
  m.view_rows = cursor.take<std::int32_t>(FRT_DTYPE_I32, s.views);
  m.image_rows = cursor.take<std::int32_t>(FRT_DTYPE_I32, 1);
  m.image_length = cursor.take<std::int32_t>(FRT_DTYPE_I32, 1);
  m.clean_rows = cursor.take<std::int32_t>(FRT_DTYPE_I32, 1);
  return cursor.bytes();
}

std::uint64_t Engine::bytes(const Config& config, const Precision& precision, const Setup& setup) {
  Memory unused;
  const Dims& d = config.dims;
  const std::int64_t positions = setup.views * d.cells() + setup.max_prompt + setup.horizon;
  std::int64_t tables = 0;
  for (const std::int64_t steps : setup.steps) {
    tables += (steps + 1) * d.modulations() * 3 * d.expert_width;
  }
  return lay_out(unused, nullptr, config, precision, setup) +
         bytes_of(FRT_DTYPE_F32, positions * d.head_dim + tables) +
         EpisodeState::bytes(config, precision, setup);
}

Engine::Engine(const frt_state_v1* states, const Context& context, const Config& config,
               const Weights& weights, const WeightSource& source, const Precision& precision,
               const Setup& setup)
    : context_(context),
      dims_(config.dims),
      weights_(weights),
      precision_(precision),
      setup_(setup),
      ops_(context, KernelTypes(precision.activation), weights.formats, needed_operators()),
      stream_(context.create_stream("pi05")),
      state_(states, context, config, precision, setup),
      ports_(state_.ports()) {
  if (weights.fp8) {
    const Operators check(context, {FRT_DTYPE_BIT(FRT_DTYPE_F8_E4M3), 0}, weights.formats,
                          fp8_operators());
  }
  Memory sized;
  memory_ = context.alloc(FRT_SPACE_DEVICE, lay_out(sized, nullptr, config, precision, setup),
                          "activations");
  lay_out(m_, memory_.pointer<std::byte>(), config, precision, setup);
  m_.tokens = state_.image_tokens();
  m_.context = state_.context_rows();
  m_.length = state_.length();
  const Recorder recorder(stream_);
  recorder.fill(memory_, 0, memory_.bytes(), 0);

  const std::vector<float> table = rope_table(positions(), dims_.head_dim);
  rope_ = context.alloc(FRT_SPACE_DEVICE, table.size() * sizeof(float), "rope");
  rope_.upload(table, stream_);
  m_.rope = rope_.pointer<float>();

  // One pass over the time weights for all step counts.
  std::vector<double> times;
  for (const std::int64_t steps : setup_.steps) {
    const std::vector<double> own = step_times(steps);
    times.insert(times.end(), own.begin(), own.end());
  }
  const TimeTables all = make_time_tables(config, source, times);
  const auto width = static_cast<std::size_t>(dims_.expert_width);
  const std::size_t row = static_cast<std::size_t>(dims_.modulations()) * 3 * width;
  std::size_t first = 0;
  for (const std::int64_t steps : setup_.steps) {
    const auto count = static_cast<std::size_t>(steps + 1);
    const auto part = [&](const std::vector<float>& values, std::size_t each) {
      const auto begin = values.begin() + static_cast<std::ptrdiff_t>(first * each);
      return std::vector<float>(begin, begin + static_cast<std::ptrdiff_t>(count * each));
    };
    StepTables& own = tables_[steps];
    own.host.modulations = part(all.modulations, row);
    own.host.conditions = part(all.conditions, width);
    own.device = context.alloc(FRT_SPACE_DEVICE, count * row * sizeof(float), "modulations");
    own.device.upload(own.host.modulations, stream_);
    first += count;
  }
}

std::vector<Engine::BranchRange> Engine::passes(const Variant& variant) const {
  if (setup_.guidance == Guidance::kFused) return {{0, variant.branches}};
  std::vector<BranchRange> list;
  for (std::int64_t branch = 0; branch < variant.branches; ++branch) list.push_back({branch, 1});
  return list;
}

void* Engine::context_rows(std::int64_t layer, const Variant& variant, std::int64_t branch) const {
  const std::int64_t all = setup_.branches * (setup_.views * dims_.cells() + setup_.max_prompt);
  return rows_of(m_.context, precision_.activation, layer * all + branch * capacity(variant),
                 2 * dims_.head_dim);
}

frt_modulation Engine::modulation(const Variant& variant, std::int64_t step,
                                  std::int64_t norm) const {
  const float* table = tables_.at(variant.steps).device.pointer<float>();
  const auto at = [&](std::int64_t row) {
    return table + (row * dims_.modulations() + norm) * 3 * dims_.expert_width;
  };
  frt_modulation modulation{};
  modulation.rows = at(step);
  modulation.clean = at(variant.steps);
  modulation.clean_rows = m_.clean_rows;
  modulation.period = static_cast<std::int32_t>(setup_.horizon);
  return modulation;
}

}  // namespace frt::pi05
