// SPDX-License-Identifier: Apache-2.0
// NVFP4 activations and their product, on the host: rounding against a search for the nearest
// number, and the lanes of a warp against the definition of the instruction and a plain product.
// Runs without a device.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "bf16_values.hpp"
#include "ops/common/fp4_fragments.hpp"
#include "ops/common/fp4_numbers.hpp"
#include "ops/linear/fp4_tile.hpp"

namespace {

using namespace frt::cuda;
using frt::cuda_test::as_bf16;

// ---- rounding, by looking at all numbers --------------------------------------------------------

// The magnitude of a number with these bits of exponent and mantissa.
double magnitude(uint32_t code, int mantissa_bits, int bias) {
  const int exponent = static_cast<int>(code >> mantissa_bits);
  const double fraction =
      static_cast<double>(code & ((1u << mantissa_bits) - 1)) / (1 << mantissa_bits);
  return exponent == 0 ? std::ldexp(fraction, 1 - bias) : std::ldexp(1 + fraction, exponent - bias);
}
double e2m1(uint32_t code) {
  return (code & 8 ? -1 : 1) * magnitude(code & 7, 1, 1);
}
double e4m3(uint32_t code) {
  return magnitude(code, 3, 7);
}

// The code below `count` that is nearest to `value`, of two the even one.
template <class Number>
uint32_t nearest(double value, uint32_t count, Number number) {
  uint32_t best = 0;
  for (uint32_t code = 1; code < count; ++code) {
    const double gain = std::fabs(number(best) - value) - std::fabs(number(code) - value);
    if (gain > 0 || (gain == 0 && code % 2 == 0)) best = code;
  }
  return best;
}

struct Rounded {
  double row_scale;
  std::vector<uint32_t> codes, scales;
};

// What fp4_numbers.hpp promises of a row, in double, where all of it is exact.
Rounded rounded_row(const std::vector<float>& row) {
  double largest = 0;
  for (const float value : row) largest = std::max(largest, std::fabs(static_cast<double>(value)));
  int exponent = -126;
  while (std::ldexp(2688.0, exponent) < largest) ++exponent;
  Rounded made{std::ldexp(1.0, exponent), {}, {}};
  for (std::size_t first = 0; first < row.size(); first += kFp4Group) {
    double most = 0;
    for (std::size_t i = first; i < first + kFp4Group; ++i) {
      most = std::max(most, std::fabs(static_cast<double>(row[i])) / made.row_scale);
    }
    // Compared as most with 6 s: a quotient would be rounded.
    const uint32_t scale = nearest(most, 127, [](uint32_t code) { return 6 * e4m3(code); });
    made.scales.push_back(scale);
    for (std::size_t i = first; i < first + kFp4Group; ++i) {
      const double value = std::fabs(static_cast<double>(row[i])) / made.row_scale;
      const double unit = e4m3(scale);
      const uint32_t code =
          scale == 0 ? 0 : nearest(value, 8, [&](uint32_t c) { return unit * e2m1(c); });
      made.codes.push_back(code | (std::signbit(row[i]) ? 8u : 0u));
    }
  }
  return made;
}

// The same by the functions that the kernel calls.
Rounded kernel_row(const std::vector<float>& row) {
  uint32_t largest = 0;
  for (const float value : row) largest = std::max(largest, magnitude_bits(value));
  const float row_scale = fp4_row_scale(largest), inverse = fp4_inverse(row_scale);
  Rounded made{static_cast<double>(row_scale), {}, {}};
  for (std::size_t first = 0; first < row.size(); first += kFp4Group) {
    uint32_t most = 0;
    for (std::size_t i = first; i < first + kFp4Group; ++i) {
      most = std::max(most, magnitude_bits(row[i]));
    }
    const uint32_t scale = fp4_scale_code(std::bit_cast<float>(most) * inverse);
    const Fp4Middles middles = fp4_middles(scale);
    made.scales.push_back(scale);
    for (std::size_t i = first; i < first + kFp4Group; ++i) {
      made.codes.push_back(fp4_code(row[i] * inverse, middles));
    }
  }
  return made;
}

void check_row(const std::vector<float>& row) {
  const Rounded expected = rounded_row(row), found = kernel_row(row);
  CHECK(found.row_scale == expected.row_scale);
  CHECK(found.scales == expected.scales);
  CHECK(found.codes == expected.codes);
}

// ---- a warp -------------------------------------------------------------------------------------

// A matrix of e2m1 codes in rows of k, with a scale for each 16.
struct Matrix {
  int rows, inputs;
  std::vector<uint32_t> codes, scales;

