// SPDX-License-Identifier: Apache-2.0
// Rows kept with a slot: frt.lag_rows/1, frt.store_rows/1. Plain copies, a row spread over several
// blocks; the blocks of the y dimension walk over the rows.
#include <frt/ops/checks/rows.hpp>

#include <algorithm>

#include "../registry.hpp"
#include "convert_values.cuh"
#include "launch.cuh"
#include "rows_copy.cuh"

namespace frt::cuda {
namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads) lag_kernel(const frt_lag_rows_args args) {
  pdl_trigger();
  pdl_wait();
  const frt_sequences& s = args.sequences;
  const int64_t row_bytes = args.width * bytes_of(args.dtype);
  const int64_t rows = static_cast<int64_t>(s.count) * s.rows;
  for (int64_t row = blockIdx.y; row < rows; row += gridDim.y) {
    const auto b = static_cast<int>(row / s.rows);
    const auto q = static_cast<int>(row % s.rows);
    const int length = active_length(s, b);
    const int position = s.position[b];
    const int skipped = position > 0 ? 0 : 1;  // the first token has no row before it
    const int pairs = length > 0 ? length - skipped : 0;
    const bool first_thread = blockIdx.x == 0 && threadIdx.x == 0;
    if (q == 0 && first_thread) {
      args.position_out[b] = position > 0 ? position - 1 : 0;
      args.length_out[b] = pairs;
    }
    if (q >= pairs) continue;
    const int from = q + skipped;
    if (first_thread) args.ids_out[row] = args.ids[row + skipped];
    const std::byte* source =
        from == 0 ? static_cast<const std::byte*>(args.carry) + s.slot[b] * args.slot_stride
                  : static_cast<const std::byte*>(args.x) + (row + skipped - 1) * row_bytes;
    copy_part(static_cast<std::byte*>(args.y) + row * row_bytes, source, row_bytes);
  }
}

__global__ void __launch_bounds__(kThreads) store_kernel(const frt_store_rows_args args) {
  pdl_trigger();
  pdl_wait();
  const frt_sequences& s = args.sequences;
  const int64_t row_bytes = args.width * bytes_of(args.dtype);
  for (int b = static_cast<int>(blockIdx.y); b < s.count; b += static_cast<int>(gridDim.y)) {
    const int length = active_length(s, b);
    if (length == 0) continue;
    const int64_t last = static_cast<int64_t>(b) * s.rows + length - 1;
    copy_part(static_cast<std::byte*>(args.target) + s.slot[b] * args.slot_stride,
              static_cast<const std::byte*>(args.x) + last * row_bytes, row_bytes);
  }
}

template <class Args>
dim3 row_grid(const Args& args, int64_t rows) {
  return copy_blocks(static_cast<int64_t>(args.width) * dtype_bits(args.dtype) / 8,
                     static_cast<unsigned>(std::min<int64_t>(rows, 65535)));
}

void lag_rows(Stream& stream, const frt_lag_rows_args& args) {
  check_lag_rows(Checks(FRT_OP_LAG_ROWS), args);
  const int64_t rows = static_cast<int64_t>(args.sequences.count) * args.sequences.rows;
  launch(stream, {row_grid(args, rows), kThreads}, lag_kernel, args);
}

void store_rows(Stream& stream, const frt_store_rows_args& args) {
  check_store_rows(Checks(FRT_OP_STORE_ROWS), args);
  launch(stream, {row_grid(args, args.sequences.count), kThreads}, store_kernel, args);
}

}  // namespace

void register_rows(KernelList& list) {
  list.add<frt_lag_rows_args>(FRT_OP_LAG_ROWS, kFloatTypes, {}, lag_rows);
  list.add<frt_store_rows_args>(FRT_OP_STORE_ROWS, kFloatTypes, {}, store_rows);
}

}  // namespace frt::cuda
