// SPDX-License-Identifier: Apache-2.0
// The engine's thread writes down what it tells, and the waiting thread reads it: a reader that is
// slow, such as a pipe, holds up no step. The listener refers to the caller's reader, so the caller
// waits for the request's end whatever happens.
#include "lm/engine/generate.hpp"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

namespace frt::host {
namespace {

constexpr std::chrono::milliseconds kPoll{20};

class Waiter final : public EngineListener {
 public:
  struct News {
    std::vector<int32_t> tokens;
    std::optional<std::pair<uint64_t, uint64_t>> progress;
    bool over = false;
  };

  Waiter(const GenerationReader& reader, uint64_t expected) : reader_(reader) {
    result_.tokens.reserve(expected);
    result_.log_probabilities.reserve(expected);
  }

  // ---- the engine's thread ----
  void on_start(const PrefixDecision&, double) override {}
  void on_prefill(uint64_t done, uint64_t total) override {
    const std::lock_guard lock(mutex_);
    progress_ = {done, total};
    changed_.notify_one();
  }
  Next on_token(uint32_t, int32_t id, float log_probability) override {
    try {
      const Next next = reader_.ends ? reader_.ends(id, log_probability) : Next::kContinue;
      const std::lock_guard lock(mutex_);
      result_.tokens.push_back(id);
      result_.log_probabilities.push_back(log_probability);
      changed_.notify_one();
      return next;
    } catch (...) {
      const std::lock_guard lock(mutex_);
      failure_ = std::current_exception();
      return Next::kCancel;
    }
  }
  void on_finish(uint32_t, const EngineResult& result) override {
    const std::lock_guard lock(mutex_);
    static_cast<EngineResult&>(result_) = result;
    over_ = true;
    changed_.notify_one();
  }
  void on_error(frt_status status, const std::string& message) override {
    const std::lock_guard lock(mutex_);
    failure_ = std::make_exception_ptr(Error(status, message));
    over_ = true;
    changed_.notify_one();
  }

  // ---- the waiting thread ----
  // What is new, or nothing after kPoll.
  void wait(News& news) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kPoll,
                      [&] { return over_ || progress_ || result_.tokens.size() > taken_; });
    news.tokens.assign(result_.tokens.begin() + static_cast<std::ptrdiff_t>(taken_),
                       result_.tokens.end());
    taken_ = result_.tokens.size();
    news.progress = std::exchange(progress_, std::nullopt);
    news.over = over_;
  }
  void wait_for_end() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return over_; });
  }
  GenerationResult take() {
    if (failure_) std::rethrow_exception(failure_);
    return std::move(result_);
  }

 private:
  const GenerationReader& reader_;
  std::mutex mutex_;
  std::condition_variable changed_;
  GenerationResult result_;
  std::size_t taken_ = 0;  // tokens
  std::optional<std::pair<uint64_t, uint64_t>> progress_;
  std::exception_ptr failure_;
  bool over_ = false;
};

}  // namespace

GenerationResult generate(Engine& engine, EngineRequest request, const GenerationReader& reader) {
  const auto waiter = std::make_shared<Waiter>(reader, std::min<uint64_t>(request.max_new, 4096));
  const uint64_t number = engine.submit(std::move(request), waiter);
  try {
    bool unwanted = false, cancelled = false;
    for (Waiter::News news; !news.over;) {
      waiter->wait(news);
      if (news.progress && reader.on_prefill) {
        reader.on_prefill(news.progress->first, news.progress->second);
      }
      for (const int32_t id : news.tokens) {
        unwanted = unwanted || (reader.on_token && !reader.on_token(id));
      }
      cancelled = cancelled || unwanted || (reader.cancelled && reader.cancelled());
      if (cancelled) engine.cancel(number);
    }
  } catch (...) {
    engine.cancel(number);
    waiter->wait_for_end();
    throw;
  }
  return waiter->take();
}

}  // namespace frt::host
