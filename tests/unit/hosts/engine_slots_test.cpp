// SPDX-License-Identifier: Apache-2.0
// Who has which slot, with a model that has nothing inside: conversations and their side requests,
// pins, owners, pages that run out, and how soon a cancelled request is over.
#include <ctime>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "hollow_model.hpp"
#include "lm/engine/engine.hpp"
#include "told.hpp"

namespace frt::host {
namespace {

using frt::test::asking;
using frt::test::counting;
using frt::test::HollowModel;
using frt::test::status_of;
using frt::test::submit;
using frt::test::Tokens;
using frt::test::Told;

EngineRequest of(Tokens prompt, uint64_t max_new, std::string affinity, std::string owner = {}) {
  EngineRequest request = asking(std::move(prompt), max_new);
  request.affinity = std::move(affinity);
  request.owner = std::move(owner);
  return request;
}

}  // namespace

TEST_CASE("what is computed from logits is refused where the model gives none") {
  HollowModel world(16);
  const LmModel model = world.model();
  REQUIRE(model.info().logits == nullptr);
  Engine engine(model, nullptr);
  EngineRequest likeliest = of(counting(1, 20), 3, "talk");
  likeliest.top_tokens = 1;
  CHECK(status_of([&] { submit(engine, likeliest); }) == FRT_ERR_UNSUPPORTED);
  EngineRequest scored = of(counting(1, 20), 3, "talk");
  scored.score_prompt = true;
  CHECK(status_of([&] { submit(engine, scored); }) == FRT_ERR_UNSUPPORTED);
  const auto plain = submit(engine, of(counting(1, 20), 3, "talk"));
  plain->wait();
  CHECK(plain->tokens().size() == 3);
}

// One token is sampled and not fed: the slot holds the prompt.
TEST_CASE("a side request leaves the slot and the name to its conversation") {
  HollowModel world(16);
  const LmModel model = world.model();
  Engine engine(model, nullptr);
  submit(engine, of(counting(1, 20), 1, "talk"))->wait();
  submit(engine, of(counting(60, 8), 1, "talk"))->wait();  // a title
  engine.call([](EngineAccess& access) {
    const auto sessions = access.sessions("");
    REQUIRE(sessions.size() == 1);
    CHECK(sessions[0].tokens == 20);
  });
  const auto next = submit(engine, of(counting(1, 24), 1, "talk"));
  next->wait();
  CHECK(next->prefix.action == PrefixAction::kContinue);
  CHECK(next->prefix.reused == 20);
}

TEST_CASE("a conversation that begins anew has the name again with its second turn") {
  HollowModel world(16);
  const LmModel model = world.model();
  Engine engine(model, nullptr);
  submit(engine, of(counting(1, 20), 1, "talk"))->wait();
  submit(engine, of(counting(60, 8), 1, "talk"))->wait();
  const auto next = submit(engine, of(counting(60, 10), 1, "talk"));
  next->wait();
  CHECK(next->prefix.action == PrefixAction::kContinue);
  engine.call([](EngineAccess& access) {
    REQUIRE(access.idle_session("", "talk"));
    CHECK(access.idle_session("", "talk")->journal().tokens()[0] == 60);
  });
}

TEST_CASE("a conversation that is forgotten while it writes is gone when its answer is over") {
  HollowModel world(16);
  const LmModel model = world.model();
  Engine engine(model, nullptr);
  EngineAccess* access_of_engine = nullptr;
  engine.call([&](EngineAccess& access) { access_of_engine = &access; });
  const auto told = std::make_shared<Told>();
  told->answer = [&](uint32_t, std::size_t count) {  // on the engine's thread
    if (count == 2) {
      access_of_engine->pin("", "talk", true);
      access_of_engine->forget_session("", "talk");
      CHECK(access_of_engine->sessions("").at(0).busy);
    }
    return Next::kContinue;
  };
  engine.submit(of(counting(1, 20), 6, "talk"), told);
  told->wait();
  CHECK(told->result().generated == 6);
  engine.call([](EngineAccess& access) {
    CHECK(access.sessions("").empty());
    CHECK(access.idle_session("", "talk") == nullptr);
  });
  const auto again = submit(engine, of(counting(1, 24), 1, "talk"));
  again->wait();
  CHECK(again->prefix.action == PrefixAction::kRead);
  CHECK(again->prefix.reused == 0);
}

TEST_CASE("one owner's pins leave slots to the others") {
  HollowModel world(16, 4);
  const LmModel model = world.model();
  Engine engine(model, nullptr);
  for (const char* name : {"a", "b", "c"})
    submit(engine, of({1, 2, name[0]}, 2, name, "me"))->wait();
  submit(engine, of({1, 2, 3}, 2, "d", "you"))->wait();
  const auto pin = [&](const char* owner, const char* name) {
    return status_of(
        [&] { engine.call([&](EngineAccess& access) { access.pin(owner, name, true); }); });
  };
  CHECK(pin("me", "a") == FRT_OK);
  CHECK(pin("me", "b") == FRT_OK);
  CHECK(pin("me", "b") == FRT_OK);  // it is already
  CHECK(pin("me", "c") == FRT_ERR_OUT_OF_RANGE);
  CHECK(pin("you", "d") == FRT_OK);
}

TEST_CASE("with fair_owners a slot goes to the owner that has the fewest, else to who came first") {
  for (const bool fair : {false, true}) {
    CAPTURE(fair);
    HollowModel world(16);
    const LmModel model = world.model();
    EngineOptions options;
    options.fair_owners = fair;
    Engine engine(model, nullptr, options);
    std::mutex mutex;
    std::vector<std::string> order;
    std::vector<std::shared_ptr<Told>> all;
    engine.call([&](EngineAccess&) {  // none begins before all are there
      for (const char* owner : {"many", "many", "many", "many", "one"}) {
        auto told = std::make_shared<Told>();
        told->started = [&, owner] {
          const std::lock_guard lock(mutex);
          order.emplace_back(owner);
        };
        engine.submit(of({1, 2, 3}, 20, "", owner), told);
        all.push_back(std::move(told));
      }
    });
    for (const auto& told : all) told->wait();
    const auto place = std::ranges::find(order, "one") - order.begin();
    CHECK(place == (fair ? 1 : 4));
  }
}

TEST_CASE("fair_owners costs the engine's thread little, however many wait and find no slot") {
  constexpr uint32_t kSlots = 16;
  const auto seconds_of = [](bool fair) {
    HollowModel world(0, kSlots);
    const LmModel model = world.model();
    EngineOptions options;
    options.fair_owners = fair;
    options.hot_contexts = 1;
    options.queue_limit = 5000;
    Engine engine(model, nullptr, options);
    submit(engine, of({1, 2, 3}, 2, "conversation", "me"))->wait();
    // The thread's own time: others may have the processor meanwhile.
    const auto now = [] {
      timespec time{};
      clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
      return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
    };
    double begun = 0, ended = 0;
    const auto first = std::make_shared<Told>();
    first->answer = [&](uint32_t, std::size_t tokens) {
      if (tokens == 1) ended = now();
      return Next::kContinue;
    };
    engine.call([&](EngineAccess&) {
      engine.submit(of({1, 2, 3}, 60, "", "busy"), first);
      for (uint32_t i = 1; i < kSlots - 1; ++i) {
        submit(engine, of({1, 2, 3}, 60, "", "busy"));
      }
      // The slot that is left is kept for the conversation.
      for (int i = 0; i < 3000; ++i) {
        submit(engine, of({1, 2, 3}, 1, "", "stranger " + std::to_string(i)));
      }
      begun = now();
    });
    first->wait();
    return ended - begun;
  };
  const double plain = seconds_of(false), fair = seconds_of(true);
  CAPTURE(plain);
  CAPTURE(fair);
  CHECK(fair < 10 * plain);
}

TEST_CASE("a request that leaves its slot for want of pages is not lost for want of host memory") {
  // Of 12 blocks capsules hold 8. The first request needs one, the others need three each.
  for (const int failures : {0, 1, 2}) {
    CAPTURE(failures);
    HollowModel world(16, 3);
    if (!world.rig.mock) return;
    const LmModel model = world.model();
    std::vector<Capsule> held;
    {
      StepRunner runner(model);
      for (int i = 0; i < 2; ++i) {
        Session session(model, runner, nullptr, 0);
        for (uint64_t at = 0; at < 64; at += 8) session.prefill(counting(1, 8));
        held.push_back(model.capsules().snapshot(0, 64, FRT_SPACE_DEVICE, runner.stream()));
        session.clear();
      }
      runner.stream().sync();
    }
    {
      Engine engine(model, nullptr);
      std::vector<std::shared_ptr<Told>> all;
      engine.call([&](EngineAccess&) {
        for (const auto& [prompt, tokens] :
             {std::pair(1, 14), std::pair(8, 30), std::pair(8, 30)}) {
          auto told = std::make_shared<Told>();
          if (all.size() == 2 && failures > 0) {
            // Only a state that moves takes memory: pinned, else ordinary; else it stays for a
            // while.
            told->answer = [&world, failures](uint32_t, std::size_t count) {
              if (count == 1) {
                world.rig.mock->fail("memory_alloc", FRT_ERR_OUT_OF_MEMORY, failures);
              }
              return Next::kContinue;
            };
          }
          engine.submit(asking(counting(1, prompt), static_cast<uint64_t>(tokens)), told);
          all.push_back(std::move(told));
        }
      });
      for (const auto& told : all) {
        told->wait();
        REQUIRE_MESSAGE(told->error == FRT_OK, told->message);
        CHECK(told->result().finish == Finish::kLength);
      }
      CHECK(engine.stats().preemptions >= 1);
    }
    held.clear();
  }
}

TEST_CASE("a cancelled request is over within one step, and its slot is free") {
  HollowModel world(16);
  const LmModel model = world.model();
  Engine engine(model, nullptr);
  const auto steps = [&] {
    const EngineStats stats = engine.stats();
    return stats.prefill_steps + stats.decode_steps;
  };
  // While it writes, while it reads, and in the queue.
  for (const uint64_t tokens : {5, 1, 0}) {
    CAPTURE(tokens);
    const auto told = std::make_shared<Told>();
    uint64_t number = 0, steps_then = 0;
    std::promise<void> numbered;
    const auto known = numbered.get_future().share();
    const auto cancel = [&] {
      known.wait();
      steps_then = steps();
      engine.cancel(number);
    };
    told->answer = [&](uint32_t, std::size_t count) {
      if (count == tokens) cancel();
      return Next::kContinue;
    };
    if (tokens == 0) told->started = cancel;
    number = engine.submit(asking(counting(1, tokens == 0 ? 40 : 8), 50), told);
    numbered.set_value();
    told->wait();
    CHECK(told->result().finish == Finish::kCancelled);
    // The one that was submitted ahead when it was cancelled counts as well.
    CHECK(steps() <= steps_then + 1);
    CHECK(told->result().generated <= tokens + 1);
    engine.call([](EngineAccess&) {});
    CHECK(engine.stats().slots_used == 0);
  }
}

}  // namespace frt::host
