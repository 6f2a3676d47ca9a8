// SPDX-License-Identifier: Apache-2.0
// XGrammar, with bounds on its work (tools/lib/xgrammar-work.patch): while it works on a thread, a
// meter there counts. Out of memory units it throws; out of time units it asks, every few hundred
// microseconds, whether the time is over. What it logs as a warning is something that it leaves out
// of a grammar.
//
// A matcher has a credit of time, for some grammars make a mask cost milliseconds and the engine's
// thread serves everybody: what a step takes is taken from it, and each token gives some back.
//
// Nothing of XGrammar's own caches is used: they know no bounds that depend on whom they serve.
#include <dlpack/dlpack.h>
#include <xgrammar/work.h>
#include <xgrammar/xgrammar.h>

#include <algorithm>
#include <frt/error.hpp>
#include <mutex>
#include <optional>
#include <span>
#include <stdexcept>
#include <utility>

#include "lm/grammar/backend.hpp"

namespace xgrammar {

namespace {
thread_local std::string* first_warning = nullptr;
}

[[noreturn]] void LogFatalImpl(const std::string&, int, const std::string& message);
void LogMessageImpl(const std::string&, int, int level, const std::string& message);

void LogFatalImpl(const std::string&, int, const std::string& message) {
  throw std::runtime_error(message);
}

void LogMessageImpl(const std::string&, int, int level, const std::string& message) {
  constexpr int kWarning = 2;
  if (level == kWarning && first_warning && first_warning->empty()) *first_warning = message;
}

}  // namespace xgrammar

