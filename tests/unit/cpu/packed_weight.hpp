// SPDX-License-Identifier: Apache-2.0
// packed_weight.hpp - random weights in every format with the values they stand for, computed
// straight from the definitions in kernels.h, in double.
#pragma once

#include <frt/kernels.h>
#include <frt/ops/moe.h>
#include <frt/weights.hpp>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "cpu_device.hpp"

namespace frt::cpu_test {

inline double bf16_value(uint16_t bits) {
  const uint32_t wide = static_cast<uint32_t>(bits) << 16;
  float value;
  std::memcpy(&value, &wide, sizeof value);
  return value;
}

// To nearest even, for finite values.
inline uint16_t to_bf16(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  if (std::isnan(value)) return 0x7FC0;
  return static_cast<uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

inline double e4m3_value(uint8_t code) {
  if ((code & 0x7F) == 0x7F) return NAN;
  const int exponent = code >> 3 & 15;
  const double mantissa = code & 7;
  const double magnitude =
      exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8.0 + mantissa, exponent - 10);
  return code & 0x80 ? -magnitude : magnitude;
}

inline double e2m1_value(uint8_t nibble) {
  const double magnitudes[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  return nibble & 8 ? -magnitudes[nibble & 7] : magnitudes[nibble & 7];
}

// A tensor of f32 or bf16 values.
struct Tensor {
  frt_dtype dtype = FRT_DTYPE_F32;
  std::vector<float> f32;
  std::vector<uint16_t> bf16;

  Tensor(frt_dtype type, std::size_t count, float fill = 0.0f) : dtype(type) {
    if (type == FRT_DTYPE_F32) {
      f32.assign(count, fill);
    } else {
      bf16.assign(count, to_bf16(fill));
    }
  }
  void* data() { return dtype == FRT_DTYPE_F32 ? static_cast<void*>(f32.data()) : bf16.data(); }
  const void* data() const { return const_cast<Tensor*>(this)->data(); }
  std::size_t size() const { return dtype == FRT_DTYPE_F32 ? f32.size() : bf16.size(); }
  double operator[](std::size_t i) const {
    return dtype == FRT_DTYPE_F32 ? static_cast<double>(f32[i]) : bf16_value(bf16[i]);
  }
  void set(std::size_t i, float value) {
    if (dtype == FRT_DTYPE_F32) {
      f32[i] = value;
    } else {
      bf16[i] = to_bf16(value);
    }
  }
  bool operator==(const Tensor& other) const {  // the same bits
    return dtype == other.dtype && size() == other.size() &&
           (size() == 0 ||
            std::memcmp(data(), other.data(), size() * (dtype == FRT_DTYPE_F32 ? 4 : 2)) == 0);
  }
};

inline Tensor random_tensor(frt_dtype dtype, std::size_t count, uint64_t seed, float span = 1.0f) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<float> values(-span, span);
  Tensor tensor(dtype, count);
  for (std::size_t i = 0; i < count; ++i) tensor.set(i, values(random));
  return tensor;
}

struct Packing {
  std::string name;
  frt_weight_format format;
};

// Those with paths of their own, then some of the general form.
inline const std::vector<Packing>& all_packings() {
  const auto form = [](frt_dtype data, frt_dtype scale, frt_dtype zero, uint32_t rows,
                       uint32_t cols, uint32_t flags = 0) {
    return frt_weight_format{data, scale, zero, rows, cols, 0, flags};
  };
  static const std::vector<Packing> packings = {
      {"f32", FRT_WEIGHT_F32},
      {"bf16", FRT_WEIGHT_BF16},
      {"fp8 blocks 128x128, f32 scales", FRT_WEIGHT_FP8_BLOCK(FRT_DTYPE_F32, 128, 128)},
      {"fp8 blocks 128x128, bf16 scales", FRT_WEIGHT_FP8_BLOCK(FRT_DTYPE_BF16, 128, 128)},
      {"fp8 blocks 3x32", FRT_WEIGHT_FP8_BLOCK(FRT_DTYPE_F32, 3, 32)},
      {"fp8 blocks 5x7", FRT_WEIGHT_FP8_BLOCK(FRT_DTYPE_BF16, 5, 7)},
      {"fp8 blocks 2x1000", FRT_WEIGHT_FP8_BLOCK(FRT_DTYPE_F32, 2, 1000)},
      {"fp8 tensor", FRT_WEIGHT_FP8_TENSOR},
      {"fp8 channel, f32 scales", FRT_WEIGHT_FP8_CHANNEL(FRT_DTYPE_F32)},
      {"fp8 channel, bf16 scales", FRT_WEIGHT_FP8_CHANNEL(FRT_DTYPE_BF16)},
      {"nvfp4", FRT_WEIGHT_NVFP4},
      {"fp8, one scale in memory", FRT_WEIGHT_FP8_BLOCK(FRT_DTYPE_F32, 0, 0)},
      {"u4 with u4 zeros 1x128", form(FRT_DTYPE_U4, FRT_DTYPE_F16, FRT_DTYPE_U4, 1, 128)},
      {"u4 with bf16 zeros 3x7", form(FRT_DTYPE_U4, FRT_DTYPE_BF16, FRT_DTYPE_BF16, 3, 7)},
      {"u8 with the middle zero",
       form(FRT_DTYPE_U8, FRT_DTYPE_F32, FRT_DTYPE_NONE, 0, 32, FRT_WEIGHT_MIDPOINT_ZERO)},
      {"i8 by rows", form(FRT_DTYPE_I8, FRT_DTYPE_F32, FRT_DTYPE_NONE, 1, 0)},
      {"mxfp4", FRT_WEIGHT_MXFP4},
  };
  return packings;
}

inline double f16_value(uint16_t bits) {
  const int exponent = bits >> 10 & 31;
  const double fraction = bits & 1023;
  double magnitude =
      exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
  if (exponent == 31) magnitude = fraction == 0 ? INFINITY : NAN;
  return bits & 0x8000 ? -magnitude : magnitude;
}

// Element `i` of a row of packed elements.
inline double number(frt_dtype dtype, const uint8_t* row, std::size_t i) {
  const auto as = [&](auto value) {
    std::memcpy(&value, row + i * sizeof(value), sizeof(value));
    return value;
  };
  const int nibble = dtype_bits(dtype) == 4 ? row[i / 2] >> (i % 2 * 4) & 15 : 0;
  switch (dtype) {
    case FRT_DTYPE_F32:
      return as(0.0f);
    case FRT_DTYPE_BF16:
      return bf16_value(as(uint16_t{0}));
    case FRT_DTYPE_F16:
      return f16_value(as(uint16_t{0}));
    case FRT_DTYPE_F8_E4M3:
      return e4m3_value(row[i]);
    case FRT_DTYPE_F8_E8M0:
      return row[i] == 255 ? NAN : std::ldexp(1.0, row[i] - 127);
    case FRT_DTYPE_F4_E2M1:
      return e2m1_value(static_cast<uint8_t>(nibble));
    case FRT_DTYPE_U4:
      return nibble;
    case FRT_DTYPE_I4:
      return nibble < 8 ? nibble : nibble - 16;
    case FRT_DTYPE_U8:
      return row[i];
    case FRT_DTYPE_I8:
      return as(int8_t{0});
    default:
      throw Error(FRT_ERR_INTERNAL, "no such weights");
  }
}

// A weight in memory of exactly its size, so that a sanitizer sees every read beyond it.
class PackedWeight {
 public:
  PackedWeight(const Packing& packing, int32_t rows, int32_t cols, uint64_t seed)
      : format_(packing.format), rows_(rows), cols_(cols), random_(seed) {
    const WeightBytes bytes = weight_bytes(format_, rows, cols);
    data_.resize(static_cast<std::size_t>(bytes.data));
    scale_.resize(static_cast<std::size_t>(bytes.scale));
    zero_.resize(static_cast<std::size_t>(bytes.zero));
    fill(format_.data, data_, -1.0f, 1.0f);
    fill(format_.scale, scale_, 0.001f, 0.02f);
    if (format_.scale == FRT_DTYPE_F8_E4M3) {
      for (uint8_t& byte : scale_) byte = static_cast<uint8_t>(random_() % 0x60);
    } else if (format_.scale == FRT_DTYPE_F8_E8M0) {
      for (uint8_t& byte : scale_) byte = static_cast<uint8_t>(117 + random_() % 5);
    }
    fill(format_.zero, zero_, 0.0f, 15.0f);
    if (format_.flags & FRT_WEIGHT_GLOBAL_SCALE) global_ = 0.011f;
    values_.resize(static_cast<std::size_t>(rows) * static_cast<std::size_t>(cols));
    refresh();
  }

