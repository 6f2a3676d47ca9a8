// SPDX-License-Identifier: Apache-2.0
// The parts of the tick loop that need no model: which action is sent when, latencies, mailbox,
// world.
#include <doctest/doctest.h>
#include <sched.h>

#include <cmath>
#include <frt/error.hpp>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "examples/handoff.hpp"
#include "examples/reach/world.hpp"
#include "robot/control/latency.hpp"
#include "robot/control/realtime.hpp"
#include "robot/control/tick_loop.hpp"
#include "robot/policy_runner.hpp"

using namespace frt::host;

namespace {

// A chunk whose row r is (base + r, -(base + r)).
std::vector<double> chunk(double base, uint32_t horizon) {
  std::vector<double> out;
  for (uint32_t row = 0; row < horizon; ++row) {
    out.push_back(base + row);
    out.push_back(-(base + row));
  }
  return out;
}

double next(ActionQueue& queue, bool* from_chunk = nullptr) {
  std::vector<double> action(2);
  const bool from = queue.next(action);
  if (from_chunk) *from_chunk = from;
  return action[0];
}

}  // namespace

TEST_CASE("chunks that cannot be used as they were asked for are refused at once") {
  TickOptions options;
  options.execute = 7;
  CHECK_THROWS_WITH_AS(ActionQueue(options, 6, 2), doctest::Contains("a chunk has 6"), frt::Error);
  options.execute = 6;
  options.lead = 5;
  ActionQueue(options, 6, 2);
  options.lead = 6;
  CHECK_THROWS_WITH_AS(ActionQueue(options, 6, 2), doctest::Contains("lead = 6"), frt::Error);
}

TEST_CASE("the rows of a chunk that are over are dropped, the others replace what is left") {
  TickOptions options;
  options.execute = 3;
  options.lead = 1;
  ActionQueue queue(options, 6, 2);
  CHECK(queue.wants_chunk());
  CHECK(queue.accept(chunk(10, 6), 0, 0));
  CHECK(queue.left() == 3);
  CHECK(next(queue) == 10);
  CHECK_FALSE(queue.wants_chunk());
  CHECK(next(queue) == 11);
  CHECK(queue.wants_chunk());
  CHECK(queue.accept(chunk(20, 6), 2, 0));
  CHECK(next(queue) == 22);
  CHECK(queue.left() == 2);
  CHECK_FALSE(queue.accept(chunk(30, 6), 6, 0));
  CHECK(queue.counters().stale_drops == 1);
  CHECK(next(queue) == 23);
}

TEST_CASE(
    "a chunk of an observation that is too old never reaches the robot, nor one that is not "
    "finite") {
  TickOptions options;
  options.stale_ms = 50;
  ActionQueue queue(options, 4, 2);
  CHECK_FALSE(queue.accept(chunk(1, 4), 0, 51));
  CHECK(queue.accept(chunk(2, 4), 0, 50));
  std::vector<double> bad = chunk(3, 4);
  bad[5] = std::numeric_limits<double>::quiet_NaN();
  CHECK_FALSE(queue.accept(bad, 0, 0));
  CHECK(queue.counters().stale_drops == 2);
  CHECK(next(queue) == 2);
}

TEST_CASE("a tick without an action sends the declared safe action and counts the miss") {
  for (const SafeAction safe : {SafeAction::kHold, SafeAction::kRamp, SafeAction::kStop}) {
    TickOptions options;
    options.safe = safe;
    options.ramp_ticks = 4;
    ActionQueue queue(options, 1, 2);
    queue.accept(chunk(8, 1), 0, 0);
    bool from_chunk = false;
    CHECK(next(queue, &from_chunk) == 8);
    CHECK(from_chunk);
    std::vector<double> sent;
    for (int i = 0; i < 5; ++i) {
      sent.push_back(next(queue, &from_chunk));
      CHECK_FALSE(from_chunk);
    }
    const std::vector<double> expected =
        safe == SafeAction::kHold   ? std::vector<double>{8, 8, 8, 8, 8}
        : safe == SafeAction::kRamp ? std::vector<double>{6, 4, 2, 0, 0}
                                    : std::vector<double>{0, 0, 0, 0, 0};
    CHECK(sent == expected);
    CHECK(queue.counters().deadline_misses == 5);
    CHECK(queue.counters().safe_actions == 5);
    CHECK(queue.counters().ticks == 6);
  }
}

TEST_CASE("a value changes from tick to tick by max_change at most, after an operator, too") {
  TickOptions options;
  options.max_change = 2;
  ActionQueue queue(options, 4, 2);
  queue.accept(chunk(5, 4), 0, 0);
  CHECK(next(queue) == 2);
  CHECK(next(queue) == 4);
  CHECK(queue.counters().clamped == 2);
  queue.note_sent(std::vector<double>{7, -7});
  CHECK(next(queue) == 8);
  CHECK(queue.counters().clamped == 2);
}

