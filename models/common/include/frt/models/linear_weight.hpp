// SPDX-License-Identifier: Apache-2.0
// frt/models/linear_weight.hpp - which format the weight of a linear layer is stored in, decided
// per layer from the tensors that are there, never from a list in a configuration file.
//
//   BASE.weight_packed                                  NVFP4, compressed-tensors
//   BASE.weight U8       + BASE.weight_scale_2          NVFP4, modelopt
//   BASE.weight F8_E4M3  + BASE.weight_scale_inv        FP8, one scale per block
//   BASE.weight F8_E4M3  + BASE.weight_scale [out, 1]   FP8, one scale per output row
//   BASE.weight F8_E4M3  + BASE.weight_scale, one element  FP8, one scale
//   BASE.weight BF16 / F16 / F32                        as it stands
//
// Every companion tensor is checked: shape, dtype, and that its scales are finite, those of NVFP4
// not negative. Activation scales (`input_scale`, `input_global_scale`) are left to who wants them.
#pragma once

#include <frt/models/formats.hpp>
#include <frt/models/safetensors.hpp>

#include <cstdint>
#include <string_view>
#include <vector>

namespace frt::models {

enum class WeightFormat {
  kPlain,       // dtype of `weight`: BF16, F16 or F32
  kFp8Block,    // `scales` [ceil(out/block.rows), ceil(in/block.columns)], BF16 or F32
  kFp8Channel,  // `scales` [out, 1], BF16 or F32
  kFp8Tensor,   // `scales` one element, BF16 or F32
  kNvfp4,       // `weight` U8 [out, in/2], `scales` F8_E4M3 [out, in/16], `global_scale`
};

// "plain", "fp8-block", "nvfp4", ...  [any]
std::string_view weight_format_name(WeightFormat format);

// What a checkpoint holds for one linear layer. Views into the checkpoint, packed as stored.
struct LinearWeight {
  WeightFormat format = WeightFormat::kPlain;
  std::uint64_t rows = 0;     // out
  std::uint64_t columns = 0;  // in
  TensorView weight;
  TensorView scales;  // no data for kPlain
  BlockShape block;   // of `scales`; {rows, columns} for kFp8Tensor, {1, columns} for rows
  Nvfp4Naming naming = Nvfp4Naming::kModelOpt;
  float global_scale = 1;  // kNvfp4: as stored, to be used by `naming`
};

// The weight of `base` (a name without ".weight"), which must be [rows, columns]. `block` is what
// the configuration says about FP8 blocks.  Errors: FRT_ERR_NOT_FOUND (nothing there, or a
// companion is missing), FRT_ERR_MISMATCH (a shape), FRT_ERR_UNSUPPORTED (a dtype), FRT_ERR_FORMAT
// (a scale that is NaN or infinite, or of NVFP4 and negative).  [any]
LinearWeight find_linear(const Checkpoint& checkpoint, std::string_view base, std::uint64_t rows,
                         std::uint64_t columns, BlockShape block = {});

// The weight as F32 [rows, columns]; `out` has exactly that many elements.  [any]
void dequantise(const LinearWeight& weight, std::span<float> out);

// Any float tensor as F32.  [any]
std::vector<float> to_f32(const TensorView& tensor);

// FRT_ERR_FORMAT with file, tensor, element and value if a NaN or infinity is in it.  [any]
void require_finite(const TensorView& tensor);
// The same of its bytes, where the caller has read them.
void require_finite(const TensorView& tensor, std::span<const std::byte> data);

}  // namespace frt::models
