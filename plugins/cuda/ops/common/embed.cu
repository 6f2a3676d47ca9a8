// SPDX-License-Identifier: Apache-2.0
// Moving rows: frt.embed/1, frt.select_tokens/1, frt.last_rows/1.
//
// Latency at decode, the bytes of the rows at prefill. A row is spread over several blocks, so that
// a single one is fetched at once. A table of the output's type is copied; another is dequantised
// or rounded, eight values per thread where both sides are aligned.
#include <frt/ops/checks/embed.hpp>

#include <algorithm>

#include "../registry.hpp"
#include "convert_values.cuh"
#include "launch.cuh"
#include "rows_copy.cuh"
#include "weight.hpp"

namespace frt::cuda {
namespace {

constexpr int kThreads = 256;

unsigned row_blocks(int64_t rows) {
  return static_cast<unsigned>(std::min<int64_t>(rows, 65535));
}

// N: values per thread, if they are converted.
template <int N>
__global__ void __launch_bounds__(kThreads) embed_kernel(const frt_embed_args args) {
  pdl_trigger();
  pdl_wait();
  const int rows = active_rows(args.rows, args.row_count);
  const int64_t width = args.table.cols;
  const frt_dtype stored = table_type(args.table);
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads * N;
  for (int row = static_cast<int>(blockIdx.y); row < rows; row += static_cast<int>(gridDim.y)) {
    const int32_t id = args.ids[row];
    const bool inside = id >= 0 && id < args.table.rows;
    if (inside && stored == args.y_dtype) {
      const int64_t size = bytes_of(stored);
      copy_part(static_cast<std::byte*>(args.y) + row * args.y_stride * size,
                static_cast<const std::byte*>(args.table.data) + id * width * size, width * size);
      continue;
    }
    for (int64_t i = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * N; i < width;
         i += step) {
      float v[N] = {};
      if (inside) load_values(stored, args.table.data, id * width + i, v);
      store_values(args.y_dtype, args.y, row * args.y_stride + i, v);
    }
  }
}

__global__ void __launch_bounds__(kThreads) select_kernel(const frt_select_tokens_args args) {
  pdl_trigger();
  pdl_wait();
  const frt_sequences& s = args.sequences;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (row >= static_cast<int64_t>(s.count) * s.rows) return;
  const auto b = static_cast<int>(row / s.rows);
  if (row % s.rows >= active_length(s, b)) return;
  int32_t id = args.ids[row];
  if (id < 0) {
    id = *reinterpret_cast<const int32_t*>(static_cast<const std::byte*>(args.pending) +
                                           s.slot[b] * args.pending_stride);
  }
  args.ids_out[row] = id;
}

__global__ void __launch_bounds__(kThreads) last_rows_kernel(const frt_last_rows_args args) {
  pdl_trigger();
  pdl_wait();
  const frt_sequences& s = args.sequences;
  const int64_t size = bytes_of(args.dtype);
  for (int b = static_cast<int>(blockIdx.y); b < s.count; b += static_cast<int>(gridDim.y)) {
    const int length = active_length(s, b);
    if (length == 0) continue;
    const int64_t last = static_cast<int64_t>(b) * s.rows + length - 1;
    copy_part(static_cast<std::byte*>(args.y) + b * args.y_stride * size,
              static_cast<const std::byte*>(args.x) + last * args.x_stride * size,
              args.width * size);
  }
}

void embed(Stream& stream, const frt_embed_args& args) {
  check_embed(Checks(FRT_OP_EMBED), args, kPlainFormats);
  const bool vector = args.table.cols % 8 == 0 && vector_rows(args.table.data, args.table.cols) &&
                      vector_rows(args.y, args.y_stride);
  const int64_t bytes =
      static_cast<int64_t>(args.table.cols) * dtype_bits(args.table.format.data) / 8;
  launch(stream, {copy_blocks(bytes, row_blocks(args.rows)), kThreads},
         vector ? embed_kernel<8> : embed_kernel<1>, args);
}

void select_tokens(Stream& stream, const frt_select_tokens_args& args) {
  check_select_tokens(Checks(FRT_OP_SELECT_TOKENS), args);
  const int64_t rows = static_cast<int64_t>(args.sequences.count) * args.sequences.rows;
  launch(stream, {dim3(static_cast<unsigned>(ceil_div(rows, kThreads))), kThreads}, select_kernel,
         args);
}

void last_rows(Stream& stream, const frt_last_rows_args& args) {
  check_last_rows(Checks(FRT_OP_LAST_ROWS), args);
  const int64_t bytes = static_cast<int64_t>(args.width) * dtype_bits(args.dtype) / 8;
  launch(stream, {copy_blocks(bytes, row_blocks(args.sequences.count)), kThreads}, last_rows_kernel,
         args);
}

}  // namespace

void register_embed(KernelList& list) {
  list.add<frt_embed_args>(FRT_OP_EMBED, {0, kFloatTypes}, kPlainFormats, embed);
  list.add<frt_select_tokens_args>(FRT_OP_SELECT_TOKENS, 0, {}, select_tokens);
  list.add<frt_last_rows_args>(FRT_OP_LAST_ROWS, kFloatTypes, {}, last_rows);
}

}  // namespace frt::cuda
