// SPDX-License-Identifier: Apache-2.0
#include "bench/state_check.hpp"

#include <fmt/format.h>
#include <frt/capsule.hpp>

#include <algorithm>
#include <array>
#include <deque>
#include <random>
#include <utility>

#include "robot/random_inputs.hpp"

namespace frt::host {
namespace {

constexpr std::size_t kKept = 4;          // capsules of earlier cases
constexpr uint64_t kFilesEvery = 8;       // cases
constexpr std::size_t kMostFailures = 5;  // lines of text

using Chunk = std::vector<float>;

class Check {
 public:
  Check(const PolicyModel& policy, const frt_state_v1* states, const frt_capsules_v1* capsules,
        StateCheckOptions options)
      : policy_(policy),
        info_(policy.info()),
        context_(policy.context()),
        options_(std::move(options)),
        stream_(context_.create_stream("state check")) {
    if (!info_.state) {
      throw Error(FRT_ERR_UNSUPPORTED,
                  "model '" + policy.name() + "' has no state of its own to make capsules of");
    }
    verbs_ = Capsules(capsules, context_, info_.state);
    frt_state_info state{};
    state.struct_size = sizeof(state);
    check(states->state_info(info_.state, &state), "state_info");
    slots_ = state.slots;
  }

  void run(uint64_t number, StateCheckResult& result) {
    number_ = number;
    result_ = &result;
    random_.seed(options_.seed * 0x9E3779B97F4A7C15u + number);
    write_inputs();
    const frt_policy_shape shape = shape_;
    if (info_.has_split) replay(info_.observe, key(policy_.role().observe_key, shape));
    const bool pinned = random_() % 2;
    ++result.drawn[pinned ? "pinned host" : "device"];
    Capsule capsule =
        verbs_.snapshot(0, 0, pinned ? FRT_SPACE_HOST_PINNED : FRT_SPACE_DEVICE, stream_);
    const Chunk expected = actions(shape);
    const Chunk whole = infer(shape);
    disturb();
    capsule.restore(0, stream_);
    compare("restored", actions(shape), expected);
    compare("whole", infer(shape), whole);
    if (info_.has_split == 2) compare("parts", parts(shape), whole);
    through_another_slot(capsule, shape, expected);
    if (!options_.folder.empty() && number % kFilesEvery == 0) file(capsule, shape, expected);
    if (!kept_.empty()) {
      const Kept& earlier = kept_[random_() % kept_.size()];
      earlier.capsule.restore(0, stream_);
      compare("earlier", actions(earlier.shape), earlier.expected);
    }
    kept_.push_back({std::move(capsule), shape, expected});
    if (kept_.size() > kKept) kept_.pop_front();
  }

 private:
  struct Kept {
    Capsule capsule;
    frt_policy_shape shape;
    Chunk expected;
  };

  // ---- the policy ----
  frt_shape_key key(frt_status (*function)(frt_model, const frt_policy_shape*, frt_shape_key*),
                    const frt_policy_shape& shape) const {
    frt_shape_key key = 0;
    check(function(policy_.handle(), &shape, &key),
          policy_.sender() + ": the key of a shape that it offers");
    return key;
  }
  void replay(frt_graph graph, frt_shape_key key) const {
    context_.checked(context_.table().graph_replay(graph, key, stream_.handle()), "graph_replay");
  }
  Chunk chunk() const {
    return Buffer::retain(context_, info_.actions)
        .download<float>(policy_.action_values(), stream_);
  }
  // What follows the capsule.
  Chunk actions(const frt_policy_shape& shape) const {
    if (!info_.has_split) return infer(shape);
    replay(info_.act, key(policy_.role().act_key, shape));
    return chunk();
  }
  Chunk parts(const frt_policy_shape& shape) const {
    replay(info_.vision, key(policy_.role().vision_key, shape));
    replay(info_.prefix, key(policy_.role().prefix_key, shape));
    return actions(shape);
  }
  Chunk infer(const frt_policy_shape& shape) const {
    replay(info_.infer, key(policy_.role().infer_key, shape));
    return chunk();
  }

  // ---- inputs ----
  float normal() { return std::normal_distribution<float>()(random_); }

