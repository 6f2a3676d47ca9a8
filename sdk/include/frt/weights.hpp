// SPDX-License-Identifier: Apache-2.0
// frt/weights.hpp - weight formats (frt/kernels.h) in C++: comparing, matching, sizes, words.
// Header-only.
#pragma once

#include <frt/kernels.h>
#include <frt/error.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <vector>

// Outside frt:: because the type is: found by argument-dependent look-up.
constexpr bool operator==(const frt_weight_format& a, const frt_weight_format& b) noexcept {
  return a.data == b.data && a.scale == b.scale && a.zero == b.zero &&
         a.group_rows == b.group_rows && a.group_cols == b.group_cols && a.layout == b.layout &&
         a.flags == b.flags;
}

namespace frt {

inline constexpr frt_weight_format kWeightF32 = FRT_WEIGHT_F32;
inline constexpr frt_weight_format kWeightBf16 = FRT_WEIGHT_BF16;
inline constexpr frt_weight_format kWeightFp8Tensor = FRT_WEIGHT_FP8_TENSOR;
inline constexpr frt_weight_format kWeightNvfp4 = FRT_WEIGHT_NVFP4;

// Rounded to a byte at the end of a row.  [any]
inline int64_t row_bytes(frt_dtype dtype, int64_t count) noexcept {
  return (count * static_cast<int64_t>(dtype_bits(dtype)) + 7) / 8;
}

// ---- the families that code has paths of their own for -----------------------------------------

enum class WeightType : uint32_t {
  kF32,
  kBf16,
  kFp8Block,    // scales of f32 or bf16, in groups of any shape but kFp8Channel's
  kFp8Tensor,   // the global scale alone
  kFp8Channel,  // one scale of f32 or bf16 per row
  kNvfp4,
  kOther,
};
inline constexpr std::size_t kWeightTypes = 7;

// [any]
constexpr WeightType weight_type(const frt_weight_format& format) noexcept {
  if (format == kWeightF32) return WeightType::kF32;
  if (format == kWeightBf16) return WeightType::kBf16;
  if (format == kWeightFp8Tensor) return WeightType::kFp8Tensor;
  if (format == kWeightNvfp4) return WeightType::kNvfp4;
  const frt_weight_format fp8 =
      FRT_WEIGHT_FP8_BLOCK(format.scale, format.group_rows, format.group_cols);
  if (!(format == fp8) || (format.scale != FRT_DTYPE_F32 && format.scale != FRT_DTYPE_BF16)) {
    return WeightType::kOther;
  }
  return format.group_rows == 1 && format.group_cols == 0 ? WeightType::kFp8Channel
                                                          : WeightType::kFp8Block;
}

// ---- matching ----------------------------------------------------------------------------------

// Whether `pattern`, where FRT_WEIGHT_ANY fits every value, fits `format`.  [any]
constexpr bool weight_fits(const frt_weight_format& pattern,
                           const frt_weight_format& format) noexcept {
  const auto one = [](uint32_t wanted, uint32_t value) {
    return wanted == FRT_WEIGHT_ANY || wanted == value;
  };
  return one(pattern.data, format.data) && one(pattern.scale, format.scale) &&
         one(pattern.zero, format.zero) && one(pattern.group_rows, format.group_rows) &&
         one(pattern.group_cols, format.group_cols) && one(pattern.layout, format.layout) &&
         one(pattern.flags, format.flags);
}

// Whether a kernel with these patterns takes `format`; without patterns it takes every one.  [any]
constexpr bool weight_taken(std::span<const frt_weight_format> patterns,
                            const frt_weight_format& format) noexcept {
  if (patterns.empty()) return true;
  for (const frt_weight_format& pattern : patterns) {
    if (weight_fits(pattern, format)) return true;
  }
  return false;
}

// The formats of a model, each once.
class WeightFormats {
 public:
  WeightFormats() = default;
  WeightFormats(const frt_weight_format& one) : formats_{one} {}
  WeightFormats(std::initializer_list<frt_weight_format> formats) {
    for (const frt_weight_format& one : formats) add(one);
  }
  void add(const frt_weight_format& format) {
    if (std::find(formats_.begin(), formats_.end(), format) == formats_.end()) {
      formats_.push_back(format);
    }
  }
  const frt_weight_format* data() const noexcept { return formats_.data(); }
  std::size_t size() const noexcept { return formats_.size(); }
  auto begin() const noexcept { return formats_.begin(); }
  auto end() const noexcept { return formats_.end(); }
  bool operator==(const WeightFormats&) const = default;

