// SPDX-License-Identifier: Apache-2.0
// GEMV of bf16 activations with the AVX512_BF16 instruction VDPBF16PS: 32 products and
// 16 sums of pairs per instruction, f32 sums. Weights become bf16 values exactly; scales are
// applied to f32 sums.
//
//   BF16    as they are.
//   FP8     64 bytes at a time through two byte permutations (VPERMI2B, AVX512_VBMI): magnitude ->
//           upper byte and lower byte of the bf16, NaN included. Sums of a column block are
//           multiplied by its scale and added to the row's.
//   NVFP4   64 bytes at a time, as 32 words of four nibbles, each of which indexes a table of bf16
//           (VPERMW). One 128-column step is eight groups; lane i of the sum belongs to group i
//           / 2.
//
// Per (activation row, weight row) the order of additions is fixed by the columns alone. The
// functions carry their target in an attribute; gemv_bf16_kernel hands them out only where the
// machine has the instructions.
#include "gemv.hpp"
#include "weight.hpp"

#if defined(__x86_64__)
#if defined(__GNUC__) && !defined(__clang__)
// The intrinsics of GCC 12 start from deliberately undefined registers, which it then reports
// (GCC bug 105593). The state at the point of inclusion counts.
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>

#include <algorithm>
#include <array>

#define FRT_BF16_TARGET \
  __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx512vbmi,fma,f16c")))
#define FRT_BF16_INLINE FRT_BF16_TARGET __attribute__((always_inline)) inline

namespace frt::cpu {
namespace {

constexpr int64_t kBlock = 64;  // columns per step, and of the panel's padding

FRT_BF16_INLINE __m512 dot(__m512 sum, __m512i a, __m512i b) {
  return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
}

template <int kWeights, int kRows>
FRT_BF16_INLINE void clear(__m512 (&sums)[kWeights][kRows]) {
  for (auto& row : sums) {
    for (__m512& sum : row) sum = _mm512_setzero_ps();
  }
}

// Fetches kBytes from `p` on. The rows computed together lie one after another in memory, and so
// do the next ones: while a step reads kBytes at as many places as there are rows, the same number
// of bytes of what follows is fetched in the order of memory.
template <int kBytes>
FRT_BF16_INLINE void prefetch(const uint8_t* p) {
  for (int i = 0; i < kBytes; i += 64) {
    _mm_prefetch(reinterpret_cast<const char*>(p) + i, _MM_HINT_T0);
  }
}

// ---- BF16 ------------------------------------------------------------------------------------

struct Bf16Rows {
  static constexpr PanelKind kPanel = PanelKind::kBf16;
  static constexpr int kWeightsFor8 = 2;  // weight rows at a time beside 8 activation rows

  template <int kWeights, int kRows>
  FRT_BF16_TARGET static void multiply(const Weight& weight, int64_t index, const uint8_t* const* x,
                                       int64_t ahead, float (&out)[kWeights][kRows]) {
    const int64_t row_bytes = weight.cols * 2;
    const uint8_t* w = weight_row(weight, index);
    __m512 sums[kWeights][kRows];
    clear(sums);
    int64_t k = 0;  // bytes, the same in the row and in the panel
    for (; k + 64 <= row_bytes; k += 64) {
      prefetch<64 * kWeights>(w + ahead + k * kWeights);
      __m512i values[kWeights];
      for (int j = 0; j < kWeights; ++j) {
        values[j] = _mm512_loadu_si512(w + j * row_bytes + k);
      }
      for (int m = 0; m < kRows; ++m) {
        const __m512i a = _mm512_loadu_si512(x[m] + k);
        for (int j = 0; j < kWeights; ++j) sums[j][m] = dot(sums[j][m], values[j], a);
      }
    }
    if (k < row_bytes) {
      const __mmask32 mask = (1u << ((row_bytes - k) / 2)) - 1u;
      for (int j = 0; j < kWeights; ++j) {
        const __m512i values = _mm512_maskz_loadu_epi16(mask, w + j * row_bytes + k);
        for (int m = 0; m < kRows; ++m) {
          sums[j][m] = dot(sums[j][m], values, _mm512_loadu_si512(x[m] + k));
        }
      }
    }
    for (int j = 0; j < kWeights; ++j) {
      for (int m = 0; m < kRows; ++m) out[j][m] = _mm512_reduce_add_ps(sums[j][m]);
    }
  }
};

// ---- FP8 -------------------------------------------------------------------------------------

// E4M3 magnitude -> upper and lower byte of the bf16 of the same value.
struct Fp8Tables {
  alignas(64) std::array<uint8_t, 128> upper;
  alignas(64) std::array<uint8_t, 128> lower;
};
Fp8Tables make_fp8_tables() {
  Fp8Tables tables{};
  for (uint8_t code = 0; code < 128; ++code) {
    const uint16_t bits = bf16_from_float(e4m3_to_float(code));
    tables.upper[code] = static_cast<uint8_t>(bits >> 8);
    tables.lower[code] = static_cast<uint8_t>(bits & 0xFFu);
  }
  return tables;
}
const Fp8Tables kFp8Tables = make_fp8_tables();

struct Fp8Rows {
  static constexpr PanelKind kPanel = PanelKind::kBf16Fp8;
  static constexpr int kWeightsFor8 = 1;  // sums and totals: 16 registers

