// SPDX-License-Identifier: Apache-2.0
// Values are uniform in the range that keeps activations finite (value_range), drawn by position
// from splitmix64(hash(name) ^ seed), so that a tensor does not depend on the others. Matrices are
// made in slabs of rows (whole blocks of 128), quantised slab by slab; only a scale per tensor
// needs the whole matrix at once.
#include "stored_tensor.hpp"

#include <algorithm>
#include <frt/error.hpp>
#include <span>

namespace frt::tools {

using models::Nvfp4Naming;
using qwen36::Packing;

namespace {

constexpr std::uint64_t kSlabElements = std::uint64_t{8} << 20;

std::uint64_t splitmix64(std::uint64_t x) {
  std::uint64_t z = x + 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

std::uint64_t stream_of(std::string_view name, std::uint64_t seed) {
  std::uint64_t hash = 0xCBF29CE484222325u;
  for (const char letter : name) {
    hash = (hash ^ static_cast<unsigned char>(letter)) * 0x100000001B3u;
  }
  return splitmix64(hash ^ splitmix64(seed));
}

std::uint64_t product(const std::vector<std::uint64_t>& shape) {
  std::uint64_t elements = 1;
  for (const std::uint64_t extent : shape) elements *= extent;
  return elements;
}

std::uint64_t blocks(std::uint64_t extent, std::int64_t block) {
  const auto size = static_cast<std::uint64_t>(block);
  return (extent + size - 1) / size;
}

std::string base_of(const std::string& name) {
  return name.substr(0, name.size() - std::string_view(".weight").size());
}

template <class Values>
std::span<const std::byte> bytes_of(const Values& values) {
  return std::as_bytes(std::span(values));
}

std::vector<std::byte> narrowed(frt_dtype dtype, const std::vector<float>& values) {
  std::vector<std::byte> bytes(values.size() * dtype_bits(dtype) / 8);
  models::convert_from_f32(dtype, values.data(), values.size(), bytes.data());
  return bytes;
}

class Values {
 public:
  Values(const qwen36::Tensor& tensor, std::uint64_t seed)
      : range_(qwen36::value_range(tensor.role, tensor.shape.back())),
        stream_(stream_of(tensor.name, seed)) {}

  // Elements [begin, begin + count).
  std::vector<float> slab(std::uint64_t begin, std::uint64_t count) const {
    std::vector<float> values(count);
    for (std::uint64_t i = 0; i < count; ++i) {
      const auto draw = static_cast<float>(splitmix64(stream_ + begin + i) >> 40);
      values[i] = range_.low + (range_.high - range_.low) * (draw * 0x1p-24f);
    }
    return values;
  }
  float largest() const { return std::max(std::abs(range_.low), std::abs(range_.high)); }

 private:
  qwen36::Range range_;
  std::uint64_t stream_;
};

std::vector<StoredTensor> parts_of(const qwen36::Tensor& tensor, Packing packing,
                                   const qwen36::Config& config, const Choice& choice) {
  if (packing == Packing::kPlain) {
    const bool wide = choice.format == qwen36::Format::kF32;
    return {{tensor.name, wide ? FRT_DTYPE_F32 : FRT_DTYPE_BF16, tensor.shape}};
  }
  const std::uint64_t rows = tensor.shape[0], columns = tensor.shape[1];
  const std::string base = base_of(tensor.name);
  const StoredTensor codes{tensor.name, FRT_DTYPE_F8_E4M3, tensor.shape};
  switch (packing) {
    case Packing::kFp8Block:
      return {codes,
              {base + ".weight_scale_inv",
               FRT_DTYPE_BF16,
               {blocks(rows, config.block_rows), blocks(columns, config.block_columns)}}};
    case Packing::kFp8Channel:
      return {codes, {base + ".weight_scale", FRT_DTYPE_F32, {rows, 1}}};
    case Packing::kFp8Tensor:
      return {codes, {base + ".weight_scale", FRT_DTYPE_F32, {}}};
    default:
      break;
  }
  if (columns % models::kNvfp4Group != 0) {
    throw Error(FRT_ERR_UNSUPPORTED, tensor.name + ": " + std::to_string(columns) +
                                         " inputs, but NVFP4 needs a multiple of 16; choose other "
                                         "dimensions or another format");
  }
  const bool packed_name = choice.naming == Nvfp4Naming::kCompressedTensors;
  const StoredTensor packed{
      base + (packed_name ? ".weight_packed" : ".weight"), FRT_DTYPE_U8, {rows, columns / 2}};
  const StoredTensor scales{
      base + ".weight_scale", FRT_DTYPE_F8_E4M3, {rows, columns / models::kNvfp4Group}};
  if (packed_name) return {packed, scales, {base + ".weight_global_scale", FRT_DTYPE_F32, {1}}};
  return {packed, scales, {base + ".weight_scale_2", FRT_DTYPE_F32, {}}};
}

}  // namespace

std::uint64_t StoredTensor::bytes() const {
  return product(shape) * dtype_bits(dtype) / 8;
}

std::uint64_t StoredGroup::bytes() const {
  std::uint64_t sum = 0;
  for (const StoredTensor& part : parts) sum += part.bytes();
  return sum;
}

std::vector<StoredGroup> plan_checkpoint(const qwen36::Config& config, const Choice& choice) {
  std::vector<StoredGroup> groups;
  for (qwen36::Tensor& tensor :
       qwen36::checkpoint_tensors(config, qwen36::is_quantised(choice.format))) {
    const Packing packing =
        qwen36::packing(choice.format, tensor.role, tensor.name.starts_with("mtp."));
    std::vector<StoredTensor> parts = parts_of(tensor, packing, config, choice);
    groups.push_back({std::move(tensor), packing, std::move(parts)});
  }
  return groups;
}

void generate(const StoredGroup& group, const qwen36::Config& config, const Choice& choice,
              const std::function<void(std::string_view, std::span<const std::byte>)>& put) {
  const Values values(group.tensor, choice.seed);
  const std::uint64_t elements = product(group.tensor.shape);
  if (group.packing == Packing::kPlain) {
    for (std::uint64_t at = 0; at < elements; at += kSlabElements) {
      const auto slab = values.slab(at, std::min(kSlabElements, elements - at));
      put(group.parts[0].name, narrowed(group.parts[0].dtype, slab));
    }
    return;
  }

  const std::uint64_t rows = group.tensor.shape[0], columns = group.tensor.shape[1];
  const auto block_rows = static_cast<std::uint64_t>(config.block_rows);
  const std::uint64_t slab_rows =
      group.packing == Packing::kFp8Tensor
          ? rows
          : std::max<std::uint64_t>(kSlabElements / columns / block_rows, 1) * block_rows;
  std::vector<float> scales;             // FP8
  std::vector<std::uint8_t> fp4_scales;  // NVFP4
  float global_scale = 1;
  for (std::uint64_t row = 0; row < rows; row += slab_rows) {
    const std::uint64_t count = std::min(slab_rows, rows - row);
    const auto slab = values.slab(row * columns, count * columns);
    if (group.packing == Packing::kNvfp4) {
      const auto weight =
          models::quantise_nvfp4(slab, count, columns, choice.naming, values.largest());
      put(group.parts[0].name, bytes_of(weight.packed));
      fp4_scales.insert(fp4_scales.end(), weight.scales.begin(), weight.scales.end());
      global_scale = weight.global_scale;
      continue;
    }
    models::BlockShape block{count, columns};
    frt_dtype scale_dtype = FRT_DTYPE_F32;
    if (group.packing == Packing::kFp8Channel) block.rows = 1;
    if (group.packing == Packing::kFp8Block) {
      block = {block_rows, static_cast<std::size_t>(config.block_columns)};
      scale_dtype = FRT_DTYPE_BF16;
    }
    const auto weight = models::quantise_fp8(slab, count, columns, block, scale_dtype);
    put(group.parts[0].name, bytes_of(weight.codes));
    scales.insert(scales.end(), weight.scales.begin(), weight.scales.end());
  }
  if (group.packing == Packing::kNvfp4) {
    put(group.parts[1].name, bytes_of(fp4_scales));
    put(group.parts[2].name, bytes_of(std::span(&global_scale, 1)));
  } else {
    put(group.parts[1].name, narrowed(group.parts[1].dtype, scales));
  }
}

}  // namespace frt::tools
