// SPDX-License-Identifier: Apache-2.0
// What the engine decides from numbers alone: the kind of the next step, whose prompt is read, and
// which slot a request gets.
#include <doctest/doctest.h>

#include <optional>
#include <string>
#include <vector>

#include "lm/engine/meter.hpp"
#include "lm/engine/scheduler.hpp"
#include "lm/engine/slot_choice.hpp"
#include "lm/engine/speculation.hpp"

namespace {

using frt::host::Acceptance;
using frt::host::choose_slot;
using frt::host::Drafting;
using frt::host::DraftPlanner;
using frt::host::Reader;
using frt::host::SlotView;
using frt::host::StepKind;
using frt::host::StepScheduler;

// Makes `steps` steps while one reads and one writes: "pdddp...".
std::string steps_of(StepScheduler& scheduler, int steps, double chunk, double decode) {
  std::string made;
  for (int i = 0; i < steps; ++i) {
    const StepKind kind = scheduler.next(true, true);
    scheduler.submitted(kind, true);
    scheduler.measured(kind, kind == StepKind::kPrefill ? chunk : decode);
    made += kind == StepKind::kPrefill ? 'p' : 'd';
  }
  return made;
}

// `common`: without it the prompt begins with all that each slot holds.
std::optional<uint32_t> chosen(const std::vector<SlotView>& slots, const std::string& affinity,
                               uint32_t hot, std::vector<uint64_t> continues = {},
                               std::vector<uint64_t> common = {}) {
  const std::string owner = "me";
  continues.resize(slots.size());
  for (std::size_t i = common.size(); i < slots.size(); ++i) common.push_back(slots[i].tokens);
  return choose_slot(slots, {owner, affinity, continues, common}, hot);
}

SlotView slot(uint64_t tokens, const std::string& affinity, uint64_t last_used,
              const std::string& owner = "me") {
  SlotView view;
  view.tokens = view.prompt = tokens;
  view.owner = owner;
  view.affinity = affinity;
  view.last_used = last_used;
  return view;
}

}  // namespace

TEST_CASE("prompts are read while nobody writes, and tokens written while nobody reads") {
  StepScheduler scheduler(0.1, false);
  CHECK(scheduler.next(false, false) == StepKind::kNone);
  CHECK(scheduler.next(true, false) == StepKind::kPrefill);
  CHECK(scheduler.next(false, true) == StepKind::kDecode);
  // A chunk that nobody waited for is not paid for.
  scheduler.submitted(StepKind::kPrefill, false);
  scheduler.measured(StepKind::kPrefill, 5);
  CHECK(scheduler.debt_seconds() == 0);
}

TEST_CASE("without a cap, one decode step comes between two chunks") {
  StepScheduler scheduler(0, false);
  CHECK(steps_of(scheduler, 7, 0.5, 0.01) == "pdpdpdp");
}

TEST_CASE("with a cap, decode steps pay for a chunk until steps take the cap on average") {
  StepScheduler scheduler(0.1, false);
  // A chunk of 250 ms runs up 150 ms; each decode step of 50 ms pays 50 ms. The first decode step
  // is charged with a cost that nobody knows yet.
  const std::string made = steps_of(scheduler, 14, 0.25, 0.05);
  CHECK(made == "pddpdddpdddpdd");
}

TEST_CASE("a chunk within the cap waits for one decode step alone") {
  StepScheduler scheduler(0.1, false);
  CHECK(steps_of(scheduler, 7, 0.08, 0.01) == "pdpdpdp");
}

TEST_CASE("where a decode step takes more than the cap, a prompt is read nevertheless") {
  StepScheduler scheduler(0.1, false);
  const std::string made = steps_of(scheduler, 200, 0.5, 0.2);
  CHECK(made.find(std::string(StepScheduler::kMostDecodes, 'd')) != std::string::npos);
  CHECK(made.find(std::string(StepScheduler::kMostDecodes + 1, 'd')) == std::string::npos);
}

TEST_CASE("one prompt is read after the other, the highest priority first") {
  const StepScheduler scheduler(0, false);
  std::vector<Reader> readers = {{0, 1, 0}, {0, 2, 9}, {0, 3, 0}};
  CHECK(scheduler.pick(readers) == 1);  // it has begun
  readers[1].last_step = 0;
  CHECK(scheduler.pick(readers) == 0);  // it came first
  readers[2].priority = 1;
  CHECK(scheduler.pick(readers) == 2);
}

