// SPDX-License-Identifier: Apache-2.0
// packed_weight.hpp - random weights in every format with the values they stand for, computed
// straight from the definitions in kernels.h, in double.
#pragma once

#include <frt/kernels.h>
#include <frt/ops/moe.h>

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

// A format with its free choices.
struct Packing {
  std::string name;
  frt_weight_format format;
  frt_dtype scale_dtype = FRT_DTYPE_NONE;
  int32_t block_rows = 0, block_cols = 0;
};

inline const std::vector<Packing>& all_packings() {
  static const std::vector<Packing> packings = {
      {"f32", FRT_WEIGHT_F32},
      {"bf16", FRT_WEIGHT_BF16},
      {"fp8 blocks 128x128, f32 scales", FRT_WEIGHT_FP8_BLOCK, FRT_DTYPE_F32, 128, 128},
      {"fp8 blocks 128x128, bf16 scales", FRT_WEIGHT_FP8_BLOCK, FRT_DTYPE_BF16, 128, 128},
      {"fp8 blocks 3x32", FRT_WEIGHT_FP8_BLOCK, FRT_DTYPE_F32, 3, 32},
      {"fp8 blocks 5x7", FRT_WEIGHT_FP8_BLOCK, FRT_DTYPE_BF16, 5, 7},
      {"fp8 blocks 2x1000", FRT_WEIGHT_FP8_BLOCK, FRT_DTYPE_F32, 2, 1000},
      {"fp8 tensor", FRT_WEIGHT_FP8_TENSOR},
      {"fp8 channel, f32 scales", FRT_WEIGHT_FP8_CHANNEL, FRT_DTYPE_F32},
      {"fp8 channel, bf16 scales", FRT_WEIGHT_FP8_CHANNEL, FRT_DTYPE_BF16},
      {"nvfp4", FRT_WEIGHT_NVFP4, FRT_DTYPE_F8_E4M3},
  };
  return packings;
}

// A weight in memory of exactly its size, so that a sanitizer sees every read beyond it.
class PackedWeight {
 public:
  PackedWeight(const Packing& packing, int32_t rows, int32_t cols, uint64_t seed)
      : packing_(packing), rows_(rows), cols_(cols), random_(seed) {
    const std::size_t count = static_cast<std::size_t>(rows) * static_cast<std::size_t>(cols);
    values_.resize(count);
    std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
    switch (packing.format) {
      case FRT_WEIGHT_F32:
        data_.resize(count * 4);
        for (std::size_t i = 0; i < count; ++i) {
          const float value = uniform(random_);
          std::memcpy(data_.data() + i * 4, &value, 4);
        }
        break;
      case FRT_WEIGHT_BF16:
        data_.resize(count * 2);
        for (std::size_t i = 0; i < count; ++i) {
          const uint16_t value = to_bf16(uniform(random_));
          std::memcpy(data_.data() + i * 2, &value, 2);
        }
        break;
      case FRT_WEIGHT_NVFP4:
        data_.resize(count / 2);
        for (uint8_t& byte : data_) byte = static_cast<uint8_t>(random_());
        scale_.resize(count / 16);
        for (uint8_t& byte : scale_) byte = static_cast<uint8_t>(random_() % 0x60);
        global_ = 0.0125f;
        break;
      default:
        data_.resize(count);
        for (uint8_t& byte : data_) {
          do {
            byte = static_cast<uint8_t>(random_());
          } while ((byte & 0x7F) == 0x7F);
        }
        if (packing.format == FRT_WEIGHT_FP8_TENSOR) global_ = 0.0078125f * 1.3f;
        if (packing.format == FRT_WEIGHT_FP8_CHANNEL) fill_scales(rows);
        if (packing.format == FRT_WEIGHT_FP8_BLOCK) fill_scales(scale_rows() * scale_cols());
        break;
    }
    refresh();
  }

  frt_weight weight() const {
    frt_weight weight{};
    weight.format = packing_.format;
    weight.scale_dtype = packing_.scale_dtype;
    weight.rows = rows_;
    weight.cols = cols_;
    weight.data = data_.data();
    weight.scale = scale_.empty() ? nullptr : scale_.data();
    weight.block_rows = packing_.block_rows;
    weight.block_cols = packing_.block_cols;
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
  int32_t scale_rows() const { return (rows_ + packing_.block_rows - 1) / packing_.block_rows; }
  int32_t scale_cols() const { return (cols_ + packing_.block_cols - 1) / packing_.block_cols; }

  void fill_scales(int32_t count) {
    std::uniform_real_distribution<float> uniform(0.001f, 0.02f);
    for (int32_t i = 0; i < count; ++i) {
      const float value = uniform(random_);
      const uint16_t rounded = to_bf16(value);
      const auto* bytes = packing_.scale_dtype == FRT_DTYPE_F32
                              ? reinterpret_cast<const uint8_t*>(&value)
                              : reinterpret_cast<const uint8_t*>(&rounded);
      scale_.insert(scale_.end(), bytes, bytes + (packing_.scale_dtype == FRT_DTYPE_F32 ? 4 : 2));
    }
  }

  double scale_at(std::size_t i) const {
    if (packing_.scale_dtype == FRT_DTYPE_F32) {
      float value;
      std::memcpy(&value, scale_.data() + i * 4, 4);
      return value;
    }
    uint16_t value;
    std::memcpy(&value, scale_.data() + i * 2, 2);
    return bf16_value(value);
  }

  double decode(int32_t r, int32_t c) const {
    const std::size_t i =
        static_cast<std::size_t>(r) * static_cast<std::size_t>(cols_) + static_cast<std::size_t>(c);
    switch (packing_.format) {
      case FRT_WEIGHT_F32: {
        float value;
        std::memcpy(&value, data_.data() + i * 4, 4);
        return value;
      }
      case FRT_WEIGHT_BF16: {
        uint16_t value;
        std::memcpy(&value, data_.data() + i * 2, 2);
        return bf16_value(value);
      }
      case FRT_WEIGHT_FP8_BLOCK:
        return e4m3_value(data_[i]) *
               scale_at(static_cast<std::size_t>(r / packing_.block_rows * scale_cols() +
                                                 c / packing_.block_cols));
      case FRT_WEIGHT_FP8_TENSOR:
        return e4m3_value(data_[i]) * static_cast<double>(global_);
      case FRT_WEIGHT_FP8_CHANNEL:
        return e4m3_value(data_[i]) * scale_at(static_cast<std::size_t>(r));
      default:
        return e2m1_value(static_cast<uint8_t>(data_[i / 2] >> (i % 2 * 4) & 15)) *
               e4m3_value(scale_[i / 16]) * static_cast<double>(global_);
    }
  }

  Packing packing_;
  int32_t rows_, cols_;
  std::mt19937_64 random_;
  std::vector<uint8_t> data_;
  std::vector<uint8_t> scale_;
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
