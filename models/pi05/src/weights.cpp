// SPDX-License-Identifier: Apache-2.0
// FP8 matrices are uploaded as they are stored into memory of their own, a part of the network at a
// time, and converted on the device into their place.
#include "weights.hpp"

#include <frt/ops/elementwise.h>

#include <algorithm>
#include <cmath>
#include <frt/compose.hpp>
#include <frt/error.hpp>
#include <frt/models/formats.hpp>
#include <memory>
#include <optional>
#include <utility>

namespace frt::pi05 {
namespace {

constexpr std::uint64_t kStagedBytes = std::uint64_t{1} << 30;  // stored matrices at a time

std::int32_t i32(std::int64_t value) {
  return static_cast<std::int32_t>(value);
}

// Matrices from their stored form to FP8.
class Quantiser {
 public:
  Quantiser(WeightSource& source, models::DeviceMemory& memory) : source_(source), memory_(memory) {
    KernelSet().add(convert_, FRT_OP_CONVERT).resolve(memory.context(), KernelTypes());
  }

  // What will be there after flush(), rows of all matrices one behind the other: data and scale.
  frt_weight add(const std::vector<MatrixName>& matrices) {
    frt_weight weight{};
    weight.format = kWeightFp8Tensor;
    weight.cols = i32(matrices.front().columns);
    float largest = 0;
    bool wide = false;
    for (const MatrixName& matrix : matrices) {
      largest = std::max(largest, source_.largest(matrix));
      wide = wide || source_.is_wide(matrix.name);
      weight.rows += i32(matrix.rows);
    }
    weight.global_scale = largest > 0 ? largest / kLargestE4m3 : 1;
    if (!std::isfinite(1 / weight.global_scale)) weight.global_scale = 1;  // all but zero
    const std::int64_t values = std::int64_t{weight.rows} * weight.cols;
    std::byte* target = memory_.place(static_cast<std::uint64_t>(values));
    weight.data = target;

    const frt_dtype dtype = wide ? FRT_DTYPE_F32 : FRT_DTYPE_BF16;
    const std::uint64_t bytes = bytes_of(dtype, values);
    if (staged_ && staged_->placed_bytes() + bytes > kStagedBytes) flush();
    if (!staged_) {
      staged_ = std::make_unique<models::DeviceMemory>(memory_.context());
      source_.prepare(*staged_);
    }
    std::byte* stored = staged_->place(bytes);
    frt_convert_args args{};
    args.x_dtype = dtype;
    args.y_dtype = FRT_DTYPE_F8_E4M3;
    args.rows = weight.rows;
    args.width = weight.cols;
    args.factor = 1 / weight.global_scale;
    args.x = stored;
    args.y = target;
    args.x_stride = args.y_stride = weight.cols;
    pending_.push_back(args);
    for (const MatrixName& matrix : matrices) {
      source_.place(matrix, dtype, *staged_, stored);
      stored += bytes_of(dtype, matrix.rows * matrix.columns);
    }
    return weight;
  }

  void flush() {
    if (!staged_) return;
    staged_->finish();
    const Recorder recorder(staged_->stream());
    for (const frt_convert_args& args : pending_) convert_(recorder, args);
    staged_->stream().sync();
    pending_.clear();
    staged_.reset();
  }

 private:
  WeightSource& source_;
  models::DeviceMemory& memory_;
  Kernel<frt_convert_args> convert_;
  std::unique_ptr<models::DeviceMemory> staged_;
  std::vector<frt_convert_args> pending_;
};

// Walks the network in order and counts what it places.
class Builder {
 public:
  Builder(const Config& config, frt_dtype activation, const Calibration* calibration,
          WeightSource& source, models::DeviceMemory& memory, Weights& weights)
      : dims_(config.dims),
        activation_(activation),
        calibration_(calibration),
        source_(source),
        memory_(memory),
        weights_(weights) {
    if (calibration) quantiser_.emplace(source, memory);
  }

  void finish() {
    if (quantiser_) quantiser_->flush();
  }

  const float* constants(const std::vector<float>& values) {
    weights_.totals.parameters += values.size();
    return reinterpret_cast<const float*>(memory_.upload(std::as_bytes(std::span(values))));
  }
  const float* vector(const std::string& name, std::int64_t count) {
    return constants(source_.values(name, {count}));
  }
  const float* centred(const std::string& name, std::int64_t count) {
    std::vector<float> values = source_.values(name, {count});
    for (float& value : values) value += 1.0f;
    return constants(values);
  }

