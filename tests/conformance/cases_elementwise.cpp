// SPDX-License-Identifier: Apache-2.0
// Cases of frt/ops/elementwise.h and frt/ops/checksum.h.
//
// Conversion and filling must give the reference's bits, NaN included, so their outputs are
// compared as integers of the same size.
#include <frt/ops/checksum.h>
#include <frt/ops/elementwise.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include "check.hpp"
#include "refusal.hpp"

namespace frt::conformance {
namespace {

std::string number(int64_t value) {
  return std::to_string(value);
}

// An integer type of the same size, whose values are compared as they are.
frt_dtype bits_type(frt_dtype dtype) {
  switch (dtype_bits(dtype)) {
    case 32:
      return FRT_DTYPE_U32;
    case 16:
      return FRT_DTYPE_F16;  // compared by its bits
    default:
      return FRT_DTYPE_U8;
  }
}

// ---- two rows to one --------------------------------------------------------------------------

struct BinaryShape {
  int32_t rows, width;
  int64_t gap;  // elements between rows
  int32_t row_count = -1;
  bool in_place = false;
  float deviation = 1.0f;
};

double binary_value(std::string_view name, double a, double b) {
  const auto sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
  if (name == FRT_OP_ADD) return a + b;
  if (name == FRT_OP_SILU_MUL) return a * sigmoid(a) * b;
  if (name == FRT_OP_SIGMOID_MUL) return a * sigmoid(b);
  return a / 2 * (1 + std::tanh(0.7978845608 * (a + 0.044715 * a * a * a))) * b;
}

void binary(Case& c, const char* name, frt_dtype dtype, const BinaryShape& shape) {
  const int64_t a_stride = shape.width + 3 * shape.gap, b_stride = shape.width + shape.gap;
  const int64_t y_stride = shape.in_place ? a_stride : shape.width + 2 * shape.gap;
  Tensor& a = c.normal("a", dtype, shape.rows * a_stride, shape.deviation);
  Tensor& b = c.normal("b", dtype, shape.rows * b_stride, shape.deviation);
  Tensor& y = shape.in_place ? a : c.output("y", dtype, shape.rows * y_stride);
  Tensor& count = c.integers("row_count", {shape.row_count});
  c.run<frt_binary_args>(name, KernelTypes(dtype), {}, [&](frt_binary_args& args, const At& at) {
    args.dtype = dtype;
    args.rows = shape.rows;
    args.width = shape.width;
    if (shape.row_count >= 0) args.row_count = at.operator()<int32_t>(count);
    args.a = at(a);
    args.a_stride = a_stride;
    args.b = at(b);
    args.b_stride = b_stride;
    args.y = at(y);
    args.y_stride = y_stride;
  });
  const int64_t rows = shape.row_count < 0 ? shape.rows : std::min(shape.rows, shape.row_count);
  if (shape.in_place) {
    c.compare_range(y, 0, rows * y_stride, tolerance_of(dtype));
  } else {
    c.compare(y, tolerance_of(dtype), shape.row_count < 0 ? Untouched::kLeave : Untouched::kIgnore);
  }

  Expected expected(dtype, y.count);
  const std::vector<double> left = Case::values(a), right = Case::values(b);
  for (int64_t row = 0; row < shape.rows; ++row) {
    if (row >= rows) {
      expected.ignore(row * y_stride, shape.width);
      continue;
    }
    for (int64_t i = 0; i < shape.width; ++i) {
      const double p = left[static_cast<std::size_t>(row * a_stride + i)];
      const double q = right[static_cast<std::size_t>(row * b_stride + i)];
      const double value = binary_value(name, p, q);
      // f32 arithmetic in between: some roundings of the value, and of what it is made of.
      const double away = 1e-5 * std::fabs(value) + 1e-6 * std::min(std::fabs(p * q), 1.0) +
                          (std::string_view(name) == FRT_OP_ADD ? 0 : 1e-30);
      expected.value(row * y_stride + i, value, away + half_step(dtype, std::fabs(value) + away));
    }
  }
  c.require(y, expected);
}

void binary_refusals(Case& c, const char* name) {
  Tensor& a = c.normal("a", FRT_DTYPE_F32, 32);
  const auto fill = [&](frt_binary_args& args, const At& at) {
    args.dtype = FRT_DTYPE_F32;
    args.rows = 2;
    args.width = 16;
    args.a = args.b = args.y = at(a);
    args.a_stride = args.b_stride = args.y_stride = 16;
  };
  const auto refuse = [&](auto spoil) {
    refused<frt_binary_args>(c, name, KernelTypes(FRT_DTYPE_F32), {}, fill, spoil);
  };
  refuse([](frt_binary_args& args) { args.dtype = FRT_DTYPE_F16; });
  refuse([](frt_binary_args& args) { args.rows = -1; });
  refuse([](frt_binary_args& args) { args.width = 0; });
  refuse([](frt_binary_args& args) { args.a = nullptr; });
  refuse([](frt_binary_args& args) { args.b = nullptr; });
  refuse([](frt_binary_args& args) { args.y = nullptr; });
  refuse([](frt_binary_args& args) { args.a_stride = 15; });
  refuse([](frt_binary_args& args) { args.b_stride = 15; });
  refuse([](frt_binary_args& args) { args.y_stride = 15; });
}

// ---- conversion -------------------------------------------------------------------------------

constexpr frt_dtype kConverted[] = {FRT_DTYPE_F32, FRT_DTYPE_BF16, FRT_DTYPE_F16,
                                    FRT_DTYPE_F8_E4M3};

// Every code of the small types; for f32 random bits and what lies on and beside the halfway points
// of every smaller type.
Tensor& all_codes(Case& c, frt_dtype dtype) {
  if (dtype == FRT_DTYPE_F8_E4M3) {
    std::vector<uint8_t> codes(256);
    for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<uint8_t>(i);
    return c.raw("x", dtype, codes.data(), static_cast<int64_t>(codes.size()));
  }
  if (dtype != FRT_DTYPE_F32) {
    std::vector<uint16_t> codes(65536);
    for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<uint16_t>(i);
    return c.raw("x", dtype, codes.data(), static_cast<int64_t>(codes.size()));
  }
  std::vector<uint32_t> codes;
  for (const uint32_t drop : {13u, 16u, 20u, 21u, 22u, 23u}) {  // bits that are rounded away
    const uint32_t half = 1u << (drop - 1);
    for (int i = 0; i < 8192; ++i) {
      const auto upper = static_cast<uint32_t>(c.random()()) >> drop << drop;
      for (const uint32_t rest : {0u, half - 1, half, half + 1}) codes.push_back(upper | rest);
    }
  }
  for (int i = 0; i < 65536; ++i) {
    codes.push_back(static_cast<uint32_t>(c.random()()));
    // Magnitudes from 2^-30 to 2^33, where the small types begin and end.
    codes.push_back(static_cast<uint32_t>(c.random()() % (63u << 23)) + (97u << 23));
    codes.push_back(codes.back() | 0x80000000u);
  }
  for (const uint32_t code : {0u, 0x80000000u, 0x7F800000u, 0xFF800000u, 0x7FC00000u, 0xFFC12345u,
                              0x7F800001u, 0xFFFFFFFFu}) {
    codes.push_back(code);
  }
  while (codes.size() % 8 != 0) codes.push_back(0x3F800000u);
  return c.raw("x", dtype, codes.data(), static_cast<int64_t>(codes.size()));
}

void convert_codes(Case& c, frt_dtype from, frt_dtype to) {
  const Tensor& x = all_codes(c, from);
  const auto width = static_cast<int32_t>(x.count);
  Tensor& y = c.output("y", bits_type(to), width);
  c.run<frt_convert_args>(FRT_OP_CONVERT, types_of(from, to), {},
                          [&](frt_convert_args& args, const At& at) {
                            args.x_dtype = from;
                            args.y_dtype = to;
                            args.rows = 1;
                            args.width = width;
                            args.x = at(x);
                            args.x_stride = width;
                            args.y = at(y);
                            args.y_stride = width;
                          });
  c.compare(y, kExact);

  Expected expected(to, width);
  for (int32_t i = 0; i < width; ++i) {
    expected.code(i, decode(from, x.initial.data(), i));
  }
  c.require(y, expected);
}

void convert_rows(Case& c, frt_dtype from, frt_dtype to, int32_t rows, int32_t width, int64_t gap,
                  int32_t row_count, float factor = 0) {
  const int64_t x_stride = width + gap, y_stride = width + 3 * gap;
  Tensor& x = from == FRT_DTYPE_F16 ? c.uniform("x", FRT_DTYPE_BF16, rows * x_stride, -9, 9)
                                    : c.normal("x", from, rows * x_stride, 20.0f);
  Tensor& y = c.output("y", bits_type(to), rows * y_stride);
  Tensor& count = c.integers("row_count", {row_count});
  c.run<frt_convert_args>(FRT_OP_CONVERT, types_of(from, to), {},
                          [&](frt_convert_args& args, const At& at) {
                            args.x_dtype = from;
                            args.y_dtype = to;
                            args.rows = rows;
                            args.width = width;
                            args.factor = factor;
                            if (row_count >= 0) args.row_count = at.operator()<int32_t>(count);
                            args.x = at(x);
                            args.x_stride = x_stride;
                            args.y = at(y);
                            args.y_stride = y_stride;
                          });
  c.compare(y, kExact, row_count < 0 ? Untouched::kLeave : Untouched::kIgnore);

  Expected expected(to, y.count);
  for (int64_t row = 0; row < rows; ++row) {
    if (row_count >= 0 && row >= row_count) {
      expected.ignore(row * y_stride, width);
      continue;
    }
    for (int64_t i = 0; i < width; ++i) {
      const double value = decode(from, x.initial.data(), row * x_stride + i);
      expected.code(
          row * y_stride + i,
          factor == 0 ? value : rounded(FRT_DTYPE_F32, value * static_cast<double>(factor)));
    }
  }
  c.require(y, expected);
}

void convert_refusals(Case& c) {
  Tensor& x = c.normal("x", FRT_DTYPE_F32, 32);
  Tensor& y = c.output("y", FRT_DTYPE_BF16, 32);
  const auto fill = [&](frt_convert_args& args, const At& at) {
    args.x_dtype = FRT_DTYPE_F32;
    args.y_dtype = FRT_DTYPE_BF16;
    args.rows = 2;
    args.width = 16;
    args.x = at(x);
    args.y = at(y);
    args.x_stride = args.y_stride = 16;
  };
  const auto refuse = [&](auto spoil) {
    refused<frt_convert_args>(c, FRT_OP_CONVERT, KernelTypes(FRT_DTYPE_F32), {}, fill, spoil);
  };
  refuse([](frt_convert_args& args) { args.x_dtype = FRT_DTYPE_I32; });
  refuse([](frt_convert_args& args) { args.y_dtype = FRT_DTYPE_F8_E5M2; });
  refuse([](frt_convert_args& args) { args.rows = -1; });
  refuse([](frt_convert_args& args) { args.width = 0; });
  refuse([](frt_convert_args& args) { args.x = nullptr; });
  refuse([](frt_convert_args& args) { args.y = nullptr; });
  refuse([](frt_convert_args& args) { args.x_stride = 15; });
  refuse([](frt_convert_args& args) { args.y_stride = 1; });
}

// ---- filling ----------------------------------------------------------------------------------

struct Filling {
  uint64_t seed;
  float low, high;
  int64_t count, first;  // y starts at element `first` of its block
};

// value(i) of the header; volatile: each operation is rounded to f32, none is fused with another.
double filled(const Filling& filling, int64_t i) {
  uint64_t z = filling.seed + static_cast<uint64_t>(i) + 0x9E3779B97F4A7C15u;
  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
  z = (z ^ z >> 27) * 0x94D049BB133111EBu;
  z = z ^ z >> 31;
  const volatile float unit = static_cast<float>(z >> 40) * 0x1p-24f;
  const volatile float width = filling.high - filling.low;
  const volatile float part = width * unit;
  const volatile float value = filling.low + part;
  return static_cast<double>(value);
}

void fill_uniform(Case& c, frt_dtype dtype, const Filling& filling) {
  const bool nibbles = dtype == FRT_DTYPE_F4_E2M1;
  const int64_t units = nibbles ? filling.count / 2 : filling.count;
  const int64_t first = nibbles ? filling.first / 2 : filling.first;
  Tensor& y = c.output("y", bits_type(dtype), first + units + 9);
  c.run<frt_fill_uniform_args>(FRT_OP_FILL_UNIFORM, types_of(FRT_DTYPE_NONE, dtype), {},
                               [&](frt_fill_uniform_args& args, const At& at) {
                                 args.dtype = dtype;
                                 args.low = filling.low;
                                 args.high = filling.high;
                                 args.seed = filling.seed;
                                 args.count = static_cast<uint64_t>(filling.count);
                                 args.y = at(y, first);
                               });
  c.compare(y, kExact);

  // Two of f4_e2m1 are one byte, compared by its bits; an infinity less an infinity is no number.
  Expected expected(nibbles ? FRT_DTYPE_U8 : dtype, y.count);
  for (int64_t i = 0; i < units; ++i) {
    if (nibbles) {
      const uint32_t low = encode(dtype, filled(filling, 2 * i));
      const uint32_t high = encode(dtype, filled(filling, 2 * i + 1));
      expected.value(first + i, low | high << 4);
    } else {
      expected.code(first + i, filled(filling, i));
    }
  }
  c.require(y, expected);
}

void fill_refusals(Case& c) {
  Tensor& y = c.output("y", FRT_DTYPE_U8, 64);
  const auto refuse = [&](auto spoil) {
    refused<frt_fill_uniform_args>(
        c, FRT_OP_FILL_UNIFORM, KernelTypes(FRT_DTYPE_F32), {},
        [&](frt_fill_uniform_args& args, const At& at) {
          args.dtype = FRT_DTYPE_F32;
          args.high = 1;
          args.count = 3;
          args.y = at(y);
        },
        spoil);
  };
  refuse([](frt_fill_uniform_args& args) { args.dtype = FRT_DTYPE_F8_E5M2; });
  refuse([](frt_fill_uniform_args& args) { args.dtype = FRT_DTYPE_F4_E2M1; });  // an odd count
  refuse([](frt_fill_uniform_args& args) { args.count = ~uint64_t{0}; });
  refuse([](frt_fill_uniform_args& args) { args.y = nullptr; });
}

// ---- checksum ---------------------------------------------------------------------------------

void checksum(Case& c, int64_t words, int64_t first) {
  std::vector<uint64_t> data(static_cast<std::size_t>(words + first));
  for (uint64_t& word : data) word = c.random()();
  Tensor& x = c.raw("x", FRT_DTYPE_U64, data.data(), words + first);
  Tensor& y = c.output("y", FRT_DTYPE_U32, 4);  // one 64-bit word, then what must stay
  c.run<frt_checksum_args>(FRT_OP_CHECKSUM, KernelTypes(), {},
                           [&](frt_checksum_args& args, const At& at) {
                             args.x = at(x, first);
                             args.bytes = static_cast<uint64_t>(words) * 8;
                             args.y = at.operator()<uint64_t>(y);
                           });
  c.compare(y, kExact);

  uint64_t sum = 0;
  for (std::size_t i = static_cast<std::size_t>(first); i < data.size(); ++i) sum ^= data[i];
  Expected expected(FRT_DTYPE_U32, y.count);
  expected.value(0, static_cast<double>(sum & 0xFFFFFFFFu));
  expected.value(1, static_cast<double>(sum >> 32));
  c.require(y, expected);
}

void checksum_refusals(Case& c) {
  Tensor& x = c.output("x", FRT_DTYPE_U64, 4);
  const auto refuse = [&](auto spoil) {
    refused<frt_checksum_args>(
        c, FRT_OP_CHECKSUM, KernelTypes(), {},
        [&](frt_checksum_args& args, const At& at) {
          args.x = at(x);
          args.bytes = 16;
          args.y = at.operator()<uint64_t>(x, 3);
        },
        spoil);
  };
  refuse([](frt_checksum_args& args) { args.x = nullptr; });
  refuse([](frt_checksum_args& args) { args.y = nullptr; });
  refuse([](frt_checksum_args& args) { args.bytes = 12; });
  refuse([](frt_checksum_args& args) { args.x = static_cast<const std::byte*>(args.x) + 4; });
}

// ---- the lists --------------------------------------------------------------------------------

void add_binary_cases(Suite& suite) {
  for (const char* op : {FRT_OP_SILU_MUL, FRT_OP_SIGMOID_MUL, FRT_OP_ADD, FRT_OP_GELU_MUL}) {
    for (const frt_dtype dtype : {FRT_DTYPE_F32, FRT_DTYPE_BF16}) {
      const auto add = [&](const std::string& what, const BinaryShape& shape) {
        suite.add(std::string(op) + " " + dtype_name(dtype) + " " + number(shape.rows) + "x" +
                      number(shape.width) + what,
                  [=](Case& c) { binary(c, op, dtype, shape); });
      };
      for (const auto& [rows, width] : {std::pair{1, 1}, {7, 33}, {3, 4096}, {130, 1000}}) {
        add(" strided", {rows, width, 1});
      }
      add("", {1, 17408, 0});
      add("", {16, 512, 0});
      add(" aligned strides", {5, 1024, 8});
      add(" in place", {4, 1024, 8, -1, true});
      add(" in place, odd", {4, 77, 3, -1, true});
      add(" row count", {70000, 8, 0, 66001});
      add(" row count 0", {3, 40, 0, 0});
      add(" row count beyond", {3, 40, 0, 9});
      add(" wide values", {3, 2000, 0, -1, false, 40.0f});
    }
    suite.add(std::string(op) + " refusals", [=](Case& c) { binary_refusals(c, op); });
  }
}

void add_convert_cases(Suite& suite) {
  for (const frt_dtype from : kConverted) {
    for (const frt_dtype to : kConverted) {
      const std::string name =
          std::string(FRT_OP_CONVERT) + " " + dtype_name(from) + " to " + dtype_name(to);
      suite.add(name + " all codes", [=](Case& c) { convert_codes(c, from, to); });
      const auto add = [&](const char* what, int32_t rows, int32_t width, int64_t gap,
                           int32_t row_count) {
        suite.add(name + " " + number(rows) + "x" + number(width) + what,
                  [=](Case& c) { convert_rows(c, from, to, rows, width, gap, row_count); });
      };
      add("", 1, 1, 0, -1);
      add(" strided", 9, 131, 1, -1);
      add(" aligned strides", 9, 2056, 16, -1);
      add(" row count", 66000, 16, 0, 65555);
      suite.add(name + " 5x77 factor 0.37",
                [=](Case& c) { convert_rows(c, from, to, 5, 77, 2, -1, 0.37f); });
    }
  }
  suite.add(std::string(FRT_OP_CONVERT) + " refusals", convert_refusals);
}

void add_fill_cases(Suite& suite) {
  const Filling fillings[] = {
      {1, 0, 1, 2, 0},
      {2, -1, 1, 34, 0},
      {~uint64_t{0} - 1000, -0.02f, 0.02f, 100'002, 0},  // the seed wraps on the way
      {0x0123456789ABCDEFu, -8, 8, 65'536, 0},
      {77, -900, 700, 4098, 2},
      {78, -7e4f, 7e4f, 4098, 6},
      {79, 3, 3, 40, 0},
      {80, 1e-8f, -1e-3f, 5000, 16},
      {81, -3e38f, 3e38f, 514, 0},
      {1234567, -0.5f, 0.5f, 3'000'000, 0},
      {5, 0, 1, 0, 0},
  };
  for (const frt_dtype dtype :
       {FRT_DTYPE_F32, FRT_DTYPE_BF16, FRT_DTYPE_F16, FRT_DTYPE_F8_E4M3, FRT_DTYPE_F4_E2M1}) {
    const std::string name = std::string(FRT_OP_FILL_UNIFORM) + " " + dtype_name(dtype) + " ";
    for (const Filling& filling : fillings) {
      suite.add(name + number(filling.count) + " seed " + std::to_string(filling.seed),
                [=](Case& c) { fill_uniform(c, dtype, filling); });
    }
    if (dtype == FRT_DTYPE_F4_E2M1) continue;
    for (const int64_t count : {1, 7, 9, 2047}) {
      suite.add(name + number(count) + " unaligned", [=](Case& c) {
        fill_uniform(c, dtype, {9, -2, 3, count, 3});
      });
    }
  }
  suite.add(std::string(FRT_OP_FILL_UNIFORM) + " refusals", fill_refusals);
}

void add_checksum_cases(Suite& suite) {
  for (const int64_t words : {0, 1, 2, 3, 1000, 8191, 8192, 8193, 8194, 131072, 1'000'003}) {
    for (const int64_t first : {0, 1}) {
      suite.add(std::string(FRT_OP_CHECKSUM) + " " + number(words) + " words from " + number(first),
                [=](Case& c) { checksum(c, words, first); });
    }
  }
  suite.add(std::string(FRT_OP_CHECKSUM) + " refusals", checksum_refusals);
}

}  // namespace

void add_elementwise_cases(Suite& suite) {
  add_binary_cases(suite);
  add_convert_cases(suite);
  add_fill_cases(suite);
  add_checksum_cases(suite);
}

}  // namespace frt::conformance
