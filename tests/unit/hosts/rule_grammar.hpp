// SPDX-License-Identifier: Apache-2.0
// rule_grammar.hpp - a made-up grammar for engines: each token must leave the same remainder by 7
// as the sum of those before it and one, so that every mask depends on all that was sampled, and a
// token too many or too few, from whatever step, is seen. A loose one rules that remainder out.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <frt/error.hpp>
#include <memory>
#include <new>
#include <string>
#include <thread>

#include "engine_world.hpp"
#include "lm/grammar/compiler.hpp"

namespace frt::test {

constexpr int32_t kModulus = 7;

// Of a loose rule a token must not leave that remainder.
inline bool may_follow(int64_t sum, int64_t token, bool loose) {
  return (token % kModulus == sum % kModulus) != loose;
}

inline bool follows(const Tokens& tokens, bool loose = false) {
  int64_t sum = 1;
  for (const int32_t token : tokens) {
    if (!may_follow(sum, token, loose)) return false;
    sum += token;
  }
  return true;
}

// A text of `least` to `most` tokens.
struct Rule {
  uint64_t least = 0, most = 0;
  uint64_t fails_at = UINT64_MAX;  // no mask is to be had there
  bool no_memory = false;          // for any mask
  bool loose = false;
};

class RuleMatcher final : public host::GrammarMatcher {
 public:
  // Allocates nothing later, as XGrammar's, whose masks are the caller's.
  RuleMatcher(Rule rule, uint32_t vocabulary, const Tokens& taken = {})
      : rule_(rule), vocabulary_(vocabulary) {
    taken_.reserve(rule.most);
    for (const int32_t token : taken) accept(token);
  }
  bool fill(std::span<uint32_t> mask) override {
    if (taken_.size() == rule_.fails_at) throw frt::Error(FRT_ERR_INVALID_ARGUMENT, "stuck");
    if (rule_.no_memory) throw std::bad_alloc();
    std::fill(mask.begin(), mask.end(), 0);
    if (taken_.size() == rule_.most) return false;
    for (uint32_t id = 0; id < vocabulary_; ++id) {
      if (may_follow(sum_, id, rule_.loose)) mask[id / 32] |= 1U << (id % 32);
    }
    return true;
  }
  bool complete() const override { return taken_.size() >= rule_.least; }
  bool accept(int32_t token) override {
    if (taken_.size() == rule_.most || !may_follow(sum_, token, rule_.loose)) return false;
    taken_.push_back(token);
    sum_ += token;
    return true;
  }
  void rollback(uint32_t tokens) override {
    for (; tokens > 0; --tokens) {
      sum_ -= taken_.back();
      taken_.pop_back();
    }
  }
  std::unique_ptr<host::GrammarMatcher> fork() const override {
    return std::make_unique<RuleMatcher>(rule_, vocabulary_, taken_);
  }

 private:
  Rule rule_;
  uint32_t vocabulary_;
  Tokens taken_;
  int64_t sum_ = 1;
};

class RuleGrammar final : public host::Grammar {
 public:
  RuleGrammar(Rule rule, uint32_t vocabulary) : rule_(rule), vocabulary_(vocabulary) {}
  std::unique_ptr<host::GrammarMatcher> matcher() const override {
    return std::make_unique<RuleMatcher>(rule_, vocabulary_);
  }
  uint64_t bytes() const override { return 100; }

 private:
  Rule rule_;
  uint32_t vocabulary_;
};

// Sources: "LEAST MOST FAILS_AT MICROSECONDS LOOSE"; "bad" fails, "blocked" waits for `open`, "no
// memory" has none for a mask.
class RuleBackend final : public host::GrammarBackend {
 public:
  RuleBackend(uint32_t vocabulary, std::atomic<bool>& open)
      : vocabulary_(vocabulary), open_(open) {}
  std::shared_ptr<const host::Grammar> compile(const host::GrammarSource& source,
                                               const host::GrammarBudget&,
                                               const std::function<bool()>& wanted) const override {
    if (source.text == "bad") throw frt::Error(FRT_ERR_INVALID_ARGUMENT, "it is bad");
    Rule rule;
    if (source.text == "blocked") {
      while (!open_ && wanted()) std::this_thread::sleep_for(std::chrono::microseconds(100));
      rule = {4, 4};
    } else if (source.text == "no memory") {
      rule = {4, 4, UINT64_MAX, true, false};
    } else {
      char* at = nullptr;
      rule.least = std::strtoull(source.text.c_str(), &at, 10);
      rule.most = std::strtoull(at, &at, 10);
      rule.fails_at = std::strtoull(at, &at, 10);
      std::this_thread::sleep_for(std::chrono::microseconds(std::strtoull(at, &at, 10)));
      rule.loose = std::strtoull(at, nullptr, 10) != 0;
    }
    return std::make_shared<RuleGrammar>(rule, vocabulary_);
  }

 private:
  uint32_t vocabulary_;
  std::atomic<bool>& open_;
};

inline std::string rule_text(uint64_t least, uint64_t most, uint64_t microseconds = 0,
                             uint64_t fails_at = 1'000'000, bool loose = false) {
  return std::to_string(least) + " " + std::to_string(most) + " " + std::to_string(fails_at) + " " +
         std::to_string(microseconds) + (loose ? " 1" : " 0");
}

struct GrammarWorld : EngineWorld {
  explicit GrammarWorld(const std::string& options,
                        const std::string& checkpoint = "synthetic:qwen3.6-tiny")
      : EngineWorld(options, checkpoint) {}

  std::atomic<bool> open{false};
  host::GrammarCompiler compiler{std::make_unique<RuleBackend>(model.info().vocabulary, open),
                                 {.threads = 2}};

  host::EngineRequest following(Tokens prompt, uint64_t max_new, const std::string& rule) {
    host::EngineRequest request = asking(std::move(prompt), max_new);
    request.grammar = compiler.compile({rule, true});
    return request;
  }
  // What the request gives in an engine of its own, without drafts.
  std::shared_ptr<Told> in_an_engine(const host::EngineRequest& request) const {
    host::EngineOptions options = engine_options();
    options.session.speculation = host::Drafting::kOff;
    host::Engine engine(model, nullptr, options);
    const auto told = submit(engine, request);
    told->wait(request.choices);
    return told;
  }
};

}  // namespace frt::test