  // What the steps of a row have in common.
  template <int kWeights, int kRows>
  struct Walk {
    const uint8_t* w;
    const uint8_t* next;  // what to fetch
    const uint8_t* const* x;
    int64_t cols;
    __m512i upper0, upper1, lower0, lower1;
    __m512 sums[kWeights][kRows];
  };

  // kBlock columns from `k` on, of which `mask` says which exist.
  template <int kWeights, int kRows>
  FRT_BF16_INLINE static void step(Walk<kWeights, kRows>& walk, int64_t k, __mmask64 mask) {
    const __m512i sign = _mm512_set1_epi8(static_cast<char>(0x80));
    prefetch<64 * kWeights>(walk.next + k * kWeights);
    __m512i even[kWeights];
    __m512i odd[kWeights];
    for (int j = 0; j < kWeights; ++j) {
      const __m512i codes = _mm512_maskz_loadu_epi8(mask, walk.w + j * walk.cols + k);
      // The permutation reads seven bits of each code; bit 7 is the sign.
      const __m512i high = _mm512_permutex2var_epi8(walk.upper0, codes, walk.upper1);
      const __m512i low = _mm512_permutex2var_epi8(walk.lower0, codes, walk.lower1);
      // high | (codes & sign)
      const __m512i signed_high = _mm512_ternarylogic_epi64(high, codes, sign, 0xF8);
      even[j] = _mm512_unpacklo_epi8(low, signed_high);
      odd[j] = _mm512_unpackhi_epi8(low, signed_high);
    }
    for (int m = 0; m < kRows; ++m) {
      const __m512i a = _mm512_loadu_si512(walk.x[m] + 2 * k);
      const __m512i b = _mm512_loadu_si512(walk.x[m] + 2 * k + 64);
      for (int j = 0; j < kWeights; ++j) {
        walk.sums[j][m] = dot(dot(walk.sums[j][m], even[j], a), odd[j], b);
      }
    }
  }

  template <int kWeights, int kRows>
  FRT_BF16_TARGET static void multiply(const Weight& weight, int64_t index, const uint8_t* const* x,
                                       int64_t ahead, float (&out)[kWeights][kRows]) {
    const bool blocks = weight.type == WeightType::kFp8Block;
    const int64_t cols = weight.cols;
    const int64_t segment = blocks ? block_columns(weight) : cols;
    Walk<kWeights, kRows> walk;
    walk.w = weight_row(weight, index);
    walk.next = walk.w + ahead;
    walk.x = x;
    walk.cols = cols;
    walk.upper0 = _mm512_load_si512(kFp8Tables.upper.data());
    walk.upper1 = _mm512_load_si512(kFp8Tables.upper.data() + 64);
    walk.lower0 = _mm512_load_si512(kFp8Tables.lower.data());
    walk.lower1 = _mm512_load_si512(kFp8Tables.lower.data() + 64);
    __m512 totals[kWeights][kRows];
    clear(totals);
    for (int64_t first = 0; first < cols; first += segment) {
      const int64_t end = std::min(cols, first + segment);
      clear(walk.sums);
      int64_t k = first;
      for (; k + kBlock <= end; k += kBlock) step(walk, k, ~__mmask64{0});
      if (k < end) step(walk, k, (__mmask64{1} << (end - k)) - 1);
      for (int j = 0; j < kWeights; ++j) {
        const float scale = blocks ? block_scale(weight, index + j, first) : 1.0f;
        for (int m = 0; m < kRows; ++m) {
          totals[j][m] = _mm512_fmadd_ps(walk.sums[j][m], _mm512_set1_ps(scale), totals[j][m]);
        }
      }
    }
    for (int j = 0; j < kWeights; ++j) {
      for (int m = 0; m < kRows; ++m) out[j][m] = _mm512_reduce_add_ps(totals[j][m]);
    }
  }
};

// ---- NVFP4 -----------------------------------------------------------------------------------

// 16 E4M3 codes as f32. Sign-extended and moved up, sign, exponent and mantissa are in place, but
// for the bias: 2^120.
FRT_BF16_INLINE __m512 e4m3_lanes(__m128i codes) {
  const __m512i bits = _mm512_and_si512(_mm512_slli_epi32(_mm512_cvtepi8_epi32(codes), 20),
                                        _mm512_set1_epi32(static_cast<int>(0x87F00000u)));
  const __m512 value = _mm512_mul_ps(_mm512_castsi512_ps(bits), _mm512_set1_ps(0x1p120f));
  const __m128i signs = _mm_set1_epi8(static_cast<char>(0x80));
  const __mmask16 nan = _mm_cmpeq_epi8_mask(_mm_or_si128(codes, signs), _mm_set1_epi8(-1));
  return _mm512_mask_mov_ps(value, nan, _mm512_castsi512_ps(_mm512_set1_epi32(0x7FC00000)));
}

// bf16 of the 16 E2M1 codes, twice: VPERMW reads five bits of an index.
alignas(64) constexpr uint16_t kFp4Table[32] = {
    0x0000, 0x3F00, 0x3F80, 0x3FC0, 0x4000, 0x4040, 0x4080, 0x40C0, 0x8000, 0xBF00, 0xBF80,
    0xBFC0, 0xC000, 0xC040, 0xC080, 0xC0C0, 0x0000, 0x3F00, 0x3F80, 0x3FC0, 0x4000, 0x4040,
    0x4080, 0x40C0, 0x8000, 0xBF00, 0xBF80, 0xBFC0, 0xC000, 0xC040, 0xC080, 0xC0C0};

struct Fp4Rows {
  static constexpr PanelKind kPanel = PanelKind::kBf16Fp4;
  static constexpr int kWeightsFor8 = 2;

