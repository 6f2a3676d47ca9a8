// SPDX-License-Identifier: Apache-2.0
// frt.convert/1: rows from one float type to another, and the strided copy of rows.
//
// One value at a time: memory, not arithmetic, is the limit wherever this is used.
#include <frt/ops/checks/elementwise.hpp>

#include <algorithm>
#include <cstring>

#include "../device.hpp"
#include "active.hpp"
#include "formats.hpp"
#include "numbers.hpp"
#include "registry.hpp"

namespace frt::cpu {
namespace {

constexpr int64_t kPiece = 16384;  // values per task

int64_t bytes_of(frt_dtype dtype) noexcept {
  return dtype_bits(dtype) / 8;
}

template <class Load, class Store>
void convert_loop(int64_t count, const Load& load, const Store& store) noexcept {
  for (int64_t i = 0; i < count; ++i) store(i, load(i));
}

template <class Load>
void convert_from(int64_t count, const Load& load, frt_dtype dtype, void* y) noexcept {
  switch (dtype) {
    case FRT_DTYPE_F32:
      return convert_loop(count, load, [y](int64_t i, float v) { static_cast<float*>(y)[i] = v; });
    case FRT_DTYPE_BF16:
      return convert_loop(count, load, [y](int64_t i, float v) {
        static_cast<uint16_t*>(y)[i] = bf16_from_float(v);
      });
    case FRT_DTYPE_F16:
      return convert_loop(count, load, [y](int64_t i, float v) {
        static_cast<uint16_t*>(y)[i] = f16_from_float(v);
      });
    default:
      return convert_loop(count, load, [y](int64_t i, float v) {
        static_cast<uint8_t*>(y)[i] = e4m3_from_float(v);
      });
  }
}

// Without a factor nothing is multiplied, not even by 1: that would make quiet NaNs of signalling
// ones.
template <class Load>
void convert_scaled(int64_t count, const Load& load, float factor, frt_dtype dtype,
                    void* y) noexcept {
  if (factor == 0) return convert_from(count, load, dtype, y);
  convert_from(
      count, [=](int64_t i) { return load(i) * factor; }, dtype, y);
}

void convert_values(int64_t count, frt_dtype x_dtype, const void* x, float factor,
                    frt_dtype y_dtype, void* y) noexcept {
  if (x_dtype == y_dtype && factor == 0) {
    std::memmove(y, x, static_cast<std::size_t>(count * bytes_of(x_dtype)));
    return;
  }
  switch (x_dtype) {
    case FRT_DTYPE_F32:
      return convert_scaled(
          count, [=](int64_t i) { return static_cast<const float*>(x)[i]; }, factor, y_dtype, y);
    case FRT_DTYPE_BF16:
      return convert_scaled(
          count, [=](int64_t i) { return bf16_to_float(static_cast<const uint16_t*>(x)[i]); },
          factor, y_dtype, y);
    case FRT_DTYPE_F16:
      return convert_scaled(
          count, [=](int64_t i) { return f16_to_float(static_cast<const uint16_t*>(x)[i]); },
          factor, y_dtype, y);
    default:
      return convert_scaled(
          count, [=](int64_t i) { return e4m3_to_float(static_cast<const uint8_t*>(x)[i]); },
          factor, y_dtype, y);
  }
}

std::unique_ptr<Node> prepare_convert(Device&, const frt_convert_args& args) {
  check_convert(Checks(FRT_OP_CONVERT), args);
  return make_node([args](Pool& pool, std::byte*) noexcept {
    const int64_t rows = active_rows(args.rows, args.row_count);
    const int64_t rows_per_task = std::max<int64_t>(1, kPiece / args.width);
    pool.run((rows + rows_per_task - 1) / rows_per_task, [&](int64_t task, int) {
      const int64_t first = task * rows_per_task;
      for (int64_t row = first; row < std::min(rows, first + rows_per_task); ++row) {
        convert_values(args.width, args.x_dtype,
                       byte_offset(args.x, row * args.x_stride * bytes_of(args.x_dtype)),
                       args.factor, args.y_dtype,
                       byte_offset(args.y, row * args.y_stride * bytes_of(args.y_dtype)));
      }
    });
  });
}

}  // namespace

void register_convert(KernelList& list) {
  list.add<frt_convert_args>(
      FRT_OP_CONVERT, kFloatTypes | FRT_DTYPE_BIT(FRT_DTYPE_F16) | FRT_DTYPE_BIT(FRT_DTYPE_F8_E4M3),
      {}, prepare_convert);
}

}  // namespace frt::cpu
