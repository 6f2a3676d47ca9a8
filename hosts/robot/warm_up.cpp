// SPDX-License-Identifier: Apache-2.0
// The role names the variant of a shape, but lists none. So every shape that a request can have is
// asked for: views, prompt tokens, steps and branches. Shapes of one variant share its key.
#include "robot/warm_up.hpp"

#include <algorithm>
#include <map>
#include <vector>

namespace frt::host {
namespace {

using Variants = std::map<frt_shape_key, frt_policy_shape>;

Variants variants_of(const PolicyModel& policy) {
  const frt_policy_info& info = policy.info();
  Variants variants;
  // False: there is none for this shape.
  const auto add = [&](uint32_t views, uint32_t prompt, uint32_t steps, uint32_t branches) {
    frt_policy_shape shape{};
    shape.struct_size = sizeof(shape);
    shape.views = views;
    shape.prompt = prompt;
    shape.steps = steps;
    shape.samples = 1;
    shape.branches = branches;
    frt_shape_key key = 0;
    if (policy.role().infer_key(policy.handle(), &shape, &key) != FRT_OK) return false;
    variants.emplace(key, shape);
    return true;
  };
  for (uint32_t steps = 1; steps <= std::max(info.max_steps, 1u); ++steps) {
    for (const uint32_t branches : {1u, std::max(info.guidance_branches, 1u)}) {
      if (!add(info.views, info.max_prompt, steps, branches)) continue;
      for (uint32_t views = 1; views <= info.views; ++views) {
        for (uint32_t prompt = 1; prompt <= info.max_prompt; ++prompt) {
          add(views, prompt, steps, branches);
        }
      }
    }
  }
  return variants;
}

// `count` ones, zeros behind them.
void write_ones(const PolicyRunner& runner, frt_buffer buffer, uint32_t values, uint32_t count) {
  if (!buffer) return;
  std::vector<int32_t> ones(values, 0);
  std::fill_n(ones.begin(), std::min(count, values), 1);
  Buffer::retain(runner.policy().context(), buffer).upload(ones, runner.stream());
}

}  // namespace

uint32_t warm_up(const PolicyRunner& runner, EpisodeBoundary& boundary,
                 const std::function<bool()>& cancelled) {
  const PolicyModel& policy = runner.policy();
  const frt_policy_info& info = policy.info();
  const Context& context = policy.context();
  uint32_t replayed = 0;
  boundary.take();
  write_ones(runner, info.prompt_length, info.guidance_branches, info.guidance_branches);
  for (const auto& [key, shape] : variants_of(policy)) {
    if (cancelled()) break;
    write_ones(runner, info.view_mask, info.views, shape.views);
    context.checked(context.table().graph_replay(info.infer, key, runner.stream().handle()),
                    "graph_replay");
    runner.stream().sync();
    ++replayed;
  }
  boundary.restore();
  runner.stream().sync();
  return replayed;
}

}  // namespace frt::host
