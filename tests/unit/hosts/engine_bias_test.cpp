// SPDX-License-Identifier: Apache-2.0
// What a request adds to the logits of tokens is added before penalties and temperature, to each
// token of each of its answers, and to nobody else's.
#include <algorithm>
#include <cmath>
#include <frt/exec.hpp>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "rule_grammar.hpp"

namespace {

using namespace frt::test;
using frt::host::Drafting;
using frt::host::Engine;
using frt::host::EngineOptions;
using frt::host::EngineRequest;
using frt::host::StepRunner;
using frt::host::TokenProbability;
using frt::host::TopTokens;

const std::string kDemo = FRT_FIXTURES_DIR "/demo";
constexpr const char* kFourSlots = "max_context = 256\nslots = 4\npage_rows = 64";

// The logits behind the prompt and behind each token of the answer, as steps alone give them.
std::vector<std::vector<float>> logits_alone(const EngineWorld& world, const Tokens& prompt,
                                             const Tokens& answer) {
  StepRunner runner(world.model);
  runner.clear(0);
  const auto& info = world.model.info();
  const auto port = frt::Buffer::retain(world.model.context(), info.logits);
  std::vector<std::vector<float>> all;
  std::size_t at = 0;
  while (at < prompt.size()) {
    const std::size_t end = std::min(prompt.size(), at + EngineWorld::kChunk);
    runner.wait(runner.submit_prefill(0, static_cast<int32_t>(at),
                                      std::span(prompt).subspan(at, end - at), at == 0));
    at = end;
  }
  for (const int32_t token : answer) {
    all.push_back(port.download<float>(info.vocabulary, runner.stream()));
    const StepRunner::Entry entry{
        .slot = 0, .position = static_cast<int32_t>(at++), .token = token};
    runner.wait(runner.submit_decode({&entry, 1}));
  }
  return all;
}

// Steps 1 and 2 of frt/ops/sample.h, in double: -infinity where a token may not come.
std::vector<double> adjusted(const std::vector<float>& logits, const EngineRequest& asked,
                             const Tokens& before, int64_t sum) {
  std::map<int32_t, int> generated;
  for (const int32_t token : before) ++generated[token];
  std::vector<double> all(logits.begin(), logits.end());
  for (const frt_logit_bias& one : asked.bias) {
    all[static_cast<std::size_t>(one.id)] += static_cast<double>(one.value);
  }
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto id = static_cast<int32_t>(i);
    const int times = generated.contains(id) ? generated[id] : 0;
    const bool seen = times > 0 || std::ranges::count(asked.prompt, id) > 0;
    const auto repetition = static_cast<double>(asked.sampling.repetition_penalty);
    if (seen) all[i] = all[i] > 0 ? all[i] / repetition : all[i] * repetition;
    all[i] -= static_cast<double>(asked.sampling.frequency_penalty) * times;
    if (times > 0) all[i] -= static_cast<double>(asked.sampling.presence_penalty);
    if (asked.grammar && !may_follow(sum, id, true)) {
      all[i] = -std::numeric_limits<double>::infinity();
    }
  }
  return all;
}

double log_probability(const std::vector<double>& logits, int32_t id) {
  const double largest = *std::ranges::max_element(logits);
  double total = 0;
  for (const double logit : logits) total += std::exp(logit - largest);
  return logits[static_cast<std::size_t>(id)] - largest - std::log(total);
}

// Each place of the answer has the log probability that a softmax in double gives, and a greedy
// answer the token with the largest logit.
void check_against_reference(const EngineWorld& world, const EngineRequest& asked, Told& told,
                             uint32_t choice = 0) {
  const Tokens& answer = told.tokens(choice);
  const auto logits = logits_alone(world, asked.prompt, answer);
  int64_t sum = 1;
  for (std::size_t i = 0; i < answer.size(); ++i) {
    CAPTURE(i);
    const Tokens before(answer.begin(), answer.begin() + static_cast<std::ptrdiff_t>(i));
    const std::vector<double> expected = adjusted(logits[i], asked, before, sum);
    const int32_t token = answer[i];
    const double largest = *std::ranges::max_element(expected);
    if (asked.sampling.temperature == 0) {
      CHECK(expected[static_cast<std::size_t>(token)] > largest - 1e-4);
    }
    CHECK(static_cast<double>(told.choices[choice].log_probabilities[i]) ==
          doctest::Approx(log_probability(expected, token)).epsilon(1e-3));
    sum += token;
  }
}

