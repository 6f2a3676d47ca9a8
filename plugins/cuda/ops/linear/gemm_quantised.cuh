// SPDX-License-Identifier: Apache-2.0
// gemm_quantised.cuh - products of some ten rows with quantised weights, dequantised inside.
#pragma once

#include <cstddef>
#include <cstdint>

#include "product.hpp"

namespace frt::cuda {

// Whether the product's types, sizes and alignments allow it. Any number of rows gives the right
// result; the weights are read again for every 64.
bool quantised_gemm_supports(const Product& product);
// Up to so many rows it is faster than dequantising before the product.
inline constexpr int32_t kQuantisedGemmRows = 128;

// Bytes of working memory.
std::size_t quantised_gemm_bytes(const Product& product, int multiprocessors);

// Submits it.  [driver]
void quantised_gemm(Stream& stream, const Product& product, void* room);

}  // namespace frt::cuda