TEST_CASE("percentiles are values that occurred, and the last ones are kept") {
  LatencySeries series(1000);
  CHECK(series.summary().max == 0);
  for (int i = 1; i <= 1000; ++i) series.add(i);
  LatencySummary summary = series.summary();
  CHECK(summary.p50 == 500);
  CHECK(summary.p99 == 990);
  CHECK(summary.p999 == 999);
  CHECK(summary.max == 1000);
  CHECK(summary.jitter() == 499);
  for (int i = 0; i < 1000; ++i) series.add(3);
  summary = series.summary();
  CHECK(summary.count == 2000);
  CHECK(summary.max == 3);
  CHECK(histogram({1, 1, 2, 5}, 4, 20).find("####") != std::string::npos);
  CHECK(histogram({}, 4, 20).empty());
  CHECK(histogram({2, 2, 2}, 4, 20).find(" 3\n") != std::string::npos);
}

TEST_CASE("noise depends on seed and draw alone, and looks normal") {
  std::vector<float> a(4001), b(4001), c(4001);
  fill_normal(1, 2, a);
  fill_normal(1, 2, b);
  fill_normal(1, 3, c);
  CHECK(a == b);
  CHECK(a != c);
  double mean = 0, square = 0;
  for (const float value : a) {
    mean += value;
    square += double(value) * value;
  }
  CHECK(std::fabs(mean / 4001) < 0.06);
  CHECK(std::fabs(square / 4001 - 1) < 0.08);
}

TEST_CASE(
    "what the system grants of real time is said, what it refuses is an error with a remedy") {
  const auto applied = [](const RealtimeOptions& options, const auto& look) {
    std::string said;
    std::thread([&] {  // whose settings end with it
      try {
        said = apply_realtime(options);
        look();
      } catch (const frt::Error& error) {
        said = error.what();
      }
    })
        .join();
    return said;
  };
  CHECK(applied({}, [] {}).empty());
  cpu_set_t allowed;
  REQUIRE(sched_getaffinity(0, sizeof(allowed), &allowed) == 0);
  int core = 0;
  while (!CPU_ISSET(core, &allowed)) ++core;
  RealtimeOptions options;
  options.cpu = core;
  CHECK(applied(options, [&] {
          cpu_set_t now;
          CHECK(sched_getaffinity(0, sizeof(now), &now) == 0);
          CHECK(CPU_COUNT(&now) == 1);
          CHECK(CPU_ISSET(core, &now));
        }) == "on core " + std::to_string(core));
  for (const int absent : {CPU_SETSIZE - 1, CPU_SETSIZE, CPU_SETSIZE + core}) {
    options.cpu = absent;
    CHECK(applied(options, [] {}).find("choose a core") != std::string::npos);
  }
  options = {};
  options.fifo_priority = 1;
  bool granted = false;
  const std::string said = applied(options, [&] { granted = sched_getscheduler(0) == SCHED_FIFO; });
  CHECK((granted ? said == "SCHED_FIFO 1" : said.find("ulimit -r") != std::string::npos));
}

TEST_CASE("ticks that are over are counted, not made up for") {
  Ticker ticker(1000);
  ticker.start();
  const int64_t start = ticker.due_ns();
  sleep_until_ns(start + 10 * ticker.period_ns());
  ticker.wait();
  CHECK(ticker.skipped() >= 9);
  CHECK((ticker.due_ns() - start) % ticker.period_ns() == 0);
}

TEST_CASE("an interrupt wakes the waiting actor and outranks later plans") {
  SubgoalMailbox mailbox;
  mailbox.post("plan", false);
  CHECK_FALSE(mailbox.wait_until(monotonic_ns() + 1000000));
  mailbox.post("now", true);
  mailbox.post("later plan", false);
  std::optional<SubgoalMailbox::Subgoal> found = mailbox.wait_until(monotonic_ns());
  REQUIRE(found);
  CHECK(found->instruction == "now");
  CHECK_FALSE(mailbox.take());
  std::thread other([&] {
    sleep_until_ns(monotonic_ns() + 5000000);
    mailbox.post("from another thread", true);
  });
  found = mailbox.wait_until(monotonic_ns() + int64_t{60} * 1000000000);
  other.join();
  REQUIRE(found);
  CHECK(found->instruction == "from another thread");
}

TEST_CASE("equal seeds make equal worlds, and an operator reaches the disc in time") {
  reach::World first, second;
  for (uint64_t seed = 0; seed < 50; ++seed) {
    first.reset(seed);
    second.reset(seed);
    CHECK(first.goal() == second.goal());
    first.look();
    second.look();
    CHECK(first.image() == second.image());
    CHECK_FALSE(first.succeeded());
    std::vector<double> action(2);
    while (!first.over() && !first.succeeded()) {
      first.expert_action(action);
      first.apply(action);
    }
    CHECK(first.succeeded());
  }
}

TEST_CASE("a step is never longer than the world allows") {
  reach::World world;
  world.reset(3);
  const reach::Point before = world.point();
  world.apply(std::vector<double>{100, 0});
  CHECK(std::fabs(world.point().x - before.x) <= reach::World::kMaxStep + 1e-12);
  CHECK(world.point().x <= reach::World::kHigh);
}
