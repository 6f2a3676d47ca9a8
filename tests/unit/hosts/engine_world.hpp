// SPDX-License-Identifier: Apache-2.0
// engine_world.hpp - a small model for an engine, and what a request gives alone. The demo model's
// drafts are often accepted, those of the tiny one never.
#pragma once

#include <algorithm>
#include <cstdint>
#include <frt/core/capsules.hpp>
#include <frt/core/state.hpp>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lm/capsules/registry.hpp"
#include "lm/engine/generate.hpp"
#include "model_rig.hpp"
#include "told.hpp"

namespace frt::test {

// Tokens without the stop token.
struct Alone {
  Tokens tokens;
  std::vector<float> log_probabilities;
};

struct EngineWorld {
  static constexpr uint64_t kChunk = 16;

  explicit EngineWorld(const std::string& options,
                       const std::string& checkpoint = "synthetic:qwen3.6-tiny")
      : rig(checkpoint, "prefill_chunk = 16\n" + options) {}

  ModelRig rig;
  host::LmModel model{rig.context, core::state_table(), core::capsules_table(),
                      rig.table,   rig.model,           "m"};

  std::unique_ptr<host::CapsuleRegistry> registry(host::CapsuleOptions options) const {
    return std::make_unique<host::CapsuleRegistry>(rig.context, model.capsules(),
                                                   std::move(options));
  }
  // What a request gives alone, made step by step in slot 0 without an engine: the prompt chunk by
  // chunk, then one token at a time, under the masks of its grammar. Not while an engine lives.
  Alone alone(const host::EngineRequest& asked, uint32_t choice = 0) const {
    host::StepRunner runner(model);
    frt_sampling_params sampling = asked.sampling;
    sampling.seed += choice;
    std::unique_ptr<host::GrammarMatcher> matcher;
    std::vector<uint32_t> mask(asked.grammar ? model.info().mask_words : 0);
    if (asked.grammar) matcher = asked.grammar->grammar()->matcher();
    // Whether anything may come next.
    const auto goes_on = [&] { return !matcher || matcher->fill(mask); };
    const uint32_t* const allowed = matcher ? mask.data() : nullptr;
    runner.clear(0);
    Alone alone;
    const std::span<const int32_t> prompt = asked.prompt;
    uint64_t at = 0, ticket = 0;
    bool more = goes_on();
    while (at < prompt.size()) {
      const uint64_t end = host::prefill_end(at, prompt.size(), kChunk);
      ticket = runner.submit_prefill(0, static_cast<int32_t>(at), prompt.subspan(at, end - at),
                                     at == 0, &sampling, allowed, nullptr, asked.bias);
      at = end;
    }
    while (more && alone.tokens.size() < asked.max_new) {
      const int32_t token = runner.wait(ticket)[0];
      if (std::ranges::count(asked.stop_ids, token) > 0) break;
      alone.tokens.push_back(token);
      alone.log_probabilities.push_back(runner.log_probabilities(ticket)[0]);
      if (at == model.info().max_context) break;
      if (matcher) more = matcher->accept(token) && goes_on();
      const host::StepRunner::Entry entry{.slot = 0,
                                          .position = static_cast<int32_t>(at++),
                                          .token = token,
                                          .sampling = &sampling,
                                          .mask = allowed,
                                          .bias = asked.bias};
      ticket = runner.submit_decode({&entry, 1});
    }
    runner.clear(0);
    runner.stream().sync();
    return alone;
  }
};

inline host::EngineOptions engine_options() {
  host::EngineOptions options;
  options.session.spacing = EngineWorld::kChunk;
  options.session.min_tokens = 1;
  return options;
}

}  // namespace frt::test
