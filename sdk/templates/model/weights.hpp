// SPDX-License-Identifier: Apache-2.0
// The weights of the model: a safetensors file, all F32.
//   table (257, width)   head (257, width)   bias (257)   decay (width)
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace acme {

struct Weights {
  int32_t width = 0;         // of the state
  std::vector<float> table;  // (257, width): a token's row
  std::vector<float> head;   // (257, width)
  std::vector<float> bias;   // (257)
  std::vector<float> decay;  // (width)
  std::string digest;        // of all values, in hex: a capsule fits the weights it was made with
};

// Throws what frt/safetensors.hpp throws.
Weights read_weights(const std::string& path);

}  // namespace acme
