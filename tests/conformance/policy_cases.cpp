// SPDX-License-Identifier: Apache-2.0
// Cases of a robot policy, by the code of the robot host: an observation in, a chunk of actions
// out.
#include <frt/observation.h>
#include <frt/role/policy.h>
#include <frt/capsule.hpp>
#include <frt/core/capsules.hpp>
#include <frt/core/state.hpp>
#include <frt/error.hpp>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "bench/state_check.hpp"
#include "broken_rule.hpp"
#include "check.hpp"
#include "made_model.hpp"
#include "plugin_cases.hpp"
#include "policy_run.hpp"
#include "raw_model.hpp"
#include "runtime/robot_settings.hpp"
#include "wrong_arrays.hpp"

namespace frt::conformance {
namespace {

constexpr uint64_t kChunks = 3;  // where runs are compared

std::vector<Chunk> chunks(const Subject& subject, bool eager) {
  const Made made(subject, eager);
  const host::PolicyModel policy = host::policy_of(*made);
  host::PolicyRunner runner(policy);
  const Instruction words = instruction_of(policy, subject);
  std::vector<Chunk> all;
  for (uint64_t i = 0; i < kChunks; ++i) {
    const Observation observation(policy, subject.seed * kChunks + i, words);
    runner.observe(observation.table());
    all.push_back(inferred(runner, subject.seed, i));
  }
  return all;
}

void captured_equals_eager(const Subject& subject) {
  needs_checkpoint(subject);
  needs_policy(Made(subject));
  const std::vector<Chunk> eager = chunks(subject, true), captured = chunks(subject, false);
  for (uint64_t i = 0; i < kChunks; ++i) {
    const std::string what = "chunk " + std::to_string(i) +
                             ", captured against eager (a kernel that works in `launch` itself "
                             "runs at the capture and never again)";
    compare(captured[i].network, eager[i].network, what);
    compare(captured[i].robot, eager[i].robot, what + ", in robot units");
  }
}

void capsules(const Subject& subject) {
  needs_checkpoint(subject);
  const Made made(subject);
  needs_policy(made);
  if (!made.has(FRT_EXT_CAPSULE)) throw Skip{"the policy has no " FRT_EXT_CAPSULE};
  const host::PolicyModel policy = host::policy_of(*made);
  if (!policy.info().state) throw Skip{"the policy has no state of its own to make capsules of"};
  host::StateCheckOptions options;
  options.cases = 9;  // each eighth with a file
  options.seed = subject.seed;
  options.folder = subject.folder;
  Capsules(core::capsules_table(), made->context(), policy.info().state).fingerprint();
  const host::StateCheckResult result = host::check_policy_state(
      policy, core::state_table(), core::capsules_table(), options, [&](const auto&) {
        subject.alive();
        return false;
      });
  if (!result.failures.empty()) fail(result.failures.front() + kOutsideLayout);
}

void refuses_shapes(const Subject& subject) {
  needs_checkpoint(subject);
  const Made made(subject);
  needs_policy(made);
  const host::PolicyModel policy = host::policy_of(*made);
  const frt_policy_info& info = policy.info();
  const auto expect = [&](const char* what, uint32_t frt_policy_shape::*member, uint32_t value,
                          frt_status wanted) {
    frt_policy_shape shape{};
    shape.struct_size = sizeof(shape);
    shape.*member = value;
    frt_shape_key key = 0;
    const frt_status status = policy.role().infer_key(policy.handle(), &shape, &key);
    if (status != wanted) {
      fail("infer_key of " + std::to_string(value) + " " + what + " returns " +
           status_name(status) + ", by frt/role/policy.h " + status_name(wanted));
    }
  };
  expect("views", &frt_policy_shape::views, info.views + 1, FRT_ERR_OUT_OF_RANGE);
  expect("prompt tokens", &frt_policy_shape::prompt, info.max_prompt + 1, FRT_ERR_OUT_OF_RANGE);
  expect("steps", &frt_policy_shape::steps, 1u << 20, FRT_ERR_NO_VARIANT);
  expect("samples", &frt_policy_shape::samples, std::max(1u, info.max_samples) + 1,
         FRT_ERR_NO_VARIANT);
  expect("branches", &frt_policy_shape::branches, std::max(1u, info.guidance_branches) + 1,
         FRT_ERR_NO_VARIANT);
}

// Without an instruction the checkpoint's default counts, whatever came before: a server has many
// robots, and none is to do what another was told.
void default_instruction(const Subject& subject) {
  needs_checkpoint(subject);
  const Made made(subject);
  needs_policy(made);
  const host::PolicyModel policy = host::policy_of(*made);
  host::PolicyRunner runner(policy);
  const auto without = [&]() -> std::optional<Chunk> {
    const Observation observation(policy, subject.seed, {});
    const frt_observation given = observation.table();
    frt_observed observed{};
    observed.struct_size = sizeof(observed);
    frt_error error{};
    const frt_status status = contain(policy.sender(), "write", [&] {
      return policy.observation().write(policy.handle(), &given, runner.stream(), &observed,
                                        &error);
    });
    if (status == FRT_OK) {
      runner.observe(given);
      return inferred(runner, subject.seed, 0);
    }
    if (status == FRT_ERR_BAD_STATE) throw Skip{error.message};  // no tokenizer for its default
    if (status == FRT_ERR_NOT_FOUND && has_words(error)) return std::nullopt;
    fail(std::string("`write` without an instruction returns ") + status_name(status) +
         (has_words(error) ? "" : " without a message") +
         "; use the checkpoint's default, or say FRT_ERR_NOT_FOUND (frt/observation.h)");
  };
  const std::optional<Chunk> first = without();
  const Observation told(policy, subject.seed, instruction_of(policy, subject));
  runner.observe(told.table());
  inferred(runner, subject.seed, 0);
  const std::optional<Chunk> again = without();
  if (first.has_value() == again.has_value() &&
      (!first || same_bits(first->network, again->network))) {
    return;
  }
  fail(
      "after an observation with an instruction, one without gives another answer than before: "
      "prompt and prompt_tokens NULL mean the checkpoint's default, not what came before "
      "(frt/observation.h)");
}

// Each array wrong in one way; a refusal has words and leaves the observation before as it was.
void refuses_observations(const Subject& subject) {
  needs_checkpoint(subject);
  const Made made(subject);
  needs_policy(made);
  const host::PolicyModel policy = host::policy_of(*made);
  host::PolicyRunner runner(policy);
  const Instruction words = instruction_of(policy, subject);
  const Observation good(policy, subject.seed, words);
  if (good.names().empty()) throw Skip{"the policy does not say which arrays it reads"};
  runner.observe(good.table());
  const Chunk expected = inferred(runner, subject.seed, 0);
  // `wanted`: FRT_OK: any code.
  const auto refused = [&](const std::string& what, const frt_observation& wrong,
                           frt_status wanted = FRT_OK) {
    frt_observed observed{};
    observed.struct_size = sizeof(observed);
    frt_error error{};
    const frt_status status = contain(policy.sender(), "write", [&] {
      return policy.observation().write(policy.handle(), &wrong, runner.stream(), &observed,
                                        &error);
    });
    if (status == FRT_OK) {
      fail(what + " is taken; `write` checks everything before it touches a buffer");
    }
    if (!has_words(error)) {
      fail(what + " is refused with " + status_name(status) + " and no message in frt_error");
    }
    if (wanted != FRT_OK && status != wanted) {
      fail(what + " is refused with " + status_name(status) + ", it must be " +
           status_name(wanted) + " (frt::read_observation)");
    }
    compare(inferred(runner, subject.seed, 0).network, expected.network,
            what + " is refused, but changed what was there");
  };
  for (std::size_t i = 0; i < good.names().size(); ++i) {
    const host::ObservedName& name = good.names()[i];
    Observation wrong(policy, subject.seed + 1, words);
    const std::string what = "array '" + name.name + "' ";
    const frt_array right = wrong.arrays()[i];
    const bool any_length = !name.image && !name.shape.empty() && name.shape[0] < 0;
    for (const WrongArray& one : wrong_arrays(right, any_length)) {
      wrong.arrays()[i] = one.array;
      refused(what + one.what, wrong.table(), one.status);
    }
    wrong.arrays()[i] = right;
    if (name.required) {
      wrong.arrays().erase(wrong.arrays().begin() + static_cast<std::ptrdiff_t>(i));
      refused(what + "missing", wrong.table());
    }
  }
}

}  // namespace

void add_policy_cases(std::vector<PluginCase>& cases) {
  cases.push_back({"policy captured equals eager", captured_equals_eager});
  cases.push_back({"policy capsules", capsules});
  cases.push_back({"policy refuses shapes", refuses_shapes});
  cases.push_back({"policy refuses observations", refuses_observations});
  cases.push_back({"policy default instruction", default_instruction});
}

}  // namespace frt::conformance
