// SPDX-License-Identifier: Apache-2.0
// Answers that follow a grammar (rule_grammar.hpp) beside answers that follow none.
#include <chrono>
#include <cstdlib>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "rule_grammar.hpp"

namespace {

using namespace frt::test;
using frt::host::Engine;
using frt::host::EngineOptions;
using frt::host::EngineRequest;
using frt::host::Finish;
using frt::host::Next;

// Holds the pages of `slots` full slots.
std::vector<frt::Capsule> take_pages(const EngineWorld& world, uint64_t slots) {
  std::vector<frt::Capsule> held;
  frt::host::StepRunner runner(world.model);
  frt::host::Session session(world.model, runner, nullptr, 0);
  for (uint32_t slot = 1; slot < 4; ++slot) runner.clear(slot);
  for (uint64_t i = 0; i < slots; ++i) {
    world.model.reserve_rows(0, 0, 256, runner.stream());
    held.push_back(world.model.capsules().snapshot(0, 256, FRT_SPACE_DEVICE, runner.stream()));
    session.clear();
  }
  runner.stream().sync();
  return held;
}

const char* kWorld = "max_context = 256\nslots = 4\nmax_batch = 3\npage_rows = 64\n";

}  // namespace

TEST_CASE("an answer follows its grammar and ends with it, each choice by itself") {
  GrammarWorld world(kWorld);
  EngineRequest request = world.following(some_tokens(40, 1), 100, rule_text(9, 9));
  request.sampling.temperature = 1;
  request.choices = 3;
  const auto told = world.in_an_engine(request);
  REQUIRE_MESSAGE(told->error == FRT_OK, told->message);
  for (uint32_t choice = 0; choice < 3; ++choice) {
    CHECK(told->tokens(choice).size() == 9);
    CHECK(follows(told->tokens(choice)));
    CHECK(told->result(choice).finish == Finish::kStop);
    CHECK(told->result(choice).stop_token == -1);
  }
  CHECK(told->tokens(0) != told->tokens(1));
  request.max_new = 5;
  const auto cut = world.in_an_engine(request);
  CHECK(cut->result().finish == Finish::kLength);
  CHECK(follows(cut->tokens()));
  request.max_new = 0;  // the prompt alone is read
  CHECK(world.in_an_engine(request)->result().finish == Finish::kLength);
}

TEST_CASE("a stop token comes where the grammar lets the text end, not before") {
  GrammarWorld world(kWorld);
  EngineRequest request = world.following(some_tokens(20, 2), 200, rule_text(6, 200));
  request.sampling.temperature = 1.5f;
  // Half of the vocabulary ends the text, so a text that may end does soon.
  for (uint32_t id = 0; id < world.model.info().vocabulary; id += 2) {
    request.stop_ids.push_back(static_cast<int32_t>(id));
  }
  for (const uint64_t least : {0, 12}) {
    for (uint64_t seed = 0; seed < 8; ++seed) {
      request.sampling.seed = seed;
      request.min_new = least;
      const auto told = world.in_an_engine(request);
      REQUIRE_MESSAGE(told->error == FRT_OK, told->message);
      CHECK(told->result().finish == Finish::kStop);
      CHECK(told->result().stop_token % 2 == 0);
      CHECK(told->tokens().size() >= std::max<uint64_t>(6, least));
      CHECK(follows(told->tokens()));
      for (const int32_t token : told->tokens()) CHECK(token % 2 == 1);
    }
  }
}

TEST_CASE("the prompt is read while its grammar is compiled, and others go on") {
  GrammarWorld world(kWorld);
  Engine engine(world.model, nullptr, engine_options());
  const auto waits = submit(engine, world.following(some_tokens(60, 3), 20, "blocked"));
  const auto passes = submit(engine, asking(some_tokens(30, 4), 20));
  passes->wait();
  CHECK(passes->tokens().size() == 20);
  CHECK(waits->tokens().empty());
  engine.call([](frt::host::EngineAccess&) {});
  CHECK(waits->progress.back().first == 48);  // all but the last chunk
  world.open = true;
  waits->wait();
  CHECK(waits->result().generated == 4);
  CHECK(follows(waits->tokens()));
}