  void write_inputs() {
    std::vector<int32_t> mask(info_.views);
    if (!mask.empty()) mask[random_() % mask.size()] = 1;
    for (int32_t& valid : mask) valid |= static_cast<int32_t>(random_() % 2);

    shape_ = {};
    shape_.struct_size = sizeof(shape_);
    shape_.views = static_cast<uint32_t>(std::ranges::count(mask, 1));
    shape_.branches = info_.guidance_branches > 1 && random_() % 2 ? info_.guidance_branches : 1;
    std::vector<int32_t> lengths(std::max(1u, info_.guidance_branches));
    for (int32_t& length : lengths) {
      length = 1 + static_cast<int32_t>(random_() % std::max(1u, info_.max_prompt));
    }
    shape_.prompt = static_cast<uint32_t>(std::ranges::max(lengths));
    write_random_inputs(context_, info_, mask, lengths, random_, stream_);
    if (info_.guidance_branches > 1) set_strengths();
    if (info_.has_continuation) set_previous();
    ++result_->drawn[shape_.branches > 1 ? "with guidance" : "without guidance"];
  }
  void set_strengths() {
    std::vector<float> strengths(info_.guidance_branches - 1);
    for (float& strength : strengths) strength = 1 + static_cast<float>(random_() % 16) / 8;
    frt_error error{};
    check(policy_.role().set_guidance(policy_.handle(), strengths.data(), strengths.size(),
                                      stream_.handle(), &error),
          error, policy_.sender());
  }
  void set_previous() {
    constexpr std::array<uint32_t, 3> kModes = {FRT_CONTINUE_NONE, FRT_CONTINUE_GUIDED,
                                                FRT_CONTINUE_LOCKED};
    frt_policy_previous previous{};
    previous.struct_size = sizeof(previous);
    previous.mode = kModes[random_() % kModes.size()];
    previous.rows = previous.execution_horizon = 1 + random_() % info_.horizon;
    previous.delay = static_cast<uint32_t>(random_() % (previous.rows + 1));
    std::vector<float> rows(uint64_t{previous.rows} * info_.action_dim);
    std::ranges::generate(rows, [&] { return normal(); });
    previous.actions = rows.data();
    frt_error error{};
    check(policy_.role().set_continuation(policy_.handle(), &previous, stream_.handle(), &error),
          error, policy_.sender());
    if (previous.mode != FRT_CONTINUE_NONE) ++result_->drawn["with a previous chunk"];
  }
  // Another case's inference over everything.
  void disturb() {
    const frt_policy_shape own = shape_;
    write_inputs();
    infer(shape_);
    shape_ = own;
  }

  // ---- verbs ----
  void through_another_slot(const Capsule& capsule, const frt_policy_shape& shape,
                            const Chunk& expected) {
    if (slots_ < 2) return;
    const auto slot = static_cast<uint32_t>(1 + random_() % (slots_ - 1));
    capsule.fork(std::array{slot}, stream_);
    disturb();
    verbs_.fork_slot(slot, 0, std::array{0u}, stream_);
    compare("forked", actions(shape), expected);
  }
  void file(const Capsule& capsule, const frt_policy_shape& shape, const Chunk& expected) {
    const std::string name = fmt::format("case-{}", number_);
    const Capsule kept = capsule.copy(FRT_SPACE_HOST_PINNED, stream_);
    kept.sync();
    kept.save(options_.folder, name, "");
    disturb();
    const Capsule loaded = verbs_.load(options_.folder, name, FRT_SPACE_HOST_PINNED);
    loaded.restore(0, stream_);
    compare("file", actions(shape), expected);
    loaded.sync();
    remove_capsule(verbs_.table(), options_.folder, name);
  }

  void compare(const char* what, const Chunk& found, const Chunk& expected) {
    ++result_->compared[what];
    if (std::ranges::equal(std::as_bytes(std::span(found)), std::as_bytes(std::span(expected)))) {
      return;
    }
    if (result_->failures.size() >= kMostFailures) return;
    const auto at =
        static_cast<std::size_t>(std::ranges::mismatch(found, expected).in1 - found.begin());
    result_->failures.push_back(
        fmt::format("case {}: {}: value {} of the chunk differs (repeat with --first {} --cases 1)",
                    number_, what, at, number_));
  }

  const PolicyModel& policy_;
  const frt_policy_info& info_;
  const Context& context_;
  StateCheckOptions options_;
  Stream stream_;
  Capsules verbs_;
  uint32_t slots_ = 0;
  std::mt19937_64 random_;
  frt_policy_shape shape_{};
  std::deque<Kept> kept_;
  uint64_t number_ = 0;
  StateCheckResult* result_ = nullptr;
};

}  // namespace

StateCheckResult check_policy_state(const PolicyModel& policy, const frt_state_v1* states,
                                    const frt_capsules_v1* capsules,
                                    const StateCheckOptions& options,
                                    const std::function<bool(const StateCheckResult&)>& step) {
  Check check(policy, states, capsules, options);
  StateCheckResult result;
  for (uint64_t i = 0; i < options.cases; ++i) {
    check.run(options.first + i, result);
    ++result.cases;
    if (step && step(result)) break;
  }
  return result;
}

}  // namespace frt::host
