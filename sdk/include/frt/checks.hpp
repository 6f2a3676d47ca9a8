// SPDX-License-Identifier: Apache-2.0
// frt/checks.hpp - the argument checks of operators, a backend's or a model's own, with messages
// that name the operator and the argument, the same everywhere. All throw
// frt::Error(FRT_ERR_INVALID_ARGUMENT). Header-only.  [setup]
#pragma once

#include <frt/kernels.h>
#include <frt/ops/sequences.h>
#include <frt/error.hpp>
#include <frt/weights.hpp>

#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <string>

namespace frt {

class Checks {
 public:
  explicit Checks(const char* operator_name) : operator_(operator_name) {}

  [[noreturn]] void fail(const std::string& argument, const std::string& text) const {
    throw Error(FRT_ERR_INVALID_ARGUMENT, std::string(operator_) + ": " + argument + " " + text);
  }
  void require(bool condition, const char* argument, const std::string& text) const {
    if (!condition) fail(argument, text);
  }
  void range(const char* argument, int64_t value, int64_t low, int64_t high) const {
    if (value >= low && value <= high) return;
    fail(argument, "is " + std::to_string(value) + ", expected " + std::to_string(low) + " to " +
                       std::to_string(high));
  }
  void positive(const char* argument, int64_t value) const {
    if (value <= 0) fail(argument, "is " + std::to_string(value) + ", expected more than 0");
  }
  void at_least(const char* argument, int64_t value, int64_t least) const {
    if (value >= least) return;
    fail(argument, "is " + std::to_string(value) + ", expected at least " + std::to_string(least));
  }
  void pointer(const char* argument, const void* value) const {
    if (!value) fail(argument, "is NULL");
  }
  void aligned(const std::string& argument, const void* value, int64_t bytes) const {
    if (reinterpret_cast<std::uintptr_t>(value) % static_cast<std::uintptr_t>(bytes) == 0) return;
    fail(argument, "is not aligned to " + std::to_string(bytes) + " bytes");
  }
  void dtype(const char* argument, frt_dtype value,
             std::initializer_list<frt_dtype> allowed = {FRT_DTYPE_F32, FRT_DTYPE_BF16}) const {
    std::string names;
    for (const frt_dtype one : allowed) {
      if (one == value) return;
      names += (names.empty() ? "" : ", ") + std::string(dtype_name(one));
    }
    fail(argument, "is " + std::string(dtype_name(value)) + ", expected " + names);
  }
  // Of FP8 values; 0: there are none.
  void scale(const char* argument, float value) const {
    require(std::isfinite(value) && value >= 0 && (value == 0 || std::isfinite(1 / value)),
            argument, "is neither 0 nor a positive number with a reciprocal");
  }
  // The same of what is multiplied by `weight`, the argument `name`.
  void scale(const char* argument, float value, const char* name, const frt_weight& weight) const {
    scale(argument, value);
    const WeightType type = weight_type(weight.format);
    require(value == 0 || type == WeightType::kFp8Tensor || type == WeightType::kFp8Channel, name,
            std::string("is not FP8_TENSOR or FP8_CHANNEL, as ") + argument + " needs");
  }
  // Of a result that is FP8, which it is only where x is.
  void result_scale(const char* argument, float value, float x_scale) const {
    scale(argument, value);
    require(value == 0 || x_scale > 0, argument, "is given, and normed_scale is not");
  }
  void sequences(const frt_sequences& value) const {
    positive("sequences.count", value.count);
    positive("sequences.rows", value.rows);
    require(static_cast<int64_t>(value.count) * value.rows <= INT32_MAX, "sequences",
            "has more than 2^31 rows");
    pointer("sequences.slot", value.slot);
    pointer("sequences.position", value.position);
    pointer("sequences.length", value.length);
  }

 private:
  const char* operator_;
};

}  // namespace frt
