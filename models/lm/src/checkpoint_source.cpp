// SPDX-License-Identifier: Apache-2.0
// A matrix goes to the device as it is stored. Only F16, which no operator takes, is
// converted to f32.
#include <frt/lm/checkpoint_source.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <frt/error.hpp>
#include <utility>

namespace frt::lm {

using models::LinearWeight;
using models::TensorView;
using models::WeightFormat;

namespace {

constexpr std::array<std::string_view, 3> kTrunkPrefixes = {"model.language_model.",
                                                            "language_model.model.", "model."};

[[noreturn]] void refuse(const TensorView& tensor, const std::string& what) {
  throw Error(FRT_ERR_FORMAT, "tensor " + std::string(tensor.name) + " in " +
                                  std::string(tensor.file) + ": " + what);
}

// Scales must be finite (checked where they are found) and not zero, unless all values under a
// zero scale are zero anyway.
void refuse_zero_scales(const LinearWeight& weight) {
  if (weight.format == WeightFormat::kNvfp4) {
    if (!(std::abs(weight.global_scale) > 0) || !std::isfinite(1 / weight.global_scale)) {
      refuse(weight.weight, "its global scale is " + std::to_string(weight.global_scale) +
                                ", expected a finite number other than 0");
    }
    return;
  }
  if (weight.format == WeightFormat::kPlain) return;
  const std::vector<float> scales = models::to_f32(weight.scales);
  const auto rows = static_cast<std::size_t>(weight.rows);
  const auto columns = static_cast<std::size_t>(weight.columns);
  const std::size_t grid_columns = (columns + weight.block.columns - 1) / weight.block.columns;
  std::vector<std::byte> band;  // the rows of one row of the grid
  std::size_t band_row = rows;  // the first of them; `rows`: none were read
  for (std::size_t i = 0; i < scales.size(); ++i) {
    if (scales[i] != 0) continue;
    const std::size_t first_row = i / grid_columns * weight.block.rows;
    const std::size_t end_row = std::min(rows, first_row + weight.block.rows);
    const std::size_t first_column = i % grid_columns * weight.block.columns;
    const std::size_t end_column = std::min(columns, first_column + weight.block.columns);
    if (band_row != first_row) {
      band_row = first_row;
      band.resize((end_row - first_row) * columns);
      weight.weight.read(first_row * columns, band);
    }
    for (std::size_t r = 0; r < end_row - first_row; ++r) {
      for (std::size_t c = first_column; c < end_column; ++c) {
        if ((std::to_integer<unsigned>(band[r * columns + c]) & 0x7Fu) != 0) {
          refuse(weight.scales, "scale " + std::to_string(i) + " of " +
                                    std::string(weight.weight.name) +
                                    " is 0 over values that are not");
        }
      }
    }
  }
}

float multiplied_global_scale(const LinearWeight& weight) {
  if (weight.format == WeightFormat::kFp8Tensor) return models::to_f32(weight.scales).at(0);
  if (weight.format != WeightFormat::kNvfp4) return 1;
  return weight.naming == models::Nvfp4Naming::kCompressedTensors ? 1.0f / weight.global_scale
                                                                  : weight.global_scale;
}

// The descriptor of a matrix, without its memory.
frt_weight describe(const LinearWeight& found) {
  frt_weight weight{};
  weight.rows = static_cast<std::int32_t>(found.rows);
  weight.cols = static_cast<std::int32_t>(found.columns);
  weight.global_scale = multiplied_global_scale(found);
  switch (found.format) {
    case WeightFormat::kPlain:
      weight.format = found.weight.dtype == FRT_DTYPE_BF16 ? kWeightBf16 : kWeightF32;
      break;
    case WeightFormat::kFp8Block:
      weight.format =
          FRT_WEIGHT_FP8_BLOCK(found.scales.dtype, static_cast<std::uint32_t>(found.block.rows),
                               static_cast<std::uint32_t>(found.block.columns));
      break;
    case WeightFormat::kFp8Channel:
      weight.format = FRT_WEIGHT_FP8_CHANNEL(found.scales.dtype);
      break;
    case WeightFormat::kFp8Tensor:
      weight.format = kWeightFp8Tensor;
      break;
    case WeightFormat::kNvfp4:
      weight.format = kWeightNvfp4;
      break;
  }
  return weight;
}

bool has_scale_memory(const frt_weight& weight) {
  return weight.format.scale != FRT_DTYPE_NONE;
}

bool is_convolution(std::string_view name) {
  return name.ends_with("conv1d.weight");
}

bool ends_with_any(std::string_view name, std::initializer_list<std::string_view> endings) {
  return std::any_of(endings.begin(), endings.end(),
                     [&](std::string_view ending) { return name.ends_with(ending); });
}

}  // namespace

CheckpointSource::CheckpointSource(const Host& host, models::Checkpoint checkpoint,
                                   const Config& config, DeviceMemory& memory)
    : host_(host),
      checkpoint_(std::move(checkpoint)),
      memory_(memory),
      block_{static_cast<std::size_t>(config.block_rows),
             static_cast<std::size_t>(config.block_columns)} {
  for (const std::string_view prefix : kTrunkPrefixes) {
    if (!checkpoint_.contains(std::string(prefix) + "embed_tokens.weight")) continue;
    trunk_ = prefix;
    break;
  }
  if (trunk_.empty()) {
    throw Error(FRT_ERR_NOT_FOUND,
                checkpoint_.path() +
                    ": no tensor embed_tokens.weight under model.language_model., "
                    "language_model.model. or model.; this is no checkpoint of a language model");
  }
  mtp_ = checkpoint_.contains("language_model.mtp.norm.weight") ? "language_model.mtp." : "mtp.";
  head_ = "lm_head";
  if (!checkpoint_.contains("lm_head.weight") &&
      checkpoint_.contains("language_model.lm_head.weight")) {
    head_ = "language_model.lm_head";
  }
}

bool CheckpointSource::has_mtp() const {
  return checkpoint_.contains(mtp_ + "norm.weight");
}

std::string CheckpointSource::stored_name(const std::string& name) const {
  if (name.starts_with("mtp.")) return mtp_ + name.substr(4);
  if (name.starts_with("lm_head")) return head_ + name.substr(7);
  return trunk_ + name;
}

bool CheckpointSource::wanted(std::string_view name, bool with_mtp) const {
  if (name.starts_with(mtp_)) return with_mtp;
  if (name.find("visual.") != std::string_view::npos ||
      name.find("vision_tower.") != std::string_view::npos) {
    return false;
  }
  return !ends_with_any(
      name, {".input_scale", ".input_global_scale", ".k_scale", ".v_scale", "rotary_emb.inv_freq"});
}

// Matrices as they are stored, F16 twice as large; vectors and convolutions in F32.
std::uint64_t CheckpointSource::device_bytes(bool with_mtp) const {
  std::uint64_t bytes = std::uint64_t{1} << 20;  // what is computed here: frequencies, scales
  for (const TensorView& tensor : checkpoint_.tensors()) {
    if (!wanted(tensor.name, with_mtp)) continue;
    const bool matrix = tensor.shape.size() >= 2 && !is_convolution(tensor.name);
    const bool stored = matrix && tensor.dtype != FRT_DTYPE_F16;
    bytes += DeviceMemory::placed(stored ? tensor.bytes : tensor.elements() * sizeof(float));
  }
  return bytes;
}

bool CheckpointSource::only_f32(bool with_mtp) const {
  const auto tensors = checkpoint_.tensors();
  return std::all_of(tensors.begin(), tensors.end(), [&](const TensorView& tensor) {
    return !wanted(tensor.name, with_mtp) || tensor.shape.size() < 2 ||
           is_convolution(tensor.name) || tensor.dtype == FRT_DTYPE_F32 ||
           tensor.dtype == FRT_DTYPE_F16;
  });
}

void CheckpointSource::begin(bool with_mtp) {
  with_mtp_ = with_mtp;
  for (const TensorView& tensor : checkpoint_.tensors()) {
    if (wanted(tensor.name, with_mtp_)) total_bytes_ += tensor.bytes;
  }
  host_.progress("weights", FRT_PROGRESS_BYTES, 0, total_bytes_);
  UploadOptions options;
  options.progress = [this](std::uint64_t bytes) {  // what was converted counts more than it is
    if (bytes < total_bytes_) {
      host_.progress("weights", FRT_PROGRESS_BYTES, bytes, total_bytes_);
    }
  };
  memory_.set_upload_options(std::move(options));
}

void CheckpointSource::end() {
  checkpoint_.require_unchanged();
  std::size_t count = 0;
  std::string examples;
  for (const TensorView& tensor : checkpoint_.tensors()) {
    if (!wanted(tensor.name, with_mtp_) || used_.contains(std::string(tensor.name))) continue;
    if (++count <= 3) examples += (count > 1 ? ", " : "") + std::string(tensor.name);
  }
  if (count > 0) {
    host_.log(FRT_LOG_WARNING, checkpoint_.path() + ": " + std::to_string(count) +
                                   " tensors are not part of the model and were ignored: " +
                                   examples + (count > 3 ? ", ..." : ""));
  }
  host_.progress("weights", FRT_PROGRESS_BYTES, total_bytes_, total_bytes_);
}

void CheckpointSource::take(const TensorView& tensor) {
  used_.insert(std::string(tensor.name));
}

const void* CheckpointSource::resident(const TensorView& tensor) {
  take(tensor);
  return memory_.stream_in(tensor);
}

LinearWeight CheckpointSource::find(const std::string& base, std::int64_t rows,
                                    std::int64_t columns) {
  const std::string name = stored_name(base);
  LinearWeight found = models::find_linear(checkpoint_, name, static_cast<std::uint64_t>(rows),
                                           static_cast<std::uint64_t>(columns), block_);
  refuse_zero_scales(found);
  for (const char* global : {".weight_global_scale", ".weight_scale_2"}) {
    if (found.format == WeightFormat::kNvfp4) {
      if (const TensorView* scalar = checkpoint_.find(name + global)) take(*scalar);
    }
  }
  if (found.format == WeightFormat::kFp8Tensor) take(found.scales);
  return found;
}

frt_weight CheckpointSource::place(const LinearWeight& found) {
  frt_weight weight = describe(found);
  if (found.weight.dtype == FRT_DTYPE_F16) {
    const std::vector<float> wide = models::to_f32(found.weight);
    weight.data = memory_.upload(std::as_bytes(std::span(wide)));
    take(found.weight);
    return weight;
  }
  weight.data = resident(found.weight);
  if (has_scale_memory(weight)) weight.scale = resident(found.scales);
  return weight;
}

frt_weight CheckpointSource::matrix(const std::string& base, std::int64_t rows,
                                    std::int64_t columns, Role) {
  return place(find(base, rows, columns));
}

void CheckpointSource::experts(const std::string& prefix, const Config& config,
                               MixtureWeights& weights) {
  if (checkpoint_.contains(stored_name(prefix + "experts.gate_up_proj"))) {
    return fused_experts(prefix, config, weights);
  }
  const std::int64_t width = config.expert_width;
  weights.gate = stacked_experts(prefix, "gate_proj", config, width, config.hidden);
  weights.up = stacked_experts(prefix, "up_proj", config, width, config.hidden);
  weights.down = stacked_experts(prefix, "down_proj", config, config.hidden, width);
}

// gate_up_proj (experts, [gate | up], hidden), down_proj (experts, hidden, width).
void CheckpointSource::fused_experts(const std::string& prefix, const Config& config,
                                     MixtureWeights& weights) {
  const auto count = static_cast<std::uint64_t>(config.experts);
  const auto width = static_cast<std::uint64_t>(config.expert_width);
  const auto hidden = static_cast<std::uint64_t>(config.hidden);
  const auto stack = [&](const char* name, std::uint64_t rows, std::uint64_t columns,
                         std::uint64_t parts) {
    const TensorView& tensor =
        checkpoint_.require(stored_name(prefix + name), {count, rows * parts, columns});
    if (tensor.dtype != FRT_DTYPE_BF16 && tensor.dtype != FRT_DTYPE_F32) {
      throw Error(FRT_ERR_UNSUPPORTED,
                  "tensor " + std::string(tensor.name) + " in " + std::string(tensor.file) +
                      ": fused experts of type " + dtype_name(tensor.dtype) +
                      ", expected bf16 or f32 (quantised experts are stored one by one)");
    }
    frt_expert_weight experts{};
    experts.expert.format = tensor.dtype == FRT_DTYPE_BF16 ? kWeightBf16 : kWeightF32;
    experts.expert.rows = static_cast<std::int32_t>(rows);
    experts.expert.cols = static_cast<std::int32_t>(columns);
    experts.expert.data = resident(tensor);
    experts.data_stride = static_cast<std::int64_t>(tensor.bytes / count);
    return experts;
  };
  weights.gate = stack("experts.gate_up_proj", width, hidden, 2);
  weights.up = weights.gate;
  weights.up.expert.data =
      static_cast<const std::byte*>(weights.gate.expert.data) + weights.gate.data_stride / 2;
  weights.down = stack("experts.down_proj", hidden, width, 1);
}

frt_expert_weight CheckpointSource::stacked_experts(const std::string& prefix, const char* part,
                                                    const Config& config, std::int64_t rows,
                                                    std::int64_t columns) {
  frt_expert_weight stack{};
  std::byte* data = nullptr;
  std::byte* scales = nullptr;
  std::vector<float> global_scales;
  for (std::int64_t e = 0; e < config.experts; ++e) {
    const std::string base = prefix + "experts." + std::to_string(e) + "." + part;
    const LinearWeight found = find(base, rows, columns);
    const frt_weight form = describe(found);
    const bool converted = found.weight.dtype == FRT_DTYPE_F16;
    const std::uint64_t bytes =
        converted ? found.weight.elements() * sizeof(float) : found.weight.bytes;
    if (e == 0) {
      stack.expert = form;
      stack.data_stride = static_cast<std::int64_t>(bytes);
      data = memory_.place(bytes * static_cast<std::uint64_t>(config.experts));
      stack.expert.data = data;
      if (has_scale_memory(form)) {
        stack.scale_stride = static_cast<std::int64_t>(found.scales.bytes);
        scales = memory_.place(found.scales.bytes * static_cast<std::uint64_t>(config.experts));
        stack.expert.scale = scales;
      }
    } else if (form.format != stack.expert.format) {
      refuse(found.weight,
             "its format differs from that of expert 0; the experts of one layer "
             "must be stored alike");
    }
    if (converted) {
      const std::vector<float> wide = models::to_f32(found.weight);
      memory_.upload_to(data + e * stack.data_stride, std::as_bytes(std::span(wide)));
    } else {
      memory_.stream_to(data + e * stack.data_stride, found.weight);
    }
    take(found.weight);
    if (scales) {
      memory_.stream_to(scales + e * stack.scale_stride, found.scales);
      take(found.scales);
    }
    global_scales.push_back(form.global_scale);
  }
  if (stack.expert.format.flags & FRT_WEIGHT_GLOBAL_SCALE) {
    stack.global_scales =
        reinterpret_cast<const float*>(memory_.upload(std::as_bytes(std::span(global_scales))));
  }
  return stack;
}

std::vector<float> CheckpointSource::values(const std::string& name,
                                            std::vector<std::int64_t> shape, Role role) {
  std::vector<std::uint64_t> expected(shape.begin(), shape.end());
  const std::string stored = stored_name(name);
  const TensorView& found = checkpoint_.get(stored);
  if (role == Role::kConv && found.shape.size() == 2) {
    expected = {expected[0], expected[2]};  // (channels, width), without the middle 1
  }
  const TensorView& tensor = checkpoint_.require(stored, expected);
  switch (tensor.dtype) {
    case FRT_DTYPE_BF16:
    case FRT_DTYPE_F16:
    case FRT_DTYPE_F32:
      break;
    default:
      throw Error(FRT_ERR_UNSUPPORTED, "tensor " + stored + " in " + std::string(tensor.file) +
                                           ": expected bf16, f16 or f32, found " +
                                           dtype_name(tensor.dtype));
  }
  models::require_finite(tensor);
  take(tensor);
  return models::to_f32(tensor);
}

void CheckpointSource::cache_scales(const std::string& prefix, AttentionWeights& weights) {
  const auto scale = [&](std::initializer_list<const char*> names) {
    for (const char* name : names) {
      const TensorView* tensor = checkpoint_.find(stored_name(prefix + name));
      if (!tensor) continue;
      models::require_finite(*tensor);
      const std::vector<float> values = models::to_f32(*tensor);
      if (values.size() != 1 || !(values[0] > 0)) {
        refuse(*tensor, "expected one scale above 0");
      }
      return values[0];
    }
    return 1.0f;
  };
  weights.key_scale = scale({"k_proj.k_scale", "k_scale"});
  weights.value_scale = scale({"v_proj.v_scale", "v_scale"});
}

frt_weight CheckpointSource::embedding(const Config& config) {
  const LinearWeight found = find("embed_tokens", config.vocabulary, config.hidden);
  if (found.format != WeightFormat::kPlain) {
    throw Error(FRT_ERR_UNSUPPORTED, "tensor " + std::string(found.weight.name) + " in " +
                                         std::string(found.weight.file) +
                                         ": the embedding table is stored as " +
                                         std::string(models::weight_format_name(found.format)) +
                                         ", expected bf16, f16 or f32");
  }
  return place(found);
}

frt_weight CheckpointSource::head(const Config& config, const frt_weight& table) {
  const bool stored =
      checkpoint_.contains(head_ + ".weight") || checkpoint_.contains(head_ + ".weight_packed");
  if (config.tied_embeddings && !stored) return table;
  return place(find("lm_head", config.vocabulary, config.hidden));
}

}  // namespace frt::lm