std::vector<frt_logit_bias> some_bias(std::mt19937& random, std::size_t vocabulary,
                                      std::size_t count, const Tokens& likely) {
  std::map<int32_t, float> chosen;
  for (const int32_t id : likely) chosen[id] = -3;
  const float values[] = {-100, -5, 2.5f, 4, 6};
  while (chosen.size() < count) {
    chosen.emplace(static_cast<int32_t>(random() % vocabulary), values[random() % 5]);
  }
  std::vector<frt_logit_bias> bias;
  for (const auto& [id, value] : chosen) bias.push_back({id, value});
  std::ranges::shuffle(bias, random);
  return bias;
}

}  // namespace

TEST_CASE(
    "a bias is added before penalties: greedy, sampled, with drafts, a grammar and likeliest "
    "tokens") {
  GrammarWorld world(kFourSlots, kDemo);
  std::mt19937 random(5);
  const std::size_t vocabulary = world.model.info().vocabulary;
  const Tokens prompt = world.model.encode("Once upon a time, there was a little");
  uint64_t drafted = 0, accepted = 0, changed = 0;
  for (int round = 0; round < 16; ++round) {
    CAPTURE(round);
    EngineRequest asked = asking(prompt, 20);
    if (round % 2 != 0) asked.sampling.temperature = 0.9f;
    if (round % 4 < 2) {
      asked.sampling.repetition_penalty = 1;
      asked.sampling.presence_penalty = asked.sampling.frequency_penalty = 0;
    }
    asked.sampling.seed = random();
    if (round % 8 >= 6) {
      asked.grammar = world.compiler.compile({rule_text(40, 40, 0, 1000, true), true});
    }
    const auto plain = world.in_an_engine(asked);
    EngineRequest biased = asked;
    const Tokens likely(plain->tokens().begin(), plain->tokens().begin() + 3);
    biased.bias =
        some_bias(random, vocabulary,
                  round == 9 ? world.model.info().bias_capacity : 3 + random() % 60, likely);
    if (vocabulary < world.model.info().bias_capacity)
      FAIL("the demo's vocabulary is too small for this test");
    EngineRequest top = biased;
    top.top_tokens = 5;
    EngineOptions on = engine_options(), off = engine_options();
    on.session.speculation = Drafting::kOn;
    off.session.speculation = Drafting::kOff;
    std::shared_ptr<Told> with_drafts, neighbour, with_top, without;
    {
      Engine engine(world.model, nullptr, on);
      with_drafts = submit(engine, biased);
      neighbour = submit(engine, asked);
      with_top = submit(engine, top);
      with_drafts->wait();
      neighbour->wait();
      with_top->wait();
    }
    {
      Engine engine(world.model, nullptr, off);
      without = submit(engine, biased);
      without->wait();
    }
    REQUIRE_MESSAGE(with_drafts->error == FRT_OK, with_drafts->message);
    REQUIRE_MESSAGE(with_top->error == FRT_OK, with_top->message);
    CHECK(with_drafts->tokens() == without->tokens());
    CHECK(with_drafts->choices[0].log_probabilities == without->choices[0].log_probabilities);
    CHECK(with_top->tokens() == without->tokens());
    CHECK(neighbour->tokens() == plain->tokens());
    CHECK(neighbour->choices[0].log_probabilities == plain->choices[0].log_probabilities);
    drafted += with_drafts->result().drafted;
    accepted += with_drafts->result().accepted;
    changed += without->tokens() != plain->tokens();
    check_against_reference(world, biased, *without);
    const auto& tops = with_top->choices[0].top;
    REQUIRE(tops.size() == with_top->tokens().size());
    const auto logits = logits_alone(world, prompt, with_top->tokens());
    int64_t sum = 1;
    for (std::size_t i = 0; i < tops.size(); ++i) {
      const Tokens before(with_top->tokens().begin(),
                          with_top->tokens().begin() + static_cast<std::ptrdiff_t>(i));
      const std::vector<double> expected = adjusted(logits[i], biased, before, sum);
      const double largest = *std::ranges::max_element(expected);
      CHECK(expected[static_cast<std::size_t>(tops[i][0].id)] > largest - 1e-4);
      for (const TokenProbability& one : tops[i]) {
        CHECK(static_cast<double>(one.log_probability) ==
              doctest::Approx(log_probability(expected, one.id)).epsilon(1e-3));
      }
      sum += with_top->tokens()[i];
    }
  }
  CHECK(drafted > 0);
  CHECK(accepted > 0);
  CHECK(changed > 8);
}

