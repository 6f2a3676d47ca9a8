// SPDX-License-Identifier: Apache-2.0
// wgmma.hpp - products of hundreds of rows, of bf16 or of e4m3 by e4m3, and everything that
// follows them in one kernel, on Hopper's warpgroup products: images, prompts.
#pragma once

#include <span>

#include "../../linear/skinny_gemm.hpp"
#include "../fp8.hpp"

namespace frt::cuda {

// For devices with feature::kWgmma. Whether rows, sizes and alignments suit; x and all weights must
// be BF16; of FP8, weights with one scale for each are taken.
bool wgmma_supports(const SkinnyProduct& product, std::span<const SkinnyPart> parts);
bool wgmma_supports(const Fp8Input& input, std::span<const Fp8Part> parts);

// y_i = x W_i^T and what follows; parts as many as a norm_dense has, at most.  [driver]
void wgmma_products(Stream& stream, const SkinnyProduct& product,
                    std::span<const SkinnyPart> parts);
void wgmma_products(Stream& stream, const Fp8Input& input, std::span<const Fp8Part> parts);

// A gated tile has all inputs, and in FP8 not more than one chain of sums may have.
bool wgmma_supports_gate_up(const Fp8Input& input, const Fp8Part& gate, const Weight& up);

// y = activation(x Wg^T) * (x Wu^T), as skinny_gemm_gate_up.  [driver]
void wgmma_gate_up(Stream& stream, const SkinnyProduct& product, const SkinnyPart& gate,
                   const void* up);
void wgmma_gate_up(Stream& stream, const Fp8Input& input, const Fp8Part& gate, const Weight& up);

}  // namespace frt::cuda
