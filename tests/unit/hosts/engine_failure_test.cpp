// SPDX-License-Identifier: Apache-2.0
// A device that fails under an engine: every request gets an answer, and the engine says what it
// can still do.
#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "hollow_model.hpp"
#include "lm/capsules/registry.hpp"
#include "lm/engine/engine.hpp"
#include "told.hpp"

namespace frt::host {
namespace {

using frt::test::asking;
using frt::test::counting;
using frt::test::HollowModel;
using frt::test::joined;
using frt::test::status_of;
using frt::test::submit;
using frt::test::Tokens;
using frt::test::Told;

// Calls of the backend that the parts of an engine make.
using Calls = std::map<std::string, int>;

// An engine in which every verb is used: prompts in chunks, decode steps, capsules that are taken
// and restored, a state that three answers begin with, and pages that run out.
class Day {
 public:
  Day() : model_(world_.model()) {
    StepRunner runner(model_);
    for (int i = 0; i < 2; ++i) {  // 8 of the 12 pages
      Session session(model_, runner, nullptr, 0);
      for (uint64_t at = 0; at < 64; at += 8) session.prefill(counting(1, 8));
      held_.push_back(model_.capsules().snapshot(0, 64, FRT_SPACE_DEVICE, runner.stream()));
      session.clear();
    }
    runner.stream().sync();
  }

  MockBackend* mock() { return world_.rig.mock.get(); }

  // Goes through it; the device fails `function` at its call `at`, 0 and up, and if it is lost from
  // there on. Returns the calls of each function, none
  // of a device that is to be lost; without a failure every request is served.
  Calls go(const char* function, frt_status status, int at) {
    CapsuleRegistry registry(world_.rig.context, model_.capsules(),
                             {uint64_t{1} << 20, uint64_t{1} << 20, 0, {}});
    EngineOptions options;
    options.session.spacing = 8;
    options.session.min_tokens = 1;
    Engine engine(model_, &registry, options);
    Calls before;
    engine.call([&](EngineAccess&) {  // the mock belongs to the engine's thread
      before = calls();
      if (!function) return;
      mock()->fail(function, FRT_OK, at);
      mock()->fail(function, status, status == FRT_ERR_DEVICE_LOST ? 1000 : 1);
    });
    std::vector<std::shared_ptr<Told>> told;
    std::vector<std::size_t> choices;
    const auto ask = [&](Tokens prompt, uint64_t tokens, uint32_t count = 1) {
      EngineRequest request = asking(std::move(prompt), tokens);
      request.choices = count;
      try {
        told.push_back(submit(engine, request));
        choices.push_back(count);
      } catch (const Error& error) {
        CHECK(error.status() == FRT_ERR_DEVICE_LOST);
        CHECK(engine.stats().device_lost);
      }
    };
    const auto wait = [&] {
      for (std::size_t i = 0; i < told.size(); ++i) told[i]->wait(choices[i]);
    };
    ask(counting(1, 20), 8);
    wait();
    ask(joined(counting(1, 16), counting(60, 6)), 8);  // from a capsule
    ask(counting(30, 12), 8, 3);                       // two of them from the state of the first
    wait();
    try {
      engine.call([&](EngineAccess&) {  // all are there before the first one begins
        ask(counting(2, 8), 40);        // these two outgrow the pages
        ask(counting(3, 8), 40);
        ask(counting(4, 8), 20);
      });
    } catch (const Error&) {
      CHECK(engine.stats().device_lost);
    }
    wait();
    for (const auto& each : told) {
      CHECK((each->error == FRT_OK || each->error == status));
      CHECK((each->error == FRT_OK || !each->message.empty()));
      failed += each->error != FRT_OK;
    }
    Calls made;
    // Threads order the calls, so that a day may have fewer of them than the first one had, and the
    // failure may be still to come.
    if (status != FRT_ERR_DEVICE_LOST) {
      engine.call([&](EngineAccess&) {
        for (const auto& [name, count] : calls()) made[name] = count - before.at(name);
        mock()->fail_no_more();
      });
    }
    if (!engine.stats().device_lost && status != FRT_ERR_DEVICE_LOST) {
      const auto later = submit(engine, asking(counting(50, 9), 5));
      later->wait();
      REQUIRE_MESSAGE(later->error == FRT_OK, later->message);
      CHECK(later->tokens().size() == 5);
    }
    engine.drain();
    CHECK(engine.stats().slots_used == 0);
    CHECK(engine.stats().queued == 0);
    preemptions = engine.stats().preemptions;
    lost = engine.stats().device_lost;
    restored = std::ranges::count_if(
        told, [](const auto& each) { return each->prefix.action == PrefixAction::kRestore; });
    mock()->pump();  // what a step that failed left behind
    return made;
  }

