// SPDX-License-Identifier: Apache-2.0
// The likeliest tokens at each place of an answer are those of the model's logits, behind mask and
// penalties, and nothing else of the answer changes.
#include <algorithm>
#include <cmath>
#include <frt/exec.hpp>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "lm/engine/top_tokens.hpp"
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

// frt/ops/sample.h step 2, in double; sorted.
std::vector<std::pair<double, int32_t>> reference(const std::vector<float>& logits,
                                                  const EngineRequest& asked, const Tokens& before,
                                                  int64_t sum, bool masked) {
  std::map<int32_t, int> generated;
  for (const int32_t token : before) ++generated[token];
  std::vector<std::pair<double, int32_t>> all;
  double largest = -1e300, total = 0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const auto id = static_cast<int32_t>(i);
    if (masked && !may_follow(sum, id, true)) continue;
    double l = static_cast<double>(logits[i]);
    const int times = generated.contains(id) ? generated[id] : 0;
    const bool seen = times > 0 || std::ranges::count(asked.prompt, id) > 0;
    const double repetition = static_cast<double>(asked.sampling.repetition_penalty);
    if (seen) l = l > 0 ? l / repetition : l * repetition;
    l -= static_cast<double>(asked.sampling.frequency_penalty) * times;
    if (times > 0) l -= static_cast<double>(asked.sampling.presence_penalty);
    all.emplace_back(l, id);
    largest = std::max(largest, l);
  }
  for (const auto& [l, id] : all) total += std::exp(l - largest);
  for (auto& [l, id] : all) l -= largest + std::log(total);
  std::ranges::sort(all, [](const auto& a, const auto& b) {
    return a.first > b.first || (a.first == b.first && a.second < b.second);
  });
  return all;
}

}  // namespace

TEST_CASE(
    "the likeliest tokens are found in the logits, equal ones by id, none that may not come") {
  frt_sampling_params sampling{};
  sampling.repetition_penalty = 1;
  std::vector<float> logits(200, -5);
  logits[7] = logits[150] = logits[30] = 2;
  logits[64] = NAN;
  logits[199] = 1;
  logits[3] = -INFINITY;
  TopTokens top(200, 4, sampling, {});
  const auto ids = [](std::span<const TokenProbability> found) {
    Tokens all;
    for (const TokenProbability& token : found) all.push_back(token.id);
    return all;
  };
  CHECK(ids(top.find(logits, nullptr, {30, -1.25f})) == Tokens{7, 30, 150, 199});
  const auto found = top.find(logits, nullptr, {199, -2.5f});
  CHECK(found[0].log_probability == -1.5f);
  CHECK(found[3].log_probability == -2.5f);
  std::vector<uint32_t> mask(7, 0);
  mask[0] = 1U << 7 | 1U << 3;
  mask[6] = 1U << 7;
  CHECK(ids(top.find(logits, mask.data(), {7, -1})) == Tokens{7, 199});
  CHECK(top.find(logits, nullptr, {200, -1}).empty());
  CHECK(top.find(logits, nullptr, {-1, -1}).empty());
  // What was generated is less likely than what only the prompt has.
  sampling.presence_penalty = 0.5f;
  const Tokens prompt = {7, 30};
  TopTokens penalised(200, 2, sampling, prompt);
  CHECK(ids(penalised.find(logits, nullptr, {7, -1})) == Tokens{7, 30});
  penalised.add(7);
  CHECK(ids(penalised.find(logits, nullptr, {7, -1})) == Tokens{30, 150});
}

