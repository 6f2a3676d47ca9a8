// SPDX-License-Identifier: Apache-2.0
#include "robot/episode_boundary.hpp"

#include <string>
#include <utility>

namespace frt::host {

EpisodeBoundary::EpisodeBoundary(const frt_state_v1* states, const frt_capsules_v1* capsules,
                                 PolicyRunner& runner)
    : runner_(runner) {
  const PolicyModel& policy = runner.policy();
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
  std::vector<frt_region> regions;
  std::vector<frt_buffer> buffers;
  for (const auto& [name, buffer] : inputs) {
    if (!buffer) continue;
    frt_buffer_info about{};
    about.struct_size = sizeof(about);
    check(context.table().buffer_info(buffer, &about), "buffer_info");
    regions.push_back({name, FRT_REGION_FIXED, FRT_DTYPE_U8, about.bytes, 1, 0});
    buffers.push_back(buffer);
  }
  if (!regions.empty()) {
    frt_capsule_layout layout{};
    layout.struct_size = sizeof(layout);
    layout.region_count = static_cast<uint32_t>(regions.size());
    layout.regions = regions.data();
    mirror_ = State(states, context, layout, 1, "episode." + policy.name());
    verbs_ = Capsules(capsules, context, mirror_.handle());
    for (std::size_t i = 0; i < regions.size(); ++i) {
      const uint64_t at = mirror_.region(regions[i].name);
      into_.push_back({mirror_.info().buffer, at, buffers[i], 0, regions[i].row_bytes});
      out_of_.push_back({buffers[i], 0, mirror_.info().buffer, at, regions[i].row_bytes});
    }
  }
  if (info.state) model_verbs_ = Capsules(capsules, context, info.state);
}

void EpisodeBoundary::take() {
  const Stream& stream = runner_.stream();
  if (!into_.empty()) {
    Recorder(stream).copy_batch(into_);
    capsule_ = verbs_.snapshot(0, 0, FRT_SPACE_DEVICE, stream);
  }
  if (runner_.policy().info().state) {
    model_capsule_ = model_verbs_.snapshot(0, 0, FRT_SPACE_DEVICE, stream);
  }
  observed_ = runner_.observed();
  stream.sync();
}

void EpisodeBoundary::restore() {
  const Stream& stream = runner_.stream();
  if (capsule_) {
    capsule_.restore(0, stream);
    Recorder(stream).copy_batch(out_of_);
  }
  if (model_capsule_) model_capsule_.restore(0, stream);
  runner_.set_observed(observed_);
}

uint64_t EpisodeBoundary::bytes() const noexcept {
  return (capsule_ ? capsule_.bytes() : 0) + (model_capsule_ ? model_capsule_.bytes() : 0);
}

}  // namespace frt::host
