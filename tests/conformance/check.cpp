// SPDX-License-Identifier: Apache-2.0
#include "check.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <span>
#include <utility>

namespace frt::conformance {
namespace {

// A pattern no operator writes by accident: a NaN in every float type, a large integer.
constexpr std::byte kPoison{0x7F};

void store(frt_dtype dtype, std::byte* target, float value) {
  uint32_t code = 0;
  if (dtype == FRT_DTYPE_BF16) {  // of many values: the upper half, rounded
    code = std::bit_cast<uint32_t>(value);
    code = (code + 0x7FFF + (code >> 16 & 1)) >> 16;
  } else if (dtype == FRT_DTYPE_F32 || dtype == FRT_DTYPE_F16 || dtype == FRT_DTYPE_F8_E4M3) {
    code = encode(dtype, static_cast<double>(value));
  } else {
    Case::fail(std::string("random values of type ") + dtype_name(dtype));
  }
  std::memcpy(target, &code, dtype_bits(dtype) / 8);
}

// Drawn once, for all tensors of all cases: drawing takes longer than multiplying. Their number is
// a prime, so that no row of a matrix is another one again.
std::span<const float> normal_values() {
  static const std::vector<float> values = [] {
    std::vector<float> made(65521);
    std::mt19937_64 random(1);
    std::normal_distribution<float> normal;
    for (float& value : made) value = normal(random);
    return made;
  }();
  return values;
}

// As the launch of a kernel: what the kernel at `self` says that it supports.
frt_status ask(void* self, frt_backend_stream, const void* args, frt_error* error) {
  const auto& kernel = *static_cast<const frt_kernel*>(self);
  return kernel.supports(kernel.self, args, error);
}

// The deviation of random values of a packed type.
float spread(frt_dtype dtype) {
  switch (dtype) {
    case FRT_DTYPE_F4_E2M1:
      return 2.9f;
    case FRT_DTYPE_F8_E4M3:
      return 16.0f;  // Case::experts draws it so
    case FRT_DTYPE_U4:
    case FRT_DTYPE_I4:
      return 4.6f;
    default:
      return 74.0f;
  }
}

std::size_t bytes_of(frt_dtype dtype, int64_t count) {
  return static_cast<std::size_t>((count * dtype_bits(dtype) + 7) / 8);
}

}  // namespace

const std::vector<Packing>& all_packings() {
  static const std::vector<Packing> packings = {
      {"bf16", kWeightBf16},
      {"f32", kWeightF32},
      {"fp8 128x128", FRT_WEIGHT_FP8_BLOCK(FRT_DTYPE_F32, 128, 128)},
      {"fp8 128x128 bf16 scales", FRT_WEIGHT_FP8_BLOCK(FRT_DTYPE_BF16, 128, 128)},
      {"fp8 3x32", FRT_WEIGHT_FP8_BLOCK(FRT_DTYPE_F32, 3, 32)},
      {"fp8 5x7", FRT_WEIGHT_FP8_BLOCK(FRT_DTYPE_BF16, 5, 7)},
      {"fp8 tensor", kWeightFp8Tensor},
      {"fp8 channel", FRT_WEIGHT_FP8_CHANNEL(FRT_DTYPE_F32)},
      {"fp8 channel bf16 scales", FRT_WEIGHT_FP8_CHANNEL(FRT_DTYPE_BF16)},
      {"nvfp4", kWeightNvfp4},
  };
  return packings;
}

const std::vector<Packing>& general_packings() {
  const auto form = [](frt_dtype data, frt_dtype scale, frt_dtype zero, uint32_t rows,
                       uint32_t cols, uint32_t flags = 0) {
    return frt_weight_format{data, scale, zero, rows, cols, 0, flags};
  };
  static const std::vector<Packing> packings = {
      {"u4 f16 u4 1x128", form(FRT_DTYPE_U4, FRT_DTYPE_F16, FRT_DTYPE_U4, 1, 128)},
      {"u4 bf16 bf16 1x64", form(FRT_DTYPE_U4, FRT_DTYPE_BF16, FRT_DTYPE_BF16, 1, 64)},
      {"u4 f16 middle 1x32",
       form(FRT_DTYPE_U4, FRT_DTYPE_F16, FRT_DTYPE_NONE, 1, 32, FRT_WEIGHT_MIDPOINT_ZERO)},
      {"i4 f32 3x24", form(FRT_DTYPE_I4, FRT_DTYPE_F32, FRT_DTYPE_NONE, 3, 24)},
      {"u8 f32 u8 0x16", form(FRT_DTYPE_U8, FRT_DTYPE_F32, FRT_DTYPE_U8, 0, 16)},
      {"u8 f16 middle 0x0",
       form(FRT_DTYPE_U8, FRT_DTYPE_F16, FRT_DTYPE_NONE, 0, 0, FRT_WEIGHT_MIDPOINT_ZERO)},
      {"i8 f32 channel", form(FRT_DTYPE_I8, FRT_DTYPE_F32, FRT_DTYPE_NONE, 1, 0)},
      {"mxfp4", FRT_WEIGHT_MXFP4},
      {"mxfp8", form(FRT_DTYPE_F8_E4M3, FRT_DTYPE_F8_E8M0, FRT_DTYPE_NONE, 1, 32)},
  };
  return packings;
}

Case::Case(Backend& under_test, Backend& reference, uint64_t seed, bool once, Rounding activations)
    : sides_{&under_test, &reference}, random_(seed), once_(once), activations_(activations) {}

Case::~Case() {
  // A case that ends early may have left work in flight.
  for (Backend* side : sides_) side->table().stream_sync(side->stream());
  for (Tensor& tensor : tensors_) {
    for (int side = 0; side < 2; ++side) {
      if (tensor.at[side]) sides_[side]->release(tensor.at[side]);
    }
  }
}

void Case::fail(const std::string& text) {
  throw Error(FRT_ERR_INTERNAL, text);
}

// ---- tensors ------------------------------------------------------------------------------

Tensor& Case::make(const std::string& name, frt_dtype dtype, int64_t count) {
  Tensor& tensor = tensors_.emplace_back();
  tensor.name = name;
  tensor.dtype = dtype;
  tensor.count = count;
  tensor.initial.assign(bytes_of(dtype, count), kPoison);
  for (int side = 0; side < 2; ++side) {
    tensor.at[side] = sides_[side]->allocate(std::max<std::size_t>(tensor.initial.size(), 16));
  }
  return tensor;
}

Tensor& Case::normal(const std::string& name, frt_dtype dtype, int64_t count, float deviation,
                     float mean) {
  Tensor& tensor = make(name, dtype, count);
  const std::span<const float> values = normal_values();
  std::size_t next = random_() % values.size();
  const std::size_t size = dtype_bits(dtype) / 8;
  for (int64_t i = 0; i < count; ++i) {
    store(dtype, tensor.initial.data() + static_cast<std::size_t>(i) * size,
          mean + deviation * values[next]);
    if (++next == values.size()) next = 0;
  }
  return tensor;
}

Tensor& Case::uniform(const std::string& name, frt_dtype dtype, int64_t count, float low,
                      float high) {
  Tensor& tensor = make(name, dtype, count);
  std::uniform_real_distribution<float> values(low, high);
  const std::size_t size = dtype_bits(dtype) / 8;
  for (int64_t i = 0; i < count; ++i) {
    store(dtype, tensor.initial.data() + static_cast<std::size_t>(i) * size, values(random_));
  }
  return tensor;
}

Tensor& Case::integers(const std::string& name, const std::vector<int32_t>& values) {
  return raw(name, FRT_DTYPE_I32, values.data(), static_cast<int64_t>(values.size()));
}

Tensor& Case::raw(const std::string& name, frt_dtype dtype, const void* data, int64_t count) {
  Tensor& tensor = make(name, dtype, count);
  if (!tensor.initial.empty()) std::memcpy(tensor.initial.data(), data, tensor.initial.size());
  return tensor;
}

Tensor& Case::output(const std::string& name, frt_dtype dtype, int64_t count) {
  return make(name, dtype, count);
}

// ---- weights ------------------------------------------------------------------------------

Weight Case::weight(const std::string& name, const Packing& packing, int32_t rows, int32_t cols) {
  const ExpertWeight one = experts(name, packing, 1, rows, cols);
  return one.experts;
}

ExpertWeight Case::experts(const std::string& name, const Packing& packing, int32_t count,
                           int32_t rows, int32_t cols) {
  const frt_weight_format& format = packing.format;
  const WeightBytes bytes = weight_bytes(format, rows, cols);
  const auto deviation = 1.0f / std::sqrt(static_cast<float>(cols));
  ExpertWeight made;
  frt_weight& shape = made.experts.shape;
  shape.format = format;
  shape.rows = rows;
  shape.cols = cols;
  shape.global_scale = 1;
  made.data_stride = bytes.data;
  made.scale_stride = bytes.scale;
  made.zero_stride = bytes.zero;
  // Random codes: all of them are numbers.
  const auto codes = [&](const char* what, frt_dtype dtype, int64_t each) -> const Tensor* {
    std::vector<uint8_t> values(static_cast<std::size_t>(each * count));
    for (uint8_t& value : values) value = static_cast<uint8_t>(random_());
    const auto bits = static_cast<int64_t>(dtype_bits(dtype));
    return &raw(name + what, dtype, values.data(), each * count * 8 / bits);
  };
  if (weight_type(format) == WeightType::kF32 || weight_type(format) == WeightType::kBf16) {
    made.experts.data = &normal(name, format.data, int64_t{rows} * cols * count, deviation);
    return made;
  }
  if (format == kWeightNvfp4 && cols % 16 != 0) fail("NVFP4 needs inputs in multiples of 16");
  made.experts.data = format.data == FRT_DTYPE_F8_E4M3
                          ? &normal(name, format.data, bytes.data * count, 16.0f)
                          : codes("", format.data, bytes.data);
  // The deviation of what is multiplied by a scale: of all codes of the type, or as above; of two
  // random ones for a value and a zero point.
  const float of_values = spread(format.data) * (format.zero == FRT_DTYPE_NONE ? 1.0f : 1.4f);
  const float middle = deviation / of_values;
  const bool global = (format.flags & FRT_WEIGHT_GLOBAL_SCALE) != 0;
  if (format.scale == FRT_DTYPE_F8_E8M0) {
    const auto exponent = 127 + static_cast<int>(std::lround(std::log2(middle)));
    std::vector<uint8_t> values(static_cast<std::size_t>(bytes.scale * count));
    for (uint8_t& value : values) value = static_cast<uint8_t>(exponent - 1 + random_() % 3);
    made.experts.scale = &raw(name + ".scale", format.scale, values.data(), bytes.scale * count);
  } else if (format.scale != FRT_DTYPE_NONE) {
    const float mean = global ? 1.0f : middle;
    made.experts.scale =
        &uniform(name + ".scale", format.scale, bytes.scale * count * 8 / dtype_bits(format.scale),
                 0.5f * mean, 1.5f * mean);
  }
  if (format.zero != FRT_DTYPE_NONE) {
    const float most = dtype_bits(format.data) == 4 ? 15.0f : 255.0f;
    made.experts.zero =
        format.zero == format.data
            ? codes(".zero", format.zero, bytes.zero)
            : &uniform(name + ".zero", format.zero,
                       bytes.zero * count * 8 / dtype_bits(format.zero), 0.0f, most);
  }
  if (global) {
    shape.global_scale = middle;
    if (count > 1) {
      made.global_scales =
          &uniform(name + ".global_scales", FRT_DTYPE_F32, count, 0.5f * middle, 1.5f * middle);
    }
  }
  return made;
}

frt_weight Case::at(const Weight& weight, const At& at) {
  frt_weight made = weight.shape;
  made.data = at(*weight.data);
  made.scale = weight.scale ? at(*weight.scale) : nullptr;
  made.zero = weight.zero ? at(*weight.zero) : nullptr;
  return made;
}

frt_expert_weight Case::at(const ExpertWeight& weight, const At& at) {
  frt_expert_weight made{};
  made.expert = Case::at(weight.experts, at);
  made.data_stride = weight.data_stride;
  made.scale_stride = weight.scale_stride;
  made.zero_stride = weight.zero_stride;
  made.global_scales = weight.global_scales ? at.operator()<float>(*weight.global_scales) : nullptr;
  return made;
}

Case::Sequences Case::sequences(int32_t rows, const std::vector<int32_t>& slot,
                                const std::vector<int32_t>& position,
                                const std::vector<int32_t>& length) {
  return {static_cast<int32_t>(slot.size()), rows, &integers("slot", slot),
          &integers("position", position), &integers("length", length)};
}

frt_sequences Case::Sequences::at(const At& at) const {
  return {count, rows, at.operator()<int32_t>(*slot), at.operator()<int32_t>(*position),
          at.operator()<int32_t>(*length)};
}

// ---- running ------------------------------------------------------------------------------

void Case::reset(int side) {
  for (Tensor& tensor : tensors_) {
    if (!tensor.initial.empty()) {
      sides_[side]->write(tensor.at[side], tensor.initial.data(), tensor.initial.size());
    }
  }
}

void Case::fetch(int side) {
  for (Tensor& tensor : tensors_) {
    tensor.result[side].resize(tensor.initial.size());
    if (!tensor.initial.empty()) {
      sides_[side]->read(tensor.result[side].data(), tensor.at[side], tensor.initial.size());
    }
  }
}

void Case::run(const Chain& chain) {
  struct Kernels {
    const frt_kernel_desc* at[2];
  };
  std::vector<Kernels> kernels;
  std::string names;
  for (const Chain::Link& link : chain.links()) {
    const auto find = [&](int side) {
      return sides_[side]->kernel(link.name, link.types, link.weights);
    };
    kernels.push_back({{find(0), find(1)}});
    if (!kernels.back().at[0]) throw Skip{"not offered for these types: " + link.name};
    if (!kernels.back().at[1]) fail("the reference has no kernel " + link.name);
    if (const uint32_t said = kernels.back().at[0]->args_size; said != link.args_size) {
      fail(link.name + ": args_size of its frt_kernel_desc is " + std::to_string(said) +
           ", its argument struct has " + std::to_string(link.args_size) + " bytes");
    }
    if (names.find(link.name) == std::string::npos)
      names += (names.empty() ? "" : ", ") + link.name;
  }
  frt_error error{};
  const auto submit = [&](int side, const std::string& before, const std::string& behind) {
    for (std::size_t i = 0; i < kernels.size(); ++i) {
      const Chain::Link& link = chain.links()[i];
      const frt_kernel& kernel = kernels[i].at[side]->kernel;
      const frt_status status = link.call(kernel, sides_[side]->stream(), side, &error);
      if (kernel.supports) {
        const frt_kernel question{const_cast<frt_kernel*>(&kernel), ask, nullptr};
        const frt_status answer = link.call(question, nullptr, side, nullptr);
        if (answer != status) {
          fail(link.name + behind + ": supports answers " + status_name(answer) +
               ", launch answers " + status_name(status));
        }
      }
      if (side == 0 && status == FRT_ERR_UNSUPPORTED) {
        throw Skip{"not supported: " + link.name + behind + ": " + error.message, true};
      }
      frt::check(status, error, before + link.name + behind);
    }
  };

  reset(1);
  submit(1, "reference ", "");
  sides_[1]->sync();
  fetch(1);

  Backend& side = *sides_[0];
  reset(0);
  submit(0, "", "");
  side.sync();
  fetch(0);
  if (once_) return;
  std::vector<std::vector<std::byte>> eager;
  for (Tensor& tensor : tensors_) eager.push_back(tensor.result[0]);

  frt::check(side.table().capture_begin(side.stream(), &error), error, "capture_begin");
  try {
    submit(0, "", " while capturing");
  } catch (...) {
    side.table().capture_abort(side.stream());
    throw;
  }
  frt_backend_exec exec = nullptr;
  frt::check(side.table().capture_end(side.stream(), &exec, &error), error, "capture_end");
  std::string difference;
  for (int launch = 0; launch < 2 && difference.empty(); ++launch) {
    reset(0);
    frt::check(side.table().exec_launch(exec, side.stream()), names + ", exec_launch");
    side.sync();
    fetch(0);
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      if (tensors_[i].result[0] != eager[i]) {
        difference =
            tensors_[i].name + " differs between eager and launch " + std::to_string(launch + 1);
        break;
      }
    }
  }
  side.table().exec_destroy(exec);
  if (!difference.empty()) fail(names + ": " + difference);
}

