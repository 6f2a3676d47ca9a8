// SPDX-License-Identifier: Apache-2.0
#include "weights.hpp"

#include <cmath>
#include <frt/error.hpp>
#include <span>
#include <utility>

namespace frt::qwen36 {
namespace {

// Walks the layers in order and counts what it places.
class Builder {
 public:
  Builder(const Config& config, WeightSource& source, DeviceMemory& memory, Weights& weights)
      : config_(config), source_(source), memory_(memory), weights_(weights) {}

  const float* constants(const std::vector<float>& values) {
    weights_.totals.parameters += values.size();
    return reinterpret_cast<const float*>(memory_.upload(std::as_bytes(std::span(values))));
  }

  // `share`: the part of it that one token reads.
  frt_weight counted(const frt_weight& weight, double share = 1) {
    const auto values =
        static_cast<std::uint64_t>(weight.rows) * static_cast<std::uint64_t>(weight.cols);
    WeightTotals& totals = weights_.totals;
    totals.parameters += values;
    totals.bytes += weight_bytes(weight);
    totals.decode_bytes +=
        static_cast<std::uint64_t>(share * static_cast<double>(weight_bytes(weight)));
    totals.token_flops += static_cast<std::uint64_t>(2 * share * static_cast<double>(values));
    totals.format_parameters[weight.format] += values;
    weights_.formats |= FRT_WEIGHT_BIT(weight.format);
    return weight;
  }
  frt_weight matrix(const std::string& base, std::int64_t rows, std::int64_t columns, Role role) {
    return counted(source_.matrix(base, rows, columns, role));
  }

  const float* centred_norm(const std::string& name, std::int64_t width) {
    std::vector<float> values = source_.values(name, {width}, Role::kCentredNorm);
    for (float& value : values) value += 1.0f;
    return constants(values);
  }

  LayerWeights layer(const std::string& prefix, LayerKind kind) {
    LayerWeights layer;
    layer.kind = kind;
    layer.input_norm = centred_norm(prefix + "input_layernorm.weight", config_.hidden);
    layer.post_norm = centred_norm(prefix + "post_attention_layernorm.weight", config_.hidden);
    if (kind == LayerKind::kAttention) {
      layer.attention = attention(prefix + "self_attn.");
    } else {
      layer.delta = delta(prefix + "linear_attn.");
    }
    if (config_.mixture()) {
      layer.mixture = mixture(prefix + "mlp.");
    } else {
      layer.dense = dense(prefix + "mlp.", config_.intermediate);
    }
    return layer;
  }

 private:
  AttentionWeights attention(const std::string& prefix) {
    const Config& c = config_;
    AttentionWeights w;
    w.query = matrix(prefix + "q_proj", c.query_width(), c.hidden, Role::kMixer);
    w.key = matrix(prefix + "k_proj", c.kv_width(), c.hidden, Role::kMixer);
    w.value = matrix(prefix + "v_proj", c.kv_width(), c.hidden, Role::kMixer);
    w.output = matrix(prefix + "o_proj", c.hidden, c.attention_width(), Role::kMixer);
    w.query_norm = centred_norm(prefix + "q_norm.weight", c.head_dim);
    w.key_norm = centred_norm(prefix + "k_norm.weight", c.head_dim);
    source_.cache_scales(prefix, w);
    return w;
  }

  DeltaWeights delta(const std::string& prefix) {
    const Config& c = config_;
    DeltaWeights w;
    w.qkv = matrix(prefix + "in_proj_qkv", c.conv_channels(), c.hidden, Role::kMixer);
    w.z = matrix(prefix + "in_proj_z", c.value_width(), c.hidden, Role::kMixer);
    w.b = matrix(prefix + "in_proj_b", c.value_heads, c.hidden, Role::kSmall);
    w.a = matrix(prefix + "in_proj_a", c.value_heads, c.hidden, Role::kSmall);
    w.output = matrix(prefix + "out_proj", c.hidden, c.value_width(), Role::kMixer);

    const std::vector<float> taps =
        source_.values(prefix + "conv1d.weight", {c.conv_channels(), 1, c.conv_width}, Role::kConv);
    const auto width = static_cast<std::size_t>(c.conv_width);
    const auto channels = static_cast<std::size_t>(c.conv_channels());
    std::vector<float> transposed(taps.size());
    for (std::size_t channel = 0; channel < channels; ++channel) {
      for (std::size_t tap = 0; tap < width; ++tap) {
        transposed[tap * channels + channel] = taps[channel * width + tap];
      }
    }
    w.conv = constants(transposed);

    std::vector<float> decay = source_.values(prefix + "A_log", {c.value_heads}, Role::kDecayLog);
    for (float& value : decay) value = -std::exp(value);
    w.decay = constants(decay);
    w.dt_bias = constants(source_.values(prefix + "dt_bias", {c.value_heads}, Role::kTimeBias));
    w.norm = constants(source_.values(prefix + "norm.weight", {c.value_dim}, Role::kPlainNorm));
    return w;
  }

  DenseWeights dense(const std::string& prefix, std::int64_t width) {
    DenseWeights w;
    w.gate = matrix(prefix + "gate_proj", width, config_.hidden, Role::kFeedForward);
    w.up = matrix(prefix + "up_proj", width, config_.hidden, Role::kFeedForward);
    w.down = matrix(prefix + "down_proj", config_.hidden, width, Role::kFeedForward);
    return w;
  }

