// SPDX-License-Identifier: Apache-2.0
// The rule of the header file, in its order. Shapes are checked against the layer's [rows,
// columns], never taken from the file, and scales are read once here, so that a NaN is an error at
// load with a name and not a NaN in some logit.
#include <frt/error.hpp>
#include <frt/io/utf8.hpp>
#include <frt/models/linear_weight.hpp>

#include <algorithm>
#include <cmath>
#include <string>

#include "text.hpp"

namespace frt::models {
namespace {

std::uint64_t ceil_div(std::uint64_t a, std::uint64_t b) {
  return (a + b - 1) / b;
}

std::string who(const TensorView& tensor) {
  return std::string(tensor.file) + ": tensor " + io::quote(tensor.name);
}

void require_dtype(const TensorView& tensor, std::initializer_list<frt_dtype> allowed) {
  std::string names;
  for (const frt_dtype dtype : allowed) {
    if (tensor.dtype == dtype) return;
    names.append(names.empty() ? "" : " or ").append(safetensors_dtype_name(dtype));
  }
  throw Error(FRT_ERR_UNSUPPORTED, who(tensor) + " has dtype " +
                                       std::string(safetensors_dtype_name(tensor.dtype)) +
                                       ", expected " + names);
}

float only_value(const TensorView& tensor) {
  if (tensor.elements() != 1) {
    throw Error(FRT_ERR_MISMATCH,
                who(tensor) + " has shape " + shape_text(tensor.shape) + ", expected one element");
  }
  return to_f32(tensor)[0];
}

void read_nvfp4(const Checkpoint& checkpoint, const std::string& base, const char* weight,
                const char* global, LinearWeight& result) {
  result.format = WeightFormat::kNvfp4;
  result.weight = checkpoint.get(base + weight);
  if (result.columns % kNvfp4Group != 0) {
    throw Error(FRT_ERR_UNSUPPORTED, who(result.weight) + " is NVFP4 with " +
                                         std::to_string(result.columns) +
                                         " columns, expected a multiple of 16");
  }
  checkpoint.require(base + weight, {result.rows, result.columns / 2});
  require_dtype(result.weight, {FRT_DTYPE_U8});
  result.scales =
      checkpoint.require(base + ".weight_scale", {result.rows, result.columns / kNvfp4Group});
  require_dtype(result.scales, {FRT_DTYPE_F8_E4M3});
  const TensorView& factor = checkpoint.get(base + global);
  require_dtype(factor, {FRT_DTYPE_F32});
  require_finite(factor);
  result.global_scale = only_value(factor);
  if (!(result.global_scale > 0)) {
    throw Error(FRT_ERR_FORMAT, who(factor) + " is " + std::to_string(result.global_scale) +
                                    ", expected a positive scale");
  }
}

void read_fp8(const Checkpoint& checkpoint, const std::string& base, BlockShape block,
              LinearWeight& result) {
  if (const TensorView* grid = checkpoint.find(base + ".weight_scale_inv")) {
    result.format = WeightFormat::kFp8Block;
    result.block = block;
    checkpoint.require(
        grid->name, {ceil_div(result.rows, block.rows), ceil_div(result.columns, block.columns)});
    result.scales = *grid;
  } else {
    result.scales = checkpoint.get(base + ".weight_scale");
    if (result.scales.elements() == 1) {
      result.format = WeightFormat::kFp8Tensor;
      result.block = {result.rows, result.columns};
    } else {
      result.format = WeightFormat::kFp8Channel;
      result.block = {1, result.columns};
      checkpoint.require(result.scales.name, {result.rows, 1});
    }
  }
  require_dtype(result.scales, {FRT_DTYPE_BF16, FRT_DTYPE_F32});
}

// Products of FP4 by FP4 read scales without their signs, other kernels with them. A zero may have
// one.
void require_no_sign(const TensorView& scales, std::span<const std::byte> data) {
  constexpr std::byte kSign{0x80};
  std::byte all{0};
  for (const std::byte code : data) all |= code;
  if ((all & kSign) == std::byte{0}) return;
  const auto bad =
      std::find_if(data.begin(), data.end(), [](std::byte code) { return code > kSign; });
  if (bad == data.end()) return;
  float value = 0;
  convert_to_f32(scales.dtype, &*bad, 1, &value);
  throw Error(FRT_ERR_FORMAT, who(scales) + ": element " + std::to_string(bad - data.begin()) +
                                  " is " + std::to_string(value) +
                                  ", expected scales of NVFP4 that are not negative");
}

}  // namespace

std::string_view weight_format_name(WeightFormat format) {
  switch (format) {
    case WeightFormat::kPlain:
      return "plain";
    case WeightFormat::kFp8Block:
      return "fp8-block";
    case WeightFormat::kFp8Channel:
      return "fp8-channel";
    case WeightFormat::kFp8Tensor:
      return "fp8-tensor";
    case WeightFormat::kNvfp4:
      return "nvfp4";
  }
  return "?";
}

LinearWeight find_linear(const Checkpoint& checkpoint, std::string_view base, std::uint64_t rows,
                         std::uint64_t columns, BlockShape block) {
  const std::string name(base);
  LinearWeight result;
  result.rows = rows;
  result.columns = columns;
  if (checkpoint.contains(name + ".weight_packed")) {
    result.naming = Nvfp4Naming::kCompressedTensors;
    read_nvfp4(checkpoint, name, ".weight_packed", ".weight_global_scale", result);
  } else if (checkpoint.contains(name + ".weight_scale_2")) {
    result.naming = Nvfp4Naming::kModelOpt;
    read_nvfp4(checkpoint, name, ".weight", ".weight_scale_2", result);
  } else {
    result.weight = checkpoint.require(name + ".weight", {rows, columns});
    require_dtype(result.weight, {FRT_DTYPE_BF16, FRT_DTYPE_F16, FRT_DTYPE_F32, FRT_DTYPE_F8_E4M3});
    if (result.weight.dtype != FRT_DTYPE_F8_E4M3) return result;
    read_fp8(checkpoint, name, block, result);
  }
  const std::vector<std::byte> scales = result.scales.read();
  require_finite(result.scales, scales);
  if (result.format == WeightFormat::kNvfp4) require_no_sign(result.scales, scales);
  return result;
}

void dequantise(const LinearWeight& weight, std::span<float> out) {
  const auto rows = static_cast<std::size_t>(weight.rows);
  const auto columns = static_cast<std::size_t>(weight.columns);
  if (out.size() != rows * columns) {
    throw Error(FRT_ERR_INVALID_ARGUMENT, "the output has " + std::to_string(out.size()) +
                                              " elements, tensor " + io::quote(weight.weight.name) +
                                              " has " + std::to_string(rows * columns));
  }
  const std::vector<std::byte> data = weight.weight.read();
  const auto codes = [](const std::vector<std::byte>& bytes) {
    return std::span(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
  };
  switch (weight.format) {
    case WeightFormat::kPlain:
      convert_to_f32(weight.weight.dtype, data.data(), out.size(), out.data());
      return;
    case WeightFormat::kFp8Block:
    case WeightFormat::kFp8Channel:
    case WeightFormat::kFp8Tensor:
      dequantise_fp8(codes(data), to_f32(weight.scales), rows, columns, weight.block, out);
      return;
    case WeightFormat::kNvfp4:
      dequantise_nvfp4(codes(data), codes(weight.scales.read()), weight.global_scale, weight.naming,
                       rows, columns, out);
      return;
  }
}

std::vector<float> to_f32(const TensorView& tensor) {
  std::vector<float> values(static_cast<std::size_t>(tensor.elements()));
  const std::vector<std::byte> data = tensor.read();
  try {
    convert_to_f32(tensor.dtype, data.data(), values.size(), values.data());
  } catch (const Error& error) {
    throw Error(error.status(), who(tensor) + ": " + error.what());
  }
  return values;
}

void require_finite(const TensorView& tensor) {
  require_finite(tensor, tensor.read());
}

void require_finite(const TensorView& tensor, std::span<const std::byte> data) {
  const auto bad =
      first_non_finite(tensor.dtype, data.data(), static_cast<std::size_t>(tensor.elements()));
  if (!bad) return;
  float value = 0;
  const std::size_t bytes = dtype_bits(tensor.dtype) / 8;
  convert_to_f32(tensor.dtype, data.data() + *bad * bytes, 1, &value);
  throw Error(FRT_ERR_FORMAT, who(tensor) + ": element " + std::to_string(*bad) + " is " +
                                  (std::isnan(value) ? "NaN" : "infinite") +
                                  ", expected finite values");
}

}  // namespace frt::models
