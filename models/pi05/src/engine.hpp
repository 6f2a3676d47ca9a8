// SPDX-License-Identifier: Apache-2.0
// engine.hpp - the memory one policy computes in, and the computation itself as operator calls.
//
//   vision    images, mask -> image tokens
//   prefix    image tokens, prompts -> keys and values of every prefix layer (the context)
//   observe   both at once; the tokens are not kept
//   act       context, noise -> actions, in `steps` Euler steps
//
// A variant fixes how much room there is (views, prompt rows, steps, samples, branches); how much
// of it is used is read from the ports when it runs. Masked views and padding take no rows: valid
// views are packed to the front, the prompt follows them, and lengths live in device memory.
//
// Branches (classifier-free guidance) see the same images and noise under prompts of their own. In
// the fused form they are segments of one batch; in the serial form they run one after another.
// Both use the same memory: branch w has prefix rows [w * capacity, (w + 1) * capacity).
#pragma once

#include <frt/role/policy.h>
#include <frt/compose.hpp>
#include <frt/exec.hpp>

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string_view>
#include <vector>

#include "episode_state.hpp"
#include "time_tables.hpp"
#include "weights.hpp"

namespace frt::pi05 {

struct Precision {
  frt_dtype activation = FRT_DTYPE_BF16;
  frt_dtype residual = FRT_DTYPE_BF16;
};

enum class Guidance : std::uint8_t { kFused, kSerial };

// The most an engine can do. `steps`: the numbers of Euler steps it has tables for.
struct Setup {
  std::int64_t views = 3;
  std::int64_t max_prompt = 200;
  std::int64_t horizon = 50;
  std::int64_t samples = 1;
  std::int64_t branches = 1;
  std::int64_t slots = 1;  // episodes the state has room for
  Guidance guidance = Guidance::kFused;
  frt_dtype image_dtype = FRT_DTYPE_U8;
  std::vector<std::int64_t> steps = {10};

  std::int64_t max_steps() const;
};

// What one recorded variant has room for.
struct Variant {
  std::int64_t views = 0, prompt = 0, steps = 0, samples = 1, branches = 1;
};

// What a tap sees in an eager run: golden names without their run ("vit_layer", "prefix_k", "v").
struct TapView {
  std::string_view name;
  std::int64_t index = 0;  // layer or step
  const void* data = nullptr;
  frt_dtype dtype = FRT_DTYPE_NONE;
  std::int64_t rows = 0, width = 0;
};
// Both may be empty. What the products of a layer multiply is named as in calibration.hpp; index is
// then the first branch. In FP8 it is not shown.
struct Tap {
  std::function<void(const TapView&)> stage;
  std::function<void(const TapView&)> input;
};

class Engine {
 public:
  // Allocates and uploads; checks that the backend has every operator. `states` makes the arena.
  // [setup]
  Engine(const frt_state_v1* states, const Context& context, const Config& config,
         const Weights& weights, const WeightSource& source, const Precision& precision,
         const Setup& setup);
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Memory an engine takes, its state included.
  static std::uint64_t bytes(const Config& config, const Precision& precision, const Setup& setup);

  // Of a variant vision() takes the views alone. It touches nothing that act() reads.
  void vision(const Recorder& recorder, const Variant& variant) const;
  void prefix(const Recorder& recorder, const Variant& variant) const;
  void observe(const Recorder& recorder, const Variant& variant, const Tap* tap = nullptr) const;
  void act(const Recorder& recorder, const Variant& variant, const Tap* tap = nullptr) const;

  const Setup& setup() const noexcept { return setup_; }
  const EpisodeState& state() const noexcept { return state_; }
  const Ports& ports() const noexcept { return ports_; }
  const Stream& stream() const noexcept { return stream_; }
  const Dims& dims() const noexcept { return dims_; }
  const Context& context() const noexcept { return context_; }
  std::uint64_t memory_bytes() const noexcept { return memory_.bytes(); }
  // (times, expert_width) and (times, modulations, 3, expert_width) of `steps`, for checks.
  const TimeTables& tables(std::int64_t steps) const { return tables_.at(steps).host; }

