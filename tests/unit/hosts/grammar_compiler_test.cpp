// SPDX-License-Identifier: Apache-2.0
// Whose grammar is compiled next.
#include "lm/grammar/compiler.hpp"

#include <doctest/doctest.h>

#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace frt::host {
namespace {

using Names = std::vector<std::string>;

class NoGrammar final : public Grammar {
 public:
  std::unique_ptr<GrammarMatcher> matcher() const override { return nullptr; }
  uint64_t bytes() const override { return 100; }
};

// What is compiled, in order. The first one waits for go().
struct Compiled {
  void go() { release.set_value(); }

  std::promise<void> begun, release;
  std::mutex mutex;
  Names order;
};

class NotingBackend final : public GrammarBackend {
 public:
  explicit NotingBackend(Compiled& compiled) : compiled_(compiled) {}
  std::shared_ptr<const Grammar> compile(const GrammarSource& source, const GrammarBudget&,
                                         const std::function<bool()>&) const override {
    if (source.text == "first") {
      compiled_.begun.set_value();
      compiled_.release.get_future().wait();
    }
    const std::lock_guard lock(compiled_.mutex);
    compiled_.order.push_back(source.text);
    return std::make_shared<NoGrammar>();
  }

 private:
  Compiled& compiled_;
};

}  // namespace

TEST_CASE("owners take turns at the compiler, and each one's grammars come in their order") {
  Compiled compiled;
  GrammarCompiler compiler(std::make_unique<NotingBackend>(compiled), {.threads = 1});
  std::vector<std::shared_ptr<GrammarTicket>> tickets;
  const auto ask = [&](const std::string& owner, const std::string& text) {
    tickets.push_back(compiler.compile({text, true}, owner));
  };
  ask("many", "first");
  compiled.begun.get_future().wait();
  for (const char* text : {"many 1", "many 2", "many 3"}) ask("many", text);
  for (const char* text : {"one 1", "one 2"}) ask("one", text);
  ask("", "nobody 1");
  compiled.go();
  for (const auto& ticket : tickets) ticket->wait();
  CHECK(compiled.order ==
        Names{"first", "one 1", "nobody 1", "many 1", "one 2", "many 2", "many 3"});
  CHECK(compiler.stats().waiting == 0);
}

}  // namespace frt::host