TEST_CASE("an answer's likeliest tokens are those of its logits, and the answer stays as it is") {
  GrammarWorld world(kFourSlots, kDemo);
  std::mt19937 random(31);
  double largest_difference = 0;
  for (int round = 0; round < 12; ++round) {
    CAPTURE(round);
    EngineRequest asked = asking(world.model.encode("Once upon a time, there was a little"), 20);
    const bool masked = round % 2 != 0;
    if (round % 3 != 2) {
      asked.sampling.repetition_penalty = 1;
      asked.sampling.presence_penalty = asked.sampling.frequency_penalty = 0;
    }
    if (round % 3 != 0) asked.sampling.temperature = 0.9f;
    asked.sampling.seed = random();
    if (masked) asked.grammar = world.compiler.compile({rule_text(40, 40, 0, 1000, true), true});
    const auto plain = world.in_an_engine(asked);
    EngineRequest top = asked;
    top.top_tokens = 1 + static_cast<uint32_t>(random() % TopTokens::kMost);
    EngineOptions options = engine_options();
    options.session.speculation = Drafting::kOn;
    std::shared_ptr<Told> told, neighbour;
    {
      Engine engine(world.model, nullptr, options);
      told = submit(engine, top);
      neighbour = submit(engine, asked);
      told->wait();
      neighbour->wait();
    }
    REQUIRE_MESSAGE(told->error == FRT_OK, told->message);
    CHECK(told->tokens() == plain->tokens());
    CHECK(told->choices[0].log_probabilities == plain->choices[0].log_probabilities);
    CHECK(told->result().drafted == 0);
    CHECK(neighbour->tokens() == plain->tokens());
    CHECK(neighbour->result().drafted > 0);
    CHECK(neighbour->choices[0].top.empty());
    const auto& tops = told->choices[0].top;
    REQUIRE(tops.size() == told->tokens().size());
    const auto logits = logits_alone(world, asked.prompt, told->tokens());
    int64_t sum = 1;
    for (std::size_t i = 0; i < tops.size(); ++i) {
      CAPTURE(i);
      const Tokens before(told->tokens().begin(),
                          told->tokens().begin() + static_cast<std::ptrdiff_t>(i));
      const auto expected = reference(logits[i], asked, before, sum, masked);
      const int32_t sampled = told->tokens()[i];
      REQUIRE(tops[i].size() == top.top_tokens);
      for (std::size_t k = 0; k < tops[i].size(); ++k) {
        const TokenProbability& found = tops[i][k];
        const double value = static_cast<double>(found.log_probability);
        largest_difference = std::max(largest_difference, std::abs(value - expected[k].first));
        // Two that differ in the last bits may change places.
        const bool same = found.id == expected[k].second;
        CHECK((same || std::abs(expected[k].first - value) < 1e-5));
        if (found.id == sampled) {
          CHECK(found.log_probability == told->choices[0].log_probabilities[i]);
        }
      }
      if (asked.sampling.temperature == 0) CHECK(tops[i][0].id == sampled);
      sum += sampled;
    }
  }
  CHECK(largest_difference < 1e-4);
  MESSAGE("largest difference to a softmax in double: " << largest_difference);
}

TEST_CASE(
    "the tokens of a prompt are scored by the logits before them, whatever its request asks") {
  GrammarWorld world(kFourSlots, kDemo);
  const Tokens prompt = world.model.encode("Once upon a time, there was a little girl named Nina.");
  EngineRequest bare = asking(prompt, 1);
  bare.sampling.repetition_penalty = 1;
  bare.sampling.presence_penalty = bare.sampling.frequency_penalty = 0;
  const auto logits =
      logits_alone(world, {prompt.front()}, Tokens(prompt.begin() + 1, prompt.end()));
  const auto registry = world.registry({uint64_t{1} << 30, 0, 0, {}});
  Engine engine(world.model, registry.get(), engine_options());
  submit(engine, asking(prompt, 6))->wait();  // what could be reused
  const auto busy = submit(engine, asking(prompt, 60));
  for (const uint32_t top : {0U, 4U}) {
    EngineRequest asked = asking(prompt, 6);
    asked.score_prompt = true;
    asked.top_tokens = top;
    asked.choices = 2;
    asked.sampling.temperature = 0.8f;
    asked.bias = {{5, 3}};
    const auto told = submit(engine, asked);
    told->wait(2);
    REQUIRE_MESSAGE(told->error == FRT_OK, told->message);
    CHECK(told->prefix.reused == 0);
    CHECK(told->tokens(0).size() == 6);
    CHECK(told->tokens(1).size() == 6);
    REQUIRE(told->prompt_scores.size() == prompt.size() - 1);
    for (std::size_t i = 0; i + 1 < prompt.size(); ++i) {
      CAPTURE(i);
      const auto expected = reference(logits[i], bare, {}, 1, false);
      const auto found =
          std::ranges::find(expected, prompt[i + 1], [](const auto& one) { return one.second; });
      CHECK(static_cast<double>(told->prompt_scores[i]) ==
            doctest::Approx(found->first).epsilon(1e-3));
      REQUIRE(told->prompt_top[i].size() == top);
      for (std::size_t k = 0; k < top; ++k) {
        const auto value = static_cast<double>(told->prompt_top[i][k].log_probability);
        CHECK(std::abs(value - expected[k].first) < 1e-3);
      }
    }
  }
  busy->wait();
  // The prompt alone, and one token, which has nothing before it.
  EngineRequest scored = asking(prompt, 0);
  scored.score_prompt = true;
  const auto told = submit(engine, scored);
  told->wait();
  CHECK(told->prompt_scores.size() == prompt.size() - 1);
  CHECK(told->result().generated == 0);
  scored.prompt.resize(1);
  const auto one = submit(engine, scored);
  one->wait();
  CHECK(one->prompt_scores.empty());
}

