// SPDX-License-Identifier: Apache-2.0
#include "weights.hpp"

#include <cmath>
#include <frt/lm/weight_builder.hpp>
#include <string>
#include <utility>

namespace frt::qwen36 {

using lm::Role;

namespace {

DeltaWeights delta_layer(const Config& c, lm::WeightSource& source, lm::WeightBuilder& builder,
                         const std::string& prefix) {
  DeltaWeights w;
  w.qkv = builder.matrix(prefix + "in_proj_qkv", c.conv_channels(), c.hidden, Role::kMixer);
  w.z = builder.matrix(prefix + "in_proj_z", c.value_width(), c.hidden, Role::kMixer);
  w.b = builder.matrix(prefix + "in_proj_b", c.value_heads, c.hidden, Role::kSmall);
  w.a = builder.matrix(prefix + "in_proj_a", c.value_heads, c.hidden, Role::kSmall);
  w.output = builder.matrix(prefix + "out_proj", c.hidden, c.value_width(), Role::kMixer);

  const std::vector<float> taps =
      source.values(prefix + "conv1d.weight", {c.conv_channels(), 1, c.conv_width}, Role::kConv);
  const auto width = static_cast<std::size_t>(c.conv_width);
  const auto channels = static_cast<std::size_t>(c.conv_channels());
  std::vector<float> transposed(taps.size());
  for (std::size_t channel = 0; channel < channels; ++channel) {
    for (std::size_t tap = 0; tap < width; ++tap) {
      transposed[tap * channels + channel] = taps[channel * width + tap];
    }
  }
  w.conv = builder.constants(transposed);

  std::vector<float> decay = source.values(prefix + "A_log", {c.value_heads}, Role::kDecayLog);
  for (float& value : decay) value = -std::exp(value);
  w.decay = builder.constants(decay);
  w.dt_bias = builder.vector(prefix + "dt_bias", c.value_heads, Role::kTimeBias);
  w.norm = builder.vector(prefix + "norm.weight", c.value_dim, Role::kPlainNorm);
  return w;
}

lm::AttentionWeights attention_layer(const Config& c, lm::WeightBuilder& builder,
                                     const std::string& prefix) {
  lm::AttentionWeights w = builder.attention(prefix);
  w.query_norm = builder.vector(prefix + "q_norm.weight", c.head_dim, Role::kCentredNorm);
  w.key_norm = builder.vector(prefix + "k_norm.weight", c.head_dim, Role::kCentredNorm);
  return w;
}

// The draft head keeps its rows up to date in every step: fc, keys and values are read; the rest
// only when drafting.
std::uint64_t mtp_step_bytes(const MtpWeights& mtp) {
  return lm::weight_bytes(mtp.fc) + lm::weight_bytes(mtp.layer.attention.key) +
         lm::weight_bytes(mtp.layer.attention.value);
}

}  // namespace

std::unique_ptr<Weights> build_weights(const Config& config, lm::WeightSource& source,
                                       std::unique_ptr<lm::DeviceMemory> memory, bool with_mtp) {
  auto weights = std::make_unique<Weights>();
  lm::WeightBuilder builder(config, source, *memory, *weights, with_mtp);
  weights->delta.resize(config.layers.size());
  for (std::size_t i = 0; i < config.layers.size(); ++i) {
    const std::string prefix = "layers." + std::to_string(i) + ".";
    lm::LayerWeights layer;
    builder.norms(prefix, Role::kCentredNorm, layer);
    if (config.layers[i] == LayerKind::kAttention) {
      layer.attention = attention_layer(config, builder, prefix + "self_attn.");
    } else {
      weights->delta[i] = delta_layer(config, source, builder, prefix + "linear_attn.");
    }
    builder.feed_forward(prefix + "mlp.", layer);
    weights->layers.push_back(layer);
  }
  builder.trunk_end(Role::kCentredNorm);
  if (with_mtp) {
    // Both count what a decode step reads, which is nothing of the draft layer's experts.
    const std::uint64_t decode_bytes = weights->totals.decode_bytes;
    const std::uint64_t expert_bytes = weights->totals.expert_bytes;
    const std::string prefix = "mtp.layers.0.";
    MtpWeights mtp;
    mtp.fc = builder.matrix("mtp.fc", config.hidden, 2 * config.hidden, Role::kSmall);
    mtp.embedding_norm =
        builder.vector("mtp.pre_fc_norm_embedding.weight", config.hidden, Role::kCentredNorm);
    mtp.hidden_norm =
        builder.vector("mtp.pre_fc_norm_hidden.weight", config.hidden, Role::kCentredNorm);
    builder.norms(prefix, Role::kCentredNorm, mtp.layer);
    mtp.layer.attention = attention_layer(config, builder, prefix + "self_attn.");
    builder.feed_forward(prefix + "mlp.", mtp.layer);
    mtp.norm = builder.vector("mtp.norm.weight", config.hidden, Role::kCentredNorm);
    weights->totals.decode_bytes = decode_bytes + mtp_step_bytes(mtp);
    weights->totals.expert_bytes = expert_bytes;
    weights->mtp = mtp;
  }
  builder.finish(std::move(memory));
  return weights;
}

}  // namespace frt::qwen36
