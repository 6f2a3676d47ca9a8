// SPDX-License-Identifier: Apache-2.0
// Cases of what a policy is told beside its observation (strengths of guidance, the chunk before),
// of what an inference and `finish` write, and of frt/calibration.h.
#include <frt/calibration.h>
#include <frt/role/contracts.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "broken_rule.hpp"
#include "check.hpp"
#include "made_text.hpp"
#include "plugin_cases.hpp"
#include "policy_run.hpp"
#include "runtime/robot_settings.hpp"

namespace frt::conformance {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinite = std::numeric_limits<float>::infinity();

const Subject& with_checkpoint(const Subject& subject) {
  needs_checkpoint(subject);
  return subject;
}

// A policy with random inputs.
struct MadePolicy {
  explicit MadePolicy(const Subject& subject) : made(with_checkpoint(subject)) {
    needs_policy(made);
    policy.emplace(host::policy_of(*made));
    rig.emplace(*policy);
    rig->write_inputs(subject.seed);
  }
  Made made;
  std::optional<host::PolicyModel> policy;
  std::optional<PolicyRig> rig;
};

// ---- guidance ------------------------------------------------------------------------------

Reply set_guidance(const PolicyRig& rig, const std::vector<float>& strengths) {
  const host::PolicyModel& policy = rig.policy();
  return asked(policy.sender(), "set_guidance", [&](Reply& reply) {
    return policy.role().set_guidance(policy.handle(), strengths.data(), strengths.size(),
                                      rig.stream().handle(), &reply.error);
  });
}

std::vector<float> guided(const PolicyRig& rig, std::vector<float> strengths) {
  const Reply reply = set_guidance(rig, strengths);
  check(reply.status, reply.error, rig.policy().sender() + ": set_guidance");
  // The caller's memory is its own again.
  std::fill(strengths.begin(), strengths.end(), kNan);
  return rig.infer();
}

void guidance(const Subject& subject) {
  const MadePolicy made(subject);
  const PolicyRig& rig = *made.rig;
  const frt_policy_info& info = rig.info();
  const bool offered = made.policy->role().set_guidance != nullptr;
  if (info.guidance_branches < 2) {
    if (offered) {
      require_refusal(set_guidance(rig, {1.5f}), "set_guidance of a policy without guidance",
                      FRT_ERR_UNSUPPORTED);
    }
    throw Skip{"the policy has no guidance: guidance_branches is " +
               std::to_string(info.guidance_branches)};
  }
  if (!offered) fail("a policy of several guidance_branches has no set_guidance");
  const std::size_t each = info.guidance_branches - 1, all = each * info.max_steps;
  const std::vector<float> weak = guided(rig, std::vector<float>(each, 1.5f));
  if (same_bits(guided(rig, std::vector<float>(each, 4.0f)), weak)) {
    fail(
        "the chunk is the same with the strengths 1.5 and 4, of branches whose prompts differ; the "
        "graph reads the buffer `beta`");
  }
  compare(guided(rig, std::vector<float>(all, 1.5f)), weak,
          "set_guidance with a strength for every step, all of them 1.5");
  compare(guided(rig, std::vector<float>(each, 1.5f)), weak, "set_guidance with 1.5 again");
  std::vector<float> late(all, 2.0f);
  const auto refused = [&](const std::string& what, const std::vector<float>& strengths,
                           frt_status status) {
    require_refusal(set_guidance(rig, strengths), "set_guidance " + what, status);
    compare(rig.infer(), weak, "set_guidance " + what + " is refused, but changed the strengths");
  };
  refused("without strengths", {}, FRT_OK);
  refused("with " + std::to_string(all + 1) + " strengths", std::vector<float>(all + 1, 2.0f),
          FRT_OK);
  for (const float wrong : {kNan, kInfinite, -kInfinite}) {
    late.back() = wrong;
    refused("with a last strength of " + std::to_string(wrong), late, FRT_ERR_INVALID_ARGUMENT);
  }
  late.back() = 0.5f;
  refused("with a last strength of 0.5", late, FRT_ERR_OUT_OF_RANGE);
}

// ---- the chunk before ----------------------------------------------------------------------

Reply set_continuation(const PolicyRig& rig, const frt_policy_previous& previous) {
  const host::PolicyModel& policy = rig.policy();
  return asked(policy.sender(), "set_continuation", [&](Reply& reply) {
    return policy.role().set_continuation(policy.handle(), &previous, rig.stream().handle(),
                                          &reply.error);
  });
}

std::vector<float> continued(const PolicyRig& rig, frt_policy_previous previous,
                             std::vector<float> actions) {
  previous.actions = actions.data();
  const Reply reply = set_continuation(rig, previous);
  check(reply.status, reply.error, rig.policy().sender() + ": set_continuation");
  std::fill(actions.begin(), actions.end(), kNan);  // the caller's memory is its own again
  return rig.infer();
}

void require_rows(const std::vector<float>& chunk, const std::vector<float>& before,
                  std::size_t values, const std::string& what) {
  compare(std::vector<float>(chunk.begin(), chunk.begin() + static_cast<std::ptrdiff_t>(values)),
          std::vector<float>(before.begin(), before.begin() + static_cast<std::ptrdiff_t>(values)),
          what);
}

// A policy takes FRT_CONTINUE_CLEAN for the delays that it was trained with, if for any.
void require_clean(const PolicyRig& rig, frt_policy_previous previous, std::vector<float> before) {
  const frt_policy_info& info = rig.info();
  previous.mode = FRT_CONTINUE_CLEAN;
  previous.rows = info.horizon;
  for (const uint32_t delay : {info.horizon, 1u}) {
    const std::string what = "FRT_CONTINUE_CLEAN with a delay of " + std::to_string(delay);
    previous.delay = delay;
    previous.actions = before.data();
    const std::vector<float> chunk = rig.infer();
    const Reply reply = set_continuation(rig, previous);
    if (reply.status == FRT_OK) {
      require_rows(continued(rig, previous, before), before, std::size_t{delay} * info.action_dim,
                   what + " against the previous chunk");
      continue;
    }
    require_refusal(reply, "set_continuation with " + what, FRT_ERR_UNSUPPORTED);
    compare(rig.infer(), chunk, what + " is refused, but changed what was there");
  }
}

void continuation(const Subject& subject) {
  MadePolicy made(subject);
  PolicyRig& rig = *made.rig;
  const frt_policy_info& info = rig.info();
  frt_policy_previous previous{};
  previous.struct_size = sizeof(previous);
  if (!info.has_continuation) {
    if (made.policy->role().set_continuation) {
      previous.mode = FRT_CONTINUE_LOCKED;
      require_refusal(set_continuation(rig, previous),
                      "set_continuation of a policy without continuation", FRT_ERR_UNSUPPORTED);
    }
    throw Skip{"the policy has no continuation"};
  }
  const std::vector<float> before = rig.normals(made.policy->action_values());
  const std::vector<float> alone = continued(rig, previous, before);
  frt_policy_previous pulled = previous;
  pulled.mode = FRT_CONTINUE_GUIDED;
  pulled.schedule = FRT_SCHEDULE_ONES;
  pulled.rows = pulled.execution_horizon = info.horizon;
  const std::vector<float> guided = continued(rig, pulled, before);
  if (same_bits(guided, alone)) {
    fail(
        "the chunk is the same with FRT_CONTINUE_GUIDED towards another chunk as with "
        "FRT_CONTINUE_NONE; the graph reads `continuation`, `previous` and `previous_weights`");
  }
  frt_policy_previous locked = previous;
  locked.mode = FRT_CONTINUE_LOCKED;
  locked.rows = info.horizon;
  locked.delay = std::max(1u, info.horizon / 2);
  require_rows(continued(rig, locked, before), before, std::size_t{locked.delay} * info.action_dim,
               "FRT_CONTINUE_LOCKED with a delay of " + std::to_string(locked.delay) +
                   " against the previous chunk");
  locked.rows = locked.delay = 1;
  require_rows(continued(rig, locked, {before.begin(), before.begin() + info.action_dim}), before,
               info.action_dim, "FRT_CONTINUE_LOCKED with one row against the previous chunk");
  compare(continued(rig, previous, {}), alone, "FRT_CONTINUE_NONE after a continued chunk");

  compare(continued(rig, pulled, before), guided, "FRT_CONTINUE_GUIDED again");
  const auto refused = [&](const std::string& what, const frt_policy_previous& wrong) {
    require_refusal(set_continuation(rig, wrong), "set_continuation " + what);
    compare(rig.infer(), guided,
            "set_continuation " + what + " is refused, but changed what was there");
  };
  std::vector<float> spoiled = before;
  pulled.actions = spoiled.data();
  frt_policy_previous wrong = pulled;
  wrong.mode = 99;
  refused("with the mode 99", wrong);
  wrong = pulled;
  wrong.schedule = 99;
  refused("with the schedule 99", wrong);
  wrong = pulled;
  wrong.rows = info.horizon + 1;
  refused("with more rows than the horizon", wrong);
  wrong = pulled;
  wrong.actions = nullptr;
  refused("without actions", wrong);
  wrong = pulled;
  wrong.delay = info.horizon + 1;
  refused("with a delay beyond the rows", wrong);
  for (const float value : {kNan, kInfinite}) {
    spoiled.back() = value;
    refused("with a last action of " + std::to_string(value), pulled);
  }
  require_clean(rig, previous, before);
}

// ---- what is written -----------------------------------------------------------------------

// Inputs stay, so that an inference can be made again; the chunk is written as a whole, and nothing
// behind it.
void inference_writes(const PolicyRig& rig) {
  const Buffer actions = Buffer::retain(rig.policy().context(), rig.info().actions);
  // NaN in every value.
  constexpr std::byte kPoison{0xFF};
  actions.upload(std::vector<std::byte>(actions.bytes(), kPoison), rig.stream());
  const std::vector<PolicyRig::Port> inputs = rig.inputs();
  std::vector<std::vector<std::byte>> before;
  for (const PolicyRig::Port& port : inputs) before.push_back(rig.bytes_of(port.buffer));
  const std::vector<float> chunk = rig.infer();
  const std::vector<std::byte> written = rig.bytes_of(rig.info().actions);
  for (std::size_t i = 0; i < before.size(); ++i) {
    if (rig.bytes_of(inputs[i].buffer) != before[i]) {
      fail(std::string("an inference writes to its input `") + inputs[i].name +
           "`; the host writes only what changed, so inputs stay as they are");
    }
  }
  for (std::size_t i = 0; i < chunk.size(); ++i) {
    if (std::isfinite(chunk[i])) continue;
    fail("value " + std::to_string(i) + " of the " + std::to_string(chunk.size()) +
         " of a chunk (horizon, action_dim) is not written, or not finite");
  }
  const std::size_t end = std::size_t{std::max(1u, rig.info().max_samples)} *
                          rig.policy().action_values() * sizeof(float);
  for (std::size_t i = end; i < written.size(); ++i) {
    if (written[i] == kPoison) continue;
    fail("an inference writes byte " + std::to_string(i) + " of `actions`, behind the " +
         std::to_string(end) + " of (max_samples, horizon, action_dim)");
  }
  compare(rig.infer(), chunk, "the same inference again");
}

void finish_writes(const host::PolicyModel& policy, const Subject& subject) {
  host::PolicyRunner runner(policy);
  const Observation observation(policy, subject.seed, instruction_of(policy, subject));
  runner.observe(observation.table());
  std::vector<float> actions = inferred(runner, subject.seed, 0).network;
  const frt_observed observed = runner.observed();
  constexpr std::size_t kBehind = 64;
  constexpr double kPoison = -7.25e300;
  std::vector<double> robot(policy.robot_values() + kBehind, kPoison);
  const auto finish = [&] {
    return asked(policy.sender(), "finish", [&](Reply& reply) {
      return policy.observation().finish(policy.handle(), &observed, actions.data(), robot.data(),
                                         &reply.error);
    });
  };
  const Reply reply = finish();
  check(reply.status, reply.error, policy.sender() + ": finish");
  for (std::size_t i = 0; i < robot.size(); ++i) {
    const bool written = robot[i] != kPoison, wanted = i < policy.robot_values();
    if (written == wanted) continue;
    fail("finish " + std::string(wanted ? "does not write" : "writes") + " value " +
         std::to_string(i) + " of `robot`; (horizon, action_dim of the info) are " +
         std::to_string(policy.robot_values()) + " values");
  }
  for (const float value : {kNan, kInfinite, -kInfinite}) {
    const float right = actions.back();
    actions.back() = value;
    require_refusal(finish(), "finish of a chunk whose last value is " + std::to_string(value),
                    FRT_ERR_FORMAT);
    actions.back() = right;
  }
}

void writes(const Subject& subject) {
  const MadePolicy made(subject);
  inference_writes(*made.rig);
  finish_writes(*made.policy, subject);
}

// ---- calibration ---------------------------------------------------------------------------

void calibration(const Subject& subject) {
  MadePolicy made(subject);
  PolicyRig& rig = *made.rig;
  const std::string& sender = made.policy->sender();
  const frt_model model = made.policy->handle();
  const auto table = made.made->extension<frt_calibration_v1>(FRT_EXT_CALIBRATION);
  if (!table) throw Skip{"the model has no " FRT_EXT_CALIBRATION};
  const auto begin = [&] {
    return asked(sender, "begin", [&](Reply& reply) { return table->begin(model, &reply.error); });
  };
  const auto note = [&](const frt_policy_shape& shape) {
    return asked(sender, "note", [&](Reply& reply) {
      return table->note(model, &shape, rig.stream().handle(), &reply.error);
    });
  };
  const auto write = [&](double margin, frt_status answer = FRT_OK) {
    return asked(
        sender, "write",
        [&](Reply& reply) {
          return table->write(model, margin, Reply::take, &reply, &reply.error);
        },
        answer);
  };
  const auto works = [&](const Reply& reply, const char* function) {
    check(reply.status, reply.error, sender + ": " + function);
  };
  const Reply first = begin();
  if (first.status == FRT_ERR_BAD_STATE && has_words(first.error)) throw Skip{first.error.message};
  works(first, "begin");
  require_refusal(write(1), "write of a calibration without a frame", FRT_ERR_BAD_STATE);
  frt_policy_shape wrong = rig.shape();
  wrong.views = rig.info().views + 1;
  require_refusal(note(wrong), "note of more views than there are", FRT_ERR_OUT_OF_RANGE);
  works(note(rig.shape()), "note");
  const Reply written = write(1);
  works(written, "write");
  if (written.calls != 1 || written.sent.empty()) {
    fail("write gives the calibration in " + std::to_string(written.calls) +
         " calls of the sink, it must be one, with a text");
  }
  if (write(1).sent != written.sent) fail("write gives another text when it is called again");
  require_refusal(write(0.5), "write with a margin of 0.5");
  require_refusal(write(std::nan("")), "write with a margin of NaN");
  if (write(1, FRT_ERR_CANCELLED).status != FRT_ERR_CANCELLED) {
    fail("write does not return what its sink returned (frt/base.h)");
  }
  if (rig.info().noise) {
    rig.write(rig.info().noise, std::vector<float>(made.policy->action_values(), kNan));
    works(note(rig.shape()), "note");
    require_refusal(write(1), "write after a frame with NaN as noise", FRT_ERR_FORMAT);
  }
  works(begin(), "begin");
  require_refusal(write(1), "write after begin, with no frame since", FRT_ERR_BAD_STATE);
}

}  // namespace

void add_guidance_cases(std::vector<PluginCase>& cases) {
  cases.push_back({"policy writes its outputs alone", writes});
  cases.push_back({"policy guidance", guidance});
  cases.push_back({"policy continuation", continuation});
  cases.push_back({"policy calibration", calibration});
}

}  // namespace frt::conformance
