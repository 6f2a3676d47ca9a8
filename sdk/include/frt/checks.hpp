// SPDX-License-Identifier: Apache-2.0
// frt/checks.hpp - what the checks of an operator's arguments are made of, for the operators of
// frt/ops (frt/operator_checks.hpp) and a plugin's own. Messages name the operator and the
// argument. All but `unsupported` throw frt::Error(FRT_ERR_INVALID_ARGUMENT). No number makes a
// check overflow: sizes are checked before what is made of them. Header-only.  [setup]
#pragma once

#include <frt/kernels.h>
#include <frt/ops/sequences.h>
#include <frt/error.hpp>
#include <frt/weights.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

namespace frt {

class Checks {
 public:
  explicit Checks(const char* operator_name) : name_(operator_name) {}

  // The same for a struct among the arguments, whose members are named "member.argument", or
  // "member[index].argument". Refers to this one.
  Checks in(const char* member, int64_t index = kNoIndex) const& { return {*this, member, index}; }
  Checks in(const char* member, int64_t index = kNoIndex) const&& = delete;

  [[noreturn]] void fail(std::string_view argument, std::string_view text) const {
    refuse(FRT_ERR_INVALID_ARGUMENT, argument, text);
  }
  void require(bool condition, std::string_view argument, std::string_view text) const {
    if (!condition) fail(argument, text);
  }
  // FRT_ERR_UNSUPPORTED: what the operator allows and this backend does not take.
  [[noreturn]] void unsupported(std::string_view argument, std::string_view text) const {
    refuse(FRT_ERR_UNSUPPORTED, argument, text);
  }

  // ---- numbers ---------------------------------------------------------------------------------

  void range(std::string_view argument, int64_t value, int64_t low, int64_t high) const {
    if (value >= low && value <= high) return;
    fail(argument, "is " + std::to_string(value) + ", expected " + std::to_string(low) + " to " +
                       std::to_string(high));
  }
  void positive(std::string_view argument, int64_t value) const {
    if (value <= 0) fail(argument, "is " + std::to_string(value) + ", expected more than 0");
  }
  void at_least(std::string_view argument, int64_t value, int64_t least) const {
    if (value >= least) return;
    fail(argument, "is " + std::to_string(value) + ", expected at least " + std::to_string(least));
  }
  void equal(std::string_view argument, int64_t value, int64_t expected) const {
    if (value == expected) return;
    fail(argument, "is " + std::to_string(value) + ", expected " + std::to_string(expected));
  }
  // `divisor`, which may have a name, is more than 0.
  void multiple(std::string_view argument, int64_t value, int64_t divisor,
                std::string_view name = {}) const {
    if (value % divisor == 0) return;
    fail(argument, "is " + std::to_string(value) + ", expected a multiple of " + std::string(name) +
                       (name.empty() ? "" : ", ") + std::to_string(divisor));
  }
  // The rows of `groups` of `rows`.
  void total_rows(std::string_view argument, int64_t groups, int64_t rows) const {
    require(bounded_product({groups, rows}) <= INT32_MAX, argument, "has 2^31 rows or more");
  }
  void dtype(std::string_view argument, frt_dtype value,
             std::initializer_list<frt_dtype> allowed = {FRT_DTYPE_F32, FRT_DTYPE_BF16}) const {
    if (std::find(allowed.begin(), allowed.end(), value) != allowed.end()) return;
    std::string names;
    for (const frt_dtype one : allowed) {
      names += (names.empty() ? "" : ", ") + std::string(dtype_name(one));
    }
    fail(argument, "is " + std::string(dtype_name(value)) + ", expected " + names);
  }

  // ---- memory ----------------------------------------------------------------------------------