TEST_CASE("-100 bans a token, 100 forces one, and a grammar stays in force") {
  GrammarWorld world(kFourSlots, kDemo);
  EngineRequest asked = asking(world.model.encode("Once upon a time, there was a little"), 12);
  asked.sampling.repetition_penalty = 1;
  asked.sampling.presence_penalty = asked.sampling.frequency_penalty = 0;
  for (const float temperature : {0.0f, 1.0f}) {
    asked.sampling.temperature = temperature;
    asked.bias.clear();
    asked.choices = 1;
    asked.grammar = nullptr;
    const auto plain = world.in_an_engine(asked);
    for (const int32_t id : plain->tokens()) {
      if (std::ranges::count(asked.bias, id, &frt_logit_bias::id) == 0) {
        asked.bias.push_back({id, -100});
      }
    }
    const auto banned = world.in_an_engine(asked);
    REQUIRE(banned->tokens().size() == 12);
    for (const frt_logit_bias& one : asked.bias) {
      CHECK(std::ranges::count(banned->tokens(), one.id) == 0);
    }
    const int32_t forced = 77;
    asked.bias = {{forced, 100}};
    asked.choices = 2;
    std::shared_ptr<Told> told;
    {
      Engine engine(world.model, nullptr, engine_options());
      told = submit(engine, asked);
      told->wait(2);
    }
    CHECK(told->tokens(0) == Tokens(12, forced));
    CHECK(told->tokens(1) == Tokens(12, forced));
    // The rule lets each place have some tokens alone: those of the bias come where they may.
    asked.choices = 1;
    asked.grammar = world.compiler.compile({rule_text(40, 40, 0, 1000, true), true});
    const auto ruled = world.in_an_engine(asked);
    REQUIRE_MESSAGE(ruled->error == FRT_OK, ruled->message);
    int64_t sum = 1;
    for (const int32_t token : ruled->tokens()) {
      CHECK(may_follow(sum, token, true));
      if (may_follow(sum, forced, true)) CHECK(token == forced);
      sum += token;
    }
  }
}

TEST_CASE("a bias that cannot be is refused, with its reason") {
  EngineWorld world("max_context = 128\nslots = 2");
  Engine engine(world.model, nullptr, engine_options());
  const auto refused = [&](std::vector<frt_logit_bias> bias, frt_status status, const char* why) {
    EngineRequest asked = asking(some_tokens(5, 1), 3);
    asked.bias = std::move(bias);
    try {
      submit(engine, asked);
      FAIL("it was taken");
    } catch (const frt::Error& error) {
      CHECK(error.status() == status);
      CHECK(std::string(error.what()).find(why) != std::string::npos);
    }
  };
  const auto vocabulary = static_cast<int32_t>(world.model.info().vocabulary);
  refused({{vocabulary, 1}}, FRT_ERR_INVALID_ARGUMENT, "biased token");
  refused({{-1, 1}}, FRT_ERR_INVALID_ARGUMENT, "biased token");
  refused({{5, 1}, {6, 1}, {5, 2}}, FRT_ERR_INVALID_ARGUMENT, "token 5 twice");
  refused({{5, NAN}}, FRT_ERR_INVALID_ARGUMENT, "finite");
  refused(std::vector<frt_logit_bias>(world.model.info().bias_capacity + 1, {1, 1}),
          FRT_ERR_OUT_OF_RANGE, "1024");
  EngineRequest asked = asking(some_tokens(5, 1), 3);
  asked.sampling.bias_count = 1;
  CHECK_THROWS_AS(submit(engine, asked), frt::Error);
}
