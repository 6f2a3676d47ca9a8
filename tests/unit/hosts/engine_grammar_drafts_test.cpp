// SPDX-License-Identifier: Apache-2.0
// Drafts in steps that have masks: what an answer is with them it is without.
#include <string>
#include <vector>

#include "rule_grammar.hpp"

namespace {

using namespace frt::test;
using frt::host::Drafting;
using frt::host::Engine;
using frt::host::EngineOptions;
using frt::host::EngineRequest;

const std::string kDemo = FRT_FIXTURES_DIR "/demo";
constexpr const char* kFourSlots = "max_context = 256\nslots = 4\nblock_rows = 64";

EngineOptions with_drafts(Drafting drafting) {
  EngineOptions options = engine_options();
  options.session.speculation = drafting;
  return options;
}

void without_penalties(EngineRequest& request) {
  request.sampling.repetition_penalty = 1;
  request.sampling.presence_penalty = request.sampling.frequency_penalty = 0;
}

}  // namespace

TEST_CASE("an answer that follows a grammar does not stop the drafts of its neighbours") {
  GrammarWorld world(kFourSlots, kDemo);
  const Tokens prompt = world.model.encode("Once upon a time, there was a little");
  EngineRequest follows_rule = world.following(prompt, 150, rule_text(200, 200));
  follows_rule.sampling.temperature = 0.8f;
  EngineRequest free = asking(prompt, 40);
  without_penalties(free);
  const auto follows_alone = world.in_an_engine(follows_rule);
  const auto free_alone = world.in_an_engine(free);
  Engine engine(world.model, nullptr, with_drafts(Drafting::kOn));
  const auto first = submit(engine, follows_rule);
  first->wait_for_tokens(1);
  const auto second = submit(engine, free);
  second->wait();
  // While the first one writes.
  CHECK(first->tokens().size() < 150);
  CHECK(second->result().drafted > 0);
  CHECK(second->result().accepted > 0);
  first->wait();
  CHECK(first->tokens() == follows_alone->tokens());
  CHECK(follows(first->tokens()));
  CHECK(second->tokens() == free_alone->tokens());
  CHECK(second->choices[0].log_probabilities == free_alone->choices[0].log_probabilities);
}
