// SPDX-License-Identifier: Apache-2.0
// policy_service.hpp - one request of the openpi protocol, from bytes to bytes: decoding, checks,
// inference, reply.
#pragma once

#include <atomic>
#include <functional>
#include <string>

#include "robot/control/episode_boundary.hpp"
#include "robot/control/latency.hpp"
#include "robot/policy_runner.hpp"
#include "robot/service/server.hpp"
#include "robot/service/wire/observation.hpp"

namespace frt::host {

struct ServiceOptions {
  uint32_t steps = 0;          // denoising steps; 0: the model's default
  GuidanceStrengths guidance;  // unless a request says otherwise
  uint64_t seed = 0;           // of the noise of requests that bring none
  double stale_ms = 0;         // an observation that waited longer is refused; 0: no limit
  std::string default_prompt;  // of requests without one; empty: the checkpoint's
};

class PolicyService {
 public:
  PolicyService(const PolicyModel& model, ServiceOptions options);  // [setup]

  // Takes the guidance of the options. Throws, saying what was asked for, if no variant of the
  // model has their steps or guidance: then no request without options of its own could be served.
  // [setup]
  void check_options();
  // Replays every variant once (robot/warm_up.hpp); the tables come from core. Returns how many
  // variants there are.  [setup]
  uint32_t warm_up(const frt_state_v1* states, const frt_capsules_v1* capsules,
                   const std::function<bool()>& cancelled);
  // The bytes of the first frame: what a client may want to know of the model.
  std::string metadata() const;
  // One request. Throws frt::Error with a text for the client; the service stays usable.  [driver]
  PolicyServer::Reply handle(const PolicyServer::Request& request);
  // Prometheus lines.  [any]
  std::string metrics() const;
  const LatencySeries& latency() const noexcept { return latency_; }

 private:
  void observe(const WireRequest& request);
  void take_noise(const WireRequest& request);
  void continue_chunk(const WireRequest& request);

  const PolicyModel& model_;
  ServiceOptions options_;
  PolicyRunner runner_;
  Message message_;
  LatencySeries latency_;  // inference, milliseconds
  std::vector<std::string> aligned_;
  uint64_t draws_ = 0;
  bool continues_ = false;  // the model holds the previous chunk of a request
  std::atomic<uint64_t> inferences_{0}, stale_{0}, refused_{0};
};

}  // namespace frt::host
