// SPDX-License-Identifier: Apache-2.0
// linear_wide_packed.cuh - products of some ten rows with packed weights, widened inside.
#pragma once

#include <cstddef>
#include <cstdint>

#include "product.hpp"

namespace frt::cuda {

// Whether the product's types, sizes and alignments allow it. Any number of rows gives the right
// result; the weights are read again for every 64.
bool packed_takes(const Product& product);
// Up to here this way is taken.
inline constexpr int32_t kPackedRows = 128;

// Bytes of working memory.
std::size_t packed_bytes(const Product& product, int multiprocessors);

// Submits it.  [driver]
void packed_product(Stream& stream, const Product& product, void* room);

}  // namespace frt::cuda
