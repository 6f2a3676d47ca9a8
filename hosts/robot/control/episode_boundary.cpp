// SPDX-License-Identifier: Apache-2.0
#include "robot/control/episode_boundary.hpp"

#include <frt/capsule_layout.hpp>
#include <utility>

namespace frt::host {

EpisodeBoundary::EpisodeBoundary(const frt_state_v1* states, const frt_capsules_v1* capsules,
                                 PolicyRunner& runner)
    : runner_(runner) {
  const PolicyModel& policy = runner.policy();
  frt_state state = policy.info().state;
  if (!state) {
    mirror_inputs(states);
    state = mirror_.handle();
  }
  if (state) verbs_ = Capsules(capsules, policy.context(), state);
}

void EpisodeBoundary::mirror_inputs(const frt_state_v1* states) {
  const PolicyModel& policy = runner_.policy();
  const Context& context = policy.context();
  const frt_policy_info& info = policy.info();
  const std::pair<const char*, frt_buffer> inputs[] = {{"images", info.images},
                                                       {"view_mask", info.view_mask},
                                                       {"proprioception", info.proprioception},
                                                       {"prompt_tokens", info.prompt_tokens},
                                                       {"prompt_length", info.prompt_length},
                                                       {"noise", info.noise},
                                                       {"beta", info.beta},
                                                       {"previous", info.previous},
                                                       {"previous_weights", info.previous_weights},
                                                       {"continuation", info.continuation}};
  CapsuleLayout layout;
  std::vector<frt_buffer> buffers;
  for (const auto& [name, buffer] : inputs) {
    if (!buffer) continue;
    frt_buffer_info about{};
    about.struct_size = sizeof(about);
    check(context.table().buffer_info(buffer, &about), "buffer_info");
    layout.add_fixed(name, FRT_DTYPE_U8, about.bytes);
    buffers.push_back(buffer);
  }
  if (buffers.empty()) return;
  mirror_ = State(states, context, layout.table(), 1, "episode." + policy.name());
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    const frt_region& region = layout.regions()[i];
    const uint64_t at = mirror_.region(region.name);
    into_.push_back({mirror_.info().buffer, at, buffers[i], 0, region.row_bytes});
    out_of_.push_back({buffers[i], 0, mirror_.info().buffer, at, region.row_bytes});
  }
}

void EpisodeBoundary::take() {
  const Stream& stream = runner_.stream();
  if (!into_.empty()) Recorder(stream).copy_batch(into_);
  if (verbs_) capsule_ = verbs_.snapshot(0, 0, FRT_SPACE_DEVICE, stream);
  observed_ = runner_.observed();
  stream.sync();
}

void EpisodeBoundary::restore() {
  const Stream& stream = runner_.stream();
  if (capsule_) capsule_.restore(0, stream);
  if (!out_of_.empty()) Recorder(stream).copy_batch(out_of_);
  runner_.set_observed(observed_);
}

uint64_t EpisodeBoundary::bytes() const noexcept {
  return capsule_ ? capsule_.bytes() : 0;
}

}  // namespace frt::host
