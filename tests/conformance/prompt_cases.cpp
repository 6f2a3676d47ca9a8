// SPDX-License-Identifier: Apache-2.0
// The case of a policy's `set_prompt` (frt/role/policy.h): of the same words it makes the prompt
// that `write` of frt/observation.h makes, whatever prompt came before.
#include <frt/role/policy.h>
#include <frt/observation.hpp>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
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

constexpr std::size_t kLong = 1 << 16;  // bytes of a long instruction
constexpr std::size_t kShown = 24;      // bytes of an instruction in a message

std::string call_of(const std::string& text) {
  return "set_prompt of \"" + text.substr(0, kShown) +
         (text.size() > kShown ? "...\" (" + std::to_string(text.size()) + " bytes)" : "\"");
}

// A policy whose images, state and noise stay the same; `tell` changes its prompt.
class ToldPolicy {
 public:
  ToldPolicy(const Subject& subject, bool eager)
      : subject_(subject), made_(subject, eager), policy_(policy_of(made_)), rig_(policy_) {
    rig_.shape() = {};
    rig_.shape().struct_size = sizeof(frt_policy_shape);
    noise_ = rig_.normals(std::max(1u, rig_.info().max_samples) * policy_.action_values());
    if (branches() < 2 || !policy_.role().set_guidance) return;
    const std::vector<float> strengths(branches() - 1, 1.5f);  // no branch is without effect
    const Reply reply = asked(policy_.sender(), "set_guidance", [&](Reply& to) {
      return policy_.role().set_guidance(policy_.handle(), strengths.data(), strengths.size(),
                                         rig_.stream().handle(), &to.error);
    });
    check(reply.status, reply.error, policy_.sender() + ": set_guidance");
  }

  const host::PolicyModel& policy() const { return policy_; }
  uint32_t branches() const { return std::max(1u, rig_.info().guidance_branches); }

  // An observation with an instruction.
  Reply write(const Instruction& instruction) {
    const Observation observation(policy_, subject_.seed, instruction);
    const frt_observation given = observation.table();
    frt_observed observed{};
    observed.struct_size = sizeof(observed);
    const Reply reply = asked(policy_.sender(), "write", [&](Reply& to) {
      return policy_.observation().write(policy_.handle(), &given, rig_.stream().handle(),
                                         &observed, &to.error);
    });
    if (reply.status == FRT_OK) {
      rig_.shape().views = observed.views;
      rig_.shape().prompt = observed.prompt;
    }
    return reply;
  }

  // set_prompt of one branch. Throws where it changes another one, where it refuses without words
  // or with an effect, and where what it says of the prompt is not what the buffers have.
  Reply tell(uint32_t branch, const std::string& text) {
    const std::vector<Prompt> before = prompts();
    uint32_t tokens = 0;
    const Reply reply = call(branch, text, &tokens);
    const bool taken = reply.status == FRT_OK;
    const std::string what = call_of(text);
    if (!taken) require_refusal(reply, what);
    const std::vector<Prompt> after = prompts();
    for (uint32_t other = 0; other < branches(); ++other) {
      if ((taken && other == branch) || after[other] == before[other]) continue;
      fail(what + " for branch " + std::to_string(branch) +
           (taken ? " changes the prompt of branch "
                  : " is refused, but changes the prompt of branch ") +
           std::to_string(other));
    }
    if (taken) {
      require_length(what, branch, tokens);
      rig_.shape().prompt = branch == 0 ? tokens : std::max(rig_.shape().prompt, tokens);
    }
    return reply;
  }

  // set_prompt of all branches, which may refuse the text together.
  Reply tell(const std::string& text) {
    for (uint32_t branch = 0; branch < branches(); ++branch) {
      Reply reply = tell(branch, text);
      if (reply.status == FRT_OK) continue;
      if (branch == 0) return reply;
      fail(call_of(text) + " is refused for branch " + std::to_string(branch) +
           ", but not for those before it: " + reply.error.message);
    }
    return {};
  }
  std::vector<float> told(const std::string& text) {
    const Reply reply = tell(text);
    check(reply.status, reply.error, policy_.sender() + ": " + call_of(text));
    return infer();
  }

