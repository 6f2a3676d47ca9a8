// SPDX-License-Identifier: Apache-2.0
#include "expected.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>

namespace frt::conformance {
namespace {

std::size_t element_bytes(frt_dtype dtype) {
  return std::max<std::size_t>(dtype_bits(dtype) / 8, 1);
}

std::string text(double value) {
  char buffer[40];
  std::snprintf(buffer, sizeof(buffer), "%.9g", value);
  return buffer;
}

uint32_t code_at(frt_dtype dtype, std::span<const std::byte> data, std::size_t index) {
  uint32_t code = 0;
  const std::size_t bytes = element_bytes(dtype);
  std::memcpy(&code, data.data() + index * bytes, bytes);  // little-endian
  return code;
}

// The walk of the largest errors that rounding x to NVFP4 makes.
double deviation_in_fp4(std::span<const double> x, std::span<const double> weight) {
  constexpr std::size_t kGroup = 16;
  const auto largest_of = [](std::span<const double> values) {
    double largest = 0;
    for (const double value : values) largest = std::max(largest, std::fabs(value));
    return largest;
  };
  const double below = 6 * std::ldexp(2 * largest_of(x) / 2688, -10);
  double squares = 0;
  for (std::size_t first = 0; first < x.size(); first += kGroup) {
    const std::size_t count = std::min(kGroup, x.size() - first);
    const double scale = largest_of(x.subspan(first, count)) / 6 * 17 / 16;
    for (std::size_t i = first; i < first + count; ++i) {
      squares += std::pow((std::max(scale, std::fabs(x[i])) / 4 + below) * weight[i], 2);
    }
  }
  return std::sqrt(squares);
}

}  // namespace

void Expected::value(int64_t index, double value, double bound, double deviation) {
  elements_.at(static_cast<std::size_t>(index)) = {Rule::kNear, value, bound, deviation};
}

void Expected::code(int64_t index, double value) {
  elements_.at(static_cast<std::size_t>(index)) = {Rule::kCode, value, 0, 0};
}

void Expected::ignore(int64_t first, int64_t count) {
  for (int64_t i = first; i < first + count; ++i) {
    elements_.at(static_cast<std::size_t>(i)).rule = Rule::kIgnore;
  }
}

std::string Expected::judge(const std::string& name, std::span<const std::byte> initial,
                            std::span<const std::byte> result) const {
  const std::size_t bytes = element_bytes(dtype_);
  if (result.size() < elements_.size() * bytes || initial.size() != result.size()) {
    return name + " has " + std::to_string(result.size()) + " bytes, expected " +
           std::to_string(elements_.size() * bytes);
  }
  double squares = 0, deviating = 0;
  for (std::size_t i = 0; i < elements_.size(); ++i) {
    const Element& element = elements_[i];
    if (element.rule == Rule::kIgnore) continue;
    const std::string where = name + "[" + std::to_string(i) + "]";
    if (element.rule == Rule::kLeave) {
      if (std::memcmp(initial.data() + i * bytes, result.data() + i * bytes, bytes) == 0) continue;
      return where + " was written, by its header it is left alone";
    }
    const double found = decode(dtype_, result.data(), static_cast<int64_t>(i));
    if (std::isnan(element.value)) {
      if (std::isnan(found)) continue;
      return where + " is " + text(found) + ", by its header it is no number";
    }
    if (element.rule == Rule::kCode) {
      if (code_at(dtype_, result, i) == encode(dtype_, element.value)) continue;
      return where + " is " + text(found) + ", by its header it is " +
             text(rounded(dtype_, element.value));
    }
    // Infinities differ by NaN; equal ones are equal.
    if (found != element.value && !(std::fabs(found - element.value) <= element.bound)) {
      return where + " is " + text(found) + ", by its header it is " + text(element.value) +
             ", at most " + text(element.bound) + " away";
    }
    if (element.deviation == 0) continue;
    squares += std::pow((found - element.value) / element.deviation, 2);
    ++deviating;
  }
  // Of fewer the mean itself is too uncertain.
  constexpr double kEnough = 200;
  if (deviating >= kEnough && squares > deviating * kMostDeviation * kMostDeviation) {
    return name + " is off by " + text(std::sqrt(squares / deviating)) +
           " of the largest deviation that rounding x gives, at most " + text(kMostDeviation) +
           " is explained by it";
  }
  return {};
}

Product product(std::span<const double> x, std::span<const double> weight, bool weights_rounded,
                Rounding x_rounding) {
  // Several sums side by side, as one waits for itself.
  constexpr std::size_t kLanes = 4;
  double sums[kLanes] = {}, squares[kLanes] = {};
  const std::size_t count = std::min(x.size(), weight.size());
  for (std::size_t i = 0; i < count; i += kLanes) {
    for (std::size_t lane = 0; lane < std::min(kLanes, count - i); ++lane) {
      const double term = x[i + lane] * weight[i + lane];
      sums[lane] += term;
      squares[lane] += term * term;
    }
  }
  double sum = 0, square = 0;
  for (std::size_t lane = 0; lane < kLanes; ++lane) {
    sum += sums[lane];
    square += squares[lane];
  }
  const double walk = std::sqrt(square);
  double bound = static_cast<double>(count) * std::ldexp(walk, -23);
  if (weights_rounded) bound += 10 * std::ldexp(walk, -10);
  if (x_rounding == Rounding::kFp8) {
    double largest = 0, weights = 0;
    for (std::size_t i = 0; i < count; ++i) {
      largest = std::max(largest, std::fabs(x[i]));
      weights += weight[i] * weight[i];
    }
    bound += 10 * std::ldexp(walk, -6) + 6 * std::ldexp(largest / 448, -10) * std::sqrt(weights);
  }
  const double deviation =
      x_rounding == Rounding::kFp4 ? deviation_in_fp4(x.first(count), weight) : 0;
  return {sum, bound + 2.5 * deviation, deviation};
}

Product rounded_product(const Product& product, double before, frt_dtype y_dtype) {
  const double value = before + product.sum;
  const double away = product.bound + std::ldexp(std::fabs(value) + std::fabs(before), -24);
  return {value, away + half_step(y_dtype, std::fabs(value) + away), product.deviation};
}

}  // namespace frt::conformance