std::vector<double> Case::values(const Tensor& tensor) {
  std::vector<double> made(static_cast<std::size_t>(tensor.count));
  for (std::size_t i = 0; i < made.size(); ++i) {
    made[i] = decode(tensor.dtype, tensor.initial.data(), static_cast<int64_t>(i));
  }
  return made;
}

std::vector<double> Case::values(const Weight& weight, int32_t first_row, int32_t rows) {
  ExpertWeight one;
  one.experts = weight;
  std::vector<double> made;
  made.reserve(static_cast<std::size_t>(rows) * static_cast<std::size_t>(weight.shape.cols));
  for (int32_t row = first_row; row < first_row + rows; ++row) {
    const std::vector<double> line = values(one, 0, row);
    made.insert(made.end(), line.begin(), line.end());
  }
  return made;
}

std::vector<double> Case::values(const ExpertWeight& weight, int32_t index, int32_t row) {
  const frt_weight& shape = weight.experts.shape;
  const frt_weight_format& format = shape.format;
  const int64_t group_rows = format.group_rows > 0 ? format.group_rows : shape.rows;
  const int64_t group_cols = format.group_cols > 0 ? format.group_cols : shape.cols;
  const int64_t groups = (shape.cols + group_cols - 1) / group_cols;
  // A row of the data, scales or zero points.
  const auto line = [&](const Tensor* tensor, frt_dtype dtype, int64_t stride, int64_t at,
                        int64_t columns) {
    return tensor ? tensor->initial.data() + index * stride + at * row_bytes(dtype, columns)
                  : nullptr;
  };
  const std::byte* data =
      line(weight.experts.data, format.data, weight.data_stride, row, shape.cols);
  const std::byte* scales =
      line(weight.experts.scale, format.scale, weight.scale_stride, row / group_rows, groups);
  const std::byte* zeros =
      line(weight.experts.zero, format.zero, weight.zero_stride, row / group_rows, groups);
  double global = 1;
  if (format.flags & FRT_WEIGHT_GLOBAL_SCALE) {
    global = weight.global_scales
                 ? decode(FRT_DTYPE_F32, weight.global_scales->initial.data(), index)
                 : static_cast<double>(shape.global_scale);
  }
  std::vector<double> made;
  made.reserve(static_cast<std::size_t>(shape.cols));
  for (int64_t col = 0; col < shape.cols; ++col) {
    double value = decode(format.data, data, col);
    if (zeros) value -= decode(format.zero, zeros, col / group_cols);
    if (format.flags & FRT_WEIGHT_MIDPOINT_ZERO) value -= dtype_bits(format.data) == 4 ? 8 : 128;
    if (scales) value *= decode(format.scale, scales, col / group_cols);
    made.push_back(value * global);
  }
  return made;
}

