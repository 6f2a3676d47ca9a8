// SPDX-License-Identifier: Apache-2.0
// sort.cuh - assignments (row * top_k + j) sorted by expert, cut into tiles; and the weighted
// sum that brings the experts' results back to the rows.
#pragma once

#include "grouped.cuh"

namespace frt::cuda {

inline constexpr int kSortThreads = 512;   // assignments of a block
inline constexpr int kSortExperts = 1024;  // the most there may be

inline int64_t sort_blocks(int64_t rows, int64_t top_k) {
  return (rows * top_k + kSortThreads - 1) / kSortThreads;
}

struct MoeSort {
  int32_t rows, experts, top_k, tile_rows;
  const int32_t* row_count;
  const int32_t* ids;   // (rows, top_k)
  int32_t* places;      // (sort_blocks, experts) working memory
  int32_t* first;       // (experts) written: the first sorted assignment of each expert
  int32_t* order;       // (rows * top_k) written; within an expert in rising order
  MoeTile* tiles;       // written
  int32_t* first_tile;  // (experts) written: the first tile of each expert
  int32_t* tile_count;  // (1) written
};
void launch_moe_sort(Stream& stream, const MoeSort& sort);

struct MoeMix {
  int32_t rows, experts, top_k, inputs;
  const int32_t* row_count;
  const int32_t* ids;         // (rows, top_k)
  const float* weights;       // (rows, top_k)
  const float* results;       // (rows * top_k, inputs)
  const bf16* shared_y;       // (rows, inputs) or NULL
  const float* shared_scale;  // (rows)
  bf16* y;                    // (rows, inputs)
};
// y[r] = sum over j in order of weights[r, j] * results[r, j], + sigmoid(shared_scale) * shared_y.
void launch_moe_mix(Stream& stream, const MoeMix& mix);

}  // namespace frt::cuda
