// SPDX-License-Identifier: Apache-2.0
// Many requests at once: each gives what it gives alone, whatever the others do.
#include "lm/engine/engine.hpp"

#include <chrono>
#include <future>
#include <string>
#include <vector>

#include "engine_world.hpp"

namespace {

using namespace frt::test;
using frt::host::Engine;
using frt::host::EngineAccess;
using frt::host::EngineOptions;
using frt::host::EngineRequest;
using frt::host::Finish;
using frt::host::Next;
using frt::host::PrefixAction;

constexpr const char* kFourSlots = "max_context = 512\nslots = 4\npage_rows = 64";

}  // namespace

TEST_CASE(
    "requests that are served at once give the tokens and probabilities that each gives "
    "alone") {
  // Fewer slots than requests, and fewer entries of a step than slots.
  EngineWorld world("max_context = 256\nslots = 3\nmax_batch = 2\npage_rows = 64");
  std::vector<EngineRequest> requests;
  std::vector<Alone> alone;
  for (int32_t i = 0; i < 7; ++i) {
    requests.push_back(asking(some_tokens(5 + 13 * i, i), static_cast<uint64_t>(4 + 5 * i)));
    if (i % 2) requests.back().sampling.temperature = 0.8f;
    requests.back().sampling.seed = static_cast<uint64_t>(i);
    alone.push_back(world.alone(requests.back()));
  }
  Engine engine(world.model, nullptr, engine_options());
  std::vector<std::shared_ptr<Told>> told;
  for (const EngineRequest& request : requests) told.push_back(submit(engine, request));
  for (std::size_t i = 0; i < told.size(); ++i) {
    told[i]->wait();
    REQUIRE(told[i]->error == FRT_OK);
    CHECK(told[i]->tokens() == alone[i].tokens);
    CHECK(told[i]->choices[0].log_probabilities == alone[i].log_probabilities);
    CHECK(told[i]->result().finish == Finish::kLength);
    CHECK(told[i]->result().generated == requests[i].max_new);
    const uint64_t length = requests[i].prompt.size();
    CHECK(told[i]->progress.front() == std::pair<uint64_t, uint64_t>(0, length));
    CHECK(told[i]->progress.back() == std::pair<uint64_t, uint64_t>(length, length));
  }
  engine.drain();
  const auto stats = engine.stats();
  CHECK(stats.submitted == 7);
  CHECK(stats.ended_length == 7);
  CHECK(stats.ttft.count == 7);
  CHECK(stats.queued == 0);
  CHECK(stats.slots_used == 0);
}

TEST_CASE(
    "a stop token, a stop of the reader and the context end a request where they end it "
    "alone") {
  EngineWorld world(kFourSlots);
  EngineRequest asked = asking(some_tokens(30, 1), 40);
  const Tokens whole = world.alone(asked).tokens;
  EngineRequest long_one = asking(some_tokens(500, 2), 100);
  const Tokens to_the_end = world.alone(long_one).tokens;
  const std::size_t stop_at = 9;
  Engine engine(world.model, nullptr, engine_options());
  auto reader = std::make_shared<Told>();
  reader->answer = [](uint32_t, std::size_t tokens) {
    return tokens == 6 ? Next::kStop : Next::kContinue;
  };
  engine.submit(asked, reader);
  asked.stop_ids = {whole[stop_at]};
  const auto first = std::find(whole.begin(), whole.end(), whole[stop_at]) - whole.begin();
  const auto stopped = submit(engine, asked);
  asked.min_new = static_cast<uint64_t>(first) + 1;
  const auto later = submit(engine, asked);
  const auto context = submit(engine, long_one);
  asked.max_new = 0;
  const auto nothing = submit(engine, asked);
  for (const auto& told : {reader, stopped, later, context, nothing}) told->wait();
  CHECK(reader->tokens() == Tokens(whole.begin(), whole.begin() + 6));
  CHECK(reader->result().finish == Finish::kStop);
  CHECK(stopped->tokens() == Tokens(whole.begin(), whole.begin() + first));
  CHECK(stopped->result().finish == Finish::kStop);
  CHECK(stopped->result().stop_token == whole[stop_at]);
  CHECK(later->tokens().size() > static_cast<std::size_t>(first));
  CHECK(context->tokens() == to_the_end);
  CHECK(context->result().finish == Finish::kContext);
  CHECK(nothing->tokens().empty());
  CHECK(nothing->result().finish == Finish::kLength);
}