namespace frt::host {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kTimeUnits = 1 << 16;  // until the time is looked at
constexpr uint64_t kBytesOfItem = 16;
// Recursions of XGrammar; its frames are large, and a thread's stack has 8 MiB.
constexpr int kDeepest = 1000;
// Of a matcher: what a mask may take at once, and on average.
constexpr std::chrono::microseconds kCredit{100'000}, kCreditOfToken{1000};

struct OutOfTime : std::runtime_error {
  using std::runtime_error::runtime_error;
};
struct Unwanted : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Bounds what XGrammar does on this thread while it lives.
class Meter : public xgrammar::WorkMeter {
 public:
  Meter(uint64_t bytes, Clock::duration time, const std::function<bool()>* wanted = nullptr)
      : WorkMeter{kTimeUnits, static_cast<int64_t>(bytes / kBytesOfItem), look},
        end_(Clock::now() + time),
        wanted_(wanted),
        outer_(std::exchange(xgrammar::work_meter, this)) {}
  ~Meter() { xgrammar::work_meter = outer_; }
  Meter(const Meter&) = delete;
  Meter& operator=(const Meter&) = delete;

 private:
  static void look(WorkMeter* meter) {
    auto& self = *static_cast<Meter*>(meter);
    if (Clock::now() > self.end_) throw OutOfTime("it takes too long");
    if (self.wanted_ && !(*self.wanted_)()) throw Unwanted("nobody waits for it");
    self.time = kTimeUnits;
  }

  Clock::time_point end_;
  const std::function<bool()>* wanted_;
  WorkMeter* outer_;
};

// XGrammar's errors are texts.
template <class Work>
auto translated(const char* what, const Work& work) {
  try {
    return work();
  } catch (const Error&) {
    throw;
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& error) {
    std::string text = error.what();
    while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
    throw Error(FRT_ERR_INVALID_ARGUMENT, std::string(what) + ": " + text);
  }
}

constexpr const char* kStuck = "the grammar cannot be followed";

class Matcher final : public GrammarMatcher {
 public:
  Matcher(xgrammar::GrammarMatcher matcher, int32_t vocabulary, Clock::duration credit)
      : matcher_(std::move(matcher)), vocabulary_(vocabulary), credit_(credit) {}

  bool fill(std::span<uint32_t> mask) override {
    const auto words = static_cast<std::size_t>((vocabulary_ + 31) / 32);
    if (mask.size() < words) {
      throw Error(FRT_ERR_INVALID_ARGUMENT, "a mask has " + std::to_string(mask.size()) +
                                                " words, the vocabulary needs " +
                                                std::to_string(words));
    }
    std::fill(mask.begin() + static_cast<std::ptrdiff_t>(words), mask.end(), 0);
    int64_t shape = static_cast<int64_t>(words);
    DLTensor tensor{.data = mask.data(),
                    .device = {kDLCPU, 0},
                    .ndim = 1,
                    .dtype = xgrammar::GetBitmaskDLType(),
                    .shape = &shape,
                    .strides = nullptr,
                    .byte_offset = 0};
    metered([&] { matcher_.FillNextTokenBitmask(&tensor); });
    if (vocabulary_ % 32 != 0) mask[words - 1] &= (1U << (vocabulary_ % 32)) - 1;
    if (std::ranges::any_of(mask, [](uint32_t word) { return word != 0; })) return true;
    if (complete()) return false;
    throw Error(FRT_ERR_INVALID_ARGUMENT,
                std::string(kStuck) + ": no token of the vocabulary leads on");
  }
  bool complete() const override { return matcher_.IsCompleted(); }
  bool accept(int32_t token) override {
    credit_ = std::min<Clock::duration>(credit_ + kCreditOfToken, kCredit);
    return metered([&] { return matcher_.AcceptToken(token); });
  }
  void rollback(uint32_t tokens) override {
    metered([&] { matcher_.Rollback(static_cast<int>(tokens)); });
  }
  std::unique_ptr<GrammarMatcher> fork() const override {
    return std::make_unique<Matcher>(matcher_.Fork(), vocabulary_, credit_);
  }

 private:
  template <class Work>
  auto metered(const Work& work) {
    const Meter meter(uint64_t{64} << 20, credit_);
    const auto begin = Clock::now();
    struct Pay {
      Clock::duration& credit;
      Clock::time_point begin;
      ~Pay() { credit = std::max(credit - (Clock::now() - begin), Clock::duration::zero()); }
    } const pay{credit_, begin};
    return translated(kStuck, work);
  }

  mutable xgrammar::GrammarMatcher matcher_;
  int32_t vocabulary_;
  Clock::duration credit_;
};

class Compiled final : public Grammar {
 public:
  Compiled(xgrammar::CompiledGrammar compiled, int32_t vocabulary)
      : compiled_(std::move(compiled)),
        vocabulary_(vocabulary),
        bytes_(compiled_.MemorySizeBytes()) {}

  std::unique_ptr<GrammarMatcher> matcher() const override {
    const Meter meter(uint64_t{64} << 20, kCredit);
    return translated(kStuck, [&] {
      // Where a text may end is asked for, and the host adds the tokens that end it.
      return std::make_unique<Matcher>(
          xgrammar::GrammarMatcher(compiled_, std::nullopt, /*terminate_without_stop_token=*/true),
          vocabulary_, kCredit);
    });
  }
  uint64_t bytes() const override { return bytes_; }

 private:
  xgrammar::CompiledGrammar compiled_;
  int32_t vocabulary_;
  uint64_t bytes_;
};

class Backend final : public GrammarBackend {
 public:
  explicit Backend(std::vector<std::string> tokens)
      : vocabulary_(static_cast<int32_t>(tokens.size())),
        tokens_(tokens, xgrammar::VocabType::RAW, vocabulary_, std::vector<int32_t>()) {
    static std::once_flag once;
    std::call_once(once, [] { xgrammar::SetMaxRecursionDepth(kDeepest); });
  }

  std::shared_ptr<const Grammar> compile(const GrammarSource& source, const GrammarBudget& budget,
                                         const std::function<bool()>& wanted) const override {
    const auto time =
        std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(budget.seconds));
    std::string warning;
    struct Warnings {
      explicit Warnings(std::string* place) { xgrammar::first_warning = place; }
      ~Warnings() { xgrammar::first_warning = nullptr; }
    } const warnings(&warning);
    try {
      const Meter meter(budget.bytes, time, &wanted);
      auto compiled = translated("the grammar cannot be compiled", [&] {
        try {
          xgrammar::GrammarCompiler compiler(tokens_, 1, /*cache_enabled=*/false);
          return compiler.CompileStructuralTag(source.text);
        } catch (const OutOfTime&) {
          throw Error(FRT_ERR_INVALID_ARGUMENT,
                      "the grammar takes more than " +
                          std::to_string(static_cast<int>(budget.seconds * 1e3)) +
                          " ms to compile: give smaller bounds, fewer choices or simpler patterns");
        } catch (const Unwanted& error) {
          throw Error(FRT_ERR_BAD_STATE, error.what());
        }
      });
      if (source.strict && !warning.empty()) {
        throw Error(FRT_ERR_INVALID_ARGUMENT, "the grammar cannot be held to: " + warning);
      }
      return std::make_shared<Compiled>(std::move(compiled), vocabulary_);
    } catch (const std::bad_alloc&) {
      throw Error(FRT_ERR_OUT_OF_MEMORY, "there is no memory to compile a grammar");
    }
  }

 private:
  int32_t vocabulary_;
  xgrammar::TokenizerInfo tokens_;
};

}  // namespace

bool has_grammar_backend() noexcept {
  return true;
}

void require_grammar_backend() {}

std::unique_ptr<GrammarBackend> make_grammar_backend(std::vector<std::string> tokens) {
  return std::make_unique<Backend>(std::move(tokens));
}

}  // namespace frt::host
