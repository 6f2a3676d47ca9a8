// SPDX-License-Identifier: Apache-2.0
// Who works on what, when new requests ask for more than there are threads; and what becomes of
// jobs that throw.
#include "http/workers.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <future>
#include <new>
#include <stdexcept>
#include <thread>

namespace frt::host {
namespace {

constexpr std::chrono::seconds kLong{30};

bool is_there(std::future<void>& future) {
  return future.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
}

// Does `job` each time it is woken.
class Doer : public Actor {
 public:
  Doer(Workers& workers, std::function<void()> job) : Actor(workers), job_(std::move(job)) {}

 private:
  void work() override { job_(); }
  const std::function<void()> job_;
};

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
  std::make_shared<Doer>(workers, [&] { begun.set_value(); })->wake();
  // The thread that ran this had the choice of the second one before and after.
  CHECK(begun_runs.wait_for(kLong) == std::future_status::ready);
  CHECK_FALSE(is_there(second_runs));
  released.set_value();
  CHECK(second_runs.wait_for(kLong) == std::future_status::ready);
}

TEST_CASE("one owner's slow jobs leave a thread to the others") {
  std::promise<void> released, other;
  auto release = released.get_future().share();
  auto other_runs = other.get_future();
  std::atomic<int> running{0};
  Workers workers(4, 16, 2);
  for (int i = 0; i < 5; ++i) {
    CHECK(workers.try_post(
        [&] {
          ++running;
          release.wait();
        },
        "slow"));
  }
  CHECK(workers.try_post([&] { other.set_value(); }, "quick"));
  CHECK(other_runs.wait_for(kLong) == std::future_status::ready);
  CHECK(running <= 2);
  released.set_value();
  while (running < 5) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

TEST_CASE("one thread alone takes new work, too, and all of it runs before the end") {
  int done = 0;
  {
    Workers workers(1, 8);
    for (int i = 0; i < 5; ++i) CHECK(workers.try_post([&] { ++done; }));
  }
  CHECK(done == 5);
}

TEST_CASE("a job that throws ends alone: what it held is dropped, and the others run") {
  Workers workers(2, 8);
  auto held = std::make_shared<int>();
  const std::weak_ptr<int> watched = held;
  CHECK(workers.try_post([held] { throw std::bad_alloc(); }));
  held.reset();
  std::atomic<int> woken{0};
  const auto doer = std::make_shared<Doer>(workers, [&] {
    if (++woken == 1) throw std::runtime_error("once");
  });
  doer->wake();
  while (woken < 1 || !watched.expired()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  doer->wake();
  std::promise<void> later;
  CHECK(workers.try_post([&] { later.set_value(); }));
  CHECK(later.get_future().wait_for(kLong) == std::future_status::ready);
  while (woken < 2) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  CHECK(workers.failures() == 2);
}

TEST_CASE("an actor sees all that came before its last wake, on one thread at a time") {
  constexpr int kWakers = 3, kWakes = 20000;
  std::atomic<int> written{0}, seen{0}, inside{0};
  std::atomic<bool> crowded{false};
  {
    Workers workers(3, 8);
    const auto actor = std::make_shared<Doer>(workers, [&] {
      if (++inside > 1) crowded = true;
      seen = written.load();
      --inside;
    });
    std::vector<std::thread> wakers;
    for (int i = 0; i < kWakers; ++i) {
      wakers.emplace_back([&] {
        for (int wake = 0; wake < kWakes; ++wake) {
          ++written;
          actor->wake();
        }
      });
    }
    for (std::thread& waker : wakers) waker.join();
  }
  CHECK(seen == kWakers * kWakes);
  CHECK_FALSE(crowded);
}

TEST_CASE("an actor that waits for a thread is held until it has worked") {
  std::promise<void> released, done;
  auto release = released.get_future().share();
  Workers workers(1, 8);
  CHECK(workers.try_post([&] { release.wait(); }));
  std::make_shared<Doer>(workers, [&] { done.set_value(); })->wake();
  released.set_value();
  CHECK(done.get_future().wait_for(kLong) == std::future_status::ready);
}

}  // namespace frt::host