  frt_weight weight() const {
    frt_weight weight{};
    weight.format = format_;
    weight.rows = rows_;
    weight.cols = cols_;
    weight.data = data_.data();
    weight.scale = scale_.empty() ? nullptr : scale_.data();
    weight.zero = zero_.empty() ? nullptr : zero_.data();
    weight.global_scale = global_;
    return weight;
  }

  double value(int32_t row, int32_t col) const {
    return values_[static_cast<std::size_t>(row) * static_cast<std::size_t>(cols_) +
                   static_cast<std::size_t>(col)];
  }
  int32_t rows() const { return rows_; }
  int32_t cols() const { return cols_; }

  std::vector<uint8_t>& data() { return data_; }
  std::vector<uint8_t>& scale() { return scale_; }
  std::vector<uint8_t>& zero() { return zero_; }

  // Computes the values again after a test has changed data or scales.
  void refresh() {
    for (int32_t r = 0; r < rows_; ++r) {
      for (int32_t c = 0; c < cols_; ++c) {
        values_[static_cast<std::size_t>(r) * static_cast<std::size_t>(cols_) +
                static_cast<std::size_t>(c)] = decode(r, c);
      }
    }
  }

 private:
  // Floats in [low, high), every finite code of a smaller type.
  void fill(frt_dtype dtype, std::vector<uint8_t>& bytes, float low, float high) {
    if (dtype == FRT_DTYPE_F32 || dtype == FRT_DTYPE_BF16 || dtype == FRT_DTYPE_F16) {
      std::uniform_real_distribution<float> uniform(low, high);
      const std::size_t size = dtype_bits(dtype) / 8;
      for (std::size_t i = 0; i < bytes.size(); i += size) {
        const float value = uniform(random_);
        if (size == 4) {
          std::memcpy(&bytes[i], &value, 4);
        } else {
          const uint16_t code =
              dtype == FRT_DTYPE_BF16
                  ? to_bf16(value)
                  : static_cast<uint16_t>(std::lround(std::ldexp(value, 10)) % 1024 + 0x2000);
          std::memcpy(&bytes[i], &code, 2);
        }
      }
      return;
    }
    for (uint8_t& byte : bytes) {
      do {
        byte = static_cast<uint8_t>(random_());
      } while (dtype == FRT_DTYPE_F8_E4M3 && (byte & 0x7F) == 0x7F);
    }
  }

