// SPDX-License-Identifier: Apache-2.0
#include "bench/engine_bench.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <numeric>
#include <random>

#include "bench/lm_bench.hpp"

namespace frt::host {
namespace {

using Clock = EngineRequest::Clock;
constexpr std::chrono::milliseconds kAskCancelled{50};
constexpr double kLongestGap = 1e6;  // seconds between two arrivals, which a clock can add

double seconds_between(Clock::time_point start, Clock::time_point end) {
  return std::chrono::duration<double>(end - start).count();
}

// How many requests are not over.
class Gate {
 public:
  void enter() {
    const std::lock_guard lock(mutex_);
    ++inside_;
  }
  void leave() {
    const std::lock_guard lock(mutex_);
    --inside_;
    changed_.notify_all();
  }
  // True: fewer than `limit` are inside. False: not until `until`.
  bool wait_below(uint64_t limit, Clock::time_point until) {
    std::unique_lock lock(mutex_);
    return changed_.wait_until(lock, until, [&] { return inside_ < limit; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t inside_ = 0;
};

// Written by the engine's thread until it leaves the gate.
class Timed final : public EngineListener {
 public:
  explicit Timed(Gate& gate) : gate_(gate) {}

  void on_start(const PrefixDecision&, double) override {}
  void on_prefill(uint64_t, uint64_t) override {}
  Next on_token(uint32_t, int32_t, float) override {
    times.push_back(Clock::now());
    return Next::kContinue;
  }
  void on_finish(uint32_t, const EngineResult&) override { gate_.leave(); }
  void on_error(frt_status, const std::string& message) override {
    error = message;
    gate_.leave();
  }

  uint64_t prompt_tokens = 0;
  Clock::time_point sent{};
  std::vector<Clock::time_point> times;  // of tokens
  std::string error;

 private:
  Gate& gate_;
};

class Draw {
 public:
  Draw(uint64_t seed, uint32_t vocabulary) : random_(seed), vocabulary_(vocabulary) {}
  uint64_t length(uint64_t mean, double ratio) {
    const auto spread = static_cast<uint64_t>(static_cast<double>(mean) * ratio);
    return std::max<uint64_t>(1, mean - spread + (spread > 0 ? random_() % (2 * spread + 1) : 0));
  }
  std::vector<int32_t> tokens(uint64_t count) {
    std::vector<int32_t> ids(count);
    for (int32_t& id : ids) id = static_cast<int32_t>(random_() % vocabulary_);
    return ids;
  }
  uint64_t below(uint64_t count) { return random_() % count; }
  double gap(double rate) {  // seconds between two arrivals
    const double uniform = (static_cast<double>(random_() >> 11) + 1) * 0x1p-53;
    return -std::log(uniform) / rate;
  }

 private:
  std::mt19937_64 random_;
  uint32_t vocabulary_;
};

void check_load(const LmModel& model, const EngineLoad& load) {
  const auto most = [&](uint64_t mean) {
    return static_cast<uint64_t>(static_cast<double>(mean) * (1 + load.range_ratio));
  };
  const uint64_t longest = load.prefix_len + most(load.input_len) + most(load.output_len);
  if (longest > model.info().max_context) {
    throw Error(FRT_ERR_OUT_OF_RANGE, "a request may need " + std::to_string(longest) +
                                          " tokens, the context of model '" + model.name() +
                                          "' has room for " +
                                          std::to_string(model.info().max_context) +
                                          "; give smaller lengths or raise its option max_context");
  }
}

nlohmann::ordered_json& add_times(nlohmann::ordered_json& json, const std::string& name,
                                  const std::vector<double>& seconds) {
  double mean = 0, deviation = 0;
  if (!seconds.empty()) {
    const auto count = static_cast<double>(seconds.size());
    mean = std::accumulate(seconds.begin(), seconds.end(), 0.0) / count;
    for (const double value : seconds) deviation += (value - mean) * (value - mean);
    deviation = std::sqrt(deviation / count);
  }
  const auto ms = [&](double q) { return seconds.empty() ? 0 : quantile(seconds, q) * 1e3; };
  json["mean_" + name + "_ms"] = mean * 1e3;
  json["median_" + name + "_ms"] = ms(0.5);
  json["std_" + name + "_ms"] = deviation * 1e3;
  json["p50_" + name + "_ms"] = ms(0.5);
  json["p90_" + name + "_ms"] = ms(0.9);
  json["p99_" + name + "_ms"] = ms(0.99);
  return json;
}

}  // namespace

EngineBenchResult bench_engine(Engine& engine, const LmModel& model, const EngineLoad& load,
                               const std::function<bool()>& cancelled) {
  check_load(model, load);
  Draw draw(load.seed, model.info().vocabulary);
  std::vector<std::vector<int32_t>> prefixes;
  for (uint32_t i = 0; i < load.prefixes; ++i) prefixes.push_back(draw.tokens(load.prefix_len));
  std::vector<EngineRequest> requests(load.requests);
  EngineBenchResult result;
  result.load = load;
  for (EngineRequest& request : requests) {
    request.prompt = prefixes[draw.below(prefixes.size())];
    const auto rest = draw.tokens(draw.length(load.input_len, load.range_ratio));
    request.prompt.insert(request.prompt.end(), rest.begin(), rest.end());
    request.max_new = draw.length(load.output_len, load.range_ratio);
    request.sampling.top_p = 1;
    request.sampling.repetition_penalty = 1;
    request.keep = request.reuse = load.prefix_len > 0;
  }

  Gate gate;
  std::vector<uint64_t> numbers;
  std::vector<std::shared_ptr<Timed>> timed;
  // Until there is room; the load is ended when somebody asks for it.
  const auto wait_below = [&](uint64_t limit) {
    for (;;) {
      const bool room = gate.wait_below(limit, Clock::now() + kAskCancelled);
      if (!cancelled()) {
        if (room) return;
        continue;
      }
      for (const uint64_t number : numbers) engine.cancel(number);
      while (!gate.wait_below(1, Clock::now() + kAskCancelled)) continue;
      throw Error(FRT_ERR_CANCELLED, "stopped on request");
    }
  };
  const auto start = Clock::now();
  auto arrival = start;
  for (EngineRequest& request : requests) {
    if (load.request_rate > 0) {
      arrival += std::chrono::duration_cast<Clock::duration>(
          std::chrono::duration<double>(std::min(draw.gap(load.request_rate), kLongestGap)));
      while (Clock::now() < arrival) {
        gate.wait_below(0, std::min(arrival, Clock::now() + kAskCancelled));
        if (cancelled()) wait_below(0);
      }
    }
    wait_below(load.max_concurrency > 0 ? load.max_concurrency : UINT64_MAX);
    timed.push_back(std::make_shared<Timed>(gate));
    timed.back()->times.reserve(request.max_new);
    timed.back()->prompt_tokens = request.prompt.size();
    gate.enter();
    timed.back()->sent = Clock::now();
    try {
      numbers.push_back(engine.submit(std::move(request), timed.back()));
    } catch (...) {
      gate.leave();
      for (const uint64_t number : numbers) engine.cancel(number);
      while (!gate.wait_below(1, Clock::now() + kAskCancelled)) continue;
      throw;
    }
  }
  wait_below(1);
  result.duration = seconds_between(start, Clock::now());
  for (const auto& one : timed) {
    const auto& times = one->times;
    if (!one->error.empty() || times.empty()) {
      ++result.failed;
      if (result.first_error.empty()) result.first_error = one->error;
      continue;
    }
    ++result.completed;
    result.total_input_tokens += one->prompt_tokens;
    result.total_output_tokens += times.size();
    result.ttft.push_back(seconds_between(one->sent, times.front()));
    result.e2el.push_back(seconds_between(one->sent, times.back()));
    for (std::size_t i = 1; i < times.size(); ++i) {
      result.itl.push_back(seconds_between(times[i - 1], times[i]));
    }
    if (times.size() > 1) {
      result.tpot.push_back(seconds_between(times.front(), times.back()) /
                            static_cast<double>(times.size() - 1));
    }
  }
  result.stats = engine.stats();
  return result;
}

nlohmann::ordered_json engine_bench_json(const EngineBenchResult& result) {
  const EngineLoad& load = result.load;
  const auto rate = [&](uint64_t count) {
    return result.duration > 0 ? static_cast<double>(count) / result.duration : 0;
  };
  nlohmann::ordered_json json = {
      {"num_prompts", load.requests},
      {"request_rate",
       load.request_rate > 0 ? nlohmann::json(load.request_rate) : nlohmann::json("inf")},
      {"max_concurrency",
       load.max_concurrency > 0 ? nlohmann::json(load.max_concurrency) : nlohmann::json(nullptr)},
      {"input_len", load.input_len},
      {"output_len", load.output_len},
      {"range_ratio", load.range_ratio},
      {"prefix_len", load.prefix_len},
      {"prefixes", load.prefixes},
      {"seed", load.seed},
      {"duration", result.duration},
      {"completed", result.completed},
      {"failed", result.failed},
      {"total_input_tokens", result.total_input_tokens},
      {"total_output_tokens", result.total_output_tokens},
      {"request_throughput", rate(result.completed)},
      {"output_throughput", rate(result.total_output_tokens)},
      {"total_token_throughput", rate(result.total_input_tokens + result.total_output_tokens)}};
  add_times(json, "ttft", result.ttft);
  add_times(json, "tpot", result.tpot);
  add_times(json, "itl", result.itl);
  add_times(json, "e2el", result.e2el);
  const EngineStats& stats = result.stats;
  json["cached_tokens"] = stats.cached_tokens;
  json["preemptions"] = stats.preemptions;
  json["prefill_steps"] = stats.prefill_steps;
  json["decode_steps"] = stats.decode_steps;
  json["draft_rounds"] = stats.draft_rounds;
  json["draft_tokens"] = stats.draft_tokens;
  json["accepted_tokens"] = stats.accepted_tokens;
  json["mean_batch"] = stats.decode_steps > 0 ? static_cast<double>(stats.decode_entries) /
                                                    static_cast<double>(stats.decode_steps)
                                              : 0;
  return json;
}

}  // namespace frt::host
