// SPDX-License-Identifier: Apache-2.0
// Memory that runs out on the threads that work beside an engine's. An exception there would end
// the process.
#include <doctest/doctest.h>

#include <atomic>
#include <frt/error.hpp>
#include <memory>
#include <string>

#include "lm/capsules/background_worker.hpp"
#include "lm/grammar/compiler.hpp"
#include "memory_shortage.hpp"

namespace frt::test {
namespace {

class EmptyGrammar final : public host::Grammar {
 public:
  std::unique_ptr<host::GrammarMatcher> matcher() const override { return nullptr; }
  uint64_t bytes() const override { return 100; }
};

class SmallBackend final : public host::GrammarBackend {
 public:
  std::shared_ptr<const host::Grammar> compile(const host::GrammarSource& source,
                                               const host::GrammarBudget&,
                                               const std::function<bool()>&) const override {
    const std::string copy = source.text;
    return std::make_shared<EmptyGrammar>();
  }
};

}  // namespace

TEST_CASE("memory that runs out under a compiler of grammars ends one compilation") {
  const host::GrammarSource source{std::string(100, 'x'), true};
  int refused = 0, failed = 0;
  for (int64_t allocations = 0; allocations < 40; ++allocations) {
    CAPTURE(allocations);
    auto backend = std::make_unique<SmallBackend>();
    std::unique_ptr<host::GrammarCompiler> compiler;
    std::shared_ptr<host::GrammarTicket> ticket;
    allocations_left = allocations;
    const frt_status status = guard(nullptr, [&] {
      compiler = std::make_unique<host::GrammarCompiler>(std::move(backend),
                                                         host::GrammarCompilerOptions{});
      ticket = compiler->compile(source);
    });
    if (ticket) ticket->wait();
    allocations_left = kPlenty;
    if (!ticket) {
      REQUIRE(status == FRT_ERR_OUT_OF_MEMORY);
      ++refused;
    } else if (ticket->status() != FRT_OK) {
      REQUIRE(ticket->status() == FRT_ERR_OUT_OF_MEMORY);
      ++failed;
    }
    if (!compiler) continue;
    const auto again = compiler->compile(source);  // a failure is not kept
    again->wait();
    CHECK(again->status() == FRT_OK);
  }
  CHECK(refused > 3);
  CHECK(failed > 1);
}

TEST_CASE("jobs in the background are over, and told so, without memory") {
  host::BackgroundWorker worker;
  std::atomic<bool> go{false};
  int failures = 0;
  worker.post(
      "first", [&] { go.wait(false); }, nullptr);
  for (int i = 0; i < 20; ++i) {
    worker.post(
        "other", [] { const std::string text(100, 'x'); },
        [&](const std::exception_ptr& failure) { failures += failure != nullptr; });
  }
  allocations_left = 0;
  go = true;
  go.notify_all();
  worker.wait_all();
  allocations_left = kPlenty;
  CHECK(failures == 20);
}

}  // namespace frt::test
