// SPDX-License-Identifier: Apache-2.0
// Drafts in steps that have masks: what an answer is with them it is without.
#include <algorithm>
#include <cstdlib>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "lm/grammar/source.hpp"
#include "rule_grammar.hpp"

namespace {

using namespace frt::test;
using frt::host::Drafting;
using frt::host::Engine;
using frt::host::EngineOptions;
using frt::host::EngineRequest;
using frt::host::Finish;
using frt::host::GrammarCompiler;
using frt::host::GrammarPart;
using frt::host::GrammarSource;
using frt::host::GrammarTicket;
using frt::host::has_grammar_backend;

const std::string kDemo = FRT_FIXTURES_DIR "/demo";
constexpr const char* kFourSlots = "max_context = 256\nslots = 4\npage_rows = 64";

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

namespace {

struct Asked {
  EngineRequest request;
  std::function<std::shared_ptr<const GrammarTicket>()> grammar;  // null: none
  std::shared_ptr<Told> plain;
};

// The same in an engine without drafts and in one with, in batches of 1 to 4.
struct Comparison {
  uint64_t drafted = 0, accepted = 0;  // of answers with a grammar
  uint64_t complete = 0;               // answers that their grammar ended

  void run(const GrammarWorld& world, std::vector<Asked>& all, std::mt19937& random) {
    for (Asked& asked : all) {
      if (asked.grammar) asked.request.grammar = asked.grammar();
      asked.plain = world.in_an_engine(asked.request);
      REQUIRE_MESSAGE(asked.plain->error == FRT_OK, asked.plain->message);
    }
    for (const Drafting drafting : {Drafting::kOn, Drafting::kAuto}) {
      Engine engine(world.model, nullptr, with_drafts(drafting));
      for (std::size_t at = 0; at < all.size();) {
        const std::size_t batch = std::min<std::size_t>(1 + random() % 4, all.size() - at);
        std::vector<std::shared_ptr<Told>> told;
        for (std::size_t i = at; i < at + batch; ++i) {
          told.push_back(submit(engine, all[i].request));
        }
        for (const auto& each : told) {
          CAPTURE(at);
          compare(all[at++], *each);
        }
      }
    }
  }

