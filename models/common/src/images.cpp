// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstring>
#include <frt/error.hpp>
#include <frt/models/images.hpp>
#include <string>

namespace frt::models {
namespace {

constexpr int kWeightBits = 22;

void require_image(std::size_t values, ImageSize size) {
  if (size.height > 0 && size.width > 0 && values == static_cast<std::size_t>(size.values()))
    return;
  throw Error(FRT_ERR_INVALID_ARGUMENT,
              "an image of " + std::to_string(size.height) + "x" + std::to_string(size.width) +
                  " with " + std::to_string(values) + " values, expected height x width x 3");
}

std::uint8_t weighted(const std::uint8_t* pixels, std::int64_t stride, const std::int32_t* weights,
                      std::int32_t count) {
  std::int64_t sum = std::int64_t{1} << (kWeightBits - 1);
  for (std::int32_t i = 0; i < count; ++i) {
    sum += static_cast<std::int64_t>(pixels[i * stride]) * weights[i];
  }
  return static_cast<std::uint8_t>(std::clamp<std::int64_t>(sum >> kWeightBits, 0, 255));
}

}  // namespace

ImageSize ImageResizer::fitted(ImageSize size) const {
  const double ratio =
      std::max(static_cast<double>(size.width) / static_cast<double>(target_.width),
               static_cast<double>(size.height) / static_cast<double>(target_.height));
  return {std::max<std::int64_t>(
              1, static_cast<std::int64_t>(static_cast<double>(size.height) / ratio)),
          std::max<std::int64_t>(
              1, static_cast<std::int64_t>(static_cast<double>(size.width) / ratio))};
}

void ImageResizer::make_taps(Taps& taps, std::int64_t in, std::int64_t out) {
  if (taps.in == in && taps.out == out) return;
  const double scale = static_cast<double>(in) / static_cast<double>(out);
  const double support = std::max(scale, 1.0);
  taps.in = in;
  taps.out = out;
  taps.widest = static_cast<std::int64_t>(std::ceil(support)) * 2 + 1;
  taps.first.assign(static_cast<std::size_t>(out), 0);
  taps.count.assign(static_cast<std::size_t>(out), 0);
  taps.weights.assign(static_cast<std::size_t>(out * taps.widest), 0);
  std::vector<double> weights(static_cast<std::size_t>(taps.widest));
  for (std::int64_t x = 0; x < out; ++x) {
    const double center = (static_cast<double>(x) + 0.5) * scale;
    const auto low = std::max<std::int64_t>(0, static_cast<std::int64_t>(center - support + 0.5));
    const auto high = std::min(in, static_cast<std::int64_t>(center + support + 0.5));
    const auto count = static_cast<std::size_t>(high - low);
    double sum = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const double distance =
          (static_cast<double>(i) + static_cast<double>(low) - center + 0.5) / support;
      weights[i] = std::max(0.0, 1.0 - std::abs(distance));
      sum += weights[i];
    }
    taps.first[static_cast<std::size_t>(x)] = static_cast<std::int32_t>(low);
    taps.count[static_cast<std::size_t>(x)] = static_cast<std::int32_t>(count);
    for (std::size_t i = 0; i < count; ++i) {
      taps.weights[static_cast<std::size_t>(x * taps.widest) + i] =
          static_cast<std::int32_t>(0.5 + weights[i] / sum * (1 << kWeightBits));
    }
  }
}

void ImageResizer::pillow(std::span<const std::uint8_t> pixels, ImageSize size, std::uint8_t* out) {
  require_image(pixels.size(), size);
  if (size.height == target_.height && size.width == target_.width) {
    std::memcpy(out, pixels.data(), pixels.size());
    return;
  }
  const ImageSize fit = fitted(size);
  const std::uint8_t* from = pixels.data();
  std::int64_t width = size.width;
  if (fit.width != size.width) {
    make_taps(columns_, size.width, fit.width);
    narrowed_.resize(static_cast<std::size_t>(size.height * fit.width * 3));
    for (std::int64_t y = 0; y < size.height; ++y) {
      for (std::int64_t x = 0; x < fit.width; ++x) {
        const auto i = static_cast<std::size_t>(x);
        const std::uint8_t* row = from + (y * size.width + columns_.first[i]) * 3;
        for (std::int64_t c = 0; c < 3; ++c) {
          narrowed_[static_cast<std::size_t>((y * fit.width + x) * 3 + c)] = weighted(
              row + c, 3, columns_.weights.data() + x * columns_.widest, columns_.count[i]);
        }
      }
    }
    from = narrowed_.data();
    width = fit.width;
  }
  const std::int64_t row_values = width * 3;
  const std::int64_t top = (target_.height - fit.height) / 2;
  const std::int64_t left = (target_.width - fit.width) / 2;
  std::memset(out, 0, static_cast<std::size_t>(target_.values()));
  if (fit.height != size.height) make_taps(rows_, size.height, fit.height);
  for (std::int64_t y = 0; y < fit.height; ++y) {
    std::uint8_t* to = out + ((top + y) * target_.width + left) * 3;
    if (fit.height == size.height) {
      std::memcpy(to, from + y * row_values, static_cast<std::size_t>(row_values));
      continue;
    }
    const auto i = static_cast<std::size_t>(y);
    const std::uint8_t* column = from + rows_.first[i] * row_values;
    for (std::int64_t v = 0; v < row_values; ++v) {
      to[v] =
          weighted(column + v, row_values, rows_.weights.data() + y * rows_.widest, rows_.count[i]);
    }
  }
}

void ImageResizer::bilinear(std::span<const float> pixels, ImageSize size, float* out) {
  require_image(pixels.size(), size);
  if (size.height == target_.height && size.width == target_.width) {
    std::copy(pixels.begin(), pixels.end(), out);
    return;
  }
  const ImageSize fit = fitted(size);
  const auto tap = [](std::int64_t position, std::int64_t in, std::int64_t count) {
    struct {
      std::int64_t low, high;
      float share;
    } result{};
    const auto scale = static_cast<float>(static_cast<double>(in) / static_cast<double>(count));
    const float at = std::max((static_cast<float>(position) + 0.5f) * scale - 0.5f, 0.0f);
    result.low = static_cast<std::int64_t>(at);
    result.high = std::min(result.low + 1, in - 1);
    result.share = at - static_cast<float>(result.low);
    return result;
  };
  std::fill_n(out, target_.values(), 0.0f);
  const std::int64_t top = (target_.height - fit.height) / 2;
  const std::int64_t left = (target_.width - fit.width) / 2;
  for (std::int64_t y = 0; y < fit.height; ++y) {
    const auto v = tap(y, size.height, fit.height);
    for (std::int64_t x = 0; x < fit.width; ++x) {
      const auto u = tap(x, size.width, fit.width);
      for (std::int64_t c = 0; c < 3; ++c) {
        const auto pixel = [&](std::int64_t row, std::int64_t column) {
          return pixels[static_cast<std::size_t>((row * size.width + column) * 3 + c)];
        };
        const float upper = pixel(v.low, u.low) * (1 - u.share) + pixel(v.low, u.high) * u.share;
        const float lower = pixel(v.high, u.low) * (1 - u.share) + pixel(v.high, u.high) * u.share;
        out[((top + y) * target_.width + left + x) * 3 + c] =
            std::clamp(upper * (1 - v.share) + lower * v.share, 0.0f, 1.0f);
      }
    }
  }
}

}  // namespace frt::models
