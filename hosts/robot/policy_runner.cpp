// SPDX-License-Identifier: Apache-2.0
// All inputs of an inference lie in one pinned buffer and go to the device as one batch of copies;
// prompts and strengths change seldom and have their own. The lists of copies are made once.
#include "robot/policy_runner.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>

namespace frt::host {
namespace {

constexpr uint64_t kAlign = 64;

uint64_t aligned(uint64_t bytes) {
  return (bytes + kAlign - 1) / kAlign * kAlign;
}

uint64_t mix(uint64_t x) noexcept {  // splitmix64
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
  x = (x ^ x >> 27) * 0x94D049BB133111EBu;
  return x ^ x >> 31;
}

double unit(uint64_t bits) noexcept {  // (0, 1]
  return (static_cast<double>(bits >> 11) + 1) * 0x1p-53;
}

}  // namespace

void fill_normal(uint64_t seed, uint64_t draw, std::span<float> out) noexcept {
  const uint64_t base = mix(mix(seed) ^ draw);
  for (std::size_t i = 0; i < out.size(); i += 2) {  // Box and Muller's pairs
    const double radius = std::sqrt(-2 * std::log(unit(mix(base + 2 * i))));
    const double angle = 2 * std::numbers::pi * unit(mix(base + 2 * i + 1));
    out[i] = static_cast<float>(radius * std::cos(angle));
    if (i + 1 < out.size()) out[i + 1] = static_cast<float>(radius * std::sin(angle));
  }
}

PolicyRunner::PolicyRunner(const PolicyModel& policy, uint32_t steps)
    : policy_(policy), key_(policy.infer_key(steps)) {
  const Context& context = policy.context();
  const frt_policy_info& info = policy.info();
  const std::string name = "policy." + policy.name();
  stream_ = context.create_stream(name);
  done_ = context.create_event();
  const uint64_t image_bytes = info.views * policy.image_bytes();
  mask_at_ = aligned(image_bytes);
  state_at_ = mask_at_ + aligned(info.views * sizeof(int32_t));
  noise_at_ = state_at_ + aligned(info.state_dim * sizeof(float));
  const uint64_t bytes = noise_at_ + aligned(policy.noise_values() * sizeof(float));
  staging_ =
      context.alloc(FRT_SPACE_HOST_PINNED, std::max<uint64_t>(bytes, kAlign), name + ".inputs");
  std::memset(staging_.pointer(), 0, staging_.bytes());
  actions_ = context.alloc(FRT_SPACE_HOST_PINNED, policy.action_values() * sizeof(float),
                           name + ".actions");
  const uint64_t words = std::max<uint64_t>(info.max_prompt + 1, info.guidance_ways);
  words_ = context.alloc(FRT_SPACE_HOST_PINNED, words * sizeof(int32_t), name + ".words");
  const auto input = [&](frt_buffer target, uint64_t at, uint64_t size) {
    if (target && size > 0) inputs_.push_back({target, 0, staging_, at, size});
  };
  input(info.images, 0, image_bytes);
  input(info.view_mask, mask_at_, info.views * sizeof(int32_t));
  input(info.proprioception, state_at_, info.state_dim * sizeof(float));
  input(info.noise, noise_at_, policy.noise_values() * sizeof(float));
  std::ranges::fill(view_mask(), 1);
  prompts_.resize(std::max(1u, info.guidance_ways));
}

std::span<uint8_t> PolicyRunner::image(uint32_t view) noexcept {
  return images().subspan(view * policy_.image_bytes(), policy_.image_bytes());
}
std::span<uint8_t> PolicyRunner::images() noexcept {
  return {staging_.pointer<uint8_t>(), policy_.info().views * policy_.image_bytes()};
}
std::span<int32_t> PolicyRunner::view_mask() noexcept {
  return {reinterpret_cast<int32_t*>(staging_.pointer<uint8_t>() + mask_at_),
          policy_.info().views};
}
std::span<float> PolicyRunner::state() noexcept {
  return {reinterpret_cast<float*>(staging_.pointer<uint8_t>() + state_at_),
          policy_.info().state_dim};
}
std::span<float> PolicyRunner::noise() noexcept {
  return {reinterpret_cast<float*>(staging_.pointer<uint8_t>() + noise_at_),
          policy_.noise_values()};
}

void PolicyRunner::set_prompt(uint32_t way, const std::string& instruction,
                              const std::string& options) {
  Prompt& prompt = prompts_.at(way);
  if (prompt.from_text && prompt.instruction == instruction && prompt.options == options) return;
  prompt.from_text = false;  // until it is there
  policy_.set_prompt(way, instruction, options, stream_);
  prompt = {instruction, options, true};
}

void PolicyRunner::set_prompt_ids(uint32_t way, std::span<const int32_t> ids) {
  const frt_policy_info& info = policy_.info();
  if (!info.prompt_tokens || !info.prompt_length) {
    throw Error(FRT_ERR_UNSUPPORTED, "model '" + policy_.name() + "' takes no prompt tokens");
  }
  if (ids.size() > info.max_prompt) {
    throw Error(FRT_ERR_OUT_OF_RANGE, "the prompt has " + std::to_string(ids.size()) +
                                          " tokens, this model takes " +
                                          std::to_string(info.max_prompt));
  }
  prompts_.at(way).from_text = false;
  auto* words = words_.pointer<int32_t>();
  stream_.sync();  // an earlier prompt may still be read from there
  std::fill(std::copy(ids.begin(), ids.end(), words), words + info.max_prompt, 0);
  words[info.max_prompt] = static_cast<int32_t>(ids.size());
  const Recorder recorder(stream_);
  const uint64_t row = info.max_prompt * sizeof(int32_t);
  recorder.copy(info.prompt_tokens, way * row, words_, 0, row);
  recorder.copy(info.prompt_length, way * sizeof(int32_t), words_, row, sizeof(int32_t));
}

void PolicyRunner::set_beta(double beta) {
  const frt_policy_info& info = policy_.info();
  if (!(beta >= 1) || !std::isfinite(beta)) {
    throw Error(FRT_ERR_OUT_OF_RANGE,
                "beta = " + std::to_string(beta) + ": guidance below 1 mixes the branches the wrong "
                                                   "way round; 1 is no guidance, 1.5 to 2.5 usual");
  }
  if (!info.beta) {
    if (beta == 1) return;
    throw Error(FRT_ERR_UNSUPPORTED, "model '" + policy_.name() +
                                         "' has no guidance; beta can only be 1 (frt.recap_cfg has "
                                         "it)");
  }
  stream_.sync();
  auto* values = words_.pointer<float>();
  std::fill(values, values + info.guidance_ways, static_cast<float>(beta));
  Recorder(stream_).copy(info.beta, 0, words_, 0, info.guidance_ways * sizeof(float));
}

void PolicyRunner::submit() {
  const Recorder recorder(stream_);
  recorder.copy_batch(inputs_);
  const Context& context = policy_.context();
  context.checked(context.table().graph_replay(policy_.info().infer, key_, stream_.handle()),
                  "graph_replay");
  recorder.copy(actions_, 0, policy_.info().actions, 0, actions_.bytes());
  done_.record(stream_);
}

std::span<const float> PolicyRunner::wait() {
  done_.sync();
  const std::span<const float> chunk(actions_.pointer<const float>(), policy_.action_values());
  for (std::size_t i = 0; i < chunk.size(); ++i) {
    if (std::isfinite(chunk[i])) continue;
    const uint32_t width = policy_.info().action_dim;
    throw Error(FRT_ERR_BAD_STATE, "model '" + policy_.name() + "' computed an action that is not "
                                       "finite (row " + std::to_string(i / width) + ", value " +
                                       std::to_string(i % width) + "); the chunk is dropped");
  }
  return chunk;
}

CriticRunner::CriticRunner(const CriticModel& critic) : critic_(critic) {
  const Context& context = critic.context();
  const frt_critic_info& info = critic.info();
  const std::string name = "critic." + critic.name();
  stream_ = context.create_stream(name);
  done_ = context.create_event();
  if (info.images) image_bytes_ = uint64_t{3} * info.views * info.image_height * info.image_width;
  state_at_ = aligned(image_bytes_);
  const uint64_t state_bytes = info.proprioception ? info.state_dim * sizeof(float) : 0;
  staging_ = context.alloc(FRT_SPACE_HOST_PINNED, state_at_ + aligned(state_bytes) + kAlign,
                           name + ".inputs");
  value_ = context.alloc(FRT_SPACE_HOST_PINNED, sizeof(float), name + ".value");
  if (image_bytes_ > 0) inputs_.push_back({info.images, 0, staging_, 0, image_bytes_});
  if (state_bytes > 0) {
    inputs_.push_back({info.proprioception, 0, staging_, state_at_, state_bytes});
  }
}

void CriticRunner::set_instruction(const std::string& instruction) {
  if (instruction == instruction_) return;
  critic_.set_instruction(instruction, stream_);
  instruction_ = instruction;
}

void CriticRunner::submit(std::span<const uint8_t> images, std::span<const float> state) {
  const uint64_t state_bytes =
      critic_.info().proprioception ? critic_.info().state_dim * sizeof(float) : 0;
  if (images.size() < image_bytes_ || state.size_bytes() < state_bytes) {
    throw Error(FRT_ERR_MISMATCH,
                "critic '" + critic_.name() + "' takes " + std::to_string(image_bytes_) +
                    " bytes of images and " + std::to_string(state_bytes) +
                    " bytes of state, the policy's observation has " +
                    std::to_string(images.size()) + " and " + std::to_string(state.size_bytes()));
  }
  std::memcpy(staging_.pointer<uint8_t>(), images.data(), image_bytes_);
  std::memcpy(staging_.pointer<uint8_t>() + state_at_, state.data(), state_bytes);
  const Recorder recorder(stream_);
  recorder.copy_batch(inputs_);
  const Context& context = critic_.context();
  context.checked(
      context.table().graph_replay(critic_.info().infer, critic_.key(), stream_.handle()),
      "graph_replay");
  recorder.copy(value_, 0, critic_.info().value, 0, sizeof(float));
  done_.record(stream_);
}

float CriticRunner::wait() {
  done_.sync();
  return *value_.pointer<const float>();
}

}  // namespace frt::host
