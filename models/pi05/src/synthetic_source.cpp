// SPDX-License-Identifier: Apache-2.0
#include "synthetic_source.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <frt/error.hpp>
#include <frt/models/sha256.hpp>

namespace frt::pi05 {
namespace {

constexpr std::string_view kPrefix = "synthetic:";
constexpr std::string_view kPreset = "pi05";

std::uint64_t splitmix64(std::uint64_t x) {
  std::uint64_t z = x + 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

std::int64_t number(std::string_view key, std::string_view text) {
  std::int64_t value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc() || end != text.data() + text.size() || value < 0) {
    throw Error(FRT_ERR_INVALID_ARGUMENT, "synthetic: " + std::string(key) + " = '" +
                                              std::string(text) + "' is not a number");
  }
  return value;
}

// A uniform distribution of half width a has the deviation a / sqrt(3); a matrix of deviation
// 1 / sqrt(inputs) keeps that of its input.
struct Range {
  float low, high;
};
Range range_of(const std::string& name, std::int64_t inputs) {
  if (name.ends_with(".bias")) return {-0.1f, 0.1f};
  if (inputs == 1) {  // norms: around 1, or around 0 where 1 is added
    const bool centred = name.starts_with("prefix.");
    return centred ? Range{-0.2f, 0.2f} : Range{0.8f, 1.2f};
  }
  const double scale = name.find(".dense.") != std::string::npos ? 0.3 : 1.0;
  const auto half = static_cast<float>(scale * std::sqrt(3.0 / static_cast<double>(inputs)));
  return {-half, half};
}

}  // namespace

bool is_synthetic(std::string_view checkpoint) {
  return checkpoint.starts_with(kPrefix);
}

Synthetic parse_synthetic(std::string_view checkpoint) {
  std::string_view rest = checkpoint.substr(kPrefix.size());
  const std::size_t mark = std::min(rest.find('?'), rest.size());
  if (rest.substr(0, mark) != kPreset) {
    throw Error(
        FRT_ERR_INVALID_ARGUMENT,
        "synthetic: preset '" + std::string(rest.substr(0, mark)) + "' is unknown; there is pi05");
  }
  rest.remove_prefix(std::min(mark + 1, rest.size()));
  Synthetic synthetic;
  models::Json dims = models::Json::object();
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find('&'), rest.size());
    const std::string_view pair = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    const std::size_t equals = std::min(pair.find('='), pair.size());
    const std::string_view key = pair.substr(0, equals);
    const std::int64_t value =
        number(key, equals < pair.size() ? pair.substr(equals + 1) : std::string_view());
    if (key == "seed") {
      synthetic.seed = static_cast<std::uint64_t>(value);
    } else if (key == "horizon") {
      synthetic.config.horizon = value;
    } else if (key == "steps") {
      synthetic.config.steps = value;
    } else {
      dims[std::string(key)] = value;
    }
  }
  override_dims(synthetic.config.dims, dims, std::string(checkpoint));
  if (synthetic.config.horizon < 1 || synthetic.config.steps < 1) {
    throw Error(FRT_ERR_INVALID_ARGUMENT, "synthetic: horizon and steps must be 1 or more");
  }
  return synthetic;
}

SyntheticSource::SyntheticSource(const Host& host, const Synthetic& synthetic,
                                 const Context& context)
    : host_(host), seed_(synthetic.seed), dims_(synthetic.config.dims) {
  KernelSet().add(fill_, FRT_OP_FILL_UNIFORM).resolve(context, KernelTypes());
}

// Names are spread over the seeds by FNV-1a, so that no two tensors share values.
std::uint64_t SyntheticSource::seed_of(const std::string& name) const {
  std::uint64_t hash = 0xCBF29CE484222325u;
  for (const char letter : name) {
    hash = (hash ^ static_cast<unsigned char>(letter)) * 0x100000001B3u;
  }
  return splitmix64(hash ^ splitmix64(seed_));
}

std::vector<float> SyntheticSource::values(const std::string& name,
                                           std::vector<std::int64_t> shape) const {
  std::int64_t count = 1;
  for (const std::int64_t extent : shape) count *= extent;
  const Range range = range_of(name, count / shape.front());
  const std::uint64_t seed = seed_of(name);
  std::vector<float> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto draw = static_cast<float>(splitmix64(seed + i) >> 40);
    values[i] = range.low + (range.high - range.low) * (draw * 0x1p-24f);
  }
  return values;
}

float SyntheticSource::largest(const MatrixName& matrix) const {
  const Range range = range_of(matrix.name, matrix.columns);
  return std::max(std::abs(range.low), std::abs(range.high));
}

// The weights depend on the seed and the sizes.
FileDigests SyntheticSource::digests() const {
  return {{"synthetic:pi05",
           models::sha256_text("seed " + std::to_string(seed_) + " " + dims_text(dims_))}};
}

void SyntheticSource::place(const MatrixName& matrix, frt_dtype dtype, models::DeviceMemory& memory,
                            std::byte* target) {
  const Range range = range_of(matrix.name, matrix.columns);
  frt_fill_uniform_args args{};
  args.dtype = dtype;
  args.low = range.low;
  args.high = range.high;
  args.seed = seed_of(matrix.name);
  args.count = static_cast<std::uint64_t>(matrix.rows * matrix.columns);
  args.y = target;
  fill_(Recorder(memory.stream()), args);
  memory.stream().sync();  // so that progress is true
  done_bytes_ += bytes_of(dtype, matrix.rows * matrix.columns);
  if (done_bytes_ < total_bytes_) {
    host_.progress("weights", FRT_PROGRESS_BYTES, done_bytes_, total_bytes_);
  }
}

void SyntheticSource::begin(std::uint64_t bytes) {
  total_bytes_ = bytes;
  host_.progress("weights", FRT_PROGRESS_BYTES, 0, total_bytes_);
}

void SyntheticSource::end() {
  host_.progress("weights", FRT_PROGRESS_BYTES, total_bytes_, total_bytes_);
}

}  // namespace frt::pi05
