// SPDX-License-Identifier: Apache-2.0
#include "cli/prompt_options.hpp"

#include <frt/core/config.hpp>

#include "runtime/exit_code.hpp"

namespace frt::host {
namespace {

uint64_t parse_max_new(const std::string& text) {
  const auto value = core::parse_size(text);
  if (!value) {
    throw ExitError(ExitCode::kUsage, FRT_ERR_INVALID_ARGUMENT,
                    "'" + text + "' is no whole number such as 256 or 2k");
  }
  return static_cast<uint64_t>(*value);
}

}  // namespace

void PromptOptions::add_to(Command command) {
  command.add_option("-n,--max-new", max_new, "Generate at most this many tokens (\"2k\" is 2048)")
      .type_name("N")
      .check(parse_max_new)
      .capture_default_str();
  Option greedy =
      command.add_flag("--greedy", sampling.greedy, "Take the most probable token each time");
  command
      .add_option("--temperature", sampling.temperature, "Set the sampling temperature; 0: greedy")
      .excludes(greedy);
  command.add_option("--top-k", sampling.top_k, "Draw from the k most probable tokens; 0: all")
      .excludes(greedy);
  command
      .add_option("--top-p", sampling.top_p,
                  "Sample from the smallest set of tokens with this total probability")
      .excludes(greedy);
  command
      .add_option("--min-p", sampling.min_p,
                  "Drop tokens below this fraction of the best token's probability")
      .excludes(greedy);
  command.add_option("--repetition-penalty", sampling.repetition_penalty,
                     "Divide the logits of tokens seen before; 1: off");
  command.add_option("--presence-penalty", sampling.presence_penalty,
                     "Lower the logits of tokens generated before");
  command.add_option("--frequency-penalty", sampling.frequency_penalty,
                     "Lower the logits of tokens in proportion to their count");
  command.add_option("--seed", sampling.seed, "Set the random seed; default: random")
      .excludes(greedy);
  command.add_option("--stop", stops, "End before this text; may be repeated").one_each();
  command.add_flag("--ignore-eos", ignore_eos, "Generate past the end token");
}

uint64_t PromptOptions::max_new_tokens() const {
  return parse_max_new(max_new);
}

std::vector<int32_t> stop_token_ids(const nlohmann::ordered_json& defaults) {
  const auto found = defaults.find("stop_token_ids");
  return found == defaults.end() ? std::vector<int32_t>{} : found->get<std::vector<int32_t>>();
}

}  // namespace frt::host
