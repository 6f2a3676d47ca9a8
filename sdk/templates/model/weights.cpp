// SPDX-License-Identifier: Apache-2.0
#include "weights.hpp"

#include "byte_tokenizer.hpp"

#include <frt/error.hpp>
#include <frt/safetensors.hpp>

#include <bit>
#include <cstdio>

namespace acme {
namespace {

// FNV-1a of the bytes, in 64 bits.
uint64_t mix(uint64_t digest, const std::vector<float>& values) {
  for (const float value : values) {
    const auto bits = std::bit_cast<uint32_t>(value);
    for (int shift = 0; shift < 32; shift += 8) {
      digest = (digest ^ (bits >> shift & 0xFF)) * 0x100000001B3u;
    }
  }
  return digest;
}

}  // namespace

Weights read_weights(const std::string& path) {
  constexpr uint64_t kMaxWidth = 1 << 16;
  const frt::Safetensors file(path);
  const auto& shape = file.tensor("table").shape;
  if (shape.size() != 2 || shape[1] == 0 || shape[1] > kMaxWidth) {
    throw frt::Error(FRT_ERR_MISMATCH,
                     path + ": 'table' is " + frt::Safetensors::shape_text(shape) +
                         ", expected [257, width] with a width up to " + std::to_string(kMaxWidth));
  }
  const uint64_t width = shape[1];
  Weights weights;
  weights.width = static_cast<int32_t>(width);
  weights.table = file.read_f32("table", {kVocabulary, width});
  weights.head = file.read_f32("head", {kVocabulary, width});
  weights.bias = file.read_f32("bias", {kVocabulary});
  weights.decay = file.read_f32("decay", {width});
  uint64_t digest = 0xCBF29CE484222325u;
  for (const auto* values : {&weights.table, &weights.head, &weights.bias, &weights.decay}) {
    digest = mix(digest, *values);
  }
  char text[17];
  std::snprintf(text, sizeof(text), "%016llx", static_cast<unsigned long long>(digest));
  weights.digest = text;
  return weights;
}

}  // namespace acme
