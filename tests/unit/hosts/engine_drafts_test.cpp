// SPDX-License-Identifier: Apache-2.0
// Drafts change no token, probability, journal or capsule: what an engine gives with them is what
// it gives without. FRT_DRAFT_PROMPTS says how many prompts are tried of each kind.
#include <algorithm>
#include <cstdlib>
#include <functional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "engine_world.hpp"

namespace {

using namespace frt::test;
using frt::host::Drafting;
using frt::host::Engine;
using frt::host::EngineAccess;
using frt::host::EngineOptions;
using frt::host::EngineRequest;
using frt::host::Finish;
using frt::host::generate;
using frt::host::GenerationResult;
using frt::host::LmModel;
using frt::host::Next;
using frt::host::PrefixAction;
using frt::host::Session;
using frt::host::StepRunner;

const std::string kDemo = FRT_FIXTURES_DIR "/demo";
constexpr const char* kFourSlots = "max_context = 256\nslots = 4\npage_rows = 64";

std::size_t prompts() {
  const char* text = std::getenv("FRT_DRAFT_PROMPTS");
  return text ? std::strtoull(text, nullptr, 10) : 24;
}

EngineOptions with_drafts(Drafting drafting) {
  EngineOptions options = engine_options();
  options.session.speculation = drafting;
  return options;
}

// A prompt of `length` tokens that ends in words that the demo model knows.
Tokens prompt_of(const LmModel& model, std::mt19937& random, std::size_t length) {
  static const char* const kStarts[] = {"Once upon a time, there was a little",
                                        "One day, a big dog went to the", "What is 12 + 7?",
                                        "def add(a, b):\n", "She was very happy because"};
  Tokens words = model.encode(kStarts[random() % std::size(kStarts)]);
  if (words.size() > length) words.resize(length);
  Tokens prompt;
  while (prompt.size() + words.size() < length) {
    prompt.push_back(static_cast<int32_t>(random() % 500));
  }
  prompt.insert(prompt.end(), words.begin(), words.end());
  return prompt;
}

enum class Kind { kGreedy, kSampled, kPenalties };

EngineRequest request_of(Kind kind, Tokens prompt, uint64_t max_new, uint64_t seed) {
  EngineRequest request = asking(std::move(prompt), max_new);
  if (kind != Kind::kPenalties) {
    request.sampling.repetition_penalty = 1;
    request.sampling.presence_penalty = request.sampling.frequency_penalty = 0;
  }
  if (kind != Kind::kGreedy) request.sampling.temperature = 0.7f;
  request.sampling.seed = seed;
  return request;
}

// What the slot of the conversation holds.
Tokens held(Engine& engine, const std::string& affinity) {
  Tokens tokens;
  engine.call([&](EngineAccess& access) {
    const Session* session = access.idle_session("", affinity);
    REQUIRE(session);
    tokens = session->journal().tokens();
  });
  return tokens;
}

Tokens first(const Tokens& tokens, std::size_t count) {
  return {tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(count)};
}

}  // namespace

