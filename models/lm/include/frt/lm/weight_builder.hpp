// SPDX-License-Identifier: Apache-2.0
// frt/lm/weight_builder.hpp - assembles the weights of a decoder from a source and counts what it
// places:
//
//   WeightBuilder builder(config, source, *memory, *weights);
//   for (...) weights->layers.push_back(a layer, of the parts below);
//   builder.trunk_end(Role::kPlainNorm);
//   builder.finish(std::move(memory));
//
// Folded at load, in f32: 1 + w of zero-centred norms. Errors are those of the source.  [setup]
#pragma once

#include <frt/lm/weights.hpp>

namespace frt::lm {

class WeightBuilder {
 public:
  // Borrows everything. Begins the source's phase and places the rotary frequencies.
  WeightBuilder(const Config& config, WeightSource& source, DeviceMemory& memory, Weights& weights,
                bool with_mtp);

  // Values in device memory.
  const float* constants(const std::vector<float>& values);
  // A matrix that is already placed; `share`: the part of it that one token reads.
  frt_weight counted(const frt_weight& weight, double share = 1);
  frt_weight matrix(const std::string& base, std::int64_t rows, std::int64_t columns, Role role);
  // A vector as it is stored; of kCentredNorm 1 + w.
  const float* vector(const std::string& name, std::int64_t width, Role role);

  // input_layernorm and post_attention_layernorm.
  void norms(const std::string& layer, Role role, LayerWeights& weights);
  // q_proj, k_proj, v_proj, o_proj and the scales of FP8 keys and values.
  AttentionWeights attention(const std::string& prefix);
  DenseWeights dense(const std::string& prefix, std::int64_t width);
  // The dense feed-forward or the mixture, as the configuration says.
  void feed_forward(const std::string& prefix, LayerWeights& weights);

  // After the last layer of the trunk: the final norm, embedding table and head. What comes later
  // does not count as work of a prefilled token.
  void trunk_end(Role norm);
  // After everything: waits for the last upload and hands the memory over.
  void finish(std::unique_ptr<DeviceMemory> memory);

 private:
  MixtureWeights mixture(const std::string& prefix);

  const Config& config_;
  WeightSource& source_;
  DeviceMemory& memory_;
  Weights& weights_;
  std::uint64_t trunk_flops_ = 0;
};

}  // namespace frt::lm