  Matrix(int rows_, int inputs_, uint64_t seed) : rows(rows_), inputs(inputs_) {
    std::mt19937_64 random(seed);
    for (int i = 0; i < rows * inputs; ++i) codes.push_back(static_cast<uint32_t>(random() % 16));
    for (int i = 0; i < rows * inputs / 16; ++i) {
      scales.push_back(static_cast<uint32_t>(0x20 + random() % 0x30));
    }
  }
  uint32_t code(int row, int k) const {
    return codes.at(static_cast<std::size_t>(row * inputs + k));
  }
  uint32_t scale(int row, int k) const {
    return scales.at(static_cast<std::size_t>((row * inputs + k) / 16));
  }
  double value(int row, int k) const { return e2m1(code(row, k)) * e4m3(scale(row, k)); }
  // Eight codes from input `k` on, as memory has them.
  uint32_t word(int row, int k) const {
    uint32_t word = 0;
    for (int i = 0; i < 8; ++i) word |= code(row, k + i) << 4 * i;
    return word;
  }
  uint32_t scale_word(int row, int k) const {
    uint32_t word = 0;
    for (int i = 0; i < 4; ++i) word |= scale(row, k + 16 * i) << 8 * i;
    return word;
  }
};

double product_of(const Matrix& x, const Matrix& weight, int row, int output) {
  double sum = 0;
  for (int k = 0; k < x.inputs; ++k) sum += x.value(row, k) * weight.value(output, k);
  return sum;
}

using Warp = std::array<Fp4Operands, 32>;
using Sums = std::array<std::array<float, 4>, 32>;

// c += a b as the PTX ISA defines m16n8k64: each element of a fragment names its row and column.
void define_mma(const Warp& warp, int pair, int quarter, Sums& sums) {
  double a[16][64], b[8][64], scales_a[16][4], scales_b[8][4];
  for (int lane = 0; lane < 32; ++lane) {
    const auto& own = warp[static_cast<std::size_t>(lane)].registers;
    const int group = lane >> 2, in_group = lane % 4;
    for (int i = 0; i < 32; ++i) {
      const int row = i < 8 || (16 <= i && i < 24) ? group : group + 8;
      const int column = in_group * 8 + (i & 7) + (i < 16 ? 0 : 32);
      a[row][column] = e2m1(own[Fp4Operands::kA + i / 8] >> 4 * (i % 8) & 15);
    }
    for (int i = 0; i < 16; ++i) {
      const int row = in_group * 8 + (i & 7) + (i < 8 ? 0 : 32);
      b[group][row] = e2m1(own[Fp4Operands::kB + i / 8] >> 4 * (i % 8) & 15);
    }
    for (int i = 0; i < 4; ++i) {
      if (in_group / 2 == pair) {
        scales_a[group + in_group % 2 * 8][i] = e4m3(own[Fp4Operands::kScalesA] >> 8 * i & 0x7F);
      }
      if (in_group == quarter)
        scales_b[group][i] = e4m3(own[Fp4Operands::kScalesB] >> 8 * i & 0x7F);
    }
  }
  for (int lane = 0; lane < 32; ++lane) {
    for (int i = 0; i < 4; ++i) {
      const int row = (lane >> 2) + (i < 2 ? 0 : 8), column = lane % 4 * 2 + (i & 1);
      double sum = 0;
      for (int k = 0; k < 64; ++k) {
        sum += a[row][k] * scales_a[row][k / 16] * b[column][k] * scales_b[column][k / 16];
      }
      sums[static_cast<std::size_t>(lane)][static_cast<std::size_t>(i)] += static_cast<float>(sum);
    }
  }
}

// c += a b as the emulation computes it, lane by lane.
void emulate_mma(const Warp& warp, int pair, int quarter, Sums& sums) {
  for (int lane = 0; lane < 32; ++lane) {
    float own[4];
    std::copy_n(sums[static_cast<std::size_t>(lane)].begin(), 4, own);
    multiply_fp4(lane, pair, quarter, own, [&](int number, int source) {
      return warp[static_cast<std::size_t>(source)].registers[number];
    });
    std::copy_n(own, 4, sums[static_cast<std::size_t>(lane)].begin());
  }
}

// Shared memory of one stage and its scales as the kernel's copies fill it: x, then weights.
struct Stage {
  std::vector<uint8_t> values, scales;

