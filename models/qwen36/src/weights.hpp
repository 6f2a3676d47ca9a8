// SPDX-License-Identifier: Apache-2.0
// weights.hpp - the weights of a Qwen3.6 model: those of any decoder, the delta-net layers and the
// draft head. Folded at load beside frt/lm/weight_builder.hpp, in f32: -exp(A_log), the convolution
// transposed to (width, channels).
#pragma once

#include <frt/lm/weights.hpp>
#include <frt/qwen36/config.hpp>
#include <memory>
#include <optional>
#include <vector>

namespace frt::qwen36 {

struct DeltaWeights {
  frt_weight qkv{}, z{}, b{}, a{}, output{};
  const float* conv = nullptr;     // (width, channels)
  const float* decay = nullptr;    // (value_heads) -exp(A_log)
  const float* dt_bias = nullptr;  // (value_heads)
  const float* norm = nullptr;     // (value_dim)
};

struct MtpWeights {
  frt_weight fc{};                        // (hidden, [embedding | hidden])
  const float* embedding_norm = nullptr;  // (hidden)
  const float* hidden_norm = nullptr;     // (hidden)
  const float* norm = nullptr;            // (hidden)
  lm::LayerWeights layer;
};

struct Weights final : lm::Weights {
  bool has_draft() const override { return mtp.has_value(); }

  std::vector<DeltaWeights> delta;  // by layer; empty for attention layers
  std::optional<MtpWeights> mtp;
};

// Assembles all weights. `with_mtp`: the draft head too (the source must have it).  [setup]
std::unique_ptr<Weights> build_weights(const Config& config, lm::WeightSource& source,
                                       std::unique_ptr<lm::DeviceMemory> memory, bool with_mtp);

}  // namespace frt::qwen36
