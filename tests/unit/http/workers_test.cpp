// SPDX-License-Identifier: Apache-2.0
// Who works on what, when new requests ask for more than there are threads.
#include "http/workers.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <future>

namespace frt::host {
namespace {

constexpr std::chrono::seconds kLong{30};

bool is_there(std::future<void>& future) {
  return future.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
}

}  // namespace

TEST_CASE("new work never takes every thread: what was begun goes on beside it") {
  std::promise<void> released, first, second, begun;
  auto release = released.get_future().share();
  auto first_runs = first.get_future(), second_runs = second.get_future(),
       begun_runs = begun.get_future();
  Workers workers(2, 8);
  CHECK(workers.try_post([&] {
    first.set_value();
    release.wait();
  }));
  REQUIRE(first_runs.wait_for(kLong) == std::future_status::ready);
  CHECK(workers.try_post([&] { second.set_value(); }));
  workers.post([&] { begun.set_value(); });
  // The thread that ran this had the choice of the second one before and after.
  CHECK(begun_runs.wait_for(kLong) == std::future_status::ready);
  CHECK_FALSE(is_there(second_runs));
  released.set_value();
  CHECK(second_runs.wait_for(kLong) == std::future_status::ready);
}

TEST_CASE("one thread alone takes new work, too, and all of it runs before the end") {
  int done = 0;
  {
    Workers workers(1, 8);
    for (int i = 0; i < 5; ++i) CHECK(workers.try_post([&] { ++done; }));
  }
  CHECK(done == 5);
}

}  // namespace frt::host