  // Matrices one behind the other in one block, of one type; `groups` says how many of them make
  // one weight each.
  std::vector<frt_weight> adjacent(const std::vector<MatrixName>& matrices,
                                   const std::vector<std::size_t>& groups) {
    bool wide = false;
    std::int64_t rows = 0;
    for (const MatrixName& matrix : matrices) {
      wide = wide || source_.is_wide(matrix.name);
      rows += matrix.rows;
    }
    const frt_dtype dtype = stored_dtype(wide);
    const std::int64_t columns = matrices.front().columns;
    std::byte* target = memory_.place(bytes_of(dtype, rows * columns));
    std::vector<frt_weight> out;
    std::size_t next = 0;
    for (const std::size_t count : groups) {
      frt_weight weight{};
      weight.format = dtype == FRT_DTYPE_F32 ? kWeightF32 : kWeightBf16;
      weight.cols = i32(columns);
      weight.data = target;
      for (std::size_t i = 0; i < count; ++i, ++next) {
        source_.place(matrices[next], dtype, memory_, target);
        weight.rows += i32(matrices[next].rows);
        target += bytes_of(dtype, matrices[next].rows * columns);
      }
      out.push_back(counted(weight));
    }
    return out;
  }
  frt_weight matrix(const std::string& name, std::int64_t rows, std::int64_t columns) {
    return adjacent({{name, rows, columns}}, {1}).front();
  }

  // The same for matrices of a layer, which a calibration makes FP8, with one scale for all.
  std::vector<frt_weight> layer_adjacent(const std::vector<MatrixName>& matrices,
                                         const std::vector<std::size_t>& groups) {
    if (!quantiser_) return adjacent(matrices, groups);
    frt_weight rest = quantiser_->add(matrices);
    std::vector<frt_weight> out;
    std::size_t next = 0;
    for (const std::size_t count : groups) {
      frt_weight weight = rest;
      weight.rows = 0;
      for (std::size_t i = 0; i < count; ++i, ++next) weight.rows += i32(matrices[next].rows);
      rest.data = static_cast<const std::byte*>(rest.data) + std::int64_t{weight.rows} * rest.cols;
      out.push_back(counted(weight));
    }
    return out;
  }
  frt_weight layer_matrix(const std::string& name, std::int64_t rows, std::int64_t columns) {
    return layer_adjacent({{name, rows, columns}}, {1}).front();
  }
  InputScales scales(const std::string& layer, bool only_keys) const {
    InputScales scales;
    if (!calibration_) return scales;
    scales.qkv = calibration_->scale(layer + "qkv");
    if (only_keys) return scales;
    scales.output = calibration_->scale(layer + "output");
    scales.hidden = calibration_->scale(layer + "hidden");
    scales.down = calibration_->scale(layer + "down");
    return scales;
  }

  void patches() {
    const Dims& d = dims_;
    const std::vector<float> kernel = source_.values("vision.embeddings.patch_embedding.weight",
                                                     {d.vision_width, 3, d.patch, d.patch});
    const auto stored = static_cast<std::size_t>(d.patch_values());
    const auto columns = static_cast<std::size_t>(d.patch_columns());
    const auto rows = static_cast<std::size_t>(d.vision_width);
    std::vector<float> padded(rows * columns);
    for (std::size_t r = 0; r < rows; ++r) {
      for (std::size_t c = 0; c < stored; ++c) padded[r * columns + c] = kernel[r * stored + c];
    }
    const frt_dtype dtype =
        stored_dtype(source_.is_wide("vision.embeddings.patch_embedding.weight"));
    std::vector<std::byte> bytes(bytes_of(dtype, static_cast<std::int64_t>(padded.size())));
    models::convert_from_f32(dtype, padded.data(), padded.size(), bytes.data());
    weights_.patch.format = dtype == FRT_DTYPE_F32 ? kWeightF32 : kWeightBf16;
    weights_.patch.rows = i32(d.vision_width);
    weights_.patch.cols = i32(d.patch_columns());
    weights_.patch.data = memory_.upload(bytes);
    counted(weights_.patch);

    const std::vector<float> bias =
        source_.values("vision.embeddings.patch_embedding.bias", {d.vision_width});
    std::vector<float> addend =
        source_.values("vision.embeddings.position_embedding.weight", {d.cells(), d.vision_width});
    for (std::size_t i = 0; i < addend.size(); ++i) addend[i] += bias[i % rows];
    weights_.patch_addend = constants(addend);
  }