TEST_CASE("who waits for a grammar can be cancelled, time out, or be told that there is none") {
  GrammarWorld world(kWorld);
  Engine engine(world.model, nullptr, engine_options());
  uint64_t number = 0;
  const auto cancelled =
      submit(engine, world.following(some_tokens(20, 3), 20, "blocked"), &number);
  EngineRequest timed = world.following(some_tokens(20, 4), 20, "blocked");
  timed.deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(30);
  const auto late = submit(engine, timed);
  timed.grammar.reset();
  const auto refused = submit(engine, world.following(some_tokens(20, 5), 20, "bad"));
  const auto stuck = submit(engine, world.following(some_tokens(20, 6), 20, rule_text(9, 9, 0, 3)));
  const auto stuck_at_once =
      submit(engine, world.following(some_tokens(20, 6), 20, rule_text(9, 9, 0, 0)));
  const auto nothing = submit(engine, world.following(some_tokens(20, 6), 20, rule_text(0, 0)));
  const auto well = submit(engine, world.following(some_tokens(20, 7), 20, rule_text(9, 9)));
  late->wait();
  CHECK(late->result().finish == Finish::kDeadline);
  engine.cancel(number);
  cancelled->wait();
  CHECK(cancelled->result().finish == Finish::kCancelled);
  for (const auto& told : {refused, stuck, stuck_at_once, nothing}) {
    told->wait();
    CHECK(told->error == FRT_ERR_INVALID_ARGUMENT);
  }
  CHECK(refused->message == "it is bad");
  CHECK(stuck->tokens().size() == 3);
  well->wait();
  CHECK(well->tokens().size() == 9);
  engine.drain();
  CHECK(engine.stats().slots_used == 0);
  CHECK(engine.stats().mask.count > 9);
}

TEST_CASE("at the limit of an answer no mask is made for a token that is not sampled") {
  GrammarWorld world(kWorld);
  // A mask behind the fifth token fails.
  EngineRequest request = world.following(some_tokens(20, 6), 5, rule_text(9, 9, 0, 5));
  Engine engine(world.model, nullptr, engine_options());
  const auto cut = submit(engine, request);
  cut->wait();
  REQUIRE_MESSAGE(cut->error == FRT_OK, cut->message);
  CHECK(cut->tokens().size() == 5);
  CHECK(cut->result().finish == Finish::kLength);
  engine.drain();
  CHECK(engine.stats().mask.count == 5);
  request.grammar = world.compiler.compile({rule_text(5, 5), true});
  CHECK(world.in_an_engine(request)->result().finish == Finish::kStop);
  request.grammar = world.compiler.compile({rule_text(2, 9), true});
  CHECK(world.in_an_engine(request)->result().finish == Finish::kLength);
}

TEST_CASE("memory that a grammar's first mask lacks ends its request alone") {
  GrammarWorld world(kWorld);
  Engine engine(world.model, nullptr, engine_options());
  const auto goes_on = submit(engine, asking(some_tokens(30, 4), 200));
  engine.call([](frt::host::EngineAccess&) {});
  const auto refused = submit(engine, world.following(some_tokens(20, 5), 20, "no memory"));
  refused->wait();
  CHECK(refused->error == FRT_ERR_OUT_OF_MEMORY);
  CHECK(refused->tokens().empty());
  goes_on->wait();
  CHECK(goes_on->tokens().size() == 200);
  engine.drain();
  CHECK(engine.stats().preemptions == 0);
  CHECK(engine.stats().slots_used == 0);
}