 private:
  // Working memory, of no use after a run; A: activation type, R: residual type.
  struct Memory {
    // Vision, rows V = views * cells.
    void* patches = nullptr;        // (V, patch_columns) A
    void* vision_x = nullptr;       // (V, vision_width) R
    void* vision_normed = nullptr;  // (V, vision_width) A, FP8
    void* vision_last = nullptr;    // (V, vision_width) A
    void* vision_qkv = nullptr;     // (V, 3 vision_width) A
    void* vision_y = nullptr;       // (V, vision_width) A, FP8
    void* vision_h = nullptr;       // (V, vision_mlp) A, FP8
    // Prefix, rows P = branches * (V + prompt).
    void* x = nullptr;        // (P, width) R
    void* normed = nullptr;   // (P, width) A
    void* q = nullptr;        // (P, query_width) A
    void* y = nullptr;        // (P, query_width) A
    void* gate = nullptr;     // (P, mlp) A
    void* h = nullptr;        // (P, mlp) A
    void* tokens = nullptr;   // (V, width) R; in the state
    void* context = nullptr;  // (layers, P, [keys | values]) A; in the state
    // Expert, rows E = branches * samples * horizon.
    void* expert_x = nullptr;       // (E, expert_width) R
    void* expert_normed = nullptr;  // (E, expert_width) A
    void* expert_q = nullptr;       // (E, query_width) A
    void* expert_kv = nullptr;      // (E, [keys | values]) A
    void* expert_y = nullptr;       // (E, query_width) A
    void* expert_gate = nullptr;    // (E, expert_mlp) A
    void* expert_h = nullptr;       // (E, expert_mlp) A
    float* v = nullptr;             // (E, action_dim)
    float* velocity = nullptr;      // (samples * horizon, action_dim)
    // Where things lie, written by the run.
    std::int32_t* view = nullptr;          // (views)
    std::int32_t* view_rows = nullptr;     // (views)
    std::int32_t* image_rows = nullptr;    // (1)
    std::int32_t* length = nullptr;        // (branches) valid prefix rows; in the state
    std::int32_t* image_length = nullptr;  // (1) valid rows of images alone
    std::int32_t* clean_rows = nullptr;    // (1)
    const float* rope = nullptr;           // (positions, head_dim)
  };
  static std::uint64_t lay_out(Memory& memory, std::byte* base, const Config& config,
                               const Precision& precision, const Setup& setup);

  // Branches [first, first + count) of a variant.
  struct BranchRange {
    std::int64_t first = 0, count = 1;
  };
  std::vector<BranchRange> passes(const Variant& variant) const;
  std::int64_t capacity(const Variant& variant) const {  // prefix rows of a branch
    return variant.views * dims_.cells() + variant.prompt;
  }
  std::int64_t positions() const {
    return setup_.views * dims_.cells() + setup_.max_prompt + setup_.horizon;
  }

  void pack_views(const Recorder& recorder, const Variant& variant, std::int32_t* length) const;
  void encode_images(const Recorder& recorder, const Variant& variant, void* tokens,
                     const Tap* tap) const;
  void spread_tokens(const Recorder& recorder, const Variant& variant, const void* tokens,
                     std::int64_t first_branch) const;
  void prefix_layers(const Recorder& recorder, const Variant& variant, const BranchRange& branches,
                     const Tap* tap) const;
  void expert(const Recorder& recorder, const Variant& variant, const BranchRange& branches,
              std::int64_t step, const Tap* tap) const;
  void expert_layer(const Recorder& recorder, const frt_flow_layers_args& args, std::int64_t index,
                    const BranchRange& branches, const Tap* tap) const;
  void flow_step(const Recorder& recorder, const Variant& variant, std::int64_t step,
                 const Tap* tap) const;
  frt_flow_output_args flow_output(const Variant& variant, const BranchRange& branches,
                                   std::int64_t step) const;
  frt_flow_input_args flow_input(const Variant& variant) const;
  frt_flow_layers_args flow_layers(const Variant& variant, const BranchRange& branches) const;
  frt_flow_layer flow_layer(const Variant& variant, const BranchRange& branches, std::int64_t step,
                            std::int64_t index) const;
  frt_modulation modulation(const Variant& variant, std::int64_t step, std::int64_t norm) const;
  void* context_rows(std::int64_t layer, const Variant& variant, std::int64_t branch) const;
  void dense(const Recorder& recorder, const frt_dense_args& args) const;

  void show(const Tap* tap, std::string_view name, std::int64_t index, const void* data,
            frt_dtype dtype, std::int64_t rows, std::int64_t width) const {
    if (tap && tap->stage) tap->stage({name, index, data, dtype, rows, width});
  }
  // What a product multiplies: rows as they are, or normed here, because a fused operator need not
  // leave them behind.
  struct Input {
    const char *tower, *product;
    std::int64_t layer, first_branch;
  };
  void show_input(const Tap* tap, const Input& input, const void* data, std::int64_t rows,
                  std::int64_t width) const;
  void show_normed(const Recorder& recorder, const Tap* tap, const Input& input,
                   const frt_row_norm_args& norm) const;
  void* rows_of(void* base, frt_dtype dtype, std::int64_t row, std::int64_t width) const {
    return static_cast<std::byte*>(base) + bytes_of(dtype, row * width);
  }

  struct StepTables {
    TimeTables host;
    Buffer device;  // (steps + 1, modulations, 3, expert_width)
  };

  Context context_;
  const Dims& dims_;
  const Weights& weights_;
  Precision precision_;
  Setup setup_;
  Operators ops_;
  Stream stream_;
  EpisodeState state_;
  const Ports& ports_;
  Buffer memory_;
  Memory m_;
  Buffer rope_;
  std::map<std::int64_t, StepTables> tables_;
};

}  // namespace frt::pi05