Rounding Case::may_round(const Tensor& x, const Weight& weight) const {
  const WeightType type = weight_type(weight.shape.format);
  const bool fp8 = x.dtype == FRT_DTYPE_BF16 &&
                   (type == WeightType::kFp8Block || type == WeightType::kFp8Tensor ||
                    type == WeightType::kFp8Channel);
  const bool rounded = (activations_ == Rounding::kFp8 && fp8) ||
                       (activations_ == Rounding::kFp4 && type == WeightType::kNvfp4);
  return rounded ? activations_ : Rounding::kNone;
}

void Case::require_product(const Tensor& x, const Weight& weight, const Tensor& y,
                           const ProductShape& shape) {
  constexpr int64_t kMostTerms = int64_t{1} << 24;  // tens of milliseconds
  const int32_t outputs = weight.shape.rows, inputs = weight.shape.cols;
  const int64_t terms = std::max<int64_t>(1, int64_t{shape.rows} * inputs);
  // Some outputs, spread, and the last one: where tiles end.
  const int64_t step = std::max<int64_t>(1, outputs * terms / kMostTerms);
  const Rounding rounding = may_round(x, weight);
  const bool may_differ = rounding != Rounding::kNone;
  Expected expected(y.dtype, y.count), of_rounded(y.dtype, y.count);
  for (int64_t row = 0; row < std::max(shape.rows, shape.ignored); ++row) {
    expected.ignore(row * shape.y_stride, outputs);
    of_rounded.ignore(row * shape.y_stride, outputs);
  }
  const bool packed = weight.shape.format != kWeightF32 && weight.shape.format != kWeightBf16;
  const std::vector<double> values = Case::values(x), before = Case::values(y);
  const auto judge = [&](int32_t output) {
    const std::vector<double> column = Case::values(weight, output, 1);
    for (int64_t row = 0; row < shape.rows; ++row) {
      const auto first = static_cast<std::size_t>(row * shape.x_stride);
      const auto row_values = std::span(values).subspan(first, column.size());
      const bool weights_rounded = packed && x.dtype == FRT_DTYPE_BF16;
      const int64_t at = row * shape.y_stride + output;
      const double added = shape.accumulate ? before[static_cast<std::size_t>(at)] : 0.0;
      const Product one =
          rounded_product(product(row_values, column, weights_rounded), added, y.dtype);
      expected.value(at, one.sum, one.bound);
      if (!may_differ) continue;
      const Product other =
          rounded_product(product(row_values, column, weights_rounded, rounding), added, y.dtype);
      of_rounded.value(at, other.sum, other.bound, other.deviation);
    }
  };
  for (int64_t output = 0; output < outputs; output += step) judge(static_cast<int32_t>(output));
  judge(outputs - 1);
  require(y, may_differ ? of_rounded : expected, expected);
  has_rounded_ =
      has_rounded_ || (may_differ && !expected.judge(y.name, y.initial, y.result[0]).empty());
}

