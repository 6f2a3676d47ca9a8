// SPDX-License-Identifier: Apache-2.0
// told.hpp - requests for an engine, and a listener that writes down what it is told.
#pragma once

#include <doctest/doctest.h>
#include <frt/error.hpp>

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lm/engine/engine.hpp"

namespace frt::test {

using Tokens = std::vector<int32_t>;

inline Tokens some_tokens(int32_t count, int32_t seed) {
  Tokens ids;
  for (int32_t i = 0; i < count; ++i) ids.push_back((i * i * 31 + i * 7 + seed * 101) % 512);
  return ids;
}

// first, first + 1 ...
inline Tokens counting(int32_t first, int32_t count) {
  Tokens ids;
  for (int32_t i = 0; i < count; ++i) ids.push_back(first + i);
  return ids;
}

// With what `work` throws; FRT_OK if it does not.
inline frt_status status_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    return error.status();
  }
  return FRT_OK;
}

inline Tokens joined(Tokens first, const Tokens& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

// What one request was told.
class Told : public host::EngineListener {
 public:
  struct Choice {
    Tokens tokens;
    std::vector<float> log_probabilities;
    std::vector<std::vector<host::TokenProbability>> top;  // of each token, if asked for
    std::optional<host::EngineResult> result;
  };
  // Asked for each token, on the engine's thread.
  std::function<host::Next(uint32_t choice, std::size_t tokens)> answer;
  std::function<void()> started;

  void on_start(const host::PrefixDecision& decision, double) override {
    {
      const std::lock_guard lock(mutex_);
      prefix = decision;
    }
    if (started) started();
  }
  void on_prefill(uint64_t done, uint64_t total) override {
    const std::lock_guard lock(mutex_);
    progress.emplace_back(done, total);
  }
  void on_prompt_token(uint64_t place, float log_probability,
                       std::span<const host::TokenProbability> top) override {
    const std::lock_guard lock(mutex_);
    CHECK(place == prompt_scores.size() + 1);
    CHECK(choices.empty());
    prompt_scores.push_back(log_probability);
    prompt_top.emplace_back(top.begin(), top.end());
  }
  void on_top_tokens(uint32_t choice, std::span<const host::TokenProbability> top) override {
    const std::lock_guard lock(mutex_);
    choices[choice].top.emplace_back(top.begin(), top.end());
  }
  host::Next on_token(uint32_t choice, int32_t id, float log_probability) override {
    std::size_t count = 0;
    {
      const std::lock_guard lock(mutex_);
      Choice& told = choices[choice];
      CHECK_FALSE(told.result);
      told.tokens.push_back(id);
      told.log_probabilities.push_back(log_probability);
      count = told.tokens.size();
      changed_.notify_all();
    }
    return answer ? answer(choice, count) : host::Next::kContinue;
  }
  void on_finish(uint32_t choice, const host::EngineResult& result) override {
    const std::lock_guard lock(mutex_);
    CHECK_FALSE(choices[choice].result);
    CHECK(error == FRT_OK);
    choices[choice].result = result;
    ++finished_;
    changed_.notify_all();
  }
  void on_error(frt_status status, const std::string& text) override {
    const std::lock_guard lock(mutex_);
    CHECK(error == FRT_OK);
    error = status;
    message = text;
    changed_.notify_all();
  }

  // Until `count` choices are over, or an error came.
  void wait(std::size_t count = 1) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return finished_ >= count || error != FRT_OK; });
  }
  void wait_for_tokens(std::size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] {
      return choices[0].tokens.size() >= count || finished_ > 0 || error != FRT_OK;
    });
  }
  const host::EngineResult& result(uint32_t choice = 0) { return *choices[choice].result; }
  const Tokens& tokens(uint32_t choice = 0) { return choices[choice].tokens; }

  host::PrefixDecision prefix;
  std::vector<std::pair<uint64_t, uint64_t>> progress;
  std::map<uint32_t, Choice> choices;
  std::vector<float> prompt_scores;  // of the prompt's tokens behind the first
  std::vector<std::vector<host::TokenProbability>> prompt_top;
  frt_status error = FRT_OK;
  std::string message;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t finished_ = 0;
};

// Greedy, with penalties: what the slot counts matters, too.
inline host::EngineRequest asking(Tokens prompt, uint64_t max_new) {
  host::EngineRequest request;
  request.prompt = std::move(prompt);
  request.max_new = max_new;
  request.sampling.top_p = 1;
  request.sampling.repetition_penalty = 1.1f;
  request.sampling.presence_penalty = 1.5f;
  request.sampling.frequency_penalty = 0.25f;
  return request;
}

inline std::shared_ptr<Told> submit(host::Engine& engine, host::EngineRequest request,
                                    uint64_t* number = nullptr) {
  auto told = std::make_shared<Told>();
  const uint64_t made = engine.submit(std::move(request), told);
  if (number) *number = made;
  return told;
}

}  // namespace frt::test