  Stage(const Matrix& x, const Matrix& weight, int input)
      : values(kFp4StageBytes), scales(kFp4ScaleStageBytes) {
    for (int side = 0; side < 2; ++side) {
      const Matrix& from = side == 0 ? x : weight;
      for (int row = 0; row < kFp4TileRows; ++row) {
        for (int byte = 0; byte < kFp4StageInputs / 2; ++byte) {
          const int k = input + 2 * byte;
          values[static_cast<std::size_t>(side * kFp4SideBytes + fp4_place(row, byte / 16) +
                                          byte % 16)] =
              static_cast<uint8_t>(from.code(row, k) | from.code(row, k + 1) << 4);
        }
        for (int i = 0; i < 16 && input + 16 * i < from.inputs; ++i) {
          scales[static_cast<std::size_t>(side * kFp4ScaleSideBytes + row * 16 + i)] =
              static_cast<uint8_t>(from.scale(row, input + 16 * i));
        }
      }
    }
  }
  static uint32_t word(const std::vector<uint8_t>& bytes, int at) {
    uint32_t word = 0;
    for (int i = 0; i < 4; ++i) {
      word |= static_cast<uint32_t>(bytes.at(static_cast<std::size_t>(at + i))) << 8 * i;
    }
    return word;
  }
  // ldmatrix.x4: lane l gives the address of row l % 8 of matrix l / 8; register i of lane l is
  // word l % 4 of row l / 4 of matrix i.
  template <class Place>
  uint32_t matrix_word(int lane, int i, Place place) const {
    return word(values, place(8 * i + lane / 4) + lane % 4 * 4);
  }
};

}  // namespace

TEST_CASE("the numbers: every e2m1 and every e4m3 without a sign") {
  for (uint32_t code = 0; code < 16; ++code) CHECK(twice_e2m1(code) == 2 * e2m1(code));
  for (uint32_t code = 0; code < 127; ++code) {
    CHECK(static_cast<double>(from_ue4m3(code)) == e4m3(code));
  }
  CHECK(std::isnan(from_ue4m3(127)));
  CHECK(e2m1(7) == 6);
  CHECK(e4m3(126) == 448);
}