  MixtureWeights mixture(const std::string& prefix) {
    const Config& c = config_;
    MixtureWeights w;
    w.router = matrix(prefix + "gate", c.experts, c.hidden, Role::kSmall);
    source_.experts(prefix, c, w);
    const double share = static_cast<double>(c.chosen) / static_cast<double>(c.experts);
    for (const frt_expert_weight* stack : {&w.gate, &w.up, &w.down}) {
      for (std::int64_t e = 0; e < c.experts; ++e) counted(stack->expert, share);
    }
    if (c.shared_width > 0) {
      w.shared = dense(prefix + "shared_expert.", c.shared_width);
      w.shared_scale = matrix(prefix + "shared_expert_gate", 1, c.hidden, Role::kSmall);
    }
    return w;
  }

  const Config& config_;
  WeightSource& source_;
  DeviceMemory& memory_;
  Weights& weights_;
};

// The draft head keeps its rows up to date in every step: fc, keys and values are read; the rest
// only when drafting.
std::uint64_t mtp_step_bytes(const MtpWeights& mtp) {
  return weight_bytes(mtp.fc) + weight_bytes(mtp.layer.attention.key) +
         weight_bytes(mtp.layer.attention.value);
}

}  // namespace

Weights build_weights(const Config& config, WeightSource& source,
                      std::unique_ptr<DeviceMemory> memory, bool with_mtp) {
  source.begin(with_mtp);
  Weights weights;
  Builder builder(config, source, *memory, weights);
  weights.rope_frequencies = builder.constants(rope_frequencies(config));
  for (std::size_t i = 0; i < config.layers.size(); ++i) {
    weights.layers.push_back(builder.layer("layers." + std::to_string(i) + ".", config.layers[i]));
  }
  weights.norm = builder.centred_norm("norm.weight", config.hidden);

  const std::uint64_t trunk_flops = weights.totals.token_flops;
  weights.embedding = builder.counted(source.embedding(config), 0);
  weights.head = source.head(config, weights.embedding);
  if (weights.head.data == weights.embedding.data) {
    weights.totals.decode_bytes += weight_bytes(weights.head);
  } else {
    weights.head = builder.counted(weights.head);
  }
  if (with_mtp) {
    const std::uint64_t decode_bytes = weights.totals.decode_bytes;
    MtpWeights mtp;
    mtp.fc = builder.matrix("mtp.fc", config.hidden, 2 * config.hidden, Role::kSmall);
    mtp.embedding_norm = builder.centred_norm("mtp.pre_fc_norm_embedding.weight", config.hidden);
    mtp.hidden_norm = builder.centred_norm("mtp.pre_fc_norm_hidden.weight", config.hidden);
    mtp.layer = builder.layer("mtp.layers.0.", LayerKind::kAttention);
    mtp.norm = builder.centred_norm("mtp.norm.weight", config.hidden);
    weights.totals.decode_bytes = decode_bytes + mtp_step_bytes(mtp);
    weights.mtp = mtp;
  }
  weights.totals.token_flops = trunk_flops;
  memory->finish();
  source.end();
  weights.memory = std::move(memory);
  return weights;
}

std::uint64_t weight_bytes(const frt_weight& weight) {
  const auto rows = static_cast<std::uint64_t>(weight.rows);
  const auto columns = static_cast<std::uint64_t>(weight.cols);
  const std::uint64_t values = rows * columns;
  const std::uint64_t scale = dtype_bits(weight.scale_dtype) / 8;
  const auto blocks = [](std::uint64_t extent, std::int32_t block) {
    const auto size = static_cast<std::uint64_t>(block > 0 ? block : 1);
    return (extent + size - 1) / size;
  };
  switch (weight.format) {
    case FRT_WEIGHT_F32:
      return values * 4;
    case FRT_WEIGHT_BF16:
      return values * 2;
    case FRT_WEIGHT_FP8_BLOCK:
      return values + blocks(rows, weight.block_rows) * blocks(columns, weight.block_cols) * scale;
    case FRT_WEIGHT_FP8_CHANNEL:
      return values + rows * scale;
    case FRT_WEIGHT_NVFP4:
      return values / 2 + values / 16;
    default:
      return values;
  }
}

std::string describe_formats(const WeightTotals& totals) {
  static constexpr const char* kNames[FRT_WEIGHT_FORMAT_COUNT] = {
      "f32", "bf16", "fp8-block", "fp8-tensor", "fp8-channel", "nvfp4"};
  std::uint64_t all = 0;
  for (const std::uint64_t count : totals.format_parameters) all += count;
  std::string text;
  for (std::size_t format = 0; format < totals.format_parameters.size(); ++format) {
    const std::uint64_t count = totals.format_parameters[format];
    if (count == 0) continue;
    const auto percent = static_cast<int>(
        std::lround(100.0 * static_cast<double>(count) / static_cast<double>(all)));
    text += (text.empty() ? "" : ", ") + std::string(kNames[format]) + " " +
            (percent == 0 ? "<1" : std::to_string(percent)) + " %";
  }
  return text;
}

}  // namespace frt::qwen36
