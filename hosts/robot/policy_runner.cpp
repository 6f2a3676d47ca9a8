// SPDX-License-Identifier: Apache-2.0
#include "robot/policy_runner.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <numbers>

namespace frt::host {
namespace {

constexpr uint64_t kAlign = 64;
// A robot waits for a policy; what else runs on the device can wait for both.
constexpr int32_t kPolicyPriority = -1;

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

bool is_refusal(frt_status status) noexcept {
  return status == FRT_ERR_INVALID_ARGUMENT || status == FRT_ERR_FORMAT ||
         status == FRT_ERR_NOT_FOUND || status == FRT_ERR_OUT_OF_RANGE;
}

PolicyRunner::PolicyRunner(const PolicyModel& policy)
    : policy_(policy), robot_(policy.robot_values()) {
  const Context& context = policy.context();
  const std::string name = "policy." + policy.name();
  stream_ = context.create_stream(name, kPolicyPriority);
  done_ = context.create_event();
  const uint64_t bytes = policy.action_values() * sizeof(float);
  noise_ = context.alloc(FRT_SPACE_HOST_PINNED, bytes, name + ".noise");
  actions_ = context.alloc(FRT_SPACE_HOST_PINNED, bytes, name + ".actions");
  std::memset(noise_.pointer(), 0, bytes);
  std::memset(actions_.pointer(), 0, bytes);
  observed_.struct_size = sizeof(observed_);
}

void PolicyRunner::observe(const frt_observation& observation) {
  frt_observed observed{};
  observed.struct_size = sizeof(observed);
  frt_error error{};
  check(policy_.observation().write(policy_.handle(), &observation, stream_.handle(), &observed,
                                    &error),
        error, policy_.sender());
  observed_ = observed;
}

void PolicyRunner::overwrite_prompt(const std::string& instruction, std::span<const float> state) {
  if (!policy_.role().set_prompt) {
    throw Error(FRT_ERR_UNSUPPORTED, policy_.sender() + " takes no instructions");
  }
  std::string options;
  if (!state.empty()) options = nlohmann::json({{"state", state}}).dump();
  uint32_t longest = 0;
  for (uint32_t branch = 0; branch < std::max(1u, policy_.info().guidance_branches); ++branch) {
    uint32_t tokens = 0;
    frt_error error{};
    check(policy_.role().set_prompt(policy_.handle(), branch, instruction.c_str(),
                                    options.empty() ? nullptr : options.c_str(), stream_.handle(),
                                    &tokens, &error),
          error, policy_.sender());
    longest = std::max(longest, tokens);
  }
  observed_.prompt = longest;
}

frt_policy_shape PolicyRunner::observed_shape() const noexcept {
  frt_policy_shape shape{};
  shape.struct_size = sizeof(shape);
  shape.views = observed_.views;
  shape.prompt = observed_.prompt;
  return shape;
}

void PolicyRunner::set_guidance(const GuidanceStrengths& strengths) {
  if (strengths == guidance_) return;
  const frt_policy_info& info = policy_.info();
  const uint32_t branches = info.guidance_branches;
  const std::vector<float> table =
      strengths.table(std::max(info.max_steps, 1u), std::max(branches, 2u) - 1);
  if (!strengths.none()) {
    if (branches < 2 || !policy_.role().set_guidance) {
      throw Error(FRT_ERR_UNSUPPORTED, policy_.sender() +
                                           " has no guidance; beta can only be 1 (frt.recap_cfg is "
                                           "the plugin that has it)");
    }
    frt_error error{};
    check(policy_.role().set_guidance(policy_.handle(), table.data(), table.size(),
                                      stream_.handle(), &error),
          error, policy_.sender());
  }
  guidance_ = strengths;
}

std::span<float> PolicyRunner::noise() noexcept {
  return {noise_.pointer<float>(), policy_.action_values()};
}

void PolicyRunner::submit() {
  const frt_policy_info& info = policy_.info();
  frt_policy_shape shape = observed_shape();
  shape.steps = steps_;
  shape.samples = 1;
  shape.branches = guidance_.none() ? 1 : info.guidance_branches;
  const frt_shape_key key = policy_.infer_key(shape);
  const Recorder recorder(stream_);
  if (info.noise && !keep_noise_) recorder.copy(info.noise, 0, noise_, 0, noise_.bytes());
  const Context& context = policy_.context();
  context.checked(context.table().graph_replay(info.infer, key, stream_.handle()), "graph_replay");
  recorder.copy(actions_, 0, info.actions, 0, actions_.bytes());
  done_.record(stream_);
}

std::span<const double> PolicyRunner::wait() {
  done_.sync();
  frt_error error{};
  check(policy_.observation().finish(policy_.handle(), &observed_, actions_.pointer<const float>(),
                                     robot_.data(), &error),
        error, policy_.sender());
  return robot_;
}

std::span<const float> PolicyRunner::network_actions() const noexcept {
  return {actions_.pointer<const float>(), policy_.action_values()};
}

CriticRunner::CriticRunner(const CriticModel& critic) : critic_(critic) {
  const Context& context = critic.context();
  const frt_critic_info& info = critic.info();
  const std::string name = "critic." + critic.name();
  stream_ = context.create_stream(name);
  done_ = context.create_event();
  if (info.images) image_bytes_ = uint64_t{3} * info.views * info.image_height * info.image_width;
  state_at_ = aligned(image_bytes_);
  if (info.proprioception) state_bytes_ = info.state_dim * sizeof(float);
  staging_ = context.alloc(FRT_SPACE_HOST_PINNED, state_at_ + aligned(state_bytes_) + kAlign,
                           name + ".inputs");
  value_ = context.alloc(FRT_SPACE_HOST_PINNED, sizeof(float), name + ".value");
  if (image_bytes_ > 0) inputs_.push_back({info.images, 0, staging_, 0, image_bytes_});
  if (state_bytes_ > 0) {
    inputs_.push_back({info.proprioception, 0, staging_, state_at_, state_bytes_});
  }
}

void CriticRunner::set_instruction(const std::string& instruction) {
  if (instruction == instruction_) return;
  critic_.set_instruction(instruction, stream_);
  instruction_ = instruction;
}

void CriticRunner::submit(std::span<const uint8_t> images, std::span<const float> state) {
  if (images.size() < image_bytes_ || state.size_bytes() < state_bytes_) {
    throw Error(FRT_ERR_MISMATCH,
                "critic '" + critic_.name() + "' takes " + std::to_string(image_bytes_) +
                    " bytes of images and " + std::to_string(state_bytes_) +
                    " bytes of state, the policy's observation has " +
                    std::to_string(images.size()) + " and " + std::to_string(state.size_bytes()));
  }
  std::memcpy(staging_.pointer<uint8_t>(), images.data(), image_bytes_);
  std::memcpy(staging_.pointer<uint8_t>() + state_at_, state.data(), state_bytes_);
  const Recorder recorder(stream_);
  recorder.copy_batch(inputs_);
  const Context& context = critic_.context();
  context.checked(
      context.table().graph_replay(critic_.info().infer, critic_.info().key, stream_.handle()),
      "graph_replay");
  recorder.copy(value_, 0, critic_.info().value, 0, sizeof(float));
  done_.record(stream_);
}

float CriticRunner::wait() {
  done_.sync();
  return *value_.pointer<const float>();
}

}  // namespace frt::host