  Reply call(uint32_t branch, const std::string& text, uint32_t* tokens) {
    words_.assign(text.c_str(), text.c_str() + text.size() + 1);
    std::string options = options_;
    const Reply reply = asked(policy_.sender(), "set_prompt", [&](Reply& to) {
      return policy_.role().set_prompt(policy_.handle(), branch, words_.data(),
                                       options.empty() ? nullptr : options.c_str(),
                                       rig_.stream().handle(), tokens, &to.error);
    });
    std::fill(words_.begin(), words_.end() - 1, 'x');  // the caller's memory is its own again
    std::fill(options.begin(), options.end(), 'x');
    return reply;
  }

  // From now on with the state of the observation, as formats want it that have it in the prompt.
  void give_state() {
    const Observation observation(policy_, subject_.seed, {});
    std::vector<float> state;
    const frt_observation given = observation.table();
    for (uint32_t i = 0; i < given.array_count; ++i) {
      if (observation.names()[i].image) continue;
      const auto* values = static_cast<const float*>(given.arrays[i].data);
      state.insert(state.end(), values, values + array_elements(given.arrays[i]));
    }
    options_ = nlohmann::json({{"state", state}}).dump();
  }

  // No token is one that was there before.
  void spoil_tokens() const {
    rig_.write(rig_.info().prompt_tokens,
               std::vector<int32_t>(std::size_t{branches()} * rig_.info().max_prompt, -1));
  }
  void require_tokens(const std::string& what) const {
    const std::vector<Prompt> all = prompts();
    for (uint32_t branch = 0; branch < branches(); ++branch) {
      const auto missing = std::find(all[branch].ids.begin(), all[branch].ids.end(), -1);
      if (missing == all[branch].ids.end()) continue;
      fail(what + " leaves id " + std::to_string(missing - all[branch].ids.begin()) +
           " of branch " + std::to_string(branch) + " unwritten");
    }
  }

  std::vector<float> infer() const {
    rig_.write(rig_.info().noise, noise_);
    subject_.alive();
    return rig_.infer();
  }

 private:
  // What an inference reads of a branch.
  struct Prompt {
    int32_t length = 0;
    std::vector<int32_t> ids;
    bool operator==(const Prompt&) const = default;
  };

  static host::PolicyModel policy_of(const Made& made) {
    needs_policy(made);
    return host::policy_of(*made);
  }

  // Empty where the model has no such buffers.
  std::vector<Prompt> prompts() const {
    const frt_policy_info& info = rig_.info();
    std::vector<Prompt> all(branches());
    if (!info.prompt_tokens || !info.prompt_length) return all;
    const std::vector<std::byte> lengths = rig_.bytes_of(info.prompt_length);
    const std::vector<std::byte> tokens = rig_.bytes_of(info.prompt_tokens);
    for (std::size_t branch = 0; branch < all.size(); ++branch) {
      std::memcpy(&all[branch].length, lengths.data() + branch * sizeof(int32_t), sizeof(int32_t));
      const auto known = std::clamp(all[branch].length, 0, static_cast<int32_t>(info.max_prompt));
      all[branch].ids.resize(static_cast<std::size_t>(known));
      std::memcpy(all[branch].ids.data(),
                  tokens.data() + branch * info.max_prompt * sizeof(int32_t),
                  all[branch].ids.size() * sizeof(int32_t));
    }
    return all;
  }

  void require_length(const std::string& what, uint32_t branch, uint32_t tokens) const {
    if (tokens > rig_.info().max_prompt) {
      fail(what + " makes " + std::to_string(tokens) + " tokens; max_prompt is " +
           std::to_string(rig_.info().max_prompt));
    }
    const int32_t length = prompts()[branch].length;
    if (!rig_.info().prompt_length || length == static_cast<int32_t>(tokens)) return;
    fail(what + " says that the prompt has " + std::to_string(tokens) +
         " tokens, and prompt_length of branch " + std::to_string(branch) + " is " +
         std::to_string(length));
  }

  const Subject& subject_;
  Made made_;
  host::PolicyModel policy_;
  PolicyRig rig_;
  std::vector<float> noise_;
  std::vector<char> words_;
  std::string options_;  // empty: none
};

// What an observation without an instruction gives; nothing where it is refused.
std::optional<std::vector<float>> by_default(ToldPolicy& policy) {
  if (policy.write({}).status != FRT_OK) return std::nullopt;
  return policy.infer();
}