void Case::require(const Tensor& tensor, const Expected& expected) {
  require(tensor, expected, expected);
}

void Case::require(const Tensor& tensor, const Expected& under_test, const Expected& reference) {
  for (int side = 0; side < 2; ++side) {
    const std::string complaint = (side == 0 ? under_test : reference)
                                      .judge(tensor.name, tensor.initial, tensor.result[side]);
    if (complaint.empty()) continue;
    fail((side == 0 ? "" : "the reference's ") + complaint);
  }
}

double Case::value(const Tensor& tensor, int side, int64_t index) {
  const std::byte* data = tensor.result[side].data();
  switch (tensor.dtype) {
    case FRT_DTYPE_U64: {
      uint64_t number = 0;
      std::memcpy(&number, data + static_cast<std::size_t>(index) * sizeof(number), sizeof(number));
      return static_cast<double>(number);
    }
    case FRT_DTYPE_F16: {  // compared by its bits
      uint16_t bits = 0;
      std::memcpy(&bits, data + static_cast<std::size_t>(index) * sizeof(bits), sizeof(bits));
      return bits;
    }
    case FRT_DTYPE_F4_E2M1:  // two at a time, by their bits
      return std::to_integer<uint8_t>(data[index]);
    case FRT_DTYPE_F32:
    case FRT_DTYPE_BF16:
    case FRT_DTYPE_F8_E4M3:
    case FRT_DTYPE_I32:
    case FRT_DTYPE_U32:
    case FRT_DTYPE_U8:
      return decode(tensor.dtype, data, index);
    default:
      fail(std::string("no comparison of type ") + dtype_name(tensor.dtype));
  }
}

