// SPDX-License-Identifier: Apache-2.0
// XGrammar, with bounds on its work (tools/lib/xgrammar-work.patch): while it works on a thread, a
// meter there counts. Out of memory units it throws; out of time units, every millisecond or so, it
// asks whether the time is over. What it logs as a warning is something that it leaves out
// of a grammar.
//
// A matcher has a credit of time units, for some grammars make a mask cost milliseconds and the
// engine's thread serves everybody: what a step takes is taken from it, and each token gives some
// back. Units and not seconds, so that what a grammar may do does not depend on what else runs.
//
// Nothing of XGrammar's own caches is used: they know no bounds that depend on whom they serve.
#include <dlpack/dlpack.h>
#include <time.h>
#include <xgrammar/work.h>
#include <xgrammar/xgrammar.h>

#include <algorithm>
#include <frt/error.hpp>
#include <mutex>
#include <optional>
#include <span>
#include <stdexcept>
#include <type_traits>
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

constexpr int64_t kTimeUnits = 1 << 16;  // until the time is looked at; some 5 to 20 ns each
constexpr uint64_t kBytesOfItem = 16;
// Recursions of XGrammar; its frames are large, and a thread's stack has 8 MiB.
constexpr int kDeepest = 1000;
// Of a matcher: time units that a step may take at once, those that a token gives back, and bytes.
constexpr int64_t kCredit = 20'000'000, kCreditOfToken = 400'000;
constexpr uint64_t kMatcherBytes = uint64_t{64} << 20;

struct OutOfTime : std::runtime_error {
  using std::runtime_error::runtime_error;
};
struct Unwanted : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Bounds what XGrammar does on this thread while it lives.
class Meter : public xgrammar::WorkMeter {
 public:
  Meter(uint64_t most_bytes, int64_t units, void (*out)(WorkMeter*))
      : WorkMeter{units, static_cast<int64_t>(most_bytes / kBytesOfItem), out},
        outer_(std::exchange(xgrammar::work_meter, this)) {}
  ~Meter() { xgrammar::work_meter = outer_; }
  Meter(const Meter&) = delete;
  Meter& operator=(const Meter&) = delete;

 private:
  WorkMeter* outer_;
};

double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

// Of a compilation.
class CompileMeter final : public Meter {
 public:
  CompileMeter(const GrammarBudget& budget, const std::function<bool()>& wanted)
      : Meter(budget.bytes, kTimeUnits, look),
        end_(cpu_seconds() + budget.seconds),
        wanted_(wanted) {}

 private:
  static void look(WorkMeter* meter) {
    auto& self = *static_cast<CompileMeter*>(meter);
    if (cpu_seconds() > self.end_) throw OutOfTime("it takes too long");
    if (!self.wanted_()) throw Unwanted("nobody waits for it");
    self.time = kTimeUnits;
  }

  double end_;
  const std::function<bool()>& wanted_;
};

// Of a step of a matcher, which pays for it.
class StepMeter final : public Meter {
 public:
  explicit StepMeter(int64_t& credit) : Meter(kMatcherBytes, credit, end), credit_(credit) {}
  ~StepMeter() { credit_ = std::max<int64_t>(time, 0); }

 private:
  static void end(WorkMeter*) { throw OutOfTime("finding out what may come next takes too long"); }

  int64_t& credit_;
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
  Matcher(xgrammar::GrammarMatcher matcher, int32_t vocabulary, int64_t credit)
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
    credit_ = std::min(credit_ + kCreditOfToken, kCredit);
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
  std::invoke_result_t<Work> metered(const Work& work) {
    const StepMeter meter(credit_);
    return translated(kStuck, work);
  }

  mutable xgrammar::GrammarMatcher matcher_;
  int32_t vocabulary_;
  int64_t credit_;
};

class Compiled final : public Grammar {
 public:
  Compiled(xgrammar::CompiledGrammar compiled, int32_t vocabulary)
      : compiled_(std::move(compiled)),
        vocabulary_(vocabulary),
        bytes_(compiled_.MemorySizeBytes()) {}

  std::unique_ptr<GrammarMatcher> matcher() const override {
    int64_t credit = kCredit;
    const StepMeter meter(credit);
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
    std::string warning;
    struct Warnings {
      explicit Warnings(std::string* place) { xgrammar::first_warning = place; }
      ~Warnings() { xgrammar::first_warning = nullptr; }
    } const warnings(&warning);
    try {
      const CompileMeter meter(budget, wanted);
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
        throw Error(FRT_ERR_INVALID_ARGUMENT, "the grammar cannot be enforced: " + warning);
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
