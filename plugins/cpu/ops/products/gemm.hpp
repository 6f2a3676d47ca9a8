// SPDX-License-Identifier: Apache-2.0
// gemm.hpp - GEMM: products with many activation rows, by oneDNN: what prefilling is made of.
//
// One Gemm multiplies blocks of activation rows by tiles of weight rows, both in memory as
// they are (row-major; the primitive packs the weights tile itself, which costs a few percent
// once 64 rows or more share it). The block sizes are fixed, so the primitives are made at prepare
// and shared, through oneDNN's own cache, by all nodes of the same widths.
//
// Threads: every primitive is made and run with one OpenMP thread; the parallelism is that of the
// backend's pool, one slot per worker. oneDNN allocates a few small blocks when a primitive runs.
// It uses the best instructions of the machine, also where the device's isa option is lower.
#pragma once

#include <frt/base.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace frt::cpu {

// Fewest rows of a block: fewer are for the GEMV kernels.
inline constexpr int64_t kGemmRows = 16;

// Most rows of a block.
inline constexpr int64_t kGemmBlock = 256;

// Weight rows per tile, where the weight has as many.
inline constexpr int64_t kGemmTile = 64;

// The library and the instructions that it chooses kernels by, e.g. "oneDNN 2.7.3 isa 0x1ef".
// [setup]
std::string gemm_library();

class Gemm {
 public:
  // x: rows `x_stride` elements apart, at least kGemmRows and at most `rows` of them. Tiles: `tile`
  // weight rows of `cols` values, contiguous. x and weights are of `dtype` (f32, bf16). Throws
  // FRT_ERR_UNSUPPORTED if oneDNN refuses, FRT_ERR_OUT_OF_MEMORY.  [setup]
  Gemm(frt_dtype dtype, int64_t rows, int64_t cols, int64_t x_stride, int64_t tile, int workers);
  ~Gemm();
  Gemm(const Gemm&) = delete;
  Gemm& operator=(const Gemm&) = delete;

  // Bytes of scratch per worker, for `scratchpad` below (aligned to 64).  [any]
  std::size_t scratchpad_bytes() const noexcept;

  // The block of rows to compute for row `row` of `active` ones (of `rows` that may be read):
  // its first row, at or before `row`, and its size, one that exists.  [hot]
  struct Block {
    int64_t first, rows;
    int64_t end() const noexcept { return first + rows; }
  };
  Block block(int64_t row, int64_t active, int64_t rows) const noexcept;

  // out (block_rows, tile) = x (block_rows, cols) weights^T, f32. A failure of oneDNN gives NaN.
  // [hot]
  void run(int worker, int64_t block_rows, const void* x, const void* weights, float* out,
           void* scratchpad) noexcept;

 private:
  bool run_primitive(int worker, int64_t block_rows, const void* x, const void* weights, float* out,
                     void* scratchpad) noexcept;

  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace frt::cpu
