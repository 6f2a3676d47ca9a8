// SPDX-License-Identifier: Apache-2.0
#include "selftest_run.hpp"

#include <algorithm>
#include <frt/models/formats.hpp>

namespace frt::pi05 {

void Runner::write(const RunInput& input) {
  const Ports& ports = engine_.ports();
  const Stream& stream = engine_.stream();
  const Setup& setup = engine_.setup();
  ports.images.upload(std::span<const std::byte>(input.images), stream);
  ports.view_mask.upload(input.mask, stream);
  std::vector<std::int32_t> lengths;
  for (std::size_t branch = 0; branch < input.prompts.size(); ++branch) {
    ports.prompt_tokens.upload(input.prompts[branch], stream,
                               branch * bytes_of(FRT_DTYPE_I32, setup.max_prompt));
    lengths.push_back(static_cast<std::int32_t>(input.prompts[branch].size()));
  }
  ports.prompt_length.upload(lengths, stream);
  ports.noise.upload(input.noise, stream);
  if (!input.beta.empty()) ports.beta.upload(input.beta, stream);
  std::vector<float> previous = input.previous;
  previous.resize(ports.previous.bytes() / sizeof(float), 0.0f);
  std::vector<float> weights = input.weights;
  weights.resize(ports.previous_weights.bytes() / sizeof(float), 0.0f);
  ports.previous.upload(previous, stream);
  ports.previous_weights.upload(weights, stream);
  ports.continuation.upload(std::span<const frt_policy_continuation>(&input.control, 1), stream);
}

std::vector<float> Runner::fetch(const TapView& view, std::int64_t rows) const {
  const std::uint64_t bytes = bytes_of(view.dtype, rows * view.width);
  const Buffer device =
      model_.parts().context.wrap(FRT_SPACE_DEVICE, const_cast<void*>(view.data), bytes, "tap");
  const std::vector<std::byte> data = device.download<std::byte>(bytes, engine_.stream());
  std::vector<float> values(static_cast<std::size_t>(rows * view.width));
  models::convert_to_f32(view.dtype, data.data(), values.size(), values.data());
  return values;
}

Traced Runner::run(const RunInput& input, bool traced, std::int64_t room) {
  write(input);
  const Dims& dims = model_.config().dims;
  Variant variant;
  variant.views = std::count(input.mask.begin(), input.mask.end(), 1);
  for (const auto& prompt : input.prompts) {
    variant.prompt = std::max(variant.prompt, static_cast<std::int64_t>(prompt.size()));
  }
  variant.prompt = std::max(variant.prompt, room);
  variant.steps = input.steps;
  variant.samples = input.samples;
  variant.branches = static_cast<std::int64_t>(input.prompts.size());

  Traced out;
  const std::int64_t valid =
      variant.views * dims.cells() + static_cast<std::int64_t>(input.prompts.front().size());
  std::map<std::string, int> seen;
  Tap tap;
  tap.stage = [&](const TapView& view) {
    const bool numbered =
        view.name != "vit_embed" && view.name != "img_tokens" && view.name != "prefix_embs";
    const std::string number = numbered ? std::to_string(view.index) : "";
    std::string name = std::string(view.name) + number;
    if (seen[name]++ > 0) return;  // of later branches, in the serial form
    std::int64_t rows = view.rows;
    if (name.starts_with("vit_") || name == "img_tokens") rows = dims.cells();  // view 0
    if (name.starts_with("prefix_")) rows = valid;
    std::vector<float> values = fetch(view, rows);
    if (!view.name.starts_with("prefix_kv")) {
      out[name] = std::move(values);
      return;
    }
    const auto width = static_cast<std::size_t>(dims.head_dim);
    std::vector<float>& k = out["prefix_k" + number];
    std::vector<float>& v = out["prefix_v" + number];
    for (std::size_t at = 0; at < values.size(); at += 2 * width) {
      const auto row = values.begin() + static_cast<std::ptrdiff_t>(at);
      const auto half = static_cast<std::ptrdiff_t>(width);
      k.insert(k.end(), row, row + half);
      v.insert(v.end(), row + half, row + 2 * half);
    }
  };
  const Recorder recorder(engine_.stream());
  engine_.observe(recorder, variant, traced ? &tap : nullptr);
  engine_.act(recorder, variant, traced ? &tap : nullptr);
  const auto values =
      static_cast<std::uint64_t>(variant.samples * engine_.setup().horizon * dims.action_dim);
  out["actions"] = engine_.ports().actions.download<float>(values, engine_.stream());
  return out;
}

}  // namespace frt::pi05
