// SPDX-License-Identifier: Apache-2.0
// generate.hpp - one request of an engine, for a thread that has nothing else to do until it is
// over.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "lm/engine/engine.hpp"

namespace frt::host {

// What a request of one choice gave.
struct GenerationResult : EngineResult {
  std::vector<int32_t> tokens;  // without the stop token
  std::vector<float> log_probabilities;
};

// Who reads while a request is worked on; each may be null. Whatever one of them throws ends the
// request, and generate() throws it.
struct GenerationReader {
  // Told each token on the engine's thread, so that the text ends where this says.
  std::function<Next(int32_t id, float log_probability)> ends;

  // The others are called on the thread that called generate().
  // The next token. False: nobody wants more, so the request is cancelled.
  std::function<bool(int32_t id)> on_token;
  // Tokens done of all to be read.
  std::function<void(uint64_t done, uint64_t total)> on_prefill;
  // Asked at least every 20 ms; true: the request is cancelled.
  std::function<bool()> cancelled;
};

// Submits a request of one choice and returns when it is over. Throws what Engine::submit() throws,
// and the request's error. Not on the engine's thread.  [any]
GenerationResult generate(Engine& engine, EngineRequest request,
                          const GenerationReader& reader = {});

}  // namespace frt::host
