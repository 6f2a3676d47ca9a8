// SPDX-License-Identifier: Apache-2.0
#include "robot/random_inputs.hpp"

#include <algorithm>

namespace frt::host {

void write_random_inputs(const Context& context, const frt_policy_info& info,
                         const std::vector<int32_t>& view_mask, const std::vector<int32_t>& prompts,
                         std::mt19937_64& random, const Stream& stream) {
  const auto write = [&](frt_buffer buffer, const auto& values, uint64_t offset = 0) {
    if (buffer) Buffer::retain(context, buffer).upload(values, stream, offset);
  };
  const auto drawn = [](uint64_t count, auto draw) {
    std::vector<decltype(draw())> values(count);
    std::ranges::generate(values, draw);
    return values;
  };
  std::normal_distribution<float> distribution;
  const auto normal = [&] { return distribution(random); };
  const uint64_t pixels = uint64_t{info.views} * info.image_height * info.image_width * 3;
  if (info.image_dtype == FRT_DTYPE_U8) {
    write(info.images, drawn(pixels, [&] { return static_cast<uint8_t>(random()); }));
  } else {
    write(info.images,
          drawn(pixels, [&] { return static_cast<float>(random() % 256) / 127.5f - 1; }));
  }
  write(info.view_mask, view_mask);
  write(info.proprioception, drawn(info.state_dim, normal));
  for (uint64_t branch = 0; branch < prompts.size(); ++branch) {
    const auto token = [&] { return static_cast<int32_t>(random() % 250 + 2); };
    write(info.prompt_tokens, drawn(static_cast<uint64_t>(prompts[branch]), token),
          branch * info.max_prompt * sizeof(int32_t));
  }
  write(info.prompt_length, prompts);
  const uint64_t samples = std::max(1u, info.max_samples);
  write(info.noise, drawn(samples * info.horizon * info.action_dim, normal));
}

}  // namespace frt::host