  VisionLayer vision_layer(std::int64_t index) {
    const std::string prefix = "vision.encoder.layers." + std::to_string(index) + ".";
    const std::int64_t w = dims_.vision_width;
    const std::int64_t m = dims_.vision_mlp;
    VisionLayer layer;
    layer.scales = scales("vision." + std::to_string(index) + ".", false);
    layer.norm1 = vector(prefix + "layer_norm1.weight", w);
    layer.norm1_bias = vector(prefix + "layer_norm1.bias", w);
    layer.norm2 = vector(prefix + "layer_norm2.weight", w);
    layer.norm2_bias = vector(prefix + "layer_norm2.bias", w);
    std::vector<MatrixName> parts;
    std::vector<float> bias;
    for (const char* part : {"q_proj", "k_proj", "v_proj"}) {
      const std::string base = prefix + "self_attn." + part;
      parts.push_back({base + ".weight", w, w});
      const std::vector<float> own = source_.values(base + ".bias", {w});
      bias.insert(bias.end(), own.begin(), own.end());
    }
    layer.qkv = layer_adjacent(parts, {3}).front();
    layer.qkv_bias = constants(bias);
    layer.output = layer_matrix(prefix + "self_attn.out_proj.weight", w, w);
    layer.output_bias = vector(prefix + "self_attn.out_proj.bias", w);
    layer.fc1 = layer_matrix(prefix + "mlp.fc1.weight", m, w);
    layer.fc1_bias = vector(prefix + "mlp.fc1.bias", m);
    layer.fc2 = layer_matrix(prefix + "mlp.fc2.weight", w, m);
    layer.fc2_bias = vector(prefix + "mlp.fc2.bias", w);
    return layer;
  }

  // `only_keys`: nothing but keys and values is ever read.
  GemmaLayer gemma_layer(const std::string& tower, std::int64_t index, std::int64_t width,
                         std::int64_t mlp, bool norms, bool only_keys) {
    const std::string prefix = tower + ".layers." + std::to_string(index) + ".";
    GemmaLayer layer;
    layer.scales = scales(tower + "." + std::to_string(index) + ".", only_keys);
    if (norms) layer.input_norm = centred(prefix + "input_layernorm.weight", width);
    const MatrixName q = {prefix + "self_attn.q_proj.weight", dims_.query_width(), width};
    const MatrixName k = {prefix + "self_attn.k_proj.weight", dims_.head_dim, width};
    const MatrixName v = {prefix + "self_attn.v_proj.weight", dims_.head_dim, width};
    if (only_keys) {
      layer.key_value = layer_adjacent({k, v}, {2}).front();
      return layer;
    }
    const std::vector<frt_weight> products = layer_adjacent({q, k, v}, {1, 2});
    layer.query = products[0];
    layer.key_value = products[1];
    layer.output = layer_matrix(prefix + "self_attn.o_proj.weight", width, dims_.query_width());
    if (norms) layer.post_norm = centred(prefix + "post_attention_layernorm.weight", width);
    const std::vector<frt_weight> halves =
        layer_adjacent({{prefix + "mlp.gate_proj.weight", mlp, width},
                        {prefix + "mlp.up_proj.weight", mlp, width}},
                       {1, 1});
    layer.gate = halves[0];
    layer.up = halves[1];
    layer.down = layer_matrix(prefix + "mlp.down_proj.weight", width, mlp);
    return layer;
  }

 private:
  frt_dtype stored_dtype(bool wide) const {
    return wide && activation_ == FRT_DTYPE_F32 ? FRT_DTYPE_F32 : FRT_DTYPE_BF16;
  }
  frt_weight counted(const frt_weight& weight) {
    const auto values =
        static_cast<std::uint64_t>(weight.rows) * static_cast<std::uint64_t>(weight.cols);
    WeightTotals& totals = weights_.totals;
    totals.parameters += values;
    totals.bytes += static_cast<std::uint64_t>(
        frt::weight_bytes(weight.format, weight.rows, weight.cols).total());
    totals.format_parameters[static_cast<std::size_t>(weight_type(weight.format))] += values;
    weights_.formats.add(weight.format);
    return weight;
  }

