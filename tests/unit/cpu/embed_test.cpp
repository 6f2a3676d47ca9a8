// SPDX-License-Identifier: Apache-2.0
// frt.embed/1, frt.select_tokens/1 and frt.last_rows/1.
#include <doctest/doctest.h>
#include <frt/ops/embed.h>
#include <frt/weights.hpp>

#include "sequence_tools.hpp"

namespace {
using namespace frt::cpu_test;
}

TEST_CASE("embed copies rows of the table, converted, and zeros for ids outside") {
  CpuDevice device({.threads = 2});
  for (const bool wide_table : {true, false}) {
    for (const frt_dtype y_dtype : {FRT_DTYPE_F32, FRT_DTYPE_BF16}) {
      for (const int32_t width : {1, 37, 5000}) {
        Random random(1);
        const auto w = static_cast<std::size_t>(width);
        Array table = random.array(wide_table ? FRT_DTYPE_F32 : FRT_DTYPE_BF16, 9 * w);
        const std::vector<int32_t> ids = {3, -1, 8, 9, 0, INT32_MAX, 5};
        Array y(y_dtype, ids.size() * (w + 1), 7.0f);
        int32_t row_count = 6;
        frt_embed_args args{};
        args.y_dtype = y_dtype;
        args.rows = static_cast<int32_t>(ids.size());
        args.row_count = &row_count;
        args.ids = ids.data();
        args.table.format = wide_table ? frt::kWeightF32 : frt::kWeightBf16;
        args.table.rows = 9;
        args.table.cols = width;
        args.table.data = table.data();
        args.y = y.data();
        args.y_stride = width + 1;
        device.run(FRT_OP_EMBED, args);
        Array expected(y_dtype, y.size(), 7.0f);
        for (std::size_t r = 0; r < 6; ++r) {
          const bool inside = ids[r] >= 0 && ids[r] < 9;
          for (std::size_t i = 0; i < w; ++i) {
            expected.set(r * (w + 1) + i,
                         inside ? table[static_cast<std::size_t>(ids[r]) * w + i] : 0.0f);
          }
        }
        CHECK(y.bytes() == expected.bytes());
      }
    }
  }
}

TEST_CASE("select_tokens takes the pending token of the slot where the id is negative") {
  CpuDevice device({.threads = 2});
  const Batch batch{2, {2, 0, 1}, {0, 0, 0}, {2, 1, 0}};
  const std::vector<int32_t> ids = {-1, 5, -1, -1, -1, -1};
  const std::vector<int32_t> pending = {100, 0, 101, 0, 102, 0};
  std::vector<int32_t> out(6, -7);
  frt_select_tokens_args args{};
  args.sequences = batch.view();
  args.ids = ids.data();
  args.pending = pending.data();
  args.pending_stride = 8;
  args.ids_out = out.data();
  device.run_captured(FRT_OP_SELECT_TOKENS, args);
  CHECK(out == std::vector<int32_t>{102, 5, 100, -7, -7, -7});
}

TEST_CASE("last_rows copies the last valid row of each sequence and nothing of empty ones") {
  CpuDevice device({.threads = 2});
  for (const frt_dtype dtype : {FRT_DTYPE_F32, FRT_DTYPE_BF16}) {
    const Batch batch{3, {0, 1, 2}, {0, 0, 0}, {3, 0, 1}};
    Random random(1);
    Array x = random.array(dtype, 9 * 12);
    Array y(dtype, 3 * 11, 7.0f);
    frt_last_rows_args args{};
    args.dtype = dtype;
    args.sequences = batch.view();
    args.width = 10;
    args.x = x.data();
    args.x_stride = 12;
    args.y = y.data();
    args.y_stride = 11;
    device.run(FRT_OP_LAST_ROWS, args);
    for (std::size_t i = 0; i < 11; ++i) {
      CHECK(y[i] == (i < 10 ? x[2 * 12 + i] : 7.0f));
      CHECK(y[11 + i] == 7.0f);
      CHECK(y[22 + i] == (i < 10 ? x[6 * 12 + i] : 7.0f));
    }
  }
}

TEST_CASE("embed refuses packed tables and short strides by name") {
  CpuDevice device({.threads = 1});
  std::vector<float> data(64);
  std::vector<int32_t> ids(4);
  std::string message;
  frt_embed_args args{};
  args.y_dtype = FRT_DTYPE_F32;
  args.rows = 4;
  args.ids = ids.data();
  args.table.format = frt::kWeightF32;
  args.table.rows = 4;
  args.table.cols = 8;
  args.table.data = data.data();
  args.y = data.data();
  args.y_stride = 7;
  CHECK(device.refusal(FRT_OP_EMBED, args, &message) == FRT_ERR_INVALID_ARGUMENT);
  CHECK(message.find("y_stride") != std::string::npos);
  args.y_stride = 8;
  args.table.format.data = FRT_DTYPE_I64;
  CHECK(device.refusal(FRT_OP_EMBED, args, &message) == FRT_ERR_INVALID_ARGUMENT);
  CHECK(message.find("table.format") != std::string::npos);
}

TEST_CASE("the number formats are what their names say") {
  using namespace frt::cpu;
  for (uint32_t bits = 0; bits < 256; ++bits) {
    const double sign = bits & 0x80 ? -1 : 1;
    const int exponent = static_cast<int>(bits >> 3 & 15);
    const double mantissa = bits & 7;
    const double expected = exponent == 0 ? sign * mantissa / 8 * std::pow(2.0, -6)
                                          : sign * (1 + mantissa / 8) * std::pow(2.0, exponent - 7);
    const float found = e4m3_to_float(static_cast<uint8_t>(bits));
    if ((bits & 0x7F) == 0x7F) {
      CHECK(std::isnan(found));
      continue;
    }
    CHECK(static_cast<double>(found) == expected);
    CHECK(e4m3_from_float(found) == bits);
    // Halfway to the next code goes to the even one.
    if ((bits & 0x7F) < 0x7E) {
      const float next = e4m3_to_float(static_cast<uint8_t>(bits + 1));
      CHECK(e4m3_from_float((found + next) / 2) == bits + (bits & 1));
    }
  }
  CHECK(e4m3_from_float(1e9f) == 0x7E);
  CHECK(e4m3_from_float(-INFINITY) == 0xFE);
  CHECK((e4m3_from_float(NAN) & 0x7F) == 0x7F);
  CHECK(bf16_from_float(1.00390625f) == 0x3F80);    // halfway, to even
  CHECK(bf16_from_float(1.01171875f) == 0x3F82);    // halfway, to even
  CHECK(bf16_from_float(3.4028235e38f) == 0x7F80);  // rounds to infinity
  CHECK(std::isnan(bf16_to_float(bf16_from_float(NAN))));
}