TEST_CASE("requests with drafts give what they give without, greedy, sampled and penalised") {
  uint64_t drafted = 0, accepted = 0;
  for (const std::string& checkpoint : {kDemo, std::string("synthetic:qwen3.6-tiny-moe")}) {
    EngineWorld world(kFourSlots, checkpoint);
    std::mt19937 random(1);
    for (const Kind kind : {Kind::kGreedy, Kind::kSampled, Kind::kPenalties}) {
      std::vector<EngineRequest> requests;
      std::vector<Alone> alone;
      while (requests.size() < prompts()) {
        // Around the multiples of the chunk, and anywhere.
        const std::size_t length =
            random() % 2 ? 16 * (1 + random() % 4) + random() % 3 - 1 : 1 + random() % 80;
        Tokens prompt = checkpoint == kDemo ? prompt_of(world.model, random, length)
                                            : some_tokens(static_cast<int32_t>(length),
                                                          static_cast<int32_t>(random() % 1000));
        requests.push_back(request_of(kind, std::move(prompt), 1 + random() % 40, random()));
        alone.push_back(world.alone(requests.back()));
      }
      for (const Drafting drafting : {Drafting::kOn, Drafting::kAuto}) {
        Engine engine(world.model, nullptr, with_drafts(drafting));
        for (std::size_t at = 0; at < requests.size();) {
          const std::size_t batch = std::min<std::size_t>(1 + random() % 4, requests.size() - at);
          std::vector<std::shared_ptr<Told>> told;
          for (std::size_t i = at; i < at + batch; ++i) {
            told.push_back(submit(engine, requests[i]));
          }
          for (const auto& each : told) {
            each->wait();
            CAPTURE(at);
            CAPTURE(checkpoint);
            REQUIRE(each->error == FRT_OK);
            CHECK(each->tokens() == alone[at].tokens);
            CHECK(each->choices[0].log_probabilities == alone[at].log_probabilities);
            CHECK(each->result().finish == Finish::kLength);
            CHECK(each->result().accepted <= each->result().drafted);
            ++at;
          }
        }
        engine.drain();
        const auto stats = engine.stats();
        drafted += stats.draft_tokens;
        accepted += stats.accepted_tokens;
        CHECK(stats.draft_rounds <= stats.decode_steps);
      }
    }
  }
  CHECK(accepted > 0);
  CHECK(accepted < drafted);
  MESSAGE(accepted << " of " << drafted << " drafts accepted");
}

TEST_CASE("a stop token ends a request in the middle of a round, and the slot with it") {
  EngineWorld world(kFourSlots, kDemo);
  std::mt19937 random(2);
  const Tokens prompt = world.model.encode("Once upon a time, there was a little");
  EngineRequest asked = request_of(Kind::kGreedy, prompt, 40, 0);
  const Tokens whole = world.alone(asked).tokens;
  Engine engine(world.model, nullptr, with_drafts(Drafting::kOn));
  for (std::size_t stop_at = 1; stop_at < 20; ++stop_at) {
    CAPTURE(stop_at);
    // A conversation of its own: a short prompt behind a long one would be a side request.
    asked.affinity = "talk " + std::to_string(stop_at);
    asked.stop_ids = {-5, whole[stop_at]};
    const auto first_stop = static_cast<std::size_t>(
        std::find(whole.begin(), whole.end(), whole[stop_at]) - whole.begin());
    const auto told = submit(engine, asked);
    told->wait();
    CHECK(told->result().finish == Finish::kStop);
    CHECK(told->result().stop_token == whole[stop_at]);
    CHECK(told->tokens() == first(whole, first_stop));
    // Nothing behind the stop token was fed: a prompt that goes on from the text goes on in the
    // slot.
    const Tokens text = joined(prompt, first(whole, first_stop + 1));
    const Tokens slot = held(engine, asked.affinity);
    CHECK(slot.size() <= text.size());
    CHECK(slot == first(text, slot.size()));
    EngineRequest next = asked;
    next.stop_ids.clear();
    next.max_new = 12;
    next.prompt = joined(text, world.model.encode(" girl"));
    const auto more = submit(engine, next);
    more->wait();
    CHECK(more->prefix.action == PrefixAction::kContinue);
    CHECK(more->prefix.reused == slot.size());
    next.reuse = false;
  }
  CHECK(engine.stats().accepted_tokens > 0);
}

TEST_CASE("min_new lets a stop token pass, and more than eight stop tokens turn drafts off") {
  EngineWorld world(kFourSlots, kDemo);
  EngineRequest asked =
      request_of(Kind::kGreedy, world.model.encode("Once upon a time, there was a little"), 30, 0);
  const Tokens whole = world.alone(asked).tokens;
  asked.stop_ids = {whole[4]};
  asked.min_new = 30;
  Engine engine(world.model, nullptr, with_drafts(Drafting::kOn));
  auto told = submit(engine, asked);
  told->wait();
  CHECK(told->tokens() == whole);
  CHECK(told->result().finish == Finish::kLength);
  CHECK(told->result().drafted > 0);
  asked.stop_ids = {2250, 2251, 2252, 2253, 2254, 2255, 2256, 2257, 2258};
  told = submit(engine, asked);
  told->wait();
  CHECK(told->tokens() == whole);
  CHECK(told->result().drafted == 0);
}

