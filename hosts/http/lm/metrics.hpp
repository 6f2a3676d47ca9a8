// SPDX-License-Identifier: Apache-2.0
// metrics.hpp - what /metrics says of the server and of the engines. The histograms have the names
// of OpenTelemetry's conventions for generative models.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "http/server.hpp"
#include "lm/engine/stats.hpp"
#include "net/metrics_text.hpp"

namespace frt::host {

void put_http_metrics(MetricsText& text, const HttpServer& server);
// One sample a model for each family.
void put_engine_metrics(MetricsText& text,
                        const std::vector<std::pair<std::string, EngineStats>>& engines);

}  // namespace frt::host
