// SPDX-License-Identifier: Apache-2.0
// metrics.hpp - what /metrics says of the server and of the engines. The histograms have the names
// of OpenTelemetry's conventions for generative models.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "http/keys.hpp"
#include "http/server.hpp"
#include "lm/engine/stats.hpp"
#include "lm/grammar/compiler.hpp"
#include "net/metrics_text.hpp"

namespace frt::host {

void put_http_metrics(MetricsText& text, const HttpServer& server);
// Tokens of the replies to one key.
struct KeyTokens {
  uint64_t prompt = 0, cached = 0, generated = 0;
};
// One sample a key for each family; "" where there are no keys.
void put_key_metrics(MetricsText& text, const std::map<std::string, KeyCounts>& keys,
                     const std::map<std::string, KeyTokens>& tokens);
// One sample a model for each family.
void put_engine_metrics(MetricsText& text,
                        const std::vector<std::pair<std::string, EngineStats>>& engines);

void put_grammar_metrics(MetricsText& text,
                         const std::vector<std::pair<std::string, GrammarStats>>& compilers);

}  // namespace frt::host