  int failed = 0;  // requests
  bool lost = false;
  uint64_t preemptions = 0;
  std::ptrdiff_t restored = 0;

 private:
  Calls calls() {
    Calls all;
    for (const char* name : {"copy", "fill", "exec_launch", "event_record", "event_sync",
                             "event_wait", "memory_alloc"}) {
      all[name] = mock()->calls(name);
    }
    return all;
  }

  HollowModel world_{16, 3};
  LmModel model_;
  std::vector<Capsule> held_;
};

}  // namespace

TEST_CASE("a step that the device fails ends its requests, and later ones are served") {
  HollowModel world(16);
  if (!world.rig.mock) return;
  const LmModel model = world.model();
  for (const char* function : {"exec_launch", "event_sync", "copy"}) {
    CAPTURE(function);
    Engine engine(model, nullptr);
    std::shared_ptr<Told> first, second;
    engine.call([&](EngineAccess&) {  // neither is over before the failure is set
      first = submit(engine, asking({1, 2, 3}, 50));
      second = submit(engine, asking({4, 5}, 50));
      world.rig.mock->fail(function, FRT_ERR_DEVICE);
    });
    for (const auto& told : {first, second}) told->wait();
    // At least the request whose step it was.
    CHECK((first->error == FRT_ERR_DEVICE || second->error == FRT_ERR_DEVICE));
    const auto later = submit(engine, asking({1, 2, 3}, 5));
    later->wait();
    CHECK(later->error == FRT_OK);
    CHECK(later->tokens().size() == 5);
    engine.drain();
    CHECK(engine.stats().errors >= 1);
    CHECK_FALSE(engine.stats().device_lost);
  }
}

TEST_CASE("when the device is lost every request ends with an error, and no later one is taken") {
  HollowModel world(16);
  if (!world.rig.mock) return;
  const LmModel model = world.model();
  Engine engine(model, nullptr);
  std::vector<std::shared_ptr<Told>> told;
  engine.call([&](EngineAccess&) {  // two of them would be served at a time
    for (int32_t i = 0; i < 5; ++i) told.push_back(submit(engine, asking({1, 2, i}, 50)));
    world.rig.mock->fail("exec_launch", FRT_ERR_DEVICE_LOST, 1000);
  });
  for (const auto& one : told) {
    one->wait();
    CHECK(one->error == FRT_ERR_DEVICE_LOST);
    CHECK_FALSE(one->message.empty());
  }
  CHECK(engine.stats().device_lost);
  CHECK(status_of([&] { submit(engine, asking({1}, 1)); }) == FRT_ERR_DEVICE_LOST);
  CHECK(status_of([&] { engine.call([](EngineAccess&) {}); }) == FRT_ERR_BAD_STATE);
  // What belongs to the context is let go on the engine's thread still, one after the other.
  std::set<std::thread::id> threads;
  std::vector<std::thread> callers;
  for (int i = 0; i < 4; ++i) {
    callers.emplace_back(
        [&] { engine.let_go([&] { threads.insert(std::this_thread::get_id()); }); });
  }
  std::set<std::thread::id> own = {std::this_thread::get_id()};
  for (std::thread& caller : callers) {
    own.insert(caller.get_id());
    caller.join();
  }
  CHECK(threads.size() == 1);
  CHECK_FALSE(own.contains(*threads.begin()));
  engine.drain();
  world.rig.mock->pump();  // a lost device waits for nothing, but the mock looks at what is left
}

// Prefill and decode steps, snapshots and restores: wherever it is that the device fails.
TEST_CASE(
    "whichever call of a device fails, each request ends, and the engine goes on or says why") {
  Calls all;
  {
    Day day;
    if (!day.mock()) return;
    all = day.go(nullptr, FRT_OK, 0);
    CHECK(day.failed == 0);
    CHECK(day.preemptions > 0);
    CHECK(day.restored > 0);
  }
  for (const auto& calls : all) {
    const auto& function = calls.first;
    const auto& count = calls.second;
    CAPTURE(function);
    MESSAGE(function << ": " << count << " calls");
    for (const frt_status status : {FRT_ERR_DEVICE, FRT_ERR_OUT_OF_MEMORY, FRT_ERR_DEVICE_LOST}) {
      CAPTURE(status);
      int failed = 0, lost = 0;
      const int apart = std::max(1, count / 40);
      for (int at = 0; at < count; at += apart) {
        CAPTURE(at);
        Day day;
        day.go(function.c_str(), status, at);
        failed += day.failed;
        lost += day.lost;
      }
      if (count == 0) continue;
      if (status == FRT_ERR_DEVICE_LOST) CHECK(lost > 0);
      if (status == FRT_ERR_DEVICE && function != "memory_alloc") CHECK(failed > 0);
    }
  }
}

}  // namespace frt::host
