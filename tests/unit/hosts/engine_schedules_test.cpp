// SPDX-License-Identifier: Apache-2.0
// Random schedules: arrivals, lengths, several choices (which begin with a fork), cancels,
// deadlines, priorities, conversations, prefixes that capsules hold, few pages, drafts or none, and
// answers under the masks of a grammar or with a bias. Every token is the one that the request
// gives alone. FRT_SCHEDULES says how many; the same number is the same schedules.
//
// Requests are drawn from a pool whose answers are known. What reuses a prefix that lies off the
// cold path (the end of an answer) may differ in the last bits of a probability, so bits are
// compared where the path is cold, tokens everywhere.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "rule_grammar.hpp"

namespace {

using namespace frt::test;
using frt::host::Drafting;
using frt::host::Engine;
using frt::host::EngineAccess;
using frt::host::EngineOptions;
using frt::host::EngineRequest;
using frt::host::EngineResult;
using frt::host::Finish;
using frt::host::Next;

constexpr uint32_t kChoices = 3;
constexpr uint64_t kMostNew = 48;
constexpr uint64_t kLongNew = 150;  // of a long answer
constexpr uint64_t kPageRows = 64, kSlotPages = 256 / kPageRows;
constexpr uint64_t kMostPages = 3;  // of one request

struct Known {
  EngineRequest asked;
  std::string rule{};          // of its grammar; empty: none
  std::vector<Alone> alone{};  // by choice, all tokens
};

std::size_t schedules() {
  const char* text = std::getenv("FRT_SCHEDULES");
  return text ? std::strtoull(text, nullptr, 10) : 200;
}

class Schedules {
 public:
  explicit Schedules(const std::string& checkpoint)
      : world_(
            "max_context = 256\nslots = 4\nmax_batch = 3\npage_rows = 64\n"
            "capsule_pages = 0",
            checkpoint) {
    for (int32_t i = 0; i < 24; ++i) {
      Known known;
      // Three families of prompts, so that many share a prefix.
      known.asked = asking(joined(some_tokens(16 + 16 * static_cast<int32_t>(draw(5)), i % 3),
                                  some_tokens(1 + static_cast<int32_t>(draw(40)), 100 + i)),
                           kMostNew);
      known.asked.sampling.seed = draw(1000);
      if (draw(2)) known.asked.sampling.temperature = 0.9f;
      if (i % 4 == 1) {
        const uint64_t least = 1 + draw(kMostNew);
        known.rule = rule_text(least, least + draw(20), 0, 1'000'000, draw(2));
        known.asked.grammar = compiled(known.rule);
      }
      if (i % 4 == 2) known.asked.bias = {{5, 2.5f}, {static_cast<int32_t>(draw(512)), -1}};
      for (uint32_t choice = 0; choice < kChoices; ++choice) {
        known.alone.push_back(world_.alone(known.asked, choice));
      }
      known.asked.grammar.reset();
      pool_.push_back(std::move(known));
    }
    for (int32_t i = 0; i < 6; ++i) {
      Known known;
      known.asked = asking(some_tokens(1 + static_cast<int32_t>(draw(40)), 200 + i), kLongNew);
      known.asked.sampling.seed = draw(1000);
      if (draw(2)) known.asked.sampling.temperature = 0.9f;
      known.alone.push_back(world_.alone(known.asked));
      long_.push_back(std::move(known));
    }
  }

