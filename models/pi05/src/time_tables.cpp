// SPDX-License-Identifier: Apache-2.0
#include "time_tables.hpp"

#include <cmath>
#include <numbers>

namespace frt::pi05 {
namespace {

double silu(double x) {
  return x / (1 + std::exp(-x));
}

// out[t][row] = W[row] . x[t] + bias[row]; `x` is held as (columns, times), so that the inner loop
// runs over times, without a sum across lanes.
std::vector<double> dense(const std::vector<float>& weight, const std::vector<float>& bias,
                          const std::vector<double>& x, std::size_t columns, std::size_t times) {
  const std::size_t rows = bias.size();
  std::vector<double> out(rows * times);  // (rows, times)
  std::vector<double> sums(times);
  for (std::size_t r = 0; r < rows; ++r) {
    for (double& sum : sums) sum = static_cast<double>(bias[r]);
    const float* w = weight.data() + r * columns;
    for (std::size_t c = 0; c < columns; ++c) {
      const double factor = static_cast<double>(w[c]);
      const double* values = x.data() + c * times;
      for (std::size_t t = 0; t < times; ++t) sums[t] += factor * values[t];
    }
    std::copy(sums.begin(), sums.end(), out.begin() + static_cast<std::ptrdiff_t>(r * times));
  }
  return out;
}

}  // namespace

std::vector<double> step_times(std::int64_t steps) {
  std::vector<double> times;
  for (std::int64_t k = 0; k < steps; ++k) {
    times.push_back(1.0 - static_cast<double>(k) / static_cast<double>(steps));
  }
  times.push_back(0.0);
  return times;
}

std::vector<double> time_embedding(double time, std::int64_t width, double min_period,
                                   double max_period) {
  const auto half = static_cast<std::size_t>(width / 2);
  std::vector<double> values(2 * half);
  for (std::size_t j = 0; j < half; ++j) {
    const double share = half > 1 ? static_cast<double>(j) / static_cast<double>(half - 1) : 0.0;
    const double angle =
        time * 2 * std::numbers::pi / (min_period * std::pow(max_period / min_period, share));
    values[j] = std::sin(angle);
    values[half + j] = std::cos(angle);
  }
  return values;
}

TimeTables make_time_tables(const Config& config, const WeightSource& source,
                            const std::vector<double>& times) {
  const Dims& d = config.dims;
  const auto width = static_cast<std::size_t>(d.expert_width);
  const std::size_t count = times.size();
  std::vector<double> x(width * count);  // (width, times)
  for (std::size_t t = 0; t < count; ++t) {
    const std::vector<double> e =
        time_embedding(times[t], d.expert_width, config.min_period, config.max_period);
    for (std::size_t i = 0; i < width; ++i) x[i * count + t] = e[i];
  }
  for (const char* part : {"time_mlp_in", "time_mlp_out"}) {
    const std::string name = part;
    x = dense(source.values(name + ".weight", {d.expert_width, d.expert_width}),
              source.values(name + ".bias", {d.expert_width}), x, width, count);
    for (double& value : x) value = silu(value);
  }
  TimeTables tables;
  tables.conditions.resize(count * width);
  for (std::size_t t = 0; t < count; ++t) {
    for (std::size_t i = 0; i < width; ++i) {
      tables.conditions[t * width + i] = static_cast<float>(x[i * count + t]);
    }
  }
  const auto norms = static_cast<std::size_t>(d.modulations());
  const std::size_t values = 3 * width;
  tables.modulations.resize(count * norms * values);
  for (std::size_t n = 0; n < norms; ++n) {
    const std::string name =
        n + 1 == norms
            ? "expert.norm.dense"
            : "expert.layers." + std::to_string(n / 2) +
                  (n % 2 == 0 ? ".input_layernorm" : ".post_attention_layernorm") + ".dense";
    const std::vector<double> out =
        dense(source.values(name + ".weight", {3 * d.expert_width, d.expert_width}),
              source.values(name + ".bias", {3 * d.expert_width}), x, width, count);
    for (std::size_t t = 0; t < count; ++t) {
      float* to = tables.modulations.data() + (t * norms + n) * values;
      for (std::size_t i = 0; i < values; ++i) to[i] = static_cast<float>(out[i * count + t]);
    }
  }
  return tables;
}

std::vector<float> rope_table(std::int64_t positions, std::int64_t head_dim) {
  const std::int64_t half = head_dim / 2;
  std::vector<float> table(static_cast<std::size_t>(positions * head_dim));
  for (std::int64_t p = 0; p < positions; ++p) {
    float* row = table.data() + p * head_dim;
    for (std::int64_t j = 0; j < half; ++j) {
      const double angle =
          static_cast<double>(p) *
          std::pow(10000.0, -2.0 * static_cast<double>(j) / static_cast<double>(head_dim));
      row[j] = static_cast<float>(std::cos(angle));
      row[half + j] = static_cast<float>(std::sin(angle));
    }
  }
  return table;
}

}  // namespace frt::pi05
