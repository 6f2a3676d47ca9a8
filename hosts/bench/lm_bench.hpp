// SPDX-License-Identifier: Apache-2.0
// lm_bench.hpp - measures a language model: prefill and decode, at a context depth, for a batch,
// against the floor that memory sets.
//
// Inputs are synthetic and deterministic, sampling is greedy, end tokens are ignored. A decode step
// is timed from one result on the host to the next, as a user sees it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "bench/operator_timer.hpp"
#include "lm/lm_model.hpp"

namespace frt::host {

// One point to measure. Either prefill or decode is 0.
struct BenchPoint {
  uint64_t prefill = 0;  // tokens read per repetition
  uint64_t decode = 0;   // steps per repetition
  uint64_t depth = 0;    // tokens in each slot before
  uint32_t batch = 1;    // sequences of a decode step; 1 for prefill
};

// "pp512", "tg128", "tg128 @ d2048 x 8".
std::string bench_name(const BenchPoint& point);

struct BenchResult {
  BenchPoint point;
  std::vector<double> repetition_seconds;  // one per repetition
  std::vector<double> step_seconds;        // decode: every step of every repetition
  std::vector<double> submit_seconds;      // decode: of these, the host's work to submit one
  double floor_seconds = 0;                // of one step; 0: no floor known
  uint64_t floor_bytes = 0;                // that one step must move; 0: prefill
  double flops = 0;                        // prefill: of one repetition, without attention
};

// The q-quantile (0 .. 1) of values, linear between neighbours; NaN if empty.
double quantile(std::vector<double> values, double q);

class LmBench {
 public:
  // `bandwidth`: measured read bandwidth in bytes per second; 0: unknown.
  LmBench(const LmModel& model, double bandwidth) : model_(model), bandwidth_(bandwidth) {}

  // Throws FRT_ERR_OUT_OF_RANGE if the model has not enough slots, batch or context for the point,
  // with the option to raise. `cancelled` is asked between steps; FRT_ERR_CANCELLED.
  BenchResult run(const BenchPoint& point, uint32_t repetitions, uint32_t warmup,
                  const std::function<bool()>& cancelled) const;

  // What each operator of the point takes: `steps` decode steps, or one prefill, after one that is
  // not timed. The context must be eager and watched by `timer`.
  std::vector<OperatorTime> profile(const BenchPoint& point, uint32_t steps, OperatorTimer& timer,
                                    const std::function<bool()>& cancelled) const;

 private:
  void check_point(const BenchPoint& point) const;

  const LmModel& model_;
  double bandwidth_;
};

// Bytes per second at which the device reads a buffer of `bytes` (much larger than its caches) of
// random values: the median of some passes of frt.checksum/1 by the device's own clock. 0 if the
// backend lacks the operator.  [setup]
double measure_read_bandwidth(const Context& context, uint64_t bytes);

}  // namespace frt::host
