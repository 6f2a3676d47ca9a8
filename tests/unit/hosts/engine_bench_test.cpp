// SPDX-License-Identifier: Apache-2.0
// A load on the engine: every request is served as it was drawn, and what is written down says so.
#include "bench/engine_bench.hpp"

#include <string>
#include <vector>

#include "engine_world.hpp"

namespace {

using namespace frt::test;
using frt::host::bench_engine;
using frt::host::Engine;
using frt::host::EngineBenchResult;
using frt::host::EngineLoad;

EngineLoad small_load() {
  EngineLoad load;
  load.requests = 6;
  load.input_len = 20;
  load.output_len = 8;
  return load;
}

}  // namespace

TEST_CASE("every request of a load is served, and its times have vLLM's names") {
  EngineWorld world("max_context = 256\nslots = 2\npage_rows = 64");
  const auto registry = world.registry({uint64_t{1} << 30, 0, 0, {}});
  Engine engine(world.model, registry.get(), engine_options());
  EngineLoad load = small_load();
  load.prefix_len = 32;
  load.prefixes = 2;
  load.max_concurrency = 2;
  const EngineBenchResult result = bench_engine(engine, world.model, load, [] { return false; });
  CHECK(result.completed == 6);
  CHECK(result.failed == 0);
  CHECK(result.total_input_tokens == 6 * 52);
  CHECK(result.total_output_tokens == 6 * 8);
  CHECK(result.ttft.size() == 6);
  CHECK(result.tpot.size() == 6);
  CHECK(result.itl.size() == 6 * 7);
  CHECK(result.stats.cached_tokens >= 2 * 32);  // at most two read a start, two at a time
  for (std::size_t i = 0; i < 6; ++i) CHECK(result.ttft[i] <= result.e2el[i]);
  const auto json = frt::host::engine_bench_json(result);
  CHECK(json["request_rate"] == "inf");
  CHECK(json["max_concurrency"] == 2);
  for (const char* time : {"ttft", "tpot", "itl", "e2el"}) {
    for (const char* of : {"mean", "median", "std", "p50", "p90", "p99"}) {
      CHECK(json[std::string(of) + "_" + time + "_ms"].is_number());
    }
    CHECK(json[std::string("p50_") + time + "_ms"] <= json[std::string("p99_") + time + "_ms"]);
  }
  CHECK(json["output_throughput"].get<double>() > 0);
}

TEST_CASE("a conversation's turns go on from each other, and what they reuse is told") {
  EngineWorld world("max_context = 256\nslots = 2\npage_rows = 64");
  const auto registry = world.registry({uint64_t{1} << 30, 0, 0, {}});
  Engine engine(world.model, registry.get(), engine_options());
  EngineLoad load = small_load();
  load.requests = 3;
  load.turns = 4;
  load.tool_len = 10;
  load.max_concurrency = 2;
  const EngineBenchResult result = bench_engine(engine, world.model, load, [] { return false; });
  CHECK(result.completed == 12);
  CHECK(result.failed == 0);
  // Of turn t: 20 + (t - 1) * (8 + 10).
  CHECK(result.total_input_tokens == 3 * (20 + 38 + 56 + 74));
  CHECK(result.total_output_tokens == 12 * 8);
  CHECK(result.first_ttft.size() == 3);
  CHECK(result.later_ttft.size() == 9);
  CHECK(result.later_input_tokens == 3 * (38 + 56 + 74));
  // The answer before, but its last token, is in the slot or a capsule.
  CHECK(result.later_cached_tokens == 3 * (27 + 45 + 63));
  const auto json = frt::host::engine_bench_json(result);
  CHECK(json["turns"] == 4);
  CHECK(json["later_turn_hit_rate"].get<double>() == doctest::Approx(135.0 / 168));
  CHECK(json["p50_later_turn_ttft_ms"].is_number());
  CHECK_FALSE(json.contains("request_goodput"));
}

TEST_CASE("goodput counts the requests that met every target") {
  EngineWorld world("max_context = 256\nslots = 2\npage_rows = 64");
  Engine engine(world.model, nullptr, engine_options());
  EngineLoad load = small_load();
  const auto good = [&](const std::vector<std::string>& targets) {
    load.targets = frt::host::targets_from(targets);
    const EngineBenchResult result = bench_engine(engine, world.model, load, [] { return false; });
    const auto json = frt::host::engine_bench_json(result);
    CHECK(json["good_completed"] == result.good);
    CHECK(json["request_goodput"].get<double>() ==
          doctest::Approx(static_cast<double>(result.good) / result.duration));
    CHECK(json["goodput"].size() == targets.size());
    return result.good;
  };
  CHECK(good({"ttft:1e6", "tpot:1e6", "e2el:1e6"}) == 6);
  CHECK(good({"ttft:1e6", "tpot:0"}) == 0);
  CHECK(good({"ttft:0"}) == 0);
  CHECK(good({"e2el:0"}) == 0);
  load.output_len = 1;  // no token behind the first: nothing to wait for
  CHECK(good({"tpot:0"}) == 6);
  for (const std::vector<std::string>& wrong :
       std::vector<std::vector<std::string>>{{"ttft"},
                                             {"ttft:"},
                                             {"itl:5"},
                                             {"ttft:-1"},
                                             {"ttft:x"},
                                             {"ttft:5ms"},
                                             {"ttft:inf"},
                                             {"ttft:5", "ttft:6"},
                                             {""}}) {
    CHECK_THROWS_AS(frt::host::targets_from(wrong), frt::Error);
  }
}

TEST_CASE("lengths of a load are drawn within their range, the same for the same seed") {
  EngineWorld world("max_context = 256\nslots = 2\npage_rows = 64");
  Engine engine(world.model, nullptr, engine_options());
  EngineLoad load = small_load();
  load.range_ratio = 0.5;
  load.request_rate = 2000;
  const auto never = [] { return false; };
  const EngineBenchResult first = bench_engine(engine, world.model, load, never);
  const EngineBenchResult second = bench_engine(engine, world.model, load, never);
  CHECK(first.completed == 6);
  CHECK(first.total_input_tokens == second.total_input_tokens);
  CHECK(first.total_output_tokens == second.total_output_tokens);
  CHECK(first.total_input_tokens >= 6 * 10);
  CHECK(first.total_input_tokens <= 6 * 30);
}

TEST_CASE("a load that does not fit the context is refused, and one that is stopped ends") {
  EngineWorld world("max_context = 256\nslots = 1\npage_rows = 64");
  Engine engine(world.model, nullptr, engine_options());
  EngineLoad load = small_load();
  load.input_len = 250;
  CHECK_THROWS_AS(bench_engine(engine, world.model, load, [] { return false; }), frt::Error);
  load = small_load();
  load.output_len = 200;
  load.requests = 64;
  uint64_t asked = 0;
  const auto after_most = [&asked] { return ++asked > 60; };  // 60 requests are in the queue
  CHECK_THROWS_AS(bench_engine(engine, world.model, load, after_most), frt::Error);
  engine.drain();
  CHECK(engine.stats().ended_cancelled > 0);
}
