// SPDX-License-Identifier: Apache-2.0
// served_model.hpp - a language model behind the HTTP server: the model, its engine, its defaults.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "http/api/call.hpp"
#include "lm/engine/engine.hpp"
#include "lm/grammar/compiler.hpp"
#include "lm/lm_model.hpp"
#include "lm/prompt_memory.hpp"

namespace frt::host {

struct ServedModel {
  // `engine` and `model` outlive this object.  [setup]
  ServedModel(const LmModel& model, Engine& engine);
  // With another compiler; for tests.
  ServedModel(const LmModel& model, Engine& engine, std::unique_ptr<GrammarCompiler> grammars);

  const LmModel& model;
  Engine& engine;
  const nlohmann::ordered_json defaults;  // of sampling, as the checkpoint has them
  const std::vector<int32_t> stop_ids;
  const uint64_t created;  // seconds since 1970
  // Null: no form can be forced on the model's answers; `no_grammars` says why, for the log.
  const std::unique_ptr<GrammarCompiler> grammars;
  const std::string no_grammars;
  const std::unique_ptr<PromptMemory> prompts;  // has a lock of its own

 private:
  struct Grammars;
  ServedModel(const LmModel& model, Engine& engine, Grammars grammars);
};

// A prompt, and where a later prompt of the same conversation will part from it (0: not known).
struct PreparedPrompt {
  std::vector<int32_t> ids;
  std::string text;  // of a text prompt, for an echo
  uint64_t user_turn = 0;
};

// The prompts of a call, in order, rendered and tokenized. `owner`: whose request it is; what is
// remembered of it serves no other. Throws ApiError for what the model cannot say or has no room
// for.  [any]
std::vector<PreparedPrompt> prepare_prompts(const ServedModel& served, const std::string& owner,
                                            const ApiCall& call);

// For the routes about text; each throws ApiError as prepare_prompts() does.  [any]
std::vector<int32_t> text_ids(const ServedModel& served, const std::string& text);
std::vector<int32_t> chat_ids(const ServedModel& served, const std::string& owner,
                              const ApiCall& call);
std::string chat_text(const ServedModel& served, const ApiCall& call);
std::string text_of_ids(const ServedModel& served, const std::vector<int32_t>& ids);

}  // namespace frt::host
