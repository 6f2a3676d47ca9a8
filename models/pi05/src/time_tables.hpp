// SPDX-License-Identifier: Apache-2.0
// time_tables.hpp - what depends on the time of a denoising step and on nothing else: the time
// embedding, its MLP, and the modulation of every norm of the expert. Computed once per load, on
// the host, in double where it is cheap; a step only looks its vectors up. That also keeps a fifth
// of the expert's weights out of device memory.
//
//   period_j = min_period (max_period / min_period)^(j / (n - 1)),  n = expert_width / 2
//   e(t)     = [sin(2 pi t / period), cos(2 pi t / period)]
//   cond     = silu(W_out silu(W_in e + b_in) + b_out)
//   [scale, shift, gate] = W cond + b                               of each norm
#pragma once

#include <cstdint>
#include <vector>

#include "weights.hpp"

namespace frt::pi05 {

// The times of `steps` Euler steps, t_k = 1 - k / steps, and 0 as the last.
std::vector<double> step_times(std::int64_t steps);

struct TimeTables {
  // Of each time asked for: (times, modulations, 3, expert_width). Norms in the order input and
  // post-attention norm of layer 0, of layer 1, ..., final norm.
  std::vector<float> modulations;
  std::vector<float> conditions;  // (times, expert_width)
};

// [setup]
TimeTables make_time_tables(const Config& config, const WeightSource& source,
                            const std::vector<double>& times);

// (positions, head_dim): cosines of the head_dim / 2 angles p * 10000^(-2j / head_dim), then
// sines, computed in double.
std::vector<float> rope_table(std::int64_t positions, std::int64_t head_dim);

// e(t) of width `width`.
std::vector<double> time_embedding(double time, std::int64_t width, double min_period,
                                   double max_period);

}  // namespace frt::pi05