void Case::compare(const Tensor& tensor, Tolerance tolerance, Untouched untouched) {
  const int64_t count = tensor.dtype == FRT_DTYPE_F4_E2M1 ? (tensor.count + 1) / 2 : tensor.count;
  compare_range(tensor, 0, count, tolerance, untouched);
}

void Case::compare_range(const Tensor& tensor, int64_t first, int64_t count, Tolerance tolerance,
                         Untouched untouched) {
  const Range all{first, count};
  compare_ranges(tensor, {&all, 1}, 0, tolerance, untouched);
}

void Case::compare_rounded(const Tensor& tensor, std::span<const Range> ranges, int64_t width,
                           Tolerance tolerance, Rounding rounding, Tolerance rounded) {
  try {
    for (const Range& one : ranges) compare_range(tensor, one.first, one.count, tolerance);
  } catch (const Error&) {
    if (rounding == Rounding::kNone) throw;
    compare_ranges(tensor, ranges, width, rounded, Untouched::kLeave);
    has_rounded_ = true;
  }
}

void Case::compare_rounded(const Tensor& tensor, int64_t width, Tolerance tolerance,
                           Rounding rounding, Tolerance rounded) {
  const Range all{0, tensor.count};
  compare_rounded(tensor, {&all, 1}, width, tolerance, rounding, rounded);
}