TEST_CASE("every choice of a request gives what its seed gives alone, also with one slot") {
  for (const char* slots : {"slots = 1", "slots = 3"}) {
    EngineWorld world(std::string("max_context = 256\npage_rows = 64\n") + slots);
    for (const int32_t length : {7, 16, 50}) {
      EngineRequest asked = asking(some_tokens(length, length), 12);
      asked.sampling.temperature = 1;
      asked.sampling.seed = 40;
      asked.choices = 4;
      std::vector<Tokens> alone;
      for (uint32_t i = 0; i < asked.choices; ++i) alone.push_back(world.alone(asked, i).tokens);
      Engine engine(world.model, nullptr, engine_options());
      const auto told = submit(engine, asked);
      told->wait(asked.choices);
      REQUIRE(told->error == FRT_OK);
      for (uint32_t i = 0; i < asked.choices; ++i) CHECK(told->tokens(i) == alone[i]);
      CHECK(alone[0] != alone[1]);
    }
  }
}

TEST_CASE("a conversation goes on in its slot while others come and go") {
  EngineWorld world(kFourSlots);
  Engine engine(world.model, nullptr, engine_options());
  EngineRequest turn = asking(some_tokens(40, 3), 10);
  turn.affinity = "talk";
  const auto first = submit(engine, turn);
  first->wait();
  for (int32_t i = 0; i < 6; ++i) submit(engine, asking(some_tokens(20, 50 + i), 3))->wait();
  turn.prompt = joined(joined(turn.prompt, first->tokens()), some_tokens(5, 4));
  const auto second = submit(engine, turn);
  second->wait();
  CHECK(second->prefix.action == PrefixAction::kContinue);
  CHECK(second->prefix.reused >= 49);
  // The same conversation of somebody else sees nothing of it.
  turn.owner = "somebody else";
  const auto other = submit(engine, turn);
  other->wait();
  CHECK(other->prefix.action == PrefixAction::kRead);
  CHECK(other->prefix.reused == 0);
}

TEST_CASE("a prompt begins with the capsules of its own owner") {
  EngineWorld world(kFourSlots);
  EngineRequest asked = asking(some_tokens(70, 5), 8);
  const Tokens alone = world.alone(asked).tokens;
  const auto registry = world.registry({uint64_t{1} << 30, 0, 0, {}});
  Engine engine(world.model, registry.get(), engine_options());
  submit(engine, asked)->wait();
  asked.affinity = "elsewhere";  // in another slot
  const auto again = submit(engine, asked);
  again->wait();
  CHECK(again->prefix.action == PrefixAction::kRestore);
  CHECK(again->prefix.reused == 64);
  CHECK(again->tokens() == alone);
  asked.owner = "other";
  const auto other = submit(engine, asked);
  other->wait();
  CHECK(other->prefix.reused == 0);
  CHECK(other->tokens() == alone);
}

TEST_CASE("cancelling a request ends it wherever it is, and touches no other one") {
  EngineWorld world("max_context = 512\nslots = 2\npage_rows = 64");
  const EngineRequest asked = asking(some_tokens(20, 6), 60);
  const Tokens alone = world.alone(asked).tokens;
  Engine engine(world.model, nullptr, engine_options());
  const auto watched = submit(engine, asked);
  uint64_t writing = 0, queued = 0;
  const auto cancelled = submit(engine, asking(some_tokens(30, 7), 400), &writing);
  const auto waiting = submit(engine, asking(some_tokens(30, 8), 5), &queued);
  const auto behind = submit(engine, asked);
  engine.cancel(queued);
  engine.cancel(queued + 100);  // nobody
  waiting->wait();
  CHECK(waiting->result().finish == Finish::kCancelled);
  CHECK(waiting->result().generated == 0);
  cancelled->wait_for_tokens(3);
  engine.cancel(writing);
  cancelled->wait();
  CHECK(cancelled->result().finish == Finish::kCancelled);
  CHECK(cancelled->tokens().size() < 400);
  for (const auto& told : {watched, behind}) {
    told->wait();
    CHECK(told->tokens() == alone);
  }
  // By its own reader, in the middle of a prompt.
  uint64_t reading = 0;
  auto prompt = std::make_shared<Told>();
  std::promise<void> numbered;
  prompt->started = [&, ready = numbered.get_future().share()] {
    ready.wait();
    engine.cancel(reading);
  };
  reading = engine.submit(asking(some_tokens(400, 9), 5), prompt);
  numbered.set_value();
  prompt->wait();
  CHECK(prompt->result().finish == Finish::kCancelled);
  CHECK(prompt->tokens().empty());
  CHECK(prompt->progress.back().first < 400);
}

