// SPDX-License-Identifier: Apache-2.0
// A device that fails under an engine: every request gets an answer, and the engine says what it
// can still do.
#include <string>

#include "hollow_model.hpp"
#include "lm/engine/engine.hpp"
#include "told.hpp"

namespace frt::host {
namespace {

using frt::test::asking;
using frt::test::HollowModel;
using frt::test::submit;
using frt::test::Told;

frt_status status_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    return error.status();
  }
  return FRT_OK;
}

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
  engine.drain();
  world.rig.mock->pump();  // a lost device waits for nothing, but the mock looks at what is left
}

}  // namespace frt::host