void Case::compare_ranges(const Tensor& tensor, std::span<const Range> ranges, int64_t width,
                          Tolerance tolerance, Untouched untouched) {
  const std::size_t size = tensor.dtype == FRT_DTYPE_F4_E2M1 ? 1 : dtype_bits(tensor.dtype) / 8;
  const auto poisoned = [&](int side, int64_t i) {
    const std::byte* at = tensor.result[side].data() + static_cast<std::size_t>(i) * size;
    const std::byte* before = tensor.initial.data() + static_cast<std::size_t>(i) * size;
    return std::all_of(before, before + size, [](std::byte b) { return b == kPoison; }) &&
           std::all_of(at, at + size, [](std::byte b) { return b == kPoison; });
  };
  double difference = 0, total = 0;
  int64_t written = 0, farthest = ranges.empty() ? 0 : ranges.front().first;
  const auto where = [&](int64_t i) { return tensor.name + "[" + std::to_string(i) + "]"; };
  const auto for_each = [&](auto visit) {
    for (const Range& one : ranges) {
      for (int64_t i = one.first; i < one.first + one.count; ++i) visit(i);
    }
  };
  for_each([&](int64_t i) {
    if (poisoned(1, i)) {
      if (untouched == Untouched::kLeave && !poisoned(0, i)) {
        fail(where(i) + " was written, the reference leaves it alone");
      }
      return;
    }
    if (poisoned(0, i)) fail(where(i) + " was not written");
    const double out = value(tensor, 0, i), expected = value(tensor, 1, i);
    if (std::isnan(expected) != std::isnan(out) || (std::isinf(expected) && expected != out) ||
        (std::isinf(out) && expected != out)) {
      fail(where(i) + " is " + std::to_string(out) + ", expected " + std::to_string(expected));
    }
    if (!std::isfinite(expected)) return;
    const double away = std::fabs(out - expected);
    if (away > std::fabs(value(tensor, 0, farthest) - value(tensor, 1, farthest))) farthest = i;
    difference += away * away;
    total += expected * expected;
    ++written;
  });
  if (written == 0) return;
  const double rms = std::sqrt(total / static_cast<double>(written));
  const double relative = total > 0 ? std::sqrt(difference / total) : std::sqrt(difference);
  worst_ = std::max(worst_, relative);
  if (!(relative <= tolerance.norm)) {
    fail(tensor.name + " of type " + dtype_name(tensor.dtype) + ": relative error " +
         std::to_string(relative) + ", allowed " + std::to_string(tolerance.norm) +
         "; farthest off: " + where(farthest) + " is " +
         std::to_string(value(tensor, 0, farthest)) + ", the reference's is " +
         std::to_string(value(tensor, 1, farthest)));
  }
  int64_t rare = tolerance.rare > 0 ? written / 4000 : 0;
  for_each([&](int64_t i) {
    if (poisoned(1, i)) return;
    const double out = value(tensor, 0, i), expected = value(tensor, 1, i);
    if (!std::isfinite(expected)) return;
    const double away = std::fabs(out - expected), scale = std::fabs(expected) + rms;
    if (scale > 0) worst_element_ = std::max(worst_element_, away / scale);
    if (away > tolerance.element * scale && (away > tolerance.rare * scale || rare-- <= 0)) {
      fail(where(i) + " is " + std::to_string(out) + ", expected " + std::to_string(expected));
    }
  });
  if (width == 0 || tolerance.row == 0) return;
  for (const Range& one : ranges) {
    for (int64_t row = one.first / width; row < (one.first + one.count) / width; ++row) {
      double off = 0, all = 0;
      for (int64_t i = row * width; i < (row + 1) * width; ++i) {
        if (poisoned(1, i)) continue;
        const double expected = value(tensor, 1, i);
        if (!std::isfinite(expected)) continue;
        off += std::pow(value(tensor, 0, i) - expected, 2);
        all += expected * expected;
      }
      if (off <= all * tolerance.row * tolerance.row) continue;
      fail("row " + std::to_string(row) + " of " + tensor.name + ": relative error " +
           std::to_string(std::sqrt(off / all)) + ", allowed " + std::to_string(tolerance.row));
    }
  }
}

}  // namespace frt::conformance