TEST_CASE("in every schedule of grammars and none each request gives what it gives alone") {
  GrammarWorld world(std::string(kWorld) + "capsule_pages = 0");
  std::mt19937 random(11);
  const auto draw = [&](uint64_t below) { return random() % below; };
  struct Known {
    EngineRequest asked;
    std::string rule;  // empty: none
    std::shared_ptr<Told> alone;
  };
  std::vector<Known> pool;
  for (int32_t i = 0; i < 16; ++i) {
    Known known;
    known.asked = asking(joined(some_tokens(16 + 16 * static_cast<int32_t>(draw(5)), i % 3),
                                some_tokens(1 + static_cast<int32_t>(draw(40)), 100 + i)),
                         40);
    known.asked.sampling.seed = draw(1000);
    known.asked.choices = draw(3) ? 1 : 2;
    if (draw(2)) known.asked.sampling.temperature = 0.9f;
    if (draw(3)) {
      const uint64_t least = 1 + draw(40);
      known.rule = rule_text(least, least + draw(20), draw(2000));
      known.asked.grammar = world.compiler.compile({known.rule, true});
    }
    known.alone = world.in_an_engine(known.asked);
    REQUIRE_MESSAGE(known.alone->error == FRT_OK, known.alone->message);
    known.asked.grammar.reset();
    pool.push_back(std::move(known));
  }
  const char* text = std::getenv("FRT_SCHEDULES");
  const std::size_t count = text ? std::strtoull(text, nullptr, 10) : 60;
  uint64_t preemptions = 0, followed = 0;
  for (std::size_t schedule = 1; schedule <= count; ++schedule) {
    CAPTURE(schedule);
    const std::vector<frt::Capsule> held = take_pages(world, draw(4));
    const auto registry = world.registry({uint64_t{1} << 20, uint64_t{1} << 22, 0, {}});
    EngineOptions options = engine_options();
    options.interleave_prefills = draw(2);
    options.step_seconds = draw(2) ? 0 : 0.001;
    Engine engine(world.model, draw(2) ? registry.get() : nullptr, options);
    struct Job {
      const Known* known;
      std::shared_ptr<Told> told;
      bool cancel;
      uint64_t number;
    };
    std::vector<Job> jobs(3 + draw(6));
    for (Job& job : jobs) {
      job.known = &pool[draw(pool.size())];
      EngineRequest asked = job.known->asked;
      if (!job.known->rule.empty()) {
        asked.grammar = world.compiler.compile({job.known->rule, true});
        ++followed;
      }
      asked.priority = static_cast<int32_t>(draw(3));
      job.cancel = draw(6) == 0;
      job.told = submit(engine, std::move(asked), &job.number);
      if (draw(2)) std::this_thread::sleep_for(std::chrono::microseconds(draw(2000)));
    }
    for (Job& job : jobs) {
      if (job.cancel) engine.cancel(job.number);
      job.told->wait(job.known->asked.choices);
      REQUIRE_MESSAGE(job.told->error == FRT_OK, job.told->message);
      for (uint32_t choice = 0; choice < job.known->asked.choices; ++choice) {
        CAPTURE(choice);
        const Tokens& alone = job.known->alone->tokens(choice);
        const Tokens& tokens = job.told->tokens(choice);
        REQUIRE(tokens.size() <= alone.size());
        CHECK(tokens == Tokens(alone.begin(), alone.begin() + tokens.size()));
        if (!job.known->rule.empty()) CHECK(follows(tokens));
        if (job.cancel) continue;
        CHECK(tokens.size() == alone.size());
        CHECK(job.told->result(choice).finish == job.known->alone->result(choice).finish);
      }
    }
    engine.drain();
    preemptions += engine.stats().preemptions;
  }
  CHECK((count < 60 || followed > count));  // how many were preempted depends on the machine, too
  MESSAGE(count << " schedules, " << followed << " requests with a grammar, " << preemptions
                << " preemptions");
}