  static constexpr int64_t kStep = 128;               // columns of 64 bytes
  static constexpr int64_t kScaled = 16 * kFp4Group;  // columns of one vector of scales

  // What the steps of a row have in common.
  template <int kWeights, int kRows>
  struct Walk {
    const uint8_t* w;
    const uint8_t* next;  // what to fetch
    const uint8_t* const* x;
    int64_t cols;
    __m512i table;
    __m512 factors[kWeights];
    __m512 sums[kWeights][kRows];
  };

  // kStep columns from `k` on, of which `mask` says how many 32-bit words of a row exist; `pick`:
  // which of the scales belongs to each lane.
  template <int kWeights, int kRows>
  FRT_BF16_INLINE static void step(Walk<kWeights, kRows>& walk, int64_t k, __mmask16 mask,
                                   __m512i pick) {
    prefetch<64 * kWeights>(walk.next + k / 2 * kWeights);
    __m512i values[kWeights][4];
    __m512 factor[kWeights];
    for (int j = 0; j < kWeights; ++j) {
      const __m512i words = _mm512_maskz_loadu_epi32(mask, walk.w + (j * walk.cols + k) / 2);
      values[j][0] = _mm512_permutexvar_epi16(words, walk.table);
      values[j][1] = _mm512_permutexvar_epi16(_mm512_srli_epi16(words, 4), walk.table);
      values[j][2] = _mm512_permutexvar_epi16(_mm512_srli_epi16(words, 8), walk.table);
      values[j][3] = _mm512_permutexvar_epi16(_mm512_srli_epi16(words, 12), walk.table);
      factor[j] = _mm512_permutexvar_ps(pick, walk.factors[j]);
    }
    for (int m = 0; m < kRows; ++m) {
      const uint8_t* x = walk.x[m] + 2 * k;
      __m512 parts[kWeights];
      for (int j = 0; j < kWeights; ++j) parts[j] = _mm512_setzero_ps();
      for (int nibble = 0; nibble < 4; ++nibble) {
        const __m512i a = _mm512_loadu_si512(x + 64 * nibble);
        for (int j = 0; j < kWeights; ++j) parts[j] = dot(parts[j], values[j][nibble], a);
      }
      for (int j = 0; j < kWeights; ++j) {
        walk.sums[j][m] = _mm512_fmadd_ps(parts[j], factor[j], walk.sums[j][m]);
      }
    }
  }