 private:
  void compare(const Asked& asked, Told& told) {
    told.wait();
    REQUIRE_MESSAGE(told.error == FRT_OK, told.message);
    Told& plain = *asked.plain;
    CHECK(told.tokens() == plain.tokens());
    CHECK(told.choices[0].log_probabilities == plain.choices[0].log_probabilities);
    CHECK(told.result().finish == plain.result().finish);
    CHECK(told.result().stop_token == plain.result().stop_token);
    if (!asked.grammar) return;
    drafted += told.result().drafted;
    accepted += told.result().accepted;
    complete += told.result().finish == Finish::kStop;
  }
};

// Greedy, sampled, or with penalties.
void draw_sampling(EngineRequest& request, std::mt19937& random) {
  const auto kind = random() % 3;
  if (kind != 2) without_penalties(request);
  if (kind != 0) request.sampling.temperature = 0.7f;
  request.sampling.seed = random();
}

const char* const kStarts[] = {"Once upon a time, there was a little",
                               "One day, a big dog went to the", "What is 12 + 7?",
                               "def add(a, b):\n", "She was very happy because"};

std::size_t prompts() {
  const char* text = std::getenv("FRT_DRAFT_PROMPTS");
  return text ? std::strtoull(text, nullptr, 10) : 24;
}

}  // namespace

// The mask of each place depends on every token before it, so one that is behind the wrong draft is
// seen.
TEST_CASE("answers that follow a grammar are the same with drafts and without") {
  GrammarWorld world(kFourSlots, kDemo);
  std::mt19937 random(21);
  std::vector<Asked> all;
  for (std::size_t i = 0; i < 5 * prompts(); ++i) {
    Asked asked;
    asked.request =
        asking(world.model.encode(kStarts[random() % std::size(kStarts)]), 1 + random() % 40);
    draw_sampling(asked.request, random);
    const uint64_t least = random() % 40, most = least + 1 + random() % 10;
    const bool loose = random() % 4 != 0;
    if (random() % 2) {
      asked.request.stop_ids = {static_cast<int32_t>(random() % 2000)};
      asked.request.min_new = random() % 20;
    }
    if (random() % 4) {
      asked.grammar = [&world, least, most, loose] {
        return world.compiler.compile({rule_text(least, most, 0, 1'000'000, loose), true});
      };
    }
    all.push_back(std::move(asked));
  }
  Comparison comparison;
  comparison.run(world, all, random);
  CHECK(comparison.complete > 0);
  CHECK(comparison.accepted > 0);
  CHECK(comparison.accepted < comparison.drafted);
  MESSAGE(comparison.accepted << " of " << comparison.drafted << " drafts accepted in "
                              << 2 * all.size() << " answers");
}

TEST_CASE("answers that follow schemas and expressions are the same with drafts and without" *
          doctest::skip(!has_grammar_backend())) {
  GrammarWorld world(kFourSlots, kDemo);
  GrammarCompiler compiler(world.model, world.model.info().vocabulary, {.threads = 1});
  const auto schema = [](const char* text) {
    return GrammarPart::json_schema(nlohmann::ordered_json::parse(text)).source(nullptr);
  };
  const std::vector<GrammarSource> sources = {
      GrammarPart::regex("[ -~\\n]*").source(nullptr),
      GrammarPart::regex("( [a-z]+|[,.])*").source(nullptr),
      GrammarPart::regex(" ?[0-9]{1,3}").source(nullptr),
      GrammarPart::json_object().source(nullptr),
      schema(R"({"type": "object", "properties": {"name": {"type": "string", "maxLength": 20},
                 "age": {"type": "integer"}}, "required": ["name", "age"],
                 "additionalProperties": false})"),
      schema(R"({"type": "array", "items": {"enum": ["dog", "cat", 7]}, "minItems": 2})"),
  };
  std::mt19937 random(22);
  std::vector<Asked> all;
  for (std::size_t i = 0; i < 5 * prompts(); ++i) {
    Asked asked;
    asked.request =
        asking(world.model.encode(kStarts[random() % std::size(kStarts)]), 1 + random() % 40);
    draw_sampling(asked.request, random);
    asked.request.stop_ids = world.model.encode("<|im_end|><|endoftext|>");
    const std::size_t at = random() % (sources.size() + 1);
    if (at < sources.size()) {
      asked.grammar = [&compiler, &source = sources[at]] { return compiler.compile(source); };
    }
    all.push_back(std::move(asked));
  }
  Comparison comparison;
  comparison.run(world, all, random);
  CHECK(comparison.complete > 0);
  CHECK(comparison.accepted > 0);
  CHECK(comparison.accepted < comparison.drafted);
  MESSAGE(comparison.accepted << " of " << comparison.drafted << " drafts accepted in "
                              << 2 * all.size() << " answers");
}

// What fails behind a draft is not what fails behind the text.
TEST_CASE(
    "a mask that cannot be had behind a draft ends the drafts of its answer, not the answer") {
  GrammarWorld world(kFourSlots, kDemo);
  const Tokens prompt = world.model.encode("Once upon a time, there was a little");
  EngineRequest request = world.following(prompt, 9, rule_text(40, 40, 0, 9, true));
  without_penalties(request);
  const auto plain = world.in_an_engine(request);
  REQUIRE_MESSAGE(plain->error == FRT_OK, plain->message);
  CHECK(plain->tokens().size() == 9);
  Engine engine(world.model, nullptr, with_drafts(Drafting::kOn));
  auto told = submit(engine, request);
  told->wait();
  REQUIRE_MESSAGE(told->error == FRT_OK, told->message);
  CHECK(told->tokens() == plain->tokens());
  CHECK(told->result().accepted > 0);
  // The text comes there, too.
  request.max_new = 20;
  told = submit(engine, request);
  told->wait();
  CHECK(told->error == FRT_ERR_INVALID_ARGUMENT);
  CHECK(told->message == "stuck");
  CHECK(told->tokens() == plain->tokens());
}
