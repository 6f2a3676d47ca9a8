// SPDX-License-Identifier: Apache-2.0
// A float format has a sign, an exponent field of some bits with a bias, and a fraction. Exponent
// field 0 holds the subnormal numbers, evenly spaced down to zero. The all-ones exponent holds
// infinity and NaN; in f8_e4m3 all of it but the last code are numbers, in f4_e2m1 all of it.
#include "numbers.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <frt/error.hpp>
#include <limits>
#include <string>

namespace frt::conformance {
namespace {

struct Format {
  int exponent_bits, fraction_bits;
  bool infinities;   // the all-ones exponent
  uint32_t largest;  // code of the largest finite value
  int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  uint32_t sign_bit() const { return 1u << (exponent_bits + fraction_bits); }
};

Format format_of(frt_dtype dtype) {
  switch (dtype) {
    case FRT_DTYPE_F32:
      return {8, 23, true, 0x7F7FFFFFu};
    case FRT_DTYPE_BF16:
      return {8, 7, true, 0x7F7Fu};
    case FRT_DTYPE_F16:
      return {5, 10, true, 0x7BFFu};
    case FRT_DTYPE_F8_E4M3:
      return {4, 3, false, 0x7Eu};
    case FRT_DTYPE_F4_E2M1:
      return {2, 1, false, 0x7u};
    default:
      throw Error(FRT_ERR_INVALID_ARGUMENT, std::string("no float format ") + dtype_name(dtype));
  }
}

// A double has its exponent + 1023 above 52 bits of fraction. Millions of numbers pass here, and
// the functions of the mathematical library take ten times as long.
constexpr int kDoubleBias = 1023, kDoubleFraction = 52;

// 2^exponent; the exponents of all formats lie far inside a double's.
double power_of_two(int exponent) {
  return std::bit_cast<double>(static_cast<uint64_t>(exponent + kDoubleBias) << kDoubleFraction);
}

// e of a magnitude m 2^e, m in [1, 2); of zero less than any format's.
int exponent_of(double magnitude) {
  return static_cast<int>(std::bit_cast<uint64_t>(magnitude) >> kDoubleFraction) - kDoubleBias;
}

double magnitude(const Format& format, uint32_t code) {
  const auto exponent = static_cast<int>(code >> format.fraction_bits);
  const auto fraction = static_cast<double>(code & ((1u << format.fraction_bits) - 1));
  const double unit = fraction * power_of_two(-format.fraction_bits);
  if (exponent == 0) return unit * power_of_two(1 - format.bias());
  return (1 + unit) * power_of_two(exponent - format.bias());
}

double decode_float(frt_dtype dtype, uint32_t code) {
  const Format format = format_of(dtype);
  const bool negative = (code & format.sign_bit()) != 0;
  const uint32_t rest = code & (format.sign_bit() - 1);
  double value = 0;
  if (rest <= format.largest) {
    value = magnitude(format, rest);
  } else if (format.infinities && rest == format.largest + 1) {
    value = std::numeric_limits<double>::infinity();
  } else {
    value = std::numeric_limits<double>::quiet_NaN();
  }
  return negative ? -value : value;
}

// The spacing of the format's numbers around a finite magnitude.
double step_at(const Format& format, double value) {
  return power_of_two(std::max(exponent_of(value), 1 - format.bias()) - format.fraction_bits);
}

template <class Integer>
Integer bits_at(const std::byte* data, int64_t index) {
  Integer value{};
  std::memcpy(&value, data + static_cast<std::size_t>(index) * sizeof(value), sizeof(value));
  return value;
}

}  // namespace

double decode(frt_dtype dtype, const std::byte* data, int64_t index) {
  switch (dtype) {
    case FRT_DTYPE_I32:
      return bits_at<int32_t>(data, index);
    case FRT_DTYPE_U32:
      return bits_at<uint32_t>(data, index);
    case FRT_DTYPE_U8:
      return bits_at<uint8_t>(data, index);
    case FRT_DTYPE_F32:
      return static_cast<double>(std::bit_cast<float>(bits_at<uint32_t>(data, index)));
    case FRT_DTYPE_BF16:  // the upper half of an f32
      return static_cast<double>(
          std::bit_cast<float>(static_cast<uint32_t>(bits_at<uint16_t>(data, index)) << 16));
    case FRT_DTYPE_F8_E4M3: {
      static const std::array<double, 256> values = [] {
        std::array<double, 256> made{};
        for (uint32_t code = 0; code < made.size(); ++code) {
          made[code] = decode_float(FRT_DTYPE_F8_E4M3, code);
        }
        return made;
      }();
      return values[bits_at<uint8_t>(data, index)];
    }
    case FRT_DTYPE_F4_E2M1: {
      const uint32_t both = bits_at<uint8_t>(data, index / 2);
      return decode_float(dtype, index % 2 ? both >> 4 : both & 15u);
    }
    case FRT_DTYPE_U4:
    case FRT_DTYPE_I4: {
      const int both = bits_at<uint8_t>(data, index / 2);
      const int code = index % 2 ? both >> 4 : both & 15;
      return dtype == FRT_DTYPE_I4 && code >= 8 ? code - 16 : code;
    }
    case FRT_DTYPE_I8:
      return bits_at<int8_t>(data, index);
    case FRT_DTYPE_F8_E8M0: {  // an exponent alone
      const int exponent = bits_at<uint8_t>(data, index);
      return exponent == 255 ? std::numeric_limits<double>::quiet_NaN()
                             : power_of_two(exponent - 127);
    }
    default:
      return decode_float(dtype, bits_at<uint16_t>(data, index));
  }
}

uint32_t encode(frt_dtype dtype, double value) {
  if (dtype == FRT_DTYPE_F32 && !std::isnan(value)) {
    return std::bit_cast<uint32_t>(static_cast<float>(value));
  }
  const Format format = format_of(dtype);
  const uint32_t sign = std::signbit(value) ? format.sign_bit() : 0;
  if (std::isnan(value)) return sign | (format.sign_bit() - 1);
  const double size = std::fabs(value);
  const double top = magnitude(format, format.largest);
  // From halfway to the number that would come next on; that one is even.
  const bool beyond = std::isinf(size) || size >= top + step_at(format, top) / 2;
  if (beyond) return sign | (format.largest + (format.infinities ? 1 : 0));
  const double step = step_at(format, size);
  const double steps = std::nearbyint(size / step);  // exact; ties to even
  // Codes count the numbers from zero on: `steps` of them in the lowest binade with its subnormals,
  // as many again in every one above.
  const int binade = exponent_of(step) + format.fraction_bits - (1 - format.bias());
  const auto below = static_cast<uint32_t>(binade) << format.fraction_bits;
  return sign | std::min(below + static_cast<uint32_t>(steps), format.largest);
}

double rounded(frt_dtype dtype, double value) {
  return decode_float(dtype, encode(dtype, value));
}

double half_step(frt_dtype dtype, double value) {
  return step_at(format_of(dtype), std::fabs(value)) / 2;
}

}  // namespace frt::conformance
