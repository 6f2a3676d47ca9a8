// SPDX-License-Identifier: Apache-2.0
// A quantised matrix gets codes over the whole range of its type and scales around the value that
// brings it to the deviation of value_range(), so that every format yields activations of the same
// size.
#include <frt/lm/synthetic_source.hpp>

#include <cmath>
#include <frt/error.hpp>
#include <frt/models/formats.hpp>
#include <utility>

namespace frt::lm {
namespace {

constexpr float kE4m3Largest = 448;
constexpr float kE2m1Largest = 6;
constexpr float kScaleSpread = 0.25f;  // scales vary by this share around their mean

std::uint64_t splitmix64(std::uint64_t x) {
  std::uint64_t z = x + 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

}  // namespace

SyntheticSource::SyntheticSource(const Host& host, const Config& config,
                                 std::vector<Tensor> tensors, Format format, std::uint64_t seed,
                                 DeviceMemory& memory)
    : host_(host),
      config_(config),
      tensors_(std::move(tensors)),
      format_(format),
      seed_(seed),
      memory_(memory) {
  KernelSet().add(fill_, FRT_OP_FILL_UNIFORM).resolve(memory.context(), KernelTypes());
}

std::uint64_t SyntheticSource::device_bytes(bool with_mtp) const {
  std::uint64_t bytes = std::uint64_t{1} << 20;  // what is computed on the host: frequencies
  for (const Tensor& tensor : tensors_) {
    if (tensor.name.starts_with("mtp.") && !with_mtp) continue;
    const bool matrix = tensor.shape.size() >= 2 && tensor.role != Role::kConv;
    const StoredBytes stored = matrix ? stored_bytes(tensor) : StoredBytes{4 * elements(tensor), 0};
    // Fused tensors of experts are placed in two parts.
    bytes += DeviceMemory::placed(stored.codes) + DeviceMemory::placed(stored.scales) + 1024;
  }
  return bytes;
}

void SyntheticSource::begin(bool with_mtp) {
  for (const Tensor& tensor : tensors_) {
    if (tensor.shape.size() < 2 || (tensor.name.starts_with("mtp.") && !with_mtp)) continue;
    total_bytes_ += stored_bytes(tensor).codes;
  }
  host_.progress("weights", FRT_PROGRESS_BYTES, 0, total_bytes_);
}

std::uint64_t SyntheticSource::elements(const Tensor& tensor) {
  std::uint64_t count = 1;
  for (const std::uint64_t extent : tensor.shape) count *= extent;
  return count;
}

// Scales of blocks: as if every one of the last two extents had a block begun and not filled.
SyntheticSource::StoredBytes SyntheticSource::stored_bytes(const Tensor& tensor) const {
  const Config& config = config_;
  const std::uint64_t count = elements(tensor);
  const std::uint64_t columns = tensor.shape.back();
  switch (packing(format_, tensor.role, tensor.name.starts_with("mtp."))) {
    case Packing::kPlain:
      return {count * (format_ == Format::kF32 ? 4 : 2), 0};
    case Packing::kFp8Block: {
      const std::uint64_t rows = tensor.shape[tensor.shape.size() - 2];
      const auto block_rows = static_cast<std::uint64_t>(config.block_rows);
      const auto block_columns = static_cast<std::uint64_t>(config.block_columns);
      return {count, 2 * (count / (rows * columns)) * (rows / block_rows + 2) *
                         (columns / block_columns + 1)};
    }
    case Packing::kFp8Tensor:
      return {count, 0};
    case Packing::kFp8Channel:
      return {count, count / columns * sizeof(float)};
    case Packing::kNvfp4:
      return {count / 2, count / models::kNvfp4Group};
  }
  return {};
}

void SyntheticSource::end() {
  host_.progress("weights", FRT_PROGRESS_BYTES, total_bytes_, total_bytes_);
}

// Names are spread over the seeds by FNV-1a, so that no two tensors share values.
std::uint64_t SyntheticSource::seed_of(const std::string& name) const {
  std::uint64_t hash = 0xCBF29CE484222325u;
  for (const char letter : name) {
    hash = (hash ^ static_cast<unsigned char>(letter)) * 0x100000001B3u;
  }
  return splitmix64(hash ^ splitmix64(seed_));
}

void* SyntheticSource::filled(const std::string& name, frt_dtype dtype, std::uint64_t elements,
                              float low, float high) {
  const std::uint64_t bytes = (elements * dtype_bits(dtype) + 7) / 8;
  frt_fill_uniform_args args{};
  args.dtype = dtype;
  args.low = low;
  args.high = high;
  args.seed = seed_of(name);
  args.count = elements;
  args.y = memory_.place(bytes);
  fill_(Recorder(memory_.stream()), args);
  memory_.stream().sync();  // so that progress is true
  done_bytes_ += bytes;
  if (done_bytes_ < total_bytes_) {
    host_.progress("weights", FRT_PROGRESS_BYTES, done_bytes_, total_bytes_);
  }
  return args.y;
}

frt_expert_weight SyntheticSource::stack(const std::string& name, std::int64_t count,
                                         std::int64_t rows, std::int64_t columns, Role role) {
  const Config& config = config_;
  const auto number = static_cast<std::uint64_t>(count);
  const auto outputs = static_cast<std::uint64_t>(rows);
  const auto inputs = static_cast<std::uint64_t>(columns);
  const std::uint64_t elements = outputs * inputs;
  const float half = value_range(role, inputs).high;
  frt_expert_weight stack{};
  frt_weight& weight = stack.expert;
  weight.rows = static_cast<std::int32_t>(rows);
  weight.cols = static_cast<std::int32_t>(columns);
  const auto scales = [&](frt_dtype dtype, std::uint64_t each, float mean) {
    weight.scale = filled(name + ".scale", dtype, number * each, mean * (1 - kScaleSpread),
                          mean * (1 + kScaleSpread));
    stack.scale_stride = static_cast<std::int64_t>(each * dtype_bits(dtype) / 8);
  };
  const auto codes = [&](frt_dtype dtype, float largest) {
    weight.data = filled(name, dtype, number * elements, -largest, largest);
    stack.data_stride = static_cast<std::int64_t>(elements * dtype_bits(dtype) / 8);
  };
  switch (packing(format_, role, name.starts_with("mtp."))) {
    case Packing::kPlain: {
      const bool wide = format_ == Format::kF32;
      weight.format = wide ? kWeightF32 : kWeightBf16;
      codes(wide ? FRT_DTYPE_F32 : FRT_DTYPE_BF16, half);
      break;
    }
    case Packing::kFp8Block: {
      weight.format =
          FRT_WEIGHT_FP8_BLOCK(FRT_DTYPE_BF16, static_cast<std::uint32_t>(config.block_rows),
                               static_cast<std::uint32_t>(config.block_columns));
      codes(FRT_DTYPE_F8_E4M3, kE4m3Largest);
      const auto blocks = [](std::int64_t extent, std::int64_t block) {
        return static_cast<std::uint64_t>((extent + block - 1) / block);
      };
      scales(FRT_DTYPE_BF16,
             blocks(rows, config.block_rows) * blocks(columns, config.block_columns),
             half / kE4m3Largest);
      break;
    }
    case Packing::kFp8Tensor:
      weight.format = kWeightFp8Tensor;
      weight.global_scale = half / kE4m3Largest;
      codes(FRT_DTYPE_F8_E4M3, kE4m3Largest);
      break;
    case Packing::kFp8Channel:
      weight.format = FRT_WEIGHT_FP8_CHANNEL(FRT_DTYPE_F32);
      codes(FRT_DTYPE_F8_E4M3, kE4m3Largest);
      scales(FRT_DTYPE_F32, outputs, half / kE4m3Largest);
      break;
    case Packing::kNvfp4: {
      if (inputs % models::kNvfp4Group != 0) {
        throw Error(FRT_ERR_UNSUPPORTED, name + ": " + std::to_string(columns) +
                                             " inputs, but NVFP4 needs a multiple of 16; choose "
                                             "other dimensions or another format");
      }
      constexpr float kMeanScale = 256;
      weight.format = kWeightNvfp4;
      weight.global_scale = half / (kE2m1Largest * kMeanScale);
      codes(FRT_DTYPE_F4_E2M1, kE2m1Largest);
      scales(FRT_DTYPE_F8_E4M3, elements / models::kNvfp4Group, kMeanScale);
      break;
    }
  }
  return stack;
}

frt_weight SyntheticSource::matrix(const std::string& base, std::int64_t rows, std::int64_t columns,
                                   Role role) {
  return stack(base, 1, rows, columns, role).expert;
}

void SyntheticSource::experts(const std::string& prefix, const Config& config,
                              MixtureWeights& weights) {
  const std::int64_t width = config.expert_width;
  const Role role = Role::kFeedForward;
  weights.gate = stack(prefix + "experts.gate", config.experts, width, config.hidden, role);
  weights.up = stack(prefix + "experts.up", config.experts, width, config.hidden, role);
  weights.down = stack(prefix + "experts.down", config.experts, config.hidden, width, role);
}

std::vector<float> SyntheticSource::values(const std::string& name, std::vector<std::int64_t> shape,
                                           Role role) {
  std::int64_t count = 1;
  for (const std::int64_t extent : shape) count *= extent;
  const Range range = value_range(role, 0);
  const std::uint64_t seed = seed_of(name);
  std::vector<float> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto draw = static_cast<float>(splitmix64(seed + i) >> 40);
    values[i] = range.low + (range.high - range.low) * (draw * 0x1p-24f);
  }
  return values;
}

frt_weight SyntheticSource::embedding(const Config& config) {
  return matrix("embed_tokens", config.vocabulary, config.hidden, Role::kEmbedding);
}

frt_weight SyntheticSource::head(const Config& config, const frt_weight& table) {
  if (config.tied_embeddings) return table;
  return matrix("lm_head", config.vocabulary, config.hidden, Role::kHead);
}

}  // namespace frt::lm
