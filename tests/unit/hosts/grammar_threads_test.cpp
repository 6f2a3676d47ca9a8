// SPDX-License-Identifier: Apache-2.0
// The threads that compile grammars: what they keep, share, drop and end; and matchers beside them.
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "grammar_world.hpp"
#include "lm/grammar/compiler.hpp"

namespace {

using namespace frt::test;
using frt::host::Grammar;
using frt::host::GrammarBackend;
using frt::host::GrammarBudget;
using frt::host::GrammarCompiler;
using frt::host::GrammarCompilerOptions;
using frt::host::GrammarMatcher;
using frt::host::GrammarPart;
using frt::host::GrammarSource;
using frt::host::GrammarTicket;

// Grammars whose size and time the source's text says: "bytes milliseconds".
class FakeGrammar final : public Grammar {
 public:
  explicit FakeGrammar(uint64_t bytes) : bytes_(bytes) {}
  std::unique_ptr<GrammarMatcher> matcher() const override { return nullptr; }
  uint64_t bytes() const override { return bytes_; }

 private:
  uint64_t bytes_;
};

class FakeBackend final : public GrammarBackend {
 public:
  explicit FakeBackend(std::atomic<int>& compiled) : compiled_(compiled) {}
  std::shared_ptr<const Grammar> compile(const GrammarSource& source, const GrammarBudget&,
                                         const std::function<bool()>& wanted) const override {
    ++compiled_;
    if (source.text == "bad") throw frt::Error(FRT_ERR_INVALID_ARGUMENT, "it is bad");
    while (source.text == "blocked" && wanted()) std::this_thread::yield();
    if (!wanted()) throw frt::Error(FRT_ERR_BAD_STATE, "nobody waits");
    return std::make_shared<FakeGrammar>(1000);
  }

 private:
  std::atomic<int>& compiled_;
};

struct FakeCompiler {
  explicit FakeCompiler(GrammarCompilerOptions options)
      : compiler(std::make_unique<FakeBackend>(compiled), options) {}
  std::atomic<int> compiled{0};
  GrammarCompiler compiler;

  frt_status compile(const std::string& text) {
    const auto ticket = compiler.compile({text, true});
    ticket->wait();
    return ticket->status();
  }
};

}  // namespace

TEST_CASE("a source is compiled once while it is kept, and what was used the longest ago goes") {
  FakeCompiler fake({.threads = 1, .cache_bytes = 3100});
  for (const char* text : {"a", "b", "c", "a"}) CHECK(fake.compile(text) == FRT_OK);
  CHECK(fake.compiled == 3);
  CHECK(fake.compile("d") == FRT_OK);  // b goes
  CHECK(fake.compile("a") == FRT_OK);
  CHECK(fake.compiled == 4);
  CHECK(fake.compile("b") == FRT_OK);
  CHECK(fake.compiled == 5);
  const auto stats = fake.compiler.stats();
  CHECK(stats.cached == 3);
  CHECK(stats.cached_bytes <= 3100);
  CHECK(stats.hits == 2);
  CHECK(stats.misses == 5);
  CHECK(stats.compile.count == 5);
}

TEST_CASE("a failure is told and not kept") {
  FakeCompiler fake({.threads = 1});
  for (int i = 0; i < 2; ++i) {
    const auto ticket = fake.compiler.compile({"bad", true});
    ticket->wait();
    CHECK(ticket->status() == FRT_ERR_INVALID_ARGUMENT);
    CHECK(ticket->message() == "it is bad");
    CHECK_FALSE(ticket->grammar());
  }
  CHECK(fake.compiled == 2);
  CHECK(fake.compiler.stats().failed == 2);
}

TEST_CASE("one that nobody waits for any more is ended, the queue is bounded, sources are shared") {
  FakeCompiler fake({.threads = 1, .queue_limit = 2});
  auto blocked = fake.compiler.compile({"blocked", true});
  while (fake.compiled == 0) std::this_thread::yield();
  const auto first = fake.compiler.compile({"x", true});
  CHECK(fake.compiler.compile({"x", true}) == first);
  CHECK(fake.compiler.compile({"x", false}) != first);
  frt_error error{};
  frt::guard(&error, [&] { fake.compiler.compile({"y", true}); });
  CHECK(error.code == FRT_ERR_NOT_READY);
  blocked.reset();
  first->wait();
  CHECK(first->status() == FRT_OK);
  CHECK(fake.compiler.stats().dropped >= 1);
}

TEST_CASE("a compiler that ends answers whoever waits") {
  std::shared_ptr<GrammarTicket> running, waiting;
  {
    FakeCompiler fake({.threads = 1});
    running = fake.compiler.compile({"blocked", true});
    while (fake.compiled == 0) std::this_thread::yield();
    waiting = fake.compiler.compile({"x", true});
  }
  for (const auto& ticket : {running, waiting}) {
    REQUIRE(ticket->over());
    CHECK(ticket->status() == FRT_ERR_BAD_STATE);
  }
}

TEST_CASE("many threads compile and match at once") {
  GrammarCompiler compiler(frt::host::make_grammar_backend(byte_vocabulary()), {.threads = 2});
  std::vector<std::thread> threads;
  std::atomic<int> matched{0};
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      for (int round = 0; round < 8; ++round) {
        const std::string digits = std::to_string((i + round) % 5 + 1);
        const auto ticket =
            compiler.compile(source_of(GrammarPart::regex("[0-9]{" + digits + "}")));
        ticket->wait();
        const auto matcher = ticket->grammar()->matcher();
        std::vector<uint32_t> mask(8);
        while (matcher->fill(mask)) matcher->accept('7');
        matched += matcher->complete();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(matched == 32);
}
