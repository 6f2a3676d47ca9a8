// SPDX-License-Identifier: Apache-2.0
// delta.hpp - the gated delta rule of one value head, recurrent and chunked (delta.cpp).
#pragma once

#include <frt/ops/gated_delta.h>

#include <cstddef>
#include <cstdint>

namespace frt::cpu {

// Sequences of up to so many rows are computed row by row, with the same bits as one at a time;
// longer ones in chunks.
inline constexpr int32_t kRecurrentRows = 16;

// Working memory of a chunk of at most `chunk` rows: parts of the block at `work`.
struct ChunkWork {
  ChunkWork(float* work, int64_t chunk, int64_t keys, int64_t values) noexcept {
    const auto take = [&](int64_t count) {
      float* part = work ? work + floats : nullptr;
      floats += (count + 15) / 16 * 16;
      return part;
    };
    qk = take(2 * chunk * keys);
    k_transposed = take(chunk * keys);
    pairs = take(2 * chunk * chunk);
    read = take(2 * chunk * values);
    fresh = take(chunk * values);
    beta = take(chunk);
    decay = take(chunk);
    rest = take(chunk);
    exponents = take(chunk);
    sums = reinterpret_cast<double*>(take(2 * chunk));
  }
  float* qk;            // (2 chunk, keys): rows of Q, then rows of K
  float* k_transposed;  // (keys, chunk)
  float* pairs;         // (2 chunk, chunk): (Q K^T) . D, then -A
  float* read;          // (2 chunk, values): Q S, then K S
  float* fresh;         // (chunk, values): R, then Vn
  float* beta;          // (chunk)
  float* decay;         // (chunk) exp(G)
  float* rest;          // (chunk) exp(G_C - G)
  float* exponents;     // (chunk) a row of G_i - G_j
  double* sums;         // (chunk) G
  int64_t floats = 0;   // all of it
};

// Floats of working memory for one task.  [setup]
std::size_t delta_work_floats(const frt_gated_delta_args& args) noexcept;

// The state that the rows of value head `head` of sequence `b` change: the slot's, or where it is
// kept a copy of it in `work`.  [hot]
float* delta_state(const frt_gated_delta_args& args, int64_t b, int64_t head, float* work) noexcept;

// All rows of value head `head` of sequence `b`. `work` is aligned to 64 bytes.  [hot]
void delta_head(const frt_gated_delta_args& args, int64_t b, int32_t head, float* work) noexcept;

}  // namespace frt::cpu