  template <int kWeights, int kRows>
  FRT_BF16_TARGET static void multiply(const Weight& weight, int64_t index, const uint8_t* const* x,
                                       int64_t ahead, float (&out)[kWeights][kRows]) {
    const __m512i low = _mm512_set_epi32(7, 7, 6, 6, 5, 5, 4, 4, 3, 3, 2, 2, 1, 1, 0, 0);
    const __m512i high = _mm512_add_epi32(low, _mm512_set1_epi32(8));
    const int64_t cols = weight.cols;
    const uint8_t* scales = group_scales(weight, index);
    Walk<kWeights, kRows> walk;
    walk.w = weight_row(weight, index);
    walk.next = walk.w + ahead;
    walk.x = x;
    walk.cols = cols;
    walk.table = _mm512_load_si512(kFp4Table);
    clear(walk.sums);
    int64_t k = 0;
    for (; k + kScaled <= cols; k += kScaled) {
      for (int j = 0; j < kWeights; ++j) {
        walk.factors[j] = e4m3_lanes(
            _mm_loadu_si128(reinterpret_cast<const __m128i*>(scales + (j * cols + k) / kFp4Group)));
      }
      step(walk, k, 0xFFFF, low);
      step(walk, k + kStep, 0xFFFF, high);
    }
    if (k < cols) {
      const auto exist = [](int64_t columns, int64_t per_bit) {
        const int64_t bits = columns < 0 ? 0 : columns / per_bit;
        return static_cast<__mmask16>(bits >= 16 ? 0xFFFF : (1 << bits) - 1);
      };
      const __mmask16 groups = exist(cols - k, kFp4Group);
      for (int j = 0; j < kWeights; ++j) {
        walk.factors[j] =
            e4m3_lanes(_mm_maskz_loadu_epi8(groups, scales + (j * cols + k) / kFp4Group));
      }
      step(walk, k, exist(cols - k, 8), low);
      if (k + kStep < cols) step(walk, k + kStep, exist(cols - k - kStep, 8), high);
    }
    for (int j = 0; j < kWeights; ++j) {
      for (int m = 0; m < kRows; ++m) out[j][m] = _mm512_reduce_add_ps(walk.sums[j][m]);
    }
  }
};

// ---- tiles -----------------------------------------------------------------------------------

template <class Format, int kWeights, int kRows>
void multiply_rows(const Weight& weight, int64_t index, const uint8_t* const* x, int64_t ahead,
                   float* out, int64_t out_stride, int64_t rows) noexcept {
  float sums[kWeights][kRows];
  Format::template multiply<kWeights, kRows>(weight, index, x, ahead, sums);
  for (int j = 0; j < kWeights; ++j) {
    const float scale = row_scale(weight, index + j);
    for (int m = 0; m < kRows && m < rows; ++m) out[m * out_stride + j] = sums[j][m] * scale;
  }
}

template <class Format, int kWeights, int kRows>
void multiply_tile(const Weight& weight, int64_t first, int64_t count, const uint8_t* const* x,
                   float* out, int64_t out_stride, int64_t rows) noexcept {
  const int64_t group = kWeights * packed_bytes(weight, weight.cols);
  int64_t n = 0;
  for (; n + kWeights <= count; n += kWeights) {
    multiply_rows<Format, kWeights, kRows>(weight, first + n, x, group, out + n, out_stride, rows);
  }
  for (; n < count; ++n) {
    multiply_rows<Format, 1, kRows>(weight, first + n, x, 0, out + n, out_stride, rows);
  }
}

template <class Format>
void gemv(const Weight& weight, int64_t first, int64_t count, const void* const* panel,
          int64_t rows, float* out, int64_t out_stride) noexcept {
  for (int64_t done = 0; done < rows;) {
    const int64_t left = rows - done;
    const uint8_t* x[8];
    for (int64_t m = 0; m < 8; ++m) {  // beyond the end: the last row again, result dropped
      x[m] = static_cast<const uint8_t*>(panel[done + std::min(m, left - 1)]);
    }
    float* to = out + done * out_stride;
    if (left == 1) {
      multiply_tile<Format, 4, 1>(weight, first, count, x, to, out_stride, 1);
      done += 1;
    } else if (left == 2) {
      multiply_tile<Format, 4, 2>(weight, first, count, x, to, out_stride, 2);
      done += 2;
    } else if (left <= 4) {
      multiply_tile<Format, 4, 4>(weight, first, count, x, to, out_stride, left);
      done += 4;
    } else {
      multiply_tile<Format, Format::kWeightsFor8, 8>(weight, first, count, x, to, out_stride, left);
      done += 8;
    }
  }
}

}  // namespace

GemvKernel gemv_bf16_kernel(const Weight& weight) {
  const bool bytes = __builtin_cpu_supports("avx512vbmi");
  switch (weight.type) {
    case WeightType::kBf16:
      return {gemv<Bf16Rows>, Bf16Rows::kPanel};
    case WeightType::kFp8Block:
      if (!bytes) break;
      if (weight.block_cols < weight.cols && weight.block_cols % kBlock != 0) break;
      return {gemv<Fp8Rows>, Fp8Rows::kPanel};
    case WeightType::kFp8Tensor:
    case WeightType::kFp8Channel:
      if (!bytes) break;
      return {gemv<Fp8Rows>, Fp8Rows::kPanel};
    case WeightType::kNvfp4:
      return {gemv<Fp4Rows>, Fp4Rows::kPanel};
    default:
      break;
  }
  return {nullptr, PanelKind::kFloat};
}

}  // namespace frt::cpu

#else

namespace frt::cpu {

GemvKernel gemv_bf16_kernel(const Weight&) {
  return {nullptr, PanelKind::kFloat};
}

}  // namespace frt::cpu

#endif
