// SPDX-License-Identifier: Apache-2.0
// frt.lag_rows/1 and frt.store_rows/1.
#include <doctest/doctest.h>
#include <frt/ops/rows.h>

#include "sequence_tools.hpp"

namespace {
using namespace frt::cpu_test;

constexpr std::size_t kWidth = 5;
constexpr std::size_t kStride = 9;  // values from slot to slot

std::vector<float> row(const Array& values, std::size_t first) {
  std::vector<float> out;
  for (std::size_t i = 0; i < kWidth; ++i) out.push_back(values[first + i]);
  return out;
}

}  // namespace

TEST_CASE("lag_rows pairs each token with the row before it, the first with the slot's row") {
  CpuDevice device({.threads = 2});
  for (const frt_dtype dtype : {FRT_DTYPE_F32, FRT_DTYPE_BF16}) {
    Random random(1);
    // Continuing, starting, idle, starting with a single token.
    const Batch batch{4, {2, 0, 1, 3}, {7, 0, 5, 0}, {3, 4, 0, 1}};
    const Array x = random.array(dtype, batch.all_rows() * kWidth);
    const Array carry = random.array(dtype, 4 * kStride);
    std::vector<int32_t> ids(batch.all_rows());
    for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = 100 + static_cast<int32_t>(i);
    Array y(dtype, x.size(), 7.0f);
    std::vector<int32_t> ids_out(ids.size(), -7), position(4, -7), length(4, -7);
    frt_lag_rows_args args{};
    args.dtype = dtype;
    args.sequences = batch.view();
    args.width = kWidth;
    args.ids = ids.data();
    args.x = x.bytes().data();
    args.carry = carry.bytes().data();
    args.slot_stride = static_cast<int64_t>(kStride * x.element());
    args.ids_out = ids_out.data();
    args.y = y.data();
    args.position_out = position.data();
    args.length_out = length.data();
    device.run(FRT_OP_LAG_ROWS, args);

    CHECK(position == std::vector<int32_t>{6, 0, 4, 0});
    CHECK(length == std::vector<int32_t>{3, 3, 0, 0});
    CHECK(std::vector<int32_t>(ids_out.begin(), ids_out.begin() + 8) ==
          std::vector<int32_t>{100, 101, 102, -7, 105, 106, 107, -7});
    CHECK(row(y, 0) == row(carry, 2 * kStride));
    CHECK(row(y, kWidth) == row(x, 0));
    CHECK(row(y, 2 * kWidth) == row(x, kWidth));
    CHECK(row(y, 4 * kWidth) == row(x, 4 * kWidth));
    CHECK(row(y, 6 * kWidth) == row(x, 6 * kWidth));
    for (const std::size_t untouched : {3, 7, 8, 11, 12, 15}) {
      CHECK(row(y, untouched * kWidth) == std::vector<float>(kWidth, 7.0f));
    }
  }
}

TEST_CASE("lag_rows needs no rows where every sequence has one token") {
  CpuDevice device({.threads = 1});
  const Batch batch{1, {1, 0}, {3, 0}, {1, 1}};
  Array carry(FRT_DTYPE_F32, 2 * kStride, 2.5f);
  Array y(FRT_DTYPE_F32, 2 * kWidth, 7.0f);
  const std::vector<int32_t> ids = {4, 5};
  std::vector<int32_t> ids_out(2, -7), position(2), length(2);
  frt_lag_rows_args args{};
  args.dtype = FRT_DTYPE_F32;
  args.sequences = batch.view();
  args.width = kWidth;
  args.ids = ids.data();
  args.carry = carry.data();
  args.slot_stride = kStride * 4;
  args.ids_out = ids_out.data();
  args.y = y.data();
  args.position_out = position.data();
  args.length_out = length.data();
  device.run_captured(FRT_OP_LAG_ROWS, args, 2);
  CHECK(ids_out == std::vector<int32_t>{4, -7});
  CHECK(length == std::vector<int32_t>{1, 0});
  CHECK(row(y, 0) == std::vector<float>(kWidth, 2.5f));
  CHECK(row(y, kWidth) == std::vector<float>(kWidth, 7.0f));

  Batch longer = batch;
  longer.rows = 2;
  args.sequences = longer.view();
  CHECK(device.refusal(FRT_OP_LAG_ROWS, args) == FRT_ERR_INVALID_ARGUMENT);
}

TEST_CASE("store_rows keeps the last valid row of each active sequence with its slot") {
  CpuDevice device({.threads = 2});
  for (const frt_dtype dtype : {FRT_DTYPE_F32, FRT_DTYPE_BF16}) {
    Random random(2);
    const Batch batch{3, {2, 0, 1}, {0, 4, 9}, {3, 1, 0}};
    const Array x = random.array(dtype, batch.all_rows() * kWidth);
    Array target(dtype, 3 * kStride, 7.0f);
    frt_store_rows_args args{};
    args.dtype = dtype;
    args.sequences = batch.view();
    args.width = kWidth;
    args.x = x.bytes().data();
    args.target = target.data();
    args.slot_stride = static_cast<int64_t>(kStride * x.element());
    device.run(FRT_OP_STORE_ROWS, args);
    CHECK(row(target, 2 * kStride) == row(x, 2 * kWidth));
    CHECK(row(target, 0) == row(x, 3 * kWidth));
    CHECK(row(target, kStride) == std::vector<float>(kWidth, 7.0f));
    CHECK(target[kWidth] == 7.0f);

    args.width = 0;
    CHECK(device.refusal(FRT_OP_STORE_ROWS, args) == FRT_ERR_INVALID_ARGUMENT);
  }
}