TEST_CASE("where the reader stops or cancels in a round, the journal says what was fed") {
  EngineWorld world(kFourSlots, kDemo);
  const Tokens prompt = world.model.encode("Once upon a time, there was a little");
  EngineRequest asked = request_of(Kind::kGreedy, prompt, 40, 0);
  const Tokens whole = world.alone(asked).tokens;
  asked.affinity = "talk";
  Engine engine(world.model, nullptr, with_drafts(Drafting::kOn));
  for (std::size_t after = 1; after < 12; ++after) {
    CAPTURE(after);
    auto told = std::make_shared<Told>();
    told->answer = [after](uint32_t, std::size_t tokens) {
      return tokens < after ? Next::kContinue : after % 2 ? Next::kStop : Next::kCancel;
    };
    engine.submit(asked, told);
    told->wait();
    CHECK(told->tokens() == first(whole, after));
    CHECK(told->result().finish == (after % 2 ? Finish::kStop : Finish::kCancelled));
    const Tokens slot = held(engine, "talk");
    const Tokens text = joined(prompt, whole);
    REQUIRE(slot.size() >= prompt.size() + after - 1);
    CHECK(slot == first(text, slot.size()));
    // What follows what it holds is what follows the text.
    EngineRequest next = asked;
    next.prompt = first(text, slot.size() + 1);
    next.max_new = 5;
    const auto more = submit(engine, next);
    more->wait();
    CHECK(more->prefix.action == PrefixAction::kContinue);
    const std::size_t at = slot.size() + 1 - prompt.size();
    CHECK(more->tokens() == Tokens(whole.begin() + static_cast<std::ptrdiff_t>(at),
                                   whole.begin() + static_cast<std::ptrdiff_t>(at + 5)));
  }
}

TEST_CASE("a request ends with the context, whatever was drafted") {
  EngineWorld world("max_context = 96\nslots = 2\npage_rows = 64", kDemo);
  std::mt19937 random(3);
  for (const std::size_t length : {80, 90, 93, 94, 95, 96}) {
    CAPTURE(length);
    const EngineRequest asked =
        request_of(Kind::kGreedy, prompt_of(world.model, random, length), 100, 0);
    const Alone alone = world.alone(asked);
    Engine engine(world.model, nullptr, with_drafts(Drafting::kOn));
    const auto told = submit(engine, asked);
    told->wait();
    CHECK(told->tokens() == alone.tokens);
    CHECK(told->tokens().size() == 96 - length + 1);
    CHECK(told->result().finish == Finish::kContext);
  }
}