bool same(const std::optional<std::vector<float>>& a, const std::optional<std::vector<float>>& b) {
  return a.has_value() == b.has_value() && (!a || same_bits(*a, *b));
}

// The chunks after each text in turn, some of which may be refused.
std::vector<std::vector<float>> in_turn(ToldPolicy& policy, const std::vector<std::string>& texts) {
  std::vector<std::vector<float>> chunks = {policy.infer()};
  for (const std::string& text : texts) {
    const bool taken = policy.tell(text).status == FRT_OK;
    std::vector<float> chunk = policy.infer();
    if (!taken) {
      compare(chunk, chunks.back(), call_of(text) + " is refused, but changed what was there");
    }
    chunks.push_back(std::move(chunk));
  }
  return chunks;
}

// Instructions of which a policy may take none, and `known`, which it takes.
std::vector<std::string> texts_around(const std::string& known) {
  std::string long_text;
  while (long_text.size() < kLong) long_text += "go right, then ";
  return {known, "go", "go right", "", "größer", long_text, known + " again"};
}

void prompts(const Subject& subject) {
  needs_checkpoint(subject);
  ToldPolicy policy(subject, false);
  if (!policy.policy().role().set_prompt) throw Skip{"the policy has no set_prompt"};
  const Instruction instruction = instruction_of(policy.policy(), subject);
  const std::string known = instruction.words.empty() ? "go left" : instruction.words;
  const auto begin = [&](ToldPolicy& with) {
    const Reply reply = with.write(instruction);
    check(reply.status, reply.error, with.policy().sender() + ": write");
  };
  begin(policy);
  const auto by_checkpoint = by_default(policy);
  begin(policy);
  const std::vector<float> as_written = policy.infer();
  bool with_state = false;
  Reply first = policy.tell(known);
  if (first.status == FRT_ERR_INVALID_ARGUMENT) {
    compare(policy.infer(), as_written, "set_prompt is refused, but changed what was there");
    policy.give_state();
    with_state = true;
    first = policy.tell(known);
  }
  if (first.status != FRT_OK && instruction.words.empty()) {
    compare(policy.infer(), as_written, "set_prompt is refused, but changed what was there");
    throw Skip{"the policy takes no words that are known here, give some with --prompt: " +
               std::string(first.error.message)};
  }
  check(first.status, first.error, policy.policy().sender() + ": " + call_of(known));

  policy.spoil_tokens();
  policy.tell(known);
  policy.require_tokens(call_of(known));
  const std::vector<std::string> texts = texts_around(known);
  for (const std::string& text : texts) {
    if (text.empty() || policy.write({text, {}}).status != FRT_OK) continue;
    const std::vector<float> written = policy.infer();
    begin(policy);
    compare(policy.told(text), written, call_of(text) + " against `write` of the same words");
  }

  const std::vector<float> chunk = policy.told(known);
  for (uint32_t branch = 0; branch < policy.branches(); ++branch) {
    const Reply reply = policy.call(branch, known, nullptr);
    check(reply.status, reply.error, "set_prompt with NULL as `tokens`");
  }
  compare(policy.infer(), chunk, "set_prompt with NULL as `tokens`");
  uint32_t tokens = 0;
  require_refusal(policy.call(policy.branches(), known, &tokens),
                  "set_prompt of branch " + std::to_string(policy.branches()));
  compare(policy.infer(), chunk, "set_prompt of a branch that is not there changed the prompt");

  if (!same(by_default(policy), by_checkpoint)) {
    fail(
        "after set_prompt an observation without an instruction gives another answer than after an "
        "observation with one: it means the checkpoint's default (frt/observation.h)");
  }

  begin(policy);
  in_turn(policy, texts);
  compare(policy.told(known), chunk, call_of(known) + " after other prompts");

  ToldPolicy eager(subject, true);
  if (with_state) eager.give_state();
  begin(policy);
  begin(eager);
  const auto found = in_turn(policy, texts), expected = in_turn(eager, texts);
  for (std::size_t i = 0; i < found.size(); ++i) {
    compare(
        found[i], expected[i],
        (i == 0 ? std::string("`write`") : call_of(texts[i - 1])) +
            ", captured against eager (a graph reads the prompt's buffers when it is replayed)");
  }
}

}  // namespace

void add_prompt_cases(std::vector<PluginCase>& cases) {
  cases.push_back({"policy prompts", prompts});
}

}  // namespace frt::conformance