  const Dims& dims_;
  frt_dtype activation_;
  const Calibration* calibration_;
  WeightSource& source_;
  models::DeviceMemory& memory_;
  Weights& weights_;
  std::optional<Quantiser> quantiser_;
};

}  // namespace

Weights build_weights(const Config& config, frt_dtype activation, const Calibration* calibration,
                      WeightSource& source, std::unique_ptr<models::DeviceMemory> memory) {
  const Dims& d = config.dims;
  source.begin(weight_bytes(config, activation, false));
  source.prepare(*memory);
  Weights weights;
  weights.fp8 = calibration != nullptr;
  Builder builder(config, activation, calibration, source, *memory, weights);
  builder.patches();
  for (std::int64_t i = 0; i < d.vision_layers; ++i) {
    weights.vision.push_back(builder.vision_layer(i));
  }
  weights.vision_norm = builder.vector("vision.post_layernorm.weight", d.vision_width);
  weights.vision_norm_bias = builder.vector("vision.post_layernorm.bias", d.vision_width);
  weights.projector = builder.matrix("projector.weight", d.width, d.vision_width);
  weights.projector_bias = builder.vector("projector.bias", d.width);
  weights.embedding = builder.matrix("embedding", d.vocabulary, d.width);
  for (std::int64_t i = 0; i < d.layers; ++i) {
    weights.prefix.push_back(
        builder.gemma_layer("prefix", i, d.width, d.mlp, true, i + 1 == d.layers));
  }
  const std::uint64_t before = weights.totals.bytes;
  for (std::int64_t i = 0; i < d.layers; ++i) {
    weights.expert.push_back(
        builder.gemma_layer("expert", i, d.expert_width, d.expert_mlp, false, false));
  }
  weights.totals.expert_bytes = weights.totals.bytes - before;
  weights.in_weight =
      builder.constants(source.values("action_in_proj.weight", {d.expert_width, d.action_dim}));
  weights.in_bias = builder.vector("action_in_proj.bias", d.expert_width);
  weights.out_weight =
      builder.constants(source.values("action_out_proj.weight", {d.action_dim, d.expert_width}));
  weights.out_bias = builder.vector("action_out_proj.bias", d.action_dim);
  builder.finish();
  memory->finish();
  source.end();
  weights.memory = std::move(memory);
  return weights;
}

std::uint64_t weight_bytes(const Config& config, frt_dtype activation, bool fp8) {
  const Dims& d = config.dims;
  const std::int64_t vision =
      d.vision_layers * (4 * d.vision_width * d.vision_width + 2 * d.vision_width * d.vision_mlp);
  const auto layer = [&](std::int64_t width, std::int64_t mlp) {
    return width * (2 * d.query_width() + 2 * d.head_dim + 3 * mlp);
  };
  const std::int64_t others =
      d.vision_width * (d.patch_columns() + d.width) + d.vocabulary * d.width;
  const std::int64_t layers =
      vision + d.layers * (layer(d.width, d.mlp) + layer(d.expert_width, d.expert_mlp)) -
      layer(d.width, d.mlp) + 2 * d.head_dim * d.width;
  return bytes_of(activation, others) +
         (fp8 ? static_cast<std::uint64_t>(layers) : bytes_of(activation, layers));
}

std::string describe_formats(const WeightTotals& totals) {
  const auto of = [&](WeightType type) {
    return totals.format_parameters[static_cast<std::size_t>(type)];
  };
  const std::pair<const char*, std::uint64_t> formats[] = {{"fp8", of(WeightType::kFp8Tensor)},
                                                           {"f32", of(WeightType::kF32)},
                                                           {"bf16", of(WeightType::kBf16)}};
  std::uint64_t all = 0;
  for (const auto& [name, count] : formats) all += count;
  std::string text;
  for (const auto& [name, count] : formats) {
    if (count == 0) continue;
    if (count == all) return name;
    const auto share = std::lround(100.0 * static_cast<double>(count) / static_cast<double>(all));
    text += (text.empty() ? "" : ", ") + std::string(name) + " " + std::to_string(share) + " %";
  }
  return text;
}

}  // namespace frt::pi05