// The capsule of a turn is taken where a request ends: here between two rounds. Bits of what is
// restored from it are those of the run without drafts.
TEST_CASE("capsules taken between rounds are those of plain steps") {
  EngineWorld world(kFourSlots, kDemo);
  std::mt19937 random(4);
  for (int round = 0; round < 6; ++round) {
    CAPTURE(round);
    const EngineRequest asked =
        request_of(static_cast<Kind>(round % 3), prompt_of(world.model, random, 20 + random() % 30),
                   7 + random() % 20, random());
    Tokens tokens[2];
    std::vector<float> probabilities[2];
    Tokens text;
    for (int side = 0; side < 2; ++side) {
      const auto registry = world.registry({uint64_t{1} << 30, uint64_t{1} << 30, 0, {}});
      Engine engine(world.model, registry.get(),
                    with_drafts(side == 0 ? Drafting::kOn : Drafting::kOff));
      const auto told = submit(engine, asked);
      told->wait();
      REQUIRE(told->error == FRT_OK);
      if (side == 0) text = told->tokens();
      CHECK(told->tokens() == text);
      // Overwrites the slot, so that the next request comes from the capsule.
      engine.call([&](EngineAccess& access) { access.forget_session("", ""); });
      EngineRequest other = asked;
      other.prompt = some_tokens(50, 99);
      other.reuse = false;
      std::vector<std::shared_ptr<Told>> others;
      for (int i = 0; i < 4; ++i) others.push_back(submit(engine, other));
      for (const auto& each : others) each->wait();
      EngineRequest next = asked;
      next.prompt = joined(joined(asked.prompt, text), some_tokens(9, 5));
      next.max_new = 20;
      const auto more = submit(engine, next);
      more->wait();
      CHECK(more->prefix.action == PrefixAction::kRestore);
      CHECK(more->prefix.reused == asked.prompt.size() + text.size() - 1);
      tokens[side] = more->tokens();
      probabilities[side] = more->choices[0].log_probabilities;
    }
    CHECK(tokens[0] == tokens[1]);
    CHECK(probabilities[0] == probabilities[1]);
  }
}

TEST_CASE("requests with drafts lose their slots between rounds when pages run out, and go on") {
  EngineWorld world("max_context = 512\nslots = 4\npage_rows = 64\ncapsule_pages = 0", kDemo);
  std::mt19937 random(6);
  std::vector<EngineRequest> requests;
  std::vector<Tokens> alone;
  for (int i = 0; i < 4; ++i) {
    requests.push_back(
        request_of(Kind::kSampled, prompt_of(world.model, random, 50), 200, random()));
    alone.push_back(world.alone(requests.back()).tokens);
  }
  std::vector<frt::Capsule> held;  // 24 of 32 pages
  {
    StepRunner runner(world.model);
    Session session(world.model, runner, nullptr, 0);
    for (uint32_t slot = 1; slot < 4; ++slot) runner.clear(slot);
    for (int i = 0; i < 3; ++i) {
      world.model.reserve_rows(0, 0, 512, runner.stream());
      held.push_back(world.model.capsules().snapshot(0, 512, FRT_SPACE_DEVICE, runner.stream()));
      session.clear();
    }
    runner.stream().sync();
  }
  Engine engine(world.model, nullptr, with_drafts(Drafting::kOn));
  std::vector<std::shared_ptr<Told>> told;
  engine.call([&](EngineAccess&) {  // all are there before the first one begins
    for (const EngineRequest& request : requests) told.push_back(submit(engine, request));
  });
  for (std::size_t i = 0; i < told.size(); ++i) {
    told[i]->wait();
    REQUIRE_MESSAGE(told[i]->error == FRT_OK, told[i]->message);
    CHECK(told[i]->tokens() == alone[i]);
  }
  CHECK(engine.stats().preemptions > 0);
  CHECK(engine.stats().accepted_tokens > 0);
}

TEST_CASE("several answers to one prompt are drafted each by itself") {
  EngineWorld world(kFourSlots, kDemo);
  EngineRequest asked =
      request_of(Kind::kSampled, world.model.encode("One day, a big dog went to the"), 30, 3);
  asked.choices = 4;
  std::vector<Tokens> alone;
  for (uint32_t choice = 0; choice < 4; ++choice) {
    alone.push_back(world.alone(asked, choice).tokens);
  }
  Engine engine(world.model, nullptr, with_drafts(Drafting::kOn));
  const auto told = submit(engine, asked);
  told->wait(4);
  for (uint32_t choice = 0; choice < 4; ++choice) CHECK(told->tokens(choice) == alone[choice]);
  CHECK(engine.stats().accepted_tokens > 0);
}