TEST_CASE("a deadline ends a request in the queue and while it writes") {
  EngineWorld world("max_context = 512\nslots = 1\npage_rows = 64");
  Engine engine(world.model, nullptr, engine_options());
  const auto now = std::chrono::steady_clock::now();
  EngineRequest endless = asking(some_tokens(20, 10), 480);
  auto slow = std::make_shared<Told>();
  slow->answer = [](uint32_t, std::size_t) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    return Next::kContinue;
  };
  endless.deadline = now + std::chrono::milliseconds(60);
  engine.submit(endless, slow);
  EngineRequest late = asking(some_tokens(20, 11), 5);
  late.deadline = now + std::chrono::milliseconds(5);
  const auto queued = submit(engine, late);
  queued->wait();
  CHECK(queued->result().finish == Finish::kDeadline);
  CHECK(queued->tokens().empty());
  slow->wait();
  CHECK(slow->result().finish == Finish::kDeadline);
  CHECK(slow->tokens().size() < 480);
}

TEST_CASE("what cannot run is refused with its reason, and a full queue says so") {
  EngineWorld world("max_context = 256\nslots = 1\npage_rows = 64");
  EngineOptions options = engine_options();
  options.queue_limit = 2;
  Engine engine(world.model, nullptr, options);
  const auto refused = [&](EngineRequest request) {
    return status_of([&] { submit(engine, std::move(request)); });
  };
  CHECK(refused(asking({}, 1)) == FRT_ERR_INVALID_ARGUMENT);
  CHECK(refused(asking({-1}, 1)) == FRT_ERR_INVALID_ARGUMENT);
  CHECK(refused(asking(some_tokens(257, 1), 1)) == FRT_ERR_OUT_OF_RANGE);
  EngineRequest wrong = asking({1}, 1);
  wrong.choices = 0;
  CHECK(refused(wrong) == FRT_ERR_INVALID_ARGUMENT);
  wrong.choices = 1;
  wrong.sampling.use_mask = 1;
  CHECK(refused(wrong) == FRT_ERR_INVALID_ARGUMENT);
  // One is served, two wait.
  std::promise<void> go;
  auto first = std::make_shared<Told>();
  std::promise<void> began;
  first->started = [&, hold = go.get_future().share()] {
    began.set_value();
    hold.wait();
  };
  engine.submit(asking({1, 2, 3}, 2), first);
  began.get_future().wait();
  const auto second = submit(engine, asking({1, 2, 3}, 2));
  const auto third = submit(engine, asking({1, 2, 3}, 2));
  CHECK(refused(asking({1, 2, 3}, 2)) == FRT_ERR_NOT_READY);
  CHECK(engine.stats().refused == 1);
  go.set_value();
  engine.drain();
  for (const auto& told : {first, second, third}) CHECK(told->tokens().size() == 2);
  CHECK(refused(asking({1, 2, 3}, 2)) == FRT_ERR_BAD_STATE);
}

TEST_CASE("the highest priority leaves the queue first") {
  EngineWorld world("max_context = 256\nslots = 1\npage_rows = 64");
  Engine engine(world.model, nullptr, engine_options());
  std::mutex mutex;
  std::vector<int> order;
  std::promise<void> go;
  std::vector<std::shared_ptr<Told>> told;
  for (const int priority : {9, 0, 5, -1, 5}) {
    told.push_back(std::make_shared<Told>());
    const bool first = told.size() == 1;
    told.back()->started = [&, first, priority,
                            hold = first ? go.get_future().share() : std::shared_future<void>()] {
      if (first) hold.wait();
      const std::lock_guard lock(mutex);
      order.push_back(priority);
    };
    EngineRequest request = asking(some_tokens(4, priority + 2), 2);
    request.priority = priority;
    engine.submit(request, told.back());
  }
  go.set_value();
  engine.drain();
  CHECK(order == std::vector<int>{9, 5, 5, 0, -1});
}

