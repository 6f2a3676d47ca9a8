// SPDX-License-Identifier: Apache-2.0
#include "bench/engine_bench.hpp"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <random>
#include <utility>

#include "bench/lm_bench.hpp"

namespace frt::host {
namespace {

using Clock = EngineRequest::Clock;
constexpr std::chrono::milliseconds kAskCancelled{50};
constexpr double kLongestGap = 1e6;  // seconds between two arrivals, which a clock can add

double seconds_between(Clock::time_point start, Clock::time_point end) {
  return std::chrono::duration<double>(end - start).count();
}

// The engine's thread tells which conversation's turn is over.
class Gate {
 public:
  explicit Gate(std::size_t conversations) { over_.reserve(conversations); }
  void over(std::size_t conversation) {
    const std::lock_guard lock(mutex_);
    over_.push_back(conversation);
    changed_.notify_all();
  }
  // Nothing: none is over until `until`.
  std::optional<std::size_t> wait(Clock::time_point until) {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_until(lock, until, [&] { return !over_.empty(); })) return std::nullopt;
    const std::size_t conversation = over_.back();
    over_.pop_back();
    return conversation;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::size_t> over_;
};

// Written by the engine's thread until it tells the gate.
class Timed final : public EngineListener {
 public:
  Timed(Gate& gate, std::size_t conversation, const EngineRequest& request, bool first)
      : first_turn(first),
        prompt_tokens(request.prompt.size()),
        gate_(gate),
        conversation_(conversation) {
    times.reserve(request.max_new);
    ids.reserve(request.max_new);
  }

  void on_start(const PrefixDecision& prefix, double) override { cached_tokens = prefix.reused; }
  void on_prefill(uint64_t, uint64_t) override {}
  Next on_token(uint32_t, int32_t id, float) override {
    times.push_back(Clock::now());
    ids.push_back(id);
    return Next::kContinue;
  }
  void on_finish(uint32_t, const EngineResult&) override { gate_.over(conversation_); }
  void on_error(frt_status, const std::string& message) override {
    error = message;
    gate_.over(conversation_);
  }
  bool failed() const { return !error.empty() || times.empty(); }

  const bool first_turn;
  const uint64_t prompt_tokens;
  uint64_t cached_tokens = 0;
  Clock::time_point sent{};
  std::vector<Clock::time_point> times;  // of tokens
  std::vector<int32_t> ids;
  std::string error;

