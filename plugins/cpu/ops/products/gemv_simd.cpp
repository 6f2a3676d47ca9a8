// SPDX-License-Identifier: Apache-2.0
// GEMV with vectors of f32, and the dequantisation of weight tiles, for every Highway target.
//
// Four (or two) weight rows at a time: each vector of activations is used for all of them, and
// their running sums hide the latency of the multiply-add. BF16 weights are converted on
// load; the quantised formats are dequantised 256 columns at a time into a buffer that stays in L1.
//
// A running sum is one vector of 16 values (or the equivalent in smaller vectors): column k always
// meets lane k % 16 at step k / 16, so the number of rows computed together cannot matter.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/products/gemv_simd.cpp"
#include <hwy/foreach_target.h>  // compiles this file once per target

#include <hwy/cache_control.h>

#include <algorithm>
#include <cstring>

#include "../simd-inl.hpp"
#include "dequantise.hpp"
#include "gemv.hpp"
#include "groups.hpp"
#include "weight.hpp"

HWY_BEFORE_NAMESPACE();
namespace frt::cpu {
namespace HWY_NAMESPACE {
namespace {

constexpr int64_t kStep = 16;
constexpr int64_t kChunk = 256;

using D = hn::CappedTag<float, 16>;
using V = hn::Vec<D>;
constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(D()));
constexpr int64_t kVectors = kStep / kLanes;

// ---- dequantisation --------------------------------------------------------------------------

alignas(16) constexpr int8_t kTwiceE2m1[16] = {0, 1,  2,  3,  4,  6,  8,  12,
                                               0, -1, -2, -3, -4, -6, -8, -12};

// The 16 E2M1 values of 8 bytes, times 2, as signed bytes.
HWY_INLINE void unpack_e2m1(const uint8_t* bytes, int8_t* twice) {
#if HWY_TARGET == HWY_SCALAR
  for (int64_t i = 0; i < kStep; ++i) twice[i] = kTwiceE2m1[bytes[i / 2] >> (i % 2 * 4) & 15];
#else
  const hn::Full128<uint8_t> d8;
  const hn::Full128<int8_t> di8;
  uint64_t word;
  std::memcpy(&word, bytes, sizeof word);
  const auto packed = hn::BitCast(d8, hn::Set(hn::Full128<uint64_t>(), word));
  const auto mask = hn::Set(d8, uint8_t{15});
  const auto high = hn::And(hn::ShiftRight<4>(packed), mask);
  const auto codes = hn::InterleaveLower(d8, hn::And(packed, mask), high);
  const auto table = hn::Load(di8, kTwiceE2m1);
  hn::Store(hn::TableLookupBytes(table, hn::BitCast(di8, codes)), di8, twice);
#endif
}

// 16 values of a group with their scale.
HWY_INLINE void dequantise_group(const uint8_t* bytes, float scale, float* out) {
  const D d;
  const hn::Rebind<int32_t, D> di;
  const hn::Rebind<int8_t, D> narrow;
  alignas(16) int8_t twice[16];
  unpack_e2m1(bytes, twice);
  const V factor = hn::Set(d, 0.5f * scale);
  for (int64_t i = 0; i < kStep; i += kLanes) {
    const auto integers = hn::PromoteTo(di, hn::LoadU(narrow, twice + i));
    hn::StoreU(hn::Mul(hn::ConvertTo(d, integers), factor), d, out + i);
  }
}

void dequantise_fp4(const Weight& weight, int64_t row, int64_t first, int64_t count, float* out) {
  const uint8_t* data = weight_row(weight, row) + first / 2;
  const uint8_t* scales = group_scales(weight, row) + first / kFp4Group;
  for (int64_t i = 0; i < count; i += kStep) {
    dequantise_group(data + i / 2, e4m3_to_float(scales[i / kStep]), out + i);
  }
}

// `count` E4M3 values times `scale`.
HWY_INLINE void dequantise_e4m3(const uint8_t* data, int64_t count, float scale, float* out) {
  for_lanes(static_cast<std::size_t>(count), [&](auto d, std::size_t i) HWY_ATTR {
    hn::StoreU(hn::Mul(load(d, data + i), hn::Set(d, scale)), d, out + i);
  });
}

void dequantise_fp8(const Weight& weight, int64_t row, int64_t first, int64_t count, float* out) {
  const uint8_t* data = weight_row(weight, row);
  if (weight.type != WeightType::kFp8Block) return dequantise_e4m3(data + first, count, 1.0f, out);
  const int64_t end = first + count;
  for (int64_t k = first; k < end;) {
    const int64_t next = std::min(end, (k / weight.block_cols + 1) * weight.block_cols);
    dequantise_e4m3(data + k, next - k, block_scale(weight, row, k), out + k - first);
    k = next;
  }
}

// ---- products --------------------------------------------------------------------------------

// Where a weight row's values come from, for columns of one chunk: get(k, k - chunk) gives a vector
// from column k on; rest() the last values of a row, fewer than kStep, and zeros.
template <class T>
struct Direct {  // T: float, or uint16_t for bf16
  const T* row;
  void start(const Weight& weight, int64_t index) {
    row = reinterpret_cast<const T*>(weight_row(weight, index));
  }
  HWY_INLINE void enter(const Weight&, int64_t, int64_t, int64_t) {}
  HWY_INLINE V get(int64_t k, int64_t) const { return load(D(), row + k); }
  HWY_INLINE void rest(int64_t k, int64_t, int64_t count, float* out) const {
    T values[kStep] = {};
    std::memcpy(values, row + k, static_cast<std::size_t>(count) * sizeof(T));
    for (int64_t i = 0; i < kStep; i += kLanes) hn::StoreU(load(D(), values + i), D(), out + i);
  }
};

struct Buffered {  // all others
  alignas(64) float values[kChunk];
  void start(const Weight&, int64_t) {}
  void enter(const Weight& weight, int64_t index, int64_t first, int64_t count) {
    if (weight.type == WeightType::kNvfp4) {
      dequantise_fp4(weight, index, first, count, values);
    } else if (weight.type == WeightType::kOther) {
      dequantise_groups(weight, index, first, count, values);
    } else {
      dequantise_fp8(weight, index, first, count, values);
    }
  }
  HWY_INLINE V get(int64_t, int64_t in_chunk) const { return hn::LoadU(D(), values + in_chunk); }
  HWY_INLINE void rest(int64_t, int64_t in_chunk, int64_t count, float* out) const {
    for (int64_t i = 0; i < kStep; ++i) out[i] = i < count ? values[in_chunk + i] : 0.0f;
  }
};

// kWeights weight rows, of which `count` are wanted, times kRows panel rows, of which `rows` are.
// The others are the last one again.
template <class Source, int kWeights, int kRows>
HWY_NOINLINE void multiply(const Weight& weight, int64_t first, int64_t count,
                           const float* const* x, int64_t ahead, float* out, int64_t out_stride,
                           int64_t rows) {
  const D d;
  Source sources[kWeights];
  int64_t index[kWeights];
  V sums[kWeights][kRows];
  for (int j = 0; j < kWeights; ++j) {
    index[j] = first + (j < count ? j : count - 1);
    sources[j].start(weight, index[j]);
    for (int m = 0; m < kRows; ++m) sums[j][m] = hn::Zero(d);
  }
  // The rows of a group lie one after another, and so does the next group: while one is read at
  // kWeights places, what follows is fetched in the order of memory.
  const uint8_t* next = weight_row(weight, first) + ahead;
  const int64_t step_bytes = packed_bytes(weight, kStep) * kWeights;
  const int64_t cols = weight.cols;
  for (int64_t chunk = 0; chunk < cols; chunk += kChunk) {
    const int64_t length = std::min<int64_t>(kChunk, cols - chunk);
    for (int j = 0; j < kWeights; ++j) sources[j].enter(weight, index[j], chunk, length);
    int64_t i = 0;
    for (; i + kStep <= length; i += kStep) {
      for (int64_t byte = 0; byte < step_bytes; byte += 64) hwy::Prefetch(next + byte);
      next += step_bytes;
      for (int64_t lane = 0; lane < kStep; lane += kLanes) {
        V w[kWeights];
        for (int j = 0; j < kWeights; ++j) w[j] = sources[j].get(chunk + i + lane, i + lane);
        for (int m = 0; m < kRows; ++m) {
          const V value = hn::LoadU(d, x[m] + chunk + i + lane);
          for (int j = 0; j < kWeights; ++j) sums[j][m] = hn::MulAdd(w[j], value, sums[j][m]);
        }
      }
    }
    if (i == length) continue;
    for (int j = 0; j < kWeights; ++j) {
      alignas(64) float rest[kStep];
      sources[j].rest(chunk + i, i, length - i, rest);
      for (int m = 0; m < kRows; ++m) {
        for (int64_t lane = 0; lane < kStep; lane += kLanes) {
          const V value = hn::LoadU(d, x[m] + chunk + i + lane);
          sums[j][m] = hn::MulAdd(hn::Load(d, rest + lane), value, sums[j][m]);
        }
      }
    }
  }
  for (int j = 0; j < kWeights && j < count; ++j) {
    const float scale = row_scale(weight, index[j]);
    for (int m = 0; m < kRows && m < rows; ++m) {
      out[m * out_stride + j] = hn::GetLane(hn::SumOfLanes(d, sums[j][m])) * scale;
    }
  }
}

template <class Source, int kWeights, int kRows>
void multiply_tile(const Weight& weight, int64_t first, int64_t count, const float* const* x,
                   float* out, int64_t out_stride, int64_t rows) {
  const int64_t group = kWeights * packed_bytes(weight, weight.cols);
  for (int64_t n = 0; n < count; n += kWeights) {
    multiply<Source, kWeights, kRows>(weight, first + n, std::min<int64_t>(kWeights, count - n), x,
                                      group, out + n, out_stride, rows);
  }
}

template <class Source>
void gemv(const Weight& weight, int64_t first, int64_t count, const void* const* panel,
          int64_t rows, float* out, int64_t out_stride) noexcept {
  for (int64_t done = 0; done < rows;) {
    const int64_t left = rows - done;
    const float* x[8];
    for (int64_t m = 0; m < 8; ++m) {  // beyond the end: the last row again, result dropped
      x[m] = static_cast<const float*>(panel[done + std::min(m, left - 1)]);
    }
    float* to = out + done * out_stride;
    // Sums: 4 x 1, 4 x 2 or 2 x 4 fit into 16 registers, 2 x 8 into 32.
    if (left == 1) {
      multiply_tile<Source, 4, 1>(weight, first, count, x, to, out_stride, 1);
      done += 1;
    } else if (left == 2) {
      multiply_tile<Source, 4, 2>(weight, first, count, x, to, out_stride, 2);
      done += 2;
    } else if (kVectors > 1 || left <= 4) {
      multiply_tile<Source, 2, 4>(weight, first, count, x, to, out_stride, left);
      done += 4;
    } else if constexpr (kVectors == 1) {
      multiply_tile<Source, 2, 8>(weight, first, count, x, to, out_stride, left);
      done += 8;
    }
  }
}

GemvFunction select_gemv(WeightType type) {
  switch (type) {
    case WeightType::kF32:
      return gemv<Direct<float>>;
    case WeightType::kBf16:
      return gemv<Direct<uint16_t>>;
    default:
      return gemv<Buffered>;
  }
}

// ---- tiles -----------------------------------------------------------------------------------

void dequantise_row(const Weight& weight, int64_t row, int64_t first, int64_t count, float* out) {
  switch (weight.type) {
    case WeightType::kF32:
      std::copy_n(reinterpret_cast<const float*>(weight_row(weight, row)) + first, count, out);
      break;
    case WeightType::kBf16: {
      const auto* from = reinterpret_cast<const uint16_t*>(weight_row(weight, row)) + first;
      for_lanes(static_cast<std::size_t>(count),
                [&](auto d, std::size_t i) HWY_ATTR { hn::StoreU(load(d, from + i), d, out + i); });
      break;
    }
    case WeightType::kNvfp4:
      dequantise_fp4(weight, row, first, count, out);
      break;
    case WeightType::kOther:
      dequantise_groups(weight, row, first, count, out);
      break;
    default:
      dequantise_fp8(weight, row, first, count, out);
      break;
  }
}

void dequantise_tile(const Weight& weight, int64_t first, int64_t count, frt_dtype dtype,
                     void* tile) noexcept {
  const int64_t cols = weight.cols;
  for (int64_t n = 0; n < count; ++n) {
    if (dtype == FRT_DTYPE_F32) {
      dequantise_row(weight, first + n, 0, cols, static_cast<float*>(tile) + n * cols);
      continue;
    }
    uint16_t* to = static_cast<uint16_t*>(tile) + n * cols;
    for (int64_t k = 0; k < cols; k += kChunk) {
      alignas(64) float values[kChunk];
      const int64_t length = std::min<int64_t>(kChunk, cols - k);
      dequantise_row(weight, first + n, k, length, values);
      for_lanes(static_cast<std::size_t>(length), [&](auto d, std::size_t i) HWY_ATTR {
        store(d, hn::LoadU(d, values + i), to + k + i);
      });
    }
  }
}

DequantiseFunction select_dequantise() {
  return dequantise_tile;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace frt::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace frt::cpu {

HWY_EXPORT(select_gemv);
HWY_EXPORT(select_dequantise);

GemvFunction gemv_simd_function(WeightType type) {
  return HWY_DYNAMIC_DISPATCH(select_gemv)(type);
}

DequantiseFunction dequantise_function() {
  return HWY_DYNAMIC_DISPATCH(select_dequantise)();
}

}  // namespace frt::cpu
#endif  // HWY_ONCE