TEST_CASE("requests that outgrow the pages lose their slots for a while, and nothing else") {
  EngineWorld world("max_context = 512\nslots = 4\npage_rows = 64\ncapsule_pages = 0");
  std::vector<EngineRequest> requests;
  std::vector<Tokens> alone;
  for (int32_t i = 0; i < 4; ++i) {
    requests.push_back(asking(some_tokens(50 + i, 20 + i), 200));
    requests.back().sampling.temperature = 0.9f;
    alone.push_back(world.alone(requests.back()).tokens);
  }
  // Of 32 blocks 24 are taken.
  std::vector<frt::Capsule> held;
  {
    frt::host::StepRunner runner(world.model);
    for (int32_t i = 0; i < 3; ++i) {
      frt::host::Session session(world.model, runner, nullptr, 0);
      const Tokens tokens = some_tokens(512, 90 + i);
      for (uint64_t at = 0; at < 512; at += EngineWorld::kChunk) {
        session.prefill(std::span(tokens).subspan(at, EngineWorld::kChunk));
      }
      held.push_back(world.model.capsules().snapshot(0, 512, FRT_SPACE_DEVICE, runner.stream()));
      session.clear();
    }
    runner.stream().sync();
  }
  {
    Engine engine(world.model, nullptr, engine_options());
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
    // Alone it cannot have more pages than there are; the others do not suffer.
    const auto too_long = submit(engine, asking(some_tokens(480, 30), 200));
    too_long->wait();
    CHECK(too_long->result().finish == Finish::kContext);
  }
  held.clear();
}

TEST_CASE("a request that no page is left for fails alone") {
  EngineWorld world("max_context = 512\nslots = 2\npage_rows = 64\ncapsule_pages = 0");
  const EngineRequest small = asking(some_tokens(20, 31), 20);
  const Tokens alone = world.alone(small).tokens;
  std::vector<frt::Capsule> held;
  {
    frt::host::StepRunner runner(world.model);
    frt::host::Session session(world.model, runner, nullptr, 0);
    const Tokens tokens = some_tokens(512, 32);
    for (uint64_t at = 0; at < 512; at += EngineWorld::kChunk) {
      session.prefill(std::span(tokens).subspan(at, EngineWorld::kChunk));
      if (at == 0 || at % 64 != 0) continue;
    }
    held.push_back(world.model.capsules().snapshot(0, 512, FRT_SPACE_DEVICE, runner.stream()));
    session.clear();
    frt::host::Session other(world.model, runner, nullptr, 1);
    for (uint64_t at = 0; at < 256; at += EngineWorld::kChunk) {
      other.prefill(std::span(tokens).subspan(at, EngineWorld::kChunk));
    }
    held.push_back(world.model.capsules().snapshot(1, 256, FRT_SPACE_DEVICE, runner.stream()));
    other.clear();
    runner.stream().sync();
  }
  {
    Engine engine(world.model, nullptr, engine_options());
    const auto large = submit(engine, asking(some_tokens(400, 33), 5));
    const auto good = submit(engine, small);
    large->wait();
    CHECK(large->error == FRT_ERR_OUT_OF_MEMORY);
    good->wait();
    CHECK(good->tokens() == alone);
  }
  held.clear();
}

TEST_CASE("work for the engine's thread runs between two steps, and gives what it throws") {
  EngineWorld world(kFourSlots);
  const auto registry = world.registry({uint64_t{1} << 30, 0, 0, {}});
  Engine engine(world.model, registry.get(), engine_options());
  EngineRequest turn = asking(some_tokens(40, 34), 4);
  turn.affinity = "talk";
  submit(engine, turn)->wait();
  uint64_t tokens = 0;
  engine.call([&](EngineAccess& access) {
    REQUIRE(access.idle_session("", "talk"));
    tokens = access.idle_session("", "talk")->journal().size();
    CHECK_FALSE(access.idle_session("", "another"));
    CHECK_FALSE(access.idle_session("stranger", "talk"));
    access.pin("", "talk", true);
  });
  CHECK(tokens >= 43);
  CHECK(status_of([&] {
          engine.call([](EngineAccess& access) { access.pin("", "nobody", true); });
        }) == FRT_ERR_NOT_FOUND);
}

TEST_CASE("an engine that ends answers what is not over") {
  EngineWorld world("max_context = 512\nslots = 1\npage_rows = 64");
  std::shared_ptr<Told> writing, waiting;
  {
    Engine engine(world.model, nullptr, engine_options());
    writing = submit(engine, asking(some_tokens(10, 35), 480));
    waiting = submit(engine, asking(some_tokens(10, 36), 480));
    writing->wait_for_tokens(2);
  }
  CHECK(writing->result().finish == Finish::kCancelled);
  CHECK(waiting->result().finish == Finish::kCancelled);
}
