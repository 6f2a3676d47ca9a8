// SPDX-License-Identifier: Apache-2.0
// dense_wgmma.hpp - products of hundreds of rows with BF16 weights and everything that follows them
// in one kernel, on Hopper's warpgroup products: images, prompts.
#pragma once

#include <span>

#include "linear_chunk.hpp"

namespace frt::cuda {

// Whether device, rows, sizes and alignments suit; x and all weights must be BF16.
bool wgmma_takes(const Device& device, const ChunkProduct& product,
                 std::span<const ChunkPart> parts);

// y_i = x W_i^T and what follows; parts as many as a norm_dense has, at most.  [driver]
void wgmma_products(Stream& stream, const ChunkProduct& product, std::span<const ChunkPart> parts);

// y = activation(x Wg^T) * (x Wu^T), as chunk_gate_up.  [driver]
void wgmma_gate_up(Stream& stream, const ChunkProduct& product, const ChunkPart& gate,
                   const void* up);

}  // namespace frt::cuda