  void run(std::size_t seed) {
    random_.seed(static_cast<uint32_t>(seed));
    // In half of the schedules pages are few and answers are long: they outgrow what there was when
    // they began.
    const bool tight = draw(2) == 0;
    const uint64_t pages = world_.model.state_info().total_pages;
    const std::vector<frt::Capsule> held =
        take_pages(tight ? pages - kMostPages - 1 - draw(2) : draw(4) * kSlotPages);
    const auto registry = world_.registry(
        {draw(2) ? uint64_t{1} << 30 : uint64_t{1} << 20, uint64_t{1} << 22, 0, {}});
    EngineOptions options = engine_options();
    options.interleave_prefills = draw(2);
    options.hot_contexts = static_cast<uint32_t>(draw(3));
    options.step_seconds = draw(2) ? 0 : 0.001;
    options.session.speculation =
        std::array{Drafting::kAuto, Drafting::kOn, Drafting::kOff}[draw(3)];
    Engine engine(world_.model, draw(4) ? registry.get() : nullptr, options);
    std::vector<Job> jobs((tight ? 5 : 3) + draw(6));
    // Whether requests meet that come by themselves depends on the speed of this thread and of the
    // engine's. In half of the tight schedules all are there before the first one begins.
    const bool together = tight && draw(2) == 0;
    const auto start_all = [&] {
      for (Job& job : jobs) start(engine, job, tight && draw(4) != 0, !together);
    };
    if (together) {
      engine.call([&](EngineAccess&) { start_all(); });
    } else {
      start_all();
    }
    for (Job& job : jobs) {
      if (job.cancel) engine.cancel(job.number);
      job.told->wait(job.asked.choices);
    }
    engine.drain();
    for (Job& job : jobs) check(job);
    preemptions += engine.stats().preemptions;
    preempted += engine.stats().preemptions > 0;
    for (const Job& job : jobs) {
      for (uint32_t choice = 0; choice < job.asked.choices; ++choice) {
        const EngineResult& result = job.told->result(choice);
        returned += result.preemptions > 0 && result.finish == Finish::kLength;
      }
    }
    for (const Job& job : jobs) {
      restored += job.told->prefix.action == frt::host::PrefixAction::kRestore;
      masked += !job.known->rule.empty();
      forked += job.asked.choices > 1;
    }
    reused += engine.stats().cached_tokens;
    drafted += engine.stats().draft_tokens;
    accepted += engine.stats().accepted_tokens;
  }

  uint64_t preemptions = 0, reused = 0, drafted = 0, accepted = 0;
  uint64_t restored = 0, masked = 0, forked = 0;  // requests
  uint64_t preempted = 0;                         // schedules with a preemption
  uint64_t returned = 0;  // answers that came back from a capsule and were written to their end

 private:
  struct Job {
    const Known* known = nullptr;
    EngineRequest asked;
    std::shared_ptr<Told> told;
    uint64_t number = 0;
    bool cancel = false;
    uint64_t stop_after = 0;  // the reader stops or cancels behind so many tokens; 0: it does not
  };

  uint64_t draw(uint64_t below) { return random_() % below; }

  // A grammar whose compiling is over.
  std::shared_ptr<const frt::host::GrammarTicket> compiled(const std::string& rule) {
    auto ticket = world_.compiler.compile({rule, true});
    while (!ticket->over()) std::this_thread::sleep_for(std::chrono::microseconds(50));
    return ticket;
  }

  void start(Engine& engine, Job& job, bool is_long, bool may_wait) {
    const std::vector<Known>& pool = is_long ? long_ : pool_;
    job.known = &pool[draw(pool.size())];
    job.asked = job.known->asked;
    job.asked.max_new = is_long ? kLongNew - draw(50) : draw(kMostNew + 1);
    if (!is_long) job.asked.choices = draw(4) ? 1 : 1 + static_cast<uint32_t>(draw(kChoices));
    job.asked.reuse = draw(4) != 0;
    job.asked.keep = draw(4) != 0;
    job.asked.priority = static_cast<int32_t>(draw(3));
    if (draw(2)) job.asked.affinity = "talk " + std::to_string(draw(3));
    if (draw(3) == 0) job.asked.owner = "other";
    if (!is_long && draw(6) == 0) {
      job.asked.deadline =
          std::chrono::steady_clock::now() + std::chrono::microseconds(draw(20000));
    }
    job.cancel = draw(6) == 0;
    if (draw(6) == 0) job.stop_after = 1 + draw(8);
    if (!job.known->rule.empty()) {
      job.asked.grammar = world_.compiler.compile({job.known->rule, true});
    }
    job.told = std::make_shared<Told>();
    if (job.stop_after > 0) {
      job.told->answer = [after = job.stop_after, answer = draw(2) ? Next::kStop : Next::kCancel](
                             uint32_t, std::size_t tokens) {
        return tokens >= after ? answer : Next::kContinue;
      };
    }
    job.number = engine.submit(job.asked, job.told);
    if (draw(2) && may_wait) {
      std::this_thread::sleep_for(std::chrono::microseconds(draw(2000)));
    }
  }