TEST_CASE("interleaved prompts are read in turn") {
  const StepScheduler scheduler(0, true);
  std::vector<Reader> readers = {{0, 1, 0}, {0, 2, 0}, {0, 3, 0}};
  std::vector<std::size_t> order;
  for (uint64_t step = 1; step <= 6; ++step) {
    order.push_back(scheduler.pick(readers));
    readers[order.back()].last_step = step;
  }
  CHECK(order == std::vector<std::size_t>{0, 1, 2, 0, 1, 2});
}

TEST_CASE("a conversation gets its own slot, and a prompt the slot that holds most of it") {
  const std::vector<SlotView> slots = {slot(0, "", 0, ""), slot(30, "a", 5), slot(20, "", 6),
                                       slot(10, "b", 1, "other")};
  CHECK(chosen(slots, "a", 0) == 1u);
  CHECK(chosen(slots, "b", 0) == 0u);  // of another owner: an empty one
  CHECK(chosen(slots, "", 0, {0, 0, 20, 0}) == 2u);
  CHECK(chosen(slots, "", 0) == 0u);
}

TEST_CASE("a slot that is used is nobody else's, and the oldest idle one goes first") {
  std::vector<SlotView> slots = {slot(10, "", 3), slot(10, "", 2), slot(10, "", 1)};
  slots[2].used = true;
  CHECK(chosen(slots, "", 0) == 1u);
  slots[0].used = slots[1].used = true;
  CHECK_FALSE(chosen(slots, "", 0));
}

TEST_CASE("a side request of a conversation takes an empty or a colder slot, not the main one") {
  // A title has the name of the conversation, and nothing else of it.
  CHECK(chosen({slot(30, "a", 5), slot(0, "", 0)}, "a", 0, {}, {2, 0}) == 1u);
  CHECK(chosen({slot(30, "a", 5), slot(20, "", 9)}, "a", 0, {}, {2, 0}) == 1u);
  CHECK(chosen({slot(30, "a", 5), slot(20, "b", 4)}, "a", 0, {}, {2, 0}) == 1u);
  CHECK(chosen({slot(30, "a", 5), slot(20, "b", 6)}, "a", 0, {}, {2, 0}) == 0u);  // it is colder
  // A turn whose client dropped what was written behind the last prompt goes on with it.
  std::vector<SlotView> slots = {slot(30, "a", 5), slot(0, "", 0)};
  slots[0].prompt = 12;
  CHECK(chosen(slots, "a", 0, {}, {12, 0}) == 0u);
  CHECK(chosen(slots, "a", 0, {}, {5, 0}) == 1u);
  // A conversation that nothing is known of any more has its slot still.
  CHECK(chosen({slot(0, "a", 5), slot(0, "", 0)}, "a", 0, {}, {0, 0}) == 0u);
}

// Earlier a request with an affinity took the oldest of the hot slots when no other was free: so
// two agents with sub-agents threw each other out all day. Now it waits for the slot that is never
// hot, whoever it is, and becomes hot there itself; the one not used for the longest time cools
// down.
TEST_CASE(
    "a slot of a hot conversation is given to nobody else, a side request of its own included") {
  std::vector<SlotView> slots = {slot(10, "old", 1), slot(10, "new", 2), slot(10, "", 9)};
  slots[2].used = true;
  CHECK(chosen(slots, "", 1) == 0u);
  CHECK_FALSE(chosen(slots, "", 2));  // it waits for the third
  CHECK_FALSE(chosen(slots, "another", 2));
  CHECK(chosen(slots, "new", 2) == 1u);
  CHECK_FALSE(chosen(slots, "new", 2, {}, {0, 2, 0}));
  // Another conversation is not continued by accident.
  CHECK_FALSE(chosen(slots, "", 2, {10, 10, 0}));
  slots[2] = slot(10, "another", 10);
  CHECK(chosen(slots, "more", 2) == 0u);  // the oldest of three is hot no more
}

