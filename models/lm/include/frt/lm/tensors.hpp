// SPDX-License-Identifier: Apache-2.0
// frt/lm/tensors.hpp - what a tensor of a checkpoint is for, and how each is stored in the known
// quantised formats. The synthetic weights of the model plugins and tools that write checkpoints
// both follow it. All functions are [any].
#pragma once

#include <frt/base.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace frt::lm {

// Formats a whole checkpoint comes in. Which linears a format quantises is decided by packing().
enum class Format : std::uint8_t {
  kBf16,
  kF32,
  kFp8,         // E4M3, one scale per 128 x 128 block, as the official FP8 checkpoints
  kFp8Tensor,   // E4M3, one scale per matrix
  kFp8Channel,  // E4M3, one scale per output row
  kNvfp4,       // every large matrix E2M1 with E4M3 scales per 16 inputs
  kNvfp4Head8,  // the same, but lm_head FP8 with one scale per output row
  kNvfp4Mixed,  // feed-forward and lm_head NVFP4, attention and delta net FP8 per matrix, MTP plain
};

// "bf16", "f32", "fp8", "fp8-tensor", "fp8-channel", "nvfp4", "nvfp4-fp8-head",
// "nvfp4-mixed".
std::string_view format_name(Format format);
// FRT_ERR_INVALID_ARGUMENT with the names there are.
Format parse_format(std::string_view name);

enum class Role : std::uint8_t {
  kEmbedding,    // (vocabulary, hidden)
  kHead,         // (vocabulary, hidden)
  kMixer,        // large projections of attention and delta net
  kFeedForward,  // matrices of MLPs and experts
  kSmall,        // linears no quantiser touches: in_proj_a/b, router, shared gate, mtp.fc
  kCentredNorm,  // stored as w, applied as 1 + w
  kPlainNorm,    // applied as it is
  kConv,         // (channels, 1, width)
  kDecayLog,     // A_log
  kTimeBias,     // dt_bias
  kBias,         // of a projection
};

struct Tensor {
  std::string name;  // as in the file; linears and norms end in ".weight"
  std::vector<std::uint64_t> shape;
  Role role = Role::kSmall;
};

// How one matrix is stored.
enum class Packing : std::uint8_t { kPlain, kFp8Block, kFp8Tensor, kFp8Channel, kNvfp4 };

// How `format` stores a matrix of `role`; `mtp`: it belongs to the draft head.
Packing packing(Format format, Role role, bool mtp);

// True if any matrix of `format` is quantised: experts are then stored one by one.
bool is_quantised(Format format);

// Values that keep activations finite and varied through any number of layers: uniform in
// [low, high), for the tensor as it is stored.
struct Range {
  float low = 0;
  float high = 0;
};
// `inputs`: columns of a matrix; ignored for vectors.
Range value_range(Role role, std::uint64_t inputs);

}  // namespace frt::lm
