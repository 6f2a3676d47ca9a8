// SPDX-License-Identifier: Apache-2.0
// engine_bench.hpp - measures an engine under a load: conversations that begin at a rate or as many
// at a time, with random prompts of given lengths of which a part may be repeated. A conversation
// is one request, or that of an agent: each further turn's prompt is all that was said, and the
// output of a tool behind it, and is sent when the turn before is over.
//
// Prompts are synthetic and deterministic, sampling is greedy, end tokens are ignored: every
// request writes as many tokens as it asks for. Times are those that a client in the same process
// sees, from submit() on.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lm/engine/engine.hpp"

namespace frt::host {

// Seconds that a good request takes at most; absent: any.
struct EngineTargets {
  std::optional<double> ttft, tpot, e2el;
  bool any() const noexcept { return ttft || tpot || e2el; }
};
// vLLM's "ttft:200", "tpot:50", "e2el:5000", milliseconds, each once. Throws
// FRT_ERR_INVALID_ARGUMENT, naming what is wrong.
EngineTargets targets_from(std::span<const std::string> texts);

struct EngineLoad {
  uint64_t requests = 100;       // first turns
  double request_rate = 0;       // per second, at exponentially distributed distances; 0: at once
  uint32_t max_concurrency = 0;  // requests that are not over; 0: any number
  uint64_t input_len = 512;      // tokens of a prompt behind its prefix, on average
  uint64_t output_len = 128;     // tokens written, on average
  double range_ratio = 0;        // lengths are uniform within len * (1 -+ range_ratio); below 1
  uint64_t prefix_len = 0;       // tokens at the start of a prompt that others have, too
  uint32_t prefixes = 1;         // how many such starts there are
  uint64_t turns = 1;            // requests of a conversation
  uint64_t tool_len = 256;       // tokens behind an answer in the next turn's prompt, on average
  uint64_t seed = 0;
  EngineTargets targets;
};

struct EngineBenchResult {
  EngineLoad load;
  uint64_t completed = 0, failed = 0;
  std::string first_error;
  uint64_t total_input_tokens = 0, total_output_tokens = 0;
  double duration = 0;  // seconds
  // Seconds: to the first token; per token behind it, one per request; from token to token; to the
  // end.
  std::vector<double> ttft, tpot, itl, e2el;
  std::vector<double> first_ttft, later_ttft;                // of first and of further turns
  uint64_t later_input_tokens = 0, later_cached_tokens = 0;  // of further turns' prompts
  uint64_t good = 0;                                         // completed within the targets
  EngineStats stats;                                         // of the engine, at the end
};

// Throws FRT_ERR_OUT_OF_RANGE if the lengths do not fit the model's context, FRT_ERR_CANCELLED when
// `cancelled` says so; nothing of the load runs any more then.
EngineBenchResult bench_engine(Engine& engine, const LmModel& model, const EngineLoad& load,
                               const std::function<bool()>& cancelled);

// With the field names of `vllm bench serve --save-result`, milliseconds where they end in _ms, and
// what the engine counted.
nlohmann::ordered_json engine_bench_json(const EngineBenchResult& result);

}  // namespace frt::host