TEST_CASE("a pinned slot is its conversation's alone, and one slot is never kept") {
  std::vector<SlotView> slots = {slot(10, "pinned", 1), slot(10, "x", 2)};
  slots[0].pinned = true;
  CHECK(chosen(slots, "y", 1) == 1u);
  CHECK(chosen(slots, "", 1) == 1u);
  CHECK(chosen(slots, "pinned", 1) == 0u);
  CHECK(chosen(slots, "pinned", 1, {}, {0, 0}) == 1u);
}

TEST_CASE("a histogram counts a duration in the first bucket that holds it") {
  frt::host::DurationMeter meter;
  for (const double seconds : {0.000005, 0.0005, 0.001, 0.0011, 5000.0}) meter.add(seconds);
  const frt::host::DurationHistogram read = meter.read();
  CHECK(read.counts[0] == 1);
  CHECK(read.counts[2] == 2);
  CHECK(read.counts[3] == 1);
  CHECK(read.counts.back() == 1);
  CHECK(read.count == 5);
  CHECK(read.sum == doctest::Approx(5000.002605));
}

TEST_CASE("drafts are taken where they write more tokens per second, and tried again") {
  // A round of d drafts takes 1 + cost * d plain steps; `rate` of the drafts are accepted.
  const auto drafts_of = [](double cost, float rate) {
    DraftPlanner planner(Drafting::kAuto, {0, 3, 3});
    Acceptance acceptance;
    acceptance.rates.fill(rate);
    const std::vector<const Acceptance*> one = {&acceptance};
    std::vector<uint32_t> made(4);
    for (int step = 0; step < 640; ++step) {
      const uint32_t drafts = planner.drafts(one);
      REQUIRE(drafts <= 3);
      if (step >= 64) ++made[drafts];  // costs are known by now
      planner.submitted();
      planner.measured(1, drafts, 1e-3 * (1 + cost * drafts));
    }
    return made;
  };
  const auto cheap = drafts_of(0.05, 0.9F);
  CHECK(cheap[3] > 560);
  CHECK(cheap[0] > 0);
  const auto wrong = drafts_of(0.2, 0.1F);
  CHECK(wrong[0] > 560);
  CHECK(wrong[1] > 0);
  const auto dear = drafts_of(1.0, 0.95F);
  CHECK(dear[0] > 560);
}

TEST_CASE("the first step of so many sequences is a plain one; on and off are kept to") {
  const Acceptance acceptance;
  const std::vector<const Acceptance*> two = {&acceptance, &acceptance};
  DraftPlanner planner(Drafting::kAuto, {0, 3, 2, 0});
  CHECK(planner.enabled());
  CHECK(planner.drafts(two) == 0);
  CHECK(DraftPlanner(Drafting::kOn, {0, 3, 2, 0}).drafts(two) == 2);
  CHECK_FALSE(DraftPlanner(Drafting::kOff, {0, 3, 2, 0}).enabled());
  CHECK(DraftPlanner(Drafting::kOff, {0, 3, 2, 0}).drafts(two) == 0);
  CHECK_FALSE(DraftPlanner(Drafting::kOn, {}).enabled());
  CHECK_FALSE(DraftPlanner(Drafting::kOn, {0, 0}).enabled());
  const std::vector<const Acceptance*> three(3, &acceptance);
  CHECK(DraftPlanner(Drafting::kOn, {0, 3, 2, 0}).drafts(three) == 0);
  CHECK_THROWS_WITH_AS(frt::host::drafting_from("yes"), doctest::Contains("auto, on or off"),
                       frt::Error);
}

TEST_CASE("acceptance is counted up to the first wrong draft") {
  Acceptance acceptance;
  acceptance.rates.fill(0.5F);
  acceptance.add(3, 1);
  CHECK(acceptance.rates[0] > 0.5F);
  CHECK(acceptance.rates[1] < 0.5F);
  CHECK(acceptance.rates[2] == 0.5F);
  CHECK(acceptance.expected(0) == 1);
  acceptance.rates.fill(0.5F);
  CHECK(acceptance.expected(2) == 1.75);
  for (int i = 0; i < 200; ++i) acceptance.add(20, 20);
  CHECK(acceptance.expected(20) > 20);
}