 private:
  std::vector<frt_weight_format> formats_;
};

// ---- sizes -------------------------------------------------------------------------------------

inline constexpr int64_t kMostBytes = INT64_MAX / 4;  // 2^61 - 1: no memory has as many

// The product of sizes, at most kMostBytes; that also where one is negative.  [any]
inline int64_t bounded_product(std::initializer_list<int64_t> factors) noexcept {
  int64_t all = 1;
  bool many = false;
  for (const int64_t factor : factors) {
    if (factor == 0) return 0;
    many = many || factor < 0 || __builtin_mul_overflow(all, factor, &all) || all > kMostBytes;
  }
  return many ? kMostBytes : all;
}

struct WeightBytes {
  int64_t data = 0, scale = 0, zero = 0;
  int64_t total() const noexcept { return data + scale + zero; }
};

// Of the three matrices of a row-major weight.  [any]
inline WeightBytes weight_bytes(const frt_weight_format& format, int64_t rows,
                                int64_t cols) noexcept {
  const auto groups = [](int64_t size, uint32_t group) {
    return group == 0 ? int64_t{size > 0} : (size + group - 1) / group;
  };
  const int64_t down = groups(rows, format.group_rows), across = groups(cols, format.group_cols);
  return {bounded_product({rows, row_bytes(format.data, cols)}),
          bounded_product({down, row_bytes(format.scale, across)}),
          bounded_product({down, row_bytes(format.zero, across)})};
}

// ---- words -------------------------------------------------------------------------------------

// "f32", "bf16", "fp8-block", "fp8-tensor", "fp8-channel", "nvfp4"; of another format the types of
// its data and scales, "u4-f16".  [any]
inline std::string weight_name(const frt_weight_format& format) {
  static constexpr const char* kNames[kWeightTypes - 1] = {"f32",        "bf16",        "fp8-block",
                                                           "fp8-tensor", "fp8-channel", "nvfp4"};
  const WeightType type = weight_type(format);
  if (type != WeightType::kOther) return kNames[static_cast<std::size_t>(type)];
  const std::string name = dtype_name(format.data);
  return format.scale == FRT_DTYPE_NONE ? name : name + "-" + dtype_name(format.scale);
}

// A format or a pattern: "bf16", "4-bit e2m1 in groups of 16 with f8_e4m3 scales and a global
// scale", "f8_e4m3 in blocks of 128 x 128 with f32 scales".  [any]
inline std::string weight_text(const frt_weight_format& format) {
  const auto type = [](frt_dtype dtype) {
    return dtype == FRT_WEIGHT_ANY ? std::string("any") : std::string(dtype_name(dtype));
  };
  const auto size = [](uint32_t group, const char* all) {
    return group == FRT_WEIGHT_ANY ? std::string("any size")
           : group == 0            ? std::string(all)
                                   : std::to_string(group);
  };
  std::string text = format.data == FRT_DTYPE_F4_E2M1 ? "4-bit e2m1"
                     : format.data == FRT_DTYPE_U4    ? "4-bit unsigned"
                     : format.data == FRT_DTYPE_I4    ? "4-bit signed"
                                                      : type(format.data);
  const bool scale = format.scale != FRT_DTYPE_NONE, zero = format.zero != FRT_DTYPE_NONE;
  if (scale || zero) {
    const uint32_t rows = format.group_rows, cols = format.group_cols;
    if (rows == FRT_WEIGHT_ANY && cols == FRT_WEIGHT_ANY) {
      text += " in groups of any size";
    } else if (rows == 1 && cols == 0) {
      text += " by rows";
    } else if (rows == 1) {
      text += " in groups of " + size(cols, "");
    } else if (rows != 0 || cols != 0) {
      text += " in blocks of " + size(rows, "all rows") + " x " + size(cols, "all columns");
    }
  }
  std::vector<std::string> parts;
  if (scale) parts.push_back(type(format.scale) + " scales");
  if (zero) parts.push_back(type(format.zero) + " zero points");
  const bool any_flags = format.flags == FRT_WEIGHT_ANY;
  if (any_flags) parts.emplace_back("any flags");
  if (!any_flags && (format.flags & FRT_WEIGHT_GLOBAL_SCALE)) parts.emplace_back("a global scale");
  if (!any_flags && (format.flags & FRT_WEIGHT_MIDPOINT_ZERO)) {
    parts.emplace_back("its zero point at the midpoint");
  }
  const uint32_t unknown = format.flags & ~(FRT_WEIGHT_GLOBAL_SCALE | FRT_WEIGHT_MIDPOINT_ZERO);
  if (!any_flags && unknown != 0) parts.push_back("unknown flags " + std::to_string(unknown));
  for (std::size_t i = 0; i < parts.size(); ++i) {
    text += (i == 0 ? " with " : i + 1 == parts.size() ? " and " : ", ") + parts[i];
  }
  if (format.layout == FRT_WEIGHT_ANY) return text + ", any layout";
  return format.layout == 0 ? text : text + ", layout " + std::to_string(format.layout);
}

// Formats or patterns, with commas between them.  [any]
inline std::string weight_texts(std::span<const frt_weight_format> formats) {
  std::string text;
  for (const frt_weight_format& format : formats) {
    text += (text.empty() ? "" : ", ") + weight_text(format);
  }
  return text;
}

}  // namespace frt
