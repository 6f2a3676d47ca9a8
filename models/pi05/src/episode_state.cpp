// SPDX-License-Identifier: Apache-2.0
#include "episode_state.hpp"

#include "engine.hpp"

namespace frt::pi05 {
namespace {

void describe_regions(CapsuleLayout& layout, const Config& config, const Precision& precision,
                      const Setup& setup) {
  const Dims& d = config.dims;
  const auto add = [&](const char* name, frt_dtype dtype, std::int64_t elements) {
    layout.add_fixed(name, dtype, bytes_of(dtype, elements));
  };
  const std::int64_t chunk = setup.horizon * d.action_dim;
  const std::int64_t prefix = setup.branches * (setup.views * d.cells() + setup.max_prompt);
  add("images", setup.image_dtype, setup.views * d.image * d.image * 3);
  add("view_mask", FRT_DTYPE_I32, setup.views);
  add("prompt_tokens", FRT_DTYPE_I32, setup.branches * setup.max_prompt);
  add("prompt_length", FRT_DTYPE_I32, setup.branches);
  add("noise", FRT_DTYPE_F32, setup.samples * chunk);
  if (setup.branches > 1) add("beta", FRT_DTYPE_F32, setup.max_steps() * (setup.branches - 1));
  add("previous", FRT_DTYPE_F32, chunk);
  add("previous_weights", FRT_DTYPE_F32, setup.horizon);
  add("continuation", FRT_DTYPE_U8, sizeof(frt_policy_continuation));
  add("image_tokens", precision.residual, setup.views * d.cells() * d.width);
  add("length", FRT_DTYPE_I32, setup.branches);
  add("context", precision.activation, d.layers * prefix * 2 * d.head_dim);
  add("actions", FRT_DTYPE_F32, setup.samples * chunk);
}

}  // namespace

EpisodeState::EpisodeState(const frt_state_v1* states, const Context& context, const Config& config,
                           const Precision& precision, const Setup& setup) {
  describe_regions(layout_, config, precision, setup);
  state_ =
      State(states, context, layout_.table(), static_cast<std::uint32_t>(setup.slots), "episode");
  const Buffer arena = Buffer::retain(context, state_.info().buffer);
  const auto port = [&](Buffer& buffer, const char* name) {
    for (const frt_region& region : layout_.regions()) {
      if (std::string_view(region.name) != name) continue;
      buffer = arena.view(state_.region(name), region.row_bytes, name);
    }
  };
  port(ports_.images, "images");
  port(ports_.view_mask, "view_mask");
  port(ports_.prompt_tokens, "prompt_tokens");
  port(ports_.prompt_length, "prompt_length");
  port(ports_.noise, "noise");
  port(ports_.beta, "beta");
  port(ports_.previous, "previous");
  port(ports_.previous_weights, "previous_weights");
  port(ports_.continuation, "continuation");
  port(ports_.actions, "actions");
  auto* memory = static_cast<std::byte*>(state_.info().pointer);
  image_tokens_ = memory + state_.region("image_tokens");
  context_rows_ = memory + state_.region("context");
  length_ = reinterpret_cast<std::int32_t*>(memory + state_.region("length"));
}

std::uint64_t EpisodeState::bytes(const Config& config, const Precision& precision,
                                  const Setup& setup) {
  CapsuleLayout layout;
  describe_regions(layout, config, precision, setup);
  return static_cast<std::uint64_t>(setup.slots) * layout.fixed_bytes();
}

}  // namespace frt::pi05