TEST_CASE("a run with drafts is the run without, and goes on alike") {
  EngineWorld world(kFourSlots, kDemo);
  std::mt19937 random(5);
  uint64_t accepted = 0;
  for (int round = 0; round < 12; ++round) {
    CAPTURE(round);
    const EngineRequest asked =
        request_of(static_cast<Kind>(round % 3), prompt_of(world.model, random, 9 + random() % 50),
                   1 + random() % 40, random());
    const Drafting modes[] = {Drafting::kOff, round % 2 ? Drafting::kOn : Drafting::kAuto};
    GenerationResult first_run[2], second_run[2];
    Tokens journal[2];
    for (int side = 0; side < 2; ++side) {
      Engine engine(world.model, nullptr, with_drafts(modes[side]));
      EngineRequest request = asked;
      request.affinity = "run";
      first_run[side] = generate(engine, request);
      request.resumes = true;
      request.prompt.clear();
      request.max_new = 25;
      second_run[side] = generate(engine, request);
      journal[side] = held(engine, "run");
      accepted += first_run[side].accepted + second_run[side].accepted;
    }
    for (const auto& run : {first_run, second_run}) {
      CHECK(run[0].tokens == run[1].tokens);
      CHECK(run[0].log_probabilities == run[1].log_probabilities);
      CHECK(run[0].finish == run[1].finish);
      CHECK(run[0].drafted == 0);
    }
    CHECK(journal[0] == journal[1]);
    // A stop token, wherever it falls in a round.
    const Tokens& tokens = first_run[0].tokens;
    Engine engine(world.model, nullptr, with_drafts(Drafting::kOn));
    EngineRequest request = asked;
    request.affinity = "run";
    const int32_t stop = tokens[random() % tokens.size()];
    request.stop_ids = {stop};
    const GenerationResult stopped = generate(engine, request);
    const auto at = std::find(tokens.begin(), tokens.end(), stop);
    CHECK(stopped.finish == Finish::kStop);
    CHECK(stopped.tokens == Tokens(tokens.begin(), at));
    const Tokens text = joined(asked.prompt, tokens);
    const Tokens fed = held(engine, "run");
    CHECK(fed.size() <= asked.prompt.size() + stopped.tokens.size() + 1);
    CHECK(fed == first(text, fed.size()));
  }
  CHECK(accepted > 0);
}

TEST_CASE("a model without a draft head writes as before, and a round has limits") {
  EngineWorld plain("max_context = 128\nslots = 2\nspeculation = \"off\"", kDemo);
  CHECK(plain.model.info().max_drafts == 0);
  const EngineRequest asked = request_of(Kind::kGreedy, some_tokens(20, 1), 10, 0);
  const Tokens alone = plain.alone(asked).tokens;
  {
    Engine engine(plain.model, nullptr, with_drafts(Drafting::kOn));
    const auto told = submit(engine, asked);
    told->wait();
    CHECK(told->tokens() == alone);
    CHECK(engine.stats().draft_rounds == 0);
  }
  EngineWorld world("max_context = 64\nslots = 8\nmax_batch = 8\nmax_drafts = 3");
  CHECK(world.model.most_drafts(1) == 3);
  CHECK(world.model.most_drafts(4) == 3);
  CHECK(world.model.most_drafts(5) == 1);
  CHECK(world.model.most_drafts(8) == 1);
  StepRunner runner(world.model);
  const auto refused = [&](StepRunner::RoundEntry entry) {
    CHECK_THROWS_AS(runner.submit_round({&entry, 1}), frt::Error);
  };
  const Tokens many(world.model.info().stop_capacity + 1, 1);
  refused({.slot = 8, .position = 3, .drafts = 1});
  refused({.slot = 0, .position = 3, .drafts = 4});
  refused({.slot = 0, .position = 3, .drafts = 0});
  refused({.slot = 0, .position = 62, .drafts = 2});
  refused({.slot = 0, .position = 3, .drafts = 1, .stops = many});
  const std::vector<uint32_t> mask(world.model.info().mask_words, ~0U);
  refused({.slot = 0, .position = 3, .drafts = 1, .mask = mask.data()});  // nobody masks its draft
}