TEST_CASE("a prompt is scored by the rows of verify replays as it is by steps of one token") {
  struct Scored {
    std::vector<float> scores;
    std::vector<std::vector<TokenProbability>> top;
    Tokens tokens;
    std::vector<float> log_probabilities;
    uint64_t steps = 0;  // that read prompts
  };
  std::vector<Scored> sides;
  uint32_t rows = 0;
  std::vector<uint64_t> lengths;
  for (const char* drafts : {"on", "off"}) {
    EngineWorld world(std::string(kFourSlots) + "\nspeculation = \"" + drafts + "\"", kDemo);
    if (std::string(drafts) == "on") rows = world.model.info().max_drafts + 1;
    std::mt19937 random(3);
    Scored side;
    lengths.clear();
    // Every remainder by the rows, and the shortest prompts.
    for (uint64_t length = 1; length < 14; ++length) {
      const uint64_t tokens = length < 6 ? length : 5 * length;
      lengths.push_back(tokens);
      EngineRequest asked = asking({}, 12);
      for (uint64_t i = 0; i < tokens; ++i) {
        asked.prompt.push_back(static_cast<int32_t>(random() % world.model.info().vocabulary));
      }
      asked.sampling.temperature = length % 2 == 0 ? 0.8f : 0;
      const Tokens alone = world.alone(asked).tokens;
      asked.score_prompt = true;
      asked.top_tokens = 3;
      Engine engine(world.model, nullptr, engine_options());
      const auto told = submit(engine, asked);
      told->wait();
      REQUIRE_MESSAGE(told->error == FRT_OK, told->message);
      CHECK(told->prompt_scores.size() == tokens - 1);
      // What was read by decode steps counts as prompt: penalties are those of any other reading.
      CHECK(told->tokens() == alone);
      side.scores.insert(side.scores.end(), told->prompt_scores.begin(), told->prompt_scores.end());
      side.top.insert(side.top.end(), told->prompt_top.begin(), told->prompt_top.end());
      const auto& answer = told->choices[0];
      side.tokens.insert(side.tokens.end(), answer.tokens.begin(), answer.tokens.end());
      side.log_probabilities.insert(side.log_probabilities.end(), answer.log_probabilities.begin(),
                                    answer.log_probabilities.end());
      side.steps += engine.stats().prefill_steps;
    }
    sides.push_back(std::move(side));
  }
  REQUIRE(rows > 1);
  const Scored &first = sides[0], &second = sides[1];
  CHECK(first.scores == second.scores);
  CHECK(first.tokens == second.tokens);
  CHECK(first.log_probabilities == second.log_probabilities);
  REQUIRE(first.top.size() == second.top.size());
  for (std::size_t i = 0; i < first.top.size(); ++i) {
    REQUIRE(first.top[i].size() == second.top[i].size());
    for (std::size_t k = 0; k < first.top[i].size(); ++k) {
      CHECK(first.top[i][k].id == second.top[i][k].id);
      CHECK(first.top[i][k].log_probability == second.top[i][k].log_probability);
    }
  }
  // The first token and the last have a step each, what is between them is read by rows.
  uint64_t by_rows = 0, one_by_one = 0;
  for (const uint64_t length : lengths) {
    one_by_one += length;
    by_rows += length == 1 ? 1 : 2 + (length - 2 + rows - 1) / rows;
  }
  CHECK(first.steps == by_rows);
  CHECK(second.steps == one_by_one);
}

TEST_CASE("the sum of exponentials is that of a reference in double") {
  std::mt19937 random(7);
  std::normal_distribution<float> normal(0, 8);
  for (const std::size_t size : {1U, 15U, 16U, 17U, 1000U, 248'320U}) {
    std::vector<float> logits(size);
    for (float& logit : logits) logit = normal(random);
    if (size > 20) logits[3] = -INFINITY;
    double sum = 0;
    for (const float logit : logits) sum += std::exp(static_cast<double>(logit));
    CHECK(std::abs(static_cast<double>(frt::host::log_sum_exp(logits)) - std::log(sum)) < 4e-6);
  }
  const std::vector<float> none(20, -INFINITY);
  CHECK(frt::host::log_sum_exp(none) == -INFINITY);
}

TEST_CASE("each of several answers is told its own likeliest tokens, and too many are refused") {
  EngineWorld world(kFourSlots, kDemo);
  EngineRequest asked = asking(world.model.encode("One day, a big dog went to the"), 12);
  asked.sampling.temperature = 1;
  asked.choices = 3;
  asked.top_tokens = 2;
  Engine engine(world.model, nullptr, engine_options());
  const auto told = submit(engine, asked);
  told->wait(3);
  for (uint32_t choice = 0; choice < 3; ++choice) {
    CHECK(told->tokens(choice).size() == 12);
    CHECK(told->choices[choice].top.size() == 12);
  }
  CHECK(told->tokens(0) != told->tokens(1));
  asked.top_tokens = TopTokens::kMost + 1;
  CHECK_THROWS_AS(submit(engine, asked), frt::Error);
}