  double decode(int32_t r, int32_t c) const {
    const int32_t group_rows =
        format_.group_rows > 0 ? static_cast<int32_t>(format_.group_rows) : rows_;
    const int32_t group_cols =
        format_.group_cols > 0 ? static_cast<int32_t>(format_.group_cols) : cols_;
    const int32_t groups = (cols_ + group_cols - 1) / group_cols;
    const auto at = [](frt_dtype dtype, const std::vector<uint8_t>& bytes, int32_t row,
                       int32_t columns, int32_t col) {
      return number(dtype, bytes.data() + row * row_bytes(dtype, columns),
                    static_cast<std::size_t>(col));
    };
    double value = at(format_.data, data_, r, cols_, c);
    const int32_t group_row = r / group_rows, group = c / group_cols;
    if (!zero_.empty()) value -= at(format_.zero, zero_, group_row, groups, group);
    if (format_.flags & FRT_WEIGHT_MIDPOINT_ZERO) value -= dtype_bits(format_.data) == 4 ? 8 : 128;
    if (!scale_.empty()) value *= at(format_.scale, scale_, group_row, groups, group);
    return value * static_cast<double>(global_);
  }

  frt_weight_format format_;
  int32_t rows_, cols_;
  std::mt19937_64 random_;
  std::vector<uint8_t> data_, scale_, zero_;
  float global_ = 1.0f;
  std::vector<double> values_;
};

// The device options one machine can test: every instruction set it has, and the reference
// numerics.
inline std::vector<CpuOptions> all_setups() {
  std::vector<CpuOptions> setups = {{.threads = 2, .numerics = "reference"}};
  for (const char* isa : {"portable", "avx2", "avx512", "avx512-bf16"}) {
    const CpuOptions options{.threads = 2, .isa = isa};
    try {
      const CpuDevice device(options);
      setups.push_back(options);
    } catch (const Error& error) {
      if (error.status() != FRT_ERR_UNSUPPORTED) throw;
    }
  }
  return setups;
}

inline std::string describe(const CpuOptions& options) {
  return options.numerics + " numerics, isa " + options.isa;
}

}  // namespace frt::cpu_test