 private:
  Gate& gate_;
  const std::size_t conversation_;
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
  const uint64_t longest = load.prefix_len + most(load.input_len) +
                           load.turns * most(load.output_len) +
                           (load.turns - 1) * most(load.tool_len);
  if (longest > model.info().max_context) {
    throw Error(FRT_ERR_OUT_OF_RANGE, "a request may need " + std::to_string(longest) +
                                          " tokens, the context of model '" + model.name() +
                                          "' has room for " +
                                          std::to_string(model.info().max_context) +
                                          "; give smaller lengths or raise its context (an option "
                                          "of its plugin: `frt-host plugins show`)");
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

// A conversation as it goes on. What its tools say is drawn by a number of its own, so that no
// clock decides on it.
struct Conversation {
  Draw draw;
  std::vector<int32_t> prompt;
  uint64_t turns = 0;            // that were sent
  std::shared_ptr<Timed> timed;  // the last one
};

// Sends a load and collects what is over, on one thread.
class Sender {
 public:
  Sender(Engine& engine, const LmModel& model, const EngineLoad& load,
         const std::function<bool()>& cancelled)
      : engine_(engine), load_(load), cancelled_(cancelled), gate_(load.requests) {
    Draw draw(load.seed, model.info().vocabulary);
    std::vector<std::vector<int32_t>> prefixes;
    for (uint32_t i = 0; i < load.prefixes; ++i) prefixes.push_back(draw.tokens(load.prefix_len));
    conversations_.reserve(load.requests);
    for (uint64_t i = 0; i < load.requests; ++i) {
      Conversation one{Draw(draw.below(UINT64_MAX), model.info().vocabulary),
                       prefixes[draw.below(prefixes.size())], 0, nullptr};
      append(one.prompt, draw.tokens(draw.length(load.input_len, load.range_ratio)));
      conversations_.push_back(std::move(one));
    }
    arrivals_.resize(load.requests);
    double at = 0;
    for (double& arrival : arrivals_) {
      if (load.request_rate > 0) at += std::min(draw.gap(load.request_rate), kLongestGap);
      arrival = at;
    }
  }

  void run() {
    try {
      send_all();
    } catch (...) {
      for (const uint64_t number : numbers_) engine_.cancel(number);
      while (open_ > 0) {
        if (gate_.wait(Clock::now() + kAskCancelled)) --open_;
      }
      throw;
    }
  }

  // Of all turns, in the order in which they were sent.
  const std::vector<std::shared_ptr<Timed>>& turns() const noexcept { return turns_; }

 private:
  static void append(std::vector<int32_t>& ids, const std::vector<int32_t>& more) {
    ids.insert(ids.end(), more.begin(), more.end());
  }

  void send_all() {
    const auto start = Clock::now();
    std::size_t begun = 0;
    while (begun < conversations_.size() || open_ > 0) {
      if (cancelled_()) throw Error(FRT_ERR_CANCELLED, "stopped on request");
      auto until = Clock::now() + kAskCancelled;
      const bool room = load_.max_concurrency == 0 || open_ < load_.max_concurrency;
      if (room && begun < conversations_.size()) {
        const auto arrival =
            start + std::chrono::duration_cast<Clock::duration>(
                        std::chrono::duration<double>(std::min(arrivals_[begun], kLongestGap)));
        if (Clock::now() >= arrival) {
          send(begun++);
          continue;
        }
        until = std::min(until, arrival);
      }
      if (const auto over = gate_.wait(until)) go_on(*over);
    }
  }

  void send(std::size_t index) {
    Conversation& one = conversations_[index];
    EngineRequest request;
    request.prompt = one.prompt;
    request.max_new = one.draw.length(load_.output_len, load_.range_ratio);
    request.sampling.top_p = 1;
    request.sampling.repetition_penalty = 1;
    request.keep = request.reuse = load_.prefix_len > 0 || load_.turns > 1;
    if (load_.turns > 1) request.affinity = "conversation-" + std::to_string(index);
    one.timed = std::make_shared<Timed>(gate_, index, request, one.turns == 0);
    turns_.push_back(one.timed);
    one.timed->sent = Clock::now();
    numbers_.push_back(engine_.submit(std::move(request), one.timed));
    ++one.turns;
    ++open_;
  }

  // A turn is over.
  void go_on(std::size_t index) {
    --open_;
    Conversation& one = conversations_[index];
    if (one.turns == load_.turns || one.timed->failed()) return;
    append(one.prompt, one.timed->ids);
    append(one.prompt, one.draw.tokens(one.draw.length(load_.tool_len, load_.range_ratio)));
    send(index);
  }

  Engine& engine_;
  const EngineLoad& load_;
  const std::function<bool()>& cancelled_;
  Gate gate_;
  std::vector<Conversation> conversations_;
  std::vector<double> arrivals_;  // of conversations, seconds from the start
  std::vector<uint64_t> numbers_;
  std::vector<std::shared_ptr<Timed>> turns_;
  uint64_t open_ = 0;  // turns that are not over
};

bool within(const std::optional<double>& most, double seconds) {
  return !most || seconds <= *most;
}

}  // namespace

EngineTargets targets_from(std::span<const std::string> texts) {
  EngineTargets targets;
  for (const std::string& text : texts) {
    const std::size_t colon = text.find(':');
    const std::string name = text.substr(0, colon);
    std::optional<double>* target = name == "ttft"   ? &targets.ttft
                                    : name == "tpot" ? &targets.tpot
                                    : name == "e2el" ? &targets.e2el
                                                     : nullptr;
    double ms = 0;
    const char* end = text.data() + text.size();
    const char* begin = colon == text.npos ? end : text.data() + colon + 1;
    const auto read = std::from_chars(begin, end, ms);
    const bool number = read.ec == std::errc() && read.ptr == end && std::isfinite(ms) && ms >= 0;
    if (!target || !number) {
      throw Error(FRT_ERR_INVALID_ARGUMENT,
                  "'" + text + "' is no target; give ttft:MS, tpot:MS or e2el:MS");
    }
    if (*target) throw Error(FRT_ERR_INVALID_ARGUMENT, name + " has two targets; give one");
    *target = ms / 1e3;
  }
  return targets;
}

EngineBenchResult bench_engine(Engine& engine, const LmModel& model, const EngineLoad& load,
                               const std::function<bool()>& cancelled) {
  check_load(model, load);
  EngineBenchResult result;
  result.load = load;
  Sender sender(engine, model, load, cancelled);
  const auto start = Clock::now();
  sender.run();
  result.duration = seconds_between(start, Clock::now());
  for (const auto& one : sender.turns()) {
    const auto& times = one->times;
    if (one->failed()) {
      ++result.failed;
      if (result.first_error.empty()) result.first_error = one->error;
      continue;
    }
    ++result.completed;
    result.total_input_tokens += one->prompt_tokens;
    result.total_output_tokens += times.size();
    const double ttft = seconds_between(one->sent, times.front());
    const double e2el = seconds_between(one->sent, times.back());
    double tpot = 0;
    result.ttft.push_back(ttft);
    (one->first_turn ? result.first_ttft : result.later_ttft).push_back(ttft);
    if (!one->first_turn) {
      result.later_input_tokens += one->prompt_tokens;
      result.later_cached_tokens += one->cached_tokens;
    }
    result.e2el.push_back(e2el);
    for (std::size_t i = 1; i < times.size(); ++i) {
      result.itl.push_back(seconds_between(times[i - 1], times[i]));
    }
    if (times.size() > 1) {
      tpot = (e2el - ttft) / static_cast<double>(times.size() - 1);
      result.tpot.push_back(tpot);
    }
    result.good += within(load.targets.ttft, ttft) && within(load.targets.tpot, tpot) &&
                   within(load.targets.e2el, e2el);
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
      {"turns", load.turns},
      {"tool_len", load.tool_len},
      {"seed", load.seed},
      {"duration", result.duration},
      {"completed", result.completed},
      {"failed", result.failed},
      {"total_input_tokens", result.total_input_tokens},
      {"total_output_tokens", result.total_output_tokens},
      {"request_throughput", rate(result.completed)},
      {"output_throughput", rate(result.total_output_tokens)},
      {"total_token_throughput", rate(result.total_input_tokens + result.total_output_tokens)}};
  if (load.targets.any()) {
    nlohmann::ordered_json& targets = json["goodput"] = nlohmann::ordered_json::object();
    if (load.targets.ttft) targets["ttft"] = *load.targets.ttft * 1e3;
    if (load.targets.tpot) targets["tpot"] = *load.targets.tpot * 1e3;
    if (load.targets.e2el) targets["e2el"] = *load.targets.e2el * 1e3;
    json["good_completed"] = result.good;
    json["request_goodput"] = rate(result.good);
  }
  add_times(json, "ttft", result.ttft);
  add_times(json, "tpot", result.tpot);
  add_times(json, "itl", result.itl);
  add_times(json, "e2el", result.e2el);
  if (load.turns > 1) {
    add_times(json, "first_turn_ttft", result.first_ttft);
    add_times(json, "later_turn_ttft", result.later_ttft);
    json["later_turn_input_tokens"] = result.later_input_tokens;
    json["later_turn_cached_tokens"] = result.later_cached_tokens;
    json["later_turn_hit_rate"] = result.later_input_tokens > 0
                                      ? static_cast<double>(result.later_cached_tokens) /
                                            static_cast<double>(result.later_input_tokens)
                                      : 0;
  }
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