  void pointer(std::string_view argument, const void* value) const {
    if (!value) fail(argument, "is NULL");
  }
  void aligned(std::string_view argument, const void* value, int64_t bytes) const {
    if (reinterpret_cast<std::uintptr_t>(value) % static_cast<std::uintptr_t>(bytes) == 0) return;
    fail(argument, "is not aligned to " + std::to_string(bytes) + " bytes");
  }
  // Elements of a shape whose sizes are not negative: not NULL, aligned to an element, fewer than
  // 2^61 bytes.
  void array(std::string_view argument, const void* data, frt_dtype dtype,
             std::initializer_list<int64_t> shape) const {
    memory(argument, data, dtype_bits(dtype), whole_bytes(dtype), shape);
  }
  template <class T>
  void array(std::string_view argument, const T* data, std::initializer_list<int64_t> shape) const {
    memory(argument, data, 8 * static_cast<int64_t>(sizeof(T)), alignof(T), shape);
  }
  // The same, or NULL.
  void array_or_null(std::string_view argument, const void* data, frt_dtype dtype,
                     std::initializer_list<int64_t> shape) const {
    if (data) array(argument, data, dtype, shape);
  }
  template <class T>
  void array_or_null(std::string_view argument, const T* data,
                     std::initializer_list<int64_t> shape) const {
    if (data) array(argument, data, shape);
  }
  // Rows of `width` elements, `stride` elements from row to row.
  void matrix(std::string_view argument, const void* data, frt_dtype dtype, int64_t rows,
              int64_t width, std::string_view stride_argument, int64_t stride) const {
    at_least(stride_argument, stride, width);
    array(argument, data, dtype, {rows, stride});
  }
  template <class T>
  void matrix(std::string_view argument, const T* data, int64_t rows, int64_t width,
              std::string_view stride_argument, int64_t stride) const {
    at_least(stride_argument, stride, width);
    array(argument, data, {rows, stride});
  }
  // What each slot has, `stride` bytes from slot to slot.
  void slots(std::string_view argument, const void* data, frt_dtype dtype,
             std::initializer_list<int64_t> shape, std::string_view stride_argument,
             int64_t stride) const {
    array(argument, data, dtype, shape);
    slot_stride(stride_argument, stride, dtype, bounded_product(shape));
  }
  void slot_stride(std::string_view argument, int64_t stride, frt_dtype dtype,
                   int64_t elements) const {
    at_least(argument, stride, bounded_product({elements, whole_bytes(dtype)}));
    multiple(argument, stride, whole_bytes(dtype));
  }

  // The bytes of one element as far as alignment goes.
  static int64_t whole_bytes(frt_dtype dtype) noexcept {
    return std::max<int64_t>(1, dtype_bits(dtype) / 8);
  }

  // ---- what operators share --------------------------------------------------------------------

  // Of FP8 values; 0: there are none.
  void scale(std::string_view argument, float value) const {
    require(std::isfinite(value) && value >= 0 && (value == 0 || std::isfinite(1 / value)),
            argument, "is neither 0 nor a positive number with a reciprocal");
  }
  // The same of what is multiplied by `weight`, the argument `name`.
  void scale(std::string_view argument, float value, std::string_view name,
             const frt_weight& weight) const {
    scale(argument, value);
    const WeightType type = weight_type(weight.format);
    if (value == 0 || type == WeightType::kFp8Tensor || type == WeightType::kFp8Channel) return;
    fail(std::string(name) + ".format",
         "is not FP8_TENSOR or FP8_CHANNEL, as " + std::string(argument) + " needs");
  }
  // Of a result that is FP8, which it is only where x is.
  void result_scale(std::string_view argument, float value, std::string_view x_argument,
                    float x_scale) const {
    scale(argument, value);
    if (value == 0 || x_scale > 0) return;
    fail(argument, "is given, and " + std::string(x_argument) + " is not");
  }
  void sequences(const frt_sequences& value) const { in("sequences").sequences_members(value); }

 private:
  static constexpr int64_t kNoIndex = -1;

  Checks(const Checks& outer, const char* member, int64_t index)
      : name_(member), outer_(&outer), index_(index) {}

  [[noreturn]] void refuse(frt_status status, std::string_view argument,
                           std::string_view text) const {
    throw Error(status, where().append(argument).append(" ").append(text));
  }
  std::string where() const {
    if (!outer_) return std::string(name_) + ": ";
    std::string path = outer_->where().append(name_);
    if (index_ != kNoIndex) path.append("[").append(std::to_string(index_)).append("]");
    return path.append(".");
  }
  void memory(std::string_view argument, const void* data, int64_t bits, int64_t alignment,
              std::initializer_list<int64_t> shape) const {
    pointer(argument, data);
    aligned(argument, data, alignment);
    const int64_t elements = bounded_product(shape);
    require((bits > 8 ? bounded_product({elements, bits / 8}) : elements) < kMostBytes, argument,
            "has 2^61 bytes or more");
  }
  void sequences_members(const frt_sequences& value) const {
    positive("count", value.count);
    positive("rows", value.rows);
    total_rows("count", value.count, value.rows);
    array("slot", value.slot, {value.count});
    array("position", value.position, {value.count});
    array("length", value.length, {value.count});
  }

  const char* name_;  // of the operator, or of a member of outer_
  const Checks* outer_ = nullptr;
  int64_t index_ = kNoIndex;
};

}  // namespace frt
