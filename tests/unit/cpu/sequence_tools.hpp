// SPDX-License-Identifier: Apache-2.0
// sequence_tools.hpp - what the tests of the sequence operators share: typed arrays, batches of
// sequences, and comparisons. References compute in double on the rounded inputs.
#pragma once

#include <doctest/doctest.h>
#include <frt/ops/sequences.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "cpu_device.hpp"
#include "ops/numbers.hpp"

namespace frt::cpu_test {

// An array of f32, bf16 or f8_e4m3 values; what is put in is rounded to the type.
class Array {
 public:
  Array(frt_dtype dtype, std::size_t count, float value = 0.0f)
      : dtype_(dtype),
        count_(count),
        bytes_(count * static_cast<std::size_t>(cpu::element_bytes(dtype))) {
    for (std::size_t i = 0; i < count; ++i) set(i, value);
  }

  frt_dtype dtype() const { return dtype_; }
  std::size_t size() const { return count_; }
  void* data() { return bytes_.data(); }
  const std::vector<std::byte>& bytes() const { return bytes_; }
  std::size_t element() const { return static_cast<std::size_t>(cpu::element_bytes(dtype_)); }

  float operator[](std::size_t i) const {
    return cpu::load_float(dtype_, bytes_.data(), static_cast<int64_t>(i));
  }
  void set(std::size_t i, float value) {
    cpu::store_float(dtype_, bytes_.data(), static_cast<int64_t>(i), value);
  }

 private:
  frt_dtype dtype_;
  std::size_t count_;
  std::vector<std::byte> bytes_;
};

class Random {
 public:
  explicit Random(uint32_t seed) : engine_(seed) {}

  float normal(float scale = 1.0f) { return scale * normal_(engine_); }
  float uniform(float low, float high) {
    return std::uniform_real_distribution<float>(low, high)(engine_);
  }
  int32_t index(int32_t end) { return std::uniform_int_distribution<int32_t>(0, end - 1)(engine_); }
  Array array(frt_dtype dtype, std::size_t count, float scale = 1.0f) {
    Array values(dtype, count);
    for (std::size_t i = 0; i < count; ++i) values.set(i, normal(scale));
    return values;
  }
  std::vector<float> floats(std::size_t count, float low, float high) {
    std::vector<float> values(count);
    for (float& value : values) value = uniform(low, high);
    return values;
  }

 private:
  std::mt19937 engine_;
  std::normal_distribution<float> normal_;  // makes two values at once
};

// The sequences of one call.
struct Batch {
  int32_t rows = 1;
  std::vector<int32_t> slot, position, length;

  std::size_t count() const { return slot.size(); }
  std::size_t all_rows() const { return slot.size() * static_cast<std::size_t>(rows); }
  frt_sequences view() const {
    return {static_cast<int32_t>(slot.size()), rows, slot.data(), position.data(), length.data()};
  }
};

inline Batch one_sequence(int32_t length, int32_t rows = 0, int32_t position = 0,
                          int32_t slot = 0) {
  return {rows > 0 ? rows : length, {slot}, {position}, {length}};
}

// The largest |found - expected| / (1 + |expected|); NaN must meet NaN.
template <class Found, class Expected>
double worst_error(const Found& found, const Expected& expected, std::size_t count) {
  double worst = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const auto f = static_cast<double>(found[i]);
    const auto e = static_cast<double>(expected[i]);
    if (std::isnan(f) && std::isnan(e)) continue;
    if (f == e) continue;
    const double error = std::abs(f - e) / (1 + std::abs(e));
    if (!(error <= worst)) worst = error;
  }
  return worst;
}

inline double silu(double x) {
  return x / (1 + std::exp(-x));
}
inline double sigmoid(double x) {
  return 1 / (1 + std::exp(-x));
}

// Every cap of the instruction set that this machine can run.
inline std::vector<std::string> isa_caps() {
  std::vector<std::string> caps;
  for (const char* name : {"portable", "avx2", "avx512", "avx512-bf16"}) {
    try {
      CpuDevice device({.threads = 1, .isa = name});
      caps.push_back(name);
    } catch (const Error&) {
    }
  }
  return caps;
}

}  // namespace frt::cpu_test