  void check(Job& job) {
    REQUIRE_MESSAGE(job.told->error == FRT_OK, job.told->message);
    for (uint32_t choice = 0; choice < job.asked.choices; ++choice) {
      const EngineResult& result = job.told->result(choice);
      const Alone& alone = job.known->alone[choice];
      const Tokens& tokens = job.told->tokens(choice);
      CAPTURE(result.prefix.reason);
      CAPTURE(finish_name(result.finish));
      CAPTURE(choice);
      CAPTURE(result.preemptions);
      CHECK(result.generated == tokens.size());
      const uint64_t most = std::min<uint64_t>(job.asked.max_new, alone.tokens.size());
      REQUIRE(tokens.size() <= most);
      CHECK(tokens == Tokens(alone.tokens.begin(), alone.tokens.begin() + tokens.size()));
      if (result.prefix.cold_path) {
        const auto& bits = alone.log_probabilities;
        CHECK(job.told->choices[choice].log_probabilities ==
              std::vector<float>(bits.begin(), bits.begin() + tokens.size()));
      }
      const bool ended_early = job.cancel || job.asked.deadline || job.stop_after > 0;
      if (!ended_early || result.finish == Finish::kLength) {
        // A grammar may let an answer end before its limit.
        const bool complete = !job.known->rule.empty() && result.finish == Finish::kStop;
        CHECK((complete || result.finish == Finish::kLength));
        CHECK(tokens.size() == most);
      }
    }
  }

  std::vector<frt::Capsule> take_pages(uint64_t pages) {
    std::vector<frt::Capsule> held;
    frt::host::StepRunner runner(world_.model);
    frt::host::Session session(world_.model, runner, nullptr, 0);
    for (uint32_t slot = 1; slot < 4; ++slot) runner.clear(slot);
    for (uint64_t taken = 0; taken < pages; taken += kSlotPages) {
      const uint64_t rows = kPageRows * std::min(kSlotPages, pages - taken);
      world_.model.reserve_rows(0, 0, rows, runner.stream());
      held.push_back(world_.model.capsules().snapshot(0, rows, FRT_SPACE_DEVICE, runner.stream()));
      session.clear();
    }
    runner.stream().sync();
    return held;
  }

  GrammarWorld world_;
  std::mt19937 random_{1};
  std::vector<Known> pool_, long_;
};

}  // namespace

TEST_CASE("in every schedule each request gives the tokens that it gives alone") {
  Schedules all("synthetic:qwen3.6-tiny");
  const std::size_t count = schedules();
  for (std::size_t seed = 1; seed <= count; ++seed) {
    CAPTURE(seed);
    all.run(seed);
  }
  // They were schedules in which something happened.
  if (count >= 100) {
    CHECK(all.preempted >= count / 10);  // a quarter are tight and submitted together
    CHECK(all.returned >= count / 20);
    CHECK(all.reused > 0);
    CHECK(all.restored > 0);
    CHECK(all.masked > 0);
    CHECK(all.forked > 0);
    CHECK(all.drafted > 0);
  }
  MESSAGE(count << " schedules, " << all.preempted << " with preemptions, " << all.preemptions
                << " of these, " << all.returned << " answers came back, " << all.reused
                << " tokens reused, " << all.restored << " requests on a capsule, " << all.masked
                << " with a grammar, " << all.forked << " with several choices");
}

TEST_CASE("in every schedule with drafts that are accepted, too") {
  Schedules all(FRT_FIXTURES_DIR "/demo");
  const std::size_t count = schedules() / 5;
  for (std::size_t seed = 1; seed <= count; ++seed) {
    CAPTURE(seed);
    all.run(seed);
  }
  if (count >= 20) {
    // How many depends on the machine's speed, too.
    CHECK(all.preempted > 0);
    CHECK(all.returned > 0);
    CHECK(all.accepted > 0);
    CHECK(all.accepted < all.drafted);
  }
  MESSAGE(count << " schedules, " << all.preempted << " with preemptions, " << all.accepted
                << " of " << all.drafted << " drafts accepted");
}
