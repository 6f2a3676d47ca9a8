// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cmath>
#include <frt/error.hpp>
#include <frt/lm/tensors.hpp>
#include <utility>

namespace frt::lm {
namespace {

constexpr std::array<std::pair<Format, std::string_view>, 8> kFormats = {{
    {Format::kBf16, "bf16"},
    {Format::kF32, "f32"},
    {Format::kFp8, "fp8"},
    {Format::kFp8Tensor, "fp8-tensor"},
    {Format::kFp8Channel, "fp8-channel"},
    {Format::kNvfp4, "nvfp4"},
    {Format::kNvfp4Head8, "nvfp4-fp8-head"},
    {Format::kNvfp4Mixed, "nvfp4-mixed"},
}};

}  // namespace

std::string_view format_name(Format format) {
  for (const auto& [value, name] : kFormats) {
    if (value == format) return name;
  }
  return "?";
}

Format parse_format(std::string_view name) {
  std::string known;
  for (const auto& [value, text] : kFormats) {
    if (text == name) return value;
    known += (known.empty() ? "" : ", ") + std::string(text);
  }
  throw Error(FRT_ERR_INVALID_ARGUMENT,
              "format '" + std::string(name) + "' is unknown; choose one of " + known);
}

Packing packing(Format format, Role role, bool mtp) {
  const bool matrix = role == Role::kMixer || role == Role::kFeedForward;
  switch (format) {
    case Format::kBf16:
    case Format::kF32:
      return Packing::kPlain;
    case Format::kFp8:
      return matrix ? Packing::kFp8Block : Packing::kPlain;
    case Format::kFp8Tensor:
      return matrix ? Packing::kFp8Tensor : Packing::kPlain;
    case Format::kFp8Channel:
      return matrix ? Packing::kFp8Channel : Packing::kPlain;
    case Format::kNvfp4:
      return matrix || role == Role::kHead ? Packing::kNvfp4 : Packing::kPlain;
    case Format::kNvfp4Head8:
      if (role == Role::kHead) return Packing::kFp8Channel;
      return matrix ? Packing::kNvfp4 : Packing::kPlain;
    case Format::kNvfp4Mixed:
      if (role == Role::kHead) return Packing::kNvfp4;
      if (mtp || !matrix) return Packing::kPlain;
      return role == Role::kFeedForward ? Packing::kNvfp4 : Packing::kFp8Tensor;
  }
  return Packing::kPlain;
}

bool is_quantised(Format format) {
  return format != Format::kBf16 && format != Format::kF32;
}

// A uniform distribution of half width a has the deviation a / sqrt(3); a matrix of deviation
// 1 / sqrt(inputs) keeps that of its input. Decay is drawn in the logarithm, so that some heads
// forget within a token and others remember hundreds.
Range value_range(Role role, std::uint64_t inputs) {
  const auto symmetric = [](double half) {
    return Range{static_cast<float>(-half), static_cast<float>(half)};
  };
  const double unit = std::sqrt(3.0 / static_cast<double>(inputs ? inputs : 1));
  switch (role) {
    case Role::kEmbedding:
      return symmetric(std::sqrt(3.0));
    case Role::kHead:
      return symmetric(3 * unit);
    case Role::kMixer:
    case Role::kFeedForward:
    case Role::kSmall:
      return symmetric(unit);
    case Role::kCentredNorm:
      return symmetric(0.2);
    case Role::kPlainNorm:
      return {0.8f, 1.2f};
    case Role::kConv:
      return symmetric(0.8);
    case Role::kDecayLog:
      return {-4.6f, 2.7f};
    case Role::kTimeBias:
      return {-3.0f, -1.0f};
    case Role::kBias:
      return symmetric(0.2);
  }
  return {};
}

}  // namespace frt::lm
