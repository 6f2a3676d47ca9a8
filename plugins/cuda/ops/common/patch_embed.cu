// SPDX-License-Identifier: Apache-2.0
// From images and tokens to rows: frt.pack_views/1, frt.patches/1, frt.embed_rows/1.
//
// Floor: three views of 224 x 224 x 3 bytes in, 768 rows of 592 bf16 out, 0.9 MB, latency. A thread
// of `patches` makes eight neighbouring columns of a row and so one store of 16 bytes; the pixels
// it gathers come from L1 and L2, and where in a view they lie it knows before the kernel ahead has
// ended.
#include <frt/ops/checks/patch_embed.hpp>

#include <algorithm>

#include "../registry.hpp"
#include "convert_values.cuh"
#include "launch.cuh"
#include "weight.hpp"

namespace frt::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kEmbedThreads = 256;    // of a row
constexpr int kMostBranches = 65535;  // blocks along y

__global__ void pack_views_kernel(const __grid_constant__ frt_pack_views_args a) {
  pdl_trigger();
  pdl_wait();
  if (threadIdx.x != 0) return;
  int valid = 0;
  for (int i = 0; i < a.views && valid < a.slots; ++i) {
    if (a.mask[i] != 0) a.view[valid++] = i;
  }
  for (int i = 0; i < a.slots; ++i) {
    if (i >= valid) a.view[i] = -1;
    a.view_rows[i] = i < valid ? a.rows_per_view : 0;
  }
  const int image_rows = valid * a.rows_per_view;
  *a.image_rows = image_rows;
  for (int w = 0; w < a.branches; ++w) {
    a.length[w] = image_rows + max(0, min(a.text_length[w], a.text_rows));
  }
}

template <int N>
__global__ void __launch_bounds__(kThreads)
    patches_kernel(const __grid_constant__ frt_patches_args a) {
  pdl_trigger();
  const int grid_w = a.width / a.patch, grid_h = a.height / a.patch;
  const int64_t row = blockIdx.x;
  const int slot = static_cast<int>(row / (grid_w * grid_h));
  const int cell = static_cast<int>(row % (grid_w * grid_h));
  const int top = cell / grid_w * a.patch, left = cell % grid_w * a.patch;
  const int area = a.patch * a.patch, used = a.channels * area;
  int64_t places[N];  // in a view; negative: none
  const auto find = [&](int64_t at) {
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const int column = static_cast<int>(at) + i;
      const int c = column / area, y = top + column % area / a.patch, x = left + column % a.patch;
      places[i] = column < used ? (static_cast<int64_t>(y) * a.width + x) * a.channels + c : -1;
    }
  };
  const int64_t first = (static_cast<int64_t>(blockIdx.y) * kThreads + threadIdx.x) * N;
  find(first);
  pdl_wait();
  const int view = a.view[slot];
  const bool valid = view >= 0 && view < a.views;
  const int64_t begin = static_cast<int64_t>(view) * a.height * a.width * a.channels;
  for (int64_t at = first; at < a.x_stride; at += static_cast<int64_t>(gridDim.y) * kThreads * N) {
    if (at != first) find(at);
    float v[N];
#pragma unroll
    for (int i = 0; i < N; ++i) {
      v[i] = 0;
      if (!valid || places[i] < 0) continue;
      const int64_t pixel = begin + places[i];
      const float value = a.pixel_dtype == FRT_DTYPE_F32
                              ? static_cast<const float*>(a.pixels)[pixel]
                              : static_cast<float>(static_cast<const uint8_t*>(a.pixels)[pixel]);
      v[i] = __fadd_rn(__fmul_rn(a.scale, value), a.offset);
    }
    store_values(a.dtype, a.x, row * a.x_stride + at, v);
  }
}

// Block (i, w): row i of branch w.
template <int N>
__global__ void __launch_bounds__(kEmbedThreads)
    embed_rows_kernel(const __grid_constant__ frt_embed_rows_args a) {
  pdl_trigger();
  pdl_wait();
  const int w = static_cast<int>(blockIdx.y), i = static_cast<int>(blockIdx.x);
  // All three asked for at once.
  const int row = *a.first + i, count = a.count[w],
            id = i < a.ids_stride ? a.ids[w * a.ids_stride + i] : -1;
  if (i >= min(count, a.text_rows) || row < 0 || row >= a.y_rows) return;
  const bool known = id >= 0 && id < a.table.rows;
  const frt_dtype dtype = table_type(a.table);
  for (int column = static_cast<int>(threadIdx.x) * N; column < a.table.cols;
       column += kEmbedThreads * N) {
    float v[N];
    if (known)
      load_values(dtype, a.table.data, static_cast<int64_t>(id) * a.table.cols + column, v);
#pragma unroll
    for (int k = 0; k < N; ++k) v[k] = known ? v[k] * a.scale : 0.0f;
    store_values(a.y_dtype, a.y, (static_cast<int64_t>(w) * a.y_rows + row) * a.y_stride + column,
                 v);
  }
}

void pack_views(Stream& stream, const frt_pack_views_args& args) {
  check_pack_views(Checks(FRT_OP_PACK_VIEWS), args);
  launch(stream, {dim3(1), dim3(32)}, pack_views_kernel, args);
}

void patches(Stream& stream, const frt_patches_args& args) {
  check_patches(Checks(FRT_OP_PATCHES), args);
  const int64_t rows =
      static_cast<int64_t>(args.slots) * (args.height / args.patch) * (args.width / args.patch);
  const bool vector = vector_rows(args.x, args.x_stride);
  const int64_t columns = ceil_div(args.x_stride, kThreads * (vector ? 8 : 1));
  const Grid grid{
      dim3(static_cast<unsigned>(rows), static_cast<unsigned>(std::min<int64_t>(columns, 65535))),
      dim3(kThreads)};
  launch(stream, grid, vector ? patches_kernel<8> : patches_kernel<1>, args);
}

void embed_rows(Stream& stream, const frt_embed_rows_args& args) {
  const Checks check(FRT_OP_EMBED_ROWS);
  check_embed_rows(check, args, kPlainFormats);
  if (args.branches > kMostBranches) check.unsupported("branches", "is more than 65535");
  const bool vector = args.table.cols % 8 == 0 && vector_rows(args.y, args.y_stride) &&
                      reinterpret_cast<uintptr_t>(args.table.data) % 16 == 0;
  const Grid grid{dim3(static_cast<unsigned>(args.text_rows), static_cast<unsigned>(args.branches)),
                  dim3(kEmbedThreads)};
  launch(stream, grid, vector ? embed_rows_kernel<8> : embed_rows_kernel<1>, args);
}

}  // namespace

void register_patch_embed(KernelList& list) {
  list.add<frt_pack_views_args>(FRT_OP_PACK_VIEWS, kFloatTypes, {}, pack_views);
  list.add<frt_patches_args>(FRT_OP_PATCHES, {0, kFloatTypes}, {}, patches);
  list.add<frt_embed_rows_args>(FRT_OP_EMBED_ROWS, {0, kFloatTypes}, kPlainFormats, embed_rows);
}

}  // namespace frt::cuda