TEST_CASE("a row's scale is the smallest power of two that leaves its largest value in range") {
  for (uint32_t bits = 0; bits < kInfinityBits; bits += 0x1357) {
    const float largest = std::bit_cast<float>(bits), scale = fp4_row_scale(bits);
    const bool fits = static_cast<double>(largest) <= 2688.0 * static_cast<double>(scale);
    const bool least =
        scale == 0x1p-126f || static_cast<double>(largest) > 1344.0 * static_cast<double>(scale);
    if (fits && least && fp4_inverse(scale) * scale == 1.0f) continue;
    CAPTURE(largest);
    FAIL(scale);
  }
  CHECK(fp4_row_scale(std::bit_cast<uint32_t>(2688.0f)) == 1.0f);
  CHECK(fp4_row_scale(std::bit_cast<uint32_t>(std::nextafter(2688.0f, 3000.0f))) == 2.0f);
  CHECK(fp4_row_scale(0) == 0x1p-126f);
  for (const float value :
       {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    CHECK(std::isnan(fp4_row_scale(magnitude_bits(value))));
    CHECK(std::isnan(fp4_row_scale(magnitude_bits(-value))));
  }
}

TEST_CASE("scales are rounded to the nearest e4m3, in the middle between two to the even one") {
  for (uint32_t code = 0; code < 126; ++code) {
    const auto middle = static_cast<float>(3 * (e4m3(code) + e4m3(code + 1)));
    const uint32_t even = code % 2 == 0 ? code : code + 1;
    CHECK(fp4_scale_code(middle) == even);
    CHECK(fp4_scale_code(std::nextafter(middle, 0.0f)) == code);
    CHECK(fp4_scale_code(std::nextafter(middle, 3000.0f)) == code + 1);
    CHECK(fp4_scale_code(static_cast<float>(6 * e4m3(code))) == code);
  }
  CHECK(fp4_scale_code(2688.0f) == 126);
}

TEST_CASE("every bf16 is rounded to the nearest numbers, of two to the even one") {
  // All finite positive ones, sixteen at a time: neighbours, so that all lie near the largest; then
  // each beside one that is much larger than most.
  std::vector<float> near, far;
  for (uint32_t bits = 0; bits < kInfinityBits >> 16; ++bits) {
    const float value = std::bit_cast<float>(bits << 16);
    near.push_back(bits % 3 == 0 ? -value : value);
    if (near.size() == kFp4Group) {
      check_row(near);
      near.clear();
    }
    far.push_back(bits % 5 == 0 ? -value : value);
    if (far.size() == kFp4Group - 1) {
      far.push_back(std::min(std::fabs(far.front()) * 7.0f, 3e38f));
      check_row(far);
      far.clear();
    }
  }
}

TEST_CASE("rows of f32 and of bf16 with values of many sizes are rounded so, middles too") {
  std::mt19937_64 random(5);
  std::normal_distribution<float> normal;
  for (int i = 0; i < 4000; ++i) {
    std::vector<float> row;
    for (int k = 0; k < 64; ++k) {
      const float value = std::ldexp(normal(random), static_cast<int>(random() % 24) - 12);
      row.push_back(i % 2 == 0 ? value : as_bf16(value));
    }
    if (i % 4 == 3) {  // middles between codes, for scales that are codes, and their neighbours
      const float largest = 6 * from_ue4m3(static_cast<uint32_t>(8 + random() % 100));
      row[0] = largest;
      for (int k = 1; k < kFp4Group; ++k) {
        const float middle[] = {0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5.0f};
        const float value = middle[random() % 7] * (largest / 6);
        const float beside[] = {value, std::nextafter(value, 0.0f), std::nextafter(value, 1e9f)};
        row[static_cast<std::size_t>(k)] = beside[random() % 3];
      }
    }
    check_row(row);
  }
  check_row(std::vector<float>(32, 0.0f));
  check_row(std::vector<float>(32, -0.0f));
  std::vector<float> tiny(32, 1e-30f);
  tiny[0] = 1e30f;  // sixteen that vanish beside it, and sixteen of which all do
  check_row(tiny);
  check_row(std::vector<float>(16, std::numeric_limits<float>::denorm_min()));
  check_row(std::vector<float>(16, std::numeric_limits<float>::max()));
}

TEST_CASE("the emulated instruction is the defined one, for every selector of scales") {
  std::mt19937_64 random(11);
  for (int pair = 0; pair < 2; ++pair) {
    for (int quarter = 0; quarter < 4; ++quarter) {
      Warp warp{};
      for (Fp4Operands& lane : warp) {
        for (uint32_t& word : lane.registers) word = static_cast<uint32_t>(random());
        for (int i = Fp4Operands::kScalesA; i <= Fp4Operands::kScalesB; ++i) {
          lane.registers[i] = (lane.registers[i] & 0x1F1F1F1Fu) | 0x20202020u;
        }
      }
      Sums defined{}, emulated{};
      define_mma(warp, pair, quarter, defined);
      emulate_mma(warp, pair, quarter, emulated);
      for (std::size_t lane = 0; lane < 32; ++lane) {
        for (std::size_t i = 0; i < 4; ++i) {
          CHECK(emulated[lane][i] == doctest::Approx(defined[lane][i]).epsilon(1e-6));
        }
      }
    }
  }
}

TEST_CASE("a scale that is no number makes the products of its row, or column, none") {
  Warp warp{};
  for (Fp4Operands& lane : warp) {
    lane = {{0x22222222u, 0x22222222u, 0x22222222u, 0x22222222u, 0x22222222u, 0x22222222u,
             0x38383838u, 0x38383838u}};
  }
  warp[4 * 3 + 1].registers[Fp4Operands::kScalesA] = 0x387F3838u;  // of row 11
  Sums sums{};
  emulate_mma(warp, 0, 0, sums);
  for (int lane = 0; lane < 32; ++lane) {
    for (int i = 0; i < 4; ++i) {
      const float sum = sums[static_cast<std::size_t>(lane)][static_cast<std::size_t>(i)];
      CHECK(std::isnan(sum) == (fp4_sum_row(0, lane, i) == 11));
      if (!std::isnan(sum)) CHECK(sum == 64.0f);
    }
  }
}

TEST_CASE("chunks of a stage fill it, and lanes that read together touch all banks") {
  std::vector<bool> taken(kFp4SideBytes / 16);
  for (int row = 0; row < kFp4TileRows; ++row) {
    for (int chunk = 0; chunk < kFp4StageInputs / 32; ++chunk) {
      const int place = fp4_place(row, chunk);
      REQUIRE(place % 16 == 0);
      CHECK_FALSE(taken.at(static_cast<std::size_t>(place / 16)));
      taken.at(static_cast<std::size_t>(place / 16)) = true;
    }
  }
  for (int k = 0; k < 2; ++k) {
    for (int matrix = 0; matrix < 4; ++matrix) {
      uint32_t x_banks = 0, weight_banks = 0;
      for (int lane = 8 * matrix; lane < 8 * matrix + 8; ++lane) {
        x_banks |= 1u << fp4_x_place(16, k, lane) / 16 % 8;
        weight_banks |= 1u << fp4_weight_place(48, k, lane) / 16 % 8;
      }
      CHECK(x_banks == 0xFFu);
      CHECK(weight_banks == 0xFFu);
    }
  }
  for (int first = 0; first < kFp4TileRows; first += 32) {  // each row's scales are read once
    uint32_t rows = 0;
    for (int lane = 0; lane < 32; ++lane) rows |= 1u << (fp4_scale_row(first, lane) - first);
    CHECK(rows == ~0u);
  }
}

// The kernel's loop over a tile, with the instruction as it is defined and as it is emulated.
TEST_CASE("eight warps compute the tile: every sum is that of the plain product") {
  const Matrix x(kFp4TileRows, 384, 21), weight(kFp4TileOutputs, 384, 22);
  std::vector<std::vector<double>> expected(kFp4TileRows, std::vector<double>(kFp4TileOutputs));
  for (int row = 0; row < kFp4TileRows; ++row) {
    for (int output = 0; output < kFp4TileOutputs; ++output) {
      expected[static_cast<std::size_t>(row)][static_cast<std::size_t>(output)] =
          product_of(x, weight, row, output);
    }
  }
  const auto multiply = [&](auto instruction) {
    std::vector<int> written(kFp4TileRows * kFp4TileOutputs);
    for (int w = 0; w < kFp4Threads / 32; ++w) {
      const int warp_row = fp4_warp_row(w), warp_output = fp4_warp_output(w);
      std::array<std::array<Sums, 4>, 4> sums{};
      std::vector<uint8_t> scales;
      for (int step = 0; step < x.inputs / kFp4StageInputs; ++step) {
        const Stage stage(x, weight, step * kFp4StageInputs);
        if (step % 2 == 0) scales = stage.scales;
        for (int k = 0; k < kFp4StageInputs / 64; ++k) {
          for (int m = 0; m < 4; ++m) {
            for (int n = 0; n < 4; ++n) {
              Warp warp{};
              for (int lane = 0; lane < 32; ++lane) {
                auto& own = warp[static_cast<std::size_t>(lane)].registers;
                for (int i = 0; i < 4; ++i) {
                  own[Fp4Operands::kA + i] = stage.matrix_word(lane, i, [&](int address_lane) {
                    return fp4_x_place(warp_row + m * 16, k, address_lane);
                  });
                }
                for (int i = 0; i < 2; ++i) {
                  own[Fp4Operands::kB + i] =
                      stage.matrix_word(lane, n % 2 * 2 + i, [&](int address_lane) {
                        return kFp4SideBytes +
                               fp4_weight_place(warp_output + n / 2 * 16, k, address_lane);
                      });
                }
                const int word = 4 * (step % 2 * 2 + k);
                const int x_row = fp4_scale_row(warp_row + m / 2 * 32, lane);
                const int weight_row = fp4_scale_row(warp_output, lane);
                own[Fp4Operands::kScalesA] = Stage::word(scales, x_row * 16 + word);
                own[Fp4Operands::kScalesB] =
                    Stage::word(scales, kFp4ScaleSideBytes + weight_row * 16 + word);
              }
              instruction(warp, m % 2, n,
                          sums[static_cast<std::size_t>(m)][static_cast<std::size_t>(n)]);
            }
          }
        }
      }
      for (int m = 0; m < 4; ++m) {
        for (int n = 0; n < 4; ++n) {
          for (int lane = 0; lane < 32; ++lane) {
            for (int i = 0; i < 4; ++i) {
              const int row = fp4_sum_row(warp_row + m * 16, lane, i);
              const int output = fp4_sum_output(warp_output + n * 8, lane, i);
              const float sum = sums[static_cast<std::size_t>(m)][static_cast<std::size_t>(n)]
                                    [static_cast<std::size_t>(lane)][static_cast<std::size_t>(i)];
              const double wanted =
                  expected.at(static_cast<std::size_t>(row)).at(static_cast<std::size_t>(output));
              ++written.at(static_cast<std::size_t>(row * kFp4TileOutputs + output));
              // Products of random sizes: f32 sums of 24 exact terms.
              if (std::fabs(static_cast<double>(sum) - wanted) <= 1e-5 * (std::fabs(wanted) + 1)) {
                continue;
              }
              CAPTURE(row);
              CAPTURE(output);
              CHECK(static_cast<double>(sum) == wanted);
            }
          }
        }
      }
    }
    CHECK(std::ranges::all_of(written, [](int times) { return times == 1; }));
  };
  multiply(define_mma);
  multiply(emulate_mma);
}
